"""Checkpoints of other programs, read into one form, and the TensorFlow 1 form, written.

The one form is a `Checkpoint`: arrays under the variable names of the original BERT code. Formats are told
apart by looking at the files.
"""

import dataclasses
import json
import os
import re

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from bert import files, modeling
from bert.errors import InputError

# Names of the files of a released model.
CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"
CHECKPOINT_PREFIX = "bert_model.ckpt"

# The same functions under the names they have in a Hugging Face config.json.
_HUGGING_FACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# Hugging Face names, in order: the first pattern that matches the whole name counts.
_HUGGING_FACE_NAMES = [
    (r"(?:bert\.)?(embeddings|encoder|pooler)\.(.+)", r"bert.\1.\2"),
    (r"cls\.predictions\.bias", "cls.predictions.output_bias"),
    (r"cls\.seq_relationship\.(weight|bias)", r"cls.seq_relationship.output_\1"),
    (r"classifier\.(weight|bias)", r"output_\1"),
    (r"qa_outputs\.(weight|bias)", r"cls.squad.output_\1"),
    (r"(cls\.predictions\.transform\..+)", r"\1"),
]
# Copies of other variables, and a constant.
_HUGGING_FACE_REDUNDANT = re.compile(
    r"cls\.predictions\.decoder\.(weight|bias)|(bert\.)?embeddings\.(position_ids|token_type_ids)"
)

_SAFETENSORS_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    # Not a type of NumPy's own, so that safetensors.numpy cannot load it.
    "BF16": tf.bfloat16.as_numpy_dtype,
    "I64": np.int64,
}


@dataclasses.dataclass
class Checkpoint:
    """A model's weights, and what came with them.

    Attributes:
      variables: dictionary of name (as in TensorFlow, without ":0") to array.
      config: the `BertConfig`, or None if no config was found.
      vocab_file: path of its vocabulary, or None if none was found.
    """

    variables: dict
    config: modeling.BertConfig = None
    vocab_file: str = None


def read(path):
    """Reads a checkpoint.

    Args:
      path: a Hugging Face folder (config.json, model.safetensors), a TensorFlow 1 checkpoint's prefix, or a
        folder with one.

    Returns:
      A `Checkpoint`.

    Raises:
      InputError: there is no checkpoint of a known form, or it is damaged.
    """
    if files.exists(os.path.join(path, "model.safetensors")):
        return _read_hugging_face(path)
    prefix = find_tf1(path)
    if prefix is None:
        raise InputError(
            f"{path}: no checkpoint found there. Name a checkpoint's prefix (folder/{CHECKPOINT_PREFIX}), "
            "a folder with one, or a Hugging Face folder with model.safetensors."
        )
    return _read_tf1(prefix)


def find_tf1(path):
    """Returns the prefix of the TensorFlow checkpoint that is meant by `path`, or None.

    Args:
      path: a prefix; or a folder, of which the newest checkpoint is taken (as its file "checkpoint" says), or
        bert_model.ckpt, or its only checkpoint.
    """
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


def _read_tf1(prefix):
    try:
        reader = tf.train.load_checkpoint(prefix)
        variables = {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}
    except (tf.errors.OpError, ValueError, IndexError) as e:
        raise InputError(f"{prefix}: the checkpoint cannot be read ({e}).") from e
    folder = os.path.dirname(prefix)
    config_file = os.path.join(folder, CONFIG_FILE)
    config = modeling.BertConfig.from_json_file(config_file) if files.exists(config_file) else None
    return Checkpoint(variables, config, _vocab_file(folder))


def _vocab_file(folder):
    path = os.path.join(folder, VOCAB_FILE)
    return path if files.exists(path) else None


def _read_hugging_face(folder):
    import safetensors

    path = os.path.join(folder, "model.safetensors")
    with files.open_file(path) as f:
        content = f.read()
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError as e:
        raise InputError(f"{path}: the file is damaged ({e}).") from e
    arrays = {name: _array(tensor) for name, tensor in tensors}
    variables = {}
    unknown = []
    for name, array in arrays.items():
        if _HUGGING_FACE_REDUNDANT.fullmatch(name):
            continue
        converted = _from_hugging_face(name)
        if converted is None:
            unknown.append(name)
            continue
        if converted.endswith("/kernel"):
            array = array.T  # [out, in] to [in, out]
        variables[converted] = np.ascontiguousarray(array.astype(np.float32))
    if unknown:
        logging.warning("%s: not a part of BERT, left out: %s", path, ", ".join(sorted(unknown)))
    _check_tables(path, arrays, variables)
    return Checkpoint(variables, _hugging_face_config(os.path.join(folder, "config.json")), _vocab_file(folder))


def _array(tensor):
    """Returns a tensor as `safetensors.deserialize` gives it, as an array."""
    dtype = _SAFETENSORS_DTYPES[tensor["dtype"]]
    return np.frombuffer(tensor["data"], dtype).reshape(tensor["shape"])


def _from_hugging_face(name):
    """Returns the TensorFlow name of a variable of a Hugging Face BERT, or None if it has none."""
    for pattern, replacement in _HUGGING_FACE_NAMES:
        if re.fullmatch(pattern, name):
            name = re.sub(pattern, replacement, name)
            break
    else:
        return None
    name = re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name)
    name = re.sub(r"\.LayerNorm\.weight$", ".LayerNorm.gamma", name)
    name = re.sub(r"\.LayerNorm\.bias$", ".LayerNorm.beta", name)
    name = re.sub(r"_embeddings\.weight$", "_embeddings", name)
    name = re.sub(r"output_weight$", "output_weights", name)
    name = re.sub(r"\.weight$", ".kernel", name)
    return name.replace(".", "/")


def _check_tables(path, arrays, variables):
    """Refuses a model without word embeddings, or whose output projection is another table."""
    embeddings = variables.get("bert/embeddings/word_embeddings")
    if embeddings is None:
        raise InputError(f"{path}: not a BERT model: there are no word embeddings in it.")
    decoder = arrays.get("cls.predictions.decoder.weight")
    if decoder is not None and not np.array_equal(decoder, embeddings):
        raise InputError(
            f"{path}: cls.predictions.decoder.weight differs from the word embeddings; BERT shares one table."
        )


def _hugging_face_config(path):
    """Reads a Hugging Face config.json as a `BertConfig`."""
    config = files.read_json_object(path)
    for key, wanted in (
        ("model_type", "bert"),
        ("position_embedding_type", "absolute"),
        ("layer_norm_eps", modeling.LAYER_NORM_EPSILON),
    ):
        if config.get(key, wanted) != wanted:
            raise InputError(f"{path}: {key} is {json.dumps(config[key])}; only {json.dumps(wanted)} is BERT.")
    names = modeling.BertConfig(vocab_size=None).to_dict()
    missing = sorted(set(names) - set(config))
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} missing: not the config of a BERT model.")
    config = modeling.BertConfig.from_dict({name: config[name] for name in names})
    if config.hidden_act not in _HUGGING_FACE_ACTIVATIONS:
        supported = ", ".join(_HUGGING_FACE_ACTIVATIONS)
        raise InputError(f"{path}: hidden_act is {config.hidden_act!r}; supported are {supported}.")
    config.hidden_act = _HUGGING_FACE_ACTIVATIONS[config.hidden_act]
    config.check()
    return config
