"""Examples in batches without padding against the same examples in padded ones: outputs, losses and gradients."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from numpy_bert import load_variables, random_variables, small_config

from bert.data import batching
from bert.training import finetuning
from bert.training.example_encoder import EncodedExamples

SEQ, BATCH = 24, 8
CONFIG = small_config(max_position_embeddings=SEQ)


def examples():
    """Features of examples of many lengths, the first of them full."""
    rng = np.random.default_rng(2)
    lengths = np.array([SEQ, 5, 7, 2, 12, 3, 9, 6])
    mask = (np.arange(SEQ) < lengths[:, None]).astype(np.int32)
    ends = rng.integers(0, lengths, (2, BATCH)).astype(np.int32)
    return {
        "input_ids": rng.integers(1, 31, (BATCH, SEQ)).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(SEQ) >= lengths[:, None] // 2).astype(np.int32) * mask,
        "label_ids": rng.integers(0, 3, (BATCH, 1)).astype(np.int32),
        "start_positions": ends[0][:, None],
        "end_positions": ends[1][:, None],
    }


def lay(features, kind):
    if kind == batching.BUCKETED:
        features = {name: value[1:] for name, value in features.items()}  # without the full one, there is much to cut
        return batching.bucket(features)
    if kind == batching.PACKED:
        return batching.pack_features(features, BATCH, 10)
    return features


def run(head, kind, of, one_hot=False):
    """Losses, outputs, and gradients by variable, in the order of the examples."""
    with tf.Graph().as_default(), tf.Session() as session:
        model_features = lay({name: tf.constant(value) for name, value in of.items()}, kind)
        model = EncodedExamples(model_features, CONFIG, True, use_one_hot_embeddings=one_hot)
        result = head(model, model_features, False)
        variables = tf.trainable_variables()
        # Of the examples that are in all batches, the mean.
        loss = tf.reduce_mean(result.losses[-7:])
        gradients = [tf.convert_to_tensor(g) for g in tf.gradients(loss, variables) if g is not None]
        shapes = {v.op.name: v.shape.as_list() for v in variables}
        load_variables(session, variables, random_variables(shapes, np.random.default_rng(1)))
        return session.run((result.losses, result.outputs, gradients))


@pytest.mark.parametrize("kind", [batching.BUCKETED, batching.PACKED])
def test_a_classifier_and_its_gradient_are_those_of_padded_batches(kind):
    head = finetuning.classifier(CONFIG, 3, "single")
    losses, outputs, gradients = run(head, batching.PADDED, examples())
    found = run(head, kind, examples(), one_hot=kind == batching.PACKED)
    count = len(found[0])
    np.testing.assert_allclose(found[0], losses[-count:], atol=1e-5)
    np.testing.assert_allclose(found[1]["probabilities"], outputs["probabilities"][-count:], atol=1e-5)
    assert len(found[2]) == len(gradients)
    for mine, padded in zip(found[2], gradients):
        np.testing.assert_allclose(mine, padded, atol=1e-5 * max(1, np.abs(padded).max()))


@pytest.mark.parametrize("kind", [batching.BUCKETED, batching.PACKED])
def test_spans_are_those_of_padded_batches_without_the_padding(kind):
    head = finetuning.span_finder(CONFIG)
    of = examples()
    _, outputs, _ = run(head, batching.PADDED, of)
    losses, found, _ = run(head, kind, of)
    count = len(losses)
    expected = np.zeros(BATCH)
    for name in ("start", "end"):
        logits = np.where(of["input_mask"], outputs[f"{name}_logits"], -1e4)
        real = of["input_mask"][-count:] == 1
        np.testing.assert_allclose(found[f"{name}_logits"][real], logits[-count:][real], atol=1e-5)
        assert (found[f"{name}_logits"][~real] < -9000).all()
        log_probs = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        log_probs -= logits.max(1, keepdims=True)
        expected -= 0.5 * np.take_along_axis(log_probs, of[f"{name}_positions"], 1)[:, 0]
    np.testing.assert_allclose(losses, expected[-count:], atol=1e-5)


def test_packed_batches_have_no_shape_that_is_not_known():
    with tf.Graph().as_default() as graph:
        features = {name: tf.placeholder(tf.int32, value.shape) for name, value in examples().items()}
        packed = {
            name: tf.placeholder(tf.int32, value.shape)
            for name, value in batching.pack_features(features, BATCH, 10).items()
        }
        before = set(graph.get_operations())
        for head in (finetuning.classifier(CONFIG, 3, "single"), finetuning.span_finder(CONFIG)):
            with tf.variable_scope(None, "model"):
                head(EncodedExamples(packed, CONFIG, True, use_one_hot_embeddings=True), packed, True)
        for operation in set(graph.get_operations()) - before:
            for tensor in operation.outputs:
                assert tensor.shape.is_fully_defined(), tensor
