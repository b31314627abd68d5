"""BERT out of a SavedModel or TF hub folder: its variables, its vocabulary, and what its graph tells."""

import os
import re

import tensorflow.compat.v1 as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert import files
from bert.errors import InputError

_MODEL_FILE = "saved_model.pb"
_HEADS = re.compile(r".*encoder/layer_0/attention/self/Reshape/shape/2")


def is_saved_model(folder):
    """Whether there is a SavedModel in a folder, be it TensorFlow 1's, 2's, or a TF hub module."""
    return files.exists(os.path.join(folder, _MODEL_FILE))


def variables_prefix(folder):
    """Prefix of the checkpoint in a SavedModel."""
    return os.path.join(folder, "variables", "variables")


def find_vocabulary(folder):
    """Path of the vocabulary among the assets, or None."""
    assets = os.path.join(folder, "assets")
    names = [name for name in files.list_folder(assets) if name.endswith(".txt")]
    names = [name for name in names if "vocab" in name] or names
    return os.path.join(assets, names[0]) if len(names) == 1 else None


def attention_heads(folder):
    """Number of attention heads by the graph of the original's model, or None.

    Shapes of variables do not tell it. The original splits the queries into heads by a reshape to
    [batch, seq, heads, size], in which the number of heads is a constant.
    """
    path = os.path.join(folder, _MODEL_FILE)
    with files.open_file(path) as f:
        content = f.read()
    try:
        model = saved_model_pb2.SavedModel.FromString(content)
    except DecodeError as e:
        raise InputError(f"{path}: the file is damaged ({e}).") from e
    for graph in model.meta_graphs:
        for node in graph.graph_def.node:
            if node.op == "Const" and _HEADS.fullmatch(node.name):
                return int(tf.make_ndarray(node.attr["value"].tensor))
    return None
