"""The program from text to results, resumed and undisturbed, and what it refuses before the first step."""

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from arrays import assert_same, read_variables
from programs import Program

from bert.data import records
from bert.errors import Checked, InputError, TrainingError, in_words
from bert.training import checkpoints

ROOT = pathlib.Path(__file__).resolve().parents[1]
ORIGINAL_RESULTS = [
    "global_step",
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
]


@pytest.fixture
def run(tiny_text, tiny_model, tmp_path_factory):
    """Runs the program in this process with the flags of a short training, and others given as arguments."""
    records_dir = tmp_path_factory.getbasetemp() / "records"
    program = Program("bert.run_pretraining")

    def run(**given):
        values = {
            "input_file": tiny_text,
            "bert_config_file": tiny_model / "bert_config.json",
            "records_dir": records_dir,
            "do_train": True,
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "train_batch_size": 8,
            "eval_batch_size": 16,
            "num_train_steps": 12,
            "num_warmup_steps": 3,
            "learning_rate": 1e-3,
            "save_checkpoints_steps": 4,
            "held_out_fraction": 0.2,
            "num_workers": 1,
            **given,
        }
        program(**values)

    return run


def results(folder):
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return dict(line.split(" = ") for line in lines)


def test_from_text_to_a_folder_that_stands_alone(run, tmp_path, tiny_model, tiny_text, caplog):
    run(output_dir=tmp_path / "out", do_eval=True)
    out = tmp_path / "out"
    assert (out / "vocab.txt").read_bytes() == (tiny_model / "vocab.txt").read_bytes()
    assert json.loads((out / "bert_config.json").read_text())["hidden_size"] == 32
    assert list(results(out)) == ORIGINAL_RESULTS
    assert results(out)["global_step"] == "12"
    summary = json.loads((out / "training_summary.json").read_text())
    assert summary["total_training_steps"] == 12
    assert summary["train_loss"] == summary["last_train_metrics"]["loss"]
    assert summary["examples_per_second"] > 0
    assert summary["eval_metrics"]["uniform_loss"] == pytest.approx(np.log(32))
    record = json.loads((out / "run.json").read_text())
    assert record["status"] == "finished"
    assert [start["step"] for start in record["starts"]] == [0]
    assert record["flags"]["train_batch_size"] == 8
    assert record["data"][0]["epochs"] > 0 and len(record["data"][0]["fingerprint"]) == 32
    assert record["settings"]["num_warmup_steps"] == 3 and record["settings"]["model"]["hidden_size"] == 32
    assert record["last_checkpoint"]["step"] == 12 and record["metrics"]["loss"] > 0

    before = {path: path.stat().st_mtime_ns for path in out.glob("model.ckpt-*")}
    caplog.set_level("INFO")
    run(output_dir=out, do_eval=True)
    assert "already at step 12 of 12" in caplog.text
    assert "already evaluated at step 12" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in out.glob("model.ckpt-*")} == before


def test_a_resumed_run_ends_with_the_same_variables(run, tmp_path, caplog):
    caplog.set_level("INFO")
    run(output_dir=tmp_path / "undisturbed")
    # Stopping later, at 12, needs the schedule of 12 steps, so the run is cut by removing its later checkpoints.
    run(output_dir=tmp_path / "cut")
    for path in (tmp_path / "cut").glob("model.ckpt-*"):
        if not path.name.startswith("model.ckpt-4"):
            path.unlink()
    (tmp_path / "cut" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-4"\n')
    run(output_dir=tmp_path / "cut")
    assert "resuming from" in caplog.text and "at step 4" in caplog.text
    assert_same(read_variables(tmp_path / "undisturbed", 12), read_variables(tmp_path / "cut", 12))


def test_phases_have_one_global_step_and_resume_inside_either(run, tmp_path):
    recipe = tmp_path / "recipe.json"
    phases = [
        {"share": 0.5, "max_seq_length": 16, "max_predictions_per_seq": 3},
        {"share": 0.5, "max_seq_length": 32, "max_predictions_per_seq": 5},
    ]
    recipe.write_text(json.dumps({"phases": phases, "flags": {"train_batch_size": 4}}))
    options = {
        "recipe": recipe,
        "max_seq_length": None,
        "max_predictions_per_seq": None,
        "keep_checkpoint_max": 10,
        "save_checkpoints_steps": 2,
    }
    run(output_dir=tmp_path / "whole", **options)
    whole = read_variables(tmp_path / "whole", 12)
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert [phase["max_seq_length"] for phase in record["data"]] == [16, 32]
    for step in (2, 10):
        out = tmp_path / f"from-{step}"
        out.mkdir()
        for path in (tmp_path / "whole").glob(f"model.ckpt-{step}.*"):
            (out / path.name).write_bytes(path.read_bytes())
        (out / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
        run(output_dir=out, **options)
        assert_same(whole, read_variables(out, 12))


def test_training_learns_what_the_text_repeats(run, tmp_path):
    run(
        output_dir=tmp_path,
        do_eval=True,
        num_train_steps=300,
        num_warmup_steps=30,
        learning_rate=3e-3,
        save_checkpoints_steps=300,
        train_batch_size=32,
    )
    evaluation = json.loads((tmp_path / "training_summary.json").read_text())["eval_metrics"]
    assert evaluation["masked_lm_loss"] < 0.8 * evaluation["token_frequency_loss"]
    assert evaluation["token_frequency_loss"] < evaluation["uniform_loss"]


def test_without_next_sentences_there_are_no_metrics_of_them(run, tmp_path):
    # The model garden's flags say how long.
    steps = {"num_train_steps": None, "num_train_epochs": 2, "num_steps_per_epoch": 1}
    warm_up = {"num_warmup_steps": None, "warmup_steps": 1.0}
    run(output_dir=tmp_path, do_eval=True, no_nsp=True, **steps, **warm_up)
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert (settings["num_train_steps"], settings["num_warmup_steps"]) == (2, 1)
    assert list(results(tmp_path)) == ["global_step", "loss", "masked_lm_accuracy", "masked_lm_loss"]


def test_starting_from_a_checkpoint_says_what_it_gives(run, tmp_path, caplog):
    run(output_dir=tmp_path / "first", num_train_steps=4)
    caplog.set_level("INFO")
    run(output_dir=tmp_path / "second", num_train_steps=4, init_checkpoint=tmp_path / "first" / "model.ckpt-4")
    assert "46 of 46 variables; new: none; unused: none" in caplog.text


def test_a_loss_that_is_not_a_number_stops_the_run(run, tmp_path):
    with pytest.raises(TrainingError, match=r"loss is nan at step \d+, learning rate"):
        run(output_dir=tmp_path, learning_rate=1e30, num_warmup_steps=0)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"


def test_the_best_checkpoint_is_kept_and_training_stops_when_nothing_gets_better(run, tmp_path, caplog):
    options = {"output_dir": tmp_path, "eval_every": 3, "early_stopping_patience": 2, "do_eval": True}
    caplog.set_level("INFO")
    run(learning_rate=0.0, **options)
    assert "stopping early at step 9" in caplog.text
    lines = [json.loads(line) for line in (tmp_path / "evaluations.jsonl").read_text().splitlines()]
    assert [line["global_step"] for line in lines] == [3, 6, 9]
    assert {line["max_seq_length"] for line in lines} == {32}
    assert len({line["loss"] for line in lines}) == 1
    assert float(results(tmp_path)["loss"]) == lines[-1]["loss"]
    assert tf.train.latest_checkpoint(str(tmp_path / "best")) == str(tmp_path / "best" / "model.ckpt-3")
    assert {path.name for path in (tmp_path / "best").iterdir() if "ckpt" not in path.name} == {
        "bert_config.json",
        "checkpoint",
        "vocab.txt",
    }
    caplog.clear()
    run(learning_rate=0.0, **options)
    assert "stopping early at step 9" in caplog.text and not (tmp_path / "model.ckpt-12.index").exists()
    assert "step 10 of" not in caplog.text
    # With more patience it goes on, and what is better replaces what was best.
    run(learning_rate=1e-2, **{**options, "early_stopping_patience": 5})
    assert (tmp_path / "best" / "model.ckpt-12.index").exists()
    assert not list((tmp_path / "best").glob("model.ckpt-3*"))


def test_a_lost_input_file_is_named_and_training_goes_on_when_it_is_back(run, tmp_path, record_file):
    path = tmp_path / "input.tfrecord"
    records_once = record_file.read_bytes()
    path.write_bytes(records_once)
    options = {"input_file": path, "output_dir": tmp_path / "out", "train_batch_size": 512, "num_train_steps": 24}

    def lose():
        while not (tmp_path / "out" / "model.ckpt-4.index").exists():
            time.sleep(0.001)
        path.unlink()

    thread = threading.Thread(target=lose)
    thread.start()
    with pytest.raises(tf.errors.NotFoundError) as error:
        run(**options)
    thread.join()
    assert in_words(error.value) == f"A file or bucket is missing: {path}; No such file or directory."
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["status"], record["reason"]) == ("failed", in_words(error.value))
    with pytest.raises(InputError, match=r"--input_file: no file matches '.*input.tfrecord'"):
        run(**options)
    path.write_bytes(records_once)
    run(**options)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert [start["run_before"] for start in record["starts"]] == [None, "failed"]
    assert record["starts"][1]["step"] >= 4 and record["last_checkpoint"]["step"] == 24


@pytest.fixture
def disk(tmp_path):
    """A function that mounts a file system in memory on a folder."""
    mounted = []

    def mount(name, options):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "none", folder]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs the right to mount a file system")
        mounted.append(folder)
        return folder

    yield mount
    for folder in set(mounted):
        subprocess.run(["umount", "--lazy", folder], capture_output=True)


def test_a_full_or_read_only_disk_is_named_and_training_goes_on_when_mended(run, disk):
    folder = disk("small", "size=9m")
    out = folder / "out"

    def fill():
        while not (out / "model.ckpt-4.meta").exists() and not error:
            time.sleep(0.001)
        with open(folder / "filler", "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(bytes(1000))

    error = []
    thread = threading.Thread(target=fill)
    thread.start()
    try:
        run(output_dir=out, num_train_steps=40)
    except (tf.errors.OpError, OSError) as e:
        error.append(e)
    thread.join()
    assert "No space left on device" in in_words(error[0])
    with pytest.raises(InputError, match=r"run.lock: cannot be written: Read-only file system"):
        run(output_dir=disk("read-only", "ro"), num_train_steps=40)
    disk("small", "remount,size=40m")
    run(output_dir=out, num_train_steps=40)
    starts = json.loads((out / "run.json").read_text())["starts"]
    assert starts[-1]["step"] >= 4
    assert checkpoints.latest(str(out))[1] == 40


@pytest.fixture
def record_file(run, tmp_path_factory, tiny_text, tiny_model):
    """A file of records of length 32 with 5 predictions."""
    from bert.data import pretraining_data

    path = tmp_path_factory.mktemp("made") / "made.tfrecord"
    settings = pretraining_data.Settings(max_seq_length=32, max_predictions_per_seq=5, dupe_factor=1)
    pretraining_data.create([str(tiny_text)], str(tiny_model / "vocab.txt"), [str(path)], settings)
    assert records.count(str(path)) > 0
    return path


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"do_train": False}, "Nothing to do"),
        ({"early_stopping_patience": 3}, "counts the evaluations of --eval_every, which is not given"),
        ({"best_metric": "f1"}, "--best_metric=f1: there are loss, masked_lm_loss,"),
        ({"num_train_epochs": 5}, r"--num_train_steps=12 and --num_train_epochs=5 of --num_steps_per_epoch=1000 co"),
        ({"warmup_steps": 4}, r"--num_warmup_steps=3 and --warmup_steps=4 contradict each other"),
        ({"input_file": "RECORDS", "pack_sequences": True}, r"hold one pair each, for training without --pack_seq"),
        ({"max_seq_length": 128}, r"max_seq_length=128 is more than max_position_embeddings=64"),
        ({"input_file": "RECORDS", "max_seq_length": 64}, r"max_seq_length=32.*max_seq_length=64"),
        ({"input_file": "RECORDS", "max_predictions_per_seq": 7}, r"per_seq=5.*per_seq=7"),
        ({"input_file": "missing/*.txt"}, r"--input_file: no file matches 'missing/\*.txt'"),
        ({"use_tpu": True}, r"--use_tpu: this machine has no TPU"),
        ({"tpu_name": "local"}, r"--tpu_name=local: this machine has no TPU"),
        ({"bert_config_file": "nowhere.json"}, r"nowhere.json: neither a file nor"),
        ({"init_checkpoint": "nowhere/model.ckpt"}, r"nowhere/model.ckpt: no checkpoint found there"),
        ({"recipe": "bret-base"}, r"--recipe=bret-base: neither a recipe nor a file. Recipes: .*bert, "),
        ({"bert_config_file": "CONFIG", "vocab_size": 20}, r"has 32 entries but .* has vocab_size 20"),
        ({"bert_config_file": "CONFIG", "num_attention_heads": 3}, r"hidden.size.*32.*3"),
    ],
)
def test_refused_before_the_first_step(run, tmp_path, tiny_model, record_file, changes, message):
    changes = dict(changes)
    if changes.get("input_file") == "RECORDS":
        changes["input_file"] = record_file
    if changes.get("bert_config_file") == "CONFIG":
        config = json.loads((tiny_model / "bert_config.json").read_text())
        config.update({key: changes.pop(key) for key in ("vocab_size", "num_attention_heads") if key in changes})
        changes["bert_config_file"] = tmp_path / "bert_config.json"
        changes["vocab_file"] = tiny_model / "vocab.txt"
        changes["bert_config_file"].write_text(json.dumps(config))
    with pytest.raises(InputError, match=message):
        run(output_dir=tmp_path / "out", **changes)
    assert not list(tmp_path.glob("out/model.ckpt*"))


def test_records_of_another_project_are_refused(run, tmp_path, shared_data):
    with pytest.raises(InputError, match=r"not BERT pretraining records. Features found: .*Wanted: input_ids"):
        run(output_dir=tmp_path, input_file=shared_data / "tfrecord" / "sample_text_packed.tfrecord")


def test_a_folder_of_another_model_is_refused(run, tmp_path, tiny_model):
    run(output_dir=tmp_path / "out", num_train_steps=1)
    config = json.loads((tiny_model / "bert_config.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    (other / "bert_config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    (other / "vocab.txt").write_bytes((tiny_model / "vocab.txt").read_bytes())
    with pytest.raises(InputError, match=r"trained with num_hidden_layers=2 .* has num_hidden_layers=3"):
        run(output_dir=tmp_path / "out", bert_config_file=other / "bert_config.json")
    with pytest.raises(InputError, match=r"intermediate/dense/kernel has shape \[32, 64\] there but \[32, 128\]"):
        (other / "bert_config.json").write_text(json.dumps({**config, "intermediate_size": 128}))
        run(
            output_dir=tmp_path / "new",
            bert_config_file=other / "bert_config.json",
            init_checkpoint=tmp_path / "out" / "model.ckpt-1",
        )


def test_checking_only_refuses_what_the_training_would_and_makes_nothing(run, tmp_path):
    with pytest.raises(Checked):
        run(output_dir=tmp_path / "out", check_only=True)
    with pytest.raises(InputError, match="max_position_embeddings"):
        run(output_dir=tmp_path / "out", check_only=True, max_seq_length=65)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name != "run.lock"]


def test_as_a_file_unknown_flags_are_errors_with_a_suggestion():
    command = [sys.executable, str(ROOT / "bert" / "run_pretraining.py"), "--input_fil=x"]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert result.returncode == 2
    assert "Unknown command line flag 'input_fil'. Did you mean: input_file" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_mistake_is_told_without_a_stack_trace(tmp_path):
    command = [sys.executable, "-m", "bert.run_pretraining", "--recipe=sample", f"--output_dir={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 2
    assert result.stderr.strip() == "run_pretraining.py: --input_file is needed, or a --recipe that sets it."
