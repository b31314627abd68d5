"""The order of examples is exact: nothing is skipped or repeated, wherever reading starts."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bert.data import input_pipeline, records

SEQ_LENGTH = 8
PREDICTIONS = 2
NAMES = records.FEATURE_NAMES


def write_records(path, first_id, count):
    """Writes records whose first token id is their number."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(first_id, first_id + count):
            example = tf.train.Example()
            for name, size in (
                ("input_ids", SEQ_LENGTH),
                ("input_mask", SEQ_LENGTH),
                ("segment_ids", SEQ_LENGTH),
                ("masked_lm_positions", PREDICTIONS),
                ("masked_lm_ids", PREDICTIONS),
                ("next_sentence_labels", 1),
            ):
                example.features.feature[name].int64_list.value.extend([number] * size)
            example.features.feature["masked_lm_weights"].float_list.value.extend([1.0] * PREDICTIONS)
            writer.write(example.SerializeToString())


@pytest.fixture(scope="module")
def record_files(tmp_path_factory):
    """Files of unequal sizes, one of them empty: 57 records numbered from 0."""
    folder = tmp_path_factory.mktemp("records")
    counts = [7, 1, 20, 0, 13, 16]
    first = 0
    files = []
    for i, count in enumerate(counts):
        files.append(str(folder / f"{i}.tfrecord"))
        write_records(files[-1], first, count)
        first += count
    return files, counts


def numbers(files, counts, seed, position, limit, files_per_group=2, window=8):
    """The first `limit` record numbers from `position` on."""
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = input_pipeline.training_batches(
            files, counts, seed, tf.constant(position, tf.int64), limit, None, files_per_group, window
        )
        spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
        dataset = dataset.map(lambda batch: input_pipeline.parse_batch(batch, spec, NAMES))
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
        return session.run(batch["input_ids"])[:, 0].tolist()


def test_each_epoch_visits_every_record_once_in_another_order(record_files):
    files, counts = record_files
    total = sum(counts)
    stream = numbers(files, counts, seed=1, position=0, limit=3 * total)
    epochs = [stream[i * total : (i + 1) * total] for i in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(total))
    assert epochs[0] != epochs[1] != epochs[2]
    assert numbers(files, counts, seed=2, position=0, limit=total) != epochs[0]


@pytest.mark.parametrize(("files_per_group", "window"), [(1, 1), (2, 8), (4, 5), (8, 100)])
def test_starting_anywhere_continues_the_same_stream(record_files, files_per_group, window):
    files, counts = record_files
    total = sum(counts)
    stream = numbers(files, counts, 5, 0, 2 * total + 10, files_per_group, window)
    for position in (1, 6, 7, 8, 20, 21, 36, total - 1, total, total + 1, 2 * total + 3):
        assert numbers(files, counts, 5, position, 5, files_per_group, window) == stream[position : position + 5]


def test_input_fn_follows_the_global_step_of_the_session(record_files):
    files, counts = record_files
    spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
    input_fn = input_pipeline.training_input_fn(files, counts, spec, NAMES, 3, 4, first_step=10)
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        iterator = tf.data.make_initializable_iterator(input_fn({"batch_size": 4}))
        batch = iterator.get_next()
        assert batch["input_ids"].shape.as_list() == [4, SEQ_LENGTH]

        def batches(first, count):
            with tf.Session() as session:
                session.run(step.assign(first))
                session.run(iterator.initializer)
                return [session.run(batch["input_ids"])[:, 0].tolist() for _ in range(count)]

        undisturbed = batches(10, 30)
        assert batches(17, 5) == undisturbed[7:12]
        assert batches(33, 5) == undisturbed[23:28]


def test_hosts_share_the_records(record_files):
    files, counts = record_files
    spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
    seen = []
    for host in range(2):
        input_fn = input_pipeline.training_input_fn(files, counts, spec, NAMES, 3, 4, first_step=0)
        with tf.Graph().as_default(), tf.Session() as session:
            step = tf.train.create_global_step()
            iterator = tf.data.make_initializable_iterator(input_fn({"batch_size": 1, "context": Deployment(host, 2)}))
            session.run(step.assign(0))
            session.run(iterator.initializer)
            batch = iterator.get_next()
            own = sum(counts[host::2])
            epoch = [session.run(batch["input_ids"])[0, 0] for _ in range(own)]
            assert len(set(epoch)) == own
            seen += epoch
    assert sorted(seen) == list(range(sum(counts)))


class Deployment:
    """What TPUEstimator tells the input function of each host."""

    def __init__(self, host, num_hosts):
        self.place = host, num_hosts

    def current_input_fn_deployment(self):
        """Device, index of the call, number of calls, replicas fed by this one."""
        return ("/cpu:0", *self.place, 4)


@pytest.mark.parametrize("batch_size", [1, 8, 57, 60])
def test_evaluation_covers_its_file_exactly_once(record_files, batch_size):
    files, counts = record_files
    total = sum(counts)
    spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
    with tf.Graph().as_default(), tf.Session() as session:
        input_fn = input_pipeline.evaluation_input_fn(files, spec, NAMES)
        batch = tf.data.make_one_shot_iterator(input_fn({"batch_size": batch_size})).get_next()
        seen = []
        for _ in range(-(-total // batch_size) + 1):
            ids, weights, real = session.run([batch["input_ids"], batch["masked_lm_weights"], batch["is_real_example"]])
            assert ids.shape == (batch_size, SEQ_LENGTH)
            np.testing.assert_array_equal(weights[real[:, 0] == 0], 0)
            seen += ids[real[:, 0] == 1][:, 0].tolist()
    assert seen == list(range(total))


def test_model_garden_names_are_read(tmp_path):
    path = tmp_path / "garden.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        example = tf.train.Example()
        for name in ("input_word_ids", "input_mask", "input_type_ids"):
            example.features.feature[name].int64_list.value.extend(range(SEQ_LENGTH))
        for name in ("masked_lm_positions", "masked_lm_ids"):
            example.features.feature[name].int64_list.value.extend([1] * PREDICTIONS)
        example.features.feature["next_sentence_labels"].int64_list.value.append(1)
        example.features.feature["masked_lm_weights"].float_list.value.extend([1.0] * PREDICTIONS)
        writer.write(example.SerializeToString())
        serialized = example.SerializeToString()
    names = tuple(example.features.feature)
    with tf.Graph().as_default(), tf.Session() as session:
        spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
        batch = session.run(input_pipeline.parse_batch(tf.constant([serialized]), spec, names))
    assert sorted(batch) == sorted(NAMES)
    np.testing.assert_array_equal(batch["segment_ids"], [range(SEQ_LENGTH)])


@pytest.mark.parametrize("vocab_size", [100, 30_522, 1 << 16, 119_547, 3_000_000])
def test_records_of_ours_are_read_by_place_as_they_are_parsed(vocab_size):
    seq, predictions, batch = 200, 7, 9
    rng = np.random.default_rng(vocab_size)

    def ids(width):
        return rng.integers(0, vocab_size, (batch, width)).astype(np.uint32)

    columns = {
        "input_ids": ids(seq),
        "input_mask": rng.integers(0, 2, (batch, seq)).astype(bool),
        "segment_ids": rng.integers(0, 2, (batch, seq)).astype(bool),
        "masked_lm_positions": rng.integers(0, seq, (batch, predictions)).astype(np.uint16),
        "masked_lm_ids": ids(predictions),
        "masked_lm_weights": rng.random((batch, predictions)).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (batch, 1)).astype(bool),
    }
    lengths = {
        "tokens": ids(seq),
        "segment_lengths": rng.integers(0, seq + 1, (batch, 2)).astype(np.uint16),
        "next_sentence_labels": columns["next_sentence_labels"],
    }
    for layout, values, spec in (
        (
            records.pretraining_layout(seq, predictions, vocab_size),
            columns,
            input_pipeline.feature_spec(seq, predictions),
        ),
        (records.unmasked_layout(seq), lengths, input_pipeline.unmasked_feature_spec(seq)),
    ):
        with tf.Graph().as_default(), tf.Session() as session:
            rows = layout.encode(values)[:, 12:-4]
            serialized = tf.constant([row.tobytes() for row in rows])
            parsed, decoded = session.run(
                [
                    input_pipeline.parse_batch(serialized, spec, tuple(values)),
                    input_pipeline.decode_batch(tf.constant(rows), layout),
                ]
            )
        assert sorted(parsed) == sorted(decoded) == sorted(values)
        for name, value in parsed.items():
            np.testing.assert_array_equal(decoded[name], value)
            np.testing.assert_array_equal(decoded[name], values[name])
            assert decoded[name].dtype == value.dtype


def test_only_records_of_ours_are_read_by_place(record_files, tmp_path):
    files, _ = record_files
    assert records.peek(files[0]).layout is None  # written by TensorFlow
    layout = records.unmasked_layout(SEQ_LENGTH)
    rows = layout.encode(
        {
            "tokens": np.full((1, SEQ_LENGTH), 7, np.uint16),
            "segment_lengths": np.full((1, 2), 4, np.uint16),
            "next_sentence_labels": np.zeros((1, 1), np.uint16),
        }
    )
    path = tmp_path / "r"
    path.write_bytes(rows.tobytes())
    assert records.peek(str(path)).layout == layout != records.unmasked_layout(SEQ_LENGTH + 1)
    record = rows[0, 12:-4]
    for start, _, _, width, _ in layout.slots():
        if width == 2:  # a varint that ends early
            changed = record.copy()
            changed[start] = 7
            assert not layout.matches(changed.tobytes())
    assert layout.matches(record.tobytes()) and not layout.matches(record.tobytes()[:-1])


@pytest.mark.parametrize("batch_size", [1, 4, 256, 300])
def test_small_batches_are_those_of_large_ones(record_files, batch_size):
    files, counts = record_files
    spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
    input_fn = input_pipeline.training_input_fn(files, counts, spec, NAMES, 3, batch_size, first_step=0)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        iterator = tf.data.make_initializable_iterator(input_fn({"batch_size": batch_size}))
        batch = iterator.get_next()
        session.run(tf.global_variables_initializer())
        session.run(iterator.initializer)
        found = [session.run(batch["input_ids"])[:, 0] for _ in range(-(-600 // batch_size))]
    assert {len(part) for part in found} == {batch_size}
    assert np.concatenate(found)[:600].tolist() == numbers(files, counts, 3, 0, 600, files_per_group=8, window=8192)
