"""Metrics of every step reach the log and the event files, whatever the interval of reports."""

import math

import pytest
import tensorflow.compat.v1 as tf

from bert.training import progress, run_folder


@pytest.mark.parametrize(
    "seconds, text", [(0, "0:00"), (65.4, "1:05"), (3600, "1:00:00"), (86399.6, "1 d 00:00"), (200000, "2 d 07:33")]
)
def test_durations(seconds, text):
    assert run_folder.duration(seconds) == text


def train(output_dir, steps, log_steps):
    """Trains a model whose loss is its step and logs it; returns the hook."""
    hooks = []

    def model_fn(features, labels, mode, params):
        step = tf.train.get_or_create_global_step()
        loss = tf.cast(step.read_value(), tf.float32) + 0.0 * tf.reduce_sum(features)
        with tf.control_dependencies([loss]):
            train_op = step.assign_add(1)
        metrics = progress.TrainingMetrics({"loss": loss, "twice": 2 * loss})
        hooks.append(
            progress.ProgressHook(
                metrics,
                output_dir,
                steps,
                batch_size=4,
                seq_length=8,
                learning_rate=lambda s: s / 100,
                log_steps=log_steps,
            )
        )
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=train_op, host_call=metrics.host_call(), training_hooks=hooks
        )

    config = tf.estimator.tpu.RunConfig(
        model_dir=output_dir, save_summary_steps=None, tpu_config=tf.estimator.tpu.TPUConfig(iterations_per_loop=1)
    )
    estimator = tf.estimator.tpu.TPUEstimator(model_fn, config=config, use_tpu=False, train_batch_size=4, params={})
    estimator.train(lambda params: tf.data.Dataset.from_tensors(tf.zeros([4])).repeat(), max_steps=steps)
    return hooks[0]


def test_each_report_is_the_mean_since_the_one_before(tmp_path, caplog):
    caplog.set_level("INFO")
    hook = train(str(tmp_path), steps=25, log_steps=10)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("step ")]
    assert [line.split(":")[0] for line in lines] == [
        "step 1 of 25 (4.0 %)",
        "step 10 of 25 (40.0 %)",
        "step 20 of 25 (80.0 %)",
        "step 25 of 25 (100.0 %)",
    ]
    # The loss of step n is n - 1.
    assert [line.split("loss ")[1].split(",")[0] for line in lines] == ["0.0000", "5.0000", "14.5000", "22.0000"]
    assert hook.latest["twice"] == pytest.approx(44.0)
    assert hook.latest["learning_rate"] == pytest.approx(0.24)
    assert hook.examples_per_second > 0 and math.isfinite(hook.examples_per_second)

    scalars = {}
    for path in tmp_path.glob("events*"):
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                scalars.setdefault(value.tag, {})[event.step] = value.simple_value
    assert scalars["loss"] == {1: 0.0, 10: 5.0, 20: 14.5, 25: 22.0}
    assert set(scalars) >= {"twice", "learning_rate", "examples_per_second"}
