"""What the heads of fine-tuned models compute, under the original's variable names."""

import tensorflow.compat.v1 as tf

from bert import modeling


def class_logits(pooled, num_outputs):
    """Scores of the classes.

    The variables are output_weights [outputs, hidden] and output_bias [outputs].

    Args:
      pooled: float Tensor [batch, hidden], the pooled first token.
      num_outputs: number of classes; 1 for regression.

    Returns:
      Float Tensor [batch, outputs].
    """
    return _linear(pooled, num_outputs)


def probabilities(logits, label_kind):
    """What `class_logits` and `token_logits` mean.

    Args:
      logits: float Tensor [..., outputs].
      label_kind: "single" (softmax), "multi" (a sigmoid for each label), or "regression" (the output itself).

    Returns:
      Float Tensor [..., outputs].
    """
    if label_kind == "single":
        return tf.exp(tf.nn.log_softmax(logits))
    return tf.sigmoid(logits) if label_kind == "multi" else logits


def span_logits(vectors):
    """Scores of each token to be the first and the last of an answer.

    The variables are cls/squad/output_weights [2, hidden] and cls/squad/output_bias [2].

    Args:
      vectors: float Tensor [batch, seq, hidden], the encoder's output.

    Returns:
      Two float Tensors [batch, seq].
    """
    with tf.variable_scope("cls/squad"):
        logits = _linear(vectors, 2)  # [batch, seq, 2]
    return tf.unstack(logits, axis=-1)


def token_logits(vectors, num_labels):
    """Scores of the labels of each token.

    The variables are output_weights [labels, hidden] and output_bias [labels].

    Args:
      vectors: float Tensor [batch, seq, hidden], the encoder's output.
      num_labels: number of labels.

    Returns:
      Float Tensor [batch, seq, labels].
    """
    return _linear(vectors, num_labels)


def _linear(x, num_outputs):
    weights = tf.get_variable(
        "output_weights",
        [num_outputs, x.shape.as_list()[-1]],
        initializer=modeling.create_initializer(0.02),
        use_resource=True,
    )
    bias = tf.get_variable("output_bias", [num_outputs], initializer=tf.zeros_initializer(), use_resource=True)
    return tf.tensordot(tf.cast(x, tf.float32), weights, [[-1], [1]]) + bias
