"""The making of pretraining data as an Apache Beam pipeline: the same records as of `pretraining_data.create`.

The steps and their units of work are those of `pretraining_data`, so that the bytes are too:

1. Tokenize: one file of text each.
2. Index: the documents of all files become one corpus, on one worker.
3. Plan: one pass over one block of documents each.
4. Join: the rows of all units become one plan, on one worker.
5. Write: one record file each.

What one step makes for another lies in a folder that all workers reach, local or remote. Any token may be wanted by
any record, so that each worker copies corpus and plan to its own disk first. A unit of work that is done again
gives the same content under the same name.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import tempfile

import apache_beam as beam
import numpy as np

from bert import files, tokenization
from bert.data import corpus as corpora
from bert.data import packing, pretraining_data, shards, token_store

_CORPUS = ("tokens", "sentences", "documents")
_PLAN = "plan"


@dataclasses.dataclass(frozen=True)
class Job:
    """What to make.

    Attributes:
      input_files: tuple of files of text.
      vocab_file: the vocabulary.
      output_files: tuple of record files.
      settings: `pretraining_data.Settings`.
      token_folder: where tokenized text is kept, reached by all workers.
      work_folder: where temporary files are kept, reached by all workers.
    """

    input_files: tuple
    vocab_file: str
    output_files: tuple
    settings: pretraining_data.Settings
    token_folder: str
    work_folder: str


@dataclasses.dataclass(frozen=True)
class Index:
    """What the steps after the second must know.

    Attributes:
      fingerprint: of the run.
      folder: shared folder of the corpus.
      sizes: as of `corpus.build`.
      wanted: tuple of the record files that are not there yet.
    """

    fingerprint: str
    folder: str
    sizes: tuple
    wanted: tuple


def build(pipeline, job):
    """Adds all steps to a pipeline.

    Returns:
      A PCollection of (record file, its manifest).
    """
    stores = (
        pipeline
        | "Files" >> beam.Create(list(enumerate(job.input_files)))
        | "Spread files" >> beam.Reshuffle()
        | "Tokenize" >> beam.Map(_tokenize, job)
    )
    once = pipeline | "Once" >> beam.Create([None])
    index = once | "Index" >> beam.Map(_index, job, beam.pvalue.AsList(stores))
    counts = (
        index
        | "Units" >> beam.FlatMap(_units, job)
        | "Spread units" >> beam.Reshuffle()
        | "Plan" >> beam.Map(_plan, job, beam.pvalue.AsSingleton(index))
    )
    joined = index | "Join" >> beam.Map(_join, beam.pvalue.AsList(counts))
    return (
        index
        | "Shards" >> beam.FlatMap(lambda index: index.wanted)
        | "Spread shards" >> beam.Reshuffle()
        | "Write" >> beam.Map(_write, job, beam.pvalue.AsSingleton(index), beam.pvalue.AsSingleton(joined))
    )


def _tokenize(item, job):
    """(number of a file, path) to (number, digest of the file, its `TokenStore` in the shared folder)."""
    number, path = item
    digest, vocab_digest = token_store.digest_file(path), token_store.digest_file(job.vocab_file)
    folder = job.token_folder
    if not files.is_remote(folder):
        return number, digest, *_open_store(path, digest, vocab_digest, job, folder)
    store = token_store.find(path, f"{folder}/{token_store.name(digest, vocab_digest, job.settings)}")
    if store is None:
        with tempfile.TemporaryDirectory() as local:
            (store,) = _open_store(path, digest, vocab_digest, job, local)
            store = token_store.copy(store, folder)
    return number, digest, store


def _open_store(path, digest, vocab_digest, job, folder):
    vocab = _vocabulary(job.vocab_file)
    return token_store.open_stores([path], [digest], vocab, vocab_digest, job.settings, folder)


def _index(_, job, found):
    """Builds the corpus in the shared folder; returns an `Index`."""
    _, digests, stores = zip(*sorted(found, key=lambda item: item[0]))
    run = pretraining_data.fingerprint_of_digests(digests, token_store.digest_file(job.vocab_file), job.settings)
    done = pretraining_data.finished(run, job.output_files)
    wanted = tuple(path for path in job.output_files if path not in done)
    pretraining_data.check_text(stores)
    folder = f"{job.work_folder}/{run}"
    dtype = token_store.token_dtype(_vocabulary(job.vocab_file), job.settings)
    with tempfile.TemporaryDirectory() if files.is_remote(folder) else contextlib.nullcontext(folder) as local:
        files.make_folder(local)
        stores = [dataclasses.replace(store, folder=_copied(store.folder, token_store.PARTS)) for store in stores]
        sizes = corpora.build(local, stores, dtype, lambda hashes: np.ones(len(hashes), bool))
        pretraining_data.check_documents(sizes[0], job.settings, stores, "all")
        if local != folder:
            for name in _CORPUS:
                files.copy(os.path.join(local, name), f"{folder}/{name}")
    return Index(run, folder, sizes, wanted)


def _units(index, job):
    if index.wanted:
        yield from enumerate(pretraining_data.planning_units(_copied(index.folder, _CORPUS), job.settings))


def _plan(item, job, index):
    """Plans a unit into a file; returns its number and that of its instances."""
    number, unit = item
    rows = pretraining_data.make_planner(_copied(index.folder, _CORPUS), job.settings)(unit)
    with files.atomic_write(_unit_path(index, number)) as f:
        f.write(rows)
    return number, len(rows) // packing.row_type(job.settings).itemsize


def _join(index, counts):
    """Joins the rows of all units; returns the numbers of their instances."""
    with files.atomic_write(f"{index.folder}/{_PLAN}") as f:
        for number, _ in sorted(counts):
            with files.open_file(_unit_path(index, number)) as g:
                f.write(g.read())
    return [count for _, count in sorted(counts)]


def _write(path, job, index, counts):
    """Writes a record file; returns its path and manifest."""
    folder = _copied(index.folder, (*_CORPUS, _PLAN))
    vocab = _vocabulary(job.vocab_file)
    writer = shards.ShardWriter(folder, vocab, job.settings, np.array(counts, np.int64), list(job.output_files))
    about = pretraining_data.description(index.fingerprint, vocab, job.settings, "all", index.sizes)
    (written,) = writer.write({path}, about, num_workers=1)
    return written


def _unit_path(index, number):
    return f"{index.folder}/plan-{number:05d}"


@functools.lru_cache(maxsize=1)
def _vocabulary(path):
    return tokenization.load_vocab(path)


def _copied(folder, names):
    """A local folder with these files of a shared one; a worker copies each only once."""
    if not files.is_remote(folder):
        return folder
    key = hashlib.sha256(folder.encode()).hexdigest()[:16]
    local = os.path.join(tempfile.gettempdir(), f"bert-pretraining-data-{key}")
    os.makedirs(local, exist_ok=True)
    with open(os.path.join(local, "lock"), "w") as lock:
        # Processes of one machine share the copy.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            target = os.path.join(local, name)
            if not os.path.exists(target):
                files.copy(f"{folder}/{name}", target)
    return local
