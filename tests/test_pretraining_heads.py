"""The pretraining losses: padding, weights, shapes. Their values are tested with the model's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bert import modeling, pretraining_heads

CONFIG = modeling.BertConfig(11, hidden_size=8, initializer_range=0.5)


def masked_lm(weights, label_ids, seed=0):
    """Returns (loss, per-example loss, log probabilities) for random vectors."""
    rng = np.random.default_rng(seed)
    rows, predictions = np.shape(weights)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        outputs = pretraining_heads.get_masked_lm_output(
            CONFIG,
            tf.constant(rng.normal(size=(4, 6, 8))[:rows], tf.float32),
            tf.constant(rng.normal(size=(11, 8)), tf.float32),
            tf.constant(rng.integers(0, 6, (4, 3))[:rows, :predictions], tf.int32),
            tf.constant(label_ids, tf.int32),
            tf.constant(weights, tf.float32),
        )
        session.run(tf.global_variables_initializer())
        names = [v.op.name for v in tf.trainable_variables()]
        return names, session.run(outputs)


def test_variables_and_shapes():
    names, (loss, per_example_loss, log_probs) = masked_lm(np.ones((4, 3)), np.full((4, 3), 2))
    assert names == [
        "cls/predictions/transform/dense/kernel",
        "cls/predictions/transform/dense/bias",
        "cls/predictions/transform/LayerNorm/beta",
        "cls/predictions/transform/LayerNorm/gamma",
        "cls/predictions/output_bias",
    ]
    assert loss.shape == ()
    assert per_example_loss.shape == (12,)
    assert log_probs.shape == (12, 11)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(per_example_loss, -log_probs[:, 2], rtol=1e-5)
    assert loss == pytest.approx(per_example_loss.mean(), rel=1e-5)


def test_padding_does_not_disturb():
    weights = np.ones((4, 3))
    weights[2:] = 0
    labels = np.arange(12).reshape(4, 3) % 11
    _, padded = masked_lm(weights, labels)
    _, alone = masked_lm(weights[:2], labels[:2])
    assert padded[0] == pytest.approx(alone[0], rel=1e-6)
    _, nothing = masked_lm(np.zeros((4, 3)), labels)
    assert nothing[0] == 0


def test_next_sentence_ignores_rows_of_weight_0():
    rng = np.random.default_rng(0)
    pooled = rng.normal(size=(5, 8)).astype(np.float32)
    labels = np.array([[0], [1], [1], [0], [0]])
    with tf.Graph().as_default(), tf.Session() as session:
        losses = []
        for rows, weights in ((5, [1, 1, 1, 0, 0]), (3, None), (3, [1, 1, 1])):
            with tf.variable_scope("", reuse=tf.AUTO_REUSE):
                loss, _, log_probs = pretraining_heads.get_next_sentence_output(
                    CONFIG, tf.constant(pooled[:rows]), tf.constant(labels[:rows]), weights
                )
            losses.append(loss)
        session.run(tf.global_variables_initializer())
        assert [v.op.name for v in tf.trainable_variables()] == [
            "cls/seq_relationship/output_weights",
            "cls/seq_relationship/output_bias",
        ]
        losses, log_probs = session.run([losses, log_probs])
    expected = -log_probs[np.arange(3), labels[:3, 0]].mean()
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_gather_indexes():
    x = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.placeholder(tf.float32, [None, None, 3])
        output = pretraining_heads.gather_indexes(rows, tf.constant([[4, 0], [1, 1]], tf.int64))
        output = session.run(output, {rows: x})
    np.testing.assert_array_equal(output, [x[0, 4], x[0, 0], x[1, 1], x[1, 1]])
