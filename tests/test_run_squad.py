"""Answering questions, from SQuAD's files to the original's."""

import json

import pytest
from programs import Program

from bert.errors import InputError
from bert.training import run_record

CONTEXT = "the was he of and to which they had him for she not at"


@pytest.fixture(scope="session")
def program():
    return Program("bert.run_squad")


@pytest.fixture
def run(program, tiny_model, tmp_path):
    """Runs the program with questions whose answer is the word that they name; every third has none."""
    entries = []
    for i, word in enumerate(CONTEXT.split()):
        start = f" {CONTEXT} ".index(f" {word} ")
        entry = {"id": f"q{i}", "question": f"{word}", "answers": [{"text": word, "answer_start": start}]}
        if i % 3 == 0:
            entry.update(is_impossible=True, answers=[], question="is")
        entries.append(entry)
    articles = [{"title": "T", "paragraphs": [{"context": CONTEXT, "qas": entries}]}]
    (tmp_path / "v2.json").write_text(json.dumps({"data": articles}))
    answerable = [entry for entry in entries if entry["answers"]]
    articles = [{"title": "T", "paragraphs": [{"context": CONTEXT, "qas": answerable}]}]
    (tmp_path / "v1.json").write_text(json.dumps({"data": articles}))

    def run(name, **given):
        program(
            bert_config_file=tiny_model / "bert_config.json",
            output_dir=tmp_path / "out",
            train_file=tmp_path / name,
            predict_file=tmp_path / name,
            max_seq_length=16,
            doc_stride=4,
            max_query_length=4,
            train_batch_size=8,
            num_train_steps=2,
            **given,
        )
        return tmp_path / "out"

    return run


def test_flags_and_defaults_are_the_originals(program):
    original = {
        **dict.fromkeys(("train_file", "predict_file", "init_checkpoint", "bert_config_file", "vocab_file")),
        **dict.fromkeys(("do_train", "do_predict", "version_2_with_negative", "verbose_logging"), False),
        "do_lower_case": True,
        "max_seq_length": 384,
        "doc_stride": 128,
        "max_query_length": 64,
        "train_batch_size": 32,
        "predict_batch_size": 8,
        "learning_rate": 5e-5,
        "num_train_epochs": 3.0,
        "n_best_size": 20,
        "max_answer_length": 30,
        "null_score_diff_threshold": 0.0,
    }
    assert {name: program.defaults[name] for name in original} == original


def test_squad_2_from_questions_to_scores(run):
    out = run("v2.json", do_train=True, do_predict=True, version_2_with_negative=True, n_best_size=3)
    chosen, n_best, odds = (
        json.loads((out / name).read_text())
        for name in ("predictions.json", "nbest_predictions.json", "null_odds.json")
    )
    assert list(chosen) == list(n_best) == list(odds) == [f"q{i}" for i in range(14)]
    assert all(answer == "" or answer in CONTEXT for answer in chosen.values())
    assert all(1 <= len(candidates) <= 4 for candidates in n_best.values())
    results = run_record.read_results(str(out))
    assert results["total"] == 14 and results["NoAns_total"] == 5 and results["global_step"] == 2
    assert json.loads((out / "run.json").read_text())["status"] == "finished"


def test_squad_1_again_and_without_training(run, caplog):
    caplog.set_level("INFO")
    out = run("v1.json", do_train=True)
    assert not (out / "predictions.json").exists()
    run("v1.json", do_predict=True, predict_batch_size=5)
    assert f"with {out}/model.ckpt-2" in caplog.text
    assert len(json.loads((out / "predictions.json").read_text())) == 9
    assert list(run_record.read_results(str(out))) == ["exact_match", "f1", "global_step"]
    assert not (out / "null_odds.json").exists()


def test_refused_before_the_first_step(run):
    with pytest.raises(InputError, match="Nothing to do"):
        run("v1.json")
    with pytest.raises(InputError, match=r"question 'q0' has no answer.*--version_2_with_negative"):
        run("v2.json", do_train=True)
    with pytest.raises(InputError, match="nothing is trained"):
        run("v1.json", do_predict=True)
