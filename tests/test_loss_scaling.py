"""Trainings in other dtypes: their course beside float32's, and the loss scale of float16."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from numpy_bert import random_batch, small_config

from bert import loss_scaling, modeling, optimization
from bert.errors import InputError
from bert.training import pretraining, trainer
from bert.training.devices import Device

CONFIG = small_config()
STEPS = 60


def pretrainer(dtype, output_dir="unused"):
    return pretraining.Pretrainer(
        CONFIG, Device(False, "CPU"), output_dir, seed=1, compute_dtype=modeling.COMPUTE_DTYPES[dtype]
    )


def train(dtype, steps, num_accumulation_steps=1):
    """Losses of some steps on one batch, and the variables after them."""
    batch = random_batch(CONFIG, np.random.default_rng(0), 8)
    spec = {
        name: tf.FixedLenFeature(value.shape[1:], tf.int64 if value.dtype == np.int32 else tf.float32)
        for name, value in batch.items()
    }
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        tf.train.get_or_create_global_step()
        schedule = trainer.Schedule(8, 3e-3, 4 * steps, 5, num_accumulation_steps=num_accumulation_steps)
        model_fn = pretrainer(dtype).training_model_fn(trainer.Stretch(0, steps, schedule, spec, None))
        made = model_fn({name: tf.constant(value) for name, value in batch.items()}, None, "train", {})
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            losses = [session.run([made.loss, made.train_op])[0] for _ in range(steps)]
            return losses, session.run({variable.op.name: variable for variable in tf.global_variables()})


def test_losses_agree_with_those_of_float32():
    expected, float32_variables = train("fp32", STEPS)
    assert expected[-1] < expected[0] / 2
    for dtype, accumulation, extra in (
        ("bf16", 1, set()),
        ("fp16", 2, {loss_scaling.SCALE, loss_scaling.GOOD_STEPS}),
    ):
        losses, variables = train(dtype, STEPS, accumulation)
        assert losses != expected
        for part in range(0, STEPS, 20):
            assert np.mean(losses[part : part + 20]) == pytest.approx(np.mean(expected[part : part + 20]), rel=0.01)
        assert set(variables) == set(float32_variables) | extra
        assert all(variables[name].dtype == value.dtype for name, value in float32_variables.items())
    assert variables[loss_scaling.SCALE] == loss_scaling.INITIAL_SCALE
    assert variables[loss_scaling.GOOD_STEPS] == STEPS


def test_a_step_whose_gradient_overflows_changes_nothing_but_the_scale():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", [2], initializer=tf.ones_initializer(), use_resource=True)
        factor = tf.get_variable("factor", [], initializer=tf.constant_initializer(3.0), trainable=False)
        scale = loss_scaling.LossScale()
        # Infinite once the scaled gradient exceeds what float16 can hold.
        loss = scale.scaled(tf.reduce_sum(tf.cast(tf.cast(x, tf.float16), tf.float32) * factor))
        pairs = optimization.dense_gradients(loss)
        train_op = optimization.training_step(loss, pairs, 0.1, 100, 0, loss_scale=scale)
        [norm] = tf.get_collection(optimization.GRADIENT_NORM)
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        session.run(tf.global_variables_initializer())

        def run(scale, good_steps):
            variables[loss_scaling.SCALE].load(scale, session)
            variables[loss_scaling.GOOD_STEPS].load(good_steps, session)
            before = session.run(variables)
            shown = session.run([norm, train_op])[0]
            after = session.run(variables)
            assert after["global_step"] == before["global_step"] + 1
            changed = {name for name in after if (before[name] != after[name]).any()} - {"global_step"}
            changed = {name for name in changed if not name.startswith("loss_scale/")}
            return shown, changed, after[loss_scaling.SCALE], after[loss_scaling.GOOD_STEPS]

        moved = {"x", "x/adam_m", "x/adam_v"}
        assert run(2.0**16, 7) == (0, set(), 2.0**15, 0)
        assert run(2.0**12, 7) == (pytest.approx(3 * 2**0.5), moved, 2.0**12, 8)
        assert run(2.0**12, loss_scaling.GROWTH_STEPS - 1) == (pytest.approx(3 * 2**0.5), moved, 2.0**13, 0)
        # What is not finite without a scale is not to be skipped for ever: the guards stop at the next loss.
        factor.load(np.inf, session)
        assert run(2.0, 7) == (0, set(), 1, 0)
        assert run(1.0, 7)[1] == moved and np.isnan(session.run(x)).all()


def test_another_dtypes_checkpoint_is_refused(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.get_or_create_global_step()
        session.run(tf.global_variables_initializer())
        saved = tf.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=3)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    stretch = trainer.Stretch(0, 9, trainer.Schedule(8, 1e-4, 9, 0), {}, None)
    with pytest.raises(InputError, match=f"--dtype=fp16: {saved} was trained with another dtype"):
        pretrainer("fp16", str(tmp_path))._train_stretches([stretch])
