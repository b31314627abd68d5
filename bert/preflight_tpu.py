"""Tells, on a machine without a TPU, whether a training compiles for one, fits its memory, and how fast it may be.

    python -m bert.preflight_tpu --program=pretrain --tpu_type=v3-8 --recipe=bert-base \
        --compiler_python=.venv-preflight/bin/python

takes the flags of the program that trains, builds the very step that each core would run, and compiles it with the
TPU's own compiler. `make preflight-tpu` sets that up. Exit status 0: it compiles and fits; 2: not, and why.
"""

import importlib
import os
import sys
import tempfile
import types

from absl import flags

from bert import program
from bert.errors import InputError
from bert.training import devices, tpu_compilation, tpu_estimates, tpu_lowering
from scripts.cloud import prices, tpu_types

FLAGS = flags.FLAGS
_PROGRAMS = {
    "pretrain": "bert.run_pretraining",
    "finetune": "bert.run_classifier",
    "squad": "bert.run_squad",
    "tagging": "bert.run_tagging",
}

flags.DEFINE_enum("program", "pretrain", list(_PROGRAMS), "What trains; its flags are taken too.")
flags.DEFINE_string("tpu_type", "v3-8", "Accelerator type, such as v2-8, v3-8, v4-8 or v3-32; v5e-4 to compare.")
flags.DEFINE_bool("find_largest_batch", True, "Whether to find the largest batch that fits, by more compilations.")
flags.DEFINE_float("price_per_hour", None, "Dollars an hour of the TPU, instead of the list prices.", lower_bound=0.0)
flags.DEFINE_string("compiler_python", None, "Python interpreter that has libtpu; without it, the CPU is compiled for.")
flags.DEFINE_string("results_dir", None, "Where compilations are kept. Default: beside --compiler_python.")


def main():
    """Compiles each stretch of the training, and prints what is known of it."""
    of_slice = tpu_estimates.find_slice(FLAGS.tpu_type)
    device = devices.Device(use_tpu=True, description=f"TPU {of_slice.name}")
    trainer, stretches = sys.modules[_PROGRAMS[FLAGS.program]].tpu_plan(device)
    if FLAGS.compiler_python:
        _print_cost(of_slice, sum(_compile(trainer, stretch, of_slice) for stretch in stretches))
        return
    _print(
        "There is no compiler for TPUs here, so this compiles for the CPU: XLA has to have every operation and to know"
    )
    _print("every shape, but memory and time are not those of a TPU.")
    with tempfile.TemporaryDirectory() as folder:
        tpu_lowering.record_memory(folder)
        for stretch in stretches:
            build = _builder(trainer, stretch, of_slice)
            memory = tpu_lowering.cpu_memory(build(stretch.schedule.train_batch_size // of_slice.cores, 1), folder)
            _print(f"  compiles for the CPU, on which it takes {_gib(memory)}")


def _builder(trainer, stretch, of_slice):
    """Says what is checked, and returns a function from a core's batch and the number of cores to the step's graph."""
    batch, cores = stretch.schedule.train_batch_size, of_slice.cores
    parts = stretch.schedule.num_accumulation_steps
    if batch % (cores * parts):
        raise InputError(f"--train_batch_size={batch} is no multiple of {cores} cores times {parts} micro-batches.")
    _print(
        f"{FLAGS.program} on {of_slice.name}: length {stretch.spec['input_ids'].shape[0]}, batch {batch:,} = "
        f"{batch // cores:,} on each of {cores:,} cores, --dtype={FLAGS.dtype}"
    )

    def build(core_batch, num_replicas=cores):
        model_fn = trainer.training_model_fn(stretch)
        return tpu_lowering.replica_graph(model_fn, stretch.spec, core_batch, num_replicas, seed=trainer.seed)

    refused = tpu_lowering.refused_operations(build(batch // cores))
    if refused:
        raise InputError("A TPU cannot run this step.\n" + "\n".join(refused))
    return build


def _compile(trainer, stretch, of_slice):
    """Compiles the step of one stretch and prints what is known of it; returns the seconds of all its steps."""
    build = _builder(trainer, stretch, of_slice)
    batch, cores, parts = stretch.schedule.train_batch_size, of_slice.cores, stretch.schedule.num_accumulation_steps
    step = build(batch // cores)
    generation = of_slice.generation
    compiler = tpu_compilation.Compiler(
        FLAGS.compiler_python,
        generation,
        # The step of each core is the same in a larger slice: only the rings of the sums are longer.
        min(cores, tpu_estimates.CHIPS * generation.cores_per_chip),
        FLAGS.results_dir or os.path.join(os.path.dirname(FLAGS.compiler_python), os.pardir, "compiled"),
    )
    compiled = compiler.compile(tpu_lowering.lower(step))
    if compiled.error and not compiled.is_too_large:
        raise InputError(f"The step does not compile for {of_slice.name}: {compiled.error}")
    if FLAGS.find_largest_batch:
        largest, _ = tpu_compilation.largest_batch(
            lambda part: compiler.compile(tpu_lowering.lower(build(part * parts))),
            batch // cores // parts,
            generation.memory,
        )
        largest *= parts
    if compiled.error:
        advice = f" The largest that fits is {largest * cores:,}." if FLAGS.find_largest_batch else ""
        raise InputError(
            f"--train_batch_size={batch} needs {_gib(compiled.total)} on a core of {of_slice.name}, which has "
            f"{_gib(generation.memory)}.{advice} Take a smaller one, or more --num_accumulation_steps."
        )
    _print(
        f"  memory of a core: arguments {_gib(compiled.arguments)}, results {_gib(compiled.results)}, temporaries "
        f"{_gib(compiled.temporaries)}, code {_gib(compiled.code)}: {_gib(compiled.total)} of {_gib(generation.memory)}"
    )
    if FLAGS.find_largest_batch:
        _print(f"  largest batch that fits: {largest:,} on a core, --train_batch_size={largest * cores}")
    time = tpu_estimates.step_time(compiled, of_slice, step.replica_sum_bytes)
    by_compiler = f"by the compiler {_ms(time.compiler)}, " if time.compiler else ""
    _print(
        f"  a step of a core: {compiled.flops:.3e} FLOPs, {compiled.bytes:.3e} bytes\n"
        f"  a step takes: by compute alone {_ms(time.compute)}, by memory alone {_ms(time.memory)}, {by_compiler}"
        f"sums over {cores:,} cores {_ms(time.sums)}; expected, at the {100 * tpu_estimates.EFFICIENCY:.0f} % that "
        f"published trainings reach of that, {_ms(time.expected)}\n"
        f"  expected: {batch / time.expected:,.0f} examples/s, {100 * time.compute / time.expected:.0f} % of the peak; "
        f"at most {batch / time.compute:,.0f} examples/s"
    )
    return (stretch.last_step - stretch.first_step) * time.expected


def _print_cost(of_slice, seconds):
    """Prints hours and dollars of all steps."""
    hours = seconds / 3600
    if not seconds:
        _print("Give the number of steps to be told hours and dollars.")
    elif of_slice.name.startswith(("v5e", "v6e")):
        _print(f"all steps: {hours:,.1f} hours; this program does not run on {of_slice.name}, only to compare")
    elif FLAGS.price_per_hour is not None:
        _print(f"all steps: {hours:,.1f} hours, ${hours * FLAGS.price_per_hour:,.0f}")
    else:
        settings, tpu_type = types.SimpleNamespace(price_per_hour=None), tpu_types.parse(of_slice.name)
        on_demand, spot = (hours * prices.per_hour(settings, tpu_type, is_spot) for is_spot in (False, True))
        _print(
            f"all steps: {hours:,.1f} hours, about ${on_demand:,.0f} on demand or ${spot:,.0f} spot "
            f"(list prices of {prices.AS_OF})"
        )


def _gib(size):
    return f"{size / 2**30:.2f} GiB"


def _ms(seconds):
    return f"{1000 * seconds:,.1f} ms"


def _print(text):
    print(text, flush=True)


if __name__ == "__main__":
    # The programs have flags of the same names, so only that which trains is imported, before all flags are parsed.
    FLAGS(sys.argv, known_only=True)
    importlib.import_module(_PROGRAMS[FLAGS.program])
    FLAGS.unparse_flags()
    program.run(main)
