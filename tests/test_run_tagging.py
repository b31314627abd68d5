"""Tests of `bert.run_tagging` on a task that a small model learns in a few steps."""

import json

import numpy as np
import pytest
from programs import Program

from bert.errors import InputError

KINDS = {"anna": "B-PER", "paris": "B-LOC", "sleeps": "O", "in": "O", "today": "O"}


@pytest.fixture(scope="module")
def run_tagging():
    return Program("bert.run_tagging")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *KINDS]) + "\n")
    config = {
        "vocab_size": 9,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 16,
        "type_vocab_size": 2,
    }
    (folder / "bert_config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    for split, count in (("train", 160), ("dev", 21), ("test", 13)):
        with open(folder / f"{split}.txt", "w") as f:
            for words in (rng.choice(list(KINDS), size=rng.integers(1, 20)) for _ in range(count)):
                f.writelines(f"{word} x {KINDS[word]}\n" for word in words)
                f.write("\n")
    return folder


def test_trains_evaluates_and_tags(run_tagging, folder, tmp_path, caplog):
    caplog.set_level("INFO")
    options = {
        "data_dir": folder,
        "output_dir": tmp_path / "out",
        "bert_config_file": folder / "bert_config.json",
        "max_seq_length": 12,
        "do_train": True,
        "do_eval": True,
        "do_predict": True,
        "num_train_steps": 60,
        "learning_rate": 5e-3,
        "eval_every": 30,
    }
    run_tagging(**options)
    results = dict(line.split(" = ") for line in (tmp_path / "out/eval_results.txt").read_text().splitlines())
    assert float(results["f1"]) > 0.95 and float(results["eval_accuracy"]) > 0.95
    evaluations = [json.loads(line) for line in (tmp_path / "out/evaluations.jsonl").read_text().splitlines()]
    assert [entry["global_step"] for entry in evaluations] == [30, 60]

    lines = (tmp_path / "out/test_predictions.txt").read_text().splitlines()
    source = (folder / "test.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == [line.split(" ")[0] for line in source]
    tags = [line.split("\t")[1] for line in lines if line]
    assert np.mean([tag == KINDS[line.split(" ")[0]] for tag, line in zip(tags, filter(None, source))]) > 0.95

    run_tagging(**{**options, "do_predict": False})
    assert "already at step 60 of 60" in caplog.text and "already evaluated at step 60" in caplog.text

    # The tags are those of the training.
    (tmp_path / "other.txt").write_text("anna B-PER\nrome B-CITY\n")
    with pytest.raises(InputError, match=r"other.txt:2: the tag 'B-CITY' of the word 'rome' is unknown"):
        run_tagging(
            **{**options, "do_train": False, "do_predict": False, "eval_every": None}, eval_file=tmp_path / "other.txt"
        )
