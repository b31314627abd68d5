"""Flags on the training, dev and test set, which several programs have."""

from absl import flags

# What asks for a split, and what names its file.
_SPLITS = {
    "train": ("do_train", "train_file"),
    "dev": ("do_eval", "eval_file"),
    "test": ("do_predict", "predict_file"),
}


def define_files():
    """Defines the flags on files of text with labels."""
    flags.DEFINE_string("train_file", None, "Training set, instead of the task's file in --data_dir.")
    flags.DEFINE_string("eval_file", None, "Dev set, instead of the task's file in --data_dir.")
    flags.DEFINE_string("predict_file", None, "Test set, instead of the task's file in --data_dir.")
    flags.DEFINE_string("input_encoding", "utf-8", "Encoding of the task's files.")
    flags.DEFINE_bool("do_lower_case", True, "Whether text is lower-cased. Unless given, as the vocabulary is.")


def define_use():
    """Defines the flags on what is done with them."""
    flags.DEFINE_bool("do_train", False, "Whether to train on the training set.")
    flags.DEFINE_bool("do_eval", False, "Whether to evaluate on the dev set.")
    flags.DEFINE_bool("do_predict", False, "Whether to predict the test set.")
    flags.DEFINE_integer("eval_batch_size", 8, "Examples per evaluation step, over all cores.", lower_bound=1)
    flags.DEFINE_integer("predict_batch_size", 8, "Examples per prediction step, over all cores.", lower_bound=1)


def wanted(values):
    """The splits that something is to be done with.

    Args:
      values: the parsed flags.

    Returns:
      A dict from "train", "dev" and "test" to the file that a flag names for it, or None.
    """
    return {split: values[file].value for split, (does, file) in _SPLITS.items() if values[does].value}
