"""Makes pretraining records of text: pairs of segments with masked tokens.

    python -m bert.create_pretraining_data --input_file='corpus/*.txt' --output_file=out/records.tfrecord@8 \
        --vocab_file=vocab.txt

The text has a sentence a line and a blank line between documents; a file ends a document. Run again after an
interruption, it goes on with the files that are missing.
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses

from absl import flags

from bert import files, program, text_flags
from bert.data import pretraining_data, records

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "Comma-separated globs of text files.")
flags.DEFINE_string(
    "output_file", None, "Comma-separated record files, which get equal shares; name@8 stands for eight of them."
)
flags.DEFINE_string("vocab_file", None, "Vocabulary of the model.")
flags.DEFINE_integer("max_seq_length", 128, "Length of the records' sequences.", lower_bound=1)
flags.DEFINE_integer("max_predictions_per_seq", 20, "Most tokens to predict in a record.", lower_bound=1)
flags.DEFINE_integer("random_seed", 12345, "Seed of pairs, masks and order.")
flags.DEFINE_string(
    "token_cache", None, "Folder where tokenized text is kept. Default: bert/tokens in the user's cache folder."
)
text_flags.define()


def main():
    """Makes the records and prints what was read and written."""
    settings = settings_of_flags()
    manifest = pretraining_data.create(
        files.expand_globs(FLAGS.input_file, "input_file"),
        FLAGS.vocab_file,
        records.expand_shards(FLAGS.output_file),
        settings,
        num_workers=FLAGS.num_workers,
        token_cache=FLAGS.token_cache,
    )
    print(_report(manifest, settings))


def settings_of_flags():
    """The `pretraining_data.Settings` that the flags give."""
    return dataclasses.replace(
        text_flags.settings(FLAGS, FLAGS.random_seed),
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
    )


def _report(manifest, settings):
    lines = []
    if manifest.stores:
        lines.append(f"{'documents':>12}{'sentences':>12}{'tokens':>14}{'[UNK]':>9}  file")
    for store in manifest.stores:
        unknown = 100 * store.unknown / max(store.tokens, 1)
        cached = " (tokenized before)" if store.cached else ""
        lines.append(
            f"{store.documents:>12,}{store.sentences:>12,}{store.tokens:>14,}{unknown:>7.2f} %  {store.path}{cached}"
        )
    filled = 100 * manifest.tokens / (manifest.records * settings.max_seq_length)
    packed = f" with {manifest.pairs:,} pairs" if settings.pack_sequences else ""
    lines.append(
        f"{manifest.records:,} records of {settings.max_seq_length} tokens{packed}, {filled:.0f} % full, from "
        f"{manifest.documents:,} documents, {manifest.sentences:,} sentences, {manifest.text_tokens:,} tokens"
    )
    counts = zip(manifest.output_files, manifest.counts)
    lines += [f"{count:>12,} records in {path}" for path, count in counts]
    if manifest.kept:
        lines.append(f"{manifest.kept} of {len(manifest.output_files)} files were complete from an earlier run.")
    return "\n".join(lines)


if __name__ == "__main__":
    program.run(main, required=["input_file", "output_file", "vocab_file"])
