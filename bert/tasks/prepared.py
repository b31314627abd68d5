"""Records that were made before, with the meta data file of the TF 2 model garden beside them.

The meta data is an object such as {"task_type": "bert_classification", "processor_type": "MRPC", "num_labels": 2,
"train_data_size": 3668, "eval_data_size": 408, "max_seq_length": 128, "label_type": "int",
"has_sample_weights": false}. The model garden leaves out label_type unless labels are numbers. For SQuAD it is
{"task_type": "bert_squad", "train_data_size": 88641, "max_seq_length": 384, "max_query_length": 64, "doc_stride": 128,
"version_2_with_negative": false}.
"""

import dataclasses
from typing import Optional

from bert import files
from bert.data import records
from bert.errors import InputError
from bert.tasks import glue, task

CLASSIFICATION, REGRESSION, SQUAD = "bert_classification", "bert_regression", "bert_squad"
_PROGRAMS = {CLASSIFICATION: "run_classifier", REGRESSION: "run_classifier", SQUAD: "run_squad"}


@dataclasses.dataclass(frozen=True)
class MetaData:
    """What a meta data file says of a sentence task.

    Attributes:
      processor: name of the task.
      label_kind: `task.SINGLE`, `task.MULTI` or `task.REGRESSION`.
      labels: the labels' names.
      max_seq_length: tokens in a record.
      train_data_size, eval_data_size: numbers of records; None if it does not say.
      has_sample_weights: whether records have a weight.
    """

    processor: str
    label_kind: str
    labels: tuple
    max_seq_length: int
    train_data_size: Optional[int] = None
    eval_data_size: Optional[int] = None
    has_sample_weights: bool = False


class Prepared(task.Task):
    """A task of which only records are known, scored as the GLUE task of its name, if it is one."""

    def __init__(self, meta):
        super().__init__()
        known = glue.find(meta.processor)
        self.name = meta.processor
        self.labels = meta.labels
        self.label_kind = meta.label_kind
        if known and known.label_kind == meta.label_kind and len(known.labels) == len(meta.labels):
            self.labels = known.labels
            self.metric_names = known.metric_names
            self.best_metric = known.best_metric
        elif meta.label_kind == task.REGRESSION:
            self.metric_names = ("pearson", "spearman")
            self.best_metric = "pearson"
        elif meta.label_kind == task.MULTI:
            self.metric_names = ("micro_f1", "macro_f1")
            self.best_metric = "micro_f1"


def read_meta_data(path):
    """Reads a meta data file.

    Raises:
      InputError: it lacks something, or describes records for another program.
    """
    content = files.read_json_object(path)
    kind = content.get("task_type", CLASSIFICATION)
    is_number = kind == REGRESSION or content.get("label_type") == "float"
    wanted = ("max_seq_length", *["num_labels"] * (not is_number))
    _check_meta_data(path, content, (CLASSIFICATION, REGRESSION), kind, wanted)
    labels = () if is_number else tuple(content.get("labels") or map(str, range(content["num_labels"])))
    multi = content.get("label_kind") == task.MULTI
    return MetaData(
        processor=str(content.get("processor_type", "records")),
        label_kind=task.REGRESSION if is_number else task.MULTI if multi else task.SINGLE,
        labels=labels,
        max_seq_length=content["max_seq_length"],
        train_data_size=content.get("train_data_size"),
        eval_data_size=content.get("eval_data_size"),
        has_sample_weights=bool(content.get("has_sample_weights", False)),
    )


def read_squad_meta_data(path):
    """Reads the meta data file of SQuAD's records: a dict from flags of run_squad to their values.

    Raises:
      InputError: it lacks something, or describes records for another program.
    """
    content = files.read_json_object(path)
    names = ("max_seq_length", "max_query_length", "doc_stride")
    _check_meta_data(path, content, (SQUAD,), content.get("task_type", SQUAD), names)
    found = {name: content[name] for name in names}
    return {**found, "version_2_with_negative": bool(content.get("version_2_with_negative", False))}


def _check_meta_data(path, content, kinds, kind, wanted):
    if kind not in kinds:
        program = _PROGRAMS.get(kind)
        advice = f"Records of this kind are for {program}." if program else "No program here reads its records."
        raise InputError(f"{path}: task_type is {kind!r}, but {' or '.join(map(repr, kinds))} is expected. {advice}")
    missing = [name for name in wanted if name not in content]
    if missing:
        raise InputError(f"{path}: no {' and no '.join(missing)}; there are {', '.join(content) or 'no entries'}.")
    for name in wanted:
        if not isinstance(content[name], int) or content[name] < 1:
            raise InputError(f"{path}: {name} is {content[name]!r}; a whole number from 1 on is expected.")


def meta_data(of, max_seq_length, sizes):
    """The content of a meta data file.

    Args:
      of: a `Task`.
      max_seq_length: tokens in a record.
      sizes: dict from "train_data_size" and the like to numbers of records.
    """
    is_number = of.label_kind == task.REGRESSION
    return {
        "task_type": REGRESSION if is_number else CLASSIFICATION,
        "processor_type": of.name.upper(),
        "num_labels": 1 if is_number else len(of.labels),
        "labels": list(of.labels),
        "label_kind": of.label_kind,
        "label_type": "float" if is_number else "int",
        "max_seq_length": max_seq_length,
        "has_sample_weights": False,
        **sizes,
    }


def check_records(path, flag, meta, vocab_size):
    """Checks the first record of a sentence task's file against the meta data and the model.

    Returns:
      As `find_features`, of tokens and labels, and "weight" if there is one.

    Raises:
      InputError: names what is there and what should be.
    """
    labels = ["label_ids", *["weight"] * meta.has_sample_weights]
    names, features = find_features(path, flag, meta.max_seq_length, vocab_size, labels)
    kind = getattr(features["label_ids"], "dtype", None)
    if (kind == "float32") != (meta.label_kind == task.REGRESSION):
        raise InputError(f"--{flag}: {path}: label_ids are {kind}, which does not fit the meta data's label_type.")
    return names


def find_features(path, flag, max_seq_length, vocab_size, labels):
    """Looks at the first record of a file.

    Args:
      path: the file.
      flag: which names it, for messages.
      max_seq_length: tokens in a record.
      vocab_size: of the model.
      labels: names of the features that are wanted beside those of tokens.

    Returns:
      The names of the features as the file spells them, in the order of input_ids, input_mask, segment_ids, and
      `labels`; and a dict from the usual names to the values.

    Raises:
      InputError: names what is there and what should be.
    """
    record = next(records.read(path), None)
    if record is None:
        raise InputError(f"--{flag}: {path}: there are no records in it.")
    try:
        features = records.parse(record)
    except (ValueError, KeyError) as e:
        raise InputError(f"--{flag}: {path}: its records are not serialized tf.train.Example messages.") from e
    by_name = {records.ALIASES.get(name, name): name for name in features}
    wanted = ["input_ids", "input_mask", "segment_ids", *labels]
    missing = [name for name in wanted if name not in by_name]
    if missing:
        raise InputError(
            f"--{flag}: {path}: its records have no {', '.join(missing)}. "
            f"Features found: {', '.join(sorted(features))}."
        )
    ids = features[by_name["input_ids"]]
    length = len(ids)
    if length != max_seq_length:
        raise InputError(
            f"--{flag}: the records in {path} have {length} tokens, but the meta data says {max_seq_length}."
        )
    if length and ids.max() >= vocab_size:
        raise InputError(
            f"--{flag}: {path} has token id {ids.max()}, but the model's vocab_size is {vocab_size}. The records were "
            "made with another vocabulary."
        )
    return tuple(by_name[name] for name in wanted), {name: features[by_name[name]] for name in wanted}
