"""Pretraining losses of pairs that share rows against those of the same pairs alone, and their gradients."""

import numpy as np
import tensorflow.compat.v1 as tf
from numpy_bert import load_variables, random_variables, small_config
from packed_records import take_apart

from bert.data import packing
from bert.training import accumulation, devices, pretraining

SEQ, PREDICTIONS = 24, 6
CONFIG = small_config(max_position_embeddings=SEQ)


def rows():
    """Features of four packed records: full with one pair, full with three, and two that are not full."""
    rng = np.random.default_rng(2)
    is_pair = np.array([[1, 0, 0], [1, 1, 1], [1, 1, 0], [1, 0, 0]], bool)
    lengths = np.array([SEQ, 12, 5, 7, 9, 13, 6])
    is_token = np.arange(SEQ) < lengths[:, None]
    budgets = np.array([6, 3, 1, 2, 2, 4, 1])
    is_used = np.arange(PREDICTIONS) < budgets[:, None]
    positions = np.stack([rng.permutation(length)[np.arange(PREDICTIONS) % length] for length in lengths])
    alone = {
        "input_ids": rng.integers(1, 31, is_token.shape) * is_token,
        "input_mask": is_token.astype(int),
        "segment_ids": (np.arange(SEQ) >= lengths[:, None] // 2) * is_token,
        "masked_lm_positions": (positions * is_used).astype(np.uint16),
        "masked_lm_ids": rng.integers(0, 31, is_used.shape) * is_used,
        "masked_lm_weights": is_used.astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (len(lengths), 1)),
    }
    laid = packing.lay(alone, lengths, is_pair)
    return {name: value.astype(np.float32 if name.endswith("weights") else np.int32) for name, value in laid.items()}


def initialised(session):
    """The trainable variables of the session's graph, given values that follow from their names."""
    variables = tf.trainable_variables()
    shapes = {variable.op.name: variable.shape.as_list() for variable in variables}
    load_variables(session, variables, random_variables(shapes, np.random.default_rng(1)))


def losses_of_each(of):
    """Losses of all predictions and of all pairs that are there, in order."""
    with tf.Graph().as_default(), tf.Session() as session:
        _, outputs = pretraining.build_losses(CONFIG, {name: tf.constant(value) for name, value in of.items()}, False)
        initialised(session)
        found = session.run(outputs)
    return {task: found[f"{task}_losses"][found[f"{task}_weights"] > 0] for task in ("masked_lm", "next_sentence")}


def step(of, num_micro_batches=1):
    """The loss and the metrics of a batch, and its gradients by variable."""
    trainer = pretraining.Pretrainer(CONFIG, devices.Device(False, "CPU"), output_dir="", seed=1)
    spec = {name: tf.FixedLenFeature(value.shape[1:], value.dtype) for name, value in of.items()}
    signature = accumulation.signature(lambda batch: trainer.loss_builder(batch)(batch), spec)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        features = {name: tf.constant(value) for name, value in of.items()}
        build = trainer.loss_builder(features, num_micro_batches)
        loss, metrics, pairs = accumulation.gradients(build, features, num_micro_batches, signature)
        initialised(session)
        gradients = {variable.op.name: gradient for gradient, variable in pairs}
        session.run(tf.train.get_global_step().initializer)
        return session.run(({"loss": loss, **metrics}, gradients))


def test_packed_pairs_have_the_losses_and_gradients_that_they_have_alone():
    packed = rows()
    alone = [pair for row in range(4) for pair in take_apart({name: value[row] for name, value in packed.items()})]
    alone = {name: np.stack([pair[name] for pair in alone]) for name in alone[0]}
    expected = losses_of_each(alone)
    assert len(expected["next_sentence"]) == 7 and len(expected["masked_lm"]) == 19
    for name, values in losses_of_each(packed).items():
        np.testing.assert_allclose(values, expected[name], atol=1e-5, err_msg=name)
    expected, gradients = step(alone)
    for num_micro_batches in (1, 2):
        found, packed_gradients = step(packed, num_micro_batches)
        for name, value in expected.items():
            if num_micro_batches == 1 or "loss" in name:
                np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
        assert packed_gradients.keys() == gradients.keys()
        for name, gradient in gradients.items():
            scale = max(1, np.abs(gradient).max())
            np.testing.assert_allclose(packed_gradients[name], gradient, atol=1e-5 * scale, err_msg=name)
