# ruff: noqa: RUF012  The dicts tell what a task is, and nobody changes them.
"""The tasks of GLUE, and XNLI, from their own files.

Wang et al., https://arxiv.org/abs/1804.07461, and the archives at https://gluebenchmark.com/tasks; Conneau et al.,
"XNLI: Evaluating Cross-lingual Sentence Representations", https://arxiv.org/abs/1809.05053.
"""

import os

from bert import files
from bert.errors import InputError
from bert.tasks import task
from bert.tasks.task import SkipMalformed

_ENTAILMENT = ("contradiction", "entailment", "neutral")
_MSR_TRAIN = "msr_paraphrase_train.txt"
_GUID = ("index", "id", "pairID")
_SENTENCE_PAIR = {"text_a": ("sentence1",), "text_b": ("sentence2",), "guid": _GUID}


class Cola(task.Task):
    """Is the sentence acceptable English? The files with labels have no header."""

    name = "cola"
    labels = ("0", "1")
    metric_names = ("matthews_correlation",)
    best_metric = "matthews_correlation"
    columns = {"text_a": ("sentence",), "label": ("label",), "guid": _GUID}
    positions = {
        "train": {"text_a": 3, "label": 1},
        "dev": {"text_a": 3, "label": 1},
    }
    submission = {"": "CoLA.tsv"}


class Sst2(task.Task):
    """Is the review's phrase positive (1)?"""

    name = "sst-2"
    labels = ("0", "1")
    columns = {"text_a": ("sentence",), "label": ("label",), "guid": _GUID}
    positions = {"train": {"text_a": 0, "label": 1}, "dev": {"text_a": 0, "label": 1}, "test": {"text_a": 1}}
    submission = {"": "SST-2.tsv"}


class Mrpc(task.Task):
    """Are the two sentences paraphrases (1)? Reads GLUE's files, or Microsoft's with GLUE's list of dev pairs."""

    name = "mrpc"
    labels = ("0", "1")
    metric_names = ("f1",)
    columns = {"text_a": ("#1 String",), "text_b": ("#2 String",), "label": ("Quality",), "guid": ("index",)}
    positions = {split: {"text_a": 3, "text_b": 4, "label": 0} for split in task.SPLITS}
    submission = {"": "MRPC.tsv"}

    def file_names(self, split, part=""):
        return f"{split}.tsv", "msr_paraphrase_test.txt" if split == "test" else _MSR_TRAIN

    def examples(self, path, split):
        if os.path.basename(path) == _MSR_TRAIN:
            self._dev_pairs = self._read_dev_pairs(os.path.join(os.path.dirname(path), "dev_ids.tsv"))
        return super().examples(path, split)

    def is_wanted(self, row, split):
        return "id_a" not in row or ((row["id_a"], row["id_b"]) in self._dev_pairs) == (split == "dev")

    def _columns_in(self, path, split):
        columns = super()._columns_in(path, split)
        if os.path.basename(path) == _MSR_TRAIN:
            columns.update(id_a=("#1 ID",), id_b=("#2 ID",))
        return columns

    def _read_dev_pairs(self, path):
        if not files.exists(path):
            raise InputError(f"{path}: no such file; it tells which pairs of {_MSR_TRAIN} are GLUE's dev set.")
        return {tuple(line.split()) for line in files.read_text(path).splitlines() if line.strip()}


class StsB(task.Task):
    """How similar are the two sentences, from 0 to 5?"""

    name = "sts-b"
    label_kind = task.REGRESSION
    metric_names = ("pearson", "spearman")
    best_metric = "pearson"
    columns = {**_SENTENCE_PAIR, "label": ("score",)}
    positions = {
        "train": {"text_a": 7, "text_b": 8, "label": 9},
        "dev": {"text_a": 7, "text_b": 8, "label": 9},
        "test": {"text_a": 7, "text_b": 8},
    }
    submission = {"": "STS-B.tsv"}

    def submission_value(self, output):
        return f"{min(max(output[0], 0.0), 5.0):.3f}"


class Qqp(task.Task):
    """Do the two questions ask the same (1)? Some rows of the published files are cut by line ends inside a cell."""

    name = "qqp"
    labels = ("0", "1")
    metric_names = ("f1",)
    columns = {"text_a": ("question1",), "text_b": ("question2",), "label": ("is_duplicate",), "guid": _GUID}
    positions = {
        "train": {"text_a": 3, "text_b": 4, "label": 5},
        "dev": {"text_a": 3, "text_b": 4, "label": 5},
        "test": {"text_a": 1, "text_b": 2},
    }
    submission = {"": "QQP.tsv"}

    def _on_malformed(self, split):
        return None if split == "test" else SkipMalformed()


class Mnli(task.Task):
    """Does the second sentence follow from the first, or contradict it? Dev and test sets have two parts."""

    name = "mnli"
    labels = _ENTAILMENT
    columns = {**_SENTENCE_PAIR, "label": ("gold_label",)}
    positions = {
        "train": {"text_a": 8, "text_b": 9, "label": -1},
        "dev": {"text_a": 8, "text_b": 9, "label": -1},
        "test": {"text_a": 8, "text_b": 9},
    }
    submission = {"": "MNLI-m.tsv", "mismatched": "MNLI-mm.tsv"}

    def parts(self, split):
        return ("",) if split == "train" else ("", "mismatched")

    def file_names(self, split, part=""):
        return (f"{split}.tsv" if split == "train" else f"{split}_{part or 'matched'}.tsv",)


class Qnli(task.Task):
    """Does the sentence answer the question?"""

    name = "qnli"
    labels = ("entailment", "not_entailment")
    columns = {"text_a": ("question",), "text_b": ("sentence",), "label": ("label",), "guid": _GUID}
    positions = {
        "train": {"text_a": 1, "text_b": 2, "label": 3},
        "dev": {"text_a": 1, "text_b": 2, "label": 3},
        "test": {"text_a": 1, "text_b": 2},
    }
    submission = {"": "QNLI.tsv"}


class Rte(Qnli):
    """Does the second sentence follow from the first?"""

    name = "rte"
    columns = {**_SENTENCE_PAIR, "label": ("label",)}
    submission = {"": "RTE.tsv"}


class Wnli(Rte):
    """Does the sentence with the pronoun replaced follow (1)?"""

    name = "wnli"
    labels = ("0", "1")
    submission = {"": "WNLI.tsv"}


class Ax(Rte):
    """GLUE's diagnostic set, to be predicted with a model of MNLI."""

    name = "ax"
    labels = _ENTAILMENT
    metric_names = ("matthews_correlation",)
    submission = {"": "AX.tsv"}

    def file_names(self, split, part=""):
        if split != "test":
            raise InputError(
                "Task ax has no training or dev set: train a model on mnli, and predict with --task_name=ax."
            )
        return "diagnostic.tsv", "AX.tsv", "test.tsv"


class Xnli(task.Task):
    """As MNLI, in one of 15 languages: translated training sets, and dev and test sets of all languages in one."""

    name = "xnli"
    labels = _ENTAILMENT
    label_aliases = {"contradictory": "contradiction"}
    positions = {"train": {"text_a": 0, "text_b": 1, "label": 2}}

    def __init__(self, encoding="utf-8", language="zh"):
        super().__init__(encoding)
        self.language = language

    def file_names(self, split, part=""):
        if split == "train":
            return (os.path.join("multinli", f"multinli.train.{self.language}.tsv"),)
        return (f"xnli.{split}.tsv",)

    def examples(self, path, split):
        found = False
        for example in super().examples(path, split):
            found = True
            yield example
        if not found:
            raise InputError(f"{path}: no row in the language {self.language!r}; see --xnli_language.")

    def is_wanted(self, row, split):
        return row.get("language", self.language) == self.language

    def _columns_in(self, path, split):
        if split == "train":
            self.columns = {"text_a": ("premise",), "text_b": ("hypo", "hypothesis"), "label": ("label",)}
        else:
            self.columns = {**_SENTENCE_PAIR, "label": ("gold_label",), "language": ("language",)}
        return super()._columns_in(path, split)


_TASKS = (Cola, Sst2, Mrpc, StsB, Qqp, Mnli, Qnli, Rte, Wnli, Ax, Xnli)


def names():
    """Names of the tasks."""
    return [of.name for of in _TASKS]


def find(name):
    """The class of the task with this name, written with or without capitals and hyphens; None if there is none."""
    return next((of for of in _TASKS if _plain(of.name) == _plain(name)), None)


def _plain(name):
    return name.lower().replace("-", "").replace("_", "")
