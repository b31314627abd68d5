"""The commands of the verbs that run the program elsewhere: what they would run, and that values are only values."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACE = {"TPU_NAME": "my-tpu", "BUCKET": "gs://my-bucket", "ZONE": "us-central1-b", "DRY_RUN": "1"}


def dry_run(verb, status=0, **variables):
    """The commands that a verb prints, each as a list of words, and what it says to the error stream."""
    environment = {"PATH": os.environ["PATH"], "USER": "me", **PLACE, **variables}
    command = [sys.executable, "-m", "scripts.cloud", verb]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == status, result.stderr
    # A word may have line breaks: the commands are split by where the next begins.
    words = shlex.split("".join(f"{line}\n" for line in result.stdout.splitlines() if not line.startswith("# ")))
    commands = []
    for word in words:
        if word in ("gcloud", "gsutil") and (not commands or commands[-1][-1] != "-v"):
            commands.append([])
        commands[-1].append(word)
    return commands, result.stderr


def started(commands):
    """The words of the job's command, as the machine's shell would read them."""
    (text,) = (
        word.partition("=")[2] for words in commands for word in words if "scripts/vm/job.py start ../job" in word
    )
    words = shlex.split(text.rpartition("; echo ")[0])
    return words[words.index("--", words.index("--mirror")) + 1 :]


def test_a_dry_run_prints_every_step():
    commands, _ = dry_run("pretrain", STEPS="5")
    flat = [" ".join(words) for words in commands]
    order = ["buckets describe", "job.py status", "storage cp", "receive", "job.py start", "job.py log"]
    positions = [next(i for i, words in enumerate(flat) if part in words) for part in order]
    assert positions == sorted(positions)
    assert all("--zone=us-central1-b" in words for words in flat if "tpu-vm ssh" in words)


def test_the_program_gets_the_variables_and_the_device():
    words = started(dry_run("pretrain", STEPS="5", SEED="3")[0])
    assert {"STEPS=5", "SEED=3", "TPU_NAME=local", "OUT=gs://my-bucket/pretrain/out", "RUN=pretrain"} <= set(words)
    assert words[-2:] == ["scripts/pretrain.sh", "train"] and not [word for word in words if word.startswith("ZONE=")]
    words = started(dry_run("pretrain", TPU_NAME="grpc://10.0.0.2:8470", CONTROL_VM="my-vm")[0])
    assert "TPU_NAME=grpc://10.0.0.2:8470" in words


def test_a_control_vm_is_made_with_the_label_and_the_price_is_asked_first():
    place = {"TPU_NAME": "grpc://10.0.0.2:8470", "CONTROL_VM": "my-vm", "BUCKET": "gs://my-bucket"}
    command = [sys.executable, "-m", "scripts.cloud", "cloud-up"]
    environment = {"PATH": os.environ["PATH"], "USER": "me", "ZONE": "us-central1-b", "DRY_RUN": "1", **place}
    printed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    asked, made = printed.index("about $0.13 an hour"), printed.index("gcloud compute instances create my-vm")
    assert asked < made and "--labels=managed-by=bert-on-tpu,run=pretrain,owner=me" in printed[made:]
    gpu = {"ACCELERATOR": "nvidia-tesla-t4:2", "CONTROL_VM": "my-vm", "TPU_NAME": ""}
    assert "CONTROL_IMAGE" in dry_run("cloud-up", status=2, **gpu)[1]
    commands, _ = dry_run("cloud-up", CONTROL_IMAGE="p/with-driver", MACHINE_TYPE="n1-standard-8", **gpu)
    (words,) = (words for words in commands if words[1:4] == ["compute", "instances", "create"])
    assert {"--accelerator=type=nvidia-tesla-t4,count=2", "--machine-type=n1-standard-8"} <= set(words)


def test_preflight_lets_the_program_check_and_compiles_if_asked():
    commands, _ = dry_run("preflight", COMPILE="1", ARGS="--log_steps='5'")
    text = "\n".join(" ".join(words) for words in commands)
    (check,) = (word for words in commands for word in words if "flock --nonblock" in word)
    assert "ARGS=--log_steps='5' --check_only" in shlex.split(check) and "scripts/preflight_tpu.sh" in text
    assert "preflight_tpu.sh" not in "\n".join(" ".join(words) for words in dry_run("preflight")[0])


hostile = st.text(" $(){}[]`'\"\\;&|<>*?!#~%:=,.-/aé語\n", min_size=1, max_size=20).filter(str.strip)


@settings(max_examples=4, deadline=None)
@given(value=hostile)
def test_values_are_never_expanded(value):
    words = started(dry_run("pretrain", SEQ=value, TASK=value)[0])
    assert f"SEQ={value}" in words and f"TASK={value}" in words


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"BUCKET": ""}, "BUCKET"),
        ({"OUT": "out/here"}, "OUT"),
        ({"ARGS": "--a='"}, "ARGS"),
        ({"CORPUS": "no/such/*.txt"}, "CORPUS"),
        ({"RUN": "a b"}, "RUN"),
        ({"TPU_NAME": "", "CONTROL_VM": ""}, "TPU_NAME"),
        ({"MACHINE_TYPE": "$(touch hit)"}, "MACHINE_TYPE"),
        ({"ACCELERATOR": "t4,count=8"}, "ACCELERATOR"),
        ({"CONTROL_IMAGE": "a b/c"}, "CONTROL_IMAGE"),
        ({"COMPILE": "yes"}, "COMPILE"),
    ],
)
def test_mistakes_name_the_variable(variables, named):
    _, error = dry_run("pretrain", status=2, **variables)
    assert named in error and "Traceback" not in error


@pytest.mark.parametrize(("variables", "named"), [({"LINES": "x"}, "LINES"), ({"SINCE": "soon"}, "SINCE")])
def test_logs_wants_numbers(variables, named):
    assert named in dry_run("logs", status=2, **variables)[1]


@pytest.mark.parametrize(
    ("verb", "part"),
    [
        ("sync", "receive"),
        ("logs", "job.py log"),
        ("stop", "job.py stop"),
        ("ssh", "tpu-vm ssh"),
        ("tensorboard", "TPU_LOAD_LIBRARY=0"),
        ("tpu-smoke", "STEPS=2"),
        ("predict", "scripts/finetune.sh predict"),
        ("features", "features.jsonl"),
    ],
)
def test_every_verb_has_a_dry_run(verb, part):
    commands, _ = dry_run(verb, TASK="mrpc")
    assert part in "\n".join(" ".join(words) for words in commands)
