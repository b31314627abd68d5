r"""Trains a WordPiece vocabulary, or puts a domain's words into an existing one.

python -m bert.train_vocab --input_file='corpus/*.txt' --output_file=vocab.txt --vocab_size=8000
python -m bert.train_vocab --input_file='law/*.txt' --output_file=law_vocab.txt --append=uncased/vocab.txt
"""

from absl import flags, logging

from bert import files, program, tokenization
from bert.data import vocabulary
from bert.errors import InputError

flags.DEFINE_string("input_file", None, "Text files (comma-separated globs), of any size.")
flags.DEFINE_string("output_file", None, "The vocabulary to write.")
flags.DEFINE_integer("vocab_size", 8000, "Number of tokens, special ones included.", lower_bound=1)
flags.DEFINE_bool("do_lower_case", True, "Whether the vocabulary is for lower-cased text.")
flags.DEFINE_bool("strip_accents", None, "Whether to drop accents; by default, if lower-casing.")
flags.DEFINE_string("input_encoding", "utf-8", "Encoding of the text files.")
flags.DEFINE_integer("num_unused", vocabulary.NUM_UNUSED, "Number of [unused] tokens to keep free.", lower_bound=0)
flags.DEFINE_integer("min_count", 2, "How often a character or piece comes to be worth a token.", lower_bound=1)
flags.DEFINE_string(
    "append",
    None,
    "An existing vocabulary whose [unused] tokens are replaced by the text's words that it splits most, in place "
    "of training a new one. --do_lower_case must be as it was trained.",
)

FLAGS = flags.FLAGS


def main():
    """Writes the vocabulary and reports how it fits each file."""
    input_files = files.expand_globs(FLAGS.input_file, "input_file")
    text_settings = {
        "do_lower_case": FLAGS.do_lower_case,
        "strip_accents": FLAGS.strip_accents,
        "input_encoding": FLAGS.input_encoding,
    }
    if FLAGS.append:
        old = tokenization.load_vocab(FLAGS.append, required=["[UNK]"])
        if FLAGS["vocab_size"].present and FLAGS.vocab_size != len(old):
            raise InputError(
                f"--vocab_size={FLAGS.vocab_size}: --append keeps the {len(old)} tokens of {FLAGS.append}; "
                "leave --vocab_size out."
            )
        tokens = vocabulary.append(list(old), input_files, min_count=FLAGS.min_count, **text_settings)
        new = [token for token, before in zip(tokens, old) if token != before]
        logging.info("%d of the text's words added: %s", len(new), " ".join(new[:20]))
    else:
        tokens = vocabulary.train(
            input_files,
            FLAGS.vocab_size,
            num_unused=FLAGS.num_unused,
            min_count=FLAGS.min_count,
            **text_settings,
        )
    vocabulary.write(tokens, FLAGS.output_file)
    vocab = tokenization.load_vocab(FLAGS.output_file)
    logging.info("%s: %d tokens.", FLAGS.output_file, len(vocab))
    print(vocabulary.format_report(vocabulary.report(vocab, input_files, **text_settings)))


if __name__ == "__main__":
    program.run(main, required=["input_file", "output_file"])
