"""Tests of `bert.training.accumulation`."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from numpy_bert import random_batch, small_config

from bert.training import pretraining, trainer
from bert.training.devices import Device

BATCH_SIZE = 8


def train(num_accumulation_steps, steps, dropout=0.0, first_step=0, recompute_grad=False, **optimizer):
    """Pairs of loss and gradient norm of some steps, and the variables after them."""
    rng = np.random.default_rng(0)
    batches = [random_batch(small_config(dropout), rng, BATCH_SIZE) for _ in range(steps)]
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        features = {name: tf.placeholder(value.dtype, value.shape) for name, value in batches[0].items()}
        spec = {
            name: tf.FixedLenFeature(value.shape[1:], tf.int64 if value.dtype == np.int32 else tf.float32)
            for name, value in batches[0].items()
        }
        step = tf.train.get_or_create_global_step()
        schedule = trainer.Schedule(
            BATCH_SIZE, 1e-2, 100, 2, num_accumulation_steps=num_accumulation_steps, optimizer=optimizer
        )
        pretrainer = pretraining.Pretrainer(
            small_config(dropout), Device(False, "CPU"), "unused", seed=1, recompute_grad=recompute_grad
        )
        stretch = trainer.Stretch(0, 100, schedule, spec, None)
        made = pretrainer.training_model_fn(stretch)(features, None, tf.estimator.ModeKeys.TRAIN, {})
        gradient_norm = made.host_call[1][0][0, 0]  # the first by name
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            step.load(first_step, session)
            losses = []
            for batch in batches:
                feed = {features[name]: value for name, value in batch.items()}
                losses.append(session.run([made.loss, gradient_norm, made.train_op], feed)[:2])
            variables = session.run({variable.op.name: variable for variable in tf.global_variables()})
    return losses, variables


def test_micro_batches_make_the_step_of_the_whole_batch():
    whole, variables = train(1, steps=4, optimizer="lamb")
    parts, others = train(4, steps=4, optimizer="lamb")
    for (loss, norm), (other, other_norm) in zip(whole, parts):
        assert other == pytest.approx(loss, rel=1e-5)
        assert other_norm == pytest.approx(norm, rel=1e-4)
    assert others.keys() == variables.keys()
    for name, value in variables.items():
        np.testing.assert_allclose(others[name], value, atol=3e-5, err_msg=name)


def test_layers_computed_once_more_have_the_same_dropout_and_gradients():
    kept, variables = train(2, steps=3, dropout=0.3)
    computed, others = train(2, steps=3, dropout=0.3, recompute_grad=True)
    assert [loss for loss, _ in computed] == pytest.approx([loss for loss, _ in kept], rel=1e-5)
    assert others.keys() == variables.keys()
    for name, value in variables.items():
        np.testing.assert_allclose(others[name], value, atol=3e-5, err_msg=name)


def test_dropout_differs_between_micro_batches_and_repeats_with_the_step():
    first, _ = train(2, steps=1, dropout=0.5)
    again, _ = train(2, steps=1, dropout=0.5)
    later, _ = train(2, steps=1, dropout=0.5, first_step=7)
    assert first[0][0] == again[0][0] != later[0][0]
