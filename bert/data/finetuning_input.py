"""Fine-tuning records to batches: for training at a position that follows from the global step, or each once, in order.

How examples are ordered and laid into batches is said in `bert.data.batching`.
"""

import dataclasses

import tensorflow.compat.v1 as tf

from bert import files
from bert.data import batching, input_pipeline, record_cache

# So many bytes of records are held in memory and shuffled as a whole. They may well be sorted by label.
_CHUNK_BYTES = 1 << 29
_BLOCK = 1024
# Records to predict are arranged within so many batches.
_WINDOW_BATCHES = 64


@dataclasses.dataclass(frozen=True)
class Data:
    """Record files to train on, or to evaluate or predict.

    Attributes:
      files: paths.
      counts: number of records in each.
      spec: dict from the features' names to `tf.FixedLenFeature`.
      feature_names: the features as the files spell them.
    """

    files: tuple
    counts: tuple
    spec: dict
    feature_names: tuple

    @property
    def count(self):
        """Number of records in all files."""
        return sum(self.counts)

    @property
    def fingerprints(self):
        """What tells the content of each file from another's."""
        return [record_cache.fingerprint(path) for path in self.files]

    @property
    def max_seq_length(self):
        """Tokens in a record."""
        return self.spec["input_ids"].shape[0]


def training_input_fn(data, seed, train_batch_size, num_steps, kind, num_micro_batches=1, on_fill=None):
    """Input function that yields every record once in each epoch, in an order that seed and epoch decide.

    The position follows from the global step.

    Args:
      data: a `Data`.
      seed: int.
      train_batch_size: examples in a step, over all replicas.
      num_steps: steps of the whole training.
      kind: one of those of `batching`.
      num_micro_batches: parts that a replica's batch is later split into; each is packed by itself.
      on_fill: function that is told the `batching.Fill` of batches that are not padded.
    """
    chunk = max(1, min(data.count, int(_CHUNK_BYTES / (sum(map(files.size, data.files)) / data.count))))
    num_chunks = -(-data.count // chunk)
    fills = {}

    def stretches(batch_size):
        # The shape of packed batches is that of the fullest.
        num_epochs = -(-num_steps * train_batch_size // data.count) if kind == batching.PACKED else 1
        for number in range(num_epochs * num_chunks):
            epoch, part = divmod(number, num_chunks)
            start, end = part * chunk, min(data.count, (part + 1) * chunk)
            yield start, end, -(epoch * data.count + start) % batch_size, (seed, number)

    def fill_of(batch_size):
        if batch_size not in fills:
            lengths = _lengths(data)
            fills[batch_size] = batching.measure(lengths, data.max_seq_length, kind, batch_size, stretches(batch_size))
            if on_fill:
                on_fill(fills[batch_size])
        return fills[batch_size]

    def serialized(position, batch_size):
        """Dataset of vectors of serialized records."""
        first_epoch = position // data.count

        def epoch_records(epoch):
            skip = tf.where(tf.equal(epoch, first_epoch), position % data.count, tf.zeros([], tf.int64))
            first_chunk = skip // chunk

            def arrange(number, records, lengths):
                place = epoch * data.count + number * chunk
                key = tf.stack([tf.constant(seed, tf.int64), epoch * num_chunks + number])
                order = batching.arrange(lengths, batch_size, kind, -place % batch_size, key)
                done = tf.where(tf.equal(number, first_chunk), skip % chunk, tf.zeros([], tf.int64))
                return tf.gather(records, order[done:])

            chunks = tf.data.TFRecordDataset(list(data.files)).batch(_BLOCK)
            chunks = chunks.map(lambda records: (records, _parse_lengths(records, data)), tf.data.AUTOTUNE)
            chunks = chunks.rebatch(chunk).skip(first_chunk)
            numbered = tf.data.Dataset.zip((tf.data.Dataset.range(first_chunk, num_chunks), chunks))
            return numbered.map(lambda number, of: arrange(number, *of))

        return tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(epoch_records)

    def input_fn(params):
        host, num_hosts = 0, 1
        if params.get("context") is not None:
            _, host, num_hosts, _ = params["context"].current_input_fn_deployment()
        batch_size = params["batch_size"]
        packed_size = batch_size // num_micro_batches
        fill = fill_of(packed_size) if kind != batching.PADDED else None
        # Read from the restored variable when the iterator is made, so that a session that is made anew inside one
        # process continues at the right example too.
        step = tf.cast(tf.train.get_or_create_global_step().read_value(), tf.int64)
        arranged_size = packed_size if kind == batching.PACKED else batch_size
        dataset = tf.data.Dataset.from_tensors(step * train_batch_size).flat_map(
            lambda position: serialized(position, arranged_size)
        )
        dataset = dataset.rebatch(batch_size, drop_remainder=True).shard(num_hosts, host)
        return _ordered(dataset.map(lambda batch: _form(_parse(batch, data), packed_size, fill), tf.data.AUTOTUNE))

    return input_fn


def prediction_input_fn(data, kind, on_fill=None):
    """Input function that yields every record once; the last batch is filled up with zeros.

    Each batch has "index", int32 [batch, 1], the place of each example among the records, or -1 where it fills up.

    Args:
      data: a `Data`.
      kind: one of those of `batching`.
      on_fill: as of `training_input_fn`.
    """

    def input_fn(params):
        batch_size = params["batch_size"]
        window = _WINDOW_BATCHES * batch_size
        fill = None
        if kind != batching.PADDED:
            starts = range(0, data.count, window)
            stretches = [(start, min(data.count, start + window), 0, None) for start in starts]
            fill = batching.measure(_lengths(data), data.max_seq_length, kind, batch_size, stretches)
            if on_fill:
                on_fill(fill)

        def arrange(number, records):
            order = batching.arrange(_parse_lengths(records, data), batch_size, kind)
            return tf.gather(records, order), tf.cast(number * window, tf.int32) + order

        def parse_and_fill(records, index):
            missing = batch_size - tf.size(index)
            features = {"index": tf.pad(index, [[0, missing]], constant_values=-1)[:, tf.newaxis]}
            for name, value in _parse(records, data).items():
                features[name] = tf.pad(value, [[0, missing], [0, 0]])
            features = {name: tf.ensure_shape(of, [batch_size, of.shape[1]]) for name, of in features.items()}
            return _form(features, batch_size, fill)

        windows = tf.data.TFRecordDataset(list(data.files)).batch(window).enumerate()
        batches = windows.map(arrange, tf.data.AUTOTUNE).rebatch(batch_size)
        return _ordered(batches.map(parse_and_fill, tf.data.AUTOTUNE))

    return input_fn


def _lengths(data):
    """Number of tokens of each record, int32 array [records]."""
    with tf.Graph().as_default():
        dataset = tf.data.TFRecordDataset(list(data.files)).batch(_BLOCK)
        dataset = dataset.map(lambda records: _parse_lengths(records, data), tf.data.AUTOTUNE)
        return batching.read_lengths(tf.data.make_one_shot_iterator(dataset).get_next())


def _parse(records, data):
    return input_pipeline.parse_batch(records, data.spec, data.feature_names)


def _parse_lengths(records, data):
    name = "input_mask"
    mask = input_pipeline.parse_batch(records, {name: data.spec[name]}, data.feature_names)[name]  # [n, seq]
    return batching.token_lengths(mask)


def _form(features, packed_size, fill):
    if fill is None:
        return features
    if fill.kind == batching.PACKED:
        return batching.pack_features(features, packed_size, fill.width)
    return batching.bucket(features)


def _ordered(dataset):
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
