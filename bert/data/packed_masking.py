"""Masking in the input pipeline of records that hold several pairs in a row."""

import tensorflow.compat.v1 as tf

from bert.data.dynamic_masking import DynamicMasking


class PackedMasking(DynamicMasking):
    """How to mask packed records as they are read: each pair as it would be masked alone.

    The n-th pair of a row has the random numbers of the example at position * max_pairs + n.
    """

    def __call__(self, features, position, stream=0):
        """Masks a batch.

        Args:
          features: dict of int32 Tensors "tokens" [batch, seq], "segment_lengths" [batch, 2 * max_pairs] and
            "next_sentence_labels" [batch, max_pairs], as packed records without masks hold them. The pairs of a row
            have no more than `max_predictions_per_seq` predictions together.
          position, stream: as of `DynamicMasking`, of rows.

        Returns:
          A dict of the features of a packed record with masks.
        """
        tokens, labels = features["tokens"], features["next_sentence_labels"]
        (rows, seq), max_pairs = tokens.shape.as_list(), int(labels.shape[1])
        segment_lengths = tf.reshape(features["segment_lengths"], [-1, max_pairs, 2])  # [batch, max_pairs, 2]
        pair_lengths = tf.reduce_sum(segment_lengths, axis=2)  # [batch, max_pairs]
        is_pair = pair_lengths > 0  # [batch, max_pairs]
        lengths = tf.boolean_mask(pair_lengths, is_pair)  # [pairs]
        row_lengths = tf.reduce_sum(pair_lengths, axis=1)  # [batch]
        alone = {
            "tokens": _cut_anew(tokens, row_lengths, lengths),  # [pairs, seq]
            "segment_lengths": tf.boolean_mask(segment_lengths, is_pair),  # [pairs, 2]
            "next_sentence_labels": tf.boolean_mask(labels, is_pair)[:, tf.newaxis],  # [pairs, 1]
        }
        masked = super().__call__(alone, position * max_pairs, stream, is_there=tf.reshape(is_pair, [-1]))
        first = tf.boolean_mask(tf.cumsum(pair_lengths, axis=1, exclusive=True), is_pair)  # [pairs], place of [CLS]
        masked["masked_lm_positions"] += first[:, tf.newaxis]
        counts = tf.cast(tf.reduce_sum(masked["masked_lm_weights"], axis=1), tf.int32)  # [pairs]
        row_counts = tf.math.unsorted_segment_sum(counts, tf.where(is_pair)[:, 0], tf.shape(tokens)[0])  # [batch]
        laid = {"next_sentence_labels": labels, "pair_lengths": pair_lengths}
        for name in ("input_ids", "segment_ids"):
            laid[name] = tf.ensure_shape(_cut_anew(masked[name], lengths, row_lengths), [rows, seq])
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            predictions = _cut_anew(masked[name], counts, row_counts)  # [batch, predictions]
            laid[name] = tf.ensure_shape(predictions, [rows, self.max_predictions_per_seq])
        return laid


def _cut_anew(values, lengths, new_lengths):
    """The first `lengths` of each row, one after the other, cut into rows of `new_lengths` and filled up with zeros.

    Args:
      values: Tensor [rows, width].
      lengths: int32 Tensor [rows].
      new_lengths: int32 Tensor [new rows], with the same sum.

    Returns:
      Tensor [new rows, width].
    """
    flat = tf.boolean_mask(values, tf.sequence_mask(lengths, tf.shape(values)[1]))
    return tf.RaggedTensor.from_row_lengths(flat, new_lengths, validate=False).to_tensor(shape=[None, values.shape[1]])
