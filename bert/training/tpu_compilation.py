"""Compiles training steps for a TPU by a process in an environment of its own, remembers the results, finds limits."""

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import tempfile

from bert import files
from bert.errors import InputError

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tpu_compiler.py")
# Compilations after the first two, in the search for the largest batch.
_MOST_TRIES = 4


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler tells of a step, of one core.

    Attributes:
      arguments, results, temporaries, code: bytes of memory; results are those that replace no argument.
      flops, bytes: operations, and bytes read and written, in a step.
      cycles: the compiler's estimate of the step's length.
      error: why it does not compile, in the compiler's words; then the others are 0.
    """

    arguments: int = 0
    results: int = 0
    temporaries: int = 0
    code: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    cycles: int = 0
    error: str = ""

    @property
    def total(self):
        """Bytes of memory that the step needs, also where the core has fewer."""
        needed = re.search(r"Used ([\d.]+)([GM]) of [\d.]+[GM] hbm", self.error)
        if needed:
            return float(needed[1]) * {"M": 2**20, "G": 2**30}[needed[2]]
        return self.arguments + self.results + self.temporaries + self.code

    @property
    def is_too_large(self):
        """Whether memory is all that it lacks."""
        return bool(self.error) and self.total > 0


@dataclasses.dataclass(frozen=True)
class Compiler:
    """The TPU's compiler for one generation.

    Attributes:
      python: path of the Python interpreter that has libtpu.
      generation: a `bert.training.tpu_estimates.Generation`.
      num_replicas: cores that run the step together.
      folder: where results are kept.
    """

    python: str
    generation: object
    num_replicas: int
    folder: str

    def compile(self, module):
        """Compiles a serialized HLO module, or finds what is known of it: a `Compiled`."""
        of = (self.generation.topology, self.generation.chip_config, str(self.num_replicas))
        with open(_PROGRAM, "rb") as f:
            key = hashlib.sha256(b"\0".join([*map(str.encode, of), f.read(), module])).hexdigest()
        path = os.path.join(self.folder, f"{key}.json")
        if files.exists(path):
            return Compiled(**files.read_json_object(path))
        with tempfile.NamedTemporaryFile(suffix=".hlo") as f:
            f.write(module)
            f.flush()
            # Apart from this process, -I keeps the modules beside the program from taking the place of libraries.
            run = subprocess.run([self.python, "-I", _PROGRAM, f.name, *of], capture_output=True, text=True)
        if run.returncode:
            raise InputError(f"{self.python} cannot compile for a TPU: {run.stderr.strip().splitlines()[-1:]}")
        found = json.loads(run.stdout.splitlines()[-1])
        compiled = Compiled(**{name: value for name, value in found.items() if name != "device_kind"})
        files.make_folder(self.folder)
        with files.atomic_write(path, "w") as f:
            json.dump(dataclasses.asdict(compiled), f)
        return compiled


def largest_batch(compile_batch, first, memory):
    """Finds the largest batch of a core that fits its memory, in few compilations.

    Memory is nearly linear in the batch, so where the line through two compilations meets the memory is tried next,
    and so on until the batch that fits and the one that does not are neighbours.

    Args:
      compile_batch: function from the batch of a core to its `Compiled`.
      first: batch to begin with.
      memory: bytes of a core.

    Returns:
      The batch and its `Compiled`; 0 and None if not even one example fits.

    Raises:
      InputError: the step does not compile for another reason than memory.
    """
    known = {}

    def attempt(batch):
        if batch not in known:
            known[batch] = compile_batch(batch)
            if known[batch].error and not known[batch].is_too_large:
                raise InputError(f"The step does not compile for a batch of {batch} a core: {known[batch].error}")
        return known[batch]

    start = attempt(first)
    constant = start.arguments + start.code
    guess = (memory - constant) / max(start.total - constant, 1) * first if not start.error else first / 2
    for _ in range(_MOST_TRIES):
        fits = max((batch for batch, compiled in known.items() if not compiled.error), default=0)
        fails = min((batch for batch, compiled in known.items() if compiled.error), default=None)
        batch = _rounded(guess)
        if fails is not None and batch >= fails:
            batch = _below(fails)
        if batch <= fits:
            batch = _above(fits)
        if batch == 0 or (fails is not None and batch >= fails):
            break
        attempt(batch)
        (b0, m0), (b1, m1) = sorted((batch, compiled.total) for batch, compiled in known.items())[-2:]
        guess = b1 + (memory - m1) * (b1 - b0) / max(m1 - m0, 1)
    fits = max((batch for batch, compiled in known.items() if not compiled.error), default=0)
    return fits, known.get(fits)


def _rounded(batch):
    """The next smaller batch that fills the 8 rows of a vector register, or, below 8, the next smaller one."""
    return int(batch) // 8 * 8 if batch >= 8 else max(int(batch), 0)


def _above(batch):
    return batch + 8 if batch >= 8 else batch + 1


def _below(batch):
    return _rounded(batch - 1)
