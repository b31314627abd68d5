"""How any model is trained in an output folder: from its newest checkpoint on, with evaluations on the way."""

import dataclasses
from typing import Callable, Optional

import tensorflow.compat.v1 as tf
from absl import logging

from bert import loss_scaling, modeling, optimization
from bert.errors import InputError
from bert.training import accumulation, checkpoints, cluster, estimator, evaluations, guards
from bert.training.progress import ProgressHook, TrainingMetrics


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
      train_batch_size: examples per step, over all replicas.
      learning_rate: its peak.
      num_train_steps: steps in which the learning rate falls to `end_lr`.
      num_warmup_steps: steps in which it rises.
      first_step: global step at which this begins.
      num_accumulation_steps: micro-batches that a replica's part of a batch is cut into.
      optimizer: further arguments of `optimization.training_step`.
    """

    train_batch_size: int
    learning_rate: float
    num_train_steps: int
    num_warmup_steps: int
    first_step: int = 0
    num_accumulation_steps: int = 1
    optimizer: dict = dataclasses.field(default_factory=dict)

    def learning_rate_at(self, step):
        """Learning rate of a global step, counted from 0."""
        decay = {name: self.optimizer[name] for name in ("end_lr", "power") if name in self.optimizer}
        return optimization.learning_rate_at(
            step - self.first_step, self.learning_rate, self.num_train_steps, self.num_warmup_steps, **decay
        )

    def train_op(self, loss, grads_and_vars, loss_scale=None):
        """The operation that makes one step; `loss_scale` as of `optimization.training_step`."""
        return optimization.training_step(
            loss,
            grads_and_vars,
            self.learning_rate,
            self.num_train_steps,
            self.num_warmup_steps,
            first_step=self.first_step,
            loss_scale=loss_scale,
            **self.optimizer,
        )


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Steps that are trained on the same data.

    Attributes:
      first_step, last_step: global steps between which the stretch lies.
      schedule: its `Schedule`.
      spec: dict from the features' names to `tf.FixedLenFeature`.
      input_fn: input function of the training.
      evaluate: function that evaluates the newest checkpoint and returns its results, or None.
    """

    first_step: int
    last_step: int
    schedule: Schedule
    spec: dict
    input_fn: Callable
    evaluate: Optional[Callable] = None


@dataclasses.dataclass
class Trainer:
    """What the training of every model has in common; a subclass gives the model function.

    Attributes:
      config: a `BertConfig`.
      device: a `bert.training.devices.Device`.
      output_dir: folder of the run.
      seed: int.
      init_checkpoint: path prefix of a checkpoint to start from, or None.
      estimator_options: further arguments of `bert.training.estimator.make`.
      log_steps: steps between two reports of progress.
      compute_dtype, recompute_grad: as of `modeling.BertModel`.
      check: function called after every step; it may raise.
    """

    config: modeling.BertConfig
    device: object
    output_dir: str
    seed: int
    init_checkpoint: Optional[str] = None
    estimator_options: dict = dataclasses.field(default_factory=dict)
    log_steps: int = 100
    compute_dtype: tf.DType = tf.float32
    recompute_grad: bool = False
    check: Optional[Callable] = None

    @property
    def model_options(self):
        """Further arguments of `modeling.BertModel`."""
        return {
            "use_one_hot_embeddings": self.device.use_tpu,
            "compute_dtype": self.compute_dtype,
            "recompute_grad": self.recompute_grad,
        }

    def loss_builder(self, batch, num_micro_batches=1):
        """Returns a function that builds the training loss of a micro-batch.

        Args:
          batch: dict of Tensors [batch, ...], the features of the whole batch.
          num_micro_batches: number of micro-batches; the mean of their losses is the batch's loss.

        Returns:
          A function from the features of a micro-batch to its loss (scalar), and a dict of further scalars for the
          course of the training.
        """
        raise NotImplementedError

    def training_model_fn(self, stretch, make_hooks=None, patience=None):
        """Returns the model function of the training for TPUEstimator.

        Args:
          stretch: the `Stretch` that is trained.
          make_hooks: function from a `TrainingMetrics` to the hooks of the training.
          patience: the `guards.Patience` with which sessions are made.
        """
        schedule = stretch.schedule
        num_micro_batches = schedule.num_accumulation_steps
        signature = None
        if num_micro_batches > 1:
            # Found here, since what is built anew inside a replica belongs to it.
            signature = accumulation.signature(lambda features: self.loss_builder(features)(features), stretch.spec)

        def model_fn(features, labels, mode, params):
            del labels, params
            build = self.loss_builder(features, num_micro_batches)
            loss_scale = loss_scaling.LossScale() if self.compute_dtype == tf.float16 else None

            def build_scaled(features):
                loss, metrics = build(features)
                return (loss_scale.scaled(loss) if loss_scale else loss), metrics

            loss, metrics, grads_and_vars = accumulation.gradients(build_scaled, features, num_micro_batches, signature)
            train_op = schedule.train_op(loss, grads_and_vars, loss_scale)
            if loss_scale:
                metrics = {**metrics, "loss_scale": loss_scale.value}
            gradient_norm = tf.get_collection(optimization.GRADIENT_NORM)[-1]
            shown = TrainingMetrics({"loss": loss, "gradient_norm": gradient_norm, **metrics})
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode=mode,
                loss=loss,
                # Of several replicas Estimator makes the host call of the first alone: the others would not meet it.
                train_op=tf.group(train_op, shown.row),
                host_call=shown.host_call(),
                scaffold_fn=checkpoints.scaffold_function(self.init_checkpoint, patience),
                training_hooks=make_hooks(shown) if make_hooks else None,
            )

        return model_fn

    def _train_stretches(self, stretches, record=None, course=None, eval_every=None):
        """Trains through the stretches that are not behind the newest checkpoint.

        Args:
          stretches: list of `Stretch` in order.
          record: a `run_record.RunRecord` that is told of the start and the progress, or None.
          course: an `evaluations.Evaluations`, if the training is evaluated on the way.
          eval_every: then the number of steps between two evaluations.

        Returns:
          What training_summary.json says of the training: "train_loss", "last_train_metrics" and "examples_per_second";
          empty if there was nothing to do.
        """
        self._check_sharing(stretches)
        machines = self.device.cluster
        if machines:
            machines.share(self.output_dir)
        checkpoint, step = checkpoints.latest(self.output_dir)
        total = stretches[-1].last_step
        if step >= total:
            logging.info(
                "already at step %d of %d: nothing to train. Give more steps or epochs, or take a new --output_dir.",
                step,
                total,
            )
        else:
            if checkpoint:
                self._check_dtype(checkpoint)
                logging.info("resuming from %s at step %d", checkpoint, step)
            if record:
                record.add_start(step)
        summary = self._train_through(stretches, step, record, course, eval_every)
        if machines:
            machines.leave()
        return summary

    def _check_sharing(self, stretches):
        """Checks that the devices can share every batch, and cut their parts of it into micro-batches."""
        for schedule in (stretch.schedule for stretch in stretches):
            parts = self.device.num_replicas * schedule.num_accumulation_steps
            if schedule.train_batch_size % parts:
                raise InputError(
                    f"--train_batch_size={schedule.train_batch_size} is no multiple of {parts}: "
                    f"{self.device.num_replicas} devices share each batch, each in {schedule.num_accumulation_steps} "
                    "micro-batches. --distribution_strategy=one_device takes one device."
                )

    def _train_through(self, stretches, step, record, course, eval_every):
        machines = self.device.cluster
        total = stretches[-1].last_step
        summary = {}
        for stretch in stretches:
            while stretch.first_step <= step <= stretch.last_step:
                if course and step > stretch.first_step:
                    # Asked before training too: the evaluation may have been interrupted.
                    due = step % eval_every == 0 or step == stretch.last_step
                    is_chief = not machines or machines.is_chief
                    if is_chief and due and course.get(step) is None:
                        course.add(stretch.evaluate(), checkpoints.latest(self.output_dir)[0])
                    is_enough = is_chief and course.is_enough(step)
                    if machines.agree(is_enough) if machines else is_enough:
                        return summary
                if step == stretch.last_step:
                    break
                step = evaluations.next_pause(step, eval_every if course else None, stretch.last_step)
                summary = self._train_to(step, stretch, total, record)
        return summary

    def _check_dtype(self, checkpoint):
        if self.compute_dtype == tf.float16 and loss_scaling.SCALE not in checkpoints.read_shapes(checkpoint):
            raise InputError(
                f"--dtype=fp16: {checkpoint} was trained with another dtype, and has no loss scale. Go on with that, "
                "or name it as --init_checkpoint of a training in another --output_dir."
            )

    def _train_to(self, last_step, stretch, total, record):
        progress = None
        learning_rate_at = stretch.schedule.learning_rate_at
        patience = guards.Patience("making a session for the training")
        if self.device.cluster:
            # A machine that made its session anew would not be where the others are.
            patience = guards.Patience("making a session for the training", 1, cluster.gone())
        hooks = []

        def make_hooks(metrics):
            nonlocal progress
            if hooks:
                return hooks  # there are replicas, and these are the first one's
            progress = ProgressHook(
                metrics,
                self.output_dir,
                last_step=total,
                batch_size=stretch.schedule.train_batch_size,
                # The sequence is the longest of the features, whatever it is called.
                seq_length=max(feature.shape[0] for feature in stretch.spec.values() if feature.shape),
                learning_rate=learning_rate_at,
                log_steps=self.log_steps,
                on_report=record.report if record else None,
            )
            hooks[:] = [
                *([] if self.device.cluster else [guards.ProgressGuard(patience)]),
                progress,
                guards.SaverHook(
                    self.output_dir,
                    self.estimator_options.get("save_checkpoints_steps", estimator.SAVE_CHECKPOINTS_STEPS),
                    learning_rate_at,
                    on_save=record.saved if record else None,
                ),
            ]
            return hooks

        model_fn = self.training_model_fn(stretch, make_hooks, patience)
        estimator.train(
            self._estimator(model_fn, train_batch_size=stretch.schedule.train_batch_size, patience=patience),
            stretch.input_fn,
            last_step,
            learning_rate_at,
            check=self.check,
            cluster=self.device.cluster,
        )
        return {
            "train_loss": progress.latest["loss"],
            "last_train_metrics": progress.latest,
            "examples_per_second": progress.examples_per_second,
        }

    def _estimator(self, model_fn, **options):
        return estimator.make(model_fn, self.device, self.output_dir, self.seed, **options, **self.estimator_options)
