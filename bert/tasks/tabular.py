"""A task of the user's own: a table, whose labels are found in its training file."""

import collections
import re

from bert.errors import InputError
from bert.tasks import tables, task

# Names that columns have if the user does not say.
TEXT_A = ("text_a", "sentence1", "sentence", "text")
TEXT_B = ("text_b", "sentence2")
LABEL = ("label", "labels", "score")
GUID = ("id", "index", "guid")
_MOST_LABELS = 1000


class Tabular(task.Task):
    """Texts or pairs of texts in a TSV, CSV or JSON lines file with column names."""

    name = "tsv"

    def __init__(
        self,
        encoding="utf-8",
        text_a_column=None,
        text_b_column=None,
        label_column=None,
        label_kind=task.SINGLE,
        label_separator=",",
    ):
        """Sets the columns' names; None: the usual ones, and a second text if the first file has such a column.

        Args:
          encoding: of the files.
          text_a_column, text_b_column, label_column: names.
          label_kind: `task.SINGLE`, `task.MULTI` or `task.REGRESSION`.
          label_separator: what separates the labels in a cell of a multi-label task; JSON has lists.
        """
        super().__init__(encoding)
        self.label_kind = label_kind
        self._separator = label_separator
        self.is_pair = True if text_b_column else None
        self.columns = {
            "text_a": (text_a_column,) if text_a_column else TEXT_A,
            "text_b": (text_b_column,) if text_b_column else TEXT_B,
            "label": (label_column,) if label_column else LABEL,
            "guid": GUID,
        }
        self.metric_names = {
            task.SINGLE: ("macro_f1",),
            task.MULTI: ("micro_f1", "macro_f1"),
            task.REGRESSION: ("pearson", "spearman"),
        }[label_kind]
        self.best_metric = {task.SINGLE: "eval_accuracy", task.MULTI: "micro_f1", task.REGRESSION: "pearson"}[
            label_kind
        ]

    def file_names(self, split, part=""):
        return tuple(split + extension for extension in task.EXTENSIONS)

    def find_labels(self, path):
        """Finds the labels in the training file, and whether it has pairs of texts.

        Labels are ordered by number if all are numbers, else by name.

        Raises:
          InputError: there are too few or too many.
        """
        self._find_pairs(path)
        if self.label_kind == task.REGRESSION:
            return
        counts, rows = collections.Counter(), 0
        for line, row in tables.read(path, {"label": self.columns["label"]}, None, self.encoding):
            rows += 1
            self.check_label(path, line, self.columns["label"][0], row["label"])
            found = self.split_label(row["label"])
            if self.label_kind == task.SINGLE and not found[0]:
                raise InputError(f"{path}:{line}, column {self.columns['label'][0]!r}: no label.")
            counts.update(found)
            if len(counts) > _MOST_LABELS:
                raise InputError(
                    f"{path}:{line}: more than {_MOST_LABELS} different labels in column {self.columns['label'][0]!r}. "
                    "Is it the right column? For numbers, give --label_kind=regression."
                )
        if not rows:
            raise InputError(f"{path}: there are no examples in it.")
        if self.label_kind == task.MULTI and not counts:
            raise InputError(f"{path}: none of its {rows} examples has a label.")
        if self.label_kind == task.SINGLE and len(counts) < 2:
            raise InputError(f"{path}: at least two different labels are needed, but there is only {min(counts)!r}.")
        names = list(counts)
        is_numeric = all(re.fullmatch("-?[0-9]+", name) for name in names)
        self.labels = tuple(sorted(names, key=int) if is_numeric else sorted(names))

    def settings(self):
        return {**super().settings(), "is_pair": self.is_pair}

    def split_label(self, value):
        if self.label_kind != task.MULTI:
            return super().split_label(value)
        parts = value if isinstance(value, list) else str(value or "").split(self._separator)
        return [str(part).strip() for part in parts if str(part).strip()]

    def describe(self, decision):
        if self.label_kind != task.MULTI:
            return super().describe(decision)
        return self._separator.join(label for label, chosen in zip(self.labels, decision) if chosen)

    def _columns_in(self, path, split):
        columns = super()._columns_in(path, split)
        self._find_pairs(path)
        if not self.is_pair:
            del columns["text_b"]
        return columns

    def _find_pairs(self, path):
        """Finds whether texts are pairs, unless that is known: it must be the same in all files of a task."""
        if self.is_pair is None:
            names = [cell.strip().lower() for cell in tables.first_row(path, self.encoding)]
            self.is_pair = any(name in names for name in TEXT_B)
