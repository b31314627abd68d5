"""Answering questions, from SQuAD's files to the original's."""

import json
import shutil

import pytest
import tensorflow as tf
from programs import Program

from bert.data import records
from bert.errors import InputError
from bert.training import run_record

LENGTHS = {"max_seq_length": 16, "doc_stride": 4, "max_query_length": 4}
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
        values = {
            "bert_config_file": tiny_model / "bert_config.json",
            "output_dir": tmp_path / "out",
            "train_file": tmp_path / name,
            "predict_file": tmp_path / name,
            **LENGTHS,
            "train_batch_size": 8,
            "num_train_steps": 2,
        }
        program(**{**values, **given})
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


def test_squad_2_from_questions_to_scores(run, caplog):
    caplog.set_level("INFO")
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
    caplog.clear()
    again = {"do_train": True, "do_predict": True, "version_2_with_negative": True}
    run("v2.json", n_best_size=3, **again)
    assert "train.tf_record: the 28 records of" in caplog.text and "already at step 2 of 2" in caplog.text
    assert "already evaluated at step 2" in caplog.text and "answering" not in caplog.text
    run("v2.json", n_best_size=2, **again)
    assert "answering 14 questions" in caplog.text


def write_as_others_do(path):
    """Writes records anew by TensorFlow, with features that we do not have, as the model garden's script does."""
    found = [records.parse(record) for record in records.read(path)]
    with tf.io.TFRecordWriter(path) as writer:
        for features in found:
            integers = {**features, "paragraph_mask": [1] * 16, "class_index": [0]}
            lists = {name: tf.train.Int64List(value=value) for name, value in integers.items()}
            features = {name: tf.train.Feature(int64_list=values) for name, values in lists.items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def test_squad_1_in_the_model_gardens_dialect(run, tiny_model, tmp_path, caplog):
    caplog.set_level("INFO")
    meta, train_data = tmp_path / "meta_data", tmp_path / "train.tf_record"
    Program("bert.create_finetuning_data")(
        fine_tuning_task_type="squad",
        squad_data_file=tmp_path / "v1.json",
        vocab_file=tiny_model / "vocab.txt",
        train_data_output_path=train_data,
        meta_data_file_path=meta,
        **LENGTHS,
    )
    assert json.loads(meta.read_text()) == {
        "task_type": "bert_squad",
        "train_data_size": 18,
        **LENGTHS,
        "version_2_with_negative": False,
    }
    write_as_others_do(str(train_data))
    shutil.copy(tmp_path / "v1.json", tmp_path / "v1.more.json")
    garden = {"input_meta_data_path": meta, "train_file": None, "doc_stride": None, "predict_batch_size": 5}
    out = run("v1.json", train_data_path=train_data, eval_every=2, best_metric="exact_match", **garden)
    assert (out / "best" / "checkpoint").exists()
    results = run_record.read_results(str(out))
    assert list(results) == ["exact_match", "f1", "global_step"] and results["global_step"] == 2
    assert json.loads((out / "run.json").read_text())["data"][0]["records"] == 18
    first = (out / "predictions.json").read_text()
    assert len(json.loads(first)) == 9
    assert not (out / "null_odds.json").exists()

    run("v1*.json", mode="predict", **garden)
    assert f"with {out}/model.ckpt-2" in caplog.text
    assert (out / "v1-predictions.json").read_text() == (out / "v1.more-predictions.json").read_text() == first
    assert run_record.read_results(str(out))["f1_v1.more"] == results["f1"]
    with pytest.raises(InputError, match=r"--max_query_length=5, but .*meta_data says 4"):
        run("v1.json", mode="predict", **{**garden, "max_query_length": 5})
    with pytest.raises(InputError, match=r"v3\.json has no answers by which"):
        (tmp_path / "v3.json").write_text((tmp_path / "v1.json").read_text().replace("answers", "no_answers"))
        run("v3.json", mode="eval", **garden)


def test_refused_before_the_first_step(run, tmp_path):
    with pytest.raises(InputError, match="Nothing to do"):
        run("v1.json")
    with pytest.raises(InputError, match=r"question 'q0' has no answer.*--version_2_with_negative"):
        run("v2.json", do_train=True)
    with pytest.raises(InputError, match="nothing is trained"):
        run("v1.json", do_predict=True)
    with pytest.raises(InputError, match="not in SQuAD's form"):  # what is to be answered is read before the training
        (tmp_path / "y.json").write_text('{"data": [1]}')
        run("v1.json", do_train=True, do_predict=True, predict_file=tmp_path / "y.json")
    with pytest.raises(InputError, match="--mode=eval and --do_train: give one of them"):
        run("v1.json", mode="eval", do_train=True)
    assert not list(tmp_path.glob("out/model.ckpt*"))
