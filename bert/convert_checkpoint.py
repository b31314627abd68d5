"""Converts a checkpoint to the form that BERT models are released in.

    python -m bert.convert_checkpoint --input=out/pretrain --output=my-bert --strip_optimizer

The input may be a TensorFlow 1 checkpoint (a prefix, or a folder with one) or a Hugging Face folder. The
output folder gets bert_config.json, bert_model.ckpt.* and vocab.txt, as far as the input has them.
"""

from absl import flags, logging

from bert import program
from bert.training import checkpoint_formats, checkpoints

FLAGS = flags.FLAGS

flags.DEFINE_string("input", None, "Checkpoint prefix, or folder with a TensorFlow 1 or Hugging Face model.")
flags.DEFINE_string("output", None, "Folder to write.")
flags.DEFINE_bool(
    "strip_optimizer",
    False,
    "Leave out the optimizer's slots and the global step: a third of the size, as in released models. "
    "Training can start from such a checkpoint, but not resume.",
)
flags.DEFINE_integer(
    "average",
    None,
    "The mean of the weights of the last so many checkpoints in the folder --input; implies --strip_optimizer.",
    lower_bound=1,
)


def main():
    """Reads, averages, strips and writes."""
    prefixes = checkpoints.newest(FLAGS.input, FLAGS.average) if FLAGS.average else [FLAGS.input]
    checkpoint = checkpoint_formats.read(prefixes[-1])
    total = len(checkpoint.variables)
    if FLAGS.strip_optimizer or FLAGS.average:
        checkpoint.variables = checkpoint_formats.strip_optimizer(checkpoint.variables)
    if FLAGS.average:
        logging.info("the mean of %s", ", ".join(prefixes))
        checkpoint.variables = checkpoints.average(prefixes, checkpoint.variables)
    prefix = checkpoint_formats.write_tf1(FLAGS.output, checkpoint)
    size = sum(value.nbytes for value in checkpoint.variables.values())
    logging.info("%s: %d of %d variables, %.1f MB", prefix, len(checkpoint.variables), total, size / 1e6)
    if checkpoint.config is None:
        logging.warning("no %s beside the input: add it to use %s", checkpoint_formats.CONFIG_FILE, FLAGS.output)
    if checkpoint.vocab_file is None:
        logging.warning("no %s beside the input: add it to use %s", checkpoint_formats.VOCAB_FILE, FLAGS.output)


if __name__ == "__main__":
    program.run(main, required=["input", "output"])
