"""What a person sees of a training: log lines or a progress bar, and event files for TensorBoard."""

import sys
import time

import tensorflow.compat.v1 as tf
from absl import logging
from tqdm import tqdm

from bert import replicas
from bert.training.run_folder import duration

LONGEST_SILENCE = 60.0  # seconds between two log lines on slow devices


class TrainingMetrics:
    """Scalars of every training step, summed up on the host, where a hook can read them on any device.

    What is computed on a TPU can leave it only through a host call. This one adds the values of each step to
    variables on the host; means over any stretch of steps are differences of what it has read.

    Attributes:
      names: names of the metrics, sorted.
      row: float32 Tensor [1, metrics], which every replica's step must compute: replicas of a strategy meet for it.
    """

    def __init__(self, tensors):
        """Takes a dict from name to scalar Tensor."""
        self.names = sorted(tensors)
        values = tf.stack([tf.cast(tensors[name], tf.float32) for name in self.names])  # [metrics]
        if not replicas.on_tpu():  # whose host gets the rows of all
            values = replicas.mean(values)
        self.row = values[tf.newaxis]
        self._sums = None

    def host_call(self):
        """The `host_call` of a TPUEstimatorSpec."""
        return self._add, [self.row]

    def _add(self, rows):
        values = tf.reduce_mean(rows, axis=0)  # [metrics]
        step = tf.cast(tf.concat([values, tf.ones([1])], axis=0), tf.float64)  # [metrics + 1]
        self._sums = tf.get_variable(
            "training_metrics",
            shape=[len(self.names) + 1],
            dtype=tf.float64,
            initializer=tf.zeros_initializer(),
            trainable=False,
            use_resource=True,
            collections=[tf.GraphKeys.LOCAL_VARIABLES],
        )
        return replicas.local_copy(self._sums).assign_add(step)

    def sums(self):
        """The sums so far and, last, the number of steps: float64 [metrics + 1]."""
        return self._sums.read_value()


class ProgressHook(tf.estimator.SessionRunHook):
    """Reports the course of a training.

    On a terminal a progress bar is kept; elsewhere a line is logged every `log_steps` steps, and at least every
    minute. The same values go to the event files in `output_dir`.
    """

    def __init__(
        self, metrics, output_dir, last_step, batch_size, seq_length, learning_rate, log_steps, on_report=None
    ):
        """Sets up the hook.

        Args:
          metrics: a `TrainingMetrics` that has "loss" among its names.
          output_dir: where event files go.
          last_step: global step at which the training ends.
          batch_size: examples per step, over all replicas.
          seq_length: tokens per example.
          learning_rate: function from the global step to the learning rate used in that step.
          log_steps: steps between two reports.
          on_report: function of the step and a dict of its metrics, called at each report.
        """
        self._on_report = on_report
        self._metrics = metrics
        self._output_dir = output_dir
        self._last_step = last_step
        self._batch_size = batch_size
        self._seq_length = seq_length
        self._learning_rate = learning_rate
        self._log_steps = log_steps
        self._bar = None
        self._seconds = 0.0
        self._timed_steps = 0
        self.latest = {}

    @property
    def examples_per_second(self):
        """Mean over all steps but the first after each start, which includes compilation; None if unknown."""
        return self._timed_steps * self._batch_size / self._seconds if self._seconds else None

    def begin(self):
        self._step_tensor = tf.train.get_or_create_global_step().read_value()
        self._sums_tensor = self._metrics.sums()
        self._writer = tf.summary.FileWriterCache.get(self._output_dir)

    def after_create_session(self, session, coord):
        self._step, self._sums = session.run([self._step_tensor, self._sums_tensor])
        self._reported_step = self._step
        self._run_start = None
        self._report_seconds, self._report_steps = 0.0, 0
        self._report_time = time.monotonic()
        if sys.stderr.isatty() and self._bar is None:
            self._bar = tqdm(total=self._last_step, initial=int(self._step), unit="step", dynamic_ncols=True)

    def after_run(self, run_context, run_values):
        now = time.monotonic()
        step = run_context.session.run(self._step_tensor)
        first = self._run_start is None
        if not first:
            self._report_seconds += now - self._run_start
            self._report_steps += step - self._step
        self._run_start = now
        due = step // self._log_steps > self._reported_step // self._log_steps
        self._step = step
        if self._bar is not None:
            self._bar.update(int(step) - self._bar.n)
        if first or due or step >= self._last_step or now - self._report_time > LONGEST_SILENCE:
            self._report(run_context.session, now)

    def _report(self, session, now):
        step = int(self._step)
        sums = session.run(self._sums_tensor)
        difference = sums - self._sums
        if difference[-1] > 0:
            means = difference[:-1] / difference[-1]
            self.latest = {name: float(mean) for name, mean in zip(self._metrics.names, means)}
        self.latest["learning_rate"] = self._learning_rate(step - 1)
        if self._report_steps:
            self.latest["examples_per_second"] = self._report_steps * self._batch_size / self._report_seconds
        self._seconds += self._report_seconds
        self._timed_steps += self._report_steps
        self._sums, self._reported_step, self._report_time = sums, step, now
        self._report_seconds, self._report_steps = 0.0, 0
        self._writer.add_summary(
            tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=v) for tag, v in self.latest.items()]),
            step,
        )
        if self._on_report:
            self._on_report(step, self.latest)
        if self._bar is not None:
            self._bar.set_postfix_str(self._rates())
        else:
            logging.info(
                "step %d of %d (%.1f %%): %s",
                step,
                self._last_step,
                100 * step / self._last_step,
                self._rates(),
            )

    def _rates(self):
        parts = [f"loss {self.latest['loss']:.4f}", f"learning rate {self.latest['learning_rate']:.3g}"]
        rate = self.latest.get("examples_per_second")
        if rate:
            left = (self._last_step - self._step) * self._batch_size / rate
            parts += [
                f"{rate:.4g} examples/s",
                f"{rate * self._seq_length:,.0f} tokens/s",
                f"{duration(left)} left",
            ]
        return ", ".join(parts)

    def end(self, session):
        self._writer.flush()
        if self._bar is not None:
            self._bar.close()
