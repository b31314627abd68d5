"""Checkpoints of other programs: read, converted, written, read back."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow.compat.v1 as tf
from arrays import assert_same
from numpy_bert import random_variables

from bert import modeling, pretraining_heads
from bert.errors import InputError
from bert.training import checkpoint_formats

CONFIG = {
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}


def model_shapes():
    """Returns {name: shape} of all variables of the pretraining model."""
    config = modeling.BertConfig.from_dict(CONFIG)
    with tf.Graph().as_default():
        model = modeling.BertModel(config, False, tf.zeros([1, 6], tf.int32))
        zeros = tf.zeros([1, 2], tf.int32)
        pretraining_heads.get_masked_lm_output(
            config, model.get_sequence_output(), model.get_embedding_table(), zeros, zeros, zeros
        )
        pretraining_heads.get_next_sentence_output(config, model.get_pooled_output(), tf.zeros([1], tf.int32))
        return {v.op.name: v.shape.as_list() for v in tf.trainable_variables()}


def hugging_face_arrays(variables, prefix="bert.", layer_norm=("weight", "bias")):
    """Returns the same weights as transformers names and lays them out."""
    arrays = {}
    for name, value in variables.items():
        key = name.replace("layer_", "layer.").replace("/", ".")
        key = key.removeprefix("bert.") if not prefix else key
        if key.endswith("kernel"):
            key, value = key.replace("kernel", "weight"), np.ascontiguousarray(value.T)
        elif key.endswith("_embeddings"):
            key += ".weight"
        key = key.replace("gamma", layer_norm[0]).replace("beta", layer_norm[1])
        key = key.replace("predictions.output_bias", "predictions.bias")
        key = key.replace("seq_relationship.output_weights", "seq_relationship.weight")
        key = key.replace("seq_relationship.output_bias", "seq_relationship.bias")
        arrays[key] = value
    return arrays


def write_hugging_face(folder, arrays, **config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **CONFIG, **config}))
    safetensors.numpy.save_file(arrays, str(folder / "model.safetensors"))
    return str(folder)


@pytest.fixture(scope="module")
def variables():
    return random_variables(model_shapes(), np.random.default_rng(0))


@pytest.mark.parametrize("layer_norm", [("weight", "bias"), ("gamma", "beta")])
@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_hugging_face_names(tmp_path, variables, prefix, layer_norm):
    if not prefix:
        variables = {name: value for name, value in variables.items() if name.startswith("bert/")}
    arrays = hugging_face_arrays(variables, prefix, layer_norm)
    if prefix:
        arrays["cls.predictions.decoder.weight"] = arrays["bert.embeddings.word_embeddings.weight"]
        arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"]
    arrays[prefix + "embeddings.position_ids"] = np.arange(6)[None]
    checkpoint = checkpoint_formats.read(write_hugging_face(tmp_path / "hf", arrays))
    assert_same(checkpoint.variables, variables)
    assert checkpoint.config.to_dict() == {**CONFIG, "hidden_act": "gelu_erf"}
    assert checkpoint.vocab_file is None


def test_task_heads_and_foreign_variables(tmp_path, variables):
    arrays = hugging_face_arrays(variables)
    arrays["classifier.weight"] = np.ones((3, 8), np.float16)
    arrays["classifier.bias"] = np.zeros(3, np.float32)
    arrays["qa_outputs.weight"] = np.ones((2, 8), np.float32)
    arrays["qa_outputs.bias"] = np.zeros(2, np.float32)
    arrays["adapter.weight"] = np.zeros(1, np.float32)
    found = checkpoint_formats.read(write_hugging_face(tmp_path, arrays)).variables
    assert set(found) - set(variables) == {
        "output_weights",
        "output_bias",
        "cls/squad/output_weights",
        "cls/squad/output_bias",
    }
    assert found["output_weights"].dtype == np.float32
    assert found["output_weights"].shape == (3, 8)


def test_bfloat16_is_read(tmp_path, variables):
    arrays = hugging_face_arrays(variables)
    bfloat16 = tf.bfloat16.as_numpy_dtype
    header, data = {}, b""
    for name, value in arrays.items():
        begin = len(data)
        data += value.astype(bfloat16).tobytes()
        header[name] = {"dtype": "BF16", "shape": value.shape, "data_offsets": [begin, len(data)]}
    header = json.dumps(header).encode()
    folder = write_hugging_face(tmp_path, arrays)
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    found = checkpoint_formats.read(folder).variables
    assert_same(found, {n: v.astype(bfloat16).astype(np.float32) for n, v in variables.items()})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "roberta"}, 'config.json: model_type is "roberta"'),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_act": "swiglu"}, "hidden_act is 'swiglu'; supported are gelu, gelu_new"),
        ({"num_attention_heads": 3}, "hidden_size 8 .* num_attention_heads 3"),
    ],
)
def test_other_architectures_are_refused(tmp_path, variables, config, message):
    with pytest.raises(InputError, match=message):
        checkpoint_formats.read(write_hugging_face(tmp_path, hugging_face_arrays(variables), **config))


def test_untied_output_weights_are_refused(tmp_path, variables):
    arrays = hugging_face_arrays(variables)
    arrays["cls.predictions.decoder.weight"] = arrays["bert.embeddings.word_embeddings.weight"] + 1
    with pytest.raises(InputError, match=r"cls\.predictions\.decoder\.weight differs"):
        checkpoint_formats.read(write_hugging_face(tmp_path, arrays))


def test_damaged_files_are_named(tmp_path, variables):
    folder = write_hugging_face(tmp_path / "hf", hugging_face_arrays(variables))
    path = tmp_path / "hf" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"model\.safetensors: the file is damaged"):
        checkpoint_formats.read(folder)
    prefix = checkpoint_formats.write_tf1(str(tmp_path / "tf"), checkpoint_formats.Checkpoint(variables))
    path = tmp_path / "tf" / "bert_model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"bert_model\.ckpt: the checkpoint cannot be read"):
        checkpoint_formats.read(prefix)


def test_tf1_round_trip_and_stripping(tmp_path, variables):
    vocab = tmp_path / "words.txt"
    vocab.write_text("[PAD]\n")
    trained = {**variables, "global_step": np.array(7, np.int64)}
    for name, value in variables.items():
        trained[name + "/adam_m"] = value * 2
        trained[name + "/adam_v"] = value * value
    config = modeling.BertConfig.from_dict(CONFIG)
    folder = str(tmp_path / "out")
    prefix = checkpoint_formats.write_tf1(folder, checkpoint_formats.Checkpoint(trained, config, str(vocab)))
    for path in (folder, prefix, prefix + ".index"):
        checkpoint = checkpoint_formats.read(path)
        assert_same(checkpoint.variables, trained)
        assert checkpoint.variables["global_step"].dtype == np.int64
        assert checkpoint.config.to_dict() == CONFIG
        assert checkpoint.vocab_file == str(tmp_path / "out" / "vocab.txt")
    assert_same(checkpoint_formats.strip_optimizer(trained), variables)


def test_newest_of_several(tmp_path, variables):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", [], use_resource=True)
        saver = tf.train.Saver()
        for step in (1, 2):
            x.load(step, session)
            saver.save(session, str(tmp_path / "model.ckpt"), global_step=step)
    assert checkpoint_formats.find_tf1(str(tmp_path)) == str(tmp_path / "model.ckpt-2")
    assert checkpoint_formats.read(str(tmp_path)).variables["x"] == 2
    (tmp_path / "checkpoint").unlink()
    assert checkpoint_formats.find_tf1(str(tmp_path)) is None
    with pytest.raises(InputError, match="no checkpoint found"):
        checkpoint_formats.read(str(tmp_path))
