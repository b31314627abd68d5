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
import os
import shutil

import numpy as np
from absl import logging

from bert import files, tokenization
from bert.data import chinese_words, packing, planning, records, shards, text, token_store, workers
from bert.data import corpus as corpora
from bert.errors import InputError

FORMAT = 3

SPECIAL_TOKENS = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")

_MAX_UNKNOWN_RATE = 0.05


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
      dynamic_masking: whether records hold the text itself, to be masked each time it is read; they do not depend on
        do_whole_word_mask then, nor, unless they are packed, on masked_lm_prob and max_predictions_per_seq.
      whole_word_segmenter: name of the library that finds the words of Chinese text, see `chinese_words`; None: every
        ideograph is a word.
      pack_sequences: whether a record holds several short pairs, see `packing`.
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
    dynamic_masking: bool = False
    whole_word_segmenter: str = None
    pack_sequences: bool = False

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
        if self.whole_word_segmenter and not (self.do_whole_word_mask or self.dynamic_masking):
            raise InputError("--whole_word_segmenter needs --do_whole_word_mask.")
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
      pairs: number of pairs in the records: more than one in each if they are packed.
      tokens: number of tokens in the records, without padding.
      documents, sentences, text_tokens: size of the text the records were made of (one split of it).
      fingerprint: see `fingerprint`.
      kept: number of record files that were complete from an earlier run.
      stores: list of `TokenStore`, one for each file of text; empty if all files were kept.
    """

    output_files: list
    counts: list
    records: int
    pairs: int
    tokens: int
    documents: int
    sentences: int
    text_tokens: int
    fingerprint: str
    kept: int
    stores: list


def read_manifest(record_file):
    """Content of the JSON beside a record file, or None if there is none.

    Raises:
      InputError: the record file has been truncated or changed since it was written.
    """
    path = shards.manifest_path(record_file)
    if not files.exists(path):
        return None
    manifest = files.read_json_object(path)
    size = files.size(record_file)
    if size != manifest.get("bytes"):
        raise InputError(
            f"{record_file} has {size} bytes, but {path} says {manifest.get('bytes')}: the file was cut short or "
            "changed after it was written. Make the records anew."
        )
    number, record_bytes = manifest.get("records"), records.first_record_bytes(record_file)
    if not isinstance(number, int) or number * record_bytes != size:
        raise InputError(
            f"{record_file} has {size // record_bytes} records of {record_bytes} bytes, but {path} says {number}: one "
            "of them was changed after it was written. Make the records anew."
        )
    return manifest


def counts(record_files):
    """Numbers of records in files: what the JSON beside them says, or else counted.

    A warning tells if there are more files that were made together with these.
    """
    manifests = [read_manifest(path) for path in record_files]
    together = {}
    for manifest in filter(None, manifests):
        made = manifest.get("fingerprint"), manifest.get("num_shards")
        together.setdefault(made, set()).add(manifest.get("shard"))
    for (_, number), found in together.items():
        if number and len(found) < number:
            logging.warning(
                "%s ...: only %d of %d record files that were made together; the text of the others is not used.",
                record_files[0],
                len(found),
                number,
            )
    return [manifest["records"] if manifest else records.count(path) for path, manifest in zip(record_files, manifests)]


def pairs(manifest):
    """Number of pairs in a file, from what `read_manifest` returns."""
    return manifest.get("pairs", manifest["records"])


def fingerprint(input_files, vocab_file, settings, split="all", held_out_fraction=0.0):
    """What the records depend on, by content: text, vocabulary, settings and split.

    Returns:
      32 hex digits.
    """
    digests = [token_store.digest_file(path) for path in input_files]
    return fingerprint_of_digests(digests, token_store.digest_file(vocab_file), settings, split, held_out_fraction)


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
      output_files: record files to write; each gets a JSON beside it, see `shards.manifest_path`.
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
    vocab = check(vocab_file, output_files, settings)
    digests = [token_store.digest_file(path) for path in input_files]
    vocab_digest = token_store.digest_file(vocab_file)
    run = fingerprint_of_digests(digests, vocab_digest, settings, split, held_out_fraction)
    done = finished(run, output_files)
    if len(done) == len(output_files):
        return _manifest(output_files, done, len(done), [])
    token_cache = token_cache or token_store.default_folder()
    stores = token_store.open_stores(input_files, digests, vocab, vocab_digest, settings, token_cache, num_workers)
    check_text(stores)
    dtype = token_store.token_dtype(vocab, settings)
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
        wanted = tokens * dtype.itemsize + sentences * 16 + instances * packing.row_type(settings).itemsize
        files.check_space(folder, wanted, "temporary files")
        sizes = corpora.build(folder, stores, dtype, choose)
        check_documents(sizes[0], settings, stores, split)
        unit_counts = _plan(folder, settings, num_workers)
        writer = shards.ShardWriter(folder, vocab, settings, unit_counts, output_files)
        about = description(run, vocab, settings, split, sizes)
        for path, manifest in writer.write(set(output_files) - set(done), about, num_workers):
            done[path] = manifest
    return _manifest(output_files, done, kept, stores)


def check(vocab_file, output_files, settings):
    """Checks what can be checked before any text is read.

    Returns:
      The vocabulary, a dict from token to id.

    Raises:
      InputError: a special token is missing, or an output file cannot be one.
    """
    if len(set(output_files)) < len(output_files):
        raise InputError("--output_file names a file twice.")
    for path in output_files:
        if not files.is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f"--output_file: {path} is there and is not a file.")
    vocab = tokenization.load_vocab(vocab_file, required=SPECIAL_TOKENS)
    if settings.whole_word_segmenter:
        chinese_words.version(settings.whole_word_segmenter)
    _warn_of_small_budget(settings)
    return vocab


def fingerprint_of_digests(digests, vocab_digest, settings, split="all", held_out_fraction=0.0):
    """As `fingerprint`, of the digests of the files of text and of the vocabulary."""
    settings = dataclasses.asdict(settings)
    if settings["segment_sentences"]:
        settings["segment_sentences"] = text.segmentation_version()
    if settings["whole_word_segmenter"]:
        settings["whole_word_segmenter"] = chinese_words.version(settings["whole_word_segmenter"])
    if settings["dynamic_masking"]:
        del settings["do_whole_word_mask"]
    if settings["dynamic_masking"] and not settings["pack_sequences"]:
        del settings["masked_lm_prob"], settings["max_predictions_per_seq"]
    if not settings["pack_sequences"]:
        del settings["pack_sequences"]
    content = {
        "format": FORMAT,
        "text": digests,
        "vocabulary": vocab_digest,
        "settings": settings,
        "split": split,
        "held_out_fraction": 0.0 if split == "all" else held_out_fraction,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def description(run, vocab, settings, split, sizes):
    """What is common to the manifests of all record files: `sizes` as `corpus.build` returns them."""
    return {
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


def finished(run, output_files):
    """Dict from each file that an earlier, equal run has completed to its manifest."""
    done = {}
    for shard, path in enumerate(output_files):
        if not files.exists(path):
            continue
        try:
            manifest = read_manifest(path)
        except InputError as e:
            logging.warning("%s", e)
            continue
        expected = {"fingerprint": run, "shard": shard, "num_shards": len(output_files)}
        if manifest and all(manifest.get(key) == value for key, value in expected.items()):
            done[path] = manifest
    return done


def _manifest(output_files, done, kept, stores):
    manifests = [done[path] for path in output_files]
    first = manifests[0]
    return Manifest(
        output_files=list(output_files),
        counts=[manifest["records"] for manifest in manifests],
        records=sum(manifest["records"] for manifest in manifests),
        pairs=sum(pairs(manifest) for manifest in manifests),
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
    if not settings.dynamic_masking and settings.max_predictions_per_seq < 0.9 * wanted:
        logging.warning(
            "--max_predictions_per_seq=%d masks only %.1f %% of a full sequence of %d tokens; "
            "--masked_lm_prob=%g of them would be %d.",
            settings.max_predictions_per_seq,
            100 * settings.max_predictions_per_seq / settings.max_seq_length,
            settings.max_seq_length,
            settings.masked_lm_prob,
            wanted,
        )


def check_text(stores):
    """Warns of what is odd about the texts of `stores`, and raises an `InputError` if there is none."""
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
        if store.documents > 1 and 2 * store.single_sentence_documents >= store.documents:
            logging.warning(
                "%s: %d of its %d documents are a single sentence. Is there a blank line after every sentence? "
                "Blank lines separate documents; after a document's only sentence the next is always a random one, so "
                "next sentence prediction learns nothing from it.",
                store.path,
                store.single_sentence_documents,
                store.documents,
            )
    if not any(store.documents for store in stores):
        raise InputError(f"No text in {', '.join(store.path for store in stores)}.")


def check_documents(num_documents, settings, stores, split):
    """Raises an `InputError` if there are too few documents."""
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


def _plan(folder, settings, num_workers):
    """Plans all instances into the file `plan`; returns their number in each unit: int64 [units]."""
    units = planning_units(folder, settings)
    counts = []
    with open(os.path.join(folder, "plan"), "wb") as f:
        for rows in workers.map_in_order(make_planner, (folder, settings), units, num_workers):
            f.write(rows)
            counts.append(len(rows) // packing.row_type(settings).itemsize)
    return np.array(counts, np.int64)


def planning_units(folder, settings):
    """The units of planning of the corpus in `folder`, as a planner takes them; their rows lie in this order."""
    borders = planning.blocks(corpora.Corpus(folder)).tolist()
    return [
        (number, block, first, end)
        for number in range(settings.dupe_factor)
        for block, (first, end) in enumerate(zip(borders, borders[1:]))
    ]


def make_planner(folder, settings):
    """A function from a unit of planning to the bytes of its rows, `packing.row_type`, in random order."""
    planner = planning.Planner(corpora.Corpus(folder), settings)

    def plan(unit):
        rows = planner.plan(*unit)
        if settings.pack_sequences:
            rows = packing.pack(rows, settings)
            rng = planning.random_stream(settings.random_seed, "pack", *unit[:2])
            rows = rows[rng.permutation(len(rows))]
        return rows.tobytes()

    return plan
