"""Model shapes, by name: models.json holds those of the released BERT models, each with its source."""

import json
import os

from bert import files, modeling
from bert.errors import InputError

_MODELS = os.path.join(os.path.dirname(__file__), "models.json")


def load_model_config(name_or_path, vocab_size=None):
    """Returns the `BertConfig` of a named shape or of a bert_config.json.

    Args:
      name_or_path: such as "bert-base", "tiny" ("bert-" may be left out), "bert-4-256", or a path.
      vocab_size: replaces the config's, for a vocabulary of one's own.

    Raises:
      InputError: there is neither such a name nor such a file, or the file describes no model.
    """
    models = _read_models()
    name = find(name_or_path)
    if name:
        shape = {key: value for key, value in models["models"][name].items() if key != "source"}
        config = modeling.BertConfig.from_dict({**models["common"], **shape})
    elif files.exists(name_or_path):
        config = modeling.BertConfig.from_json_file(name_or_path)
    else:
        raise InputError(
            f"{name_or_path}: neither a file nor the name of a model shape; the names are {', '.join(names())}."
        )
    if vocab_size is not None:
        config.vocab_size = vocab_size
    return config


def names():
    """Names of the model shapes, the short ones first."""
    models = _read_models()
    return [*models["aliases"], *models["models"]]


def find(name):
    """Full name of the model shape that a name stands for, or None if it is not one."""
    models = _read_models()
    name = name if name.startswith("bert-") else f"bert-{name}"
    name = models["aliases"].get(name, name)
    return name if name in models["models"] else None


def _read_models():
    return json.loads(files.read_text(_MODELS))
