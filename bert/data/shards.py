"""Planned instances to files of records.

Instances are dealt out to buckets, and buckets to files. A bucket is the unit of work: its instances are put in
random order, masked, and written at their place in the file, which gets its name when all its buckets are there.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import math
import os
import time

import numpy as np
from absl import logging

from bert import files
from bert.data import corpus as corpora
from bert.data import masking, packing, planning, records, token_store, wordpiece, workers
from bert.errors import InputError

_RECORDS_PER_BUCKET = 1 << 15
_MAX_BUCKETS = 1024
_RECORDS_PER_BATCH = 1024
_TOKENS_PER_BATCH = 1 << 19
_SECONDS_PER_REPORT = 30


def manifest_path(record_file):
    """Path of the JSON beside a record file; globs for records such as ``name*`` do not match it."""
    folder, name = os.path.split(record_file)
    return os.path.join(folder, f"manifest-{name}.json")


def layout(vocab, settings):
    """`records.Layout` of the records of a vocabulary and settings."""
    max_pairs = packing.max_pairs(settings.max_seq_length) if settings.pack_sequences else None
    if settings.dynamic_masking:
        return records.unmasked_layout(settings.max_seq_length, max_pairs)
    vocab_size = max(vocab.values()) + 1
    return records.pretraining_layout(settings.max_seq_length, settings.max_predictions_per_seq, vocab_size, max_pairs)


@dataclasses.dataclass(frozen=True)
class Dealing:
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


class ShardWriter:
    """Writes the planned instances to files.

    Args:
      folder: working folder, with the corpus and the plan.
      vocab: dict from token to id.
      settings: `pretraining_data.Settings`.
      unit_counts: int64 [units], number of instances of each unit in the plan.
      output_files: all files that the instances are dealt out to.
    """

    def __init__(self, folder, vocab, settings, unit_counts, output_files):
        self._folder, self._vocab, self._settings = folder, vocab, settings
        self._output_files = output_files
        num_records, num_files = int(unit_counts.sum()), len(output_files)
        if num_records < num_files:
            raise InputError(f"--output_file names {num_files} files, but the text makes only {num_records} records.")
        per_file = math.ceil(num_records / num_files / _RECORDS_PER_BUCKET)
        per_file = max(1, min(per_file, _MAX_BUCKETS // num_files))
        self._dealing = Dealing(unit_counts, num_files * per_file)
        self._record_bytes = layout(vocab, settings).record_bytes

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
        # A disk takes as long as a worker: each bucket goes there while others are made, not all of them at the end.
        disk = concurrent.futures.ThreadPoolExecutor(1)
        try:
            for shard in shards:
                path, temporary = self._output_files[shard], self._temporary(shard)
                tokens = pairs = 0
                syncs = []
                for job, (bucket_tokens, bucket_pairs) in zip(jobs[shard], done):
                    tokens, pairs = tokens + bucket_tokens, pairs + bucket_pairs
                    progress.add(self._dealing.size(job[0]))
                    if not files.is_remote(path):
                        syncs.append(disk.submit(_sync, temporary))
                with files.writing(path):
                    for sync in syncs:
                        sync.result()
                size = self._bytes(jobs[shard])
                manifest = {
                    **about,
                    "shard": shard,
                    "num_shards": len(self._output_files),
                    "records": size // self._record_bytes,
                    "pairs": pairs,
                    "tokens": tokens,
                    "bytes": size,
                }
                _publish(temporary, path, manifest)
                yield path, manifest
        finally:
            done.close()
            disk.shutdown(cancel_futures=True)
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
            files.remove_leftovers(manifest_path(path))
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
            os.replace(temporary, path)
        with files.atomic_write(described, "w") as f:
            f.write(json.dumps(manifest, indent=2) + "\n")
    logging.debug("Wrote %d records to %s.", manifest["records"], path)


def _sync(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())


def _make_bucket_writer(folder, vocab, settings, dealing):
    return _BucketWriter(folder, vocab, settings, dealing).write


class RecordMaker:
    """Makes features of planned instances.

    Args:
      tokens: the token ids of a corpus, see `Corpus.tokens`.
      vocab: dict from token to id.
      settings: `pretraining_data.Settings`.
    """

    def __init__(self, tokens, vocab, settings):
        self._tokens = tokens
        self._settings = settings
        self._dtype = token_store.token_dtype(vocab, settings)
        self._cls, self._sep, self._mask = vocab["[CLS]"], vocab["[SEP]"], vocab["[MASK]"]
        self._is_marked = bool(settings.whole_word_segmenter)
        self._start, sep = (
            np.array(token << self._is_marked, self._dtype).tobytes() for token in (self._cls, self._sep)
        )
        self._middle = b"" if settings.no_nsp else sep
        room = settings.max_seq_length - settings.special_tokens
        # What ends a sequence, by the number of tokens of its segments.
        self._ends = [sep + bytes((room - length) * self._dtype.itemsize) for length in range(room + 1)]
        self._vocabulary_ids = np.fromiter(vocab.values(), self._dtype)
        self._continues = wordpiece.continues(vocab)

    def features(self, rng, rows):
        """Features of a batch of instances, with masks drawn from `rng`.

        Args:
          rng: generator.
          rows: array of `planning.ROW`, [batch], or [batch, max_pairs] if the records are packed.

        Returns:
          A dict from name to array [batch, length], as `records.Layout.encode` takes it.
        """
        if not self._settings.pack_sequences:
            return self._features(rng, rows)
        is_pair = rows["len_a"] > 0  # [batch, max_pairs]
        pairs = rows[is_pair]  # [pairs]
        lengths = pairs["len_a"].astype(np.int64) + pairs["len_b"] + self._settings.special_tokens
        return packing.lay(self._features(rng, pairs), lengths, is_pair)

    def _features(self, rng, rows):
        settings = self._settings
        len_a, len_b = rows["len_a"].astype(np.int64), rows["len_b"].astype(np.int64)
        lengths = len_a + len_b + settings.special_tokens
        ids, continues = self._assemble(rows), None
        if self._is_marked:
            ids, continues = ids >> 1, (ids & 1).astype(bool)
        elif settings.do_whole_word_mask or settings.dynamic_masking:
            continues = self._continues[ids]
        next_sentence_labels = rows["is_random"][:, np.newaxis]
        column = np.arange(settings.max_seq_length, dtype=np.uint16)
        is_token = column < lengths.astype(np.uint16)[:, np.newaxis]
        if settings.dynamic_masking:
            # [CLS] A [SEP], and what is left.
            segment_lengths = np.stack([len_a + 2, lengths - len_a - 2], axis=1)
            return {
                "tokens": self._with_places(ids, self._is_candidate(ids, is_token), continues),
                "segment_lengths": segment_lengths,
                "next_sentence_labels": next_sentence_labels,
            }
        after_a = column > rows["len_a"][:, np.newaxis] + np.uint16(1)
        budget = masking.budgets(lengths, settings.masked_lm_prob, settings.max_predictions_per_seq)
        if settings.do_whole_word_mask:
            chosen = masking.choose_words(rng, self._is_candidate(ids, is_token), continues, budget)
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
            "next_sentence_labels": next_sentence_labels,
        }

    def _is_candidate(self, ids, is_token):
        return is_token & (ids != self._cls) & (ids != self._sep)

    def _with_places(self, ids, is_candidate, continues):
        """Tokens as records without masks hold them: uint32 [batch, max_seq_length]."""
        opens = masking.opens_word(is_candidate, continues)
        column = np.arange(1, ids.shape[1] + 1, dtype=np.uint32)
        places = column - np.maximum.accumulate(opens * (column - 1), axis=1)  # [batch, max_seq_length]
        return ids | np.minimum(places, records.MAX_PLACE) * is_candidate << np.uint32(records.TOKEN_ID_BITS)

    def _assemble(self, rows):
        """Tokens as of the corpus [batch, max_seq_length]: [CLS] A [SEP] B [SEP], or of [CLS] A [SEP] without pairs."""
        size = self._dtype.itemsize
        buffer, parts = self._tokens, []
        a, b, len_a, len_b = (rows[name].astype(np.int64) for name in ("a", "b", "len_a", "len_b"))
        spans = (a * size, (a + len_a) * size, b * size, (b + len_b) * size, len_a + len_b)
        for first_a, end_a, first_b, end_b, length in zip(*(span.tolist() for span in spans)):
            parts += (self._start, buffer[first_a:end_a], self._middle, buffer[first_b:end_b], self._ends[length])
        return np.frombuffer(bytearray().join(parts), self._dtype).reshape(len(rows), -1)


class _BucketWriter:
    """Writes one bucket after another."""

    def __init__(self, folder, vocab, settings, dealing):
        self._plan_path = os.path.join(folder, "plan")
        self._settings = settings
        self._dealing = dealing
        corpus = corpora.Corpus(folder)
        self._maker = RecordMaker(corpus.tokens, vocab, settings)
        self._layout = layout(vocab, settings)
        pairs = np.prod(packing.row_type(settings).shape, dtype=int)
        self._batch = max(1, min(_RECORDS_PER_BATCH, _TOKENS_PER_BATCH // (settings.max_seq_length * pairs)))

    def write(self, job):
        """Writes the bucket ``(bucket, path, offset)`` into a file; returns its numbers of tokens and pairs."""
        bucket, path, offset = job
        rng = planning.random_stream(self._settings.random_seed, "write", bucket)
        rows = self._rows(bucket)
        rows = rows[rng.permutation(len(rows))]
        with files.writing(path), open(path, "r+b", buffering=0) as f:
            f.seek(offset)
            for start in range(0, len(rows), self._batch):
                features = self._maker.features(rng, rows[start : start + self._batch])
                content = memoryview(self._layout.encode(features)).cast("B")
                while content:  # a disk that is about to be full takes only a part
                    content = content[f.write(content) :]
        text_tokens = rows["len_a"].sum(dtype=np.int64) + rows["len_b"].sum(dtype=np.int64)
        pairs = int(np.count_nonzero(rows["len_a"]))
        return int(text_tokens) + self._settings.special_tokens * pairs, pairs

    def _rows(self, bucket):
        """The plan of a bucket: array of `packing.row_type`."""
        starts, counts = self._dealing.pieces(bucket)
        row_type = packing.row_type(self._settings)
        pieces, size = [], row_type.itemsize
        with open(self._plan_path, "rb", buffering=0) as f:
            for start, count in zip(starts.tolist(), counts.tolist()):
                pieces.append(os.pread(f.fileno(), count * size, start * size))
        return np.frombuffer(b"".join(pieces), row_type)
