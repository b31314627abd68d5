"""Flags on model, training and device, which the programs for fine-tuning have, and what follows from them."""

import os

from absl import flags

from bert import configs, files, tokenization
from bert.errors import InputError
from bert.training import checkpoints, devices, finetuning, preflight


def define():
    """Defines the flags, and the model garden's names for some."""
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "Model shape: a bert_config.json, or a name such as bert-mini. Default: the checkpoint's.",
    )
    flags.DEFINE_string(
        "vocab_file", None, "Vocabulary. Default: that beside the config, the checkpoint or in output_dir."
    )
    flags.DEFINE_string("output_dir", None, "Folder for checkpoints, event files and results.")
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Checkpoint to start from, if output_dir has none yet: a TensorFlow 1 prefix, or a Hugging Face folder.",
    )
    flags.DEFINE_integer("train_batch_size", 32, "Examples per step, over all cores.", lower_bound=1)
    flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.", lower_bound=0.0)
    flags.DEFINE_float("num_train_epochs", 3.0, "How many times the training set is used.", lower_bound=0.0)
    flags.DEFINE_integer(
        "num_train_steps", None, "Steps of the training, instead of --num_train_epochs.", lower_bound=1
    )
    flags.DEFINE_float(
        "warmup_proportion", 0.1, "Share of the steps in which the rate rises.", lower_bound=0.0, upper_bound=1.0
    )
    flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps between two checkpoints.", lower_bound=1)
    flags.DEFINE_integer("keep_checkpoint_max", 5, "How many of the newest checkpoints are kept.", lower_bound=1)
    flags.DEFINE_integer(
        "iterations_per_loop", 1000, "Steps a TPU makes between two returns to the host.", lower_bound=1
    )
    flags.DEFINE_integer("seed", 12345, "Seed of initialisation, dropout, and order of examples.")
    flags.DEFINE_integer("log_steps", 100, "Steps between two reports of progress.", lower_bound=1)
    flags.DEFINE_bool("use_tpu", False, "Whether to run on a TPU; implied by --tpu_name and --master.")
    flags.DEFINE_string("tpu_name", None, "Cloud TPU: a name, an address grpc://..., or `local` on a TPU VM.")
    flags.DEFINE_string("tpu_zone", None, "Zone of the Cloud TPU. Default: this machine's.")
    flags.DEFINE_string("gcp_project", None, "Project of the Cloud TPU. Default: this machine's.")
    flags.DEFINE_string("master", None, "Address of the TPU, instead of --tpu_name.")
    flags.DEFINE_integer("num_tpu_cores", 8, "Number of TPU cores. Unless it is given, as many as the TPU has.")
    flags.DEFINE_alias("model_dir", "output_dir")
    flags.DEFINE_alias("tpu", "tpu_name")
    flags.DEFINE_alias("steps_per_loop", "iterations_per_loop")


def choose_device(values):
    """The device that the flags ask for."""
    return devices.choose(values.use_tpu, values.tpu_name, values.tpu_zone, values.gcp_project, values.master)


def find_model(values, vocab_wanted=True):
    """Finds what is to be fine-tuned, in the files that are named and beside them.

    Args:
      values: the parsed flags, `flags.FLAGS`.
      vocab_wanted: whether a vocabulary is needed.

    Returns:
      The initial checkpoint (None if output_dir has one of its own, or none is named), the model's config, and the
      path of the vocabulary or None.

    Raises:
      InputError: something is missing, or does not fit the rest.
    """
    init = init_config = init_vocab = None
    if values.init_checkpoint and not checkpoints.latest(values.output_dir)[0]:
        init, init_config, init_vocab = finetuning.find_initial(values.init_checkpoint, values.output_dir)
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
    return init, config, vocab_file


def init_checkpoint(values, init, shapes):
    """Checks that there is something to start from, or, without training, to evaluate.

    Args:
      values: the parsed flags.
      init: the initial checkpoint, as of `find_model`.
      shapes: dict from the model's variables to their shapes.

    Returns:
      Prefix of the initial checkpoint, or None if the output folder has one of its own to go on from.
    """
    if checkpoints.latest(values.output_dir)[0]:
        return None
    if init:
        initialisation = checkpoints.plan_initialisation(init, shapes)
        checkpoints.log_initialisation(initialisation)
        if values.do_train or all(name.startswith("bert/") for name in initialisation.new):
            return initialisation.checkpoint
    if values.do_train:
        return None
    raise InputError(
        f"--output_dir={values.output_dir} has no checkpoint, and "
        f"{'--init_checkpoint has no classifier' if init else 'there is no --init_checkpoint'}: nothing is trained "
        "that could be evaluated. Give --do_train too, or the --output_dir of a training."
    )


def schedule(values, count):
    """The `Schedule`: number of steps from the number of epochs, as the original counts them; at least one.

    Args:
      values: the parsed flags.
      count: number of training examples; None without training.
    """
    if count is None:
        return finetuning.Schedule(values.train_batch_size, values.learning_rate, 1, 0)
    steps = values.num_train_steps or max(1, int(count / values.train_batch_size * values.num_train_epochs))
    return finetuning.Schedule(
        values.train_batch_size, values.learning_rate, steps, int(steps * values.warmup_proportion)
    )


def estimator_options(values):
    """Arguments of `bert.training.estimator.make`."""
    return {
        "save_checkpoints_steps": values.save_checkpoints_steps,
        "keep_checkpoint_max": values.keep_checkpoint_max,
        "iterations_per_loop": values.iterations_per_loop,
        "num_tpu_cores": values.num_tpu_cores if values["num_tpu_cores"].present else None,
    }
