"""Fine-tunes BERT to answer questions about paragraphs, on SQuAD 1.1 or 2.0, and answers.

    python -m bert.run_squad --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=out/squad \
        --do_train --do_predict --bert_config_file=bert_config.json --vocab_file=vocab.txt \
        --init_checkpoint=bert_model.ckpt --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2

It writes predictions.json, nbest_predictions.json and null_odds.json, and, if the answers are known, eval_results.txt.
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import json
import os

import tensorflow.compat.v1 as tf
from absl import flags, logging

from bert import files, finetuning_flags, program, training_flags
from bert.data import finetuning_input, records
from bert.errors import InputError
from bert.tasks import squad, squad_metrics
from bert.training import checkpoints, finetuning, locking, preflight, run_record

FLAGS = flags.FLAGS

finetuning_flags.define()
flags.DEFINE_string(
    "data_dir", None, "Folder with train-v1.1.json and dev-v1.1.json, or those of v2.0, instead of the two files."
)
flags.DEFINE_string("train_file", None, "Questions to train on, in SQuAD's JSON.")
flags.DEFINE_string("predict_file", None, "Questions to answer.")
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_predict", False, "Whether to answer; if the answers are known, they are scored.")
flags.DEFINE_bool("do_lower_case", True, "Whether text is lower-cased. Unless given, as the vocabulary is.")
flags.DEFINE_integer("max_seq_length", 384, "Tokens in a window of question and paragraph.", lower_bound=4)
flags.DEFINE_integer("doc_stride", 128, "How many tokens a window begins after the one before.", lower_bound=1)
flags.DEFINE_integer("max_query_length", 64, "Longest question in tokens; a longer one is cut.", lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 8, "Windows per prediction step, over all cores.", lower_bound=1)
flags.DEFINE_integer("n_best_size", 20, "Number of candidates in nbest_predictions.json.", lower_bound=1)
flags.DEFINE_integer("max_answer_length", 30, "Longest answer in tokens.", lower_bound=1)
flags.DEFINE_bool("verbose_logging", False, "Whether to log the questions whose best answer is wrong.")
flags.DEFINE_bool("version_2_with_negative", False, "Whether questions may have no answer, as in SQuAD 2.0.")
flags.DEFINE_float(
    "null_score_diff_threshold", 0.0, "No answer is given if its score exceeds the best other's by more than this."
)


def main():
    """Checks everything that can be checked, then trains and answers."""
    if not (FLAGS.do_train or FLAGS.do_predict):
        raise InputError("Nothing to do: give --do_train, --do_predict, or both.")
    if FLAGS.data_dir:
        _find_files()
    for wanted, name in ((FLAGS.do_train, "train_file"), (FLAGS.do_predict, "predict_file")):
        if wanted and not FLAGS[name].value:
            raise InputError(f"--{name} is needed.")
    device = training_flags.choose_training_device(FLAGS, ("output_dir", "init_checkpoint"))
    with locking.hold(FLAGS.output_dir) as check:
        _run(device, check)
    logging.info("done: %s", FLAGS.output_dir)


def _run(device, check):
    """Does what main() says, while it has the output folder to itself."""
    init, config, vocab_file = finetuning_flags.find_model(FLAGS)
    preflight.check_config(config, FLAGS.max_seq_length)
    preflight.check_output_dir(FLAGS.output_dir, config, vocab_file)
    do_lower_case = finetuning_flags.find_case(FLAGS, vocab_file)
    encoder = squad.Encoder(vocab_file, do_lower_case, FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length)
    batch_kind = finetuning_flags.choose_batching(FLAGS, device, by_default=False)
    head = finetuning.span_finder(config)
    shapes = finetuning.variable_shapes(config, head, _spec(training=True))
    # The loss does not depend on the pooler, so that the optimizer keeps nothing for it.
    checkpoints.recover(FLAGS.output_dir, {name: shape for name, shape in shapes.items() if "/pooler/" not in name})
    init_checkpoint = finetuning_flags.init_checkpoint(FLAGS, init, shapes)
    training_data = _training_data(encoder) if FLAGS.do_train else None
    schedule = finetuning_flags.schedule(FLAGS, training_data.questions if training_data else None)
    trainer = finetuning.Finetuner(
        config,
        device,
        head=head,
        batch_kind=batch_kind,
        init_checkpoint=init_checkpoint,
        check=check,
        **training_flags.trainer_options(FLAGS),
    )
    preflight.claim_output_dir(FLAGS.output_dir, config, vocab_file)
    with run_record.RunRecord(FLAGS.output_dir, "run_squad", program.flag_values()) as record:
        record.update(
            device=device.description,
            seed=FLAGS.seed,
            settings={
                "model": config.to_dict(),
                **dataclasses.asdict(schedule),
                "do_lower_case": do_lower_case,
                "init_checkpoint": init_checkpoint,
            },
        )
        summary = {}
        if FLAGS.do_train:
            summary["total_training_steps"] = schedule.num_train_steps
            summary.update(trainer.train(training_data.data, schedule, record))
        if FLAGS.do_predict:
            results = _answer(trainer, encoder, do_lower_case)
            if results:
                summary["eval_metrics"] = results
        run_record.update_summary(FLAGS.output_dir, summary)
        logging.info("Training Summary:\n%s", json.dumps(summary, indent=2, default=float))


def tpu_plan(device):
    """What the flags train on a TPU, for `bert.preflight_tpu`: a `Finetuner`, and a `Stretch` without data."""
    return finetuning_flags.tpu_plan(FLAGS, device, finetuning.span_finder, _spec(training=True))


def _find_files():
    """Sets the flags that --data_dir stands for."""
    there = files.list_folder(FLAGS.data_dir)
    versions = [
        version for version in ("1.1", "2.0") if f"dev-v{version}.json" in there or f"train-v{version}.json" in there
    ]
    if len(versions) != 1:
        raise InputError(
            f"--data_dir={FLAGS.data_dir}: {'files of SQuAD 1.1 and 2.0 both' if versions else 'no files of SQuAD'} "
            "(train-v1.1.json, dev-v1.1.json, train-v2.0.json, dev-v2.0.json). Name them with --train_file and "
            "--predict_file."
        )
    for part, flag in (("train", "train_file"), ("dev", "predict_file")):
        if not FLAGS[flag].value and f"{part}-v{versions[0]}.json" in there:
            FLAGS[flag].value = os.path.join(FLAGS.data_dir, f"{part}-v{versions[0]}.json")
    if versions == ["2.0"] and not FLAGS["version_2_with_negative"].present:
        FLAGS.version_2_with_negative = True


@dataclasses.dataclass(frozen=True)
class _TrainingData:
    """Training records, and the number of questions, of which the original computes the number of steps."""

    data: finetuning_input.Data
    questions: int


def _spec(training):
    spec = finetuning.sequence_spec(FLAGS.max_seq_length)
    if training:
        spec.update({name: tf.FixedLenFeature([1], tf.int64) for name in ("start_positions", "end_positions")})
    return spec


def _training_data(encoder):
    questions = squad.read(FLAGS.train_file, FLAGS.version_2_with_negative)
    output = os.path.join(FLAGS.output_dir, "train.tf_record")
    windows = (window for i, question in enumerate(questions) for window in encoder.windows(question, i, True))
    count = encoder.write(windows, output, training=True)
    if not count:
        raise InputError(f"--train_file={FLAGS.train_file}: no answer is found in its paragraph.")
    logging.info("train: %d questions in %d windows", len(questions), count)
    spec = _spec(training=True)
    return _TrainingData(finetuning_input.Data((output,), (count,), spec, tuple(spec)), len(questions))


def _answer(trainer, encoder, do_lower_case):
    """Answers, writes the original's files, and returns scores, if the file has answers."""
    questions = squad.read(FLAGS.predict_file, FLAGS.version_2_with_negative)
    windows = [window for i, question in enumerate(questions) for window in encoder.windows(question, i, False)]
    output = os.path.join(FLAGS.output_dir, "eval.tf_record")
    encoder.write(windows, output, training=False)
    spec = _spec(training=False)
    data = finetuning_input.Data((output,), (records.count(output),), spec, tuple(spec))
    checkpoint, step = checkpoints.latest(FLAGS.output_dir)
    logging.info(
        "answering %d questions in %d windows with %s",
        len(questions),
        len(windows),
        checkpoint or trainer.init_checkpoint,
    )
    outputs = trainer.outputs(data, FLAGS.predict_batch_size)
    chosen, n_best, odds = squad.choose_answers(
        questions,
        windows,
        outputs["start_logits"],
        outputs["end_logits"],
        do_lower_case,
        FLAGS.n_best_size,
        FLAGS.max_answer_length,
        FLAGS.version_2_with_negative,
        FLAGS.null_score_diff_threshold,
    )
    found = {"predictions.json": chosen, "nbest_predictions.json": n_best}
    if FLAGS.version_2_with_negative:
        found["null_odds.json"] = odds
    for name, content in found.items():
        squad.write_json(os.path.join(FLAGS.output_dir, name), content)
        logging.info("wrote %s: %d questions", os.path.join(FLAGS.output_dir, name), len(content))
    if not any(question.answers or question.is_impossible for question in questions):
        return None
    if FLAGS.verbose_logging:
        for question in questions:
            if not any(squad_metrics.exact_match(answer, chosen[question.qas_id]) for answer in question.answers):
                logging.info("%s: %r, but right is %r", question.qas_id, chosen[question.qas_id], question.answers)
    if FLAGS.version_2_with_negative:
        results = squad_metrics.evaluate_version_2(questions, chosen, odds)
    else:
        results = squad_metrics.evaluate(questions, chosen)
    results["global_step"] = step
    run_record.write_results(FLAGS.output_dir, results)
    for name, value in sorted(results.items()):
        logging.info("  %s = %s", name, value)
    return results


if __name__ == "__main__":
    program.run(main, required=["output_dir"])
