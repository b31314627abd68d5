"""What a training step on a TPU may take, from the compiler's report and the published figures of the chips."""

import dataclasses
import re
from typing import Optional

from bert.errors import InputError


@dataclasses.dataclass(frozen=True)
class Generation:
    """A generation of TPUs, per core as TensorFlow sees cores: two a chip on v2 and v3, one from v4 on.

    Attributes:
      topology: the compiler's name for the smallest slice on one host.
      chip_config: the compiler's name for how the cores of a chip work.
      cores_per_chip: cores that TensorFlow sees.
      memory: bytes of a core.
      flops: bfloat16 operations per second that the matrix units of a core can make.
      bandwidth: bytes per second that a core can read and write.
      clock: cycles per second; None where it is not published.
      links: links of a chip to others, in a full torus.
      link_bandwidth: bytes per second of a link in each direction.
    """

    topology: str
    chip_config: str
    cores_per_chip: int
    memory: int
    flops: float
    bandwidth: float
    clock: Optional[float]
    links: int
    link_bandwidth: float


_GIB = 2**30
# https://cloud.google.com/tpu/docs/v2, .../v3, .../v4, .../v5e, .../v6e for the chip's operations, memory, and
# interconnect; Jouppi et al., "Ten Lessons From Three Generations Shaped Google's TPUv4i" (ISCA 2021) and "TPU v4"
# (ISCA 2023) for clocks and links.
GENERATIONS = {
    "v2": Generation("v2:2x2", "default", 2, 8 * _GIB, 46e12 / 2, 700e9 / 2, 700e6, 4, 62e9),
    "v3": Generation("v3:2x2", "default", 2, 16 * _GIB, 123e12 / 2, 900e9 / 2, 940e6, 4, 82e9),
    "v4": Generation("v4:2x2x1", "megacore", 1, 32 * _GIB, 275e12, 1228e9, 1050e6, 6, 50e9),
    "v5e": Generation("v5e:2x2", "default", 1, 16 * _GIB, 197e12, 819e9, None, 4, 50e9),
    "v6e": Generation("v6e:2x2", "default", 1, 32 * _GIB, 918e12, 1640e9, None, 4, 112e9),
}
# Chips of the smallest slice, for which a step is compiled.
CHIPS = 4
# What a real step reaches of the estimate. BERT base at length 512 with 80 predictions, batch 256, float32, on a v3-8:
# 488 examples/s by the compiler and the sums; 423 follow from two published trainings by the original's program
# (a million steps in about a week: cl-tohoku/bert-japanese; the same speed: stefan-it/turkish-bert).
EFFICIENCY = 423 / 488


@dataclasses.dataclass(frozen=True)
class Slice:
    """An accelerator type, such as v3-8.

    Attributes:
      name: as in `v3-8`.
      generation: a `Generation`.
      chips: how many chips it has.
    """

    name: str
    generation: Generation
    chips: int

    @property
    def cores(self):
        """How many cores TensorFlow sees: the number of replicas."""
        return self.chips * self.generation.cores_per_chip


def find_slice(name):
    """The `Slice` of an accelerator type. Names count two cores a chip up to v4, and chips from v5e on.

    Raises:
      InputError: it is not the name of one.
    """
    match = re.fullmatch(r"(v\d+e?)-(\d+)", name.replace("v5litepod", "v5e"))
    generation = GENERATIONS.get(match[1]) if match else None
    if generation is None:
        raise InputError(
            f"--tpu_type={name} is not an accelerator type; it is one such as v2-8, v3-8, v4-8 or v3-32, or, to "
            "compare, v5e-4 or v6e-4."
        )
    chips = int(match[2]) // (1 if match[1].endswith("e") else 2)
    if chips < CHIPS:
        raise InputError(f"--tpu_type={name}: the smallest slice of {match[1]} that is compiled for has {CHIPS} chips.")
    return Slice(name, generation, chips)


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Seconds of a step, by what may limit it.

    Attributes:
      compute: if the matrix units were always busy.
      memory: if the memory always were.
      compiler: as the compiler estimates it, operation by operation, without sums over replicas; None if unknown.
      sums: what sums over the replicas take.
    """

    compute: float
    memory: float
    compiler: Optional[float]
    sums: float

    @property
    def expected(self):
        """The best estimate of the whole step, with `EFFICIENCY`."""
        return ((self.compiler or max(self.compute, self.memory)) + self.sums) / EFFICIENCY


def step_time(compiled, of_slice, summed_bytes):
    """The `StepTime` of a step.

    Args:
      compiled: a `bert.training.tpu_compilation.Compiled`.
      of_slice: a `Slice`.
      summed_bytes: bytes that each replica adds up with the others.
    """
    generation = of_slice.generation
    return StepTime(
        compute=compiled.flops / generation.flops,
        memory=compiled.bytes / generation.bandwidth,
        compiler=compiled.cycles / generation.clock if generation.clock else None,
        sums=all_reduce_seconds(of_slice, summed_bytes),
    )


def all_reduce_seconds(of_slice, summed_bytes):
    """Seconds in which all chips of a slice add up `summed_bytes`.

    In rings over all links at once, each chip sends the data 2 (n - 1) / n times, in which n is the number of chips
    (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). A slice of one
    host is not a torus: each of its 2 x 2 chips has two neighbours.
    """
    links = 2 if of_slice.chips == CHIPS else of_slice.generation.links
    sent = 2 * (of_slice.chips - 1) / of_slice.chips * summed_bytes
    return sent / (links * of_slice.generation.link_bandwidth)
