"""The two pretraining losses: masked language model and next sentence prediction."""

import tensorflow.compat.v1 as tf

from bert import cross_entropy, modeling, replicas


def get_masked_lm_output(
    bert_config, input_tensor, output_weights, positions, label_ids, label_weights, total_weight=None
):
    """Predicts the masked tokens.

    Args:
      bert_config, input_tensor, output_weights, positions: as of `masked_lm_logits`.
      label_ids, label_weights, total_weight: as of `masked_lm_loss`.

    Returns:
      What `masked_lm_loss` does, and the log probabilities, float32 [batch_size * max_predictions_per_seq, vocab_size].
    """
    logits = masked_lm_logits(bert_config, input_tensor, output_weights, positions)  # [predictions, vocab]
    return *masked_lm_loss(logits, label_ids, label_weights, total_weight), tf.nn.log_softmax(logits)


def masked_lm_loss(logits, label_ids, label_weights, total_weight=None):
    """The loss of the masked tokens' scores.

    It is sum(w * nll) / (sum(w) + 1e-5) over the predictions of the global batch. Across replicas each one divides by
    the weights of all and multiplies by their number, so that the mean of the replicas' losses (and so of their
    gradients) is that of the global batch, however the predictions are spread over it.

    Args:
      logits: float32 tensor [batch_size * max_predictions_per_seq, vocab_size], as of `masked_lm_logits`.
      label_ids: int32 tensor [batch_size, max_predictions_per_seq], the tokens that were there.
      label_weights: float tensor [batch_size, max_predictions_per_seq], 1 for predictions and 0 for padding.
      total_weight: float scalar, what sum(w) of the global batch is taken to be, if this is one of several
        micro-batches: the mean of their sums.

    Returns:
      The loss (scalar), and the negative log likelihood of each prediction, float32
      [batch_size * max_predictions_per_seq].
    """
    per_example_loss = cross_entropy.cross_entropy(logits, tf.reshape(label_ids, [-1]))
    weights = tf.reshape(tf.cast(label_weights, tf.float32), [-1])
    return _weighted_mean(per_example_loss, weights, total_weight), per_example_loss


def get_next_sentence_output(bert_config, input_tensor, labels, label_weights=None, total_weight=None):
    """Predicts whether the second segment follows the first (0) or is random (1).

    Args:
      bert_config: a `BertConfig`.
      input_tensor: float tensor [batch_size, hidden_size], the pooled output.
      labels: int32 tensor [batch_size] or [batch_size, 1].
      label_weights: float tensor [batch_size], 0 for rows that only fill the batch; default: all ones.
      total_weight: as of `masked_lm_loss`.

    Returns:
      The loss (scalar; its mean over replicas is that of the global batch), the negative log likelihood of
      each row, float32 [batch_size], and the log probabilities, float32 [batch_size, 2].
    """
    logits = next_sentence_logits(bert_config, input_tensor)  # [batch, 2]
    per_example_loss = cross_entropy.cross_entropy(logits, tf.reshape(labels, [-1]))
    if label_weights is None:
        loss = tf.reduce_mean(per_example_loss)
    else:
        weights = tf.reshape(tf.cast(label_weights, tf.float32), [-1])
        loss = _weighted_mean(per_example_loss, weights, total_weight)
    return loss, per_example_loss, tf.nn.log_softmax(logits)


def masked_lm_logits(bert_config, input_tensor, output_weights, positions):
    """Scores of all tokens at the given positions.

    Args:
      bert_config: a `BertConfig`.
      input_tensor: float tensor [batch_size, seq_length, hidden_size], the encoder's output.
      output_weights: float tensor [vocab_size, hidden_size], the word embeddings.
      positions: int32 tensor [batch_size, max_predictions_per_seq].

    Returns:
      Float32 tensor [batch_size * max_predictions_per_seq, vocab_size].
    """
    hidden = gather_indexes(input_tensor, positions)  # [predictions, hidden]
    with tf.variable_scope("cls/predictions", use_resource=True):
        with tf.variable_scope("transform"):
            hidden = modeling.dense(
                hidden,
                bert_config.hidden_size,
                activation=modeling.get_activation(bert_config.hidden_act),
                initializer_range=bert_config.initializer_range,
            )
            hidden = modeling.layer_norm(hidden)
        output_bias = tf.get_variable("output_bias", [bert_config.vocab_size], initializer=tf.zeros_initializer())
        return _logits(hidden, output_weights, output_bias)


def next_sentence_logits(bert_config, input_tensor):
    """Scores of the second segment to follow the first, and to be random.

    Args:
      bert_config: a `BertConfig`.
      input_tensor: float tensor [batch_size, hidden_size], the pooled output.

    Returns:
      Float32 tensor [batch_size, 2].
    """
    with tf.variable_scope("cls/seq_relationship", use_resource=True):
        output_weights = tf.get_variable(
            "output_weights",
            [2, bert_config.hidden_size],
            initializer=modeling.create_initializer(bert_config.initializer_range),
        )
        output_bias = tf.get_variable("output_bias", [2], initializer=tf.zeros_initializer())
        return _logits(input_tensor, output_weights, output_bias)


def gather_indexes(sequence_tensor, positions):
    """Picks the vectors at the given positions of each row.

    Args:
      sequence_tensor: float tensor [batch_size, seq_length, width].
      positions: int32 tensor [batch_size, n].

    Returns:
      Float tensor [batch_size * n, width].
    """
    batch_size, seq_length, width = modeling.get_shape_list(sequence_tensor, expected_rank=3)
    row_starts = tf.expand_dims(tf.range(batch_size, dtype=tf.int32) * seq_length, 1)  # [batch, 1]
    flat_positions = tf.reshape(tf.cast(positions, tf.int32) + row_starts, [-1])
    return tf.gather(tf.reshape(sequence_tensor, [-1, width]), flat_positions)


def _logits(x, weights, bias):
    """Returns x W^T + b in float32."""
    logits = tf.matmul(x, tf.cast(weights, x.dtype), transpose_b=True)
    return tf.nn.bias_add(tf.cast(logits, tf.float32), bias)


def _weighted_mean(values, weights, total_weight=None):
    """This replica's part of the weighted mean over all replicas, times their number."""
    if total_weight is None:
        total_weight = replicas.sum(tf.reduce_sum(weights))
    return replicas.count() * tf.reduce_sum(weights * values) / (total_weight + 1e-5)
