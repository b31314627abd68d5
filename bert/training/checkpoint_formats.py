"""Checkpoints of other programs, read into one form, and the TensorFlow 1 form, written.

The one form is a `Checkpoint`: arrays under the variable names of the original BERT code. Formats are told
apart here, by looking at the files.
"""

import os
import re

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from bert import files, modeling
from bert.errors import InputError
from bert.formats import hugging_face, keras_objects, saved_models
from bert.formats.checkpoint import Checkpoint

# Names of the files of a released model.
CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"
CHECKPOINT_PREFIX = "bert_model.ckpt"
# Where a training puts what it converts.
INIT_FOLDER = "init"

_EMBEDDINGS = "bert/embeddings/"
_USUAL_HEAD_SIZE = 64


def read(path):
    """Reads a checkpoint, and logs what it is and what of it is not used.

    Args:
      path: a TensorFlow 1 checkpoint's prefix, that of an object-based checkpoint of the TF 2 model garden's BERT, or
        a folder with either; a SavedModel or unpacked TF hub module; a Hugging Face folder (config.json and
        model.safetensors or pytorch_model.bin).

    Returns:
      A `Checkpoint`.

    Raises:
      InputError: there is no checkpoint of a known form, or it is damaged.
    """
    _check_is_path(path)
    folder = os.path.dirname(path) if os.path.basename(path) in hugging_face.WEIGHTS_FILES else path
    prefix = _find_prefix(path)
    if hugging_face.find_weights(folder):
        form, checkpoint = "Hugging Face folder", hugging_face.read(folder)
    elif saved_models.is_saved_model(path):
        form, checkpoint = "SavedModel", _read_saved_model(path)
    elif prefix is None:
        raise InputError(_nothing_found(path))
    elif keras_objects.is_keras(_names(prefix)):
        form, checkpoint = "TensorFlow 2 checkpoint of Keras objects", _read_keras(prefix, os.path.dirname(prefix))
    else:
        form, checkpoint = "TensorFlow 1 checkpoint", _read_tf1(prefix)
    logging.info(
        "%s: a %s with %d variables, %s and %s; not used: %s",
        prefix or path,
        form,
        len(checkpoint.variables),
        "a config" if checkpoint.config else "no config",
        "a vocabulary" if checkpoint.vocab_file else "no vocabulary",
        ", ".join(checkpoint.unused) or "none",
    )
    return checkpoint


def find_tf1(path):
    """Returns the prefix of the checkpoint that is meant by `path`, if it is in TensorFlow 1's form, or None.

    Args:
      path: a prefix; or a folder, of which the newest checkpoint is taken (as its file "checkpoint" says), or
        bert_model.ckpt, or its only checkpoint.
    """
    _check_is_path(path)
    prefix = _find_prefix(path)
    return None if prefix is None or keras_objects.is_keras(_names(prefix)) else prefix


def find_initial(path, output_dir):
    """Finds a checkpoint to start from, and makes one of a model in another form.

    Args:
      path: what `read` takes.
      output_dir: folder of the run; a model that is not in TensorFlow 1's form is converted into its folder "init".

    Returns:
      Path prefix of the checkpoint, and paths of its config and its vocabulary, None for what it lacks.

    Raises:
      InputError: there is no checkpoint.
    """
    prefix = find_tf1(path)
    if prefix is None:
        folder = os.path.join(output_dir, INIT_FOLDER)
        checkpoint = read(path)
        logging.info("converting %s into %s", path, folder)
        prefix = write_tf1(folder, checkpoint)
    beside = [os.path.join(os.path.dirname(prefix), name) for name in (CONFIG_FILE, VOCAB_FILE)]
    return (prefix, *(name if files.exists(name) else None for name in beside))


def strip_optimizer(variables):
    """Returns the variables without the optimizer's slots and the global step: those of a released model."""
    return {
        name: value
        for name, value in variables.items()
        if name != "global_step" and not name.endswith(("/adam_m", "/adam_v"))
    }


def write_tf1(folder, checkpoint):
    """Writes a folder as models are released: bert_config.json, bert_model.ckpt.* and vocab.txt.

    The config and the vocabulary are left out if the checkpoint has none.

    Args:
      folder: local or gs:// path.
      checkpoint: a `Checkpoint`.

    Returns:
      The prefix of the checkpoint, folder/bert_model.ckpt.
    """
    files.make_folder(folder)
    prefix = os.path.join(folder, CHECKPOINT_PREFIX)
    names = sorted(checkpoint.variables)
    values = [np.asarray(checkpoint.variables[name]) for name in names]
    with tf.Graph().as_default(), tf.Session() as session:
        # Fed rather than built in: a graph cannot hold more than 2 GB of constants.
        tensors = [tf.placeholder(value.dtype, value.shape) for value in values]
        save = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors)
        session.run(save, dict(zip(tensors, values)))
    if checkpoint.config is not None:
        with files.atomic_write(os.path.join(folder, CONFIG_FILE), "w") as f:
            f.write(checkpoint.config.to_json_string())
    if checkpoint.vocab_file is not None:
        files.copy(checkpoint.vocab_file, os.path.join(folder, VOCAB_FILE))
    return prefix


def _find_prefix(path):
    """Prefix of the TensorFlow checkpoint that is meant by `path`, in any form, or None."""
    path = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if files.exists(path + ".index"):
        return path
    newest = tf.train.latest_checkpoint(path)
    if newest:
        return newest
    found = [name[: -len(".index")] for name in files.list_folder(path) if name.endswith(".index")]
    if CHECKPOINT_PREFIX in found:
        found = [CHECKPOINT_PREFIX]
    return os.path.join(path, found[0]) if len(found) == 1 else None


def _check_is_path(path):
    if path.startswith(("http://", "https://")):
        raise InputError(f"{path}: models are not downloaded. Download and unpack it, and name the folder.")


def _nothing_found(path):
    names = files.list_folder(path)
    return (
        f"{path}: no checkpoint found there{' (it has ' + ', '.join(names[:8]) + ')' if names else ''}. Name a "
        f"checkpoint's prefix (folder/{CHECKPOINT_PREFIX}), a folder with one, a SavedModel, or a Hugging Face folder "
        f"with {' or '.join(hugging_face.WEIGHTS_FILES)}."
    )


def _open(prefix):
    try:
        return tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, ValueError, IndexError) as e:
        raise InputError(f"{prefix}: the checkpoint cannot be read ({e}).") from e


def _names(prefix):
    return _open(prefix).get_variable_to_shape_map()


def _read_tf1(prefix):
    reader = _open(prefix)
    try:
        variables = {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}
    except (tf.errors.OpError, ValueError, IndexError) as e:
        raise InputError(f"{prefix}: the checkpoint cannot be read ({e}).") from e
    folder = os.path.dirname(prefix)
    return Checkpoint(variables, _config(folder), _vocab_file(folder))


def _read_keras(prefix, folder, vocab_file=None):
    try:
        variables, heads, unused = keras_objects.read(_open(prefix))
    except (tf.errors.OpError, ValueError, IndexError) as e:
        raise InputError(f"{prefix}: the checkpoint cannot be read ({e}).") from e
    _check_is_bert(prefix, variables)
    config = _config(folder) or _infer_config(prefix, variables, heads)
    return Checkpoint(variables, config, vocab_file or _vocab_file(folder), tuple(unused))


def _read_saved_model(folder):
    prefix = saved_models.variables_prefix(folder)
    if not files.exists(prefix + ".index"):
        raise InputError(f"{folder}: the SavedModel has no variables: there is no {prefix}.index.")
    vocab_file = saved_models.find_vocabulary(folder)
    if keras_objects.is_keras(_names(prefix)):
        return _read_keras(prefix, folder, vocab_file)
    # A module of TF hub is built within a scope of its own.
    variables = {name.removeprefix("module/"): value for name, value in _read_tf1(prefix).variables.items()}
    _check_is_bert(folder, variables)
    config = _config(folder) or _infer_config(folder, variables, saved_models.attention_heads(folder))
    return Checkpoint(variables, config, vocab_file or _vocab_file(folder))


def _check_is_bert(path, variables):
    if _EMBEDDINGS + "word_embeddings" not in variables:
        raise InputError(f"{path}: not a BERT model: there are no word embeddings in it.")


def _config(folder):
    path = os.path.join(folder, CONFIG_FILE)
    return modeling.BertConfig.from_json_file(path) if files.exists(path) else None


def _vocab_file(folder):
    path = os.path.join(folder, VOCAB_FILE)
    return path if files.exists(path) else None


def _infer_config(path, variables, heads):
    """The config of a model that came without one, from the shapes of its variables."""
    vocab_size, hidden_size = variables[_EMBEDDINGS + "word_embeddings"].shape
    if heads is None:
        heads = max(1, hidden_size // _USUAL_HEAD_SIZE)
        logging.warning(
            "%s tells nowhere how many attention heads it has: %d are assumed, of %d each, as in all released models. "
            "Name the right bert_config.json if that is wrong.",
            path,
            heads,
            hidden_size // heads,
        )
    numbers = [int(match[1]) for match in (re.match(r"bert/encoder/layer_(\d+)/", name) for name in variables) if match]
    try:
        config = modeling.BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_hidden_layers=max(numbers) + 1,
            num_attention_heads=heads,
            intermediate_size=len(variables["bert/encoder/layer_0/intermediate/dense/bias"]),
            max_position_embeddings=len(variables[_EMBEDDINGS + "position_embeddings"]),
            type_vocab_size=len(variables[_EMBEDDINGS + "token_type_embeddings"]),
        )
    except (KeyError, ValueError) as e:
        raise InputError(f"{path}: not a BERT model: {e} is missing.") from e
    config.check()
    return config
