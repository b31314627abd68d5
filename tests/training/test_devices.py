"""Which device is chosen, and which paths it can read."""

import pytest

from bert.errors import InputError
from bert.training import devices


def test_without_a_tpu_this_machine_trains():
    device = devices.choose(use_tpu=False)
    assert not device.use_tpu and not device.is_remote
    assert "CPU" in device.description or "GPU" in device.description


def test_an_address_implies_a_tpu_elsewhere():
    for device in (devices.choose(False, master="grpc://10.0.0.2:8470"), devices.choose(False, "grpc://10.0.0.2:8470")):
        assert device.use_tpu and device.is_remote


def test_a_tpu_that_is_not_here_is_refused(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(InputError, match=r"--use_tpu: this machine has no TPU .* none is named"):
        devices.choose(use_tpu=True)
    with pytest.raises(InputError, match="--tpu_name=local: this machine has no TPU"):
        devices.choose(use_tpu=False, tpu_name="local")


def test_a_remote_tpu_reads_only_buckets():
    device = devices.choose(False, master="grpc://10.0.0.2:8470")
    devices.check_paths(device, {"output_dir": "gs://bucket/out", "eval_file": None})
    with pytest.raises(
        InputError, match=r"--input_file=corpus.txt is on this machine, but TPU at grpc://10.0.0.2:8470"
    ):
        devices.check_paths(device, {"output_dir": "gs://bucket/out", "input_file": "corpus.txt"})
    devices.check_paths(devices.choose(False), {"input_file": "corpus.txt"})
