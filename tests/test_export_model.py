"""Exports load where they are meant to, and give the model's logits."""

import json
import subprocess
import sys

import numpy as np
import pytest
from numpy_bert import NumpyBert, log_softmax, random_variables
from programs import Program

from bert import modeling
from bert.errors import InputError
from bert.formats.checkpoint import Checkpoint
from bert.training import checkpoint_formats, finetuning, pretraining

# Runs without the project: TensorFlow is all that a SavedModel needs.
LOAD = """
import json, sys
import numpy as np
import tensorflow as tf
batch = {name: tf.constant(value, tf.int32) for name, value in json.loads(sys.argv[1]).items()}
found = {}
for kind in sys.argv[3:]:
    model = tf.saved_model.load(f"{kind}/export/saved_model")
    calls = {"serving_default": batch}
    if kind == "single":
        calls["serving_text"] = {"text": tf.constant(["The was he", ""])}
        calls["serving_text_pairs"] = {"text_a": tf.constant(["The was"]), "text_b": tf.constant(["he"])}
    if kind == "pretrained":
        calls["mlm"] = {**batch, "mlm_positions": tf.constant([[1, 2], [0, 3]], tf.int32)}
    assert set(model.signatures) == set(calls), (kind, list(model.signatures))
    for name, inputs in calls.items():
        for output, value in model.signatures[name](**inputs).items():
            found[f"{kind}/{name}/{output}"] = value.numpy()
np.savez(sys.argv[2], **found)
"""
HEADS = {
    "single": {"output_weights": [3, 32], "output_bias": [3]},
    "multi": {"output_weights": [3, 32], "output_bias": [3]},
    "regression": {"output_weights": [1, 32], "output_bias": [1]},
    "tagger": {"output_weights": [3, 32], "output_bias": [3]},
    "spans": {"cls/squad/output_weights": [2, 32], "cls/squad/output_bias": [2]},
    "pretrained": {},
}
LABELS = ["no", "maybe", "yes"]
BATCH = {
    "input_ids": np.array([[2, 6, 9, 3, 7, 3], [2, 8, 3, 0, 0, 0]]),
    "input_mask": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]),
    "segment_ids": np.array([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]),
}


@pytest.fixture(scope="module")
def export():
    return Program("bert.export_model")


@pytest.fixture(scope="module")
def models(export, tiny_model, tmp_path_factory):
    """Folder of models of every kind and their exports; and what each computes, in NumPy."""
    root = tmp_path_factory.mktemp("models")
    config = modeling.BertConfig.from_json_file(str(tiny_model / "bert_config.json"))
    encoder = finetuning.variable_shapes(config, lambda *_: None, finetuning.sequence_spec(2))
    references = {}
    for kind, head in HEADS.items():
        shapes = pretraining.variable_shapes(config) if kind == "pretrained" else {**encoder, **head}
        variables = random_variables(shapes, np.random.default_rng(0))
        # One tokenizer is enough: its tables take their time.
        vocab_file = str(tiny_model / "vocab.txt") if kind == "single" else None
        checkpoint_formats.write_tf1(str(root / kind), Checkpoint(variables, config, vocab_file))
        if "output_weights" in head:
            settings = {"label_kind": kind, "labels": [] if kind == "regression" else LABELS, "max_seq_length": 16}
            if kind == "tagger":
                settings = {"task": "tagging", "labels": LABELS, "max_seq_length": 16}
            (root / kind / "task.json").write_text(json.dumps(settings))
        references[kind] = NumpyBert(config, variables)
        export(model_dir=root / kind, model_export_path=root / kind / "export")
    return root, references


def logits(reference, kind, batch=None):
    """The scores of the heads for a batch, by name."""
    batch = BATCH if batch is None else batch
    v = reference.variables
    vectors = reference.encode(batch["input_ids"], batch["input_mask"], batch["segment_ids"])[-1]
    if kind == "spans":
        both = vectors @ v["cls/squad/output_weights"].T + v["cls/squad/output_bias"]
        return {"start_logits": both[..., 0], "end_logits": both[..., 1]}
    pooled = vectors if kind == "tagger" else reference.pool(vectors)
    if kind == "pretrained":
        next_sentence = pooled @ v["cls/seq_relationship/output_weights"].T + v["cls/seq_relationship/output_bias"]
        return {"pooled_output": pooled, "sequence_output": vectors, "next_sentence_logits": next_sentence}
    scores = pooled @ v["output_weights"].T + v["output_bias"]
    if kind == "regression":
        return {"logits": scores, "predictions": scores[:, 0]}
    return {
        "logits": scores,
        "probabilities": 1 / (1 + np.exp(-scores)) if kind == "multi" else np.exp(log_softmax(scores)),
    }


@pytest.mark.timeout(900)  # a second TensorFlow, on a machine that may be busy
def test_saved_models_in_a_fresh_process(models, tmp_path):
    root, references = models
    batch = json.dumps({name: value.tolist() for name, value in BATCH.items()})
    command = [sys.executable, "-c", LOAD, batch, tmp_path / "found.npz", *HEADS]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    found = dict(np.load(tmp_path / "found.npz"))
    for kind, reference in references.items():
        for name, wanted in logits(reference, kind).items():
            np.testing.assert_allclose(found[f"{kind}/serving_default/{name}"], wanted, atol=2e-5, err_msg=kind)
    reference = references["pretrained"]
    vectors = reference.encode(BATCH["input_ids"], BATCH["input_mask"], BATCH["segment_ids"])[-1]
    zeros = np.zeros((2, 2), int)
    wanted = reference.masked_lm(vectors, np.array([[1, 2], [0, 3]]), zeros, zeros)[1].reshape(2, 2, -1)
    np.testing.assert_allclose(log_softmax(found["pretrained/mlm/mlm_logits"]), wanted, atol=2e-5)
    # [CLS] the was he [SEP]; [CLS] [SEP]; and [CLS] the was [SEP] he [SEP], in the order of conftest's words.
    words = (root / "single" / "vocab.txt").read_text().split("\n")
    the, was, he = map(words.index, ("the", "was", "he"))
    rows = {
        "serving_text": ([[2, the, was, he, 3], [2, 3, 0, 0, 0]], [[0] * 5] * 2),
        "serving_text_pairs": ([[2, the, was, 3, he, 3]], [[0, 0, 0, 0, 1, 1]]),
    }
    for name, (ids, types) in rows.items():
        batch = {"input_ids": np.array(ids), "input_mask": (np.array(ids) > 0) * 1, "segment_ids": np.array(types)}
        wanted = logits(references["single"], "single", batch)["probabilities"]
        np.testing.assert_allclose(found[f"single/{name}/probabilities"], wanted, atol=2e-5)


def test_exports_are_read_again(models):
    root, _ = models
    for kind in HEADS:
        source = checkpoint_formats.read(str(root / kind))
        for form in ("saved_model", "hugging_face"):
            found = checkpoint_formats.read(str(root / kind / "export" / form))
            missing = {*source.variables} - {*found.variables}
            assert all(name.startswith("bert/pooler/") for name in missing), (kind, form)
            assert bool(missing) == (form == "hugging_face" and kind in ("tagger", "spans")), (kind, form)
            for name, value in found.variables.items():
                np.testing.assert_array_equal(source.variables[name], value, err_msg=name)
            assert found.config.to_dict() == source.config.to_dict()
            assert bool(found.vocab_file) == (kind == "single")


def test_hugging_face_settings(models):
    folder = models[0] / "single" / "export" / "hugging_face"
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"] and config["hidden_act"] == "gelu_new"
    assert config["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
    assert config["problem_type"] == "single_label_classification"
    assert json.loads((folder / "tokenizer_config.json").read_text())["do_lower_case"] is True
    assert (folder / "vocab.txt").read_bytes() == (models[0] / "single" / "vocab.txt").read_bytes()


def test_transformers_gives_the_same_logits(models):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    root, references = models
    batch = {name: torch.tensor(value) for name, value in BATCH.items()}
    batch["attention_mask"], batch["token_type_ids"] = batch.pop("input_mask"), batch.pop("segment_ids")
    for kind in ("single", "multi", "regression"):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(root / kind / "export/hugging_face")
        found = model.eval()(**batch).logits.detach().numpy()
        np.testing.assert_allclose(found, logits(references[kind], kind)["logits"], atol=2e-5)
    model = transformers.AutoModelForTokenClassification.from_pretrained(root / "tagger/export/hugging_face")
    assert model.config.id2label == dict(enumerate(LABELS))
    found = model.eval()(**batch).logits.detach().numpy()
    np.testing.assert_allclose(found, logits(references["tagger"], "tagger")["logits"], atol=2e-5)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(root / "spans/export/hugging_face")
    found = model.eval()(**batch)
    for name, wanted in logits(references["spans"], "spans").items():
        np.testing.assert_allclose(found[name].detach().numpy(), wanted, atol=2e-5)
    model = transformers.AutoModelForPreTraining.from_pretrained(root / "pretrained/export/hugging_face")
    found = model.eval()(**batch).seq_relationship_logits.detach().numpy()
    np.testing.assert_allclose(found, logits(references["pretrained"], "pretrained")["next_sentence_logits"], atol=2e-5)


def test_onnx_runtime_gives_the_same_logits(models, export):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    root, references = models
    for kind in ("multi", "tagger"):
        export(model_dir=root / kind, model_export_path=root / kind / "export", formats="onnx")
        session = onnxruntime.InferenceSession(str(root / kind / "export" / "onnx" / "model.onnx"))
        names = [output.name for output in session.get_outputs()]
        found = session.run(names, {name: value.astype(np.int32) for name, value in BATCH.items()})
        for name, wanted in logits(references[kind], kind).items():
            np.testing.assert_allclose(found[names.index(name)], wanted, atol=2e-5)


def test_exports_are_kept_replaced_and_never_taken_for_others(models, export, tmp_path, caplog):
    caplog.set_level("INFO")
    given = {"model_dir": models[0] / "spans", "model_export_path": tmp_path, "formats": "hugging_face"}
    export(**given)
    export(**given)
    assert f"{tmp_path}/hugging_face: written before" in caplog.text
    export(**{**given, "model_dir": models[0] / "multi"})
    config = json.loads((tmp_path / "hugging_face" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "mine").write_text("")
    with pytest.raises(InputError, match="saved_model is not empty, and was not written by this program"):
        export(**{**given, "formats": "saved_model"})
    with pytest.raises(InputError, match="--formats=pmml: there are saved_model, hugging_face, onnx"):
        export(**{**given, "formats": "pmml"})
