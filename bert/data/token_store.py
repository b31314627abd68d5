"""Tokenized text, kept by content.

The store of a file of text is a folder named after what its content depends on: the bytes of the text, the
vocabulary, the settings of the tokenizer. So it is found again under any other masking, length or number of
passes, and a new file in a corpus means tokenizing that file only.

| file | content |
|---|---|
| tokens | token ids, see `token_dtype` |
| lengths | uint32 number of tokens of each sentence; sentences without tokens are left out |
| documents | `DOCUMENT` records; documents without sentences are left out |
| meta.json | counts, sizes and checksums of the other files |
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil

import google_crc32c
import numpy as np
from absl import logging

from bert import files
from bert.data import chinese_words, text, wordpiece, workers
from bert.errors import InputError

FORMAT = 2

# Number of sentences, number of tokens, and a hash of the token ids.
DOCUMENT = np.dtype([("sentences", "<u8"), ("tokens", "<u8"), ("hash", "<u8")])

PARTS = ("tokens", "lengths", "documents")
META = "meta.json"
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class TokenStore:
    """The tokens of one file of text.

    Attributes:
      path: the text.
      folder: where the store lies.
      text_bytes, documents, sentences, tokens: counts.
      single_sentence_documents: number of documents of one sentence.
      unknown: number of [UNK].
      cached: True if it was found, False if it has just been made.
    """

    path: str
    folder: str
    text_bytes: int
    documents: int
    sentences: int
    tokens: int
    single_sentence_documents: int
    unknown: int
    cached: bool

    def part(self, name):
        """Path of one of the store's files."""
        return os.path.join(self.folder, name)


def default_folder():
    """Where tokenized text is kept: the user's cache, so that runs with other output folders find it."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "bert", "tokens")


def digest_file(path):
    """SHA-256 of a file's content, in hex.

    Raises:
      InputError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with files.open_file(path) as f:
            while chunk := f.read(_CHUNK):
                digest.update(chunk)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}.") from e
    return digest.hexdigest()


def token_dtype(vocab, settings):
    """Dtype of the tokens of a store: ids, or with a segmenter twice the ids and the mark of what continues a word."""
    largest = max(vocab.values())
    if settings.whole_word_segmenter:
        largest = 2 * largest + 1
    return np.dtype("<u2") if largest < 1 << 16 else np.dtype("<u4")


def open_stores(paths, digests, vocab, vocab_digest, settings, folder, num_workers=1):
    """Finds the stores of files of text, and makes those that are missing or damaged.

    Args:
      paths: files of text.
      digests: `digest_file` of each.
      vocab: dict from token to id.
      vocab_digest: digest of the vocabulary file.
      settings: object with do_lower_case, strip_accents, segment_sentences, input_encoding and whole_word_segmenter.
      folder: where stores are kept, a local folder.
      num_workers: number of processes.

    Returns:
      A list of `TokenStore`.

    Raises:
      InputError: a file cannot be decoded, or changes while it is read; `folder` cannot be written or is full.
    """
    targets = [os.path.join(folder, name(digest, vocab_digest, settings)) for digest in digests]
    metas = [_load(target) for target in targets]
    missing_bytes = sum(files.size(path) for path, meta in zip(paths, metas) if meta is None)
    if missing_bytes:
        with files.writing(folder):
            os.makedirs(folder, exist_ok=True)
        # A token takes some four bytes of text, and three in Chinese.
        files.check_space(folder, missing_bytes * token_dtype(vocab, settings).itemsize // 3, "tokenized text")
    stores = []
    made = {}
    for path, digest, target, meta in zip(paths, digests, targets, metas):
        cached = meta is not None
        if not cached and target not in made:
            made[target] = _make(path, digest, vocab, settings, target, num_workers)
        stores.append(_store(path, target, meta or made[target], cached))
    return stores


def name(digest, vocab_digest, settings):
    """Name of the store of a text, by all that its content depends on; arguments as of `open_stores`."""
    content = {
        "format": FORMAT,
        "vocabulary": vocab_digest,
        "do_lower_case": settings.do_lower_case,
        "strip_accents": settings.strip_accents,
        "segment_sentences": settings.segment_sentences and text.segmentation_version(),
        "input_encoding": settings.input_encoding,
        "text": digest,
    }
    if settings.whole_word_segmenter:
        content["whole_word_segmenter"] = chinese_words.version(settings.whole_word_segmenter)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def copy(store, folder):
    """Copies a store to another folder, its meta.json last; returns it there."""
    target = f"{folder}/{os.path.basename(store.folder)}"
    files.make_folder(target)
    for part in (*PARTS, META):
        files.copy(store.part(part), f"{target}/{part}")
    return dataclasses.replace(store, folder=target)


def find(path, folder):
    """The store of the text `path` that was copied to `folder`, or None if there is none."""
    if not files.exists(f"{folder}/{META}"):
        return None
    return _store(path, folder, files.read_json_object(f"{folder}/{META}"), cached=True)


def _store(path, folder, meta, cached):
    counts = {name: meta[name] for name in TokenStore.__dataclass_fields__ if name in meta}
    return TokenStore(path=path, folder=folder, cached=cached, **counts)


def _load(folder):
    """Content of a store's meta.json, or None if there is no such store or it is damaged."""
    try:
        meta = json.loads(pathlib.Path(folder, META).read_text())
        for name in PARTS:
            part = meta["parts"][name]
            path = os.path.join(folder, name)
            if os.path.getsize(path) != part["bytes"] or _checksum(path) != part["crc32c"]:
                raise ValueError(f"{name} is damaged")
        return meta
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        logging.warning("Token store %s: %s; it is made anew.", folder, e)
        return None


def _checksum(path):
    crc = 0
    with open(path, "rb") as f:
        while chunk := f.read(_CHUNK):
            crc = google_crc32c.extend(crc, chunk)
    return crc


def _make(path, digest, vocab, settings, target, num_workers):
    """Tokenizes a file into a new store; returns its meta."""
    logging.info("Tokenizing %s (%.1f MB).", path, files.size(path) / 1e6)
    folder = os.path.dirname(target)
    with files.writing(folder):
        files.remove_leftovers(target)
        temporary = files.temporary_path(target)
        os.makedirs(temporary)
        try:
            meta = _tokenize(path, vocab, settings, temporary, num_workers)
            # The store is found by the digest, so it must be that of the text that was tokenized.
            if digest_file(path) != digest:
                raise InputError(f"{path}: changed while it was read; run again when it is complete.")
            logging.info(
                "%s: %d documents, %d sentences, %d tokens, %.2f %% of them [UNK].",
                path,
                meta["documents"],
                meta["sentences"],
                meta["tokens"],
                100 * meta["unknown"] / max(meta["tokens"], 1),
            )
            if os.path.isdir(target):
                shutil.rmtree(target)
            try:
                os.rename(temporary, target)
            except OSError:
                # Another run that has made the same store in the meantime will do.
                if not os.path.isdir(target):
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return meta


def _tokenize(path, vocab, settings, folder, num_workers):
    blocks = text.read_blocks(path, encoding=settings.input_encoding, segment_sentences=settings.segment_sentences)
    encoded = workers.map_in_order(_make_encoder, (vocab, settings), blocks, num_workers)
    unknown_id, dtype = vocab["[UNK]"], token_dtype(vocab, settings)
    with contextlib.ExitStack() as stack:
        parts = {name: stack.enter_context(_Part(os.path.join(folder, name))) for name in PARTS}
        tokens = unknown = 0
        documents = _Documents()
        for ids, lengths, breaks in encoded:
            ids = ids.astype(dtype, copy=False)
            tokens += len(ids)
            unknown += np.count_nonzero((ids >> bool(settings.whole_word_segmenter)) == unknown_id)
            parts["tokens"].write(ids)
            parts["lengths"].write(lengths[lengths > 0].astype("<u4"))
            parts["documents"].write(np.array(documents.extend(ids, lengths, breaks), DOCUMENT))
        parts["documents"].write(np.array(documents.finish(), DOCUMENT))
    meta = {
        "text": os.path.basename(path),
        "text_bytes": files.size(path),
        "documents": documents.count,
        "single_sentence_documents": documents.single_sentence_count,
        "sentences": documents.sentences,
        "tokens": tokens,
        "unknown": int(unknown),
        "parts": {name: {"bytes": part.bytes, "crc32c": part.crc32c} for name, part in parts.items()},
    }
    pathlib.Path(folder, META).write_text(json.dumps(meta, indent=2) + "\n")
    return meta


def _make_encoder(vocab, settings):
    if settings.whole_word_segmenter:
        return chinese_words.MarkingTokenizer(
            vocab, settings.do_lower_case, settings.strip_accents, settings.whole_word_segmenter
        ).encode
    return wordpiece.BlockTokenizer(vocab, settings.do_lower_case, settings.strip_accents).encode


class _Part:
    """A file of a store while it is written."""

    def __init__(self, path):
        self._path = path
        self.bytes = self.crc32c = 0

    def __enter__(self):
        self._file = open(self._path, "wb")
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, array):
        content = array.tobytes()
        self._file.write(content)
        self.bytes += len(content)
        self.crc32c = google_crc32c.extend(self.crc32c, content)


class _Documents:
    """Finds the documents in the blocks of a file; one may reach over several blocks.

    Attributes:
      count, single_sentence_count, sentences: of the documents that have ended.
    """

    def __init__(self):
        self.count = self.single_sentence_count = self.sentences = 0
        self._begin()

    def extend(self, ids, lengths, breaks):
        """Takes a block of lines as `BlockTokenizer.encode` gives it.

        Returns:
          A list of the documents that end in it, as tuples of the fields of `DOCUMENT`.
        """
        sentences = np.concatenate([[0], np.cumsum(lengths > 0)])
        tokens = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        finished = []
        start = 0
        for end in np.flatnonzero(breaks).tolist():
            self._add(ids[tokens[start] : tokens[end]], sentences[end] - sentences[start])
            finished.extend(self.finish())
            start = end
        self._add(ids[tokens[start] :], sentences[-1] - sentences[start])
        return finished

    def finish(self):
        """Ends the document; returns a list of it alone, or an empty one if it has no sentence."""
        num_sentences, num_tokens = self._num_sentences, self._num_tokens
        row = (num_sentences, num_tokens, int.from_bytes(self._hash.digest(), "little"))
        self._begin()
        if not num_sentences:
            return []
        self.count += 1
        self.single_sentence_count += num_sentences == 1
        self.sentences += num_sentences
        return [row]

    def _begin(self):
        self._num_sentences = self._num_tokens = 0
        self._hash = hashlib.blake2b(digest_size=8)

    def _add(self, ids, num_sentences):
        self._num_sentences += int(num_sentences)
        self._num_tokens += len(ids)
        self._hash.update(ids)
