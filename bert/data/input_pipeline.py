"""Pretraining records to batches, at a position that follows from the global step.

The order of the examples is a function of the files, their record counts and the seed alone. An epoch visits
every record once: the files are permuted, cut into groups of `FILES_PER_GROUP`, and within a group the files are
read side by side and shuffled, a window of `SHUFFLE_WINDOW` records at a time. Every permutation is keyed by (seed,
epoch, group, window), so that a run that is resumed at step N starts reading at example N x batch size: whole epochs
and groups before it are skipped by arithmetic and only the rest of one group is read and dropped.

Nearly all of the cost of reading is that of passing elements from one dataset to the next. So records travel in
blocks, from the file on, and are parsed in batches.
"""

import tensorflow.compat.v1 as tf

from bert.data import records

FILES_PER_GROUP = 8
SHUFFLE_WINDOW = 8192
_BLOCK = 256
# Batches smaller than this are parsed several at once.
_MIN_PARSED = 256


def feature_spec(max_seq_length, max_predictions_per_seq, max_pairs=None):
    """The features of a pretraining record, by the original project's names; packed ones if there are `max_pairs`."""
    name, size = ("pair_lengths", max_pairs) if max_pairs else ("input_mask", max_seq_length)
    return {
        "input_ids": tf.FixedLenFeature([max_seq_length], tf.int64),
        name: tf.FixedLenFeature([size], tf.int64),
        "segment_ids": tf.FixedLenFeature([max_seq_length], tf.int64),
        "masked_lm_positions": tf.FixedLenFeature([max_predictions_per_seq], tf.int64),
        "masked_lm_ids": tf.FixedLenFeature([max_predictions_per_seq], tf.int64),
        "masked_lm_weights": tf.FixedLenFeature([max_predictions_per_seq], tf.float32),
        "next_sentence_labels": tf.FixedLenFeature([max_pairs or 1], tf.int64),
    }


def unmasked_feature_spec(max_seq_length, max_pairs=None):
    """The features of a record without masks, a packed one if there are `max_pairs`; int32 is stored as bytes."""
    return {
        "tokens": tf.FixedLenFeature([max_seq_length], tf.int32),
        "segment_lengths": tf.FixedLenFeature([2 * (max_pairs or 1)], tf.int64),
        "next_sentence_labels": tf.FixedLenFeature([max_pairs or 1], tf.int64),
    }


def parse_batch(serialized, spec, names):
    """Parses a batch of records at once, which costs half of parsing them one by one.

    Args:
      serialized: string Tensor [batch].
      spec: as of `feature_spec`.
      names: names of the features as the files spell them.

    Returns:
      A dict of Tensors [batch, ...] by the original's names; integers are int32, since TPUs have no int64.
    """
    by_name = {alias: records.ALIASES.get(alias, alias) for alias in names}
    wanted = {alias: spec[name] for alias, name in by_name.items() if name in spec}
    parsed = tf.io.parse_example(
        serialized,
        {alias: tf.FixedLenFeature([], tf.string) if of.dtype == tf.int32 else of for alias, of in wanted.items()},
    )

    def convert(value, of):
        if of.dtype == tf.int32:
            return tf.ensure_shape(tf.io.decode_raw(value, tf.int32), [None, *of.shape])
        return tf.cast(value, tf.int32) if of.dtype == tf.int64 else value

    return {by_name[alias]: convert(parsed[alias], of) for alias, of in wanted.items()}


def decode_batch(rows, layout):
    """Takes records of a fixed layout apart by the places of their bytes: the same as `parse_batch`, but faster.

    Args:
      rows: uint8 Tensor [batch, bytes of a record].
      layout: the `records.Layout` of all of them.

    Returns:
      As of `parse_batch`.
    """
    features = {}
    for start, name, count, width, dtype in layout.slots():
        part = rows[:, start : start + count * width]  # [batch, count * width]
        if width > 1:
            part = tf.reshape(part, [-1, count, width])
        if dtype:
            features[name] = tf.bitcast(part, tf.float32 if dtype.kind == "f" else tf.int32)  # [batch, count]
            continue
        # Seven bits a byte, the lowest first; all bytes but the last have the eighth bit set.
        parts = tf.unstack(part, axis=2) if width > 1 else [part]
        value = tf.cast(parts[0], tf.int32)
        for i, byte in enumerate(parts[1:], 1):
            value += tf.cast(byte, tf.int32) * (1 << 7 * i) - (0x80 << 7 * (i - 1))
        features[name] = value  # [batch, count]
    return features


def training_batches(
    files,
    counts,
    seed,
    position,
    batch_size,
    record_bytes=None,
    files_per_group=FILES_PER_GROUP,
    window=SHUFFLE_WINDOW,
):
    """An endless dataset of batches of serialized records that starts at `position`.

    Args:
      files: list of paths.
      counts: number of records in each file.
      seed: int that keys every permutation.
      position: int64 scalar Tensor, number of examples already used since the start of training.
      batch_size: number of records in a batch.
      record_bytes: length of all records, if they have one: they are then cheaper to move about.
      files_per_group: how many files are read side by side.
      window: how many records are shuffled among themselves.

    Returns:
      A `tf.data.Dataset` of string [batch_size], or of uint8 [batch_size, record_bytes]. Its n-th element holds the
      records at `position` + n * batch_size and on of the training.
    """
    num_files = len(files)
    num_groups = -(-num_files // files_per_group)
    padding = num_groups * files_per_group - num_files
    num_records = sum(counts)
    all_files = tf.constant(list(files))  # [num_files]
    all_counts = tf.constant(list(counts), tf.int64)  # [num_files]
    seed = tf.constant(seed, tf.int64)

    def read(path):
        dataset = tf.data.TFRecordDataset(path).batch(_BLOCK)
        if record_bytes is None:
            return dataset
        return dataset.map(
            lambda serialized: tf.ensure_shape(tf.io.decode_raw(serialized, tf.uint8), [None, record_bytes])
        )

    def epoch_windows(epoch, skip):
        order = tf.random.experimental.stateless_shuffle(tf.range(num_files), seed=tf.stack([seed, epoch]))
        epoch_files = tf.gather(all_files, order)  # [num_files]
        epoch_counts = tf.pad(tf.gather(all_counts, order), [[0, padding]])  # [num_groups * files_per_group]
        group_counts = tf.reduce_sum(tf.reshape(epoch_counts, [num_groups, files_per_group]), axis=1)
        group_ends = tf.cumsum(group_counts)  # [num_groups]

        def group_windows(group):
            first = group * files_per_group
            dataset = tf.data.Dataset.from_tensor_slices(epoch_files[first : first + files_per_group])
            dataset = dataset.interleave(
                read,
                cycle_length=min(files_per_group, num_files),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            key = tf.random.stateless_uniform(
                [], seed=tf.stack([seed + 1, epoch * num_groups + group]), maxval=2**31 - 1, dtype=tf.int64
            )
            start = group_ends[group] - group_counts[group]
            drop = tf.clip_by_value(skip - start, 0, group_counts[group])
            first_window = drop // window

            def shuffle(number, block):
                order = tf.range(tf.shape(block)[0])
                order = tf.random.experimental.stateless_shuffle(order, seed=tf.stack([key, number]))
                order = order[tf.where_v2(tf.equal(number, first_window), drop % window, 0) :]
                # A batch at a time: what is copied here is used at once.
                starts = tf.data.Dataset.range(0, tf.size(order, out_type=tf.int64), batch_size)
                return starts.map(lambda start: tf.gather(block, order[start : start + batch_size]))

            # All windows of a group but the last are full.
            dataset = dataset.rebatch(window).skip(first_window)
            return tf.data.Dataset.zip((tf.data.Dataset.range(first_window, tf.int64.max), dataset)).flat_map(shuffle)

        first_group = tf.searchsorted(group_ends, skip[tf.newaxis], side="right", out_type=tf.int64)[0]
        return tf.data.Dataset.range(first_group, num_groups).flat_map(group_windows)

    first_epoch = position // num_records
    dataset = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(
        lambda epoch: epoch_windows(
            epoch, tf.where(tf.equal(epoch, first_epoch), position % num_records, tf.zeros([], tf.int64))
        )
    )
    return dataset.rebatch(batch_size, drop_remainder=True)


def training_input_fn(files, counts, spec, names, seed, batch_size, first_step, layout=None, masking=None):
    """Input function of one training phase.

    Args:
      files, counts: the record files and the number of records in each.
      spec: as of `feature_spec`, or `unmasked_feature_spec` if `masking` is given.
      names: the features' names in the files.
      seed: int.
      batch_size: global batch size: examples per global step over all replicas and hosts.
      first_step: global step at which the phase begins, where its examples are counted from.
      layout: the `records.Layout` of all files, or None if they have none.
      masking: the `DynamicMasking` of records without masks.

    Returns:
      An `input_fn(params)` for TPUEstimator.
    """

    def input_fn(params):
        host, num_hosts = _host(params)
        local_batch_size = params["batch_size"]
        # The step is read from the restored variable when the iterator is made, so that a session that is
        # made anew inside one process continues at the right example too.
        step = tf.cast(tf.train.get_or_create_global_step().read_value(), tf.int64)
        start = (step - first_step) * (batch_size // num_hosts)
        # Small batches are parsed several at once.
        parsed = -(-_MIN_PARSED // local_batch_size) * local_batch_size

        def batches(start):
            record_bytes = layout.data_bytes if layout else None
            dataset = training_batches(
                files[host::num_hosts], counts[host::num_hosts], seed, start, parsed, record_bytes
            )

            def parse(number, block):
                features = decode_batch(block, layout) if layout else parse_batch(block, spec, names)
                if masking is None:
                    return features
                return masking(features, first_step * (batch_size // num_hosts) + start + number * parsed, host)

            return dataset.enumerate().map(parse, num_parallel_calls=tf.data.AUTOTUNE)

        # A function of `start` only, built as one dataset so that it is a captured input.
        dataset = tf.data.Dataset.from_tensors(start).flat_map(batches)
        if parsed > local_batch_size:
            dataset = dataset.rebatch(local_batch_size, drop_remainder=True)
        return _ordered(dataset).prefetch(tf.data.AUTOTUNE)

    return input_fn


def evaluation_input_fn(files, spec, names):
    """Input function that yields every record once, in order, and after them empty rows without end.

    Each batch has `is_real_example`, float32 [batch, 1], which is 0 in rows that only fill up the batch: shapes
    are static on TPU, and each replica must be given the same number of batches.
    """

    def input_fn(params):
        host, num_hosts = _host(params)
        batch_size = params["batch_size"]

        def fill(features, missing):
            filled = {}
            for name, value in features.items():
                value = tf.pad(value, [[0, missing], [0, 0]])
                filled[name] = tf.ensure_shape(value, [batch_size, value.shape[1]])
            return filled

        def parse_and_fill(serialized):
            features = parse_batch(serialized, spec, names)
            real = tf.shape(serialized)[0]
            return fill({**features, "is_real_example": tf.ones([real, 1])}, batch_size - real)

        dataset = tf.data.TFRecordDataset(list(files)).shard(num_hosts, host)
        dataset = dataset.batch(batch_size).map(parse_and_fill)
        empty = {name: tf.zeros(of.shape, of.dtype) for name, of in dataset.element_spec.items()}
        dataset = dataset.concatenate(tf.data.Dataset.from_tensors(empty).repeat())
        return _ordered(dataset).prefetch(tf.data.AUTOTUNE)

    return input_fn


def _host(params):
    """Index of this host among those that feed the replicas, and their number."""
    context = params.get("context")
    if context is None:
        return 0, 1
    _, host, num_hosts, _ = context.current_input_fn_deployment()
    return host, num_hosts


def _ordered(dataset):
    options = tf.data.Options()
    options.deterministic = True
    options.threading.max_intra_op_parallelism = 1
    return dataset.with_options(options)
