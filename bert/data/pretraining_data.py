"""Text to pretraining records: bounded memory, every core, the same bytes whatever the number of workers.

1. Each file of text is tokenized once and kept by content (`token_store`).
2. The documents of the run become arrays on disk (`corpus`).
3. Units of planning, a pass over a block of documents, choose the stretches of text of each instance (`planning`).
4. The instances are dealt out to buckets: those of a unit are in random order, and the buckets take turns. Each
   bucket is put in random order, masked and written. So an instance of any document can come at any place of any
   file, while memory holds no more than one bucket's plan.

Every random draw belongs to a unit or a bucket, whose generator is keyed by the seed and its number.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import shutil
import time

import numpy as np
from absl import logging

from bert import files, tokenization
from bert.data import corpus as corpora
from bert.data import masking, planning, records, token_store, workers
from bert.errors import InputError

FORMAT = 1

SPECIAL_TOKENS = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")

_MAX_UNKNOWN_RATE = 0.05
_RECORDS_PER_BUCKET = 1 << 15
_MAX_BUCKETS = 1024
_RECORDS_PER_BATCH = 1024
_SECONDS_PER_REPORT = 30


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the records of a text depend on, beside the text and the vocabulary; defaults are the original's.

    Attributes:
      do_lower_case: whether to lower-case, as for uncased models.
      strip_accents: whether to drop accents; None: if lower-casing.
      do_whole_word_mask: whether to mask all pieces of a word together.
      max_seq_length: tokens of a record, special ones and padding included.
      max_predictions_per_seq: most tokens that are masked in a record.
      random_seed: int.
      dupe_factor: number of passes over the text, each with its own pairs and masks.
      masked_lm_prob: share of the tokens that is masked.
      short_seq_prob: share of the documents, in each pass, that are cut to a random shorter length.
      segment_sentences: whether to find the sentences in lines that hold several.
      input_encoding: encoding of the text.
      no_nsp: whether records hold one stretch of text instead of a pair of segments.
    """

    do_lower_case: bool = True
    strip_accents: bool = None
    do_whole_word_mask: bool = False
    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    random_seed: int = 12345
    dupe_factor: int = 10
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    segment_sentences: bool = False
    input_encoding: str = "utf-8"
    no_nsp: bool = False

    def __post_init__(self):
        if self.strip_accents is None:
            object.__setattr__(self, "strip_accents", self.do_lower_case)
        shortest = self.special_tokens + 2
        if not shortest <= self.max_seq_length < 1 << 16:
            raise InputError(f"--max_seq_length={self.max_seq_length} must be from {shortest} to 65535.")
        if not 1 <= self.max_predictions_per_seq <= self.max_seq_length:
            raise InputError(
                f"--max_predictions_per_seq={self.max_predictions_per_seq} must be from 1 to "
                f"--max_seq_length={self.max_seq_length}."
            )
        if self.dupe_factor < 1:
            raise InputError(f"--dupe_factor={self.dupe_factor} must be at least 1.")
        for name in ("masked_lm_prob", "short_seq_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"--{name}={getattr(self, name)} must be from 0 to 1.")

    @property
    def special_tokens(self):
        """Number of special tokens in a record."""
        return planning.SPECIAL_TOKENS_ALONE if self.no_nsp else planning.SPECIAL_TOKENS_PER_PAIR


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What `create` made.

    Attributes:
      output_files: list of record files.
      counts: number of records in each.
      records: their sum.
      tokens: number of tokens in the records, without padding.
      documents, sentences, text_tokens: size of the text the records were made of (one split of it).
      fingerprint: see `fingerprint`.
      kept: number of record files that were complete from an earlier run.
      stores: list of `TokenStore`, one for each file of text; empty if all files were kept.
    """

    output_files: list
    counts: list
    records: int
    tokens: int
    documents: int
    sentences: int
    text_tokens: int
    fingerprint: str
    kept: int
    stores: list


def manifest_path(record_file):
    """Path of the JSON beside a record file; globs for records such as ``name*`` do not match it."""
    folder, name = os.path.split(record_file)
    return os.path.join(folder, f"manifest-{name}.json")


def read_manifest(record_file):
    """Content of the JSON beside a record file, or None if there is none.

    Raises:
      InputError: the record file has been truncated or changed since it was written.
    """
    path = manifest_path(record_file)
    if not files.exists(path):
        return None
    manifest = files.read_json_object(path)
    size = files.size(record_file)
    if size != manifest.get("bytes"):
        raise InputError(
            f"{record_file} has {size} bytes, but {path} says {manifest.get('bytes')}: the file was cut short or "
            "changed after it was written. Make the records anew."
        )
    return manifest


def count(record_file):
    """Number of records in a file: what the JSON beside it says, or else counted."""
    manifest = read_manifest(record_file)
    return manifest["records"] if manifest else records.count(record_file)


def fingerprint(input_files, vocab_file, settings, split="all", held_out_fraction=0.0):
    """What the records depend on, by content: text, vocabulary, settings and split.

    Returns:
      32 hex digits.
    """
    digests = [token_store.digest_file(path) for path in input_files]
    return _fingerprint(digests, token_store.digest_file(vocab_file), settings, split, held_out_fraction)


def create(
    input_files,
    vocab_file,
    output_files,
    settings,
    num_workers=1,
    split="all",
    held_out_fraction=0.0,
    token_cache=None,
):
    """Makes pretraining records of text.

    Files that an earlier run with the same text, vocabulary and settings has completed are kept.

    Args:
      input_files: files of text, a sentence a line and a blank line between documents. A file ends a document.
      vocab_file: the vocabulary.
      output_files: record files to write; each gets a JSON beside it, see `manifest_path`.
      settings: `Settings`.
      num_workers: number of processes; the records do not depend on it.
      split: "all" documents, or only the "train" or the "held_out" ones.
      held_out_fraction: share of the documents that is held out, chosen by a hash of each one's tokens.
      token_cache: local folder for tokenized text; None: `token_store.default_folder`.

    Returns:
      A `Manifest`.

    Raises:
      InputError: something about the text, the vocabulary, the settings or the disk; the message says what.
    """
    if split not in ("all", "train", "held_out"):
        raise ValueError(f"split {split!r}")
    if len(set(output_files)) < len(output_files):
        raise InputError("--output_file names a file twice.")
    for path in output_files:
        if not files.is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f"--output_file: {path} is there and is not a file.")
    vocab = tokenization.load_vocab(vocab_file, required=SPECIAL_TOKENS)
    _warn_of_small_budget(settings)
    digests = [token_store.digest_file(path) for path in input_files]
    vocab_digest = token_store.digest_file(vocab_file)
    run = _fingerprint(digests, vocab_digest, settings, split, held_out_fraction)
    done = {path: manifest for path in output_files if (manifest := _finished(path, run, output_files))}
    if len(done) == len(output_files):
        return _manifest(output_files, done, len(done), [])
    token_cache = token_cache or token_store.default_folder()
    stores = token_store.open_stores(input_files, digests, vocab, vocab_digest, settings, token_cache, num_workers)
    _check_text(stores)
    dtype = token_store.token_dtype(vocab)
    choose = {
        "all": lambda hashes: np.ones(len(hashes), bool),
        "train": lambda hashes: ~corpora.held_out(hashes, held_out_fraction),
        "held_out": lambda hashes: corpora.held_out(hashes, held_out_fraction),
    }[split]
    kept = len(done)
    with _work_folder(output_files, token_cache) as folder, files.writing(folder):
        tokens = sum(store.tokens for store in stores)
        sentences = sum(store.sentences for store in stores)
        instances = settings.dupe_factor * (tokens // (settings.max_seq_length // 2) + sentences // 8)
        wanted = tokens * dtype.itemsize + sentences * 16 + instances * planning.ROW.itemsize
        files.check_space(folder, wanted, "temporary files")
        sizes = corpora.build(folder, stores, dtype, choose)
        _check_documents(sizes[0], settings, stores, split)
        unit_counts = _plan(folder, dtype, settings, num_workers)
        writing = _Writing(folder, vocab, settings, unit_counts, output_files)
        about = {
            "format": FORMAT,
            "fingerprint": run,
            "max_seq_length": settings.max_seq_length,
            "max_predictions_per_seq": settings.max_predictions_per_seq,
            "vocab_size": max(vocab.values()) + 1,
            "settings": dataclasses.asdict(settings),
            "split": split,
            "documents": sizes[0],
            "sentences": sizes[1],
            "text_tokens": sizes[2],
        }
        for path, manifest in writing.write(set(output_files) - set(done), about, num_workers):
            done[path] = manifest
    return _manifest(output_files, done, kept, stores)


def _fingerprint(digests, vocab_digest, settings, split, held_out_fraction):
    content = {
        "format": FORMAT,
        "text": digests,
        "vocabulary": vocab_digest,
        "settings": dataclasses.asdict(settings),
        "split": split,
        "held_out_fraction": 0.0 if split == "all" else held_out_fraction,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _finished(path, run, output_files):
    """The manifest of a file that an earlier, equal run has completed, or None."""
    if not files.exists(path):
        return None
    try:
        manifest = read_manifest(path)
    except InputError as e:
        logging.warning("%s", e)
        return None
    expected = {"fingerprint": run, "shard": output_files.index(path), "num_shards": len(output_files)}
    if manifest and all(manifest.get(key) == value for key, value in expected.items()):
        return manifest
    return None


def _manifest(output_files, done, kept, stores):
    manifests = [done[path] for path in output_files]
    first = manifests[0]
    return Manifest(
        output_files=list(output_files),
        counts=[manifest["records"] for manifest in manifests],
        records=sum(manifest["records"] for manifest in manifests),
        tokens=sum(manifest["tokens"] for manifest in manifests),
        documents=first["documents"],
        sentences=first["sentences"],
        text_tokens=first["text_tokens"],
        fingerprint=first["fingerprint"],
        kept=kept,
        stores=stores,
    )


def _warn_of_small_budget(settings):
    wanted = round(settings.max_seq_length * settings.masked_lm_prob)
    if settings.max_predictions_per_seq < 0.9 * wanted:
        logging.warning(
            "--max_predictions_per_seq=%d masks only %.1f %% of a full sequence of %d tokens; "
            "--masked_lm_prob=%g of them would be %d.",
            settings.max_predictions_per_seq,
            100 * settings.max_predictions_per_seq / settings.max_seq_length,
            settings.max_seq_length,
            settings.masked_lm_prob,
            wanted,
        )


def _check_text(stores):
    for store in stores:
        if not store.documents:
            logging.warning("%s: holds no text.", store.path)
            continue
        if store.unknown > _MAX_UNKNOWN_RATE * store.tokens:
            logging.warning(
                "%s: %.1f %% of the tokens are [UNK]: the vocabulary does not fit this text, or its encoding is not "
                "what --input_encoding says.",
                store.path,
                100 * store.unknown / store.tokens,
            )
        if store.documents > 1 and store.median_sentences == 1:
            logging.warning(
                "%s: half of its %d documents are a single sentence. Is there a blank line after every sentence? "
                "Blank lines separate documents; after a document's only sentence the next is always a random one, so "
                "next sentence prediction learns nothing from it.",
                store.path,
                store.documents,
            )
    if not any(store.documents for store in stores):
        raise InputError(f"No text in {', '.join(store.path for store in stores)}.")


def _check_documents(num_documents, settings, stores, split):
    paths = ", ".join(store.path for store in stores[:5]) + ("" if len(stores) <= 5 else ", ...")
    if num_documents == 0:
        raise InputError(
            f"No document of {paths} is in the split {split!r}: there are too few documents, "
            f"{sum(store.documents for store in stores)}, for this share."
        )
    if num_documents == 1 and not settings.no_nsp:
        which = "" if split == "all" else f" in the split {split!r}"
        raise InputError(
            f"{paths}: only one document{which}. Next sentence prediction needs another one to take random sentences "
            "from; out of the same one they would be labelled wrongly. Put blank lines between documents, add text, or "
            "give --no_nsp."
        )


@contextlib.contextmanager
def _work_folder(output_files, token_cache):
    """A folder for temporary files, beside the first output file if that is local."""
    local = [path for path in output_files if not files.is_remote(path)]
    path = os.path.join(os.path.dirname(local[0]) if local else token_cache, "work")
    folder = files.temporary_path(path)
    with files.writing(folder):
        files.remove_leftovers(path)
        os.makedirs(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _plan(folder, dtype, settings, num_workers):
    """Plans all instances into the file `plan`; returns their number in each unit: int64 [units]."""
    borders = planning.blocks(corpora.Corpus(folder, dtype)).tolist()
    units = [
        (number, block, first, end)
        for number in range(settings.dupe_factor)
        for block, (first, end) in enumerate(zip(borders, borders[1:]))
    ]
    counts = []
    with open(os.path.join(folder, "plan"), "wb") as f:
        for rows in workers.map_in_order(_make_planner, (folder, dtype, settings), units, num_workers):
            f.write(rows)
            counts.append(len(rows) // planning.ROW.itemsize)
    logging.info("Planned %d instances.", sum(counts))
    return np.array(counts, np.int64)


def _make_planner(folder, dtype, settings):
    planner = planning.Planner(corpora.Corpus(folder, dtype), settings)
    return lambda unit: planner.plan(*unit).tobytes()


@dataclasses.dataclass(frozen=True)
class _Dealing:
    """How the instances of all units are dealt out to buckets in turn, and the buckets to files in turn.

    Attributes:
      unit_counts: int64 [units], number of instances of each.
      num_buckets: a multiple of the number of files.
    """

    unit_counts: np.ndarray
    num_buckets: int

    def size(self, bucket):
        """Number of instances of a bucket."""
        total = int(self.unit_counts.sum())
        return total // self.num_buckets + (bucket < total % self.num_buckets)

    def pieces(self, bucket):
        """Where the instances of a bucket lie in the plan: (first, number), int64 [units] each.

        A unit's instances are in random order, so that it does not matter which of them a bucket gets.
        """
        unit_start = np.cumsum(self.unit_counts) - self.unit_counts
        each, extra = np.divmod(self.unit_counts, self.num_buckets)
        # The bucket whose turn it is when a unit begins is number 0 for that unit.
        turn = (bucket - unit_start) % self.num_buckets
        return unit_start + turn * each + np.minimum(turn, extra), each + (turn < extra)


class _Writing:
    """Writes the planned instances to files."""

    def __init__(self, folder, vocab, settings, unit_counts, output_files):
        self._folder, self._vocab, self._settings = folder, vocab, settings
        self._output_files = output_files
        num_records, num_files = int(unit_counts.sum()), len(output_files)
        if num_records < num_files:
            raise InputError(f"--output_file names {num_files} files, but the text makes only {num_records} records.")
        per_file = math.ceil(num_records / num_files / _RECORDS_PER_BUCKET)
        per_file = max(1, min(per_file, _MAX_BUCKETS // num_files))
        self._dealing = _Dealing(unit_counts, num_files * per_file)
        self._record_bytes = _layout(vocab, settings).record_bytes

    def write(self, wanted, about, num_workers):
        """Writes some of the files.

        Args:
          wanted: set of those of the output files to write.
          about: dict, what is common to the manifests of all files.
          num_workers: number of processes.

        Yields:
          (path, manifest) of each file when it is complete.
        """
        shards = [shard for shard, path in enumerate(self._output_files) if path in wanted]
        self._check_space(shards)
        jobs = self._jobs(shards)
        done = workers.map_in_order(
            _make_bucket_writer,
            (self._folder, self._vocab, self._settings, self._dealing),
            (job for shard in shards for job in self._start(shard, jobs[shard])),
            num_workers,
        )
        total = sum(self._bytes(jobs[shard]) for shard in shards) // self._record_bytes
        progress = _Progress(total)
        try:
            for shard in shards:
                path, temporary = self._output_files[shard], self._temporary(shard)
                tokens = 0
                for job, bucket_tokens in zip(jobs[shard], done):
                    tokens += bucket_tokens
                    progress.add(self._dealing.size(job[0]))
                size = self._bytes(jobs[shard])
                manifest = {
                    **about,
                    "shard": shard,
                    "num_shards": len(self._output_files),
                    "records": size // self._record_bytes,
                    "tokens": tokens,
                    "bytes": size,
                }
                _publish(temporary, path, manifest)
                yield path, manifest
        finally:
            done.close()
            for shard in shards:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self._temporary(shard))

    def _jobs(self, shards):
        """Dict from shard to its jobs: (bucket, temporary file, where the bucket begins in it)."""
        jobs = {}
        for shard in shards:
            jobs[shard], offset = [], 0
            for bucket in range(shard, self._dealing.num_buckets, len(self._output_files)):
                jobs[shard].append((bucket, self._temporary(shard), offset))
                offset += self._dealing.size(bucket) * self._record_bytes
        return jobs

    def _bytes(self, jobs):
        return sum(self._dealing.size(bucket) for bucket, _, _ in jobs) * self._record_bytes

    def _temporary(self, shard):
        """Where a file is written before it is complete: beside its place or, for a bucket, on this machine."""
        path = self._output_files[shard]
        if files.is_remote(path):
            return os.path.join(self._folder, f"shard-{shard}")
        return files.temporary_path(path)

    def _check_space(self, shards):
        jobs = self._jobs(shards)
        needs = {}  # by disk: (a folder on it, bytes)
        for shard in shards:
            folder = os.path.dirname(self._temporary(shard)) or "."
            os.makedirs(folder, exist_ok=True)
            size = self._bytes(jobs[shard])
            if not files.is_remote(self._output_files[shard]):
                size += needs.get(os.stat(folder).st_dev, (folder, 0))[1]
            needs[os.stat(folder).st_dev] = (folder, size)
        for folder, size in needs.values():
            files.check_space(folder, size, "the records")

    def _start(self, shard, jobs):
        """Reserves the space of a file, so that a disk that is too small shows before the work; gives its jobs."""
        temporary, path = self._temporary(shard), self._output_files[shard]
        if not files.is_remote(path):
            files.remove_leftovers(path)
        with files.writing(path), open(temporary, "wb") as f:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(f.fileno(), 0, self._bytes(jobs))
            else:
                f.truncate(self._bytes(jobs))
        return jobs


class _Progress:
    """Logs now and then how far the writing is."""

    def __init__(self, total):
        self._total, self._written = total, 0
        self._start = self._last = time.monotonic()

    def add(self, records):
        self._written += records
        now = time.monotonic()
        if now - self._last >= _SECONDS_PER_REPORT and self._written < self._total:
            self._last = now
            left = (now - self._start) * (self._total - self._written) / self._written
            logging.info("%d of %d records written; %.0f s left.", self._written, self._total, left)


def _publish(temporary, path, manifest):
    """Gives a complete file its name. The manifest of an older file goes first, and the new one comes last."""
    described = manifest_path(path)
    with files.writing(path):
        if files.exists(described):
            files.remove(described)
        if files.is_remote(path):
            files.copy(temporary, path)
            os.remove(temporary)
        else:
            with open(temporary, "rb") as f:
                os.fsync(f.fileno())
            os.replace(temporary, path)
        with files.atomic_write(described, "w") as f:
            f.write(json.dumps(manifest, indent=2) + "\n")
    logging.info("Wrote %d records to %s.", manifest["records"], path)


def _layout(vocab, settings):
    return records.pretraining_layout(
        settings.max_seq_length, settings.max_predictions_per_seq, max(vocab.values()) + 1
    )


def _make_bucket_writer(folder, vocab, settings, dealing):
    return _BucketWriter(folder, vocab, settings, dealing).write


class _BucketWriter:
    """Makes the records of one bucket after another: in random order, masked, encoded."""

    def __init__(self, folder, vocab, settings, dealing):
        self._plan_path = os.path.join(folder, "plan")
        self._settings = settings
        self._dealing = dealing
        self._dtype = token_store.token_dtype(vocab)
        self._corpus = corpora.Corpus(folder, self._dtype)
        self._layout = _layout(vocab, settings)
        self._cls, self._sep, self._mask = vocab["[CLS]"], vocab["[SEP]"], vocab["[MASK]"]
        self._start, sep = (np.array(token, self._dtype).tobytes() for token in (self._cls, self._sep))
        self._middle = b"" if settings.no_nsp else sep
        room = settings.max_seq_length - settings.special_tokens
        # What ends a sequence, by the number of tokens of its segments.
        self._ends = [sep + bytes((room - length) * self._dtype.itemsize) for length in range(room + 1)]
        self._vocabulary_ids = np.fromiter(vocab.values(), self._dtype)
        self._continues = np.zeros(max(vocab.values()) + 1, bool)
        self._continues[[number for token, number in vocab.items() if token.startswith("##")]] = True

    def write(self, job):
        """Writes the bucket ``(bucket, path, offset)`` into a file; returns its number of tokens."""
        bucket, path, offset = job
        rng = planning.random_stream(self._settings.random_seed, "write", bucket)
        rows = self._rows(bucket)
        rows = rows[rng.permutation(len(rows))]
        with files.writing(path), open(path, "r+b", buffering=0) as f:
            f.seek(offset)
            for start in range(0, len(rows), _RECORDS_PER_BATCH):
                batch = rows[start : start + _RECORDS_PER_BATCH]
                content = memoryview(self._layout.encode(self._columns(rng, batch))).cast("B")
                while content:  # a disk that is about to be full takes only a part
                    content = content[f.write(content) :]
                self._corpus.release()
        text_tokens = rows["len_a"].sum(dtype=np.int64) + rows["len_b"].sum(dtype=np.int64)
        return int(text_tokens) + self._settings.special_tokens * len(rows)

    def _rows(self, bucket):
        starts, counts = self._dealing.pieces(bucket)
        pieces, size = [], planning.ROW.itemsize
        with open(self._plan_path, "rb", buffering=0) as f:
            for start, count in zip(starts.tolist(), counts.tolist()):
                pieces.append(os.pread(f.fileno(), count * size, start * size))
        return np.frombuffer(b"".join(pieces), planning.ROW)

    def _columns(self, rng, rows):
        """The features of a batch of instances."""
        settings = self._settings
        len_a, len_b = rows["len_a"].astype(np.int64), rows["len_b"].astype(np.int64)
        lengths = len_a + len_b + settings.special_tokens
        ids = self._assemble(rows)
        column = np.arange(settings.max_seq_length, dtype=np.uint16)
        is_token = column < lengths.astype(np.uint16)[:, np.newaxis]
        after_a = column > rows["len_a"][:, np.newaxis] + np.uint16(1)
        budget = masking.budgets(lengths, settings.masked_lm_prob, settings.max_predictions_per_seq)
        if settings.do_whole_word_mask:
            is_candidate = is_token & (ids != self._cls) & (ids != self._sep)
            chosen = masking.choose_words(rng, is_candidate, self._continues[ids], budget)
        else:
            chosen = masking.choose_tokens(rng, len_a, len_b, budget, settings.max_seq_length)
        positions, labels, weights = masking.replace(
            rng, ids, chosen, settings.max_predictions_per_seq, self._mask, self._vocabulary_ids
        )
        return {
            "input_ids": ids,
            "input_mask": is_token,
            "segment_ids": is_token & after_a,
            "masked_lm_positions": positions,
            "masked_lm_ids": labels,
            "masked_lm_weights": weights,
            "next_sentence_labels": rows["is_random"][:, np.newaxis],
        }

    def _assemble(self, rows):
        """Token ids [batch, max_seq_length] of [CLS] A [SEP] B [SEP], or of [CLS] A [SEP] without pairs."""
        size = self._dtype.itemsize
        buffer, parts = self._corpus.tokens.buffer, []
        a, b, len_a, len_b = (rows[name].astype(np.int64) for name in ("a", "b", "len_a", "len_b"))
        spans = (a * size, (a + len_a) * size, b * size, (b + len_b) * size, len_a + len_b)
        for first_a, end_a, first_b, end_b, length in zip(*(span.tolist() for span in spans)):
            parts += (self._start, buffer[first_a:end_a], self._middle, buffer[first_b:end_b], self._ends[length])
        return np.frombuffer(bytearray().join(parts), self._dtype).reshape(len(rows), -1)
