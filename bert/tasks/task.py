"""What a sentence or sentence pair task is: its files, its examples, its labels and its scores."""

import dataclasses
import math
import os
from typing import Any, ClassVar, Optional

import numpy as np
from absl import logging

from bert import files
from bert.errors import InputError
from bert.tasks import metrics, tables

SPLITS = ("train", "dev", "test")
# Kinds of labels: one of several; any number of several; a number.
SINGLE, MULTI, REGRESSION = "single", "multi", "regression"
EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json")


def find_file(data_dir, names, split, task_name):
    """Path of the first of several files that is in a folder.

    Args:
      data_dir: the folder, or None.
      names: names that the file may have, best first.
      split, task_name: what it is, for the message.

    Raises:
      InputError: there is none.
    """
    if not data_dir:
        raise InputError(f"--data_dir is needed, or a flag that names the {split} file of task {task_name}.")
    for name in names:
        path = os.path.join(data_dir, name)
        if files.exists(path):
            return path
    if not files.exists(data_dir):
        raise InputError(f"--data_dir={data_dir}: there is no such folder.")
    there = files.list_folder(data_dir)
    raise InputError(
        f"--data_dir={data_dir}: no {' or '.join(names)}, the {split} file of task {task_name}. "
        f"The folder has {', '.join(there[:12]) or 'nothing'}{', ...' if len(there) > 12 else ''}."
    )


@dataclasses.dataclass
class Example:
    """An example as text.

    Attributes:
      guid: what identifies it in its file.
      text_a: the text, or the first of a pair.
      text_b: the second of a pair, or None.
      label: index of the label; for multi-label tasks a list with 0 or 1 for each label; for regression a float;
        None if there is none.
    """

    guid: str
    text_a: str
    text_b: Optional[str] = None
    label: Any = None


class Task:
    """A task whose examples are rows of tables. A new one is a subclass that sets these attributes.

    Attributes:
      name: as users write it.
      labels: the labels' names, in the order of their ids; empty for regression.
      label_kind: `SINGLE`, `MULTI` or `REGRESSION`.
      metric_names: names in `metrics.BY_NAME` of what is reported beside the accuracy.
      best_metric: the metric by which checkpoints are compared.
      columns: dict from "text_a", "text_b", "label" and "guid" to the names that the column may have.
      positions: dict from split to positions of the columns in a file without header, for splits that may lack it.
      label_aliases: dict from other spellings of labels to those in `labels`.
      submission: dict from part of the test set (see `parts`) to the name of its submission file.
    """

    name = None
    labels = ()
    label_kind = SINGLE
    metric_names = ()
    best_metric = "eval_accuracy"
    columns: ClassVar = {}
    positions: ClassVar = {}
    label_aliases: ClassVar = {}
    submission: ClassVar = {}

    def __init__(self, encoding="utf-8"):
        self.encoding = encoding

    @property
    def num_outputs(self):
        """Number of outputs of the classifier."""
        return 1 if self.label_kind == REGRESSION else len(self.labels)

    def parts(self, split):
        """Names of the parts of a split, each with a file of its own; "" is the only or main one."""
        del split
        return ("",)

    def file_names(self, split, part=""):
        """Names that the file of a part may have in the data folder, best first."""
        del part
        return tuple(split + extension for extension in EXTENSIONS[:1])

    def find(self, data_dir, split, part=""):
        """Path of the file of a part.

        Raises:
          InputError: there is none.
        """
        return find_file(data_dir, self.file_names(split, part), split, self.name)

    def examples(self, path, split):
        """Yields the examples of a file, in order.

        Args:
          path: the file.
          split: one of `SPLITS`. Examples of the test split need no label.

        Raises:
          InputError: a row or its label cannot be used; names file, line, column and what is allowed.
        """
        columns = self._columns_in(path, split)
        positions = self._positions_in(path, split, columns)
        number = 0
        for line, row in tables.read(path, columns, positions, self.encoding, self._on_malformed(split)):
            if not self.is_wanted(row, split):
                continue
            number += 1
            label = None
            if "label" in row:
                label = self._label(path, line, columns["label"][0], row["label"], split)
            text_b = row.get("text_b")
            guid = _text(row["guid"]) if "guid" in row else str(number - 1)
            yield Example(guid, _text(row["text_a"]), None if text_b is None else _text(text_b), label)

    def is_wanted(self, row, split):
        """Whether a row of the table belongs to the split."""
        del row, split
        return True

    def scores(self, labels, outputs):
        """Metrics of the task.

        Args:
          labels: int [examples]; int [examples, labels] for multi-label tasks; float [examples] for regression.
          outputs: float [examples, outputs], probabilities; the values themselves for regression.

        Returns:
          Dict from name to float.
        """
        decisions = self.decide(outputs)
        scores = {} if self.label_kind == REGRESSION else {"eval_accuracy": metrics.accuracy(labels, decisions)}
        for name in self.metric_names:
            scores[name] = metrics.BY_NAME[name](labels, decisions)
        return scores

    def decide(self, outputs):
        """What outputs as of `scores` predict, in the form of the labels there."""
        if self.label_kind == REGRESSION:
            return outputs[:, 0]
        if self.label_kind == MULTI:
            return (outputs > 0.5).astype(np.int64)
        return np.argmax(outputs, axis=-1)

    def describe(self, decision):
        """A prediction as text."""
        if self.label_kind == REGRESSION:
            return f"{decision:.6g}"
        if self.label_kind == MULTI:
            return ",".join(label for label, chosen in zip(self.labels, decision) if chosen)
        return self.labels[decision]

    def describe_probability(self, decision, output):
        """How probable a prediction is, as text: empty for regression."""
        if self.label_kind == REGRESSION:
            return ""
        if self.label_kind == MULTI:
            return ",".join(f"{probability:.6f}" for probability, chosen in zip(output, decision) if chosen)
        return f"{output[decision]:.6f}"

    def submission_value(self, output):
        """The prediction from one row of outputs, as the benchmark's server wants it."""
        return self.describe(self.decide(output[np.newaxis])[0])

    def settings(self):
        """What a trained classifier means, to be kept beside it."""
        return {
            "task": self.name,
            "label_kind": self.label_kind,
            "labels": list(self.labels),
            "best_metric": self.best_metric,
        }

    def _columns_in(self, path, split):
        """The columns to read. A test file may have no label, and a column of ids is used if there is one."""
        columns = dict(self.columns)
        names = [cell.strip().lower() for cell in tables.first_row(path, self.encoding)]
        for role in ("guid",) + ("label",) * (split == "test"):
            if role in columns and not any(name.lower() in names for name in columns[role]):
                del columns[role]
        return columns

    def _positions_in(self, path, split, columns):
        """Positions by role, if the file may lack a header."""
        del path
        positions = self.positions.get(split)
        return positions and {role: position for role, position in positions.items() if role in (*columns, "label")}

    def _on_malformed(self, split):
        del split
        return None

    def _label(self, path, line, column, value, split):
        if isinstance(value, str):
            value = self.label_aliases.get(value, value)
        where = f"{path}:{line}, column {column!r}"
        if split == "test" and (value is None or not str(value).strip()):
            return None
        if self.label_kind == REGRESSION:
            return _number(value, where)
        self.check_label(path, line, column, value)
        chosen = self.split_label(value)
        try:
            ids = [self.labels.index(label) for label in chosen]
        except ValueError:
            unknown = next(label for label in chosen if label not in self.labels)
            if split == "test":
                return None
            raise InputError(
                f"{where}: label {unknown!r} is unknown; allowed are {', '.join(map(repr, self.labels))}."
            ) from None
        if self.label_kind == MULTI:
            return [int(i in ids) for i in range(len(self.labels))]
        return ids[0]

    def check_label(self, path, line, column, value):
        """Checks that a cell has one label if an example can have only one.

        Raises:
          InputError: it is a list; names file, line and column.
        """
        if isinstance(value, list) and self.label_kind != MULTI:
            raise InputError(
                f"{path}:{line}, column {column!r}: one label is expected, not the list {value!r:.60}. For several "
                "give --label_kind=multi."
            )

    def split_label(self, value):
        """The labels that a cell names, a list."""
        return [_text(value).strip()]


def _text(value):
    """A cell as text; JSON may have numbers."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _number(value, where):
    """A cell as a number that float32 can hold."""
    try:
        number = math.nan if "_" in str(value) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: {value!r} is not a number.")
    if abs(number) > np.finfo(np.float32).max:
        raise InputError(f"{where}: {value} is more than 32 bits can hold.")
    return number


class SkipMalformed:
    """Counts the rows that are left out, and tells of the first."""

    def __init__(self):
        self.count = 0

    def __call__(self, error):
        self.count += 1
        if self.count == 1:
            logging.warning("%s The row is left out, and others like it.", error)
