"""Guard rails that Estimator lacks: what stops a training before it does harm, and keeps it from ending in silence.

TPUEstimator takes some errors for the preemption of a machine: it makes a new session without end, or returns as if
all were well. Here such errors are waited for within bounds and are errors then.
"""

import math
import time

import tensorflow.compat.v1 as tf
from absl import logging

from bert import stopping
from bert.errors import TrainingError, in_words

# Errors of a server or a network, which may pass. TensorFlow has tried again several times when it reports one.
PASSING_ERRORS = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.DeadlineExceededError)
ATTEMPTS = 5
PATIENCE = 600.0  # seconds
FIRST_PAUSE = 1.0  # seconds


class Patience:
    """Counts attempts without success, and waits longer before each: 0, then 1, 2, 4 ... times `FIRST_PAUSE`."""

    def __init__(self, purpose, attempts=ATTEMPTS, cause="The storage or the TPU does not answer."):
        """Takes what is attempted, how often at most, and why it fails where no error says so."""
        self._purpose, self._max_attempts, self._cause = purpose, attempts, cause
        self.succeeded()

    def succeeded(self):
        """Starts to count anew."""
        self._attempts, self._start = 0, None

    def wait(self, error=None):
        """Called before each attempt, with the error of the one before if it is known.

        Raises:
          TrainingError: `ATTEMPTS` have failed, or all of them have taken `PATIENCE` seconds.
          stopping.Stopped: a signal came, and the attempt before has failed.
        """
        if self._attempts and stopping.requested():
            raise stopping.Stopped(stopping.requested())
        now = time.monotonic()
        self._start = self._start or now
        if self._attempts == self._max_attempts or (self._attempts and now - self._start > PATIENCE):
            cause = (in_words(error) if error else None) or self._cause
            raise TrainingError(
                f"{self._purpose} failed {self._attempts} times in {now - self._start:.0f} seconds, without a step in "
                f"between. {cause} Run again when it does: the training goes on from its last checkpoint."
            )
        if self._attempts:
            pause = FIRST_PAUSE * 2 ** (self._attempts - 1)
            logging.warning(
                "%s: attempt %d of %d in %.0f s%s",
                self._purpose,
                self._attempts + 1,
                self._max_attempts,
                pause,
                f" ({in_words(error)})" if error else "",
            )
            time.sleep(pause)
        self._attempts += 1

    def call(self, function):
        """Calls a function until it ends without one of the `PASSING_ERRORS`."""
        error = None
        while True:
            self.wait(error)
            try:
                result = function()
            except PASSING_ERRORS as e:
                error = e
            else:
                self.succeeded()
                return result


class Scaffold(tf.train.Scaffold):
    """Bounds how often a session is made: Estimator asks for it before each attempt to make one."""

    def __init__(self, patience=None):
        super().__init__()
        self._patience = patience or Patience("making a session")

    def finalize(self):
        self._patience.wait()
        return super().finalize()


class ProgressGuard(tf.estimator.SessionRunHook):
    """Tells the scaffold's `Patience` of every step, so that only sessions without any count."""

    def __init__(self, patience):
        self._patience = patience

    def after_run(self, run_context, run_values):
        self._patience.succeeded()


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
            raise TrainingError(_divergence(f"The loss is {run_values.results}", step, self._learning_rate))


class StopHook(tf.estimator.SessionRunHook):
    """Ends a training after the step in which a signal came; Estimator then saves a checkpoint."""

    def after_create_session(self, session, coord):
        if stopping.requested():
            coord.request_stop()

    def after_run(self, run_context, run_values):
        if stopping.requested():
            run_context.request_stop()


class SharedStopHook(tf.estimator.SessionRunHook):
    """Ends a training on all machines after the step before which one of them had a signal."""

    def __init__(self, cluster):
        """Takes the `cluster.Cluster`."""
        self._cluster = cluster

    def begin(self):
        self._stop = tf.placeholder(tf.int32, [])
        self._count = self._cluster.count_stops(self._stop)

    def before_run(self, run_context):
        return tf.estimator.SessionRunArgs(self._count, {self._stop: int(stopping.requested() is not None)})

    def after_run(self, run_context, run_values):
        if run_values.results:
            stopping.request("a signal to another machine")
            run_context.request_stop()


class CallHook(tf.estimator.SessionRunHook):
    """Calls a function after every step, and before anything of that step is saved."""

    def __init__(self, function):
        self._function = function

    def after_run(self, run_context, run_values):
        self._function()


class SaverHook(tf.train.CheckpointSaverHook):
    """Saves checkpoints, none of which has a weight that is not a number.

    In the hooks of a TPUEstimatorSpec it replaces Estimator's own on every device. It also waits for storage that does
    not answer, where Estimator would make a new session and lose the steps since the last checkpoint, and leaves the
    checkpoint alone that a session starts from, where Estimator would write it once more.
    """

    def __init__(self, output_dir, save_steps, learning_rate, on_save=None):
        """Sets up the hook.

        Args:
          output_dir: folder of the checkpoints.
          save_steps: steps between two of them.
          learning_rate: function from the global step to the learning rate used in that step.
          on_save: function that is told the step of each checkpoint when it is complete.
        """
        super().__init__(output_dir, save_steps=save_steps)
        self._output_dir = output_dir
        self._learning_rate = learning_rate
        self._on_save = on_save
        self._patience = Patience(f"saving a checkpoint in {output_dir}")

    def begin(self):
        super().begin()
        with tf.name_scope("finite_variables"):
            variables = [variable for variable in tf.global_variables() if variable.dtype.is_floating]
            finite = [tf.reduce_all(tf.math.is_finite(variable)) for variable in variables]
            self._finite = tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)

    def after_create_session(self, session, coord):
        step = session.run(self._global_step_tensor)
        state = tf.train.get_checkpoint_state(self._output_dir)
        if state is not None and state.model_checkpoint_path.endswith(f"-{step}"):
            self._timer.update_last_triggered_step(step)
        else:
            super().after_create_session(session, coord)

    def _save(self, session, step):
        if not session.run(self._finite):
            raise TrainingError(_divergence("A variable of the model is not a number", step, self._learning_rate))
        stop = self._patience.call(lambda: super(SaverHook, self)._save(session, step))
        if self._on_save:
            self._on_save(int(step))
        return stop


def _divergence(what, step, learning_rate):
    return (
        f"{what} at step {step}, learning rate {learning_rate(max(step - 1, 0)):.3g}. Training stops here; the last "
        f"checkpoint is from before. A lower learning rate or a longer warmup is the usual cure."
    )
