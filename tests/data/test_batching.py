"""Batches without padding: who is in them, how they are packed, and where a resumed training goes on."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bert.data import batching, finetuning_input
from bert.data.records import Layout

SEQ = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Records in two files, whose token ids tell which they are, with lengths from 2 to 24."""
    folder = tmp_path_factory.mktemp("records")
    rng = np.random.default_rng(3)
    lengths = np.clip(rng.lognormal(1.9, 0.6, 203).astype(int), 2, SEQ)
    mask = (np.arange(SEQ) < lengths[:, None]).astype(np.uint8)
    layout = Layout({"input_ids": (SEQ, 300), "input_mask": (SEQ, 1), "segment_ids": (SEQ, 1), "label_ids": (1, 300)})
    number = np.arange(203, dtype=np.uint32)[:, None]
    rows = layout.encode(
        {
            "input_ids": mask * (number + 1),
            "input_mask": mask,
            "segment_ids": mask * (np.arange(SEQ) > 2).astype(np.uint8),
            "label_ids": number,
        }
    )
    paths = []
    for name, part in (("a", rows[:90]), ("b", rows[90:])):
        paths.append(str(folder / name))
        (folder / name).write_bytes(part.tobytes())
    spec = {name: tf.FixedLenFeature([SEQ], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    spec["label_ids"] = tf.FixedLenFeature([1], tf.int64)
    return finetuning_input.Data(tuple(paths), (90, 113), spec, tuple(spec))


def take(input_fn, batch_size, number=None, step=0):
    """The first batches of an input function, in a training at a global step."""
    batches = []
    with tf.Graph().as_default(), tf.Session() as session:
        global_step = tf.train.create_global_step()
        iterator = tf.data.make_initializable_iterator(input_fn({"batch_size": batch_size}))
        get_next = iterator.get_next()
        session.run(global_step.initializer)
        session.run(global_step.assign(step))
        session.run(iterator.initializer)
        while number is None or len(batches) < number:
            try:
                batches.append(session.run(get_next))
            except tf.errors.OutOfRangeError:
                break
    return batches


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("kind", [batching.PADDED, batching.BUCKETED, batching.PACKED])
def test_every_epoch_has_every_record_once_and_a_resumed_training_goes_on_where_it_was(data, kind):
    fills = []
    # 203 is no multiple of 8: batches cross epochs.
    input_fn = finetuning_input.training_input_fn(data, 5, 8, 80, kind, on_fill=fills.append)
    batches = take(input_fn, 8, 80)
    numbers = np.concatenate([batch["label_ids"][:, 0] for batch in batches])
    epochs = [numbers[start : start + 203] for start in range(0, 609, 203)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(203))
    assert not np.array_equal(epochs[0], epochs[1])
    for step in (25, 61):
        assert_same(take(input_fn, 8, 3, step), batches[step : step + 3])
    if kind == batching.PADDED:
        assert not fills
        return
    fill = fills[0]
    places = np.mean([batch["input_ids"].size for batch in batches])
    assert fill.padded_share == pytest.approx(np.mean([batch["input_mask"].mean() for batch in batches]), abs=0.01)
    assert fill.share == pytest.approx(fill.padded_share * 8 * SEQ / places, abs=0.02)
    assert fill.share > 1.7 * fill.padded_share


def test_a_chunk_of_the_records_is_shuffled_at_a_time_if_they_are_too_many(data, monkeypatch):
    monkeypatch.setattr(finetuning_input, "_CHUNK_BYTES", 60 * 130)
    input_fn = finetuning_input.training_input_fn(data, 5, 8, 80, batching.BUCKETED)
    batches = take(input_fn, 8, 80)
    numbers = np.concatenate([batch["label_ids"][:, 0] for batch in batches])
    assert sorted(numbers[203:406]) == list(range(203)) and numbers[:40].max() < 100
    assert_same(take(input_fn, 8, 3, 61), batches[61:64])


@pytest.mark.parametrize("kind", [batching.PADDED, batching.BUCKETED, batching.PACKED])
def test_prediction_has_every_record_once_with_its_place(data, kind):
    batches = take(finetuning_input.prediction_input_fn(data, kind), 8)
    index = np.concatenate([batch["index"][:, 0] for batch in batches])
    numbers = np.concatenate([batch["label_ids"][:, 0] for batch in batches])
    assert len(index) == 208 and sorted(index[index >= 0]) == list(range(203))
    np.testing.assert_array_equal(numbers[index >= 0], index[index >= 0])
    if kind == batching.PADDED:
        np.testing.assert_array_equal(index[:203], np.arange(203))


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_packed_examples_lie_side_by_side_and_can_be_split(data, micro_batches):
    input_fn = finetuning_input.training_input_fn(data, 5, 16, 30, batching.PACKED, micro_batches)
    size = 16 // micro_batches
    for batch in take(input_fn, 16, 30):
        assert batch["input_ids"].shape[0] == 16  # whatever splits a batch can split these
        for start in range(0, 16, size):
            part = {name: value[start : start + size] for name, value in batch.items()}
            ids, example_ids, positions = (part[n].ravel() for n in ("input_ids", "example_ids", "position_ids"))
            assert np.count_nonzero(example_ids) == part["input_mask"].sum()
            for i in range(size):
                length = part["input_mask"][i].sum()
                first = part["first_places"][i, 0]
                assert first % SEQ + length <= SEQ  # no example goes on in another row
                assert set(ids[first : first + length]) == {part["label_ids"][i, 0] + 1}
                assert set(example_ids[first : first + length]) == {i + 1}
                np.testing.assert_array_equal(positions[first : first + length], np.arange(length))


def test_first_fit_decreasing():
    with tf.Session() as session:
        rows, starts = session.run(batching.pack(tf.constant([[3, 6, 2, 4, 5, 1], [10, 10, 1, 1, 1, 1]]), 10))
    assert rows.tolist() == [[1, 0, 1, 0, 1, 2], [0, 1, 2, 2, 2, 2]]
    assert starts.tolist() == [[5, 0, 8, 6, 0, 0], [0, 0, 0, 1, 2, 3]]


def test_marked_places_are_tokens_even_behind_gaps():
    with tf.Session() as session:
        lengths = session.run(batching.token_lengths(tf.constant([[1, 1, 0], [1, 0, 1], [0, 0, 0]])))
    assert lengths.tolist() == [2, 3, 1]


@pytest.mark.parametrize("kind", [batching.BUCKETED, batching.PACKED])
def test_fewer_examples_than_a_batch_stay_as_they_come(kind):
    with tf.Session() as session:
        few, none_left = session.run(
            [
                batching.arrange(tf.constant([5, 2, 3]), 8, kind),
                batching.arrange(tf.constant([5, 2, 3]), 8, kind, 6, tf.constant([1, 2], tf.int64)),
            ]
        )
    assert few.tolist() == [0, 1, 2] and sorted(none_left) == [0, 1, 2]
