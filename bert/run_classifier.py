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

import dataclasses
import json
import os
import time

import tensorflow.compat.v1 as tf
from absl import flags, logging

from bert import files, finetuning_flags, program, task_flags, training_flags
from bert.data import finetuning_input, records
from bert.errors import InputError
from bert.formats import export, trained
from bert.tasks import details, features, prepared, results, task
from bert.training import (
    checkpoint_formats,
    checkpoints,
    evaluations,
    finetuning,
    locking,
    preflight,
    run_folder,
    run_record,
)

FLAGS = flags.FLAGS

# What is trained, and on what.
task_flags.define()
finetuning_flags.define()
flags.DEFINE_bool("do_train", False, "Whether to train on the training set.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate on the dev set.")
flags.DEFINE_bool("do_predict", False, "Whether to predict the test set.")
flags.DEFINE_integer("eval_batch_size", 8, "Examples per evaluation step, over all cores.", lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 8, "Examples per prediction step, over all cores.", lower_bound=1)
training_flags.define_evaluation(None, "Metric by which checkpoints are compared. Default: the task's.")

# The TF 2 model garden's flags.
flags.DEFINE_enum(
    "mode", None, ["train_and_eval", "predict", "export_only"], "Instead of --do_train, --do_eval, --do_predict."
)
flags.DEFINE_string("input_meta_data_path", None, "Meta data of records made by bert.create_finetuning_data.")
flags.DEFINE_string("train_data_path", None, "Comma-separated globs of training records.")
flags.DEFINE_string("eval_data_path", None, "Comma-separated globs of records to evaluate or predict.")
flags.DEFINE_integer("train_data_size", None, "Use so many training records per epoch, instead of all.", lower_bound=1)
flags.DEFINE_integer("num_eval_per_epoch", None, "Evaluations per epoch of training.", lower_bound=1)
flags.DEFINE_string("predict_checkpoint_path", None, "Checkpoint to predict with. Default: the newest in output_dir.")
flags.DEFINE_string(
    "model_export_path",
    None,
    "Folder for a SavedModel of the newest checkpoint: after a training, or with --mode=export_only instead of one.",
)
flags.DEFINE_enum(
    "distribution_strategy",
    None,
    ["off", "one_device", "mirrored", "tpu"],
    "`tpu` is --use_tpu; all others are this machine's GPU, or else its CPU.",
)

_FILES = {"train": "train.tf_record", "dev": "eval{}.tf_record", "test": "predict{}.tf_record"}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a split: its name, its records, and the file of examples they are made from, if it is known."""

    name: str
    data: finetuning_input.Data
    source: object = None


def main():
    """Checks everything that can be checked, then trains, evaluates and predicts."""
    _apply_mode()
    _check_flags()
    if FLAGS.model_export_path:
        export.check(FLAGS.model_export_path, export.SAVED_MODEL)
    if FLAGS.mode == "export_only":
        _export()
        return
    # Text is read by this program, records and checkpoints by the TPU.
    paths = ("output_dir", "init_checkpoint", "predict_checkpoint_path", "train_data_path", "eval_data_path")
    device = training_flags.choose_training_device(FLAGS, paths)
    with locking.hold(FLAGS.output_dir) as check:
        _run(device, check)
        if FLAGS.model_export_path and FLAGS.do_train:
            _export()
    logging.info("done: %s", FLAGS.output_dir)


def _run(device, check):
    """Does what main() says, while it has the output folder to itself."""
    init, config, vocab_file = finetuning_flags.find_model(FLAGS, vocab_wanted=not FLAGS.input_meta_data_path)
    do_lower_case = finetuning_flags.find_case(FLAGS, vocab_file) if vocab_file else None
    if FLAGS.input_meta_data_path:
        meta = prepared.read_meta_data(FLAGS.input_meta_data_path)
        of = prepared.Prepared(meta)
        splits = _find_records(meta)
        max_seq_length = meta.max_seq_length
    else:
        max_seq_length = FLAGS.max_seq_length
        of = task_flags.make_task(FLAGS, FLAGS.do_train, FLAGS.output_dir)
        splits = None
    preflight.check_config(config, max_seq_length)
    preflight.check_output_dir(FLAGS.output_dir, config, vocab_file)
    settings = {**of.settings(), "do_lower_case": do_lower_case, "max_seq_length": max_seq_length}
    task_flags.check_settings(FLAGS.output_dir, settings)
    splits = splits or _make_records(of, vocab_file, do_lower_case)

    batch_kind = finetuning_flags.choose_batching(FLAGS, device, by_default=True)
    head = finetuning.classifier(config, of.num_outputs, of.label_kind)
    shapes = finetuning.variable_shapes(config, head, _spec(of, max_seq_length))
    checkpoints.recover(FLAGS.output_dir, shapes)
    count = splits["train"][0].data.count if FLAGS.do_train else None
    schedule = finetuning_flags.schedule(FLAGS, count and (FLAGS.train_data_size or count))
    init_checkpoint = None
    if not FLAGS.predict_checkpoint_path:
        init_checkpoint = finetuning_flags.init_checkpoint(FLAGS, init, shapes)
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
    run_record.write_json(os.path.join(FLAGS.output_dir, results.SETTINGS_FILE), settings)
    results.write_labels(FLAGS.output_dir, of)
    with run_record.RunRecord(FLAGS.output_dir, "run_classifier", program.flag_values()) as record:
        record.update(
            device=device.description,
            seed=FLAGS.seed,
            settings={
                "model": config.to_dict(),
                **dataclasses.asdict(schedule),
                **settings,
                "init_checkpoint": trainer.init_checkpoint,
            },
        )
        summary = {}
        if FLAGS.do_train:
            summary.update(_train(trainer, schedule, of, splits, record))
        if FLAGS.do_eval:
            summary["eval_metrics"] = _report_evaluation(trainer, of, splits["dev"], "train_loss" in summary)
        if FLAGS.do_train or FLAGS.do_eval:
            run_record.update_summary(FLAGS.output_dir, summary)
            logging.info("Training Summary:\n%s", json.dumps(summary, indent=2, default=float))
        if FLAGS.do_predict:
            _predict(trainer, of, splits["test"])


def tpu_plan(device):
    """What the flags train on a TPU, for `bert.preflight_tpu`: a `Finetuner`, and a `Stretch` without data."""
    if FLAGS.input_meta_data_path:
        meta = prepared.read_meta_data(FLAGS.input_meta_data_path)
        of, max_seq_length = prepared.Prepared(meta), meta.max_seq_length
    elif FLAGS.task_name:
        of, max_seq_length = task_flags.make_task(FLAGS, True, FLAGS.output_dir), FLAGS.max_seq_length
    else:
        raise InputError(f"--task_name is needed: {', '.join(task_flags.names())}; or --input_meta_data_path.")
    return finetuning_flags.tpu_plan(
        FLAGS,
        device,
        lambda config: finetuning.classifier(config, of.num_outputs, of.label_kind),
        _spec(of, max_seq_length),
    )


def _export():
    model = trained.read(FLAGS.output_dir, vocab_file=FLAGS.vocab_file)
    export.write(FLAGS.model_export_path, export.SAVED_MODEL, model)


def _apply_mode():
    """Sets the flags that the model garden's stand for."""
    if FLAGS.mode == "predict":
        FLAGS.do_predict = True
    elif FLAGS.mode == "train_and_eval":
        FLAGS.do_train = FLAGS.do_eval = True
    if FLAGS.mode and not FLAGS["eval_batch_size"].present:
        FLAGS.eval_batch_size = 32
    if FLAGS.mode and not FLAGS["predict_batch_size"].present:
        FLAGS.predict_batch_size = FLAGS.eval_batch_size
    if FLAGS.distribution_strategy == "tpu":
        FLAGS.use_tpu = True
    elif FLAGS.distribution_strategy and (FLAGS.use_tpu or FLAGS.tpu_name):
        raise InputError(
            f"--distribution_strategy={FLAGS.distribution_strategy} is not for a TPU, but one is named. "
            "Give --distribution_strategy=tpu."
        )
    elif FLAGS.distribution_strategy:
        FLAGS.use_tpu = False  # and not this machine's, if it has one


def _check_flags():
    if not FLAGS.output_dir:
        raise InputError("--output_dir (or --model_dir) is needed.")
    if FLAGS.mode == "export_only":
        if not FLAGS.model_export_path:
            raise InputError("--mode=export_only: --model_export_path is needed, the folder to write.")
        return
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
        raise InputError("Nothing to do: give --do_train, --do_eval or --do_predict, one or several.")
    if FLAGS.input_meta_data_path:
        if FLAGS.do_train and not FLAGS.train_data_path:
            raise InputError("--train_data_path is needed: the records to train on.")
        if not FLAGS.eval_data_path and (FLAGS.do_eval or FLAGS.do_predict):
            raise InputError("--eval_data_path is needed: the records to evaluate or predict.")
    elif not FLAGS.task_name:
        raise InputError(f"--task_name is needed: {', '.join(task_flags.names())}; or --input_meta_data_path.")
    training_flags.check_evaluation(FLAGS, "num_eval_per_epoch")


def _spec(of, max_seq_length):
    size = len(of.labels) if of.label_kind == task.MULTI else 1
    kind = tf.float32 if of.label_kind == task.REGRESSION else tf.int64
    return {**finetuning.sequence_spec(max_seq_length), "label_ids": tf.FixedLenFeature([size], kind)}


def _make_records(of, vocab_file, do_lower_case):
    """Makes the records of all splits that are needed: a dict from split to list of `Part`."""
    splits = {}
    for split, wanted, file in (
        ("train", FLAGS.do_train, FLAGS.train_file),
        ("dev", FLAGS.do_eval, FLAGS.eval_file),
        ("test", FLAGS.do_predict, FLAGS.predict_file),
    ):
        if not wanted:
            continue
        splits[split] = []
        for part in [""] if file else of.parts(split):
            source = file or of.find(FLAGS.data_dir, split, part)
            output = os.path.join(FLAGS.output_dir, _FILES[split].format(f"_{part}" if part else ""))
            made = features.write(of, source, split, output, vocab_file, do_lower_case, FLAGS.max_seq_length)
            features.log_description(made, of, split, FLAGS.max_seq_length)
            spec = _spec(of, FLAGS.max_seq_length)
            data = finetuning_input.Data((made.path,), (made.count,), spec, tuple(spec))
            splits[split].append(Part(part, data, source))
    return splits


def _find_records(meta):
    """As `_make_records`, of records that are there."""
    splits = {}
    for split, wanted, flag in (
        ("train", FLAGS.do_train, "train_data_path"),
        ("dev", FLAGS.do_eval, "eval_data_path"),
        ("test", FLAGS.do_predict, "eval_data_path"),
    ):
        if wanted:
            paths = records.find(FLAGS[flag].value, flag)
            names = [prepared.check_records(path, flag, meta) for path in paths][-1]
            spec = _spec(prepared.Prepared(meta), meta.max_seq_length)
            if meta.has_sample_weights:
                spec["weight"] = tf.FixedLenFeature([1], tf.float32)
            counts = tuple(records.count(path) for path in paths)
            splits[split] = [Part("", finetuning_input.Data(tuple(paths), counts, spec, names))]
    return splits


def _train(trainer, schedule, of, splits, record):
    """Trains; returns what is known of it for the summary."""
    data = splits["train"][0].data
    steps = schedule.num_train_steps
    examples = steps * FLAGS.train_batch_size
    logging.info(
        "%d steps of %d examples = %.2f epochs of %d records",
        steps,
        FLAGS.train_batch_size,
        examples / data.count,
        data.count,
    )
    fingerprints = [features.read_description(path) for path in data.files]
    record.set_data(
        [
            {
                "files": len(data.files),
                "records": data.count,
                "epochs": examples / data.count,
                "fingerprint": [
                    found.fingerprint if found else files.size(path) for found, path in zip(fingerprints, data.files)
                ],
            }
        ]
    )
    eval_every = FLAGS.eval_every
    if FLAGS.num_eval_per_epoch and not eval_every:
        eval_every = max(1, round(data.count / FLAGS.train_batch_size / FLAGS.num_eval_per_epoch))
    on_the_way = {}
    if eval_every and FLAGS.do_eval:
        best_metric = FLAGS.best_metric or of.best_metric
        known = ["eval_loss", *["eval_accuracy"] * (of.label_kind != task.REGRESSION), *of.metric_names]
        if best_metric not in known:
            raise InputError(f"--best_metric={best_metric}: task {of.name} has {', '.join(known)}.")
        on_the_way = {
            "course": evaluations.Evaluations(FLAGS.output_dir, best_metric, FLAGS.early_stopping_patience),
            "evaluate": lambda: _evaluate(trainer, of, splits["dev"]),
            "eval_every": eval_every,
        }
    elif eval_every:
        raise InputError("--eval_every is for a training that is evaluated: give --do_eval too.")
    return {"total_training_steps": steps, **trainer.train(data, schedule, record, **on_the_way)}


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


def _report_evaluation(trainer, of, parts, trained):
    """Evaluates, unless that is done, and writes and logs the results."""
    checkpoint, step = checkpoints.latest(FLAGS.output_dir)
    known = run_record.read_results(FLAGS.output_dir)
    if FLAGS.do_train and not trained and known.get("global_step") == step:
        logging.info("already evaluated at step %d", step)
        return known
    logging.info("evaluating %s", checkpoint or trainer.init_checkpoint)
    shown = {}
    found = _evaluate(trainer, of, parts, shown)
    run_record.write_results(FLAGS.output_dir, found)
    run_record.write_json(os.path.join(FLAGS.output_dir, run_folder.DETAILS_FILE), shown)
    for name, value in sorted(found.items()):
        logging.info("  %s = %s", name, value)
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
