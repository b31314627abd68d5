"""Pretraining on text of short documents: a pair in each row beside packed rows.

    python benchmarks/pretraining_packing.py

Whole training steps, input pipeline included, on records of the King James Bible whose documents are a few verses
long. All arms have the same rows in a step; masks are stored or drawn while reading. The arms run in turns in one
process, a few steps at a time, after a warm-up. The table has the share of places that hold tokens, and medians over
the turns: pairs, and tokens that count, a second of CPU time, user and system, of all threads; and pairs by the clock.
"""

import dataclasses
import os
import pathlib
import sys
import tempfile
from typing import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import results
import timed_steps
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
        arms = [_arm(folder, text, vocab_file, packed, dynamic) for dynamic in masks for packed in (False, True)]
        seconds = timed_steps.in_turns({arm.name: arm.step for arm in arms}, FLAGS.warm_up_steps, rounds, steps)
    rates = [[FLAGS.train_batch_size * arm.pairs / each for each in seconds[arm.name]] for arm in arms]
    print(
        f"{FLAGS.bert_config_file}, {FLAGS.train_batch_size} rows of {FLAGS.max_seq_length} in a step, documents of "
        f"{FLAGS.verses} verses"
    )
    print(
        f"{'rows':>24}{'pairs in a row':>16}{'places with tokens':>20}{'pairs/CPU s':>20}{'tokens/CPU s':>14}"
        f"{'pairs/s':>20}"
    )
    for number, arm in enumerate(arms):
        own, alone = rates[number], rates[number // 2 * 2]
        if own is not alone:
            results.add("pretraining", f"{FLAGS.bert_config_file}, {arm.name}", own[0] / alone[0], "a pair in each row")
        cells = [f"{rate:,.1f} ({rate / other:.2f}x)" for rate, other in zip(own, alone)]
        print(
            f"{arm.name:>24}{arm.pairs:>16.2f}{arm.fill:>20.1%}{cells[0]:>20}"
            f"{own[0] / arm.pairs * arm.fill * FLAGS.max_seq_length:>14,.0f}{cells[1]:>20}"
        )


@dataclasses.dataclass(frozen=True)
class _Arm:
    """A training on records of one kind.

    Attributes:
      name: what the rows are.
      pairs: in a row, on average.
      fill: share of the places that hold tokens.
      step: function that makes one step.
    """

    name: str
    pairs: float
    fill: float
    step: Callable


def _arm(folder, text, vocab_file, packed, dynamic):
    """Makes the records, and the training."""
    from bert.data import dynamic_masking, input_pipeline, packed_masking
    from bert.training import devices, pretraining, trainer

    settings = pretraining_data.Settings(
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
        dupe_factor=1,
        dynamic_masking=dynamic,
        pack_sequences=packed,
    )
    outputs = [os.path.join(folder, f"{packed}-{dynamic}-{i}") for i in range(4)]
    made = pretraining_data.create([text], vocab_file, outputs, settings, token_cache=folder)
    shape = records.peek(outputs[0])
    masking = None
    if dynamic:
        kind = packed_masking.PackedMasking if packed else dynamic_masking.DynamicMasking
        masking = kind(tokenization.load_vocab(vocab_file), FLAGS.max_predictions_per_seq, 0.15, False, 1)
    lengths = (FLAGS.max_seq_length, FLAGS.max_predictions_per_seq)
    phase = pretraining.Phase(0, 1000, *lengths, max_pairs=shape.max_pairs, masking=masking)
    schedule = trainer.Schedule(FLAGS.train_batch_size, 1e-4, phase.last_step, 0)
    input_fn = input_pipeline.training_input_fn(
        outputs,
        made.counts,
        phase.record_spec,
        shape.feature_names,
        1,
        schedule.train_batch_size,
        phase.first_step,
        shape.layout,
        masking,
    )
    config = configs.load_model_config(FLAGS.bert_config_file)
    pretrainer = pretraining.Pretrainer(config, devices.choose(), output_dir="", seed=1)
    stretch = trainer.Stretch(phase.first_step, phase.last_step, schedule, phase.feature_spec, input_fn)
    return _Arm(
        ("packed" if packed else "a pair each") + (", masked anew" if dynamic else ""),
        made.pairs / made.records,
        made.tokens / (made.records * FLAGS.max_seq_length),
        timed_steps.of_training(pretrainer, stretch),
    )


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
