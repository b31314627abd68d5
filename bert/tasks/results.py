"""What a run leaves behind: what its model means, probabilities, decisions in words, and files for GLUE's server."""

import json
import os
import re

from bert import files
from bert.errors import InputError

PROBABILITIES_FILE = "test_results{}.tsv"
PREDICTIONS_FILE = "test_predictions{}.tsv"
LABELS_FILE = "labels.txt"
SETTINGS_FILE = "task.json"
TAGGING = "tagging"  # the task in the settings of a tagger


def read_settings(output_dir):
    """What the model in an output folder means, as it was written by `write_settings`; {} if nothing was."""
    path = os.path.join(output_dir, SETTINGS_FILE)
    return files.read_json_object(path) if files.exists(path) else {}


def write_settings(output_dir, settings):
    """Writes what a model means: a dict with "task", "best_metric", "do_lower_case", "max_seq_length", ..."""
    with files.atomic_write(os.path.join(output_dir, SETTINGS_FILE), "w") as f:
        f.write(json.dumps(settings, indent=2) + "\n")


def check_settings(output_dir, settings):
    """Checks that an output folder, if it has been used, was used for a task with the same labels.

    Raises:
      InputError: names both sides of what differs.
    """
    before = read_settings(output_dir)
    for key in ("label_kind", "labels", "is_pair", "do_lower_case"):
        # Whether records that others have made are lower-cased is not known.
        if before.get(key) is not None and settings.get(key) is not None and before[key] != settings[key]:
            raise InputError(
                f"--output_dir={output_dir} was trained with {key}={before[key]}, but now it would be {settings[key]}. "
                "Take another --output_dir."
            )


def write_labels(output_dir, task):
    """Writes the labels, one a line, in the order of the columns of the probabilities."""
    with files.atomic_write(os.path.join(output_dir, LABELS_FILE), "w") as f:
        f.writelines(f"{_cell(label)}\n" for label in task.labels)


def write_predictions(output_dir, task, part, guids, outputs):
    """Writes what was predicted, a row for each example, in order.

    Args:
      output_dir: folder.
      task: a `bert.tasks.task.Task`.
      part: part of the test set, "" for the main one.
      guids: iterable of what identifies each example.
      outputs: float [examples, outputs], as of `Task.scores`.

    Returns:
      Paths of the files: "test_results.tsv", the outputs as the original writes them, without header;
      "test_predictions.tsv", with id, label and probability; and GLUE's, if the task is one of its.
    """
    suffix = f"_{part}" if part else ""
    guids = list(guids)
    if len(guids) != len(outputs):
        raise ValueError(f"{len(outputs)} predictions for {len(guids)} examples.")
    paths = [os.path.join(output_dir, name.format(suffix)) for name in (PROBABILITIES_FILE, PREDICTIONS_FILE)]
    with files.atomic_write(paths[0], "w") as f:
        f.writelines("\t".join(map(str, row)) + "\n" for row in outputs)
    decisions = task.decide(outputs)
    with files.atomic_write(paths[1], "w") as f:
        f.write("id\tlabel\tprobability\n")
        for guid, decision, row in zip(guids, decisions, outputs):
            f.write(f"{_cell(guid)}\t{_cell(task.describe(decision))}\t{task.describe_probability(decision, row)}\n")
    if part in task.submission:
        paths.append(os.path.join(output_dir, task.submission[part]))
        with files.atomic_write(paths[2], "w") as f:
            f.write("index\tprediction\n")
            f.writelines(f"{_cell(guid)}\t{task.submission_value(row)}\n" for guid, row in zip(guids, outputs))
    return paths


def _cell(text):
    """Text of CSV or JSON in which a tab or a line end would make another row of it."""
    return re.sub(r"[\t\r\n]+", " ", str(text))
