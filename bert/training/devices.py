"""Which device trains: a Cloud TPU, a GPU, or the CPU of this machine."""

import contextlib
import dataclasses
import glob
import json
import os
import re
import time
from typing import Any, Optional

import tensorflow.compat.v1 as tf
from absl import logging
from tensorflow.python.framework import kernels

from bert import files
from bert.errors import InputError, TrainingError
from bert.training import cluster

LOCAL = "local"
# How the devices of a machine, or of several, share a batch: the model garden's names.
OFF, ONE_DEVICE, MIRRORED, MULTI_WORKER_MIRRORED = "off", "one_device", "mirrored", "multi_worker_mirrored"
STRATEGIES = (OFF, ONE_DEVICE, MIRRORED, MULTI_WORKER_MIRRORED)
# What the driver of a TPU of generation 2, 3 or 4 makes on the machine that has the TPU.
TPU_DEVICES = "/dev/accel*"
# Operations of TPUEstimator that only a TensorFlow built for TPUs can execute.
_TPU_OPERATIONS = ("ConfigureDistributedTPU", "InfeedEnqueueTuple", "TPUCompile", "TPUExecute")
_XLA_ON_CPU = "--tf_xla_cpu_global_jit"
_ADDRESS = re.compile(r"(grpc://)?[^\s:/,]+(:\d+)?")


@dataclasses.dataclass(frozen=True)
class Device:
    """The device of a run.

    Attributes:
      use_tpu: whether the program is compiled for TPU.
      description: for people, e.g. "TPU my-tpu" or "CPU, 2 cores".
      resolver: a TPUClusterResolver, or None.
      is_remote: whether the computation runs on another machine, which cannot see local files.
      enable_xla: whether XLA compiles the steps of a training, as it always does on a TPU.
      strategy: the `tf.distribute` strategy by which several devices share each batch of a training, or None.
      cluster: the `cluster.Cluster` of several machines that train together, or None.
    """

    use_tpu: bool
    description: str
    resolver: Optional[Any] = None
    is_remote: bool = False
    enable_xla: bool = False
    strategy: Optional[Any] = None
    cluster: Optional[Any] = None

    @property
    def num_replicas(self):
        """Number of devices that share a batch, other than TPU cores."""
        return self.strategy.num_replicas_in_sync if self.strategy else 1

    def session_config(self):
        """The `tf.ConfigProto` of a training."""
        config = session_config()
        if self.enable_xla:
            config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
        if not self.strategy:
            return config
        if not _local_gpus():
            config.device_count["CPU"] = _count_local()
        if self.cluster is None:
            return config
        return self.strategy.update_config_proto(config)


def choose(use_tpu=None, tpu_name=None, tpu_zone=None, gcp_project=None, master=None, tries=40, pause=10.0):
    """Chooses the device from the flags of the same names, or else from the environment.

    A TPU is, in this order: that of `tpu_name`, of `master`, of the variable TPU_NAME, this machine's own, that of the
    variable TPU_CONFIG, by which AI Platform and Vertex AI tell of theirs. On a TPU VM of Vertex AI, TPU_CONFIG names a
    node of a project that is not the user's, and is rightly not looked at.

    Args:
      use_tpu: True: there must be a TPU; False: only if `tpu_name` or `master` names one; None: if there is one.
      tpu_name: `local`, the name of a Cloud TPU, an address grpc://host:port, or, for a pod slice, the addresses of
        all its hosts, separated by commas.
      tpu_zone: zone of a TPU that is given by its name; None: this machine's.
      gcp_project: project of a TPU that is given by its name; None: this machine's.
      master: one or more addresses.
      tries: how many times the TPU of TPU_CONFIG is looked for, which may still be being made.
      pause: seconds between two tries.

    Raises:
      InputError: a TPU is asked for, and none is named or here, or it cannot be used; the message says why.
      TrainingError: the TPU of TPU_CONFIG did not come.
    """
    flag, name = ("--master", master) if master and not tpu_name else ("--tpu_name", tpu_name)
    if not name and use_tpu is not False:
        flag, name = "TPU_NAME", os.environ.get("TPU_NAME") or (LOCAL if _has_tpu() else None)
        if not name and os.environ.get("TPU_CONFIG"):
            return _tpu_of_config(tries, pause)
    if not name:
        if use_tpu:
            raise InputError(
                "--use_tpu: this machine has no TPU (there is no /dev/accel0) and none is named. "
                "Name it with --tpu_name, or leave out --use_tpu to run on this machine's own CPU or GPU."
            )
        return Device(False, _local_description())
    if name == LOCAL:
        _check_local_tpu(flag)
    elif name.startswith("grpc://"):
        wrong = [address for address in name.split(",") if not _ADDRESS.fullmatch(address)]
        if wrong:
            raise InputError(
                f"{flag}={name}: {wrong[0]!r} is not an address. It is grpc://host:port, or several, with commas and "
                "without spaces between them."
            )
    elif flag == "--master":
        raise InputError(f"--master={name} is not an address such as grpc://10.0.0.2:8470. Names go to --tpu_name.")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name, zone=tpu_zone, project=gcp_project)
        resolver.master()
    except Exception as e:  # whatever the look-up at Google's API ended with, the user must hear it
        raise InputError(
            f"{flag}={name} (zone {tpu_zone or 'not given'}, project {gcp_project or 'not given'}): "
            f"the TPU cannot be found: {_in_words(e)} On a TPU VM itself its name is `local`; --use_tpu=false runs "
            "on this machine's own CPU or GPU."
        ) from e
    return Device(True, f"TPU {name}", resolver=resolver, is_remote=name != LOCAL)


def with_xla(device):
    """The device, with XLA compiling the steps of a training.

    Raises:
      InputError: it would compile nothing.
    """
    if device.use_tpu:
        return device
    # TensorFlow reads the variable once, before any flag of a program.
    if not _local_gpus() and _XLA_ON_CPU not in os.environ.get("TF_XLA_FLAGS", ""):
        raise InputError(
            "--enable_xla: there is no GPU here, and on a CPU XLA makes steps slower. Leave it out, or set "
            f"TF_XLA_FLAGS={_XLA_ON_CPU} in the environment to compile for the CPU all the same."
        )
    return dataclasses.replace(device, enable_xla=True)


def distribute(device, strategy):
    """Shares the batches of a training among the devices of this machine, or of all that TF_CONFIG names.

    Args:
      device: a `Device` that is no TPU.
      strategy: one of `STRATEGIES`; None: the machines that TF_CONFIG names, if there are several, or else one device.

    Returns:
      A `Device` with a strategy, if there are several.

    Raises:
      InputError: there is no cluster where one is asked for, or TF_CONFIG cannot be used.
      TrainingError: another machine has not been started.
    """
    machines = cluster.read() if strategy in (None, MULTI_WORKER_MIRRORED) else None
    # Estimator would read it too, and take the other machines for parameter servers.
    named = os.environ.pop(cluster.VARIABLE, None)
    if machines:
        gpus = len(_local_gpus())
        distribution = machines.start(gpus, session_config())
        description = f"{len(machines.addresses)} machines, each {device.description}"
        logging.info("each batch is shared by %s; this is machine %d", description, machines.rank)
        return dataclasses.replace(device, description=description, strategy=distribution, cluster=machines)
    if strategy == MULTI_WORKER_MIRRORED and not named:
        raise InputError(
            f"--distribution_strategy={strategy}: the variable {cluster.VARIABLE} must name the machines, like "
            f"{cluster.EXAMPLE}. For the GPUs of one machine give --distribution_strategy=mirrored."
        )
    count = _count_local()
    if count == 1 or strategy != MIRRORED:
        if count > 1 and strategy is None:
            logging.info("training on one of %s: --distribution_strategy=mirrored takes all", device.description)
        return device
    kind = "gpu" if _local_gpus() else "cpu"
    logging.info("each batch is shared by %s", device.description)
    # In a graph TensorFlow gives NCCL only sums whose order is the same on all GPUs, and CPUs no collectives at all.
    with tf.Graph().as_default() if kind == "gpu" else contextlib.nullcontext():
        strategy = tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(count)])
    return dataclasses.replace(device, strategy=strategy)


def session_config():
    """The `tf.ConfigProto` of every session."""
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    return config


def check_paths(device, paths):
    """Refuses local paths for a TPU on another machine, which cannot see them.

    Args:
      device: a `Device`.
      paths: dict from the flag's name to its path.

    Raises:
      InputError: a path is local.
    """
    if not device.is_remote:
        return
    for flag, path in paths.items():
        if path and not files.is_remote(path):
            raise InputError(
                f"--{flag}={path} is on this machine, but {device.description} reads and writes only gs:// "
                f"paths. Copy it to a bucket (gsutil -m cp -r ... gs://...) and name it there."
            )


def check_dtype(device, dtype):
    """Refuses a dtype that a device does not have, and warns of one that only slows it down.

    Args:
      device: a `Device`.
      dtype: key of `bert.modeling.COMPUTE_DTYPES`.

    Raises:
      InputError: float16 on a TPU.
    """
    if device.use_tpu and dtype == "fp16":
        raise InputError("--dtype=fp16: TPUs have no float16. Give --dtype=bf16.")
    if dtype != "fp32" and device.description.startswith("CPU") and not (dtype == "bf16" and cpu_has_bfloat16()):
        logging.warning("--dtype=%s is slower than fp32 on this CPU, which cannot multiply such numbers.", dtype)


def check_tpu_runtime():
    """Refuses a TensorFlow that cannot drive a TPU of its own machine, as those of the package index cannot.

    Raises:
      InputError: says where TensorFlow comes from, and which one is needed.
    """
    if any(kernels.get_registered_kernels_for_op(name).kernel for name in _TPU_OPERATIONS):
        return
    raise InputError(
        f"TensorFlow {tf.__version__} in {tf.sysconfig.get_lib()} has no TPU runtime: it was installed by pip from the "
        "package index, whose wheels cannot use a TPU, and hides the one that came with the TPU VM. Uninstall it "
        "there (pip uninstall tensorflow tensorflow-cpu), and make virtual environments with "
        "`python3 -m venv --system-site-packages`."
    )


def _has_tpu():
    """Whether this process may use a TPU of this machine."""
    # By 0, helpers beside a training, and the program that drives a pod slice, are kept from loading the library.
    return bool(glob.glob(TPU_DEVICES)) and os.environ.get("TPU_LOAD_LIBRARY") != "0"


def _check_local_tpu(flag):
    if not glob.glob(TPU_DEVICES):
        raise InputError(
            f"{flag}=local: this machine has no TPU (there is no /dev/accel0). "
            "Run on the TPU VM itself, or name the TPU, or leave it out to run on the CPU."
        )
    if not _has_tpu():
        raise InputError(f"{flag}=local: TPU_LOAD_LIBRARY=0 in the environment keeps this program from the TPU.")
    check_tpu_runtime()


def _tpu_of_config(tries, pause):
    """The TPU that AI Platform or Vertex AI makes for a job, once it is there."""
    config = os.environ["TPU_CONFIG"]
    try:
        description = f"TPU {json.loads(config)['tpu_node_name']}"
    except (ValueError, KeyError, TypeError):
        raise InputError(f"TPU_CONFIG={config}: it must be JSON with project, zone and tpu_node_name.") from None
    if not os.environ.get("TPU_NAME"):
        os.environ.pop("TPU_NAME", None)  # empty, it would count as a name
    for attempt in range(1, tries + 1):
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
            resolver.master()
            return Device(True, description, resolver=resolver, is_remote=True)
        except Exception as e:  # until the TPU is ready, its look-up fails in many ways
            reason = _in_words(e)
        if "pip install" in reason:
            raise InputError(f"TPU_CONFIG={config}: {reason}")
        logging.info("waiting for %s, try %d of %d: %s", description, attempt, tries, reason)
        if attempt < tries:
            time.sleep(pause)
    raise TrainingError(f"{description} of TPU_CONFIG did not get ready within {tries} tries: {reason}")


def _in_words(error):
    """The message of an exception of TensorFlow's TPU client, in which only the hint on packages is out of date."""
    reason = str(error) or type(error).__name__
    # cloud-tpu-client asks for versions that google-cloud-storage does not work with; TensorFlow needs only these.
    return reason.replace("cloud-tpu-client", "google-api-python-client oauth2client").rstrip(".") + "."


def cpu_has_bfloat16():
    """Whether this machine's CPU multiplies bfloat16 numbers."""
    try:
        with open("/proc/cpuinfo") as f:
            return re.search(r"\b(avx512_bf16|amx_bf16)\b", f.read()) is not None
    except OSError:
        return True  # unknown


def _local_gpus():
    return tf.config.list_physical_devices("GPU")


def _count_local():
    """Number of GPUs, or without any, of the logical devices that the CPU has been split into."""
    [cpu] = tf.config.list_physical_devices("CPU")
    return len(_local_gpus()) or len(tf.config.get_logical_device_configuration(cpu) or [cpu])


def _local_description():
    gpus = _local_gpus()
    if gpus:
        return f"{len(gpus)} GPU" + "s" * (len(gpus) > 1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU, {cores} core" + "s" * (cores > 1)
