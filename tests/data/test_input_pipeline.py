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


def numbers(files, counts, seed, position, limit, files_per_group=2):
    """The first `limit` record numbers from `position` on."""
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = input_pipeline.training_examples(
            files, counts, seed, tf.constant(position, tf.int64), files_per_group
        )
        spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
        dataset = dataset.batch(limit).map(lambda batch: input_pipeline.parse_batch(batch, spec, NAMES))
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


@pytest.mark.parametrize("files_per_group", [1, 2, 4, 8])
def test_starting_anywhere_continues_the_same_stream(record_files, files_per_group):
    files, counts = record_files
    total = sum(counts)
    stream = numbers(files, counts, 5, 0, 2 * total + 10, files_per_group)
    for position in (1, 6, 7, 8, 20, 21, 36, total - 1, total, total + 1, 2 * total + 3):
        assert numbers(files, counts, 5, position, 5, files_per_group) == stream[position : position + 5]


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
