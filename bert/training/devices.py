"""Which device trains: a Cloud TPU, a GPU, or the CPU of this machine."""

import dataclasses
import glob
import os
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from bert import files
from bert.errors import InputError


@dataclasses.dataclass(frozen=True)
class Device:
    """The device of a run.

    Attributes:
      use_tpu: whether the program is compiled for TPU.
      description: for people, e.g. "TPU my-tpu" or "CPU, 2 cores".
      resolver: a TPUClusterResolver, or None.
      master: address of the TPU when it is named by address, or None.
      is_remote: whether the computation runs on another machine, which cannot see local files.
    """

    use_tpu: bool
    description: str
    resolver: Optional[Any] = None
    master: Optional[str] = None
    is_remote: bool = False


def choose(use_tpu, tpu_name=None, tpu_zone=None, gcp_project=None, master=None):
    """Chooses the device from the flags of the same names; a TPU's name or address implies `use_tpu`.

    Raises:
      InputError: a TPU is asked for and none is named or here.
    """
    if not (use_tpu or tpu_name or master):
        return Device(False, _local_description())
    if master and not tpu_name:
        return Device(True, f"TPU at {master}", master=master, is_remote=True)
    has_local_tpu = bool(glob.glob("/dev/accel*"))
    tpu_name = tpu_name or os.environ.get("TPU_NAME") or ("local" if has_local_tpu else None)
    if not tpu_name:
        raise InputError(
            "--use_tpu: this machine has no TPU (there is no /dev/accel0) and none is named. "
            "Name it with --tpu_name, or leave out --use_tpu to run on this machine's own CPU or GPU."
        )
    if tpu_name == "local" and not has_local_tpu:
        raise InputError(
            "--tpu_name=local: this machine has no TPU (there is no /dev/accel0). "
            "Run on the TPU VM itself, or name the TPU, or leave out --tpu_name to run on the CPU."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu_name, zone=tpu_zone, project=gcp_project)
    except Exception as e:  # whatever the look-up at Google's API ended with, the user must hear it
        raise InputError(
            f"--tpu_name={tpu_name} (zone {tpu_zone or 'not given'}, project {gcp_project or 'not given'}): "
            f"the TPU cannot be found: {e}"
        ) from e
    return Device(True, f"TPU {tpu_name}", resolver=resolver, is_remote=tpu_name != "local")


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


def _local_description():
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return f"{len(gpus)} GPU" + "s" * (len(gpus) > 1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU, {cores} core" + "s" * (cores > 1)
