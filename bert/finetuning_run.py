"""What the runs of all fine-tuning programs have in common, from the flags to the account of the run."""

import contextlib
import dataclasses

from absl import logging

from bert import finetuning_flags, program, training_flags
from bert.errors import Checked, InputError
from bert.tasks import results
from bert.training import checkpoints, evaluations, finetuning, locking, preflight, run_folder, run_record


@contextlib.contextmanager
def output_folder(values, paths, avoids_padding):
    """Chooses the device and checks the flags that depend on it, then has the output folder to itself.

    Args:
      values: the parsed flags, `flags.FLAGS`.
      paths: names of the flags whose paths the device must be able to read or write.
      avoids_padding: as of `choose_batching`.

    Yields:
      Arguments of `Finetuner`, a dict.
    """
    device = training_flags.choose_training_device(values, paths)
    batch_kind = finetuning_flags.choose_batching(values, device, avoids_padding)
    training_flags.schedule_options(values)  # which checks them
    with locking.hold(values.output_dir) as check:
        options = training_flags.trainer_options(values)
        yield {"device": device, "batch_kind": batch_kind, "check": check, **options}
    logging.info("done: %s", values.output_dir)


def make_trainer(values, options, model, head, spec, trains_pooler=True, has_trained_model=True):
    """Makes what trains and predicts, and checks what it starts from; nothing is written yet.

    Args:
      values: the parsed flags.
      options: as of `output_folder`.
      model: a `finetuning_flags.Model`.
      head: its head, as of `bert.training.finetuning`.
      spec: dict from the features' names to `tf.FixedLenFeature`.
      trains_pooler: whether the loss depends on the pooler. If not, the optimizer keeps nothing for it.
      has_trained_model: whether what is evaluated or predicted without training is in the output folder or
        --init_checkpoint.

    Returns:
      A `Finetuner`.
    """
    shapes = finetuning.variable_shapes(model.config, head, spec)
    trained = {name: shape for name, shape in shapes.items() if trains_pooler or "/pooler/" not in name}
    checkpoints.recover(values.output_dir, trained)
    init = None
    if values.do_train or has_trained_model:
        init = _init_checkpoint(values, model.init_checkpoint, shapes)
    return finetuning.Finetuner(model.config, head=head, init_checkpoint=init, **options)


@contextlib.contextmanager
def recorded(values, name, model, trainer, plan, settings):
    """Makes the output folder that of this model, and keeps account of a run.

    Args:
      values: the parsed flags.
      name: of the program.
      model: a `finetuning_flags.Model`.
      trainer: a `Finetuner`.
      plan: a `Schedule`.
      settings: what a trained model means, for `results.SETTINGS_FILE`.

    Yields:
      The `run_record.RunRecord`.

    Raises:
      Checked: the flags ask for no more.
    """
    if values.check_only:
        raise Checked
    preflight.claim_output_dir(values.output_dir, model.config, model.vocab_file)
    if values.do_train or not results.read_settings(values.output_dir):
        results.write_settings(values.output_dir, settings)
    with run_record.RunRecord(values.output_dir, name, program.flag_values()) as record:
        record.update(
            device=trainer.device.description,
            seed=values.seed,
            settings={
                "model": trainer.config.to_dict(),
                **dataclasses.asdict(plan),
                **settings,
                "init_checkpoint": trainer.init_checkpoint,
            },
        )
        yield record


def train(values, trainer, plan, data, record, metric, evaluate):
    """Trains, evaluates on the way if the flags say so, and tells on how much.

    Args:
      values: the parsed flags.
      trainer: a `Finetuner`.
      plan: a `Schedule`.
      data: a `finetuning_input.Data`.
      record: a `run_record.RunRecord`.
      metric: by which checkpoints are compared.
      evaluate: function that evaluates the newest checkpoint and returns a dict of metrics with "global_step".

    Returns:
      What is known of the training for the summary, a dict.
    """
    steps, batch_size = plan.num_train_steps, plan.train_batch_size
    epochs = steps * batch_size / data.count
    logging.info("%d steps of %d examples = %.2f epochs of %d records", steps, batch_size, epochs, data.count)
    record.set_data(
        [
            {
                "files": len(data.files),
                "records": data.count,
                "epochs": epochs,
                "fingerprint": data.fingerprints,
            }
        ]
    )
    course = None
    if values.eval_every:
        course = evaluations.Evaluations(values.output_dir, metric, values.early_stopping_patience)
    return {"total_training_steps": steps, **trainer.train(data, plan, record, course, evaluate, values.eval_every)}


def known_results(values, record, summary, eval_data):
    """Finds what the evaluation would come to, if an earlier run has made it: nothing is new since.

    Whoever asks for an evaluation without training gets it.

    Args:
      values: the parsed flags.
      record: the `run_record.RunRecord`.
      summary: what this run knows of its training.
      eval_data: what tells this evaluation's data and settings from others, as "eval_data" of the summary keeps it.

    Returns:
      A dict of metrics, or None.
    """
    step = checkpoints.latest(values.output_dir)[1]
    known = run_record.read_results(values.output_dir)
    before = run_folder.read_json(values.output_dir, run_folder.SUMMARY_FILE) or {}
    is_trained = values.do_train and "train_loss" not in summary
    is_same = known.get("global_step") == step and before.get("eval_data") == eval_data
    if not (is_trained and is_same and record.follows_finished_run):
        return None
    logging.info("already evaluated at step %d", step)
    return known


def _init_checkpoint(values, init, shapes):
    """Prefix of the initial checkpoint, or None if the output folder has one of its own to go on from.

    Raises:
      InputError: there is nothing to start from, or, without training, to evaluate.
    """
    if checkpoints.latest(values.output_dir)[0]:
        return None
    if init:
        initialisation = checkpoints.plan_initialisation(init, shapes)
        checkpoints.log_initialisation(initialisation)
        if values.do_train or all(name.startswith("bert/") for name in initialisation.new):
            return initialisation.checkpoint
    if values.do_train:
        return None
    raise InputError(
        f"--output_dir={values.output_dir} has no checkpoint, and "
        f"{'--init_checkpoint has no classifier' if init else 'there is no --init_checkpoint'}: nothing is trained "
        "that could be evaluated. Give --do_train too, or the --output_dir of a training."
    )
