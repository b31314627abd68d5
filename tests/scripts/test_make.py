"""The verbs pass every value on exactly as it was given, and run nothing when only asked what they would run."""

import os
import pathlib
import shlex
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder with the Makefile and all that it runs before Python."""
    folder = tmp_path_factory.mktemp("a folder with spaces")
    for name in ("Makefile", "requirements.txt", "requirements-dev.txt"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    return folder


def make(checkout, *arguments, **environment):
    """Runs make and returns the words of the last command it prints, without the Python program."""
    result = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=checkout,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C.UTF-8", **environment},
        stdin=subprocess.DEVNULL,
    )
    assert result.returncode == 0, result.stderr
    return shlex.split(result.stdout.strip().splitlines()[-1])


def test_pretraining_on_the_sample_corpus_is_the_default(checkout):
    words = make(checkout, "pretrain", "DRY_RUN=1")
    assert words[1:3] == ["-m", "bert.run_pretraining"]
    assert set(words[3:]) == {
        "--input_file=data/kjv/train.txt",
        "--eval_file=data/kjv/held_out.txt",
        "--do_train",
        "--do_eval",
        "--recipe=sample",
        "--output_dir=out/pretrain",
    }
    assert not (checkout / ".venv").exists() and not (checkout / "out").exists()


def test_variables_become_flags(checkout):
    words = make(
        checkout, "pretrain", "DRY_RUN=1", "RUN=mine", "RECIPE=bert-mini", "STEPS=10", "BATCH=4", "SEQ=64", "LR=1e-3",
        "SEED=3", "CORPUS=my/*.txt", "VOCAB=v.txt", "INIT=x.ckpt", "TPU_NAME=local", "ARGS=--log_steps=5 --no_nsp",
    )  # fmt: skip
    for flag in (
        "recipe=bert-mini",
        "num_train_steps=10",
        "train_batch_size=4",
        "max_seq_length=64",
        "learning_rate=1e-3",
        "seed=3",
        "input_file=my/*.txt",
        "vocab_file=v.txt",
        "init_checkpoint=x.ckpt",
        "tpu_name=local",
        "output_dir=out/mine",
        "log_steps=5",
        "no_nsp",
    ):
        assert f"--{flag}" in words
    assert not [word for word in words if word.startswith("--eval_file")]


# What shells and make read something into, and letters; make itself drops spaces around a value.
hostile = st.text(" $(){}[]`'\"\\;&|<>*?!#~%:=,.-/aé語", min_size=1).map(str.strip).filter(bool)


@settings(max_examples=12, deadline=None)
@given(value=hostile)
def test_values_are_never_expanded(checkout, value):
    assert f"--input_file={value}" in make(checkout, "pretrain", "DRY_RUN=1", f"CORPUS={value}")
    assert f"--input_file={value}" in make(checkout, "pretrain", "DRY_RUN=1", CORPUS=value)


@pytest.mark.parametrize(
    "value", ["$(touch hit)", "`touch hit`", "$(shell touch hit)", '"; touch hit; "', "a b'c\"d", "$HOME"]
)
def test_commands_in_values_are_not_run(checkout, value):
    assert f"--vocab_file={value}" in make(checkout, "pretrain", "DRY_RUN=1", f"VOCAB={value}")
    assert not list(checkout.rglob("hit"))


@pytest.mark.parametrize(
    "argument, message",
    [
        ("STPES=10", "STPES: there is no such variable; make help lists them"),
        ("ARGS=--log_steps=5 --dtype='bf16", "ARGS=--log_steps=5 --dtype='bf16: a quotation mark has no partner."),
    ],
)
def test_a_slip_of_the_pen_is_told_and_nothing_runs(checkout, argument, message):
    result = subprocess.run(
        ["make", "pretrain", "DRY_RUN=1", argument], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2 and message in result.stderr
    assert "run_pretraining" not in result.stdout


def test_help_lists_every_verb(checkout):
    text = subprocess.run(["make", "help"], cwd=checkout, capture_output=True, text=True, check=True).stdout
    for verb in (
        "setup",
        "test",
        "vocab",
        "data",
        "pretrain",
        "eval",
        "finetune",
        "predict",
        "tensorboard",
        "convert",
        "lint",
        "clean",
        "cloud-up",
        "preflight",
        "watch",
        "clean-cloud",
    ):
        assert f"make {verb} " in text


def test_without_a_usable_python_the_versions_are_named(checkout, tmp_path):
    for tool in ("bash", "cat", "dirname", "awk"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    result = subprocess.run(
        [shutil.which("bash"), "scripts/setup.sh"],
        cwd=checkout,
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
    )
    assert result.returncode == 2
    assert "Python 3.9, 3.10 or 3.11" in result.stderr


def test_fine_tuning_is_called_after_its_task(checkout):
    words = make(checkout, "finetune", "DRY_RUN=1", "TASK=MRPC", "DATA_DIR=my data", "INIT=uncased", "EPOCHS=2")
    for flag in ("task_name=MRPC", "data_dir=my data", "init_checkpoint=uncased", "output_dir=out/mrpc", "do_train"):
        assert f"--{flag}" in words
    assert "--num_train_epochs=2" in words and "--do_eval" in words and "--do_predict" not in words
    words = make(checkout, "predict", "DRY_RUN=1", "TASK=mrpc", "DATA_DIR=d", "RUN=mine")
    assert "--do_predict" in words and "--output_dir=out/mine" in words and "--do_train" not in words


def test_models_and_vectors_go_where_they_are_told(checkout):
    words = make(checkout, "export", "DRY_RUN=1", "TASK=MRPC")
    assert words[1:] == ["-m", "bert.export_model", "--model_dir=out/mrpc", "--model_export_path=out/mrpc/export"]
    words = make(checkout, "features", "DRY_RUN=1", "INIT=a b", "CORPUS=x*.txt", "OUT=v.npy", "ARGS=--pooling=mean")
    assert words[1:3] == ["-m", "bert.extract_features"]
    assert set(words[3:]) == {"--input_file=x*.txt", "--output_file=v.npy", "--init_checkpoint=a b", "--pooling=mean"}
