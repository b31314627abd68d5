"""Flags on what a sentence task is, which several programs have, and the task they describe."""

from absl import flags

from bert import split_flags
from bert.errors import InputError
from bert.tasks import glue, results, tabular, task

_OWN = "tsv"


def define():
    """Defines the flags."""
    flags.DEFINE_string("task_name", None, f"Task, in any case: {', '.join(names())}.")
    flags.DEFINE_string("data_dir", None, "Folder with the task's files.")
    split_flags.define_files()
    flags.DEFINE_integer("max_seq_length", 128, "Tokens in a record; longer texts are cut.", lower_bound=3)
    flags.DEFINE_string("xnli_language", "zh", "Language of --task_name=xnli.")
    flags.DEFINE_string("text_a_column", None, "For --task_name=tsv: column of the text, or of the first of two.")
    flags.DEFINE_string("text_b_column", None, "For --task_name=tsv: column of the second text.")
    flags.DEFINE_string("label_column", None, "For --task_name=tsv: column of the label.")
    flags.DEFINE_enum(
        "label_kind",
        task.SINGLE,
        [task.SINGLE, task.MULTI, task.REGRESSION],
        "For --task_name=tsv: one of several labels, any number of several, or a number.",
    )
    flags.DEFINE_string("label_separator", ",", "For --label_kind=multi: what separates the labels in a cell.")


def names():
    """Names of the tasks."""
    return [*glue.names(), _OWN]


def make_task(values, training, output_dir):
    """Makes the task that the flags describe.

    Args:
      values: the parsed flags, `flags.FLAGS`.
      training: whether its labels are to be found in the training set, or else in the folder of a training.
      output_dir: that folder.

    Raises:
      InputError: there is no such task, or its labels are not known.
    """
    known = glue.find(values.task_name)
    if known is glue.Xnli:
        return known(values.input_encoding, values.xnli_language)
    if known:
        return known(values.input_encoding)
    if values.task_name.lower() != _OWN:
        raise InputError(f"--task_name={values.task_name}: unknown; there are {', '.join(names())}.")
    own = tabular.Tabular(
        values.input_encoding,
        values.text_a_column,
        values.text_b_column,
        values.label_column,
        values.label_kind,
        values.label_separator,
    )
    if training:
        own.find_labels(values.train_file or own.find(values.data_dir, "train"))
    else:
        settings = results.read_settings(output_dir)
        own.labels = tuple(settings.get("labels", ()))
        own.is_pair = own.is_pair or settings.get("is_pair")
        if own.label_kind != task.REGRESSION and not own.labels:
            raise InputError(
                f"--output_dir={output_dir} has no {results.SETTINGS_FILE} that tells the labels: "
                "it is not the folder of a training of this task."
            )
    return own
