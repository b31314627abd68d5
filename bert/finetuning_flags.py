"""Flags on the model and the length of a fine-tuning, which several programs have, and what follows from them."""

import dataclasses
import os
from typing import Optional

from absl import flags

from bert import configs, files, modeling, tokenization, training_flags
from bert.data import batching
from bert.errors import InputError
from bert.tasks import features
from bert.training import checkpoint_formats, checkpoints, finetuning, preflight
from bert.training.trainer import Schedule, Stretch


def define():
    """Defines the flags, those of every training among them."""
    training_flags.define()
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "Model shape: a bert_config.json, or a name such as bert-mini. Default: the checkpoint's.",
    )
    flags.DEFINE_string(
        "vocab_file", None, "Vocabulary. Default: that beside the config, the checkpoint or in output_dir."
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Checkpoint to start from, if output_dir has none yet, in any form that docs/formats.md names: of TensorFlow 1 "
        "or 2, of Hugging Face, a SavedModel, or a TF hub module.",
    )
    flags.DEFINE_alias("hub_module_url", "init_checkpoint")
    flags.DEFINE_alias("bert_hub_module_handle", "init_checkpoint")
    flags.DEFINE_float("num_train_epochs", 3.0, "How many times the training set is used.", lower_bound=0.0)
    flags.DEFINE_integer(
        "num_train_steps", None, "Steps of the training, instead of --num_train_epochs.", lower_bound=1
    )
    flags.DEFINE_float(
        "warmup_proportion", 0.1, "Share of the steps in which the rate rises.", lower_bound=0.0, upper_bound=1.0
    )
    flags.DEFINE_bool(
        "bucket_by_length",
        None,
        "Whether batches are made of examples of similar length, and cut to the longest. Not on a TPU.",
    )
    flags.DEFINE_bool("pack_sequences", None, "Whether several examples are put into one row of max_seq_length.")


@dataclasses.dataclass(frozen=True)
class Model:
    """What is to be fine-tuned.

    Attributes:
      config: a `BertConfig`.
      init_checkpoint: where it starts, if output_dir has no checkpoint of its own; or None.
      vocab_file: path of the vocabulary, or None.
      do_lower_case: whether text is lower-cased; None without a vocabulary.
    """

    config: modeling.BertConfig
    init_checkpoint: Optional[str]
    vocab_file: Optional[str]
    do_lower_case: Optional[bool]


def find_model(values, max_seq_length, vocab_wanted=True):
    """Finds what is to be fine-tuned, in the files that are named and beside them.

    Args:
      values: the parsed flags.
      max_seq_length: tokens in a record.
      vocab_wanted: whether a vocabulary is needed.

    Returns:
      A `Model`.

    Raises:
      InputError: something is missing, or does not fit the rest.
    """
    init = init_config = init_vocab = None
    if values.init_checkpoint and not checkpoints.latest(values.output_dir)[0]:
        init, init_config, init_vocab = checkpoint_formats.find_initial(values.init_checkpoint, values.output_dir)
    own = [os.path.join(values.output_dir, name) for name in (preflight.CONFIG_FILE, preflight.VOCAB_FILE)]
    own_config, own_vocab = (path if files.exists(path) else None for path in own)
    config_file = values.bert_config_file or own_config or init_config
    if not config_file:
        raise InputError("--bert_config_file is needed: there is none beside --init_checkpoint or in --output_dir.")
    config = configs.load_model_config(config_file)
    beside = os.path.join(os.path.dirname(config_file), preflight.VOCAB_FILE)
    vocab_file = values.vocab_file or own_vocab or init_vocab
    if not vocab_file and files.exists(beside):
        vocab_file = beside
    if vocab_file:
        size = len(tokenization.load_vocab(vocab_file))
        if configs.find(config_file):
            config.vocab_size = size
        preflight.check_vocabulary(config, size, vocab_file, config_file)
    elif vocab_wanted:
        raise InputError("--vocab_file is needed: there is none beside the config, the checkpoint or in --output_dir.")
    preflight.check_config(config, max_seq_length)
    preflight.check_output_dir(values.output_dir, config, vocab_file)
    return Model(config, init, vocab_file, find_case(values, vocab_file) if vocab_file else None)


def find_case(values, vocab_file):
    """Whether text is lower-cased: as --do_lower_case says, if it is given, or else as the vocabulary is.

    Raises:
      InputError: the flag does not fit the vocabulary.
    """
    given = values.do_lower_case if values["do_lower_case"].present else None
    return features.check_case(tokenization.load_vocab(vocab_file), vocab_file, given)


def check_evaluation(values, flag, *alternatives):
    """Checks that what the flags want to see evaluated in the course of a training is evaluated.

    Args:
      values: the parsed flags.
      flag: that which asks for evaluation.
      *alternatives: flags that stand for --eval_every.
    """
    training_flags.check_evaluation(values, *alternatives)
    if values.eval_every and not values[flag].value:
        raise InputError(f"--eval_every is for a training that is evaluated: give --{flag} too.")


def choose_batching(values, device, avoids_padding):
    """How examples are to lie in batches.

    Args:
      values: the parsed flags.
      device: a `bert.training.devices.Device`.
      avoids_padding: whether, if no flag says so, padding is avoided in the way that suits the device.

    Returns:
      A kind of `bert.data.batching`.

    Raises:
      InputError: both ways are asked for, or one that the device has not.
    """
    if values.bucket_by_length and values.pack_sequences:
        raise InputError("--bucket_by_length and --pack_sequences are two ways to the same end: give one of them.")
    if values.bucket_by_length and device.use_tpu:
        raise InputError("--bucket_by_length: the shapes of a TPU's batches cannot change. Give --pack_sequences.")
    kind, flag = (batching.PACKED, "pack_sequences") if device.use_tpu else (batching.BUCKETED, "bucket_by_length")
    if values.pack_sequences:
        return batching.PACKED
    if values[flag].value is None:
        return kind if avoids_padding else batching.PADDED
    return kind if values[flag].value else batching.PADDED


def schedule(values, count):
    """The `Schedule`: number of steps from the number of epochs, as the original counts them; at least one.

    Args:
      values: the parsed flags.
      count: number of training examples; None without training.
    """
    if count is None:
        steps = 1
    else:
        steps = values.num_train_steps or max(1, int(count / values.train_batch_size * values.num_train_epochs))
    return Schedule(
        values.train_batch_size,
        values.learning_rate,
        steps,
        int(steps * values.warmup_proportion),
        **training_flags.schedule_options(values),
    )


def tpu_plan(values, device, make_head, spec):
    """What the flags train on a TPU, for `bert.preflight_tpu`.

    Args:
      values: the parsed flags.
      device: a `bert.training.devices.Device`.
      make_head: function from a `BertConfig` to a head, as of `bert.training.finetuning`.
      spec: dict from the features' names to `tf.FixedLenFeature`.

    Returns:
      A `Finetuner`, and a list of one `Stretch` without data. Without --num_train_steps it has no steps.

    Raises:
      InputError: there is no config.
    """
    beside = values.init_checkpoint and os.path.join(os.path.dirname(values.init_checkpoint), preflight.CONFIG_FILE)
    config_file = values.bert_config_file or beside
    if not config_file:
        raise InputError("--bert_config_file is needed, or an --init_checkpoint that it lies beside.")
    config = configs.load_model_config(config_file)
    preflight.check_config(config, spec["input_ids"].shape[0])
    trainer = finetuning.Finetuner(config, device, head=make_head(config), **training_flags.trainer_options(values))
    of = schedule(values, values.train_batch_size)  # how many examples there are does not change the step
    return trainer, [Stretch(0, values.num_train_steps or 0, of, spec, None)]
