"""Trained models in the forms in which others take them."""

import hashlib
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from bert import files
from bert.errors import InputError
from bert.formats import hugging_face, onnx_files, serving, trained
from bert.tasks import task as tasks

SAVED_MODEL, HUGGING_FACE, ONNX = FORMATS = ("saved_model", "hugging_face", "onnx")
# In each folder that was written: what it was written from.
MARK_FILE = "export.json"
_VERSION = 2  # changes when the same model is written in another way

_ARCHITECTURES = {
    trained.CLASSIFIER: "BertForSequenceClassification",
    trained.TAGGER: "BertForTokenClassification",
    trained.SPANS: "BertForQuestionAnswering",
    trained.PRETRAINING: "BertForPreTraining",
    trained.ENCODER: "BertModel",
}
_PROBLEM_TYPES = {
    tasks.SINGLE: "single_label_classification",
    tasks.MULTI: "multi_label_classification",
    tasks.REGRESSION: "regression",
}


def check(folder, form):
    """Checks, before the work, that a format can be written into a folder.

    Raises:
      InputError: something else is in the folder, or a library is missing.
    """
    if form == ONNX:
        onnx_files.check_installed()
    if files.list_folder(folder) and not files.exists(os.path.join(folder, MARK_FILE)):
        raise InputError(f"{folder} is not empty, and was not written by this program. Name another folder.")


def write(folder, form, model):
    """Writes a model into a folder of its own, unless it is there already; an earlier export is replaced.

    Args:
      folder: local or gs:// path.
      form: SAVED_MODEL, HUGGING_FACE or ONNX.
      model: a `trained.TrainedModel`.
    """
    check(folder, form)
    mark = {"format": form, "from": model.path, "kind": model.kind, "fingerprint": _fingerprint(form, model)}
    mark_file = os.path.join(folder, MARK_FILE)
    if files.exists(mark_file) and files.read_json_object(mark_file).get("fingerprint") == mark["fingerprint"]:
        logging.info("%s: written before", folder)
        return
    # An earlier export stays until the new one is whole.
    partial = f"{folder.rstrip('/')}.partial"
    if tf.io.gfile.exists(partial):
        tf.io.gfile.rmtree(partial)
    what = {SAVED_MODEL: _write_saved_model, HUGGING_FACE: _write_hugging_face, ONNX: _write_onnx}[form](partial, model)
    with files.atomic_write(os.path.join(partial, MARK_FILE), "w") as f:
        f.write(json.dumps(mark, indent=2) + "\n")
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)
    tf.io.gfile.rename(partial, folder)
    logging.info("%s: %s", folder, what)


def _write_saved_model(folder, model):
    names = ", ".join(serving.write(folder, model))
    without = "" if model.vocab_file else "; none for text, as there is no vocabulary"
    return f"a SavedModel with the signatures {names}{without}"


def _write_hugging_face(folder, model):
    settings = {}
    if model.kind == trained.CLASSIFIER:
        settings["problem_type"] = _PROBLEM_TYPES[model.label_kind]
    if model.kind in (trained.CLASSIFIER, trained.TAGGER):
        labels = model.labels or ("LABEL_0",)
        settings.update(
            {
                "id2label": {str(i): label for i, label in enumerate(labels)},
                "label2id": {label: i for i, label in enumerate(labels)},
            }
        )
    architecture = _ARCHITECTURES[model.kind]
    variables = model.variables
    if model.kind in (trained.TAGGER, trained.SPANS):  # which have no pooler there
        variables = {name: value for name, value in variables.items() if not name.startswith("bert/pooler/")}
    hugging_face.write(folder, variables, model.config, model.vocab_file, model.do_lower_case, architecture, settings)
    return f"a {architecture} of Hugging Face transformers"


def _write_onnx(folder, model):
    files.make_folder(folder)
    onnx_files.write(os.path.join(folder, "model.onnx"), model)
    return "model.onnx"


def _fingerprint(form, model):
    """A function of everything that what is written depends on."""
    digest = hashlib.sha256()
    settings = (model.config.to_dict(), model.do_lower_case, model.max_seq_length, model.label_kind, model.labels)
    digest.update(repr((_VERSION, form, model.kind, settings)).encode())
    for name, value in sorted(model.variables.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value))
    if model.vocab_file:
        digest.update(files.read_text(model.vocab_file).encode())
    return digest.hexdigest()[:32]
