"""Pretraining with every path in a bucket whose requests fail: the same weights as on a disk, or an error in words."""

import hashlib
import json
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 12


def command(input_file, model, output_dir, **given):
    values = {
        "input_file": input_file,
        "bert_config_file": f"{model}/bert_config.json",
        "output_dir": output_dir,
        "do_train": True,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "train_batch_size": 8,
        "num_train_steps": STEPS,
        "num_warmup_steps": 3,
        "save_checkpoints_steps": 4,
        "num_workers": 1,
        **given,
    }
    return [sys.executable, "-m", "bert.run_pretraining", *(f"--{name}={value}" for name, value in values.items())]


@pytest.fixture(scope="module")
def on_disk(tiny_text, tiny_model, tmp_path_factory):
    """The data file of the last checkpoint of a training on a disk."""
    out = tmp_path_factory.mktemp("disk")
    subprocess.run(command(tiny_text, tiny_model, out), cwd=ROOT, check=True, capture_output=True)
    return hashlib.sha256((out / f"model.ckpt-{STEPS}.data-00000-of-00001").read_bytes()).hexdigest()


@pytest.fixture
def bucket(gcs, tiny_text, tiny_model):
    """A bucket with the text and the model."""
    for path in (tiny_text, *tiny_model.iterdir()):
        name = "text/tiny.txt" if path == tiny_text else f"model/{path.name}"
        gcs.write(name, path.read_bytes())
    return gcs


def start(gcs, **given):
    paths = [f"gs://{gcs.bucket}/{name}" for name in ("text/*.txt", "model", "out")]
    return subprocess.Popen(command(*paths, **given), cwd=ROOT, env=gcs.env, stderr=subprocess.PIPE, text=True)


def finish(process, timeout=150):
    """Exit status and what was logged."""
    try:
        return process.wait(timeout), process.stderr.read()
    finally:
        process.kill()


def wait_for(gcs, name, process):
    while name not in gcs.names():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)


def test_weights_are_those_of_a_disk_though_requests_fail(bucket, on_disk):
    # Of each kind of request some fail, and no two that follow each other on the same object. What interrupts an
    # upload does not go on for ever: in step with the client's own retries it would never let one through.
    bucket.fault("GET www.googleapis.com", "status", status=429, count=-1, every=7)
    bucket.fault("GET www.googleapis.com", "status", status=503, count=-1, every=11)
    bucket.fault("POST www.googleapis.com/upload", "status", status=503, count=-1, every=6)
    bucket.fault("PUT www.googleapis.com.*ckpt", "cut_upload", after=50_000, count=5, every=3)
    bucket.fault("PUT www.googleapis.com", "lose_reply", count=10, every=5)
    bucket.fault("GET storage.googleapis.com.*(ckpt|tfrecord)", "truncate", after=3_000, count=-1, every=3)
    bucket.fault("DELETE www.googleapis.com", "lose_reply", count=-1, every=3)
    bucket.fault("googleapis.com", "reset", count=20, every=13)
    process = start(bucket)
    wait_for(bucket, "out/model.ckpt-4.index", process)
    process.terminate()
    status, log = finish(process)
    assert status in (75, 0), log
    status, log = finish(start(bucket))
    assert status == 0, log
    data = bucket.read(f"out/model.ckpt-{STEPS}.data-00000-of-00001")
    assert hashlib.sha256(data).hexdigest() == on_disk
    record = json.loads(bucket.read("out/run.json"))
    assert record["status"] == "finished" and record["last_checkpoint"]["step"] == STEPS
    assert "out/run.lock" not in bucket.names()
    outcomes = {outcome for _, outcome in bucket.log()}
    assert {429, 503, "reset", "truncate", "cut_upload", "lose_reply"} <= outcomes


@pytest.mark.cloud
def test_storage_that_fails_for_ever_ends_the_run_which_goes_on_when_mended(bucket, on_disk):
    bucket.fault("POST www.googleapis.com/upload.*model.ckpt-8", "status", status=503, count=-1)
    begin = time.monotonic()
    status, log = finish(start(bucket))
    assert status == 3, log
    assert "saving a checkpoint in gs://" in log and "failed 5 times" in log and "Traceback" not in log
    assert time.monotonic() - begin < 120
    bucket.mend()
    status, log = finish(start(bucket))
    assert status == 0, log
    assert "at step 4" in log
    data = bucket.read(f"out/model.ckpt-{STEPS}.data-00000-of-00001")
    assert hashlib.sha256(data).hexdigest() == on_disk


def test_a_bucket_that_is_not_there_is_an_error_at_once(gcs, tiny_text, tiny_model):
    out = "gs://no-such-bucket/out"
    begin = time.monotonic()
    process = subprocess.Popen(
        command(tiny_text, tiny_model, out), cwd=ROOT, env=gcs.env, stderr=subprocess.PIPE, text=True
    )
    status, log = finish(process)
    assert status == 2
    assert log.endswith(f"run_pretraining.py: {out}: there is no such bucket.\n")
    assert time.monotonic() - begin < 60
