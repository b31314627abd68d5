"""What the name of an accelerator type says, and which types and images can run TPUEstimator.

TPUEstimator feeds a TPU through infeed queues, whose kernels exist for the StreamExecutor runtime alone. Google
offers it for v2, v3 and v4, in the images of TensorFlow whose names end in `-se`. Later generations, and the images
whose names end in `-pjrt`, have only the PJRT runtime, which has no infeed.
Sources: https://cloud.google.com/tpu/docs/supported-tpu-versions, https://cloud.google.com/tpu/docs/regions-zones and
the pages of the generations beside them, as of April 2026.
"""

import dataclasses
import re

from scripts.cloud.errors import UsageError

TENSORFLOW = "2.15.1"
_CORES_PER_HOST = 8
# TensorCores of the slices on offer; cores that TensorFlow sees per TensorCore; GiB of memory per core it sees.
_GENERATIONS = {
    "v2": ((8, 32, 128, 256, 512), 1, 8),
    "v3": ((8, 32, 64, 128, 256, 512, 1024, 2048), 1, 16),
    # The two cores of a v4 chip work as one.
    "v4": ((8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 2, 32),
}
_PJRT_ONLY = re.compile(r"(v5litepod|v5e|v5p|v6e|v7x?|tpu-?7x|ct5|ct6)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class TpuType:
    """An accelerator type.

    Attributes:
      name: as in `v3-8`.
      generation: as in `v3`.
      cores: how many cores TensorFlow sees: the number of replicas of a model.
      chips: what prices are given for.
      hosts: how many virtual machines it has; more than one make it a pod slice.
      memory: GiB of memory of each of the `cores`.
    """

    name: str
    generation: str
    cores: int
    chips: int
    hosts: int
    memory: int

    @property
    def is_pod(self):
        """Whether several virtual machines drive it together."""
        return self.hosts > 1

    @property
    def image(self):
        """Name of the image for its virtual machines."""
        return f"tpu-vm-tf-{TENSORFLOW}{'-pod' if self.is_pod else ''}-se"


def parse(name):
    """The `TpuType` of a name such as `v3-8`.

    Raises:
      UsageError: there is no such type, or it cannot run TPUEstimator.
    """
    match = re.fullmatch(r"(v[234])-(\d{1,4})", name)
    if match is None:
        if _PJRT_ONLY.match(name):
            raise UsageError(
                f"TPU_TYPE={name!r} cannot run this program: TPUEstimator needs the StreamExecutor runtime, and TPUs "
                "from v5e on have only PJRT. Use v2-8, v3-8 or v4-8."
            )
        raise UsageError(f"TPU_TYPE={name!r} is not an accelerator type; it is one such as v2-8, v3-8, v4-8 or v3-32.")
    generation, tensor_cores = match[1], int(match[2])
    sizes, per_core, memory = _GENERATIONS[generation]
    if tensor_cores not in sizes:
        offered = ", ".join(f"{generation}-{size}" for size in sizes)
        raise UsageError(f"TPU_TYPE={name!r} does not exist; of {generation} there are {offered}.")
    return TpuType(
        name=name,
        generation=generation,
        cores=tensor_cores // per_core,
        chips=tensor_cores // 2,
        hosts=tensor_cores // _CORES_PER_HOST,
        memory=memory,
    )


def check_image(image, tpu_type):
    """Refuses an image whose TensorFlow cannot run TPUEstimator on a TPU.

    Args:
      image: as in `tpu-vm-tf-2.15.1-se`.
      tpu_type: a `TpuType`.

    Raises:
      UsageError: says why, and which image to use.
    """
    use = f"Use IMAGE={tpu_type.image}, which is the default."
    match = re.fullmatch(r"tpu-vm-tf-(\d+\.\d+)\.\d+(-pod)?(-se|-pjrt)?", image)
    if match is None:
        raise UsageError(f"IMAGE={image!r} has no TensorFlow for TPUs of its own, and none can be installed. {use}")
    if match[1] != TENSORFLOW.rpartition(".")[0]:
        raise UsageError(
            f"IMAGE={image!r} has TensorFlow {match[1]}; this program needs 2.15, the last with Estimator. {use}"
        )
    if match[3] != "-se":
        raise UsageError(
            f"IMAGE={image!r} does not have the StreamExecutor runtime (-se), without which TPUEstimator cannot feed a "
            f"TPU. {use}"
        )
    if bool(match[2]) != tpu_type.is_pod:
        machines = f"{tpu_type.hosts} virtual machines" if tpu_type.is_pod else "one virtual machine"
        raise UsageError(f"IMAGE={image!r} does not fit TPU_TYPE={tpu_type.name}, which has {machines}. {use}")
