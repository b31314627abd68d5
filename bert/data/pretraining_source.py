"""Where a pretraining takes its records from: files of records, or text that is made into records first."""

import dataclasses
import hashlib
import math
import os

from absl import logging

from bert import files
from bert.data import pretraining_data, records, token_store, vocabulary
from bert.errors import InputError

_BYTES_PER_SHARD = 128 << 20
_MIN_SHARDS = 8
# The first bytes of a TFRecord file are a length of 8 bytes and a checksum: text has no zero bytes there.
_HEAD = 12
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass
class Source:
    """The input of a pretraining.

    Attributes:
      input_file: globs of record or text files; "{max_seq_length}" stands for a length.
      eval_file: the same for evaluation, or None.
      vocab_file: path of the vocabulary; None if it is to be trained, or not known.
      vocab_size: size of the vocabulary to train, or None.
      settings: `pretraining_data.Settings`; its lengths are replaced by those asked for.
      folder: where records made from text are kept, each set in a folder named by its content.
      held_out_fraction: share of the documents of a text that is evaluated on if there is no eval_file.
      num_workers: number of processes that make records.
    """

    input_file: str
    eval_file: str
    vocab_file: str
    vocab_size: int
    settings: object
    folder: str
    held_out_fraction: float
    num_workers: int

    def __post_init__(self):
        if self.vocab_file is None and self._is_text("input_file", self.input_file):
            self.vocab_file = self._train_vocabulary()

    @property
    def is_text(self):
        """Whether the training's files are text, and not records."""
        return self._is_text("input_file", self.input_file)

    @property
    def has_held_out_documents(self):
        """Whether what is evaluated on is kept apart from training."""
        return bool(self.eval_file) or (self.held_out_fraction > 0 and self._is_text("input_file", self.input_file))

    def training_files(self, max_seq_length, max_predictions_per_seq):
        """Paths of the training records of one shape, made now if they are not there."""
        split = "train" if self.has_held_out_documents and not self.eval_file else "all"
        return self._records(
            "input_file", self.input_file, split, max_seq_length, max_predictions_per_seq, self.settings
        )

    def evaluation_files(self, max_seq_length, max_predictions_per_seq):
        """Paths of the records to evaluate on, made now if they are not there.

        Their masks are stored and they are not packed, so that all ways to train are measured on the same records.
        """
        flag = "eval_file" if self.eval_file else "input_file"
        split = "held_out" if self.has_held_out_documents and not self.eval_file else "all"
        pattern = self.eval_file or self.input_file
        settings = dataclasses.replace(self.settings, dynamic_masking=False, pack_sequences=False)
        if self.has_held_out_documents:
            # Another pass over the same documents would only evaluate them twice.
            settings = dataclasses.replace(settings, dupe_factor=1)
        return self._records(flag, pattern, split, max_seq_length, max_predictions_per_seq, settings)

    def _records(self, flag, pattern, split, max_seq_length, max_predictions_per_seq, settings):
        pattern = pattern.replace("{max_seq_length}", str(max_seq_length))
        if not self._is_text(flag, pattern):
            return records.find(pattern, flag)
        texts = files.expand_globs(pattern, flag)
        settings = dataclasses.replace(
            settings, max_seq_length=max_seq_length, max_predictions_per_seq=max_predictions_per_seq
        )
        key = pretraining_data.fingerprint(
            texts, self.vocab_file, settings, split=split, held_out_fraction=self.held_out_fraction
        )
        folder = os.path.join(self.folder, f"{split}-{max_seq_length}-{key[:16]}")
        text_bytes = sum(files.size(path) for path in texts)
        num_shards = max(_MIN_SHARDS, math.ceil(2 * text_bytes * settings.dupe_factor / _BYTES_PER_SHARD))
        outputs = [os.path.join(folder, f"{i:05d}-of-{num_shards:05d}.tfrecord") for i in range(num_shards)]
        manifest = pretraining_data.create(
            texts,
            self.vocab_file,
            outputs,
            settings,
            num_workers=self.num_workers,
            split=split,
            held_out_fraction=self.held_out_fraction,
        )
        logging.info(
            "%s: %d records of length %d with %d pairs, %.0f %% full, from %d documents, %d sentences, %d tokens%s",
            {"train": "training text", "held_out": "held-out text"}.get(split, pattern),
            manifest.records,
            max_seq_length,
            manifest.pairs,
            100 * manifest.tokens / (manifest.records * max_seq_length),
            manifest.documents,
            manifest.sentences,
            manifest.text_tokens,
            " (made before)" if manifest.kept == len(outputs) else "",
        )
        return outputs

    def _train_vocabulary(self):
        """Trains a vocabulary from the text, or finds the one trained from the same text before."""
        if self.vocab_size is None:
            raise InputError(
                "--input_file is text, which needs a vocabulary: give --vocab_file (or put vocab.txt beside "
                "bert_config.json), or have one trained from the text with --vocab_size."
            )
        texts = files.expand_globs(self.input_file, "input_file")
        settings = self.settings
        key = hashlib.sha256()
        for path in texts:
            key.update(token_store.digest_file(path).encode())
        key.update(repr((self.vocab_size, settings.do_lower_case, settings.strip_accents)).encode())
        path = os.path.join(self.folder, f"vocab-{key.hexdigest()[:16]}.txt")
        if not files.exists(path):
            logging.info("training a vocabulary of %d pieces from %d text files", self.vocab_size, len(texts))
            vocab = vocabulary.train(
                texts,
                self.vocab_size,
                settings.do_lower_case,
                settings.strip_accents,
                input_encoding=settings.input_encoding,
            )
            vocabulary.write(vocab, path)
        return path

    def _is_text(self, flag, pattern):
        if "{max_seq_length}" in pattern:
            return False
        with files.open_file(files.expand_globs(pattern, flag)[0]) as f:
            head = f.read(_HEAD)
        return b"\0" not in head and not head.startswith(_GZIP)
