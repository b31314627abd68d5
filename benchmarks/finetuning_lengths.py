"""Fine-tuning on sentences of real lengths: padded batches beside bucketed and packed ones.

    python benchmarks/finetuning_lengths.py

Whole training steps of a classifier, input pipeline included, on records with random tokens. Their lengths are drawn
from a log-normal distribution with a mean of 40 tokens, which is MNLI's, cut at 128. The arms run in turns in one
process, a few steps at a time, after a warm-up in which the kernels for most shapes are made. The table has medians
over the turns: examples a second of CPU time, user and system, of all threads, and by the clock; and the share of
places that hold tokens.
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import results
import timed_steps
from absl import flags

from bert import configs, program
from bert.data import batching, finetuning_input, records

FLAGS = flags.FLAGS
flags.DEFINE_string("bert_config_file", "bert-mini", "Model shape.")
flags.DEFINE_integer("batch_size", 32, "Examples in a step.", lower_bound=1)
flags.DEFINE_integer("max_seq_length", 128, "Places in a row.", lower_bound=8)
flags.DEFINE_float("mean_length", 40.0, "Tokens of an example on average.")
flags.DEFINE_integer("examples", 4096, "Examples in the training set.", lower_bound=1)
flags.DEFINE_integer("steps", 6, "Steps of a turn.", lower_bound=1)
flags.DEFINE_integer("rounds", 5, "Turns of each arm.", lower_bound=1)
flags.DEFINE_integer("warm_up_steps", 24, "Steps of each arm that are not measured.", lower_bound=1)
_SPREAD = 0.48  # of the logarithm of the lengths
_KINDS = (batching.PADDED, batching.BUCKETED, batching.PACKED)


def main():
    """Prints the table."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as folder:
        config = configs.load_model_config(FLAGS.bert_config_file)
        data, share = _write_records(os.path.join(folder, "train.tf_record"), config.vocab_size)
        fills = {}
        steps = {kind: _training(config, data, kind, fills) for kind in _KINDS}
        medians = timed_steps.in_turns(steps, FLAGS.warm_up_steps, FLAGS.rounds, FLAGS.steps)
    rates = {kind: [FLAGS.batch_size / seconds for seconds in found] for kind, found in medians.items()}
    print(
        f"{FLAGS.bert_config_file}, batches of {FLAGS.batch_size}, {share * FLAGS.max_seq_length:.1f} of "
        f"{FLAGS.max_seq_length} tokens on average"
    )
    print(f"{'batches':>10}{'places with tokens':>20}{'examples/CPU s':>22}{'examples/s':>22}")
    for kind, found in rates.items():
        filled = fills[kind].share if kind in fills else share
        cells = [f"{rate:,.1f} ({rate / padded:.2f}x)" for rate, padded in zip(found, rates[batching.PADDED])]
        if kind != batching.PADDED:
            what = f"{FLAGS.bert_config_file}, batch {FLAGS.batch_size}, {kind}"
            results.add("fine-tuning", what, found[0] / rates[batching.PADDED][0], "padded batches, in CPU time")
        print(f"{kind:>10}{filled:>19.1%} {cells[0]:>22}{cells[1]:>22}")


def _training(config, data, kind, fills):
    """The function that makes one step on batches of a kind; `fills` gets the `batching.Fill` of those not padded."""
    from bert.training import devices, finetuning, trainer

    schedule = trainer.Schedule(FLAGS.batch_size, 5e-5, FLAGS.warm_up_steps + FLAGS.rounds * FLAGS.steps, 0)
    input_fn = finetuning_input.training_input_fn(
        data, 1, FLAGS.batch_size, schedule.num_train_steps, kind, on_fill=lambda fill: fills.update({kind: fill})
    )
    head = finetuning.classifier(config, 3, "single")
    finetuner = finetuning.Finetuner(config, devices.choose(), output_dir="", seed=1, head=head)
    stretch = trainer.Stretch(0, schedule.num_train_steps, schedule, data.spec, input_fn)
    return timed_steps.of_training(finetuner, stretch)


def _write_records(path, vocab_size):
    """Writes examples with random tokens; returns the `Data`, and the share of places that hold tokens."""
    import tensorflow.compat.v1 as tf

    rng = np.random.default_rng(1)
    seq = FLAGS.max_seq_length
    lengths = rng.lognormal(np.log(FLAGS.mean_length) - _SPREAD**2 / 2, _SPREAD, FLAGS.examples)
    lengths = np.clip(lengths.round().astype(np.int64), 3, seq)  # [examples]
    mask = (np.arange(seq) < lengths[:, np.newaxis]).astype(np.uint8)  # [examples, seq]
    layout = records.Layout(
        {"input_ids": (seq, vocab_size - 1), "input_mask": (seq, 1), "segment_ids": (seq, 1), "label_ids": (1, 2)}
    )
    columns = {
        "input_ids": mask * rng.integers(1, vocab_size, mask.shape, dtype=np.uint32),
        "input_mask": mask,
        "segment_ids": mask * (np.arange(seq) >= lengths[:, np.newaxis] // 2).astype(np.uint8),
        "label_ids": rng.integers(0, 3, (FLAGS.examples, 1), dtype=np.uint32),
    }
    with open(path, "wb") as f:
        f.write(layout.encode(columns).tobytes())
    spec = {name: tf.FixedLenFeature([values.shape[1]], tf.int64) for name, values in columns.items()}
    return finetuning_input.Data((path,), (FLAGS.examples,), spec, tuple(spec)), mask.mean()


if __name__ == "__main__":
    program.run(main)
