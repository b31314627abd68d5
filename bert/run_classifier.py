"""Fine-tunes BERT on sentences and sentence pairs: GLUE, XNLI, or a table of one's own; evaluates and predicts.

    python -m bert.run_classifier --task_name=MRPC --data_dir=glue/MRPC --output_dir=out/mrpc --do_train --do_eval \
        --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=bert_model.ckpt

or, from records that bert.create_finetuning_data has made:

    python -m bert.run_classifier --mode=train_and_eval --input_meta_data_path=mrpc_meta_data --model_dir=out/mrpc \
        --train_data_path=train.tf_record --eval_data_path=eval.tf_record --bert_config_file=bert_config.json
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])
    import bert  # noqa: F401, first, since TensorFlow reads what it sets when it is loaded

import dataclasses
import os
import time

import tensorflow.compat.v1 as tf
from absl import flags, logging

from bert import finetuning_flags, finetuning_run, garden_flags, program, split_flags, task_flags, training_flags
from bert.data import finetuning_input, records
from bert.errors import InputError
from bert.tasks import details, features, prepared, results, task
from bert.training import checkpoint_formats, checkpoints, evaluations, finetuning, run_folder, run_record

FLAGS = flags.FLAGS

# What is trained, and on what.
task_flags.define()
finetuning_flags.define()
split_flags.define_use()
training_flags.define_evaluation(None, "Metric by which checkpoints are compared. Default: the task's.")

# The TF 2 model garden's flags.
_MODES = {"train_and_eval": ("do_train", "do_eval"), "predict": ("do_predict",), "export_only": ()}
garden_flags.define(_MODES)
flags.DEFINE_string("eval_data_path", None, "Comma-separated globs of records to evaluate or predict.")
flags.DEFINE_integer("train_data_size", None, "Use so many training records per epoch, instead of all.", lower_bound=1)
flags.DEFINE_integer("num_eval_per_epoch", None, "Evaluations per epoch of training.", lower_bound=1)
flags.DEFINE_string("predict_checkpoint_path", None, "Checkpoint to predict with. Default: the newest in output_dir.")

_FILES = {"train": "train.tf_record", "dev": "eval{}.tf_record", "test": "predict{}.tf_record"}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a split: its name, its records, and the file of examples they are made from, if it is known."""

    name: str
    data: finetuning_input.Data
    source: object = None


def main():
    """Checks everything that can be checked, then trains, evaluates and predicts."""
    garden_flags.apply(FLAGS, _MODES)
    if FLAGS.mode == "export_only":
        garden_flags.write_export(FLAGS)
        return
    _check_flags()
    # Text is read by this program, records and checkpoints by the TPU.
    paths = ("output_dir", "init_checkpoint", "predict_checkpoint_path", "train_data_path", "eval_data_path")
    with finetuning_run.output_folder(FLAGS, paths, avoids_padding=True) as options:
        _run(options)
        if FLAGS.do_train and FLAGS.model_export_path:
            garden_flags.write_export(FLAGS)


def _run(options):
    """Does what main() says, while it has the output folder to itself."""
    meta = None
    if FLAGS.input_meta_data_path:
        meta = prepared.read_meta_data(FLAGS.input_meta_data_path)
        garden_flags.check_same(FLAGS, {"max_seq_length": meta.max_seq_length})
        FLAGS.max_seq_length = meta.max_seq_length
    model = finetuning_flags.find_model(FLAGS, FLAGS.max_seq_length, vocab_wanted=not meta)
    of = prepared.Prepared(meta) if meta else task_flags.make_task(FLAGS, FLAGS.do_train, FLAGS.output_dir)
    best_metric = _best_metric(of)
    settings = {**of.settings(), "do_lower_case": model.do_lower_case, "max_seq_length": FLAGS.max_seq_length}
    results.check_settings(FLAGS.output_dir, settings)
    trainer = finetuning_run.make_trainer(
        FLAGS,
        options,
        model,
        finetuning.classifier(model.config, of.num_outputs, of.label_kind),
        _spec(of),
        has_trained_model=not FLAGS.predict_checkpoint_path,
    )
    splits = _find_records(meta, model) if meta else _make_records(of, model)
    count = splits["train"][0].data.count if FLAGS.do_train else None
    schedule = finetuning_flags.schedule(FLAGS, count and (FLAGS.train_data_size or count))
    with finetuning_run.recorded(FLAGS, "run_classifier", model, trainer, schedule, settings) as record:
        results.write_labels(FLAGS.output_dir, of)
        summary = {}
        if FLAGS.do_train:
            summary = _train(trainer, schedule, of, splits, best_metric, record)
        if FLAGS.do_eval:
            summary["eval_data"] = [part.data.fingerprints for part in splits["dev"]]
            known = finetuning_run.known_results(FLAGS, record, summary, summary["eval_data"])
            summary["eval_metrics"] = known or _report_evaluation(trainer, of, splits["dev"])
        if summary:
            run_record.update_summary(FLAGS.output_dir, summary)
        if FLAGS.do_predict:
            _predict(trainer, of, splits["test"])


def tpu_plan(device):
    """What the flags train on a TPU, for `bert.preflight_tpu`: a `Finetuner`, and a `Stretch` without data."""
    if FLAGS.input_meta_data_path:
        meta = prepared.read_meta_data(FLAGS.input_meta_data_path)
        of, FLAGS.max_seq_length = prepared.Prepared(meta), meta.max_seq_length
    elif FLAGS.task_name:
        of = task_flags.make_task(FLAGS, True, FLAGS.output_dir)
    else:
        raise InputError(f"--task_name is needed: {', '.join(task_flags.names())}; or --input_meta_data_path.")
    return finetuning_flags.tpu_plan(
        FLAGS, device, lambda config: finetuning.classifier(config, of.num_outputs, of.label_kind), _spec(of)
    )


def _check_flags():
    if FLAGS.mode and not FLAGS["eval_batch_size"].present:
        FLAGS.eval_batch_size = 32
    if FLAGS.mode and not FLAGS["predict_batch_size"].present:
        FLAGS.predict_batch_size = FLAGS.eval_batch_size
    if FLAGS.input_meta_data_path:
        if not FLAGS.eval_data_path and (FLAGS.do_eval or FLAGS.do_predict):
            raise InputError("--eval_data_path is needed: the records to evaluate or predict.")
    elif not FLAGS.task_name:
        raise InputError(f"--task_name is needed: {', '.join(task_flags.names())}; or --input_meta_data_path.")
    finetuning_flags.check_evaluation(FLAGS, "do_eval", "num_eval_per_epoch")


def _best_metric(of):
    """The metric by which checkpoints are compared: the task's, unless a flag names another of its."""
    known = ["eval_loss", *["eval_accuracy"] * (of.label_kind != task.REGRESSION), *of.metric_names]
    training_flags.check_best_metric(FLAGS, known)
    return FLAGS.best_metric or of.best_metric


def _spec(of):
    size = len(of.labels) if of.label_kind == task.MULTI else 1
    kind = tf.float32 if of.label_kind == task.REGRESSION else tf.int64
    return {**finetuning.sequence_spec(FLAGS.max_seq_length), "label_ids": tf.FixedLenFeature([size], kind)}


def _find_sources(of):
    """Finds the files of all splits that are needed: a dict from split to a list of pairs of part and path."""
    sources = {}
    for split, file in split_flags.wanted(FLAGS).items():
        if file:
            sources[split] = [("", file)]
        else:
            sources[split] = [(part, of.find(FLAGS.data_dir, split, part)) for part in of.parts(split)]
    return sources


def _make_records(of, model):
    """Makes the records of all splits that are needed: a dict from split to list of `Part`."""
    splits = {}
    for split, sources in _find_sources(of).items():
        splits[split] = []
        for part, source in sources:
            output = os.path.join(FLAGS.output_dir, _FILES[split].format(f"_{part}" if part else ""))
            made = features.write(
                of, source, split, output, model.vocab_file, model.do_lower_case, FLAGS.max_seq_length
            )
            features.log_description(made, of, split, FLAGS.max_seq_length)
            spec = _spec(of)
            data = finetuning_input.Data((made.path,), (made.count,), spec, tuple(spec))
            splits[split].append(Part(part, data, source))
    return splits


def _find_records(meta, model):
    """As `_make_records`, of records that are there."""
    splits = {}
    for split in split_flags.wanted(FLAGS):
        flag = "train_data_path" if split == "train" else "eval_data_path"
        paths = records.find(FLAGS[flag].value, flag)
        names = [prepared.check_records(path, flag, meta, model.config.vocab_size) for path in paths][-1]
        spec = _spec(prepared.Prepared(meta))
        if meta.has_sample_weights:
            spec["weight"] = tf.FixedLenFeature([1], tf.float32)
        counts = tuple(records.count(path) for path in paths)
        splits[split] = [Part("", finetuning_input.Data(tuple(paths), counts, spec, names))]
    return splits


def _train(trainer, schedule, of, splits, best_metric, record):
    """Trains; returns what is known of it for the summary."""
    data = splits["train"][0].data
    if FLAGS.do_eval and FLAGS.num_eval_per_epoch and not FLAGS.eval_every:
        FLAGS.eval_every = max(1, round(data.count / FLAGS.train_batch_size / FLAGS.num_eval_per_epoch))
    return finetuning_run.train(
        FLAGS, trainer, schedule, data, record, best_metric, lambda: _evaluate(trainer, of, splits["dev"])
    )


def _evaluate(trainer, of, parts, shown=None):
    """Evaluates the newest checkpoint on all parts of the dev set.

    Args:
      trainer, of, parts: the `Finetuner`, the task, and a list of `Part`.
      shown: dict that gets the `details.of_task` of each part, if they are wanted.

    Returns:
      A dict of the original's and the task's metrics.
    """
    found, start = {}, time.monotonic()
    for part in parts:
        outputs = trainer.outputs(part.data, FLAGS.eval_batch_size)
        labels = outputs["label_ids"] if of.label_kind == task.MULTI else outputs["label_ids"][:, 0]
        scores = {"eval_loss": float(outputs["loss"].mean()), **of.scores(labels, outputs["probabilities"])}
        found.update({f"{name}_{part.name}" if part.name else name: value for name, value in scores.items()})
        if shown is not None:
            examples = of.examples(part.source, "dev") if part.source else None
            shown[part.name] = details.of_task(of, labels, outputs["probabilities"], outputs["loss"], examples)
    step = checkpoints.latest(FLAGS.output_dir)[1]
    rate = sum(part.data.count for part in parts) / (time.monotonic() - start)
    evaluations.write_events(FLAGS.output_dir, step, {**found, "examples_per_second": rate})
    return {**found, "loss": found["eval_loss"], "global_step": step}


def _report_evaluation(trainer, of, parts):
    """Evaluates, and writes and logs the results."""
    logging.info("evaluating %s", checkpoints.latest(FLAGS.output_dir)[0] or trainer.init_checkpoint)
    shown = {}
    found = _evaluate(trainer, of, parts, shown)
    run_record.write_results(FLAGS.output_dir, found)
    run_record.write_json(os.path.join(FLAGS.output_dir, run_folder.DETAILS_FILE), shown)
    return found


def _predict(trainer, of, parts):
    """Predicts all parts of the test set, and writes what was predicted."""
    if FLAGS.predict_checkpoint_path:
        folder = os.path.join(FLAGS.output_dir, "predict")
        checkpoint = checkpoint_formats.find_initial(FLAGS.predict_checkpoint_path, folder)[0]
        shapes = finetuning.variable_shapes(trainer.config, trainer.head, parts[0].data.spec)
        missing = checkpoints.plan_initialisation(checkpoint, shapes).new
        if missing:
            raise InputError(
                f"--predict_checkpoint_path={checkpoint} has no {missing[0]}: it is not a trained classifier."
            )
        trainer = dataclasses.replace(trainer, output_dir=folder, init_checkpoint=checkpoint)
    logging.info("predicting with %s", checkpoints.latest(trainer.output_dir)[0] or trainer.init_checkpoint)
    for part in parts:
        outputs = trainer.outputs(part.data, FLAGS.predict_batch_size)["probabilities"]
        guids = range(len(outputs))
        if part.source:
            guids = (example.guid for example in of.examples(part.source, "test"))
        for path in results.write_predictions(FLAGS.output_dir, of, part.name, guids, outputs):
            logging.info("wrote %s: %d predictions", path, len(outputs))


if __name__ == "__main__":
    program.run(main)
