"""Trainings that go wrong in ways that Estimator would hide end with an error that says why."""

import pytest
import tensorflow.compat.v1 as tf

from bert.errors import InputError, TrainingError, in_words
from bert.training import checkpoints, devices, estimator, guards


def rate(step):
    return 0.5


def train(folder, steps, change=lambda step: 0.0, batches=100, check=None):
    """Trains a model whose variable is the sum of what `change` returns for each step, and whose loss is 1."""
    patience = guards.Patience("making a session")

    def model_fn(features, labels, mode, params):
        step = tf.train.get_or_create_global_step()
        value = tf.get_variable("value", [], initializer=tf.zeros_initializer(), use_resource=True)
        loss = 1.0 + 0.0 * tf.reduce_sum(features)
        with tf.control_dependencies([loss]):
            amount = tf.py_func(change, [step.read_value()], tf.float64)
            update = value.assign_add(tf.cast(tf.ensure_shape(amount, []), tf.float32))
        with tf.control_dependencies([update]):
            train_op = step.assign_add(1)
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=train_op,
            scaffold_fn=checkpoints.scaffold_function(None, patience),
            training_hooks=[guards.ProgressGuard(patience), guards.SaverHook(folder, 2, rate)],
        )

    made = estimator.make(model_fn, devices.choose(False), folder, seed=1, train_batch_size=1)
    estimator.train(
        made, lambda params: tf.data.Dataset.from_tensors(tf.zeros([1])).repeat(batches), steps, rate, check
    )


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(guards, "FIRST_PAUSE", 0.001)


def test_a_weight_that_is_no_number_is_never_saved(tmp_path):
    with pytest.raises(TrainingError, match=r"A variable of the model is not a number at step 6, learning rate 0.5"):
        train(str(tmp_path), 10, lambda step: float("nan") if step == 5 else 0.0)
    assert checkpoints.latest(str(tmp_path))[1] == 4
    train(str(tmp_path), 10)
    assert checkpoints.latest(str(tmp_path))[1] == 10


def test_returning_early_is_an_error(tmp_path):
    with pytest.raises(TrainingError, match=r"returned without an error at step 3, before step 10"):
        train(str(tmp_path), 10, batches=3)
    assert checkpoints.latest(str(tmp_path))[1] == 3


def test_a_session_is_made_anew_a_few_times_when_a_device_fails(tmp_path):
    steps, failures = [], []

    def check():
        if steps[-1] == 5 and len(failures) < 3:
            failures.append(steps[-1])
            raise tf.errors.UnavailableError(None, None, "the device is gone")

    train(str(tmp_path), 8, lambda step: steps.append(step) or float(step), check=check)
    assert steps == [0, 1, 2, 3, *3 * [4, 5], 4, 5, 6, 7]
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-8"))
    assert reader.get_tensor("value") == sum(range(8))


def test_a_session_that_fails_for_ever_is_given_up(tmp_path):
    steps = []

    def check():
        raise tf.errors.UnavailableError(None, None, "the device is gone")

    with pytest.raises(TrainingError, match=r"making a session failed 5 times in .* without a step in between"):
        train(str(tmp_path), 8, lambda step: steps.append(step) or 0.0, check=check)
    assert steps == guards.ATTEMPTS * [0]


def test_patience_has_an_end(monkeypatch):
    def fail():
        raise tf.errors.AbortedError(None, None, "All 10 retry attempts failed.\nmore")

    with pytest.raises(TrainingError, match=r"saving failed 5 times .* All 10 retry attempts failed\. Run again"):
        guards.Patience("saving").call(fail)
    monkeypatch.setattr(guards, "PATIENCE", -1.0)
    with pytest.raises(TrainingError, match="saving failed 1 times"):
        guards.Patience("saving").call(fail)
    with pytest.raises(ZeroDivisionError):
        guards.Patience("saving").call(lambda: 1 / 0)


@pytest.mark.parametrize(
    "error, words",
    [
        (InputError("--flag: no."), "--flag: no."),
        (FileNotFoundError(2, "x", "a/b"), "a/b: No such file or directory."),
        (tf.errors.DataLossError(None, None, "corrupted record at 12"), "A file is damaged: corrupted record at 12."),
        (
            tf.errors.NotFoundError(
                None,
                None,
                "Graph execution error:\n\nDetected at node 'x' defined at\nNode: 'x'\na/b; No such file\n\t[[x]]",
            ),
            "A file or bucket is missing: a/b; No such file.",
        ),
        (
            tf.errors.NotFoundError(None, None, "2 root error(s) found.\n  (0) NOT_FOUND:  a/b; No such file\n (1)"),
            "A file or bucket is missing: a/b; No such file.",
        ),
        (tf.errors.InvalidArgumentError(None, None, "Incompatible shapes"), None),
        (KeyError("x"), None),
    ],
)
def test_what_is_no_mistake_in_the_program_is_told_in_words(error, words):
    assert in_words(error) == words
