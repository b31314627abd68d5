"""Pretraining on text of short documents: a pair in each row beside packed rows.

    python benchmarks/pretraining_packing.py

Whole training steps, input pipeline included, on records of the King James Bible whose documents are a few verses
long. All arms have the same rows in a step; masks are stored or drawn while reading. The arms run in turns in one
process, a few steps at a time, after a warm-up. The table has the share of places that hold tokens, and medians over
the turns: pairs, and tokens that count, a second of CPU time, user and system, of all threads; and pairs by the clock.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import results
from absl import flags

from bert import configs, program, tokenization
from bert.data import pretraining_data, records, vocabulary

FLAGS = flags.FLAGS
flags.DEFINE_string("bert_config_file", "bert-mini", "Model shape.")
flags.DEFINE_integer("train_batch_size", 32, "Rows in a step.", lower_bound=1)
flags.DEFINE_integer("max_seq_length", 128, "Places in a row.", lower_bound=8)
flags.DEFINE_integer("max_predictions_per_seq", 20, "Most predictions in a row.", lower_bound=1)
flags.DEFINE_integer("verses", 2, "Verses of a document.", lower_bound=1)
flags.DEFINE_integer("steps", 6, "Steps of a turn.", lower_bound=1)
flags.DEFINE_integer("rounds", 5, "Turns of each arm.", lower_bound=1)
flags.DEFINE_integer("warm_up_steps", 6, "Steps of each arm that are not measured.", lower_bound=1)
flags.DEFINE_bool("quick", False, "Whether one short turn of the arms with stored masks will do.")
_VOCAB_SIZE = 8000
_TEXT = pathlib.Path(__file__).resolve().parents[1] / "data" / "kjv" / "train.txt"


def main():
    """Prints the table."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    rounds, steps, masks = (1, 3, (False,)) if FLAGS.quick else (FLAGS.rounds, FLAGS.steps, (False, True))
    with tempfile.TemporaryDirectory() as folder:
        text, vocab_file = _write_text(folder)
        arms = [_Arm(folder, text, vocab_file, packed, dynamic) for dynamic in masks for packed in (False, True)]
        for arm in arms:
            arm.run(FLAGS.warm_up_steps)
        rates = {arm: [] for arm in arms}
        for _ in range(rounds):
            for arm in arms:
                rates[arm].append(arm.run(steps))
    print(
        f"{FLAGS.bert_config_file}, {FLAGS.train_batch_size} rows of {FLAGS.max_seq_length} in a step, documents of "
        f"{FLAGS.verses} verses"
    )
    print(
        f"{'rows':>24}{'pairs in a row':>16}{'places with tokens':>20}{'pairs/CPU s':>20}{'tokens/CPU s':>14}"
        f"{'pairs/s':>20}"
    )
    for number, arm in enumerate(arms):
        medians = [statistics.median(values) for values in zip(*rates[arm])]
        alone = [statistics.median(values) for values in zip(*rates[arms[number // 2 * 2]])]
        if medians != alone:
            results.add(
                "pretraining", f"{FLAGS.bert_config_file}, {arm.name}", medians[0] / alone[0], "a pair in each row"
            )
        cells = [f"{rate:,.1f} ({rate / other:.2f}x)" for rate, other in zip(medians, alone)]
        print(
            f"{arm.name:>24}{arm.pairs:>16.2f}{arm.fill:>20.1%}{cells[0]:>20}"
            f"{medians[0] / arm.pairs * arm.fill * FLAGS.max_seq_length:>14,.0f}{cells[1]:>20}"
        )


class _Arm:
    """Training steps on records of one kind.

    Attributes:
      name: what the rows are.
      pairs: in a row, on average.
      fill: share of the places that hold tokens.
    """

    def __init__(self, folder, text, vocab_file, packed, dynamic):
        import tensorflow.compat.v1 as tf

        from bert import optimization
        from bert.data import dynamic_masking, input_pipeline, packed_masking
        from bert.training import devices, pretraining

        self.name = ("packed" if packed else "a pair each") + (", masked anew" if dynamic else "")
        settings = pretraining_data.Settings(
            max_seq_length=FLAGS.max_seq_length,
            max_predictions_per_seq=FLAGS.max_predictions_per_seq,
            dupe_factor=1,
            dynamic_masking=dynamic,
            pack_sequences=packed,
        )
        outputs = [os.path.join(folder, f"{packed}-{dynamic}-{i}") for i in range(4)]
        made = pretraining_data.create([text], vocab_file, outputs, settings, token_cache=folder)
        self.pairs, self.fill = made.pairs / made.records, made.tokens / (made.records * FLAGS.max_seq_length)
        shape = records.peek(outputs[0])
        masking = None
        if dynamic:
            kind = packed_masking.PackedMasking if packed else dynamic_masking.DynamicMasking
            masking = kind(tokenization.load_vocab(vocab_file), FLAGS.max_predictions_per_seq, 0.15, False, 1)
        phase = pretraining.Phase(
            0,
            1,
            FLAGS.max_seq_length,
            FLAGS.max_predictions_per_seq,
            files=tuple(outputs),
            counts=tuple(made.counts),
            max_pairs=shape.max_pairs,
            feature_names=shape.feature_names,
            layout=shape.layout,
            masking=masking,
        )
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(1)
            step = tf.train.create_global_step()
            input_fn = input_pipeline.training_input_fn(
                phase.files,
                phase.counts,
                phase.record_spec,
                phase.feature_names,
                1,
                FLAGS.train_batch_size,
                0,
                phase.layout,
                phase.masking,
            )
            iterator = tf.data.make_initializable_iterator(input_fn({"batch_size": FLAGS.train_batch_size}))
            config = configs.load_model_config(FLAGS.bert_config_file)
            trainer = pretraining.Pretrainer(config, devices.choose(), output_dir="", seed=1)
            features = iterator.get_next()
            loss, _ = trainer.loss_builder(features)(features)
            self._train = optimization.create_optimizer(loss, 1e-4, 1000, 0, use_tpu=False)
            self._session = tf.Session(graph=graph)
            self._session.run([step.initializer, tf.global_variables_initializer()])
            self._session.run(iterator.initializer)

    def run(self, steps):
        """Makes steps; returns pairs a second of CPU time, and by the clock."""
        start, cpu_start = time.monotonic(), time.process_time()
        for _ in range(steps):
            self._session.run(self._train)
        pairs = steps * FLAGS.train_batch_size * self.pairs
        return pairs / (time.process_time() - cpu_start), pairs / (time.monotonic() - start)


def _write_text(folder):
    """Writes the text with its short documents, and a vocabulary for it; returns their paths."""
    verses = [line for line in _TEXT.read_text().split("\n") if line]
    documents = ["\n".join(verses[i : i + FLAGS.verses]) for i in range(0, len(verses), FLAGS.verses)]
    text, vocab_file = (os.path.join(folder, name) for name in ("text.txt", "vocab.txt"))
    pathlib.Path(text).write_text("\n\n".join(documents) + "\n")
    vocabulary.write(vocabulary.train([text], _VOCAB_SIZE, do_lower_case=True, strip_accents=True), vocab_file)
    return text, vocab_file


if __name__ == "__main__":
    program.run(main)
