"""Which examples make a batch, and how they lie in it, so that few of its places hold padding.

- padded: as they come, each in a row of its own of the full length;
- bucketed: examples of similar length, in rows that end where the longest of them does. The shape differs from batch
  to batch, which a TPU cannot do;
- packed: several examples in each row of the full length. The number of rows is the same in all batches.

A batch has the same number of examples in all three, so steps, epochs and schedules are the same. What is decided
here is a function of the examples' lengths, the seed and the epoch. All of it is operations of TensorFlow: the input
pipeline of a TPU may run on a machine that has no Python of ours.
"""

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

PADDED, BUCKETED, PACKED = "padded", "bucketed", "packed"

# Examples are sorted by length within so many batches, so that batches still differ from epoch to epoch.
_WINDOW_BATCHES = 64
# Lengths of bucketed batches are multiples of this: kernels are chosen, and kept, by shape.
_MULTIPLE = 8
_MEASURED_BATCHES = 1024


def token_lengths(input_mask):
    """Places up to the last token of each example, at least 1.

    Args:
      input_mask: int32 Tensor [examples, seq].

    Returns:
      int32 Tensor [examples].
    """
    last = tf.reduce_max(input_mask * tf.range(1, input_mask.shape[1] + 1), axis=1)  # [examples]
    return tf.maximum(last, 1)


def arrange(lengths, batch_size, kind, first=0, key=None):
    """The order in which a stretch of examples is used, each once.

    Args:
      lengths: int32 Tensor [n], as of `token_lengths`.
      batch_size: examples in a batch.
      kind: `PADDED`, `BUCKETED` or `PACKED`.
      first: int Tensor, how many examples complete the batch that the stretch before has begun.
      key: int64 Tensor [2], seed of the order; None: as they come, apart from what `kind` needs.

    Returns:
      int32 Tensor [n], indices of the examples. Those before the first whole batch, and after the last, are not sorted.
    """
    size = tf.size(lengths)
    order = tf.range(size)  # [n]
    if key is not None:
        order = tf.random.experimental.stateless_shuffle(order, seed=key)
    if kind == PADDED:
        return order
    first = tf.minimum(tf.cast(first, tf.int32), size)
    num_batches = (size - first) // batch_size
    end = first + num_batches * batch_size
    inside = order[first:end]  # [num_batches * batch_size]
    arranged = _bucketed if kind == BUCKETED else _balanced
    inside = tf.gather(inside, arranged(tf.gather(lengths, inside), batch_size, num_batches, key))
    return tf.concat([order[:first], inside, order[end:]], axis=0)


def _bucketed(lengths, batch_size, num_batches, key):
    """Indices that sort within windows, and mix the batches that come of it."""
    window = tf.range(tf.size(lengths)) // (_WINDOW_BATCHES * batch_size)  # [n]
    longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
    order = tf.argsort(window * (longest + 1) + lengths, stable=True)  # [n]
    if key is None:
        return order
    batches = tf.reshape(order, [num_batches, batch_size])
    return tf.reshape(tf.random.experimental.stateless_shuffle(batches, seed=tf.add(key, [1, 0])), [-1])


def _balanced(lengths, batch_size, num_batches, key):
    """Indices that give each batch one of the shortest examples, one of the next, and so on.

    So the batches have nearly the same number of tokens, and need the same number of rows.
    """
    del key
    rank = tf.argsort(tf.argsort(lengths, stable=True), stable=True)  # [n], as by length
    stratum = rank // tf.maximum(num_batches, 1)  # [n], below batch_size
    by_stratum = tf.argsort(stratum, stable=True)  # [n], within a stratum as they came
    return tf.reshape(tf.transpose(tf.reshape(by_stratum, [batch_size, num_batches])), [-1])


def pack(lengths, seq_length):
    """Puts the examples of batches into rows: each, the longest first, into the first row that has room for it.

    Args:
      lengths: int32 Tensor [batches, batch_size], at most `seq_length`.
      seq_length: places in a row.

    Returns:
      Two int32 Tensors [batches, batch_size]: the row of each example in its batch, and the place in it of its first
      token.
    """
    batch_size = lengths.shape[1]
    by_length = tf.argsort(-lengths, stable=True)  # [batches, batch_size]
    falling = tf.gather(lengths, by_length, batch_dims=1)  # [batches, batch_size]

    def put(free, length):
        free = free[0]  # [batches, rows]
        row = tf.argmax(free >= length[:, tf.newaxis], axis=1, output_type=tf.int32)  # [batches], the first with room
        start = seq_length - tf.gather(free, row, batch_dims=1)  # [batches]
        return free - tf.one_hot(row, batch_size, dtype=tf.int32) * length[:, tf.newaxis], row, start

    nowhere = tf.zeros_like(lengths[:, 0])  # [batches]
    start_of_all = (tf.fill(tf.shape(lengths), seq_length), nowhere, nowhere)
    _, rows, starts = tf.scan(put, tf.transpose(falling), start_of_all)
    back = tf.argsort(by_length)  # [batches, batch_size]
    return tuple(tf.gather(tf.transpose(found), back, batch_dims=1) for found in (rows, starts))


def bucket(features):
    """Cuts a batch at the end of its longest example.

    Args:
      features: dict of Tensors [batch, ...] with input_ids, input_mask and segment_ids, [batch, seq].

    Returns:
      The same with input_ids and segment_ids shorter, [batch, shorter]. input_mask stays.
    """
    mask = features["input_mask"]
    longest = tf.reduce_max(token_lengths(mask))
    end = tf.minimum(_multiple(longest), mask.shape[1])
    return {**features, **{name: features[name][:, :end] for name in ("input_ids", "segment_ids")}}


def pack_features(features, batch_size, width):
    """Lays examples into rows by `pack`.

    Every feature still has an entry for each example, so that what splits batches can split these; the rows of a packed
    batch are the concatenation of the entries, cut anew.

    Args:
      features: dict of Tensors [examples, ...] with input_ids, input_mask and segment_ids, [examples, seq].
      batch_size: how many examples are packed together; `examples` is a multiple.
      width: as of `Fill.width`.

    Returns:
      The same, but for input_ids and segment_ids, int32 [examples, width], and with example_ids, [examples, width],
      which of the examples of the packed batch, from 1 on, a place belongs to, or 0; position_ids, [examples, width],
      position of each token in its example; and first_places, [examples, 1], row * seq + place in the row of the
      first token of each example.
    """
    mask = features["input_mask"]  # [examples, seq]
    examples, seq_length = mask.shape.as_list()
    lengths = token_lengths(mask)  # [examples]
    rows, starts = pack(tf.reshape(lengths, [-1, batch_size]), seq_length)  # [batches, batch_size] each
    first = tf.reshape(rows * seq_length + starts, [-1])  # [examples]
    position = tf.tile(tf.range(seq_length)[tf.newaxis], [examples, 1])  # [examples, seq]
    number = tf.range(examples)[:, tf.newaxis]  # [examples, 1]
    is_token = tf.sequence_mask(lengths, seq_length)  # [examples, seq]
    batch_start = number // batch_size * (batch_size * width)  # [examples, 1]
    places = tf.boolean_mask(batch_start + first[:, tf.newaxis] + position, is_token)[:, tf.newaxis]  # [tokens, 1]

    def lay(values):
        flat = tf.scatter_nd(places, tf.boolean_mask(values, is_token), [examples * width])
        return tf.reshape(flat, [examples, width])

    return {
        **features,
        "input_ids": lay(features["input_ids"]),
        "segment_ids": lay(features["segment_ids"]),
        "example_ids": lay(mask * (number % batch_size + 1)),
        "position_ids": lay(position),
        "first_places": first[:, tf.newaxis],
    }


@dataclasses.dataclass(frozen=True)
class Fill:
    """How full batches are.

    Attributes:
      kind: of the batches.
      padded_share: share of places that hold tokens if each example has a row of its own.
      share: the same as the batches are.
      width: for packed batches, places for each example: all rows of a batch are `batch_size * width` places, and
        perhaps some more that no row needs.
    """

    kind: str
    padded_share: float
    share: float
    width: int

    def summary(self):
        """What of it belongs in the summary of a training."""
        return {
            "kind": self.kind,
            "share_of_tokens_padded": round(self.padded_share, 4),
            "share_of_tokens": round(self.share, 4),
        }


def measure(lengths, seq_length, kind, batch_size, stretches):
    """Finds how full batches will be, and how many rows packed ones need.

    Args:
      lengths: int32 array [n] of all examples.
      seq_length: places of a row.
      kind: `BUCKETED` or `PACKED`.
      batch_size: examples that are arranged together.
      stretches: iterable of (start, end, first, key): a slice of `lengths`, and arguments of `arrange` for it, in the
        order of use.

    Returns:
      A `Fill`.
    """
    with tf.Graph().as_default(), _cpu_session() as session:
        of_stretch = tf.placeholder(tf.int32, [None])
        first = tf.placeholder(tf.int32, [])
        key = tf.placeholder(tf.int64, [2])
        arranged = [tf.gather(of_stretch, arrange(of_stretch, batch_size, kind, first, k)) for k in (None, key)]
        batches = tf.placeholder(tf.int32, [None, batch_size])
        if kind == PACKED:
            used = 1 + tf.reduce_max(pack(batches, seq_length)[0], axis=1)  # [batches], rows
        else:
            used = batch_size * tf.minimum(_multiple(tf.reduce_max(batches, axis=1)), seq_length)  # [batches], places
        tokens, examples, places, most = 0, 0, 0, 0
        left, left_size = [], 0

        def use(whole):
            nonlocal tokens, examples, places, most
            found = session.run(used, {batches: whole})
            tokens, examples = tokens + int(whole.sum()), examples + whole.size
            places, most = places + int(found.sum()), max(most, int(found.max()))

        for start, end, number, seed in stretches:
            feed = {of_stretch: lengths[start:end], first: number}
            if seed is not None:
                feed[key] = seed
            left.append(session.run(arranged[seed is not None], feed))
            left_size += end - start
            if left_size >= batch_size * _MEASURED_BATCHES:
                joined = np.concatenate(left)
                whole = left_size // batch_size * batch_size
                use(joined[:whole].reshape(-1, batch_size))
                left, left_size = [joined[whole:]], left_size - whole
        # What does not fill a batch is filled up with empty examples.
        joined = np.concatenate(left) if left else np.zeros(0, np.int32)
        if joined.size:
            missing = -joined.size % batch_size
            use(np.concatenate([joined, np.ones(missing, np.int32)]).reshape(-1, batch_size))
            tokens, examples = tokens - missing, examples - missing
    width = 0
    if kind == PACKED:
        width = -(-most * seq_length // batch_size)
        places = -(-examples // batch_size) * most * seq_length
    return Fill(kind, tokens / (examples * seq_length), tokens / places, width)


def read_lengths(blocks):
    """Runs through a dataset of `token_lengths`; returns them in one int32 array."""
    with _cpu_session(blocks.graph) as session:
        found = []
        while True:
            try:
                found.append(session.run(blocks))
            except tf.errors.OutOfRangeError:
                return np.concatenate(found)


def _multiple(length):
    return (length + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE


def _cpu_session(graph=None):
    return tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0}))
