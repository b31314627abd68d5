"""Pretraining records: TFRecord files of `tf.train.Example` with the original project's seven features.

| feature | values |
|---|---|
| input_ids, input_mask, segment_ids | int64 [max_seq_length] |
| masked_lm_positions, masked_lm_ids | int64 [max_predictions_per_seq] |
| masked_lm_weights | float [max_predictions_per_seq] |
| next_sentence_labels | int64 [1]; 1 means that the second segment is a random one |

Records to be masked when they are read (`dynamic_masking`) have three:

| feature | values |
|---|---|
| tokens | bytes: little-endian uint32 [max_seq_length]: the token id, and in the highest byte the place below |
| segment_lengths | int64 [2]: number of tokens of [CLS] A [SEP], and of B [SEP] or 0 where there is none |
| next_sentence_labels | int64 [1] |

The place of a token in its word counts from 1 on, [SEP] included, up to 255; it is 0 for what is never masked: [CLS],
[SEP] and padding.

Packed records (`pack_sequences`) hold up to `max_pairs` pairs in a row, one after the other. Positions are places in
the row, and what tells of a pair is there for each:

| feature | values |
|---|---|
| next_sentence_labels | int64 [max_pairs] |
| pair_lengths, instead of input_mask | int64 [max_pairs]: number of tokens of each pair, or 0 where there is none |
| segment_lengths, if there are no masks | int64 [2 * max_pairs] |

All records of a file have the same shapes. `Layout` uses that to write them fast: protobuf lets a varint be longer
than it need be, so that with a fixed number of bytes for each value every record has the same length, and a batch
of records is a matrix of bytes filled column by column. Any protobuf reader reads it.

Formats: https://protobuf.dev/programming-guides/encoding/ and
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details.
"""

import dataclasses
import itertools
import struct

import google_crc32c
import numpy as np

from bert import files
from bert.errors import InputError

FEATURE_NAMES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)

UNMASKED_FEATURE_NAMES = ("tokens", "segment_lengths", "next_sentence_labels")
PACKED_FEATURE_NAMES = (*(name for name in FEATURE_NAMES if name != "input_mask"), "pair_lengths")

# The TF 2 model garden's spelling of two of the features.
ALIASES = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}

# Where the id and the place are in a token of a record without masks.
TOKEN_ID_BITS = 24
TOKEN_ID = (1 << TOKEN_ID_BITS) - 1
MAX_PLACE = 255

_FRAME_HEADER = 12  # length of the data, uint64, and its checksum, uint32
_FRAME_FOOTER = 4  # checksum of the data, uint32
_MAX_RECORD_BYTES = 1 << 30
_READ_BYTES = 1 << 22


@dataclasses.dataclass(frozen=True)
class RecordShape:
    """What the first record of a file shows.

    Attributes:
      max_seq_length: length of the sequences.
      max_predictions_per_seq: length of masked_lm_positions; None if the records have no masks.
      max_pairs: how many pairs a record has room for if it is packed; None if it is not.
      feature_names: names of the features as the file spells them, in the order of `FEATURE_NAMES`,
        `UNMASKED_FEATURE_NAMES` or `PACKED_FEATURE_NAMES`.
      features: dict from the file's names to (dtype, length).
      max_token_id: largest token id in the record.
      layout: the `Layout` that the record has, or None if it was not written by this module.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    max_pairs: int
    feature_names: tuple
    features: dict
    max_token_id: int
    layout: object


class Layout:
    """Fixed layout of the records of one shape: batches of arrays to bytes of a TFRecord file.

    Args:
      features: dict from name to (length, largest value); the largest value is an int, or a float for a feature
        that holds float32, or `np.uint32` for one that holds bytes: little-endian uint32.
    """

    def __init__(self, features):
        entries, self._slots = [], {}
        position = 0
        for name, (length, largest) in features.items():
            # Feature { oneof { bytes_list = 1, float_list = 2, int64_list = 3 } }, each with one field 1; those of
            # numbers are packed.
            if largest is np.uint32:
                kind, dtype = 1, np.dtype("<u4")
            elif isinstance(largest, float):
                kind, dtype = 2, np.dtype("<f4")
            else:
                kind, dtype = 3, None
            width = dtype.itemsize if dtype else max(1, -(-int(largest).bit_length() // 7))
            values = bytes(length * width)
            value = _field(kind, _field(1, values))
            # An entry of the map Features.feature: key = 1, value = 2. The values are its last bytes.
            entry = _field(1, _field(1, name.encode()) + _field(2, value))
            entries.append(entry)
            position += len(entry)
            self._slots[name] = (position - len(values), length, width, dtype)
        body = b"".join(entries)
        example = _field(1, body)
        length = struct.pack("<Q", len(example))
        frame = length + _masked_crc(length) + example + bytes(_FRAME_FOOTER)
        self._first = _FRAME_HEADER + len(example) - len(body)
        self._template = np.frombuffer(frame, np.uint8)
        self._is_fixed = np.ones(len(example), bool)
        for start, _, count, width, _ in self.slots():
            self._is_fixed[start : start + count * width] = False

    def __eq__(self, other):
        return isinstance(other, Layout) and self._slots == other._slots and self._first == other._first

    __hash__ = None

    def slots(self):
        """Where the values lie in the data of a record: a list of (first byte, name, number, bytes each, dtype).

        The NumPy dtype is that of values that lie there as they are, and None if they are varints.
        """
        first = self._first - _FRAME_HEADER
        return [(first + start, name, *slot) for name, (start, *slot) in self._slots.items()]

    def matches(self, record):
        """Whether the bytes of a record have this layout."""
        data = np.frombuffer(record, np.uint8)
        if len(data) != len(self._is_fixed):
            return False
        template = self._template[_FRAME_HEADER:-_FRAME_FOOTER]
        if not np.array_equal(data[self._is_fixed], template[self._is_fixed]):
            return False
        for start, _, count, width, dtype in self.slots():
            if dtype is None:
                last = (data[start : start + count * width].reshape(count, width) < 0x80).nonzero()[1]
                if not np.array_equal(last, np.full(count, width - 1)):
                    return False
        return True

    @property
    def record_bytes(self):
        """Bytes of one record with its frame."""
        return len(self._template)

    @property
    def data_bytes(self):
        """Bytes of one record without its frame."""
        return len(self._is_fixed)

    def encode(self, columns):
        """Encodes a batch of records.

        Args:
          columns: dict from name to an array [batch, length]: unsigned integers within the feature's largest
            value, or float32.

        Returns:
          uint8 array [batch, record_bytes]: the records as they lie in a TFRecord file.
        """
        batch = len(next(iter(columns.values())))
        rows = np.empty((batch, self.record_bytes), np.uint8)
        rows[:] = self._template
        for name, (start, length, width, dtype) in self._slots.items():
            values = columns[name]
            slot = rows[:, self._first + start : self._first + start + length * width]
            if dtype:
                slot[:] = np.ascontiguousarray(values, dtype).view(np.uint8).reshape(batch, -1)
            elif width == 1:
                slot[:] = values
            else:
                encoded = np.empty((batch, length, width), np.uint8)
                for i in range(width):
                    more = 0x80 if i < width - 1 else 0  # set in all bytes of a varint but the last
                    encoded[:, :, i] = values >> 7 * i | more
                slot[:] = encoded.reshape(batch, -1)
        self._add_checksums(rows)
        return rows

    def _add_checksums(self, rows):
        frames = struct.iter_unpack(f"{_FRAME_HEADER}x{self.data_bytes}s{_FRAME_FOOTER}x", rows.data)
        crcs = np.array([google_crc32c.value(data) for (data,) in frames], np.uint32)
        rows[:, -_FRAME_FOOTER:] = _mask_crc(crcs).astype("<u4").view(np.uint8).reshape(-1, _FRAME_FOOTER)


def pretraining_layout(max_seq_length, max_predictions_per_seq, vocab_size, max_pairs=None):
    """`Layout` of the seven features, or of those of packed records if there are `max_pairs`."""
    sequence = max_seq_length
    return Layout(
        {
            "input_ids": (sequence, vocab_size - 1),
            **({"pair_lengths": (max_pairs, sequence)} if max_pairs else {"input_mask": (sequence, 1)}),
            "segment_ids": (sequence, 1),
            "masked_lm_positions": (max_predictions_per_seq, max_seq_length - 1),
            "masked_lm_ids": (max_predictions_per_seq, vocab_size - 1),
            "masked_lm_weights": (max_predictions_per_seq, 1.0),
            "next_sentence_labels": (max_pairs or 1, 1),
        }
    )


def unmasked_layout(max_seq_length, max_pairs=None):
    """`Layout` of the features of records without masks, packed ones if there are `max_pairs`."""
    return Layout(
        {
            "tokens": (max_seq_length, np.uint32),
            "segment_lengths": (2 * (max_pairs or 1), max_seq_length),
            "next_sentence_labels": (max_pairs or 1, 1),
        }
    )


def read(path):
    """Yields the bytes of each record of a TFRecord file, with both checksums verified.

    Raises:
      InputError: the file is not a TFRecord file, or is damaged or truncated.
    """
    for buffer, start, end in _frames(path):
        data = buffer[start:end]
        if _masked_crc(data) != buffer[end : end + _FRAME_FOOTER]:
            raise InputError(f"{path}: damaged TFRecord file: the checksum of a record does not match its data.")
        yield data


def parse(record):
    """Parses a serialized `tf.train.Example`.

    Returns:
      A dict from name to an int64 or float32 array, or a list of bytes; "tokens" of ours to a uint32 array.

    Raises:
      ValueError: not a serialized Example.
    """
    features = {}
    for _, body in _fields(record, 1):
        for _, entry in _fields(body, 1):
            parts = dict(_fields(entry, 1, 2))
            features[str(parts[1], "utf-8")] = _parse_feature(parts.get(2, b""))
    tokens = features.get("tokens")
    if isinstance(tokens, list) and len(tokens) == 1:
        features["tokens"] = np.frombuffer(tokens[0], "<u4")
    return features


def peek(path):
    """Looks at the first record of a file.

    Returns:
      A `RecordShape`.

    Raises:
      InputError: the file is empty, compressed, no TFRecord file, truncated, or holds other features than those of
        BERT pretraining; the message names those found and those wanted.
    """
    record = next(read(path), None)
    if record is None:
        raise InputError(f"{path}: holds no records.")
    return _shape(path, record)


def check_token_ids(path, vocab_size, sample=1000):
    """Checks the token ids of the first `sample` records against the size of the vocabulary.

    Raises:
      InputError: an id is not below `vocab_size`.
    """
    for number, record in enumerate(itertools.islice(read(path), sample), 1):
        largest = _shape(path, record).max_token_id
        if largest >= vocab_size:
            raise InputError(
                f"{path}, record {number}: token id {largest} does not fit vocab_size {vocab_size}: "
                "the records were made with another vocabulary than the model has."
            )


def count(path):
    """Number of records in a TFRecord file, from its framing alone.

    Raises:
      InputError: the file is not a TFRecord file or is truncated.
    """
    return sum(1 for _ in _frames(path))


def first_record_bytes(path):
    """Bytes of the first record of a TFRecord file with its frame.

    Raises:
      InputError: the file is not a TFRecord file.
    """
    with files.open_file(path) as f:
        return _FRAME_HEADER + _data_length(path, f.read(_FRAME_HEADER), 0) + _FRAME_FOOTER


def find(patterns, flag):
    """Record files that match comma-separated globs, without the JSON files that lie beside them."""
    found = [path for path in files.expand_globs(patterns, flag) if not path.endswith(".json")]
    if not found:
        raise InputError(f"--{flag}: no record file matches {patterns!r}.")
    return found


def expand_shards(names):
    """Paths that a comma-separated list of record files to write stands for.

    A name such as ``x@2`` stands for ``x-00000-of-00002`` and ``x-00001-of-00002``.
    """
    paths = []
    for name in (part.strip() for part in names.split(",")):
        stem, _, shards = name.rpartition("@")
        if stem and shards.isdigit() and int(shards):
            paths.extend(f"{stem}-{shard:05d}-of-{int(shards):05d}" for shard in range(int(shards)))
        elif name:
            paths.append(name)
    return paths


def _shape(path, record):
    try:
        features = parse(record)
    except (ValueError, KeyError) as e:
        raise InputError(f"{path}: holds records that are not serialized tf.train.Example messages.") from e
    by_canonical_name = {ALIASES.get(name, name): name for name in features}
    is_masked = "segment_lengths" not in by_canonical_name
    wanted = FEATURE_NAMES if is_masked else UNMASKED_FEATURE_NAMES
    if is_masked and "pair_lengths" in by_canonical_name:
        wanted = PACKED_FEATURE_NAMES
    missing = [name for name in wanted if name not in by_canonical_name]
    if missing:
        raise InputError(
            f"{path}: these are not BERT pretraining records. Features found: "
            f"{', '.join(sorted(features)) or 'none'}. Wanted: {', '.join(wanted)}."
        )
    names = tuple(by_canonical_name[name] for name in wanted)
    values = [features[name] for name in names]
    kinds = {name: np.dtype(np.float32 if name.endswith("weights") else np.int64) for name in wanted}
    if not is_masked:
        kinds["tokens"] = np.dtype(np.uint32)
    for name, value in zip(wanted, values):
        if getattr(value, "dtype", None) != kinds[name]:
            raise InputError(f"{path}: feature {by_canonical_name[name]} is not a list of {kinds[name]}.")
    lengths = dict(zip(wanted, map(len, values)))
    sequence, predictions = lengths[wanted[0]], lengths.get("masked_lm_positions")
    expected = {name: predictions if name.startswith("masked_lm") else sequence for name in wanted}
    pairs = lengths.get("pair_lengths", 1) if is_masked else max(1, lengths["next_sentence_labels"])
    expected.update(dict.fromkeys(("next_sentence_labels", "pair_lengths"), pairs), segment_lengths=2 * pairs)
    if any(length != expected[name] for name, length in lengths.items()) or sequence == 0:
        found = ", ".join(f"{name} {len(value)}" for name, value in zip(names, values))
        raise InputError(f"{path}: lengths of the features disagree: {found}.")
    max_pairs = pairs if pairs > 1 else None
    return RecordShape(
        max_seq_length=sequence,
        max_predictions_per_seq=predictions,
        max_pairs=max_pairs,
        feature_names=names,
        features={name: (str(value.dtype), len(value)) for name, value in zip(names, values)},
        layout=_layout(record, sequence, predictions, max_pairs),
        max_token_id=_max_token_id(dict(zip(wanted, values))),
    )


def _max_token_id(features):
    if "tokens" in features:
        return int((features["tokens"] & TOKEN_ID).max())
    return int(max(features["input_ids"].max(), features["masked_lm_ids"].max(initial=0)))


def _layout(record, max_seq_length, max_predictions_per_seq, max_pairs):
    """The `Layout` of a record of ours, by the number of bytes that its token ids have; None for any other."""
    if max_predictions_per_seq is None:
        layouts = [unmasked_layout(max_seq_length, max_pairs)]
    else:
        layouts = (
            pretraining_layout(max_seq_length, max_predictions_per_seq, 1 << 7 * id_bytes, max_pairs)
            for id_bytes in range(1, 5)
        )
    return next((layout for layout in layouts if layout.matches(record)), None)


def _frames(path):
    """Yields (buffer, start, end) of the data of each record; verifies the checksum of each length."""
    known = {}  # header -> length of the data; most records of a file have the same
    with files.open_file(path) as f:
        buffer, start, offset = b"", 0, 0
        while True:
            header = buffer[start : start + _FRAME_HEADER]
            length = known.get(header)
            if length is None and len(header) == _FRAME_HEADER:
                length = known[header] = _data_length(path, header, offset + start)
            end = start + _FRAME_HEADER + (length or 0) + _FRAME_FOOTER
            if length is None or end > len(buffer):
                more = f.read(max(_READ_BYTES, end - len(buffer)))
                if more:
                    offset += start
                    buffer, start = buffer[start:] + more, 0
                    continue
                if start == len(buffer):
                    return
                if offset + start == 0:
                    _data_length(path, header, 0)
                raise InputError(
                    f"{path}: truncated: the record at byte {offset + start} is cut off by the end of the file "
                    f"at byte {offset + len(buffer)}."
                )
            yield buffer, start + _FRAME_HEADER, end - _FRAME_FOOTER
            start = end


def _data_length(path, header, position):
    if position == 0 and header[:2] == b"\x1f\x8b":
        raise InputError(f"{path}: is compressed with gzip; decompress it first (gunzip).")
    (length,) = struct.unpack_from("<Q", header.ljust(_FRAME_HEADER, b"\0"))
    if len(header) < _FRAME_HEADER or header[8:] != _masked_crc(header[:8]) or length > _MAX_RECORD_BYTES:
        if position == 0:
            raise InputError(f"{path}: not a TFRecord file.")
        raise InputError(f"{path}: damaged TFRecord file: no record begins at byte {position}.")
    return length


def _mask_crc(crc):
    """TFRecord's masking of a checksum, for a uint32 scalar or array."""
    crc = np.asarray(crc, np.uint32)
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)


def _masked_crc(data):
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number, content):
    """A length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _read_varint(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def _fields(data, *numbers):
    """Yields (number, content) of the length-delimited fields with the given numbers; skips all others."""
    position = 0
    data = memoryview(data)
    try:
        while position < len(data):
            tag, position = _read_varint(data, position)
            wire_type = tag & 7
            if wire_type == 2:
                length, position = _read_varint(data, position)
                if tag >> 3 in numbers:
                    yield tag >> 3, data[position : position + length]
            elif wire_type == 0:
                length, end = _read_varint(data, position)
                length = end - position
            elif wire_type in (1, 5):
                length = 8 if wire_type == 1 else 4
            else:
                raise ValueError(f"wire type {wire_type}")
            position += length
    except IndexError as e:
        raise ValueError("message cut off") from e
    if position > len(data):
        raise ValueError("message cut off")


def _parse_feature(feature):
    for kind, content in _fields(feature, 1, 2, 3):
        values = [bytes(value) for _, value in _fields(content, 1)]
        if kind == 1:
            return values
        packed = np.frombuffer(b"".join(values), np.uint8)
        if kind == 2:
            return packed.view("<f4")
        return _parse_varints(packed)
    return []


def _parse_varints(packed):
    """Decodes packed int64 varints of any width: uint8 array to int64 array."""
    last = packed < 0x80
    if not len(packed):
        return np.zeros(0, np.int64)
    if not last[-1]:
        raise ValueError("varint cut off")
    starts = np.concatenate([[0], np.flatnonzero(last)[:-1] + 1])
    place = np.arange(len(packed)) - np.repeat(starts, np.diff(np.append(starts, len(packed))))
    if place.max() > 9:
        raise ValueError("varint too long")
    parts = (packed & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.add.reduceat(parts, starts).view(np.int64)
