"""Checkpoints as the objects of the TF 2 model garden's models save them, and SavedModels of these."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf
from arrays import assert_same
from numpy_bert import random_variables

from bert import modeling
from bert.errors import InputError
from bert.training import checkpoint_formats, pretraining

HEADS = 4
CONFIG = {
    "vocab_size": 13,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "intermediate_size": 12,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
}

# Paths of a functional encoder, of one that is a layer, and names that Keras gives, by the original's names.
FUNCTIONAL = [
    (r"bert/embeddings/word_embeddings", "layer_with_weights-0/embeddings"),
    (r"bert/embeddings/position_embeddings", "layer_with_weights-1/embeddings"),
    (r"bert/embeddings/token_type_embeddings", "layer_with_weights-2/embeddings"),
    (r"bert/embeddings/LayerNorm", "layer_with_weights-3"),
    (r"bert/pooler/dense", "layer_with_weights-7"),
]
AS_LAYER = [
    (r"bert/embeddings/word_embeddings", "_embedding_layer/embeddings"),
    (r"bert/embeddings/position_embeddings", "_position_embedding_layer/embeddings"),
    (r"bert/embeddings/token_type_embeddings", "_type_embedding_layer/embeddings"),
    (r"bert/embeddings/LayerNorm", "_embedding_norm_layer"),
    (r"bert/pooler/dense", "_pooler_layer"),
]
IN_LAYER = [
    (r"attention/self/(query|key|value)", r"_attention_layer/_\1_dense"),
    (r"attention/output/dense", "_attention_layer/_output_dense"),
    (r"attention/output/LayerNorm", "_attention_layer_norm"),
    (r"intermediate/dense", "_intermediate_dense"),
    (r"output/dense", "_output_dense"),
    (r"output/LayerNorm", "_output_layer_norm"),
]
KERAS_NAMES = [
    (r"bert/embeddings/word_embeddings", "word_embeddings/embeddings"),
    (r"bert/embeddings/position_embeddings", "position_embedding/embeddings"),
    (r"bert/embeddings/token_type_embeddings", "type_embeddings/embeddings"),
    (r"bert/embeddings/LayerNorm", "embeddings/layer_norm"),
    (r"bert/pooler/dense", "pooler_transform"),
    (r"bert/encoder", "transformer"),
    (r"attention/self", "self_attention"),
    (r"attention/output/dense", "self_attention/attention_output"),
    (r"attention/output/LayerNorm", "self_attention_layer_norm"),
    (r"intermediate/dense", "intermediate"),
    (r"output/dense", "output"),
    (r"output/LayerNorm", "output_layer_norm"),
]


@pytest.fixture(scope="module")
def variables():
    """All variables of a pretraining model."""
    config = modeling.BertConfig.from_dict({**modeling.BertConfig(13).to_dict(), **CONFIG})
    return random_variables(pretraining.variable_shapes(config), np.random.default_rng(0))


def rename(name, *rules):
    for pattern, replacement in rules:
        name, done = re.subn(rf"(?:^|(?<=/)){pattern}(?=/|$)", replacement, name, count=1)
        if done and pattern.startswith("bert/embeddings"):
            break
    return name


def split_heads(name, value):
    """The values in the shape that Keras' attention gives them."""
    if re.search(r"attention/self/\w+/kernel", name):
        return value.reshape(len(value), HEADS, -1)
    if "attention/self" in name:
        return value.reshape(HEADS, -1)
    if "attention/output/dense/kernel" in name:
        return value.reshape(HEADS, -1, value.shape[1])
    return value


def tree(values):
    """Objects whose attributes are the parts of paths, down to variables; a dict from path to array or variable."""
    children = {}
    for path, value in values.items():
        first, _, rest = path.partition("/")
        if rest:
            children.setdefault(first, {})[rest] = value
        else:
            children[first] = value if isinstance(value, tf.Variable) else tf.Variable(value)
    return tf.train.Checkpoint(
        **{name: tree(child) if isinstance(child, dict) else child for name, child in children.items()}
    )


def encoder_paths(variables, rules, layer):
    """Dict from a path to the values there, for the encoder's variables."""
    found = {}
    for name, value in variables.items():
        if name.startswith("bert/"):
            path = rename(name, *rules)
            match = re.match(r"bert/encoder/layer_(\d+)/(.*)", name)
            if match:
                path = layer.format(int(match[1]), int(match[1]) + 4) + rename(match[2], *IN_LAYER)
            found[path] = split_heads(name, value)
    return found


@pytest.mark.parametrize(
    "prefix, rules, layer",
    [
        ("model/", FUNCTIONAL, "layer_with_weights-{1}/"),
        ("model/layer_with_weights-0/", FUNCTIONAL, "layer_with_weights-{1}/"),  # within a classifier
        ("encoder/", AS_LAYER, "_transformer_layers/{0}/"),
    ],
)
def test_encoders_by_their_paths(tmp_path, variables, prefix, rules, layer):
    paths = encoder_paths(variables, rules, layer)
    values = {prefix + path: value for path, value in paths.items()}
    values["model/layer_with_weights-9/own/kernel"] = np.zeros([16, 3], np.float32)
    values["optimizer/iter"] = np.int64(7)
    prefix = tree(values).save(str(tmp_path / "bert_model.ckpt"))
    found = checkpoint_formats.read(str(tmp_path))
    assert_same(found.variables, {name: value for name, value in variables.items() if name.startswith("bert/")})
    assert {name: found.config.to_dict()[name] for name in CONFIG} == CONFIG
    assert [key.split("/.")[0] for key in found.unused] == ["model/layer_with_weights-9/own/kernel"]
    # It is not taken for a checkpoint of TensorFlow 1, but made one.
    assert checkpoint_formats.find_tf1(prefix) is None
    converted, config_file, _ = checkpoint_formats.find_initial(prefix, str(tmp_path / "out"))
    assert_same(checkpoint_formats.read(converted).variables, found.variables)
    assert os.path.exists(config_file)


def test_pretraining_model_with_optimizer_slots(tmp_path, variables):
    encoder = encoder_paths(variables, FUNCTIONAL, "layer_with_weights-{1}/")
    # The masked LM owns the table of words; the pooler that was trained is the head's.
    table = encoder.pop("layer_with_weights-0/embeddings")
    pooler = {part: encoder[f"layer_with_weights-7/{part}"] for part in ("kernel", "bias")}
    values = {f"encoder/{path}": value for path, value in encoder.items()}
    for part in ("kernel", "bias"):
        values[f"encoder/layer_with_weights-7/{part}"] = np.zeros_like(pooler[part])
        values[f"next_sentence.pooler_dense/{part}"] = pooler[part]
        values[f"masked_lm/dense/{part}"] = variables[f"cls/predictions/transform/dense/{part}"]
    for part in ("gamma", "beta"):
        values[f"masked_lm/layer_norm/{part}"] = variables[f"cls/predictions/transform/LayerNorm/{part}"]
    values["masked_lm/embedding_table"] = table
    logits = {"kernel": variables["cls/seq_relationship/output_weights"].T}
    logits["bias"] = variables["cls/seq_relationship/output_bias"]
    for part, value in logits.items():
        values[f"head/out_proj/{part}"] = tf.Variable(value, name=f"bert/next_sentence/logits/{part}")
    root = tree(values)
    # The model garden's attribute has a slash in its name.
    setattr(root.masked_lm, "output_bias/bias", tf.Variable(variables["cls/predictions/output_bias"]))
    optimizer = tf.keras.optimizers.legacy.Adam()
    optimizer.apply_gradients([(tf.zeros_like(root.masked_lm.dense.bias), root.masked_lm.dense.bias)])
    root.optimizer = optimizer
    root.save(str(tmp_path / "bert_model.ckpt"))
    assert any(".OPTIMIZER_SLOT" in name for name, _ in tf.train.list_variables(str(tmp_path)))
    found = checkpoint_formats.read(str(tmp_path))
    assert_same(found.variables, variables)


def test_saved_model_by_the_names_of_its_variables(tmp_path, variables):
    """As TF hub's: variables are in a list, beside the vocabulary and whether it is uncased."""
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    module = tf.train.Checkpoint()
    module.variables = [
        tf.Variable(split_heads(name, value), name=rename(name, *KERAS_NAMES))
        for name, value in variables.items()
        if name.startswith("bert/")
    ]
    module.vocab_file = tf.saved_model.Asset(str(tmp_path / "vocab.txt"))
    module.do_lower_case = tf.Variable(True)
    tf.saved_model.save(module, str(tmp_path / "hub"))
    found = checkpoint_formats.read(str(tmp_path / "hub"))
    assert_same(found.variables, {name: value for name, value in variables.items() if name.startswith("bert/")})
    assert found.config.num_attention_heads == HEADS and not found.unused
    assert found.vocab_file == str(tmp_path / "hub" / "assets" / "vocab.txt")


def test_other_models_are_refused(tmp_path):
    tree({"model/layer_with_weights-0/kernel": np.zeros(3, np.float32)}).save(str(tmp_path / "ckpt"))
    with pytest.raises(InputError, match="not a BERT model: there are no word embeddings in it"):
        checkpoint_formats.read(str(tmp_path))
    with pytest.raises(InputError, match=r"models are not downloaded\. Download and unpack it"):
        checkpoint_formats.read("https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4")
