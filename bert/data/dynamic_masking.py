"""Masking in the input pipeline: masks drawn anew each time an example is read.

The distribution is that of `bert.data.masking`. Every random number is a hash of (seed, position of the example in
the training, column), so that a mask depends on nothing else: neither on the batch an example is in, nor on
whether the training was interrupted. Graph operations only: input pipelines may run on another machine.
"""

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from bert.data import masking

# SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): its increment, then the shifts and factors of its finalizer.
_INCREMENT = 0x9E3779B97F4A7C15
_SHIFTS_AND_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
# A sequence has less than 2**16 columns.
_COLUMN_BITS = 16


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """How to mask examples as they are read.

    Attributes:
      vocab: dict from token to id.
      max_predictions_per_seq: most tokens that are masked in an example.
      masked_lm_prob: share of the tokens that is masked.
      do_whole_word_mask: whether to mask all pieces of a word together.
      seed: int.
    """

    vocab: dict
    max_predictions_per_seq: int
    masked_lm_prob: float
    do_whole_word_mask: bool
    seed: int

    def __call__(self, features, positions):
        """Masks a batch.

        Args:
          features: dict of int32 Tensors "input_ids" [batch, seq], "segment_lengths" [batch, 2] and
            "next_sentence_labels" [batch, 1], as records without masks hold them.
          positions: int64 [batch], positions of the examples in the training.

        Returns:
          A dict of the seven features of a record with masks.
        """
        ids = features["input_ids"]  # [batch, seq]
        len_a, len_b = tf.split(features["segment_lengths"], 2, axis=1)  # [batch, 1] each
        width = ids.shape[1]
        column = tf.range(width)[tf.newaxis]  # [1, seq]
        lengths = len_a + len_b  # [batch, 1]
        is_token = column < lengths  # [batch, seq]
        is_special = tf.equal(column, 0) | tf.equal(column, len_a - 1) | tf.equal(column, lengths - 1)
        is_candidate = is_token & ~is_special  # [batch, seq]
        bits = random_bits(self.seed, positions, width)  # uint64 [batch, seq]
        # One half of the bits chooses tokens, the other what becomes of them.
        order = tf.cast(tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64)), tf.int64)
        fate = tf.cast(tf.bitwise.bitwise_and(bits, tf.constant(2**32 - 1, tf.uint64)), tf.int64)
        budget = budgets(lengths, self.masked_lm_prob, self.max_predictions_per_seq)  # [batch, 1]
        if self.do_whole_word_mask:
            continues = np.zeros(max(self.vocab.values()) + 1, bool)
            continues[[number for token, number in self.vocab.items() if token.startswith("##")]] = True
            chosen = choose_words(order, is_candidate, tf.gather(tf.constant(continues), ids), budget)
        else:
            chosen = choose_tokens(order, is_candidate, budget, self.max_predictions_per_seq)
        return {
            **self._replace(fate, ids, chosen),
            "input_mask": tf.cast(is_token, tf.int32),
            "segment_ids": tf.cast(is_token & (column >= len_a), tf.int32),
            "next_sentence_labels": features["next_sentence_labels"],
        }

    def _replace(self, fate, ids, chosen):
        """Masks the chosen tokens, and collects them in order: as `masking.replace`."""
        batch = tf.shape(ids, out_type=tf.int64)[0]
        place = tf.where(chosen)  # int64 [chosen, 2], row by row
        number = tf.cast(chosen, tf.int64)  # [batch, seq]
        counts = tf.reduce_sum(number, axis=1, keepdims=True)  # [batch, 1]
        rank = tf.gather_nd(tf.cumsum(number, axis=1, exclusive=True), place)  # [chosen]
        slot = tf.stack([place[:, 0], rank], axis=1)  # [chosen, 2]
        shape = tf.stack([batch, tf.constant(self.max_predictions_per_seq, tf.int64)])
        tokens, fate = tf.gather_nd(ids, place), tf.gather_nd(fate, place)  # [chosen]
        vocabulary_ids = tf.constant(list(self.vocab.values()), tf.int32)
        beyond = tf.maximum(fate - masking.KEEP_BELOW, 0)  # uniform itself, where the token is replaced by any
        drawn = tf.gather(vocabulary_ids, beyond * len(self.vocab) // (2**32 - masking.KEEP_BELOW))  # [chosen]
        replaced = tf.where_v2(
            fate < masking.MASK_BELOW,
            tf.constant(self.vocab["[MASK]"], tf.int32),
            tf.where_v2(fate < masking.KEEP_BELOW, tokens, drawn),
        )  # [chosen]

        def collect(values):
            collected = tf.scatter_nd(slot, values, shape)
            return tf.ensure_shape(collected, [None, self.max_predictions_per_seq])

        used = tf.range(self.max_predictions_per_seq, dtype=tf.int64) < counts  # [batch, predictions]
        return {
            "input_ids": tf.tensor_scatter_nd_update(ids, place, replaced),
            "masked_lm_positions": collect(tf.cast(place[:, 1], tf.int32)),
            "masked_lm_ids": collect(tokens),
            "masked_lm_weights": tf.cast(used, tf.float32),
        }


def random_bits(seed, positions, width):
    """A hash of (seed, position, column): uint64 [batch, width] for int64 `positions` [batch]."""
    # A hashed seed, since seeds that are neighbours must not give streams that are shifted copies of each other.
    (start,) = np.random.SeedSequence(seed % (1 << 64)).generate_state(1, np.uint64)
    row = tf.bitwise.left_shift(tf.cast(positions, tf.uint64), tf.constant(_COLUMN_BITS, tf.uint64))  # [batch]
    counter = row[:, tf.newaxis] + tf.cast(tf.range(width), tf.uint64)  # [batch, width]
    bits = counter * tf.constant(_INCREMENT, tf.uint64) + tf.constant(start, tf.uint64)
    for shift, factor in _SHIFTS_AND_FACTORS:
        bits = _xor_shift(bits, shift) * tf.constant(factor, tf.uint64)
    return _xor_shift(bits, _LAST_SHIFT)


def budgets(lengths, masked_lm_prob, max_predictions_per_seq):
    """As `masking.budgets`: int64, of the shape of the int32 Tensor `lengths`."""
    # tf.round rounds half to even, as NumPy does.
    rounded = tf.cast(tf.round(tf.cast(lengths, tf.float64) * masked_lm_prob), tf.int64)
    return tf.minimum(tf.maximum(rounded, 1), max_predictions_per_seq)


def choose_tokens(order, is_candidate, budget, max_predictions_per_seq):
    """Chooses the candidates that are first by random keys.

    Args:
      order: int64 [batch, seq], uniform on 0 .. 2**32 - 1.
      is_candidate: bool [batch, seq], False at special tokens and padding.
      budget: int64 [batch, 1], how many tokens to choose; all, if there are fewer.
      max_predictions_per_seq: the largest possible budget.

    Returns:
      bool [batch, seq].
    """
    keys = _distinct_keys(order, is_candidate)
    best = tf.math.top_k(keys, min(max_predictions_per_seq, keys.shape[1])).values  # [batch, predictions]
    last = tf.minimum(budget, best.shape[1]) - 1  # [batch, 1]
    return is_candidate & (keys >= tf.gather(best, last, batch_dims=1))


def choose_words(order, is_candidate, continues, budget):
    """Chooses whole words, in random order, each if it fits in what is left of the budget.

    Args:
      order: int64 [batch, seq], uniform on 0 .. 2**32 - 1.
      is_candidate: bool [batch, seq], False at special tokens and padding.
      continues: bool [batch, seq], whether a token continues the word of the candidate before it.
      budget: int64 [batch, 1], how many tokens to choose at most.

    Returns:
      bool [batch, seq].
    """
    shape = tf.shape(order, out_type=tf.int64)  # [2]
    row = tf.range(shape[0])[:, tf.newaxis] * shape[1]  # [batch, 1], where rows begin in flat arrays
    counts = tf.cumsum(tf.cast(is_candidate, tf.int64), axis=1)  # [batch, seq]
    # What nothing precedes opens a word, even if it looks like the continuation of one.
    opens = is_candidate & (~continues | tf.equal(counts, 1))  # [batch, seq]
    word = tf.maximum(tf.cumsum(tf.cast(opens, tf.int64), axis=1) - 1, 0)  # [batch, seq]
    sizes = tf.scatter_nd(
        tf.reshape(word + row, [-1, 1]), tf.reshape(tf.cast(is_candidate, tf.int64), [-1]), shape[:1] * shape[1]
    )  # [batch * seq], by word; 0 beyond the last word
    # What follows, [batch, seq] each, is by place in the random order.
    visit = tf.argsort(_distinct_keys(order, tf.reshape(sizes, shape) > 0), axis=1, direction="DESCENDING")
    visit = tf.cast(visit, tf.int64) + row
    size = tf.gather(sizes, visit)

    # In each round, words too large for what is left are passed over, and the next ones taken as far as they fit.
    # The first that does not fit is then too large, so that the largest size left falls from round to round.
    def take(taken, left, waiting):
        wanted = tf.where_v2(waiting, size, tf.zeros_like(size))
        fits = waiting & (tf.cumsum(wanted, axis=1) <= left)
        left -= tf.reduce_sum(tf.where_v2(fits, size, tf.zeros_like(size)), axis=1, keepdims=True)
        return taken | fits, left, waiting & ~fits & (size <= left)

    taken, _, _ = tf.while_loop(
        lambda taken, left, waiting: tf.reduce_any(waiting),
        take,
        (tf.zeros_like(size, tf.bool), budget, (size > 0) & (size <= budget)),
    )
    by_word = tf.scatter_nd(tf.reshape(visit, [-1, 1]), tf.reshape(taken, [-1]), shape[:1] * shape[1])
    return is_candidate & tf.gather(by_word, word + row)


def _distinct_keys(order, is_candidate):
    """Random keys by which the candidates are sorted first; the column breaks ties."""
    column = tf.range(order.shape[1], dtype=tf.int64)
    keys = tf.bitwise.left_shift(order + 1, tf.constant(_COLUMN_BITS, tf.int64)) + column
    return tf.where_v2(is_candidate, keys, tf.zeros_like(keys))


def _xor_shift(bits, shift):
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint64)))
