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
    import bert  # noqa: F401, first, since TensorFlow reads what it sets when it is loaded

import dataclasses
import itertools
import os

import tensorflow.compat.v1 as tf
from absl import flags, logging

from bert import files, finetuning_flags, finetuning_run, garden_flags, program, training_flags
from bert.data import finetuning_input, records
from bert.errors import InputError
from bert.tasks import prepared, results, squad, squad_metrics
from bert.training import checkpoints, evaluations, finetuning, run_record

FLAGS = flags.FLAGS

finetuning_flags.define()
flags.DEFINE_string(
    "data_dir", None, "Folder with train-v1.1.json and dev-v1.1.json, or those of v2.0, instead of the two files."
)
flags.DEFINE_string("train_file", None, "Questions to train on, in SQuAD's JSON.")
flags.DEFINE_string("predict_file", None, "Questions to answer; comma-separated globs.")
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
training_flags.define_evaluation(None, "Metric by which checkpoints are compared. Default: f1.")

# The TF 2 model garden's flags.
_MODES = {
    "train_and_eval": ("do_train", "do_predict"),
    "train_and_predict": ("do_train", "do_predict"),
    "train": ("do_train",),
    "eval": ("do_predict",),
    "predict": ("do_predict",),
    "export_only": (),
}
garden_flags.define(_MODES)


@dataclasses.dataclass(frozen=True)
class Part:
    """Questions to answer.

    Attributes:
      name: what tells its files and scores from those of others; "" if it is the only one.
      source: the file.
      questions: list of `squad.Question`.
      data: the records of their windows.
    """

    name: str
    source: str
    questions: list
    data: finetuning_input.Data

    @property
    def is_known(self):
        """Whether the answers are."""
        return any(question.answers or question.is_impossible for question in self.questions)


def main():
    """Checks everything that can be checked, then trains and answers."""
    garden_flags.apply(FLAGS, _MODES)
    if FLAGS.mode == "export_only":
        garden_flags.write_export(FLAGS)
        return
    _check_flags()
    with finetuning_run.output_folder(
        FLAGS, ("output_dir", "init_checkpoint", "train_data_path"), avoids_padding=False
    ) as options:
        _run(options)
        if FLAGS.do_train and FLAGS.model_export_path:
            garden_flags.write_export(FLAGS)


def _run(options):
    """Does what main() says, while it has the output folder to itself."""
    _apply_meta_data()
    training_flags.check_best_metric(FLAGS, squad_metrics.NAMES[FLAGS.version_2_with_negative])
    needs_text = FLAGS.do_predict or not FLAGS.train_data_path
    model = finetuning_flags.find_model(FLAGS, FLAGS.max_seq_length, vocab_wanted=needs_text)
    settings = {
        "task": "squad",
        "best_metric": FLAGS.best_metric or "f1",
        "do_lower_case": model.do_lower_case,
        "max_seq_length": FLAGS.max_seq_length,
        "doc_stride": FLAGS.doc_stride,
        "max_query_length": FLAGS.max_query_length,
        "version_2_with_negative": FLAGS.version_2_with_negative,
    }
    results.check_settings(FLAGS.output_dir, settings)
    encoder = None
    if needs_text:
        lengths = (FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length)
        encoder = squad.Encoder(model.vocab_file, model.do_lower_case, *lengths)
    head = finetuning.span_finder(model.config)
    # The loss does not depend on the pooler.
    trainer = finetuning_run.make_trainer(FLAGS, options, model, head, _spec(training=True), trains_pooler=False)
    data, count = _training_data(encoder, model) if FLAGS.do_train else (None, None)
    parts = _parts(encoder) if FLAGS.do_predict else []
    schedule = finetuning_flags.schedule(FLAGS, count)
    with finetuning_run.recorded(FLAGS, "run_squad", model, trainer, schedule, settings) as record:
        summary = {}
        if FLAGS.do_train:
            summary = finetuning_run.train(
                FLAGS,
                trainer,
                schedule,
                data,
                record,
                settings["best_metric"],
                lambda: _evaluate(parts, [_answer(trainer, encoder, part) for part in parts]),
            )
        if FLAGS.do_predict:
            summary["eval_data"] = _eval_data(trainer, parts)
            found = None
            if all(map(files.exists, itertools.chain(*map(_answer_files, parts)))) and not FLAGS.verbose_logging:
                found = finetuning_run.known_results(FLAGS, record, summary, summary["eval_data"])
            found = found or _report_answers(trainer, encoder, parts)
            if found:
                summary["eval_metrics"] = found
        if summary:
            run_record.update_summary(FLAGS.output_dir, summary)


def tpu_plan(device):
    """What the flags train on a TPU, for `bert.preflight_tpu`: a `Finetuner`, and a `Stretch` without data."""
    _apply_meta_data()
    return finetuning_flags.tpu_plan(FLAGS, device, finetuning.span_finder, _spec(training=True))


def _check_flags():
    if FLAGS.data_dir:
        _find_files()
    if FLAGS.train_file and FLAGS.train_data_path:
        raise InputError("--train_file and --train_data_path both name what to train on: give one of them.")
    if FLAGS.do_train and not (FLAGS.train_file or FLAGS.train_data_path):
        raise InputError("--train_file is needed.")
    if FLAGS.do_predict and not FLAGS.predict_file:
        raise InputError("--predict_file is needed.")
    finetuning_flags.check_evaluation(FLAGS, "do_predict")


def _apply_meta_data():
    """Sets the flags that the meta data of records tells."""
    if FLAGS.input_meta_data_path:
        meta = prepared.read_squad_meta_data(FLAGS.input_meta_data_path)
        garden_flags.check_same(FLAGS, meta)
        for name, value in meta.items():
            FLAGS[name].value = value


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


def _spec(training):
    spec = finetuning.sequence_spec(FLAGS.max_seq_length)
    if training:
        spec.update({name: tf.FixedLenFeature([1], tf.int64) for name in squad.TARGETS})
    return spec


def _training_data(encoder, model):
    """The training records, and the number of examples of which the number of steps is computed.

    As in the original these are the questions, and for records that are there, as in the model garden, the records.
    """
    spec = _spec(training=True)
    if FLAGS.train_data_path:
        flag = "train_data_path"
        paths = records.find(FLAGS.train_data_path, flag)
        for path in paths:
            names, _ = prepared.find_features(path, flag, FLAGS.max_seq_length, model.config.vocab_size, squad.TARGETS)
        data = finetuning_input.Data(tuple(paths), tuple(map(records.count, paths)), spec, names)
        return data, data.count
    output = os.path.join(FLAGS.output_dir, "train.tf_record")
    made = encoder.make_records([FLAGS.train_file], output, True, FLAGS.version_2_with_negative)
    logging.info("train: %d questions in %d windows", made["questions"], made["count"])
    return finetuning_input.Data((output,), (made["count"],), spec, tuple(spec)), made["questions"]


def _parts(encoder):
    """The questions to answer, by file."""
    paths = files.expand_globs(FLAGS.predict_file, "predict_file")
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths] if len(paths) > 1 else [""]
    if FLAGS.eval_every and len(paths) > 1:
        raise InputError(f"--eval_every compares checkpoints by one --predict_file, but there are {len(paths)}.")
    if len(set(names)) < len(names):
        raise InputError(f"--predict_file: of {', '.join(paths)}, two have the same name, and so would their answers.")
    parts = []
    for name, path in zip(names, paths):
        questions = squad.read(path, FLAGS.version_2_with_negative)
        output = os.path.join(FLAGS.output_dir, _file_name(name, "eval.tf_record"))
        made = encoder.make_records([path], output, False, FLAGS.version_2_with_negative)
        spec = _spec(training=False)
        data = finetuning_input.Data((output,), (made["count"],), spec, tuple(spec))
        parts.append(Part(name, path, questions, data))
        if not parts[-1].is_known and (FLAGS.eval_every or FLAGS.mode in ("eval", "train_and_eval")):
            raise InputError(f"--predict_file: {path} has no answers by which the model's could be scored.")
    return parts


def _file_name(name, of):
    return f"{name}-{of}" if name else of


def _answer(trainer, encoder, part):
    """The answers of the newest checkpoint, as of `squad.choose_answers`."""
    checkpoint, _ = checkpoints.latest(FLAGS.output_dir)
    logging.info(
        "%s: answering %d questions in %d windows with %s",
        part.source,
        len(part.questions),
        part.data.count,
        checkpoint or trainer.init_checkpoint,
    )
    outputs = trainer.outputs(part.data, FLAGS.predict_batch_size)
    return squad.choose_answers(
        part.questions,
        encoder.all_windows(part.questions, training=False),  # which is faster than to read them out of the records
        outputs["start_logits"],
        outputs["end_logits"],
        encoder.do_lower_case,
        FLAGS.n_best_size,
        FLAGS.max_answer_length,
        FLAGS.version_2_with_negative,
        FLAGS.null_score_diff_threshold,
    )


def _eval_data(trainer, parts):
    """What tells these answers from those to other questions, or chosen by other rules: a dict for the summary."""
    rules = ("n_best_size", "max_answer_length", "version_2_with_negative", "null_score_diff_threshold", "dtype")
    return {
        "questions": {part.name: part.data.fingerprints for part in parts},
        "batch_kind": trainer.batch_kind,
        **{name: FLAGS[name].value for name in rules},
    }


def _report_answers(trainer, encoder, parts):
    """Answers, and writes the answers and, if the right ones are known, their scores, which it returns; else None."""
    answers = []
    for part in parts:
        answers.append(_answer(trainer, encoder, part))
        _write_answers(part, *answers[-1])
    if not any(part.is_known for part in parts):
        return None
    found = _evaluate(parts, answers)
    run_record.write_results(FLAGS.output_dir, found)
    return found


def _answer_files(part):
    """Paths of the original's files: of answers, candidates and, of SQuAD 2.0, the odds of no answer."""
    names = ["predictions.json", "nbest_predictions.json", *["null_odds.json"] * FLAGS.version_2_with_negative]
    return [os.path.join(FLAGS.output_dir, _file_name(part.name, name)) for name in names]


def _write_answers(part, chosen, n_best, odds):
    """Writes the original's files."""
    for path, content in zip(_answer_files(part), (chosen, n_best, odds)):
        squad.write_json(path, content)
        logging.info("wrote %s: %d questions", path, len(content))
    if FLAGS.verbose_logging:
        for question in part.questions:
            if not any(squad_metrics.exact_match(answer, chosen[question.qas_id]) for answer in question.answers):
                logging.info("%s: %r, but right is %r", question.qas_id, chosen[question.qas_id], question.answers)


def _evaluate(parts, answers):
    """Scores of the answers to questions whose answers are known, also for TensorBoard: a dict of metrics."""
    found = {}
    for part, (chosen, _, odds) in zip(parts, answers):
        if not part.is_known:
            continue
        if FLAGS.version_2_with_negative:
            scores = squad_metrics.evaluate_version_2(part.questions, chosen, odds)
        else:
            scores = squad_metrics.evaluate(part.questions, chosen)
        found.update({f"{name}_{part.name}" if part.name else name: value for name, value in scores.items()})
    step = checkpoints.latest(FLAGS.output_dir)[1]
    evaluations.write_events(FLAGS.output_dir, step, found)
    return {**found, "global_step": step}


if __name__ == "__main__":
    program.run(main)
