"""Random bits for dropout that are a function of seed, place and time, so that a resumed run repeats them.

A stateful generator restarts when a run is resumed, and its bits depend on the order in which threads ask
for them. Here the bits of a dropout layer depend only on the graph's seed, on which dropout of the graph it
is, on the global step, on the replica, and on the micro-batch.
"""

import contextlib
import contextvars
import struct
import weakref
import zlib

import tensorflow.compat.v1 as tf

from bert import replicas

_dropouts_in_graph = weakref.WeakKeyDictionary()
_micro_batch = contextvars.ContextVar("micro_batch", default=(0, 1))


@contextlib.contextmanager
def micro_batch(index, count):
    """Within it, random operations belong to one of several micro-batches of a step.

    Args:
      index: int32 scalar tensor, which one.
      count: int, how many there are.
    """
    token = _micro_batch.set((index, count))
    try:
        yield
    finally:
        _micro_batch.reset(token)


def next_seed():
    """Returns the seed for the next random operation of the graph: an int32 tensor of shape [2].

    Without a global step (the model used as a library), the seed is drawn by TensorFlow's stateful generator:
    new in each run of the graph, and governed by `tf.set_random_seed` as usual.
    """
    graph = _outermost_graph()
    index = _dropouts_in_graph.get(graph, 0)
    _dropouts_in_graph[graph] = index + 1
    step = tf.train.get_global_step()
    if step is None:
        return tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
    place = zlib.crc32(struct.pack("<qq", graph.seed or 0, index)) - 2**31
    # Distinct for every step, replica and micro-batch; in int32 the product may wrap around, which keeps it so.
    time = tf.cast(tf.convert_to_tensor(step), tf.int32) * replicas.count() + replicas.replica_id()
    micro_index, micro_count = _micro_batch.get()
    if micro_count > 1:
        time = time * micro_count + micro_index
    return tf.stack([tf.constant(place, tf.int32), time])


def repeatable(function):
    """Makes a function that draws the same random bits whenever it is called to build the same part of the graph."""
    first = None

    def repeat(*args):
        nonlocal first
        graph = _outermost_graph()
        index = _dropouts_in_graph.get(graph, 0)
        if first is None:
            first = index
            return function(*args)
        _dropouts_in_graph[graph] = first
        try:
            return function(*args)
        finally:
            _dropouts_in_graph[graph] = index

    return repeat


def random_bytes(shape):
    """Returns uniform random uint8 values of the given shape (a list of integers or scalar tensors).

    One 32-bit draw makes four of them: drawing is most of what dropout costs on a CPU.
    """
    if replicas.on_tpu():
        # The four lie one after the other there: a last dimension of 4, as of a bitcast, would be padded to 128.
        words = tf.random.stateless_uniform([-(-shape[0] // 4), *shape[1:]], next_seed(), None, None, tf.uint32)
        octets = [tf.cast(tf.bitwise.right_shift(words, tf.constant(8 * i, tf.uint32)), tf.uint8) for i in range(4)]
        return tf.concat(octets, 0)[: shape[0]]
    size = 1
    for dimension in shape:
        size *= dimension
    words = tf.random.stateless_uniform([(size + 3) // 4], next_seed(), None, None, tf.uint32)
    octets = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
    return tf.reshape(octets[:size], shape)


def _outermost_graph():
    """The graph that holds the whole step, also from within the functions and loops in it."""
    graph = tf.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph
