"""Which device is chosen, and which paths it can read."""

import importlib
import json
import os
import threading

import pytest
import tensorflow.compat.v1 as tf

import bert
from bert.errors import InputError, TrainingError
from bert.training import devices, estimator

ADDRESS = "grpc://10.0.0.2:8470"
PROVISIONED = json.dumps({"project": "tenant", "zone": "us-central1-b", "tpu_node_name": ADDRESS})
# Without a project, TensorFlow asks the metadata server for it; nothing listens where these tests say it is.
NOT_YET = json.dumps({"tpu_node_name": "my-node"})


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """An environment that names no TPU, of a machine without one."""
    for name in ("TPU_NAME", "TPU_CONFIG", "TPU_LOAD_LIBRARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    monkeypatch.setattr(devices, "TPU_DEVICES", "/nonexistent/accel*")
    return monkeypatch


@pytest.fixture
def tpu_vm(environment, tmp_path):
    """A machine with the device files of a TPU."""
    (tmp_path / "accel0").touch()
    environment.setattr(devices, "TPU_DEVICES", str(tmp_path / "accel*"))


def test_without_a_tpu_this_machine_trains():
    for use_tpu in (None, False):
        device = devices.choose(use_tpu)
        assert not device.use_tpu and not device.is_remote
        assert "CPU" in device.description or "GPU" in device.description


def test_an_address_implies_a_tpu_elsewhere(environment):
    pod = "grpc://10.0.0.2:8470,grpc://10.0.0.3:8470,10.0.0.4"
    for arguments in ({"master": pod}, {"tpu_name": pod}):
        device = devices.choose(False, **arguments)
        assert device.use_tpu and device.is_remote
        hosts = device.resolver.cluster_spec().as_dict()["worker"]
        assert hosts == ["10.0.0.2:8470", "10.0.0.3:8470", "10.0.0.4:8470"]
    made = estimator.make(lambda features, labels, mode, params: None, device, None, seed=1, train_batch_size=24)
    config = made.config
    assert config.master == ADDRESS and config.cluster_spec.num_tasks("worker") == 3

    environment.setenv("TPU_NAME", ADDRESS)
    assert devices.choose().description == devices.choose(True).description == f"TPU {ADDRESS}"
    assert not devices.choose(False).use_tpu
    for arguments, message in (
        ({"tpu_name": f"{ADDRESS}, grpc://10.0.0.3"}, r"--tpu_name=.*: ' grpc://10.0.0.3' is not an address"),
        ({"master": "my-tpu"}, r"--master=my-tpu is not an address .* Names go to --tpu_name"),
    ):
        with pytest.raises(InputError, match=message):
            devices.choose(**arguments)


def test_a_tpu_that_is_not_here_is_refused(environment):
    with pytest.raises(InputError, match=r"--use_tpu: this machine has no TPU .* none is named"):
        devices.choose(use_tpu=True)
    with pytest.raises(InputError, match="--tpu_name=local: this machine has no TPU"):
        devices.choose(use_tpu=False, tpu_name="local")
    with pytest.raises(InputError, match=r"--tpu_name=my-tpu \(zone us-x1-b, .* cannot be found: .*refused"):
        devices.choose(tpu_name="my-tpu", tpu_zone="us-x1-b")
    environment.setenv("TPU_NAME", "my-tpu")
    with pytest.raises(InputError, match=r"TPU_NAME=my-tpu .*pip install google-api-python-client"):
        devices.choose(None, tpu_zone="us-x1-b", gcp_project="mine")


def test_dtypes_that_a_device_lacks(caplog):
    here = devices.choose(False)
    with pytest.raises(InputError, match=r"--dtype=fp16: TPUs have no float16\. Give --dtype=bf16"):
        devices.check_dtype(devices.Device(True, "TPU x"), "fp16")
    devices.check_dtype(devices.Device(True, "TPU x"), "bf16")
    devices.check_dtype(here, "fp32")
    assert not caplog.messages
    if here.description.startswith("CPU"):
        devices.check_dtype(here, "fp16")
        assert caplog.messages == ["--dtype=fp16 is slower than fp32 on this CPU, which cannot multiply such numbers."]


def test_a_tensorflow_without_a_tpu_runtime_is_refused(environment, tpu_vm):
    # On a TPU VM of Vertex AI, TPU_CONFIG names a node that only Google can look up.
    environment.setenv("TPU_CONFIG", PROVISIONED)
    for arguments in ({}, {"use_tpu": True}, {"tpu_name": "local"}):
        with pytest.raises(InputError, match="has no TPU runtime") as refused:
            devices.choose(**arguments)
        assert f"TensorFlow {tf.__version__} in {tf.sysconfig.get_lib()} " in str(refused.value)
    assert not devices.choose(False).use_tpu


def test_a_helper_beside_the_training_keeps_off_the_tpu(environment, tpu_vm):
    environment.setenv("TPU_LOAD_LIBRARY", "0")
    assert not devices.choose().use_tpu
    with pytest.raises(InputError, match="TPU_LOAD_LIBRARY=0 in the environment keeps this program from the TPU"):
        devices.choose(tpu_name="local")
    # The host that drives a pod slice of Vertex AI has cores of its own, too.
    environment.setenv("TPU_CONFIG", PROVISIONED)
    assert devices.choose().resolver.master() == ADDRESS


def test_the_tpu_of_a_job_is_waited_for(environment):
    environment.setenv("TPU_NAME", "")  # as make exports it
    environment.setenv("TPU_CONFIG", NOT_YET)
    timer = threading.Timer(0.2, os.environ.__setitem__, ("TPU_CONFIG", PROVISIONED))
    timer.start()
    device = devices.choose(use_tpu=True, tries=1000, pause=0.02)
    timer.join()
    assert device.use_tpu and device.is_remote and device.description == "TPU my-node"
    assert device.resolver.master() == ADDRESS


def test_the_tpu_of_a_job_is_not_waited_for_in_vain(environment):
    environment.setenv("TPU_CONFIG", NOT_YET)
    with pytest.raises(TrainingError, match=r"TPU my-node of TPU_CONFIG .* within 3 tries: .*[Cc]onnection refused"):
        devices.choose(tries=3, pause=0)
    environment.setenv("TPU_CONFIG", PROVISIONED.replace(ADDRESS, "my-node"))
    with pytest.raises(InputError, match="pip install google-api-python-client oauth2client"):
        devices.choose()  # the package that looks up names is missing, which no waiting mends
    environment.setenv("TPU_CONFIG", "{}")
    with pytest.raises(InputError, match=r"TPU_CONFIG=\{\}: it must be JSON with project, zone and tpu_node_name"):
        devices.choose()


def test_an_inherited_choice_of_pjrt_is_undone(monkeypatch):
    names = ("NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    for name in names:
        monkeypatch.setenv(name, "/lib/libtpu.so")
    importlib.reload(bert)
    assert not set(names) & set(os.environ)


def test_a_remote_tpu_reads_only_buckets():
    device = devices.choose(master=ADDRESS)
    devices.check_paths(device, {"output_dir": "gs://bucket/out", "eval_file": None})
    with pytest.raises(InputError, match=f"--input_file=corpus.txt is on this machine, but TPU {ADDRESS}"):
        devices.check_paths(device, {"output_dir": "gs://bucket/out", "input_file": "corpus.txt"})
    devices.check_paths(devices.choose(), {"input_file": "corpus.txt"})


def test_xla_that_would_compile_nothing_is_refused(environment):
    environment.delenv("TF_XLA_FLAGS", raising=False)
    device = devices.choose()
    with pytest.raises(InputError, match="--enable_xla: there is no GPU here"):
        devices.with_xla(device)
    environment.setenv("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit")
    level = devices.with_xla(device).session_config().graph_options.optimizer_options.global_jit_level
    assert level == tf.OptimizerOptions.ON_1 != device.session_config().graph_options.optimizer_options.global_jit_level
