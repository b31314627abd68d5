"""A finished model: its weights, and what its outputs mean."""

import dataclasses
import os
import re
from typing import Optional

from bert import files, modeling, tokenization
from bert.errors import InputError
from bert.tasks import features, results
from bert.tasks import task as tasks
from bert.training import checkpoint_formats, evaluations

# Kinds of models by their heads.
CLASSIFIER, TAGGER, SPANS, PRETRAINING, ENCODER = "classifier", "tagger", "spans", "pretraining", "encoder"
# What tells the kind, and the variables that a model of the kind has beside the encoder's. A tagger's are those of a
# classifier; the settings of its training tell it.
_KINDS = (
    (CLASSIFIER, "output_weights", r"output_(weights|bias)"),
    (SPANS, "cls/squad/output_weights", r"cls/squad/.*"),
    (PRETRAINING, "cls/predictions/output_bias", r"cls/(predictions|seq_relationship)/.*"),
    (ENCODER, "bert/embeddings/word_embeddings", r""),
)
_USUAL_LENGTH = 128


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A finished model.

    Attributes:
      path: where it is from.
      kind: CLASSIFIER, TAGGER, SPANS, PRETRAINING or ENCODER.
      variables: dict from the original's names to arrays, those of the model alone.
      config: the `BertConfig`.
      vocab_file: path of the vocabulary, or None.
      do_lower_case: whether text is lower-cased; None without a vocabulary.
      max_seq_length: tokens of a text, beyond which it is cut.
      label_kind: of a classifier, as of `bert.tasks.task.Task`.
      labels: of a classifier or tagger, names in the order of its outputs; empty for regression.
    """

    path: str
    kind: str
    variables: dict
    config: modeling.BertConfig
    vocab_file: Optional[str]
    do_lower_case: Optional[bool]
    max_seq_length: int
    label_kind: Optional[str] = None
    labels: tuple = ()

    @property
    def num_outputs(self):
        """Number of outputs of a classifier, or of a tagger for each token."""
        return len(self.variables["output_weights"])


def read(path, config=None, vocab_file=None):
    """Reads a model, and from the folder of its training what its outputs mean.

    Args:
      path: the output folder of a training, or its folder "best", or anything that `checkpoint_formats.read` takes.
      config: a `BertConfig`; None: that of the model.
      vocab_file: path; None: that of the model.

    Returns:
      A `TrainedModel`.

    Raises:
      InputError: something is missing.
    """
    checkpoint = checkpoint_formats.read(path)
    variables = checkpoint_formats.strip_optimizer(checkpoint.variables)
    folder = os.path.normpath(path) if files.list_folder(path) else os.path.dirname(path)
    if os.path.basename(folder) == evaluations.BEST_FOLDER:
        folder = os.path.dirname(folder)
    config = config or checkpoint.config or _config(folder)
    if config is None:
        raise InputError(f"--bert_config_file is needed: there is no {checkpoint_formats.CONFIG_FILE} beside {path}.")
    vocab_file = vocab_file or checkpoint.vocab_file or _existing(folder, checkpoint_formats.VOCAB_FILE)
    settings = results.read_settings(folder)
    do_lower_case = settings.get("do_lower_case")
    if vocab_file and do_lower_case is None:
        do_lower_case = features.check_case(tokenization.load_vocab(vocab_file), vocab_file, None)
    kind, _, own = next((of for of in _KINDS if of[1] in variables), (None, None, None))
    if kind is None:
        raise InputError(f"{path}: not a BERT model: there are no word embeddings in it.")
    model = TrainedModel(
        path,
        kind,
        {name: value for name, value in variables.items() if re.fullmatch(rf"bert/.*|{own}", name)},
        config,
        vocab_file,
        do_lower_case,
        settings.get("max_seq_length") or min(_USUAL_LENGTH, config.max_position_embeddings),
    )
    if kind == CLASSIFIER and settings.get("task") == results.TAGGING:
        return _with_labels(dataclasses.replace(model, kind=TAGGER), {**settings, "label_kind": tasks.SINGLE})
    return _with_labels(model, settings) if kind == CLASSIFIER else model


def _with_labels(model, settings):
    outputs = model.num_outputs
    label_kind = settings.get("label_kind") or (tasks.REGRESSION if outputs == 1 else tasks.SINGLE)
    labels = tuple(settings.get("labels") or ())
    if label_kind != tasks.REGRESSION and not labels:
        labels = tuple(f"LABEL_{i}" for i in range(outputs))
    if len(labels) != (0 if label_kind == tasks.REGRESSION else outputs):
        raise InputError(
            f"{model.path}: the model has {outputs} outputs, but {results.SETTINGS_FILE} has {len(labels)} labels."
        )
    return dataclasses.replace(model, label_kind=label_kind, labels=labels)


def _config(folder):
    path = _existing(folder, checkpoint_formats.CONFIG_FILE)
    return modeling.BertConfig.from_json_file(path) if path else None


def _existing(folder, name):
    path = os.path.join(folder, name)
    return path if files.exists(path) else None
