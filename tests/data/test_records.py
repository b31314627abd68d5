"""Records: our bytes are what TensorFlow and protobuf read, and what is not ours is refused in words."""

import contextlib
import gzip
import json
import pathlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.data import pretraining_data, records, shards
from bert.errors import InputError

SEQ, PREDICTIONS, VOCAB = 24, 5, 40_000


def random_columns(batch, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(0, VOCAB, (batch, SEQ)).astype(np.uint16),
        "input_mask": rng.integers(0, 2, (batch, SEQ)).astype(bool),
        "segment_ids": rng.integers(0, 2, (batch, SEQ)).astype(bool),
        "masked_lm_positions": rng.integers(0, SEQ, (batch, PREDICTIONS)).astype(np.uint16),
        "masked_lm_ids": rng.integers(0, VOCAB, (batch, PREDICTIONS)).astype(np.uint16),
        "masked_lm_weights": rng.random((batch, PREDICTIONS)).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (batch, 1)).astype(bool),
    }


def write(path, columns, names=None):
    layout = records.pretraining_layout(SEQ, PREDICTIONS, VOCAB)
    content = layout.encode(columns).tobytes()
    path.write_bytes(content)
    return content


def test_own_reader_reads_what_was_written(tmp_path):
    columns = random_columns(7)
    path = tmp_path / "r.tfrecord"
    write(path, columns)
    parsed = [records.parse(record) for record in records.read(str(path))]
    assert len(parsed) == records.count(str(path)) == 7
    for i, features in enumerate(parsed):
        assert tuple(features) == records.FEATURE_NAMES
        for name, values in columns.items():
            np.testing.assert_array_equal(features[name], values[i])
            assert features[name].dtype == (np.float32 if name.endswith("weights") else np.int64)


def test_tensorflow_and_protobuf_read_what_was_written(tmp_path):
    tf = pytest.importorskip("tensorflow")
    columns = random_columns(5)
    path = tmp_path / "r.tfrecord"
    write(path, columns)
    serialized = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    spec = {
        name: tf.io.FixedLenFeature([values.shape[1]], tf.float32 if name.endswith("weights") else tf.int64)
        for name, values in columns.items()
    }
    batch = tf.io.parse_example(serialized, spec)
    for i, record in enumerate(serialized):
        example = tf.train.Example.FromString(record)
        one = tf.io.parse_single_example(record, spec)
        for name, values in columns.items():
            feature = example.features.feature[name]
            listed = feature.float_list.value if name.endswith("weights") else feature.int64_list.value
            np.testing.assert_array_equal(np.array(listed, np.float32), values[i].astype(np.float32))
            np.testing.assert_array_equal(batch[name][i], values[i])
            np.testing.assert_array_equal(one[name], values[i])


@pytest.mark.parametrize("vocab_size", [100, 1 << 14, (1 << 14) + 1, 30522, 1 << 16, 119_547, 3_000_000])
def test_ids_of_any_vocabulary(tmp_path, vocab_size):
    layout = records.pretraining_layout(300, 2, vocab_size)
    ids = np.zeros((2, 300), np.uint32)
    ids[:, -1] = vocab_size - 1
    ids[0, :7] = [value % vocab_size for value in (1, 127, 128, 16383, 16384, 65535, 2097151)]
    columns = {
        "input_ids": ids,
        "input_mask": np.ones((2, 300), bool),
        "segment_ids": np.zeros((2, 300), bool),
        "masked_lm_positions": np.array([[0, 299], [127, 128]], np.uint16),
        "masked_lm_ids": ids[:, -2:],
        "masked_lm_weights": np.ones((2, 2), np.float32),
        "next_sentence_labels": np.ones((2, 1), bool),
    }
    path = tmp_path / "r"
    path.write_bytes(layout.encode(columns).tobytes())
    for i, record in enumerate(records.read(str(path))):
        features = records.parse(record)
        np.testing.assert_array_equal(features["input_ids"], ids[i])
        np.testing.assert_array_equal(features["masked_lm_positions"], columns["masked_lm_positions"][i])


def test_reads_what_tensorflow_writes(tmp_path):
    tf = pytest.importorskip("tensorflow")
    path = str(tmp_path / "r")
    with tf.io.TFRecordWriter(path) as writer:
        for values in ([0, 1, 2**40, -1], []):
            feature = {
                "ints": tf.train.Feature(int64_list=tf.train.Int64List(value=values)),
                "floats": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5] * len(values))),
                "bytes": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x", b"yz"])),
                "none": tf.train.Feature(),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    first, second = [records.parse(record) for record in records.read(path)]
    assert first["ints"].tolist() == [0, 1, 2**40, -1]
    assert first["floats"].tolist() == [0.5] * 4
    assert first["bytes"] == [b"x", b"yz"]
    assert first["none"] == []
    assert second["ints"].tolist() == []


def test_peek(tmp_path):
    path = tmp_path / "r"
    write(path, random_columns(3))
    shape = records.peek(str(path))
    assert (shape.max_seq_length, shape.max_predictions_per_seq) == (SEQ, PREDICTIONS)
    assert shape.feature_names == records.FEATURE_NAMES
    assert shape.features["masked_lm_weights"] == ("float32", PREDICTIONS)


def test_peek_recognises_the_model_gardens_names(tmp_path):
    columns = random_columns(1)
    renamed = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
    layout = records.Layout(
        {
            renamed.get(name, name): (values.shape[1], 1.0 if values.dtype == np.float32 else VOCAB)
            for name, values in columns.items()
        }
    )
    path = tmp_path / "r"
    path.write_bytes(layout.encode({renamed.get(name, name): value for name, value in columns.items()}).tobytes())
    shape = records.peek(str(path))
    assert shape.feature_names[:3] == ("input_word_ids", "input_mask", "input_type_ids")
    assert shape.max_seq_length == SEQ


def test_peek_refuses_what_is_no_record_file(tmp_path):
    path = tmp_path / "r"
    content = write(path, random_columns(1))
    for bad, message in (
        (b"", "no records"),
        (b"Some text of a sentence.\n", "not a TFRecord"),
        (b"abc", "not a TFRecord"),
        (gzip.compress(content), "gzip"),
        (content[:100], "truncated"),
        (content[:10] + content[11:], "not a TFRecord"),
        (content[:50] + b"\xff" + content[51:], "checksum"),
    ):
        path.write_bytes(bad)
        with pytest.raises(InputError, match=message) as error:
            records.peek(str(path))
        assert str(path) in str(error.value)


def test_peek_names_the_features_found_and_wanted(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(
        records.Layout({"x": (3, 10), "input_ids": (4, 10)})
        .encode({"x": np.zeros((1, 3), np.uint8), "input_ids": np.zeros((1, 4), np.uint8)})
        .tobytes()
    )
    with pytest.raises(InputError, match=r"found: input_ids, x\. Wanted: input_ids, input_mask,"):
        records.peek(str(path))


def test_peek_refuses_packed_records_of_another_project(shared_data):
    with pytest.raises(InputError, match=r"found: packed_input_ids.*Wanted: input_ids"):
        records.peek(str(shared_data / "tfrecord" / "sample_text_packed.tfrecord"))


def test_truncation_is_found_wherever_it_is(tmp_path):
    path = tmp_path / "r"
    content = write(path, random_columns(3))
    size = len(content) // 3
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        if length % size == 0:
            assert records.count(str(path)) == length // size
        else:
            with pytest.raises(InputError):
                records.count(str(path))


@settings(max_examples=200, deadline=None)
@given(position=st.integers(0, 10_000), value=st.binary(min_size=1, max_size=20), cut=st.integers(0, 10_000))
def test_damage_never_goes_unnoticed(tmp_path_factory, position, value, cut):
    path = tmp_path_factory.mktemp("fuzz") / "r"
    content = bytearray(write(path, random_columns(3)))
    true_records = list(records.read(str(path)))
    position %= len(content)
    content[position : position + len(value)] = value
    path.write_bytes(content[: len(content) - cut % len(content)])
    got, is_whole = [], False
    try:
        for record in records.read(str(path)):
            got.append(record)
            records.parse(record)
        is_whole = True
    except InputError:
        pass
    assert got == true_records[: len(got)]
    if is_whole:  # what remains ends where a record does: then the manifest tells, see below
        assert path.stat().st_size == len(got) * len(content) // 3


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_with_its_manifest_a_file_is_whole_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "r"
    content = write(path, random_columns(3))
    manifest = {"bytes": len(content), "records": 3}
    pathlib.Path(shards.manifest_path(str(path))).write_text(json.dumps(manifest))
    length = data.draw(st.one_of(st.sampled_from([0, len(content) // 3, len(content)]), st.integers(0, len(content))))
    bits = data.draw(st.lists(st.integers(0, 8 * len(content) - 1), max_size=3))
    changed = bytearray(content[:length])
    for bit in bits:
        if bit < 8 * length:
            changed[bit // 8] ^= 1 << bit % 8
    path.write_bytes(changed)
    try:
        (count,), read = pretraining_data.counts([str(path)]), list(records.read(str(path)))
    except InputError as e:
        assert changed != content and str(path) in str(e)
    else:
        assert changed == content and count == len(read) == 3


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_an_error_in_words(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "r"
    path.write_bytes(content)
    with pytest.raises(InputError, match=str(path)):
        records.peek(str(path))
    # In the frame of a record they are still no example, or one with other features.
    length = struct.pack("<Q", len(content))
    frame = length + records._masked_crc(length) + content + records._masked_crc(content)
    path.write_bytes(frame)
    assert list(records.read(str(path))) == [content]
    with pytest.raises(InputError, match=str(path)):
        records.peek(str(path))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_parse_fails_only_with_value_errors(content):
    with contextlib.suppress(ValueError, KeyError):
        records.parse(content)


def test_token_ids_are_checked_against_the_vocabulary(tmp_path):
    columns = random_columns(5)
    for name in ("input_ids", "masked_lm_ids"):
        columns[name] %= 1000
    columns["masked_lm_ids"][3, 1] = 1500
    path = tmp_path / "r"
    write(path, columns)
    records.check_token_ids(str(path), 1501)
    records.check_token_ids(str(path), 1000, sample=3)
    with pytest.raises(InputError, match=r"record 4: token id 1500 .*vocab_size 1500"):
        records.check_token_ids(str(path), 1500)


def test_names_of_shards(tmp_path):
    assert records.expand_shards("a, b@2") == ["a", "b-00000-of-00002", "b-00001-of-00002"]
    assert records.expand_shards("user@host") == ["user@host"]
    for name in ("x.tfrecord", "manifest-x.tfrecord.json"):
        (tmp_path / name).write_bytes(b"")
    assert records.find(str(tmp_path / "*"), "input_file") == [str(tmp_path / "x.tfrecord")]
