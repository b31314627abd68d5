"""Asked what they would do, the verbs need no account and run nothing; values reach the machine as they are."""

import json
import os
import pathlib
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACE = {"TPU_NAME": "my-tpu", "BUCKET": "gs://my-bucket", "ZONE": "us-central1-b", "RUN": "mine"}


@pytest.fixture(scope="module")
def no_tools(tmp_path_factory):
    """A folder for the PATH whose gcloud, gsutil, ssh and curl leave a trace."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("gcloud", "gsutil", "ssh", "scp", "curl"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
        (folder / name).chmod(0o755)
    return folder


def make(no_tools, verb, **variables):
    environment = {"PATH": f"{no_tools}:{os.environ['PATH']}", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    command = ["make", "--no-print-directory", verb]
    result = subprocess.run(
        command, cwd=ROOT, env={**environment, **variables}, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert not (no_tools / "ran").exists()
    return result


@pytest.mark.parametrize(
    ("verb", "telling"),
    [
        ("cloud-up", "tpu-vm create my-tpu --zone=us-central1-b --accelerator-type=v3-8"),
        ("preflight", "gcloud services list --enabled"),
        ("sync", "gcloud storage cp"),
        ("pretrain", "scripts/pretrain.sh train"),
        ("eval", "scripts/pretrain.sh eval"),
        ("finetune", "scripts/finetune.sh"),
        ("predict", "scripts/finetune.sh predict"),
        ("logs", "job.py log"),
        ("status", "job.py status"),
        ("watch", "tpu-vm delete my-tpu"),
        ("stop", "job.py stop"),
        ("ssh", "tpu-vm ssh my-tpu"),
        ("tensorboard", "tpu-vm ssh my-tpu"),
        ("tpu-smoke", "job.py start"),
        ("clean-cloud", "tpu-vm delete my-tpu"),
    ],
)
def test_every_verb_prints_its_commands_and_runs_none(no_tools, verb, telling):
    result = make(no_tools, verb, DRY_RUN="1", TASK="mrpc", DATA_DIR="docs", **PLACE)
    assert result.returncode == 0, result.stderr
    assert telling in result.stdout
    words = shlex.split(result.stdout, comments=True)  # it can be pasted
    assert "gcloud" in words


@pytest.mark.parametrize(
    ("verb", "missing"),
    [
        *(("cloud-up", "BUCKET"), ("preflight", "BUCKET"), ("watch", "BUCKET"), ("pretrain", "BUCKET")),
        *(("sync", "TPU_NAME"), ("stop", "TPU_NAME"), ("logs", "TPU_NAME"), ("ssh", "TPU_NAME")),
    ],
)
def test_a_missing_variable_is_named(no_tools, verb, missing):
    result = make(no_tools, verb, **{name: value for name, value in PLACE.items() if name != missing})
    assert result.returncode == 2 and f"{missing}=" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "name",
    [
        *("TPU_NAME", "CONTROL_VM", "ZONE", "PROJECT", "BUCKET", "TPU_TYPE", "IMAGE", "RUN"),
        *("MACHINE_TYPE", "ACCELERATOR", "CONTROL_IMAGE", "COMPILE"),
    ],
)
def test_a_hostile_name_is_refused_before_anything_happens(no_tools, name):
    for value in ("$(touch hit)", "x'; touch hit; '\n"):
        result = make(no_tools, "cloud-up", **{**PLACE, name: value})
        assert result.returncode == 2 and name in result.stderr and "Traceback" not in result.stderr
    assert not list(ROOT.glob("hit"))


hostile = st.text(" $(){}[]`'\"\\;&|<>*?!#~%:=,.-/aé語\n\t", min_size=1).filter(str.strip)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A home folder in which the job that is to be started writes down its command."""
    folder = tmp_path_factory.mktemp("machine")
    code = folder / "bert-runs" / "mine" / "code" / "scripts" / "vm"
    code.mkdir(parents=True)
    said = "import json, os, sys; open(os.path.expanduser('~/said'), 'w').write(json.dumps(sys.argv))\n"
    (code / "job.py").write_text(said)
    return folder


@settings(max_examples=8, deadline=None)
@given(value=hostile, name=st.sampled_from(["STEPS", "LR", "TASK", "SEED", "CORPUS", "VOCAB", "DATA_DIR", "ARGS"]))
def test_what_variables_hold_reaches_the_machine_as_it_is(no_tools, machine, name, value):
    if name in ("CORPUS", "VOCAB", "DATA_DIR"):
        value = f"gs://other/{value}"  # a local path would have to be there
    if name == "ARGS":
        value = shlex.quote(f"--flag={value}")
    result = make(no_tools, "pretrain", DRY_RUN="1", **{**PLACE, name: value})
    assert result.returncode == 0, result.stderr
    words = shlex.split(result.stdout, comments=True)
    (start,) = [word for word in words if word.startswith("--command=") and "job.py start" in word]
    script = start.partition("=")[2]
    subprocess.run(
        ["bash", "-c", script], cwd=machine, env={"HOME": str(machine), "PATH": os.environ["PATH"]}, check=True
    )
    assert f"{name}={value}" in json.loads((machine / "said").read_text())
    assert not list(machine.rglob("hit")) and not list(ROOT.glob("hit"))
