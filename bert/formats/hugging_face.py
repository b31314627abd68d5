"""Folders of Hugging Face transformers: config.json, model.safetensors or pytorch_model.bin, vocab.txt."""

import json
import os
import re

import numpy as np
import tensorflow.compat.v1 as tf

from bert import files, modeling
from bert.errors import InputError
from bert.formats import torch_files
from bert.formats.checkpoint import Checkpoint

WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
CONFIG_FILE = "config.json"
VOCAB_FILE = "vocab.txt"

# The same functions under the names they have in a config.json; of several, the first is written.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# Names in order: the first pattern that matches the whole name counts.
_NAMES = [
    (r"(?:bert\.)?(embeddings|encoder|pooler)\.(.+)", r"bert.\1.\2"),
    (r"cls\.predictions\.bias", "cls.predictions.output_bias"),
    (r"cls\.seq_relationship\.(weight|bias)", r"cls.seq_relationship.output_\1"),
    (r"classifier\.(weight|bias)", r"output_\1"),
    (r"qa_outputs\.(weight|bias)", r"cls.squad.output_\1"),
    (r"(cls\.predictions\.transform\..+)", r"\1"),
]
# Copies of other variables, and constants.
_REDUNDANT = re.compile(r"cls\.predictions\.decoder\.(weight|bias)|(bert\.)?embeddings\.(position_ids|token_type_ids)")
# What names end with in TensorFlow, and here.
_ENDINGS = [
    (r"/kernel", "/weight"),
    (r"/gamma", "/weight"),
    (r"/beta", "/bias"),
    (r"_embeddings", "_embeddings/weight"),
    (r"cls/predictions/output_bias", "cls/predictions/bias"),
    (r"cls/seq_relationship/output_weights", "cls/seq_relationship/weight"),
    (r"cls/seq_relationship/output_bias", "cls/seq_relationship/bias"),
    (r"cls/squad/output_weights", "qa_outputs/weight"),
    (r"cls/squad/output_bias", "qa_outputs/bias"),
    (r"^output_weights", "classifier/weight"),
    (r"^output_bias", "classifier/bias"),
]

_SAFETENSORS_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    # Not a type of NumPy's own, so that safetensors.numpy cannot load it.
    "BF16": tf.bfloat16.as_numpy_dtype,
    "I64": np.int64,
}


def find_weights(folder):
    """Path of the weights in a folder, or None."""
    for name in WEIGHTS_FILES:
        path = os.path.join(folder, name)
        if files.exists(path):
            return path
    return None


def read(folder):
    """Reads a folder with one of `WEIGHTS_FILES`; returns a `Checkpoint`.

    Raises:
      InputError: a file is damaged, or the model is not BERT.
    """
    path = find_weights(folder)
    if path.endswith(".safetensors"):
        arrays = _read_safetensors(path)
    else:
        with files.open_file(path) as f:
            arrays = torch_files.read(path, f)
    variables = {}
    unused = []
    for name, array in arrays.items():
        if _REDUNDANT.fullmatch(name):
            continue
        converted = _to_tensorflow(name)
        if converted is None:
            unused.append(name)
            continue
        if converted.endswith("/kernel"):
            array = array.T  # [out, in] to [in, out]
        variables[converted] = np.ascontiguousarray(array.astype(np.float32))
    _check_tables(path, arrays, variables)
    vocab_file = os.path.join(folder, VOCAB_FILE)
    return Checkpoint(
        variables,
        _read_config(os.path.join(folder, CONFIG_FILE)),
        vocab_file if files.exists(vocab_file) else None,
        tuple(sorted(unused)),
    )


def write(folder, variables, config, vocab_file, do_lower_case, architecture, settings):
    """Writes a folder that `from_pretrained` of transformers reads.

    Args:
      folder: local or gs:// path.
      variables: dict from the original's names to arrays; those that have no place in transformers are left out.
      config: a `BertConfig`.
      vocab_file: path of the vocabulary, or None.
      do_lower_case: whether text is lower-cased.
      architecture: class of transformers that the model is of, such as "BertForSequenceClassification".
      settings: further entries of config.json, such as id2label.
    """
    import safetensors.numpy

    arrays = {}
    for name, value in variables.items():
        value = np.asarray(value, np.float32)
        arrays[_from_tensorflow(name)] = np.ascontiguousarray(value.T if name.endswith("/kernel") else value)
    files.make_folder(folder)
    # The metadata says that the names and layouts are PyTorch's.
    _write(folder, WEIGHTS_FILES[0], safetensors.numpy.save(arrays, metadata={"format": "pt"}))
    names = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    content = {
        **config.to_dict(),
        "architectures": [architecture],
        "model_type": "bert",
        "hidden_act": names[config.hidden_act.lower()],
        "layer_norm_eps": modeling.LAYER_NORM_EPSILON,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        **settings,
    }
    _write_json(folder, CONFIG_FILE, content)
    if vocab_file is None:
        return
    files.copy(vocab_file, os.path.join(folder, VOCAB_FILE))
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    _write_json(folder, "special_tokens_map.json", special)
    tokenizer = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "strip_accents": None,  # as do_lower_case
        "tokenize_chinese_chars": True,
        "model_max_length": config.max_position_embeddings,
        **special,
    }
    _write_json(folder, "tokenizer_config.json", tokenizer)


def _write_json(folder, name, content):
    _write(folder, name, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())


def _write(folder, name, content):
    with files.atomic_write(os.path.join(folder, name)) as f:
        f.write(content)


def _read_safetensors(path):
    import safetensors

    with files.open_file(path) as f:
        content = f.read()
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError as e:
        raise InputError(f"{path}: the file is damaged ({e}).") from e
    return {
        name: np.frombuffer(tensor["data"], _SAFETENSORS_DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in tensors
    }


def _to_tensorflow(name):
    """Returns the TensorFlow name of a variable, or None if it has none."""
    for pattern, replacement in _NAMES:
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


def _from_tensorflow(name):
    """The reverse of `_to_tensorflow`."""
    for pattern, replacement in _ENDINGS:
        if re.search(rf"{pattern}$", name):
            name = re.sub(rf"{pattern}$", replacement, name)
            break
    return re.sub(r"/layer_(\d+)/", r"/layer/\1/", name).replace("/", ".")


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


def _read_config(path):
    """Reads a config.json as a `BertConfig`."""
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
    if config.hidden_act not in _ACTIVATIONS:
        supported = ", ".join(_ACTIVATIONS)
        raise InputError(f"{path}: hidden_act is {config.hidden_act!r}; supported are {supported}.")
    config.hidden_act = _ACTIVATIONS[config.hidden_act]
    config.check()
    return config
