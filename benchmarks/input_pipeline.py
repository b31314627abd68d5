"""Reading pretraining records: examples a CPU second of this project beside google-research/bert's input_fn.

    python benchmarks/input_pipeline.py --original=path/to/google-research/bert --records='records/*.tfrecord' \
        --unmasked='unmasked/*.tfrecord' --vocab_file=vocab.txt

Nothing but the input pipeline runs: batches are taken from it and dropped inside the graph. Arms, each a process of
its own, one after the other in every round, on the same records (in the page cache after the first round):

- original: its input_fn, with what TensorFlow 2 has moved out of tf.contrib put back in its place;
- parsed: ours on records that were written by others, through parse_example;
- ours: ours on records of ours, taken apart by the places of their bytes;
- dynamic, dynamic:wwm: ours on records without masks, tokens or whole words chosen while reading.

The table has the medians over the rounds of examples a second of CPU time, user and system, of all threads.
"""

import importlib
import os
import pathlib
import statistics
import subprocess
import sys
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import results
from absl import flags

from bert import program, tokenization
from bert.data import pretraining_data, records

FLAGS = flags.FLAGS
flags.DEFINE_string("original", None, "Folder of a copy of google-research/bert.")
flags.DEFINE_string("records", None, "Comma-separated globs of record files of ours, with masks.")
flags.DEFINE_string("unmasked", None, "The same without masks, for the dynamic arms.")
flags.DEFINE_string("vocab_file", None, "Vocabulary, for the dynamic arms.")
flags.DEFINE_list("batch_sizes", ["32", "256"], "Batch sizes, one line of the table each.")
flags.DEFINE_integer("examples", 100_000, "How many examples an arm reads.", lower_bound=1)
flags.DEFINE_integer("rounds", 3, "How often each arm runs.", lower_bound=1)
flags.DEFINE_list("arms", ["original", "parsed", "ours"], "Which arms to run.")
flags.DEFINE_string("run", None, "Run one arm in this process: arm,batch size.")


def main():
    """Prints the table, or as a child process, the figure of one arm."""
    if FLAGS.run:
        arm, batch_size = FLAGS.run.split(",")
        print(_measure(arm, int(batch_size)))
        return
    print(f"examples a CPU second, and as multiples of those of {FLAGS.arms[0]}")
    print("".join(f"{name:>22}" for name in ["batch size", *FLAGS.arms]))
    for batch_size in FLAGS.batch_sizes:
        rates = {arm: [] for arm in FLAGS.arms}
        for _ in range(FLAGS.rounds):
            for arm in FLAGS.arms:
                command = [sys.executable, __file__, *sys.argv[1:], f"--run={arm},{batch_size}"]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                rates[arm].append(float(output.split()[-1]))
        median = {arm: statistics.median(values) for arm, values in rates.items()}
        first = FLAGS.arms[0]
        cells = [f"{rate:,.0f} ({rate / median[first]:.1f}x)" for rate in median.values()]
        for arm in FLAGS.arms[1:]:
            results.add(
                "input pipeline", f"batch {batch_size}, {arm}", median[arm] / median[first], f"{first}, in CPU time"
            )
        print("".join(f"{cell:>22}" for cell in [batch_size, *cells]), flush=True)


def _measure(arm, batch_size):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    input_fn = _original(tf, batch_size) if arm == "original" else _ours(arm, batch_size)
    tf.train.create_global_step()
    dataset = input_fn({"batch_size": batch_size})

    # A function called for each batch, as by `reduce`, would cost more than the reading itself.
    def last_of(batches):
        return tf.data.make_initializable_iterator(dataset.skip(batches - 1).take(1))

    warm_up, work = last_of(10), last_of(max(10, FLAGS.examples // batch_size))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for iterator in (warm_up, work):
            session.run(iterator.initializer)
            before = time.process_time()
            session.run(iterator.get_next())
        return max(10, FLAGS.examples // batch_size) * batch_size / (time.process_time() - before)


def _original(tf, batch_size):
    del batch_size
    files = records.find(FLAGS.records, "records")
    shape = records.peek(files[0])
    experimental = tf.data.experimental
    tf.contrib = types.SimpleNamespace(
        data=types.SimpleNamespace(
            parallel_interleave=experimental.parallel_interleave, map_and_batch=experimental.map_and_batch
        )
    )
    sys.modules["tensorflow"] = tf
    sys.path.insert(0, os.path.abspath(FLAGS.original))
    original = importlib.import_module("run_pretraining")
    return original.input_fn_builder(files, shape.max_seq_length, shape.max_predictions_per_seq, is_training=True)


def _ours(arm, batch_size):
    from bert.data import dynamic_masking, input_pipeline

    is_dynamic = arm.startswith("dynamic")
    files = records.find(FLAGS.unmasked if is_dynamic else FLAGS.records, "unmasked" if is_dynamic else "records")
    shape, masking = records.peek(files[0]), None
    if is_dynamic:
        predictions = -(-shape.max_seq_length * 15 // 100)
        masking = dynamic_masking.DynamicMasking(
            tokenization.load_vocab(FLAGS.vocab_file), predictions, 0.15, arm.endswith(":wwm"), seed=1
        )
        spec = input_pipeline.unmasked_feature_spec(shape.max_seq_length)
    else:
        spec = input_pipeline.feature_spec(shape.max_seq_length, shape.max_predictions_per_seq)
    return input_pipeline.training_input_fn(
        files,
        pretraining_data.counts(files),
        spec,
        shape.feature_names,
        1,
        batch_size,
        first_step=0,
        layout=None if arm == "parsed" else shape.layout,
        masking=masking,
    )


if __name__ == "__main__":
    program.run(main, required=["records"])
