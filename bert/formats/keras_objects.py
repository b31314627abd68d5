"""Object-based checkpoints of TensorFlow 2: BERT as the model garden's Keras models save it.

A variable's key is its path through the objects, such as
``model/layer_with_weights-4/_attention_layer/_query_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE``. Which path that is
depends on the model that was saved, and in a SavedModel it may be ``variables/7``; the checkpoint's object graph tells
the name that Keras gave the variable, such as ``transformer/layer_0/self_attention/query/kernel``. The name is looked
at first, the path second.
"""

import re

import numpy as np
from tensorflow.core.protobuf import trackable_object_graph_pb2

VALUE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

_POOLER = "bert/pooler/dense/"
_MASKED_LM = "cls/predictions/"
_NEXT_SENTENCE = "cls/seq_relationship/"
# What names and paths end with, and the original's name. In a functional model the embeddings are its layers 0 to 3,
# the encoder's layers follow, and the pooler is last.
_NAMES = [
    (
        r"(?:word_embeddings|_embedding_layer|layer_with_weights-0)/embeddings|embedding_table",
        "bert/embeddings/word_embeddings",
    ),
    (
        r"(?:position_embedding|_position_embedding_layer|layer_with_weights-1)/(?:position_)?embeddings",
        "bert/embeddings/position_embeddings",
    ),
    (
        r"(?:type_embeddings|_type_embedding_layer|layer_with_weights-2)/embeddings",
        "bert/embeddings/token_type_embeddings",
    ),
    (
        r"(?:embeddings/layer_norm|_embedding_norm_layer|layer_with_weights-3)/(gamma|beta)",
        r"bert/embeddings/LayerNorm/\1",
    ),
    # The head for next sentences has a pooler of its own, which is the one that was trained.
    (r"next_sentence(?:/|\.\.)pooler_dense/(kernel|bias)", rf"{_POOLER}\1"),
    (r"(?:pooler_transform|_pooler_layer|layer_with_weights-(?:[4-9]|\d\d+))/(kernel|bias)", rf"{_POOLER}\1"),
    (r"(?:cls/predictions/transform|masked_lm)/dense/(kernel|bias)", rf"{_MASKED_LM}transform/dense/\1"),
    (
        r"(?:cls/predictions/transform/LayerNorm|masked_lm/layer_norm)/(gamma|beta)",
        rf"{_MASKED_LM}transform/LayerNorm/\1",
    ),
    (r"cls/predictions/output_bias/bias|masked_lm/output_bias\.Sbias", f"{_MASKED_LM}output_bias"),
    (r"next_sentence/logits/kernel", f"{_NEXT_SENTENCE}output_weights"),
    (r"next_sentence/logits/bias", f"{_NEXT_SENTENCE}output_bias"),
    (r"sentence_prediction/logits/kernel", "output_weights"),
    (r"sentence_prediction/logits/bias", "output_bias"),
]
_LAYER = r"(?:transformer/layer_|_transformer_layers/|layer_with_weights-)(\d+)/(.+)/(kernel|bias|gamma|beta)"
_LAYER_PARTS = [
    (r"(?:_attention_layer/_|self_attention/)(query|key|value)(?:_dense)?", r"attention/self/\1"),
    (
        r"_attention_layer/_output_dense|_attention_output_dense|self_attention/attention_output|self_attention_output",
        "attention/output/dense",
    ),
    (r"_?(?:self_)?attention_layer_norm", "attention/output/LayerNorm"),
    (r"_?intermediate(?:_dense)?", "intermediate/dense"),
    (r"_?output(?:_dense)?", "output/dense"),
    (r"_?output_layer_norm", "output/LayerNorm"),
]
# The only head of an older pretraining model beside the masked LM; in other models, one of another task.
_OTHER_HEAD = r"(?:.*/)?predictions/transform/logits/(kernel|bias)"
_NOT_WEIGHTS = re.compile(r"save_counter/|.*\.OPTIMIZER_SLOT/|(?:.*/)?optimizer/|(?:.*/)?keras_api/|do_lower_case/")


def is_keras(names):
    """Whether the names of a checkpoint's variables are those of an object-based one."""
    return any(name.endswith(VALUE_SUFFIX) for name in names)


def read(reader):
    """Reads the weights of BERT and of its heads.

    Args:
      reader: as of `tf.train.load_checkpoint`.

    Returns:
      A dict from the original's names to float32 arrays; the number of attention heads, or None if the shapes do not
      tell; the sorted keys of the variables that are no part of it, without counters and the optimizer's.
    """
    shapes = reader.get_variable_to_shape_map()
    keras_names = _keras_names(reader) if OBJECT_GRAPH in shapes else {}
    keys = [key for key in sorted(shapes) if key.endswith(VALUE_SUFFIX) and not _NOT_WEIGHTS.match(key)]
    found, other_head = {}, {}  # name to key
    for key in keys:
        path = key[: -len(VALUE_SUFFIX)]
        name = _translate(keras_names.get(key, "")) or _translate(path)
        head = re.fullmatch(_OTHER_HEAD, keras_names.get(key, ""))
        if head:
            other_head[_NEXT_SENTENCE + ("output_weights" if head[1] == "kernel" else "output_bias")] = key
        elif name and (name not in found or "next_sentence" in key):
            found[name] = key
    if f"{_MASKED_LM}output_bias" in found:
        found = {**other_head, **found}
    found = _number_layers(found)
    query = found.get("bert/encoder/layer_0/attention/self/query/kernel")
    heads = shapes[query][1] if query and len(shapes[query]) == 3 else None
    variables = {name: _arrange(name, reader.get_tensor(key)) for name, key in found.items()}
    return variables, heads, sorted(set(keys) - set(found.values()))


def _keras_names(reader):
    """Dict from key to the name that Keras gave the variable."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.get_tensor(OBJECT_GRAPH))
    return {of.checkpoint_key: of.full_name for node in graph.nodes for of in node.attributes}


def _translate(name):
    """The original's name, or None. Layers keep the number that the path has, which may not count from 0."""
    for pattern, original in _NAMES:
        match = re.fullmatch(rf"(?:.*/)?(?:{pattern})", name)
        if match:
            return match.expand(original)
    layer = re.fullmatch(rf"(?:.*/)?{_LAYER}", name)
    if layer:
        for pattern, original in _LAYER_PARTS:
            match = re.fullmatch(pattern, layer[2])
            if match:
                return f"bert/encoder/layer_{layer[1]}/{match.expand(original)}/{layer[3]}"
    return None


def _number_layers(found):
    """Numbers the encoder's layers from 0."""
    pattern = re.compile(r"bert/encoder/layer_(\d+)/")
    numbers = sorted({int(match[1]) for match in map(pattern.match, found) if match})
    return {
        pattern.sub(lambda match: f"bert/encoder/layer_{numbers.index(int(match[1]))}/", name): key
        for name, key in found.items()
    }


def _arrange(name, value):
    """The values in the original's shape, in which the heads are side by side."""
    if re.search(r"/attention/self/\w+/kernel$", name):
        value = value.reshape(len(value), -1)  # [hidden, heads, size] to [hidden, hidden]
    elif "/attention/self/" in name:
        value = value.ravel()
    elif name.endswith("/attention/output/dense/kernel"):
        value = value.reshape(-1, value.shape[-1])  # [heads, size, hidden] to [hidden, hidden]
    elif name.endswith("output_weights"):
        value = value.T  # [hidden, outputs] to [outputs, hidden]
    return np.ascontiguousarray(value, np.float32)
