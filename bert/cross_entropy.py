"""The cross entropy of scores of many classes, in few passes over them.

The scores of a vocabulary are the largest tensor of pretraining. TensorFlow's own operation takes two exponentials of
each on a CPU, one of them outside of the vector unit.
"""

import tensorflow.compat.v1 as tf

from bert import replicas


def cross_entropy(logits, labels):
    """The negative log likelihood of each row's label, -log(softmax(logits)[label]).

    Args:
      logits: float32 tensor [rows, classes].
      labels: integer tensor [rows].

    Returns:
      Float32 tensor [rows].
    """
    labels = tf.cast(labels, tf.int32)
    if replicas.on_tpu():
        # XLA makes few passes by itself.
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return _cross_entropy(logits, labels)


@tf.custom_gradient
def _cross_entropy(logits, labels):
    places = tf.stack([tf.range(tf.size(labels)), labels], axis=1)  # [rows, 2]
    probabilities = tf.nn.softmax(logits)  # [rows, classes]
    # The highest of them is 1 / sum(exp(logits - max(logits))), which is never small.
    log_sum = tf.reduce_max(logits, -1) - tf.log(tf.reduce_max(probabilities, -1))  # [rows]

    def gradient(dy):
        # softmax(logits) - one_hot(labels), times dy; the probabilities are changed where they lie.
        return tf.tensor_scatter_nd_sub(probabilities * dy[:, tf.newaxis], places, dy), None

    return log_sum - tf.gather_nd(logits, places), gradient
