"""Pretraining data: CPU seconds of this project beside google-research/bert, whole processes, interleaved.

    python benchmarks/pretraining_data.py --original=path/to/google-research/bert --corpus=text.txt \
        --vocab_file=vocab.txt --cases=128:20:1,128:20:10,128:20:10:wwm,512:77:5

A case is max_seq_length:max_predictions_per_seq:dupe_factor, and :wwm for whole-word masking. Arms, each a process
of its own, one after the other in every round:

- original: the script as it is, on TensorFlow's compat.v1;
- hoisted: the same, where the flag that it looks up for every token is a plain attribute: most of the original's
  time goes there, and a reader may want to know what is left of the difference without it;
- ours: one worker, with no tokenized text in the cache;
- again: the same, when the text has been tokenized before;

The last columns are wall seconds of our two arms with one and with two workers.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import results
from absl import flags

from bert import program
from bert.data import records

FLAGS = flags.FLAGS
flags.DEFINE_string("original", None, "Folder of a copy of google-research/bert.")
flags.DEFINE_string("corpus", None, "Text file, a sentence a line.")
flags.DEFINE_string("vocab_file", None, "Uncased vocabulary.")
flags.DEFINE_list("cases", ["128:20:1", "128:20:10"], "What to make, see above.")
flags.DEFINE_integer("rounds", 1, "How often each arm runs; the table has medians.", lower_bound=1)
flags.DEFINE_list("arms", ["original", "hoisted", "ours", "two"], "Which arms to run.")

# The original's names that TensorFlow 2 has moved to compat.v1 are found there without a change to its files.
_RUN_ORIGINAL = """
import sys, types
import tensorflow.compat.v1 as tf
sys.modules["tensorflow"] = tf
sys.path.insert(0, {folder!r})
import create_pretraining_data as original
def main(argv):
    if {hoisted}:
        original.FLAGS = types.SimpleNamespace(**{{name: original.FLAGS[name].value for name in original.FLAGS}})
    original.main(argv)
tf.app.run(main)
"""


def main():
    """Runs the arms and prints the table."""
    header = ["case", "records", "original", "hoisted", "ours", "again", "original/ours", "hoisted/ours"]
    header += ["original/again", "MB ours", "MB original", "wall 1", "wall 2", "again 1", "again 2"]
    print("CPU seconds (user + system)")
    print("".join(f"{name:>15}" for name in header))
    for case in FLAGS.cases:
        with tempfile.TemporaryDirectory() as folder:
            print("".join(f"{value:>15}" for value in _row(case, folder)), flush=True)


def _row(case, folder):
    runs = {}
    for _ in range(FLAGS.rounds):
        for arm in FLAGS.arms:
            for name, usage in _run(arm, case, folder).items():
                runs.setdefault(name, []).append(usage)

    def median(arm, field):
        return statistics.median(usage[field] for usage in runs[arm]) if arm in runs else float("nan")

    cpu = {arm: median(arm, "cpu") for arm in ("original", "hoisted", "ours", "again")}
    if "ours" in runs:
        results.add("making records", f"{case}, from the cache", cpu["ours"] / cpu["again"], "anew, in CPU time")
    if "ours two" in runs:
        ratio = median("ours", "wall") / median("ours two", "wall")
        results.add("making records", f"{case}, two workers", ratio, "one worker, by the clock")
    wall = [median(arm, "wall") for arm in ("ours", "ours two", "again", "again two")]
    return [
        case,
        f"{runs['ours'][0]['records']:,}" if "ours" in runs else "",
        *(f"{seconds:.2f}" for seconds in cpu.values()),
        f"{cpu['original'] / cpu['ours']:.1f}",
        f"{cpu['hoisted'] / cpu['ours']:.1f}",
        f"{cpu['original'] / cpu['again']:.1f}",
        f"{median('ours', 'memory'):.0f}",
        f"{median('original', 'memory'):.0f}",
        *(f"{seconds:.2f}" for seconds in wall),
    ]


def _run(arm, case, folder):
    """Runs an arm; returns a dict from name to usage (arms of ours give two)."""
    length, predictions, dupe_factor, *options = case.split(":")
    output = os.path.join(folder, "out", "records")
    shutil.rmtree(os.path.dirname(output), ignore_errors=True)
    os.makedirs(os.path.dirname(output))
    arguments = [
        f"--input_file={FLAGS.corpus}",
        f"--vocab_file={FLAGS.vocab_file}",
        f"--output_file={output}",
        f"--max_seq_length={length}",
        f"--max_predictions_per_seq={predictions}",
        f"--dupe_factor={dupe_factor}",
        f"--do_whole_word_mask={'wwm' in options}",
    ]
    if arm in ("original", "hoisted"):
        code = _RUN_ORIGINAL.format(folder=os.path.abspath(FLAGS.original), hoisted=arm == "hoisted")
        return {arm: _measure([sys.executable, "-c", code, *arguments])}
    if arm == "ours":
        workers, names = 1, ("ours", "again")
    else:
        workers, names = 2, ("ours two", "again two")
    cache = os.path.join(folder, "cache")
    shutil.rmtree(cache, ignore_errors=True)
    usages = {}
    for name in names:
        command = [sys.executable, "-m", "bert.create_pretraining_data", *arguments]
        usages[name] = _measure([*command, f"--num_workers={workers}", f"--token_cache={cache}"])
        usages[name]["records"] = records.count(output)
        shutil.rmtree(os.path.dirname(output))
        os.makedirs(os.path.dirname(output))
    return usages


def _measure(command):
    """Usage of a process and its children: seconds of CPU and wall, peak memory of one process in MB."""
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=pathlib.Path(__file__).resolve().parents[1],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    if status:
        raise RuntimeError(f"{' '.join(command)} failed:\n{errors.decode()}")
    return {"cpu": usage.ru_utime + usage.ru_stime, "wall": wall, "memory": usage.ru_maxrss / 1024}


if __name__ == "__main__":
    program.run(main, required=["corpus", "vocab_file"])
