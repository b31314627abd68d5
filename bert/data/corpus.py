"""The documents of one run as arrays on disk, however many files they come from.

A corpus is a folder that lives as long as the run: the tokens of the documents chosen from the token stores, one
after another, and where each sentence and document begins.
"""

import contextlib
import mmap
import os
import pathlib

import numpy as np

from bert.data.token_store import DOCUMENT

_DOCUMENTS_PER_CHUNK = 4096
_COPY_BYTES = 1 << 22

# Files up to this size are kept in memory, or mapped without a thought; of larger ones only parts are.
_SMALL_BYTES = 1 << 26

# Most random reads of a `Mapped` file between two calls of its `release`. The kernel maps 64 KiB at each.
READS_PER_RELEASE = 512


class Mapped:
    """A file mapped as a one-dimensional array, whose resident part is bounded by calls of `release`.

    Attributes:
      array: read-only array.
    """

    def __init__(self, path, dtype):
        with open(path, "rb") as f:
            self._mapping = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.frombuffer(self._mapping, dtype)

    def release(self):
        """Gives back the pages of a large file, which count as this process's memory; they stay cached."""
        if len(self._mapping) > _SMALL_BYTES:
            self._mapping.madvise(mmap.MADV_DONTNEED)


class _FileSlices:
    """A file whose slices are read when they are asked for."""

    def __init__(self, path):
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115, open as long as this object lives

    def __getitem__(self, part):
        return os.pread(self._file.fileno(), part.stop - part.start, part.start)


class Corpus:
    """Documents as tokens, sentences and their borders.

    Attributes:
      tokens: the ids of all tokens, as bytes; what slices give bytes, as ``tokens[start:stop]``.
      sentences: `Mapped` int64 [num_sentences + 1], index of the first token of each sentence, and the end.
      documents: `Mapped` int64 [num_documents + 1], index of the first sentence of each document, and the end.
    """

    def __init__(self, folder):
        path = os.path.join(folder, "tokens")
        if os.path.getsize(path) <= _SMALL_BYTES:
            self.tokens = pathlib.Path(path).read_bytes()
        else:
            self.tokens = _FileSlices(path)
        self.sentences = Mapped(os.path.join(folder, "sentences"), np.int64)
        self.documents = Mapped(os.path.join(folder, "documents"), np.int64)

    @property
    def num_sentences(self):
        return len(self.sentences.array) - 1

    @property
    def num_documents(self):
        return len(self.documents.array) - 1

    def release(self):
        """Gives back resident pages, see `Mapped`."""
        self.sentences.release()
        self.documents.release()


def held_out(hashes, fraction):
    """Which documents are held out: decided by the content of each alone, so that others never move it.

    Args:
      hashes: uint64 array.
      fraction: share of the documents that is held out, 0 to 1.

    Returns:
      bool array.
    """
    return hashes.astype(np.float64) < fraction * 2.0**64


def build(folder, stores, dtype, choose):
    """Writes the files of a `Corpus`.

    Args:
      folder: an existing folder.
      stores: list of `TokenStore`.
      dtype: of the tokens.
      choose: function from the uint64 hashes of documents to a bool array: which of them to take.

    Returns:
      (number of documents, number of sentences, number of tokens)
    """
    num_documents = num_sentences = num_tokens = 0
    with contextlib.ExitStack() as stack:
        tokens, sentences, documents = (
            stack.enter_context(open(os.path.join(folder, name), "wb")) for name in ("tokens", "sentences", "documents")
        )
        for rows, lengths, store_tokens in _chunks(stores):
            chosen = choose(rows["hash"])
            _copy_chosen(store_tokens, tokens, rows["tokens"].astype(np.int64) * dtype.itemsize, chosen)
            lengths = lengths[np.repeat(chosen, rows["sentences"].astype(np.int64))]
            counts = rows["sentences"][chosen].astype(np.int64)
            sentences.write((num_tokens + np.cumsum(lengths, dtype=np.int64) - lengths).tobytes())
            documents.write((num_sentences + np.cumsum(counts) - counts).tobytes())
            num_documents += len(counts)
            num_sentences += len(lengths)
            num_tokens += int(lengths.sum(dtype=np.int64))
        sentences.write(np.int64(num_tokens).tobytes())
        documents.write(np.int64(num_sentences).tobytes())
    return num_documents, num_sentences, num_tokens


def _chunks(stores):
    """Yields (documents, lengths of their sentences, file of tokens at their first token)."""
    for store in stores:
        with contextlib.ExitStack() as stack:
            documents, lengths, tokens = (
                stack.enter_context(open(store.part(name), "rb")) for name in ("documents", "lengths", "tokens")
            )
            while content := documents.read(_DOCUMENTS_PER_CHUNK * DOCUMENT.itemsize):
                rows = np.frombuffer(content, DOCUMENT)
                yield rows, np.fromfile(lengths, "<u4", int(rows["sentences"].sum())), tokens


def _copy_chosen(source, target, sizes, chosen):
    """Copies the tokens of the chosen documents; `source` moves on over all of them."""
    for take, size in _runs(chosen, sizes):
        if not take:
            source.seek(size, os.SEEK_CUR)
            continue
        while size:
            piece = source.read(min(size, _COPY_BYTES))
            target.write(piece)
            size -= len(piece)


def _runs(chosen, sizes):
    """Yields (chosen or not, total size) of each run of equal `chosen`."""
    edges = np.flatnonzero(np.diff(chosen)) + 1
    starts = np.concatenate([[0], edges])
    for start, size in zip(starts.tolist(), np.add.reduceat(sizes, starts).tolist()):
        yield bool(chosen[start]), size
