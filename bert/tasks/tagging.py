"""Token tagging, such as named entities: files with a word a line, windows, tags, and scores.

A file has a word and its tag on each line, in columns separated by tabs or spaces, and a blank line between sentences,
as that of the CoNLL-2003 shared task (https://aclanthology.org/W03-0419) has.
"""

import collections
import dataclasses
import itertools
import re

import numpy as np

from bert import tokenization
from bert.data import record_cache, records, text
from bert.data.wordpiece import BlockTokenizer
from bert.errors import InputError
from bert.tasks.details import MAX_LABELS, confusion, per_label
from bert.tasks.task import find_file

OUTSIDE = "O"
_DOCUMENT = "-DOCSTART-"
_FORMAT = 1  # changes when the records of the same input do
_BATCH = 1000
_MOST_TAGS = 1000
_FILE_NAMES = {
    "train": ("train.txt", "train.tsv", "train.conll"),
    "dev": ("dev.txt", "dev.tsv", "dev.conll", "valid.txt", "valid.tsv", "valid.conll", "testa.txt"),
    "test": ("test.txt", "test.tsv", "test.conll", "testb.txt"),
}


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence: its words and their tags, "" where they are not known."""

    words: tuple
    tags: tuple


@dataclasses.dataclass(frozen=True)
class Window:
    """As much of a sentence as fits into a record.

    Attributes:
      sentence: number of the sentence.
      pieces: token ids, without [CLS] and [SEP].
      starts: for each word, the place of its first piece in `pieces`.
      tags: for each word, its tag.
    """

    sentence: int
    pieces: list
    starts: list
    tags: tuple


def find(data_dir, split):
    """Path of a split's file in a folder.

    Raises:
      InputError: there is none.
    """
    return find_file(data_dir, _FILE_NAMES[split], split, "tagging")


def read(path, tagged=True, encoding="utf-8", known=None):
    """Reads the sentences of a file.

    Args:
      path: the file. The first column is the word, the last its tag.
      tagged: whether every word must have a tag.
      encoding: name of the text encoding.
      known: the tags that there may be; None: any.

    Yields:
      `Sentence`s, in order.

    Raises:
      InputError: a word has no tag or an unknown one, or the file no sentence; names file and line.
    """
    words, tags, found = [], [], False
    for number, cells in _rows(path, encoding):
        if not cells or cells[0] == _DOCUMENT:
            if words:
                yield Sentence(tuple(words), tuple(tags))
            words, tags = [], []
            continue
        found = True
        tag = cells[-1].strip() if len(cells) > 1 else ""
        if tagged and not tag:
            raise InputError(
                f"{path}:{number}: the word {cells[0]!r:.60} has no tag; a word and its tag are expected on each line."
            )
        if known and tag not in known:
            raise InputError(
                f"{path}:{number}: the tag {tag!r} of the word {cells[0]!r:.60} is unknown; the training file has "
                f"{', '.join(known)}."
            )
        words.append(cells[0].strip())
        tags.append(tag)
    if words:
        yield Sentence(tuple(words), tuple(tags))
    if not found:
        raise InputError(f"{path}: there are no sentences in it.")


def rows_with_tags(path, chosen, encoding="utf-8"):
    """Yields the rows of a file with the tags that were chosen, a line for each of its lines.

    Args:
      path: the file.
      chosen: for each of its sentences, a sequence with a tag for each word.
      encoding: name of the text encoding.
    """
    tags = itertools.chain.from_iterable(chosen)
    for number, cells in _rows(path, encoding):
        if not cells:
            yield "\n"
            continue
        tag = OUTSIDE if cells[0] == _DOCUMENT else next(tags, None)
        if tag is None:
            raise InputError(f"{path}:{number}: the file has grown since it was read.")
        yield f"{cells[0].strip()}\t{tag}\n"


def _rows(path, encoding):
    """Pairs of line number and cells; [] for a blank line."""
    for number, line in text.read_lines(path, encoding):
        if not line.strip():
            yield number, []
        # Words may have other white space in them, such as spaces that do not break.
        else:
            yield number, line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def find_tags(path, sentences):
    """The tags of the sentences of a training file: "O", if it is among them, first, then the others by name.

    Raises:
      InputError: there are too few or too many.
    """
    found = {tag for sentence in sentences for tag in sentence.tags}
    if not 2 <= len(found) <= _MOST_TAGS:
        shown = (
            f"only {min(found)!r}" if len(found) == 1 else f"{len(found)}, such as {min(found)!r} and {max(found)!r}"
        )
        raise InputError(
            f"{path}: from two to {_MOST_TAGS} different tags are needed in the last column, but there is {shown}."
        )
    return tuple(sorted(found, key=lambda tag: (tag != OUTSIDE, tag)))


def are_entities(tags):
    """Whether tags mark the beginnings and insides of entities, rather than, say, parts of speech."""
    return all(tag == OUTSIDE or tag[:2] in ("B-", "I-", "E-", "S-", "L-", "U-") for tag in tags)


class Encoder:
    """Sentences to windows, and windows to records."""

    def __init__(self, vocab_file, do_lower_case, max_seq_length, tags):
        """Makes an encoder.

        Args:
          vocab_file: the vocabulary.
          do_lower_case: whether text is lower-cased.
          max_seq_length: tokens in a record.
          tags: the tags in the order of their ids.
        """
        self._vocab = tokenization.load_vocab(vocab_file, required=("[PAD]", "[CLS]", "[SEP]", "[UNK]"))
        self._tokenizer = BlockTokenizer(self._vocab, do_lower_case)
        self.max_seq_length = max_seq_length
        self._vocab_file = vocab_file
        self._do_lower_case = do_lower_case
        self._ids = {tag: number for number, tag in enumerate(tags, 1)}

    def windows(self, sentences):
        """Cuts sentences into windows: at the last word that fits, so that every word is in one.

        Args:
          sentences: iterable of `Sentence`.

        Yields:
          `Window`s, in order.
        """
        room = self.max_seq_length - 2
        for number, sentence in enumerate(sentences):
            pieces, lengths, _ = self._tokenizer.encode("".join(f"{word}\n" for word in sentence.words))
            ends = np.cumsum(lengths)
            of_words = [
                # A word of which nothing is left, such as a control character, is still a word; so is one too long.
                list(pieces[end - length : end][:room]) or [self._vocab["[UNK]"]]
                for length, end in zip(lengths, ends)
            ]
            first = 0
            while first < len(of_words):
                inside, starts = [], []
                for of_word in of_words[first:]:
                    if len(inside) + len(of_word) > room:
                        break
                    starts.append(len(inside))
                    inside += of_word
                last = first + len(starts)
                yield Window(number, inside, starts, sentence.tags[first:last])
                first = last

    def make_records(self, sentences, source, output, encoding="utf-8"):
        """Makes the records of sentences, unless they are there already.

        Beside the token ids of the original, a record has label_ids, int64 [max_seq_length]: 1 + the id of the tag at
        the first piece of each word whose tag is known, else 0.

        Args:
          sentences: iterable of `Sentence`, used only if there are no records yet.
          source: the file that they are from.
          output: the TFRecord file to write, as of `record_cache.make`.
          encoding: name of the text encoding.

        Returns:
          A dict: "count" of records, "sentences", "words", "tokens", "cut" (how many sentences did not fit into a
          record), and "tags", a dict from tag to number of words.
        """
        settings = ("tagging", _FORMAT, encoding, bool(self._do_lower_case), self.max_seq_length, tuple(self._ids))
        return record_cache.make(
            output, (source, self._vocab_file), settings, lambda f: self._write(self.windows(sentences), f)
        )

    def _write(self, windows, f):
        length = self.max_seq_length
        layout = records.Layout(
            {
                "input_ids": (length, len(self._vocab) - 1),
                "input_mask": (length, 1),
                "segment_ids": (length, 1),
                "label_ids": (length, len(self._ids)),
            }
        )
        made, tags, cut = collections.Counter(), collections.Counter(), set()
        while batch := list(itertools.islice(windows, _BATCH)):
            f.write(layout.encode(self._columns(batch)).tobytes())
            for window in batch:
                if window.sentence < made["sentences"]:
                    cut.add(window.sentence)
                made["sentences"] = window.sentence + 1
                made.update(count=1, words=len(window.starts), tokens=len(window.pieces) + 2)
                tags.update(tag for tag in window.tags if tag)
        return {**made, "cut": len(cut), "tags": dict(tags)}

    def _columns(self, windows):
        ids = np.zeros((len(windows), self.max_seq_length), np.uint32)  # [windows, seq]
        labels = np.zeros_like(ids)  # [windows, seq]
        sizes = np.array([[len(window.pieces) + 2] for window in windows])  # [windows, 1]
        for row, window in enumerate(windows):
            ids[row, 0] = self._vocab["[CLS]"]
            ids[row, 1 : 1 + len(window.pieces)] = window.pieces
            ids[row, 1 + len(window.pieces)] = self._vocab["[SEP]"]
            for start, tag in zip(window.starts, window.tags):
                labels[row, 1 + start] = self._ids.get(tag, 0)
        mask = (np.arange(self.max_seq_length) < sizes).astype(np.uint8)  # [windows, seq]
        return {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(mask), "label_ids": labels}


def choose(sentences, windows, choices, tags):
    """Puts the tags of windows together to those of sentences.

    Args:
      sentences: list of `Sentence`.
      windows: iterable of their windows.
      choices: int [windows, seq], id of the tag chosen for each token.
      tags: the tags in the order of their ids.

    Returns:
      For each sentence, a list with a tag for each word.
    """
    chosen = [[] for _ in sentences]
    for window, row in zip(windows, choices):
        chosen[window.sentence] += [tags[row[1 + start]] for start in window.starts]
    return chosen


def scores(expected, chosen, entities):
    """Scores of tags.

    Args:
      expected, chosen: for each sentence, a sequence with a tag for each word.
      entities: whether tags mark entities, which are then compared as a whole, as CoNLL's script does.

    Returns:
      Dict from name to float: eval_accuracy (of words), and, for entities, precision, recall and f1.
    """
    pairs = [pair for both in zip(expected, chosen) for pair in zip(*both)]
    found = {"eval_accuracy": sum(tag == choice for tag, choice in pairs) / len(pairs)}
    if entities:
        from seqeval import metrics

        expected, chosen = [list(tags) for tags in expected], [list(tags) for tags in chosen]
        for name in ("precision", "recall", "f1"):
            found[name] = float(getattr(metrics, f"{name}_score")(expected, chosen, zero_division=0))
    return found


def details(sentences, chosen, tags):
    """How each tag fares over the words: a dict as of `bert.tasks.details.of_task`, without errors.

    Args:
      sentences: list of `Sentence` whose tags are all known.
      chosen: as `choose` returns it.
      tags: the tags in the order of their ids.
    """
    ids = {tag: number for number, tag in enumerate(tags)}
    expected = np.array([ids[tag] for sentence in sentences for tag in sentence.tags])
    found = np.array([ids[tag] for of_sentence in chosen for tag in of_sentence])
    counts = confusion(expected, found, len(tags))
    shown = {"labels": per_label(tags, counts)}
    return {**shown, "confusion": counts.tolist()} if len(tags) <= MAX_LABELS else shown
