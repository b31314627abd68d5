"""Examples to records for fine-tuning, with the features of the original project.

| feature | values |
|---|---|
| input_ids, input_mask, segment_ids | int64 [max_seq_length] |
| label_ids | int64 [1]; [labels] of 0 and 1 for multi-label tasks; float [1] for regression |
| is_real_example | int64 [1], always 1 |

Token ids, truncation and padding are those of the original: ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``, of which
the longer of `a` and `b` loses its last token until all fits.
"""

import dataclasses
import itertools

import numpy as np
from absl import logging

from bert import tokenization
from bert.data import record_cache, records
from bert.data.wordpiece import BlockTokenizer
from bert.errors import InputError
from bert.tasks import task as tasks

_BATCH = 1000
_FORMAT = 1  # changes when the records of the same input do
_SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A file of records, and what was seen when it was made.

    Attributes:
      path: the TFRecord file.
      count: number of records.
      truncated: how many examples did not fit.
      tokens: number of tokens that are not padding.
      without_text: how many examples have no token of their own.
      label_counts: for labels of the kinds single and multi, how many examples have each.
      fingerprint: a function of the input's content, the vocabulary, and the settings.
    """

    path: str
    count: int
    truncated: int
    tokens: int
    without_text: int
    label_counts: list
    fingerprint: str


def write(task, source, split, output, vocab_file, do_lower_case, max_seq_length):
    """Makes the records of a file of examples, unless they are there already.

    Args:
      task: a `bert.tasks.task.Task`.
      source: the task's file.
      split: one of `bert.tasks.task.SPLITS`.
      output: the TFRecord file to write, as of `record_cache.make`.
      vocab_file: the vocabulary.
      do_lower_case: whether text is lower-cased.
      max_seq_length: tokens in a record.

    Returns:
      A `RecordFile`.
    """
    if max_seq_length < 3:
        raise InputError(f"--max_seq_length={max_seq_length}: at least 3, for [CLS], a token and [SEP].")
    settings = [_FORMAT, split, bool(do_lower_case), max_seq_length, task.encoding, task.settings(), task.columns]
    vocab = tokenization.load_vocab(vocab_file, required=_SPECIAL_TOKENS)

    def write_examples(f):
        encoder = _Encoder(task, vocab, do_lower_case, max_seq_length)
        examples = task.examples(source, split)
        while batch := list(itertools.islice(examples, _BATCH)):
            f.write(encoder.encode(batch).tobytes())
        if not encoder.count:
            raise InputError(f"{source}: there are no examples in it.")
        return {
            "count": encoder.count,
            "truncated": encoder.truncated,
            "tokens": encoder.tokens,
            "without_text": encoder.without_text,
            "label_counts": encoder.label_counts.tolist(),
        }

    made = record_cache.make(output, (source, vocab_file), settings, write_examples)
    return RecordFile(**{**made, "path": output})


def log_description(made, task, split, max_seq_length):
    """Logs what is in a file of records: how much, how long, and how the labels are distributed."""
    logging.info(
        "%s: %d examples, %.1f tokens on average, %d (%.1f %%) cut to %d tokens",
        split,
        made.count,
        made.tokens / made.count,
        made.truncated,
        100 * made.truncated / made.count,
        max_seq_length,
    )
    if made.without_text:
        logging.warning("%s: %d examples have no text", split, made.without_text)
    if not sum(made.label_counts):
        return
    logging.info(
        "%s: %s",
        split,
        ", ".join(
            f"label {label}: {count} ({100 * count / made.count:.1f} %)"
            for label, count in zip(task.labels, made.label_counts)
        ),
    )
    if split == "train" and task.label_kind == tasks.SINGLE and max(made.label_counts) == made.count:
        logging.warning("train: all examples have the same label: there is nothing to learn")


def check_case(vocab, vocab_file, do_lower_case):
    """Checks that lower-casing fits the vocabulary.

    Args:
      vocab: mapping from token to id.
      vocab_file: its path, for the message.
      do_lower_case: whether text is to be lower-cased; None: to be found out.

    Returns:
      Whether text is to be lower-cased.

    Raises:
      InputError: the vocabulary is cased and text is to be lower-cased, or the reverse.
    """
    # Uncased vocabularies have a few, too: special tokens.
    capitals = sum(token != token.lower() for token in vocab if token[:1] not in "[<")
    is_cased = capitals > 0.01 * len(vocab)
    if do_lower_case is None:
        return not is_cased
    if do_lower_case == is_cased:
        raise InputError(
            f"--do_lower_case={bool(do_lower_case)} does not fit {vocab_file}, which has "
            f"{capitals} of {len(vocab)} tokens with capitals. Give --do_lower_case={not do_lower_case}."
        )
    return do_lower_case


class _Encoder:
    """Examples to the bytes of records, and counts of what was seen."""

    def __init__(self, task, vocab, do_lower_case, max_seq_length):
        self._task = task
        self._cls, self._sep = vocab["[CLS]"], vocab["[SEP]"]
        self._tokenizer = BlockTokenizer(vocab, do_lower_case)
        self._length = max_seq_length
        if task.label_kind == tasks.MULTI:
            label = (len(task.labels), 1)
        else:
            label = (1, 1.0 if task.label_kind == tasks.REGRESSION else max(len(task.labels) - 1, 1))
        self._label_size = label[0]
        self._layout = records.Layout(
            {
                "input_ids": (max_seq_length, max(vocab.values())),
                "input_mask": (max_seq_length, 1),
                "segment_ids": (max_seq_length, 1),
                "label_ids": label,
                "is_real_example": (1, 1),
            }
        )
        self.count = self.truncated = self.tokens = self.without_text = 0
        self.label_counts = np.zeros(len(task.labels), np.int64)

    def encode(self, examples):
        """Bytes of the records of a list of examples, uint8 [examples, record_bytes]."""
        rows = range(len(examples))
        # A line end is white space to the tokenizer; here it ends a text.
        texts = [(example.text_a or "").replace("\n", " ") for example in examples]
        texts += [(example.text_b or "").replace("\n", " ") for example in examples]
        pieces, lengths, _ = self._tokenizer.encode("\n".join(texts) + "\n")
        ends = np.cumsum(lengths)
        starts = (ends - lengths).reshape(2, -1)
        lengths_a, lengths_b = lengths.reshape(2, -1).astype(np.int64)  # [examples] each
        kept_a, kept_b = truncate_pairs(lengths_a, lengths_b, self._length)  # [examples] each
        sizes = 2 + kept_a + np.where(kept_b > 0, kept_b + 1, 0)  # [examples]

        ids = np.zeros((len(examples), self._length), np.uint32)  # [examples, seq]
        ids[:, 0] = self._cls
        for row in rows:
            middle = 1 + kept_a[row]
            ids[row, 1:middle] = pieces[starts[0, row] :][: kept_a[row]]
            ids[row, middle] = self._sep
            if kept_b[row]:
                ids[row, middle + 1 : sizes[row] - 1] = pieces[starts[1, row] :][: kept_b[row]]
                ids[row, sizes[row] - 1] = self._sep
        position = np.arange(self._length)  # [seq]
        mask = (position < sizes[:, np.newaxis]).astype(np.uint8)  # [examples, seq]
        segments = mask * (position >= (2 + kept_a)[:, np.newaxis])  # [examples, seq]

        self.count += len(examples)
        self.truncated += int(np.sum((kept_a < lengths_a) | (kept_b < lengths_b)))
        self.tokens += int(sizes.sum())
        self.without_text += int(np.sum(kept_a + kept_b == 0))
        return self._layout.encode(
            {
                "input_ids": ids,
                "input_mask": mask,
                "segment_ids": segments,
                "label_ids": self._labels(examples),
                "is_real_example": np.ones((len(examples), 1), np.uint8),
            }
        )

    def _labels(self, examples):
        """Labels of examples, [examples, size of a label]; an example without one gets zeros, as in the original."""
        kind = np.float32 if self._task.label_kind == tasks.REGRESSION else np.uint32
        labels = np.zeros((len(examples), self._label_size), kind)
        for row, example in enumerate(examples):
            if example.label is not None:
                labels[row] = example.label
                if self._task.label_kind == tasks.SINGLE:
                    self.label_counts[example.label] += 1
                elif self._task.label_kind == tasks.MULTI:
                    self.label_counts += example.label
        return labels


def truncate_pairs(lengths_a, lengths_b, max_seq_length):
    """How much of each pair of texts fits: while it is too long, the longer loses a token, and `b` if they are equal.

    Args:
      lengths_a, lengths_b: int arrays [examples], tokens of the texts; a second text of none is no second text.
      max_seq_length: room for both and for [CLS] and a [SEP] after each text.

    Returns:
      Two int arrays [examples], the tokens that are kept.
    """
    room = max_seq_length - np.where(lengths_b > 0, 3, 2)  # [examples]
    half_a = (room + 1) // 2
    kept_a = np.where(
        lengths_b > 0, np.minimum(lengths_a, np.maximum(half_a, room - lengths_b)), np.minimum(lengths_a, room)
    )
    return kept_a, np.where(lengths_b > 0, np.minimum(lengths_b, room - kept_a), 0)
