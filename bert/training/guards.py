"""Guard rails that Estimator lacks: what stops a training before it does harm."""

import math

import tensorflow.compat.v1 as tf

from bert.errors import TrainingError


class FiniteLossHook(tf.estimator.SessionRunHook):
    """Stops a training at the step whose loss is not a finite number, before a checkpoint of it is saved."""

    def __init__(self, learning_rate):
        """Takes the function from the global step to the learning rate used in that step."""
        self._learning_rate = learning_rate

    def begin(self):
        self._step = tf.train.get_or_create_global_step().read_value()
        self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]

    def before_run(self, run_context):
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        if not math.isfinite(run_values.results):
            step = run_context.session.run(self._step)
            raise TrainingError(
                f"The loss is {run_values.results} at step {step}, learning rate {self._learning_rate(step - 1):.3g}. "
                f"Training stops here; the last checkpoint is from before. A lower learning rate or a longer warmup "
                f"is the usual cure."
            )
