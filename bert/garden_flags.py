"""The TF 2 model garden's flags that fine-tuning programs take beside the original's, and what they stand for."""

from absl import flags

from bert.errors import InputError
from bert.formats import export, trained


def define(modes):
    """Defines the flags.

    Args:
      modes: dict from what --mode may be to the names of the flags that it sets.
    """
    flags.DEFINE_enum(
        "mode",
        None,
        list(modes),
        "Instead of --do_train and the like. Default, if --input_meta_data_path is given without any of them: "
        "train_and_eval.",
    )
    flags.DEFINE_string(
        "input_meta_data_path",
        None,
        "Meta data of records made by bert.create_finetuning_data, here or in the model garden.",
    )
    flags.DEFINE_string("train_data_path", None, "Comma-separated globs of training records.")
    flags.DEFINE_string(
        "model_export_path",
        None,
        "Folder for a SavedModel of the newest checkpoint: after a training, or with --mode=export_only instead of "
        "one.",
    )


def apply(values, modes):
    """Sets the flags that --mode stands for, and checks them.

    Args:
      values: the parsed flags, `flags.FLAGS`.
      modes: as of `define`.

    Raises:
      InputError: flags contradict each other, or one is missing.
    """
    if not values.output_dir:
        raise InputError("--output_dir (or --model_dir) is needed.")
    does = sorted({name for names in modes.values() for name in names})
    given = [name for name in does if values[name].value]
    if values.mode and given:
        raise InputError(f"--mode={values.mode} and --{given[0]}: give one of them.")
    if values.input_meta_data_path and not (values.mode or given):
        values.mode = "train_and_eval"
    for name in modes[values.mode] if values.mode else ():
        values[name].value = True
    if values.mode == "export_only" and not values.model_export_path:
        raise InputError("--mode=export_only: --model_export_path is needed, the folder to write.")
    if values.mode != "export_only" and not any(values[name].value for name in does):
        raise InputError(f"Nothing to do: give {' or '.join(f'--{name}' for name in does)}, one or several.")
    if values.do_train and values.input_meta_data_path and not values.train_data_path:
        raise InputError("--train_data_path is needed: the records to train on.")
    if values.train_data_path and not values.input_meta_data_path:
        raise InputError("--input_meta_data_path is needed: it tells what is in the records of --train_data_path.")
    if values.model_export_path:
        export.check(values.model_export_path, export.SAVED_MODEL)


def check_same(values, meta):
    """Checks that flags, if they are given, say what the meta data says.

    Args:
      values: the parsed flags.
      meta: dict from the flags' names to their values in the meta data.

    Raises:
      InputError: names both sides of what differs.
    """
    for name, there in meta.items():
        if values[name].present and values[name].value != there:
            raise InputError(
                f"--{name}={values[name].value}, but {values.input_meta_data_path} says {there}. Leave the flag out."
            )


def write_export(values):
    """Writes the model in the output folder to --model_export_path."""
    model = trained.read(values.output_dir, vocab_file=values.vocab_file)
    export.write(values.model_export_path, export.SAVED_MODEL, model)
