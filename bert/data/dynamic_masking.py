"""Masking in the input pipeline: masks drawn anew each time an example is read.

The distribution is that of `bert.data.masking`. The random numbers of an example are a stretch of one stream of
Philox that its position in the training gives, so that a mask depends on nothing else: neither on the batch an
example is in, nor on whether the training was interrupted. Graph operations only: input pipelines may run on another
machine.

To read fast, most work is elementwise on whole batches. Each word, or each token where words do not matter, gets a
random key, which all its tokens have: visiting words in random order is visiting them in order of their keys. The
tokens with the smallest keys are chosen by the threshold that leaves as many as are wanted. Only where the last word
is too long for what is left, which is in few rows, words are visited one by one from there on.
"""

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from bert.data import masking, records

_PHILOX = 1  # tf.random.Algorithm.PHILOX
_WORDS_PER_COUNT = 4  # uint32 words that Philox gives for each value of its counter
# The finalizer of MurmurHash3 (Appleby, public domain) but for its last step, which hardly changes an order, and an
# increment as of SplitMix: 2^32 / golden ratio.
_INCREMENT = 0x9E3779B9
_SHIFTS_AND_FACTORS = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))
_LAST_KEY = 2**32 - 1


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

    def __call__(self, features, position, stream=0, is_there=None):
        """Masks a batch.

        Args:
          features: dict of int32 Tensors "tokens" [batch, seq], "segment_lengths" [batch, 2] and
            "next_sentence_labels" [batch, 1], as records without masks hold them.
          position: int64 scalar, position of the first example in the training; the others follow it.
          stream: number of the stream of examples, if the training reads several.
          is_there: bool Tensor [positions], for which of the positions from the first on there is an example in the
            batch; None: for all.

        Returns:
          A dict of the seven features of a record with masks.
        """
        tokens = features["tokens"]  # [batch, seq]
        batch, width = tf.shape(tokens)[0], int(tokens.shape[1])
        len_a, len_b = tf.split(features["segment_lengths"], 2, axis=1)  # [batch, 1] each
        lengths = len_a + len_b  # [batch, 1]
        candidates = lengths - 2 - tf.cast(len_b > 0, tf.int32)  # [batch, 1], all but [CLS] and [SEP]
        budget = tf.minimum(budgets(lengths, self.masked_lm_prob, self.max_predictions_per_seq), candidates)
        positions = batch if is_there is None else tf.size(is_there)
        bits = random_bits(self.seed, position, stream, positions, 1 + self.max_predictions_per_seq)
        if is_there is not None:
            bits = tf.boolean_mask(bits, is_there)
        if self.do_whole_word_mask:
            chosen = choose_words(bits[:, :1], tokens, len_a, budget, self.max_predictions_per_seq)
        else:
            chosen = choose_tokens(bits[:, :1], tokens, budget, self.max_predictions_per_seq)
        input_mask = _first_ones(lengths, width)  # [batch, seq]
        return {
            **self._replace(bits[:, 1 : 1 + self.max_predictions_per_seq], tokens, chosen),
            "input_mask": input_mask,
            "segment_ids": input_mask - _first_ones(len_a, width),
            "next_sentence_labels": features["next_sentence_labels"],
        }

    def _replace(self, fate, tokens, chosen):
        """Masks the chosen tokens, and collects them in order: as `masking.replace`."""
        ids = tf.bitwise.bitwise_and(tokens, records.TOKEN_ID)  # [batch, seq]
        width, predictions = int(ids.shape[1]), self.max_predictions_per_seq
        slot = tf.range(predictions)  # [predictions]
        used = slot < _count(chosen)  # [batch, predictions]
        # Where a row has less to predict than there is room for, columns behind it fill it up.
        place = tf.where(tf.concat([chosen, ~used], axis=1))  # [batch * predictions, 2]
        positions = tf.reshape(tf.cast(place[:, 1], tf.int32), [-1, predictions])
        positions = tf.where_v2(used, positions, 0)  # [batch, predictions]
        labels = tf.where_v2(used, tf.gather(ids, positions, batch_dims=1), 0)
        beyond = tf.cast(tf.maximum(fate, masking.KEEP_BELOW) - masking.KEEP_BELOW, tf.float64)
        number = tf.cast(beyond * (len(self.vocab) / (2**32 - masking.KEEP_BELOW)), tf.int32)
        vocabulary_ids = np.fromiter(self.vocab.values(), np.int32)
        is_range = np.array_equal(vocabulary_ids, np.arange(len(vocabulary_ids)))
        replaced = tf.where_v2(
            fate < masking.MASK_BELOW,
            tf.constant(self.vocab["[MASK]"], tf.int32),
            tf.where_v2(fate < masking.KEEP_BELOW, labels, number if is_range else tf.gather(vocabulary_ids, number)),
        )
        change = tf.where_v2(used, replaced - labels, 0)
        changes = tf.raw_ops.DenseBincount(input=positions, size=width, weights=change)  # [batch, seq]
        return {
            "input_ids": tf.ensure_shape(ids + changes, ids.shape),
            "masked_lm_positions": positions,
            "masked_lm_ids": labels,
            "masked_lm_weights": tf.cast(used, tf.float32),
        }


def random_bits(seed, position, stream, batch, size):
    """Random bits of the examples from `position` on: uint32 [batch, at least size]."""
    counts = -(-size // _WORDS_PER_COUNT)
    key = np.random.SeedSequence([seed % (1 << 64), counts]).generate_state(1, np.uint64)
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([batch, counts * _WORDS_PER_COUNT]),
        key=tf.constant(key),
        counter=tf.stack([tf.cast(position * counts, tf.uint64), tf.constant(stream, tf.uint64)]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )


def budgets(lengths, masked_lm_prob, max_predictions_per_seq):
    """As `masking.budgets`: int32, of the shape of the int32 Tensor `lengths`."""
    # tf.round rounds half to even, as NumPy does.
    rounded = tf.cast(tf.round(tf.cast(lengths, tf.float64) * masked_lm_prob), tf.int32)
    return tf.minimum(tf.maximum(rounded, 1), max_predictions_per_seq)


def choose_tokens(bits, tokens, budget, most):
    """Chooses tokens at random.

    Args:
      bits: uint32 [batch, 1].
      tokens: int32 [batch, seq], as records without masks hold them.
      budget: int32 [batch, 1], how many tokens to choose; there are as many that may be.
      most: int, no budget is larger.

    Returns:
      bool [batch, seq].
    """
    may_be, _ = _candidates(tokens)
    keys = _keys(bits, tf.range(int(tokens.shape[1])), may_be)
    return keys < _bound(keys, budget, most)


def choose_words(bits, tokens, len_a, budget, most):
    """Visits words in random order, and takes each if it fits in what is left of the budget.

    Args:
      bits, tokens, budget, most: as of `choose_tokens`.
      len_a: int32 [batch, 1], number of tokens of [CLS] A [SEP].

    Returns:
      bool [batch, seq].
    """
    may_be, place = _candidates(tokens)
    first = tf.range(int(tokens.shape[1])) - place  # [batch, seq], where the word of a token begins, less 1
    keys = _keys(bits, first, may_be)
    bound = _bound(keys, budget, most)
    # The last word may be too long: then what comes before it is chosen.
    bound -= tf.cast(_count(keys < bound) > budget, tf.uint32)
    chosen = keys < bound
    left = budget - _count(chosen)

    rows = tf.where(left[:, 0] > 0)[:, 0]
    place, first, keys, may_be, bound, len_a = (
        tf.gather(values, rows) for values in (place, first, keys, may_be, bound, len_a)
    )
    column = tf.range(int(tokens.shape[1]))
    # A word that goes on in B does so after a [SEP], at which it seems to end.
    sizes = place - tf.cast((column >= len_a) & (first + 1 < len_a), tf.int32)
    is_last = may_be & (tf.pad(place[:, 1:], [[0, 0], [0, 1]]) <= 1)

    def visit(chosen, left, visited, _):
        may_follow = is_last & (keys > visited) & (sizes <= left)  # [rows, seq]
        following = tf.reduce_min(tf.where_v2(may_follow, keys, _LAST_KEY), axis=1, keepdims=True)
        is_any = tf.reduce_any(may_follow, axis=1, keepdims=True)  # [rows, 1]
        word = tf.equal(keys, following) & may_be & is_any
        size = _count(word)
        fits = size <= left
        left -= tf.where_v2(fits, size, 0)
        return chosen | (word & fits), left, following, tf.reduce_any(is_any & (left > 0))

    more, _, _, _ = tf.while_loop(
        lambda *state: state[-1],
        visit,
        (tf.gather(chosen, rows), tf.gather(left, rows), bound, tf.size(rows) > 0),
    )
    return tf.tensor_scatter_nd_update(chosen, rows[:, tf.newaxis], more)


def _candidates(tokens):
    """What may be masked, bool [batch, seq], and the place of each token in its word, from 1 on, int32 [batch, seq]."""
    place = tf.bitwise.right_shift(tf.bitcast(tokens, tf.uint32), tf.constant(records.TOKEN_ID_BITS, tf.uint32))
    return place > 0, tf.bitcast(place, tf.int32)


def _keys(bits, words, may_be):
    """Random keys of words, different ones for different words: uint32 [batch, seq], the last one of what may not be.

    Args:
      bits: uint32 [batch, 1].
      words: int32 [seq] or [batch, seq].
      may_be: bool [batch, seq].
    """
    keys = bits + tf.bitcast(words, tf.uint32) * tf.constant(_INCREMENT, tf.uint32)
    for shift, factor in _SHIFTS_AND_FACTORS:
        keys = tf.bitwise.bitwise_xor(keys, tf.bitwise.right_shift(keys, tf.constant(shift, tf.uint32))) * factor
    return tf.bitwise.bitwise_or(keys, tf.cast(may_be, tf.uint32) - 1)


def _bound(keys, budget, most):
    """What `budget` of the keys of each row are below, and the last key never is: uint32 [batch, 1]."""
    # Which key that is must be one number for all rows: keys that come before all others fill them up.
    fill = tf.where_v2(tf.range(most) < most - budget, tf.constant(0, tf.uint32), _LAST_KEY)  # [batch, most]
    largest = tf.raw_ops.NthElement(input=tf.concat([keys, fill], axis=1), n=most - 1)
    return tf.minimum(largest, _LAST_KEY - 1)[:, tf.newaxis] + 1


def _count(which):
    return tf.reduce_sum(tf.cast(which, tf.int32), axis=1, keepdims=True)  # [batch, 1]


def _first_ones(counts, width):
    """Rows of ones, as many as `counts`, int32 [batch, 1], and zeros: int32 [batch, width]."""
    return tf.gather(tf.constant(np.tri(width + 1, width, -1, np.int32)), counts[:, 0])
