"""Masking in the input pipeline: masks drawn anew each time an example is read.

The distribution is that of `bert.data.masking`. The random numbers of an example are a stretch of one stream of
Philox that its position in the training gives, so that a mask depends on nothing else: neither on the batch an
example is in, nor on whether the training was interrupted. Graph operations only: input pipelines may run on another
machine.

To read fast, work is spent on what is masked, not on all there is. Units, which are tokens or whole words, are drawn
with replacement; in the order of their first draws they are as in random order without replacement, and as many
draws as there are units to mask, and some more, will nearly always do. For the rows for which they do not, the units
that were not drawn follow in random order.
"""

import dataclasses
import math
from typing import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from bert.data import masking

_PHILOX = 1  # tf.random.Algorithm.PHILOX
_WORDS_PER_COUNT = 4  # uint32 words that Philox gives for each value of its counter
_SPARE_DRAWS = 16
_MAX_SHARE = 0.9
# The finalizer of MurmurHash3 (Appleby, public domain), and an increment as of SplitMix: 2^32 / golden ratio.
_INCREMENT = 0x9E3779B9
_SHIFTS_AND_FACTORS = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))


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
        ids = tf.bitwise.right_shift(tokens, 1)  # [batch, seq]
        width = int(ids.shape[1])
        len_a, len_b = tf.split(features["segment_lengths"], 2, axis=1)  # [batch, 1] each
        lengths = len_a + len_b  # [batch, 1]
        column = tf.range(width)  # [seq]
        is_token = column < lengths  # [batch, seq]
        row_start = tf.range(tf.shape(ids)[0])[:, tf.newaxis] * width  # [batch, 1], where rows begin in flat arrays
        predictions = self.max_predictions_per_seq
        draws = self._draws(width)
        positions = tf.shape(ids)[0] if is_there is None else tf.size(is_there)
        bits = random_bits(self.seed, position, stream, positions, draws + predictions)
        if is_there is not None:
            bits = tf.boolean_mask(bits, is_there)
        if self.do_whole_word_mask:
            units = word_units(tf.equal(tokens & 1, 0), len_a, len_b, row_start)
        else:
            units = token_units(len_a, len_b, row_start, width)
        budget = budgets(lengths, self.masked_lm_prob, predictions)  # [batch, 1]
        chosen, counts = choose(bits[:, :draws], units, tf.minimum(budget, count_candidates(len_a, len_b)))
        return {
            **self._replace(bits[:, draws : draws + predictions], ids, chosen, counts, len_a, row_start),
            "input_mask": tf.cast(is_token, tf.int32),
            "segment_ids": tf.cast(is_token & (column >= len_a), tf.int32),
            "next_sentence_labels": features["next_sentence_labels"],
        }

    def _draws(self, width):
        """How many units to draw of an example."""
        largest = int(masking.budgets(np.array(width), self.masked_lm_prob, self.max_predictions_per_seq))
        share = min(max(largest / width, self.masked_lm_prob), _MAX_SHARE)
        return math.ceil(largest * -math.log1p(-share) / share) + _SPARE_DRAWS if share else 1 + _SPARE_DRAWS

    def _replace(self, fate, ids, chosen, counts, len_a, row_start):
        """Masks the chosen candidates, and collects them in order: as `masking.replace`."""
        width, predictions = int(ids.shape[1]), self.max_predictions_per_seq
        slot = tf.range(predictions)  # [predictions]
        used = slot < counts  # [batch, predictions]
        number = tf.where_v2(used, tf.cumsum(counts, exclusive=True) + slot, tf.size(chosen))
        candidate = tf.gather(tf.concat([chosen, [0]], 0), number) - row_start  # [batch, predictions], within the row
        positions = tf.where_v2(used, candidate + 1 + tf.cast(candidate >= len_a - 2, tf.int32), 0)
        place = positions + row_start
        tokens = tf.gather(tf.reshape(ids, [-1]), place)
        vocabulary_ids = np.fromiter(self.vocab.values(), np.int32)
        beyond = tf.cast(tf.maximum(fate, masking.KEEP_BELOW) - masking.KEEP_BELOW, tf.int64)
        drawn = tf.gather(tf.constant(vocabulary_ids), beyond * len(self.vocab) // (2**32 - masking.KEEP_BELOW))
        replaced = tf.where_v2(
            fate < masking.MASK_BELOW,
            tf.constant(self.vocab["[MASK]"], tf.int32),
            tf.where_v2(fate < masking.KEEP_BELOW, tokens, drawn),
        )
        change = tf.where_v2(used, replaced - tokens, 0)
        changes = tf.math.unsorted_segment_sum(change, place, tf.size(ids))
        return {
            "input_ids": ids + tf.reshape(changes, [-1, width]),
            "masked_lm_positions": positions,
            "masked_lm_ids": tf.where_v2(used, tokens, 0),
            "masked_lm_weights": tf.cast(used, tf.float32),
        }


@dataclasses.dataclass(frozen=True)
class Units:
    """What can be masked, tokens or whole words, numbered row by row.

    Candidates, all tokens but [CLS] and [SEP], are numbered too: those of row r from r * seq on.

    Attributes:
      counts: int32 [batch, 1], number of units of each row.
      first: int32 [batch, 1], number of the first unit of each row.
      total: int32 scalar, above the numbers of all units.
      most: int, most units of a row.
      sizes: function from (rows, units), int32 [rows] and [rows, n], to how many candidates the units have, [rows, n].
      candidates: function from (units, their sizes), int32 [n] in order, to the candidates they have, [candidates].
    """

    counts: tf.Tensor
    first: tf.Tensor
    total: tf.Tensor
    most: int
    sizes: Callable
    candidates: Callable


def count_candidates(len_a, len_b):
    """How many tokens there are beside [CLS] and the [SEP] of each segment."""
    return len_a + len_b - 2 - tf.cast(len_b > 0, tf.int32)


def token_units(len_a, len_b, row_start, width):
    """Every candidate is a unit: `Units`; arguments as of `word_units`."""
    return Units(
        counts=count_candidates(len_a, len_b),
        first=row_start,
        total=tf.size(row_start) * width,
        most=width,
        sizes=lambda rows, units: tf.ones_like(units),
        candidates=lambda units, sizes: units,
    )


def word_units(opens, len_a, len_b, row_start):
    """A unit is a candidate that opens a word and those that continue it: `Units`.

    Args:
      opens: bool [batch, seq], whether a token continues no word.
      len_a, len_b: int32 [batch, 1], lengths of [CLS] A [SEP] and of B [SEP].
      row_start: int32 [batch, 1], where rows begin in flat arrays.
    """
    width = int(opens.shape[1])
    column = tf.range(width)
    is_special = tf.equal(column, 0) | tf.equal(column, len_a - 1) | (column >= len_a + len_b - 1)
    # What nothing precedes opens a word, even if it looks like the continuation of one.
    is_first = (opens & ~is_special) | tf.equal(column, 1)  # [batch, seq]
    counts = tf.reduce_sum(tf.cast(is_first, tf.int32), axis=1, keepdims=True)  # [batch, 1]
    first = tf.cumsum(counts, exclusive=True)  # [batch, 1]
    place = tf.cast(tf.where(tf.reshape(is_first, [-1]))[:, 0], tf.int32)  # [words]
    after_a = row_start + len_a  # [batch, 1]
    row_end = row_start + count_candidates(len_a, len_b)  # [batch, 1]

    def openers(rows, units):
        at = tf.gather(place, tf.minimum(units, tf.size(place) - 1))
        return at - 1 - tf.cast(at >= tf.gather(after_a, rows), tf.int32)

    def sizes(rows, units):
        is_last = tf.equal(units + 1, tf.gather(first + counts, rows))
        ends = tf.where_v2(is_last, tf.gather(row_end, rows), openers(rows, units + 1))
        return ends - openers(rows, units)

    def candidates(units, sizes):
        rows = tf.gather(place, units) // width
        starts = openers(rows, units[:, tf.newaxis])[:, 0]
        return tf.ragged.range(starts, starts + sizes).flat_values

    return Units(counts, first, tf.size(place), width, sizes, candidates)


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


def choose(bits, units, budget):
    """Visits units in random order, and takes each if it fits in what is left of the budget.

    Args:
      bits: uint32 [batch, draws].
      units: `Units`.
      budget: int32 [batch, 1], how many candidates to choose at most.

    Returns:
      (candidates, counts): int32 [chosen], in order; and [batch, 1], how many of them are each row's.
    """
    draws = int(bits.shape[1])
    drawn = tf.cast(_scaled(bits, units.counts), tf.int32) + units.first  # [batch, draws]
    number = tf.zeros_like(drawn) + tf.range(draws)  # [batch, draws]
    first_draw = tf.math.unsorted_segment_min(number, drawn, units.total)  # [units]
    is_new = tf.equal(tf.gather(first_draw, drawn), number)  # [batch, draws]
    rows = tf.range(tf.shape(bits)[0])
    sizes = tf.where_v2(is_new, units.sizes(rows, drawn), 0)
    taken, left = take(sizes, budget[:, 0])  # [batch, draws], [batch]

    # The rows that want more than was drawn: their other units follow.
    all_drawn = tf.equal(tf.reduce_sum(tf.cast(is_new, tf.int32), axis=1), units.counts[:, 0])  # [batch]
    rows = tf.cast(tf.where((left > 0) & ~all_drawn)[:, 0], tf.int32)  # [rows]
    place = tf.range(units.most)  # [most]
    others = tf.gather(units.first, rows) + place  # [rows, most]
    is_other = place < tf.gather(units.counts, rows)
    others = tf.where_v2(is_other, others, 0)
    is_other &= tf.gather(first_draw, others) >= draws
    order = tf.argsort(_hashed(tf.gather(bits[:, :1], rows), place), axis=1)  # [rows, most]
    others, is_other = (tf.gather(values, order, batch_dims=1) for values in (others, is_other))
    other_sizes = tf.where_v2(is_other, units.sizes(rows, others), 0)
    others_taken, others_left = take(other_sizes, tf.gather(left, rows))
    left = tf.tensor_scatter_nd_update(left, rows[:, tf.newaxis], others_left)

    def join(ours, of_others):
        return tf.concat([tf.reshape(ours, [-1]), tf.reshape(of_others, [-1])], 0)

    taken_sizes = join(tf.where_v2(taken, sizes, 0), tf.where_v2(others_taken, other_sizes, 0))
    taken_sizes = tf.math.unsorted_segment_max(taken_sizes, join(drawn, others), units.total)  # [units]
    chosen = tf.cast(tf.where(taken_sizes > 0)[:, 0], tf.int32)
    return units.candidates(chosen, tf.gather(taken_sizes, chosen)), budget - left[:, tf.newaxis]


def take(sizes, left):
    """Takes what fits, from the first to the last of each row.

    Args:
      sizes: int32 [rows, units]; what has size 0 is not taken.
      left: int32 [rows].

    Returns:
      (taken, left): bool [rows, units]; [rows].
    """

    # In each round, what is too large for what is left is passed over, and the next is taken as far as it fits.
    # The first that does not fit is then too large, so that the largest size left falls from round to round.
    # Rows that are done with, which are most of them after the first round, take no part in the next.
    def visit(rows, taken, left):
        size, before, room = tf.gather(sizes, rows), tf.gather(taken, rows), tf.gather(left, rows)[:, tf.newaxis]
        wanted = tf.where_v2(before | (size > room), 0, size)
        total = tf.cumsum(wanted, axis=1)
        fits = total <= room
        room -= tf.reduce_max(tf.where_v2(fits, total, 0), axis=1, keepdims=True)
        goes_on = tf.reduce_any(~fits & (size <= room) & (wanted > 0), axis=1)
        index = rows[:, tf.newaxis]
        return (
            tf.boolean_mask(rows, goes_on),
            tf.tensor_scatter_nd_update(taken, index, before | (fits & (wanted > 0))),
            tf.tensor_scatter_nd_update(left, index, room[:, 0]),
        )

    _, taken, left = tf.while_loop(
        lambda rows, *_: tf.size(rows) > 0,
        visit,
        (tf.range(tf.size(left)), tf.zeros_like(sizes, tf.bool), left),
        shape_invariants=(tf.TensorShape([None]), sizes.shape, left.shape),
    )
    return taken, left


def _scaled(bits, bounds):
    """uint64 below `bounds`, of bits that are uint32."""
    product = tf.cast(bits, tf.uint64) * tf.cast(bounds, tf.uint64)
    return tf.bitwise.right_shift(product, tf.constant(32, tf.uint64))


def _hashed(bits, place):
    """Keys to sort by: int64 [rows, n] of uint32 [rows, 1] and int32 [n]."""
    hashed = bits + tf.cast(place, tf.uint32) * tf.constant(_INCREMENT, tf.uint32)
    for shift, factor in _SHIFTS_AND_FACTORS:
        hashed = tf.bitwise.bitwise_xor(hashed, tf.bitwise.right_shift(hashed, tf.constant(shift, tf.uint32))) * factor
    return tf.cast(tf.bitwise.bitwise_xor(hashed, tf.bitwise.right_shift(hashed, tf.constant(16, tf.uint32))), tf.int64)
