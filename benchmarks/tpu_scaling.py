"""Computes how a training step scales from v3-8 to v3-2048: no measurement, but arithmetic on reports of the compiler.

    python benchmarks/tpu_scaling.py --fixed_ms=10 --example_ms=3 --summed_mb=440 --global_batch=32768

A step of b examples a core takes fixed + b x example, as two reports of `make preflight-tpu` give them, and the sums
over the replicas, in rings (`bert.training.tpu_estimates.all_reduce_seconds`), which here do not overlap with anything.
Prints a table for a batch that is divided among more and more cores; see docs/scaling.md.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from bert import program
from bert.training import tpu_estimates

FLAGS = flags.FLAGS
flags.DEFINE_float("fixed_ms", None, "Milliseconds of a step that do not depend on the batch.", lower_bound=0.0)
flags.DEFINE_float("example_ms", None, "Milliseconds of each example of a core.", lower_bound=0.0)
flags.DEFINE_float("summed_mb", None, "Million bytes that are summed over the replicas in each step.", lower_bound=0.0)
flags.DEFINE_integer("global_batch", None, "Examples per step, over all cores.", lower_bound=8)
flags.DEFINE_string("generation", "v3", "Generation of TPUs.")


def main():
    """Prints the table."""
    print("| type | a core | step, ms | sums | examples/s | of linear | examples/s a host |")
    print("|---|---|---|---|---|---|---|")
    first = None
    for size in (8, 32, 128, 512, 1024, 2048):
        of_slice = tpu_estimates.find_slice(f"{FLAGS.generation}-{size}")
        if FLAGS.global_batch % of_slice.cores:
            continue
        batch = FLAGS.global_batch // of_slice.cores
        sums = 1000 * tpu_estimates.all_reduce_seconds(of_slice, 1e6 * FLAGS.summed_mb)
        step = FLAGS.fixed_ms + batch * FLAGS.example_ms + sums
        rate = 1000 * FLAGS.global_batch / step
        first = first or rate / of_slice.chips
        hosts = of_slice.chips // tpu_estimates.CHIPS
        print(
            f"| {of_slice.name} | {batch:,} | {step:,.1f} | {100 * sums / step:.1f} % | {rate:,.0f} | "
            f"{100 * rate / of_slice.chips / first:.0f} % | {rate / hosts:,.0f} |"
        )


if __name__ == "__main__":
    program.run(main, required=["fixed_ms", "example_ms", "summed_mb", "global_batch"])
