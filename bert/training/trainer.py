"""How any model is trained in an output folder: from its newest checkpoint on, with evaluations on the way."""

import dataclasses
from typing import Callable, Optional

import tensorflow.compat.v1 as tf
from absl import logging

from bert import modeling, optimization
from bert.training import checkpoints, estimator, evaluations, guards
from bert.training.progress import ProgressHook, TrainingMetrics


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long and how fast to train."""

    train_batch_size: int
    learning_rate: float
    num_train_steps: int
    num_warmup_steps: int

    def learning_rate_at(self, step):
        """Learning rate of a step, counted from 0."""
        return optimization.learning_rate_at(step, self.learning_rate, self.num_train_steps, self.num_warmup_steps)

    def train_op(self, loss, use_tpu):
        """The operation that makes one step."""
        return optimization.create_optimizer(
            loss, self.learning_rate, self.num_train_steps, self.num_warmup_steps, use_tpu
        )


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Steps that are trained on the same data.

    Attributes:
      first_step, last_step: global steps between which the stretch lies.
      seq_length: tokens in an example.
      input_fn: input function of the training.
      evaluate: function that evaluates the newest checkpoint and returns its results, or None.
    """

    first_step: int
    last_step: int
    seq_length: int
    input_fn: Callable
    evaluate: Optional[Callable] = None


@dataclasses.dataclass
class Trainer:
    """What the training of every model has in common; a subclass gives the model function.

    Attributes:
      config: a `BertConfig`.
      device: a `bert.training.devices.Device`.
      schedule: a `Schedule`.
      output_dir: folder of the run.
      seed: int.
      init_checkpoint: path prefix of a checkpoint to start from, or None.
      estimator_options: further arguments of `bert.training.estimator.make`.
      log_steps: steps between two reports of progress.
      check: function called after every step; it may raise.
    """

    config: modeling.BertConfig
    device: object
    schedule: Schedule
    output_dir: str
    seed: int
    init_checkpoint: Optional[str] = None
    estimator_options: dict = dataclasses.field(default_factory=dict)
    log_steps: int = 100
    check: Optional[Callable] = None

    def model_fn(self, make_hooks=None, patience=None):
        """Returns the model function for TPUEstimator.

        Args:
          make_hooks: function from a `TrainingMetrics` to the hooks of the training.
          patience: the `guards.Patience` with which sessions are made.
        """
        raise NotImplementedError

    def _train_stretches(self, stretches, record=None, course=None, eval_every=None):
        """Trains through the stretches that are not behind the newest checkpoint.

        Args:
          stretches: list of `Stretch` in order.
          record: a `run_record.RunRecord` that is told of the start and the progress, or None.
          course: an `evaluations.Evaluations`, if the training is evaluated on the way.
          eval_every: then the number of steps between two evaluations.

        Returns:
          A dict of the last training metrics, with "examples_per_second"; empty if there was nothing to do.
        """
        checkpoint, step = checkpoints.latest(self.output_dir)
        total = self.schedule.num_train_steps
        if step >= total:
            logging.info(
                "already at step %d of %d: nothing to train. Give more steps or epochs, or take a new --output_dir.",
                step,
                total,
            )
        else:
            if checkpoint:
                logging.info("resuming from %s at step %d", checkpoint, step)
            if record:
                record.add_start(step)
        metrics = {}
        for stretch in stretches:
            while stretch.first_step <= step <= stretch.last_step:
                if course and step > stretch.first_step:
                    # Asked before training too: the evaluation may have been interrupted.
                    due = step % eval_every == 0 or step == stretch.last_step
                    if due and course.get(step) is None:
                        course.add(stretch.evaluate(), checkpoints.latest(self.output_dir)[0])
                    if course.is_enough(step):
                        return metrics
                if step == stretch.last_step:
                    break
                step = evaluations.next_pause(step, eval_every if course else None, stretch.last_step)
                metrics = self._train_to(step, stretch, record)
        return metrics

    def _train_to(self, last_step, stretch, record):
        progress = None
        patience = guards.Patience("making a session for the training")

        def make_hooks(metrics):
            nonlocal progress
            progress = ProgressHook(
                metrics,
                self.output_dir,
                last_step=self.schedule.num_train_steps,
                batch_size=self.schedule.train_batch_size,
                seq_length=stretch.seq_length,
                learning_rate=self.schedule.learning_rate_at,
                log_steps=self.log_steps,
                on_report=record.report if record else None,
            )
            return [
                guards.ProgressGuard(patience),
                progress,
                guards.SaverHook(
                    self.output_dir,
                    self.estimator_options.get("save_checkpoints_steps", estimator.SAVE_CHECKPOINTS_STEPS),
                    self.schedule.learning_rate_at,
                    on_save=record.saved if record else None,
                ),
            ]

        estimator.train(
            self._estimator(self.model_fn(make_hooks, patience)),
            stretch.input_fn,
            last_step,
            self.schedule.learning_rate_at,
            check=self.check,
        )
        return {**progress.latest, "examples_per_second": progress.examples_per_second}

    def _estimator(self, model_fn, **batch_sizes):
        return estimator.make(
            model_fn,
            self.device,
            self.output_dir,
            self.seed,
            train_batch_size=self.schedule.train_batch_size,
            **batch_sizes,
            **self.estimator_options,
        )

    def _training_spec(self, loss, metrics, make_hooks, patience):
        """The TPUEstimatorSpec of a training step.

        Args:
          loss: scalar Tensor.
          metrics: dict of further scalars for the course of the training.
          make_hooks, patience: as of `model_fn`.
        """
        train_op = self.schedule.train_op(loss, self.device.use_tpu)
        gradient_norm = tf.get_collection(optimization.GRADIENT_NORM)[-1]
        shown = TrainingMetrics({"loss": loss, "gradient_norm": gradient_norm, **metrics})
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode=tf.estimator.ModeKeys.TRAIN,
            loss=loss,
            train_op=train_op,
            host_call=shown.host_call(),
            scaffold_fn=checkpoints.scaffold_function(self.init_checkpoint, patience),
            training_hooks=make_hooks(shown) if make_hooks else None,
        )
