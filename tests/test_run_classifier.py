"""Fine-tuning from files of text to files of results, in both dialects, and what it refuses."""

import json

import numpy as np
import pytest
from arrays import assert_same, read_variables
from programs import Program

from bert.errors import InputError
from bert.training import run_record

# The first word tells the label.
ROWS = [
    (f"{first} {second} {third}", "yes" if first == "the" else "no")
    for first in ("the", "of")
    for second in ("and", "to", "in", "he")
    for third in ("was", "it", "his", "is", "with")
]
STEPS = 48


def write_table(path, rows, header=("text", "label")):
    path.write_text("\n".join("\t".join(row) for row in [header, *rows]) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Folder of a task of one's own: 40 training, 11 dev, and 9 test examples."""
    folder = tmp_path_factory.mktemp("own")
    write_table(folder / "train.tsv", ROWS)
    write_table(folder / "dev.tsv", ROWS[3::4] + ROWS[:1])
    write_table(folder / "test.tsv", [(f"t{i}", text) for i, (text, _) in enumerate(ROWS[1::4][:9])], ("id", "text"))
    return folder


@pytest.fixture(scope="session")
def program():
    return Program("bert.run_classifier")


@pytest.fixture(scope="session")
def run(program, tiny_model):
    """Runs the program in this process with the flags of a short training, and others."""

    def run(**given):
        values = {
            "bert_config_file": tiny_model / "bert_config.json",
            "max_seq_length": 16,
            "train_batch_size": 8,
            "learning_rate": 3e-3,
            "num_train_steps": STEPS,
            "save_checkpoints_steps": 12,
            "keep_checkpoint_max": 20,
        }
        program(**{**values, **given})

    return run


def test_flags_and_defaults_are_the_originals(program):
    none = ("data_dir", "bert_config_file", "task_name", "vocab_file", "output_dir", "init_checkpoint")
    original = {
        **dict.fromkeys((*none, "tpu_name", "tpu_zone", "gcp_project", "master")),
        **dict.fromkeys(("do_train", "do_eval", "do_predict", "use_tpu"), False),
        "do_lower_case": True,
        "max_seq_length": 128,
        "train_batch_size": 32,
        "eval_batch_size": 8,
        "predict_batch_size": 8,
        "learning_rate": 5e-5,
        "num_train_epochs": 3.0,
        "warmup_proportion": 0.1,
        "save_checkpoints_steps": 1000,
        "iterations_per_loop": 1000,
        "num_tpu_cores": 8,
    }
    assert {name: program.defaults[name] for name in original} == original


@pytest.fixture(scope="session")
def trained(run, data_dir, tmp_path_factory):
    """Output folder of a training, with evaluation and prediction."""
    folder = tmp_path_factory.mktemp("trained")
    run(task_name="tsv", data_dir=data_dir, output_dir=folder, do_train=True, do_eval=True, do_predict=True)
    return folder


def test_the_output_folder(trained, tiny_model):
    results = run_record.read_results(str(trained))
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step", "loss", "macro_f1"]
    assert results["global_step"] == STEPS
    assert results["eval_accuracy"] == 1  # it learns
    assert results["loss"] == results["eval_loss"]
    assert (trained / "labels.txt").read_text() == "no\nyes\n"
    assert (trained / "vocab.txt").read_bytes() == (tiny_model / "vocab.txt").read_bytes()
    summary = json.loads((trained / "training_summary.json").read_text())
    assert summary["total_training_steps"] == STEPS
    assert summary["train_loss"] == summary["last_train_metrics"]["loss"] < 0.3
    assert summary["eval_metrics"]["eval_accuracy"] == 1
    assert summary["batches"] == {
        "kind": "bucketed",
        "share_of_tokens_padded": 5 / 16,
        "share_of_tokens": 5 / 8,
    }
    record = json.loads((trained / "run.json").read_text())
    assert record["status"] == "finished" and record["settings"]["labels"] == ["no", "yes"]
    assert record["data"][0]["records"] == 40
    for name in ("train", "eval", "predict"):
        assert (trained / f"{name}.tf_record").exists()


def test_every_test_row_gives_one_row_in_order(trained):
    probabilities = [line.split("\t") for line in (trained / "test_results.tsv").read_text().splitlines()]
    assert len(probabilities) == 9
    assert all(abs(sum(map(float, row)) - 1) < 1e-5 for row in probabilities)
    lines = (trained / "test_predictions.tsv").read_text().splitlines()
    assert lines[0] == "id\tlabel\tprobability"
    expected = [label for _, label in ROWS[1::4][:9]]
    assert [line.split("\t")[:2] for line in lines[1:]] == [[f"t{i}", label] for i, label in enumerate(expected)]


def test_again_it_says_that_it_is_done_but_evaluates_another_file(trained, run, data_dir, tmp_path, caplog):
    caplog.set_level("INFO")
    before = run_record.read_results(str(trained))
    files = {path: path.stat().st_mtime_ns for path in trained.glob("model.ckpt-*")}
    common = {"task_name": "tsv", "data_dir": data_dir, "output_dir": trained, "do_eval": True}
    run(do_train=True, **common)
    assert f"already at step {STEPS} of {STEPS}" in caplog.text and f"already evaluated at step {STEPS}" in caplog.text
    # Neither config nor labels need be named again; batches of another size end with a row that is not full. Three
    # examples in a row of 16 tokens are the same as one.
    other = tmp_path / "other.tsv"
    other.write_text((data_dir / "dev.tsv").read_text() + "\n")
    run(bert_config_file=None, eval_batch_size=4, pack_sequences=True, do_train=True, eval_file=other, **common)
    assert "packed batches; tokens are in 57.3 % of their places, instead of 31.2 %" in caplog.text
    assert f"evaluating {trained}/model.ckpt-{STEPS}" in caplog.text
    assert run_record.read_results(str(trained)) == pytest.approx(before, abs=1e-5)
    assert {path: path.stat().st_mtime_ns for path in trained.glob("model.ckpt-*")} == files


def test_a_resumed_training_ends_with_the_same_variables(trained, run, data_dir, tmp_path, caplog):
    caplog.set_level("INFO")
    for path in [*trained.glob("model.ckpt-36.*"), *trained.glob("*.json")]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-36"\n')
    run(task_name="tsv", data_dir=data_dir, output_dir=tmp_path, do_train=True)
    assert "resuming from" in caplog.text and "at step 36" in caplog.text
    assert_same(read_variables(trained, STEPS), read_variables(tmp_path, STEPS))


def test_the_model_gardens_dialect_trains_the_same(trained, run, tiny_model, data_dir, tmp_path, caplog):
    caplog.set_level("INFO")
    paths = {f"{split}_data_output_path": tmp_path / f"{split}.tf_record" for split in ("train", "eval", "test")}
    values = {
        "classification_task_name": "tsv",
        "input_data_dir": data_dir,
        "vocab_file": tiny_model / "vocab.txt",
        "max_seq_length": 16,
        "meta_data_file_path": tmp_path / "meta_data",
        **paths,
    }
    Program("bert.create_finetuning_data")(**values)
    meta = json.loads((tmp_path / "meta_data").read_text())
    assert (meta["num_labels"], meta["train_data_size"], meta["eval_data_size"], meta["max_seq_length"]) == (
        2,
        40,
        11,
        16,
    )
    common = {
        "input_meta_data_path": tmp_path / "meta_data",
        "model_dir": tmp_path / "out",
        "distribution_strategy": "one_device",
        "max_seq_length": None,
    }
    run(
        mode="train_and_eval",
        train_data_path=paths["train_data_output_path"],
        eval_data_path=paths["eval_data_output_path"],
        steps_per_loop=1,
        num_train_steps=None,
        num_train_epochs=9.6,
        eval_every=STEPS,
        **common,
    )
    assert_same(read_variables(trained, STEPS), read_variables(tmp_path / "out", STEPS))
    assert "Training Summary:" in caplog.text
    assert run_record.read_results(str(tmp_path / "out"))["eval_accuracy"] == 1
    assert (tmp_path / "out" / "best" / "checkpoint").exists()
    run(
        mode="predict",
        eval_data_path=paths["test_data_output_path"],
        predict_checkpoint_path=trained / f"model.ckpt-{STEPS}",
        **common,
    )
    ours = np.loadtxt(trained / "test_results.tsv")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "out" / "test_results.tsv"), ours, atol=1e-6)


def test_regression_on_one_example_with_the_original_heads_names(run, tmp_path):
    write_table(tmp_path / "train.tsv", [("the", "of", "2.5")], ("sentence1", "sentence2", "score"))
    write_table(tmp_path / "test.tsv", [("the", "of")], ("sentence1", "sentence2"))
    run(
        task_name="STS-B",
        data_dir=tmp_path,
        eval_file=tmp_path / "train.tsv",
        output_dir=tmp_path / "out",
        do_train=True,
        do_eval=True,
        do_predict=True,
        num_train_steps=2,
    )
    out = tmp_path / "out"
    assert list(run_record.read_results(str(out))) == ["eval_loss", "global_step", "loss", "pearson", "spearman"]
    trained = read_variables(out, 2)
    assert trained["output_weights"].shape == (1, 32) and trained["output_bias"].shape == (1,)
    assert len((out / "test_results.tsv").read_text().splitlines()) == 1
    assert (out / "STS-B.tsv").read_text().splitlines()[0] == "index\tprediction"


def test_texts_with_any_number_of_labels(run, tmp_path):
    # The second word tells the labels.
    labels = {"and": "conjunction", "to": "adverb;preposition", "in": "preposition", "he": ""}
    rows = [(text, labels[text.split()[1]]) for text, _ in ROWS]
    write_table(tmp_path / "train.tsv", rows)
    write_table(tmp_path / "dev.tsv", rows[::3])
    write_table(tmp_path / "test.tsv", [(text,) for text, _ in rows[1::3]], ("text",))
    out, values = tmp_path / "out", {"task_name": "tsv", "label_kind": "multi", "label_separator": ";"}
    run(data_dir=tmp_path, output_dir=out, do_train=True, do_eval=True, do_predict=True, **values)
    results = run_record.read_results(str(out))
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step", "loss", "macro_f1", "micro_f1"]
    assert results["eval_accuracy"] == results["macro_f1"] == results["micro_f1"] == 1
    names = (out / "labels.txt").read_text().split()
    assert names == ["adverb", "conjunction", "preposition"]
    shown = json.loads((out / "eval_details.json").read_text())[""]["labels"]
    assert [(label["label"], label["f1"]) for label in shown] == [(name, 1) for name in names]
    chosen = [line.split("\t")[1] for line in (out / "test_predictions.tsv").read_text().splitlines()[1:]]
    assert chosen == [label for _, label in rows[1::3]]
    probabilities = np.loadtxt(out / "test_results.tsv")  # [examples, labels]
    assert [";".join(np.array(names)[row > 0.5]) for row in probabilities] == chosen


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"do_train": None}, "Nothing to do"),
        ({"task_name": "mprc"}, "--task_name=mprc: unknown; there are cola, sst-2, mrpc"),
        (
            {"task_name": "mrpc"},
            r"no train.tsv or msr_paraphrase_train.txt.*The folder has dev.tsv|no column named #1 Str",
        ),
        ({"task_name": None}, "--task_name is needed"),
        ({"max_seq_length": 65}, "--max_seq_length=65 is more than max_position_embeddings=64"),
        ({"do_train": None, "do_predict": True}, "that tells the labels"),
        ({"label_column": "kind"}, r"train.tsv:1: no column named kind; the first line has 2 columns: text, label"),
        ({"do_lower_case": False}, "--do_lower_case=False does not fit .*Give --do_lower_case=True"),
        ({"init_checkpoint": "nowhere"}, "nowhere: no checkpoint found there"),
        ({"tpu_name": "local"}, "--tpu_name=local: this machine has no TPU"),
        ({"distribution_strategy": "off", "tpu": "x"}, "--distribution_strategy=off is not for a TPU"),
        ({"data_dir": None}, "--data_dir is needed"),
        (
            {"data_dir": None, "train_file": "train.tsv", "do_eval": True},
            "--data_dir is needed, or a flag that names the dev",
        ),
        ({"eval_every": 2}, "give --do_eval too"),
        ({"eval_every": 2, "do_eval": True, "best_metric": "f2"}, "--best_metric=f2: there are eval_loss, eval_acc"),
        ({"bucket_by_length": True, "pack_sequences": True}, "give one of them"),
        ({"early_stopping_patience": 2}, "counts the evaluations of --eval_every"),
    ],
)
def test_refused_before_the_first_step(run, data_dir, tmp_path, changes, message):
    values = {"task_name": "tsv", "data_dir": data_dir, "output_dir": tmp_path / "out", "do_train": True}
    if "train_file" in changes:
        changes["train_file"] = data_dir / changes["train_file"]
    with pytest.raises(InputError, match=message):
        run(**{**values, **changes})
    assert not list(tmp_path.glob("out/model.ckpt*")) and not list(tmp_path.glob("out/*.tf_record"))


def test_a_folder_of_other_labels_is_refused(trained, run, data_dir):
    with pytest.raises(InputError, match=r"was trained with label_kind=single, but now it would be regression"):
        run(
            task_name="tsv",
            label_kind="regression",
            data_dir=data_dir,
            output_dir=trained,
            do_train=True,
        )


def test_an_encoder_without_a_classifier_is_not_evaluated(run, data_dir, tmp_path, trained):
    from bert.training import checkpoint_formats

    source = checkpoint_formats.read(str(trained))
    source.variables = {name: value for name, value in source.variables.items() if name.startswith("bert/")}
    encoder = checkpoint_formats.write_tf1(str(tmp_path / "encoder"), source)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "task.json").write_text((trained / "task.json").read_text())
    with pytest.raises(InputError, match="--init_checkpoint has no classifier: nothing is trained"):
        run(
            task_name="tsv",
            data_dir=data_dir,
            output_dir=tmp_path / "out",
            init_checkpoint=encoder,
            do_eval=True,
        )
