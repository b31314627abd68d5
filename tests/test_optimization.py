"""The optimizer against NumPy, the schedule, and its independence of the number of replicas."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from numpy_bert import load_variables, random_batch

from bert import modeling, optimization, replicas
from bert.training import pretraining

TESTS = pathlib.Path(__file__).resolve().parent


def numpy_adam(variables, gradients_at, steps, init_lr, num_train_steps, num_warmup_steps):
    """Trains in float64 as the original's recipe says; returns the variables and both moments."""
    variables = {name: value.astype(np.float64) for name, value in variables.items()}
    m = {name: np.zeros_like(value) for name, value in variables.items()}
    v = {name: np.zeros_like(value) for name, value in variables.items()}
    for step in range(steps):
        gradients = gradients_at(variables)
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        lr = init_lr * (1 - step / num_train_steps)
        if step < num_warmup_steps:
            lr = init_lr * step / num_warmup_steps
        for name, value in variables.items():
            gradient = gradients[name] / max(norm, 1)
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient**2
            update = m[name] / (np.sqrt(v[name]) + 1e-6)
            if not any(word in name for word in ("LayerNorm", "layer_norm", "bias")):
                update += 0.01 * value
            variables[name] = value - lr * update
    return variables, m, v


def test_100_steps_equal_numpy():
    rng = np.random.default_rng(0)
    # A large gradient at first, which is clipped, and a small one later, which is not.
    initial = {
        "dense/kernel": rng.normal(0, 2, (3, 4)),
        "dense/bias": rng.normal(0, 2, 4),
        "LayerNorm/gamma": rng.normal(0, 0.1, 4),
        "output_layer_norm/beta": rng.normal(0, 0.1, 4),
        "output_weights": rng.normal(0, 2, (2, 4)),
    }
    targets = {name: rng.normal(size=value.shape) for name, value in initial.items()}

    def gradients_at(variables):
        return {name: 0.5 * (value - targets[name]) ** 3 for name, value in variables.items()}

    with tf.Graph().as_default(), tf.Session() as session:
        loss = 0
        for name, value in initial.items():
            variable = tf.get_variable(name, value.shape, use_resource=name.startswith("dense"))
            loss += tf.reduce_sum((variable - targets[name]) ** 4) / 8
        train_op = optimization.create_optimizer(loss, 0.05, 120, 10, use_tpu=False)
        global_step = tf.train.get_global_step()
        scalars = tf.get_collection(optimization.GRADIENT_NORM) + tf.get_collection(optimization.LEARNING_RATE)
        session.run(tf.global_variables_initializer())
        load_variables(session, tf.trainable_variables(), initial)
        norms = []
        for step in range(100):
            assert session.run(global_step) == step
            norm, learning_rate, _ = session.run([*scalars, train_op])
            norms.append(norm)
            assert learning_rate == pytest.approx(optimization.learning_rate_at(step, 0.05, 120, 10), rel=1e-6)
        assert session.run(global_step) == 100
        found = {v.op.name: session.run(v) for v in tf.global_variables()}
    assert norms[0] > 1 > norms[-1]
    variables, m, v = numpy_adam(initial, gradients_at, 100, 0.05, 120, 10)
    assert set(found) == {"global_step"} | {f"{n}{s}" for n in initial for s in ("", "/adam_m", "/adam_v")}
    for name in initial:
        np.testing.assert_allclose(found[name], variables[name], atol=1e-5)
        np.testing.assert_allclose(found[name + "/adam_m"], m[name], atol=1e-5)
        np.testing.assert_allclose(found[name + "/adam_v"], v[name], atol=1e-6)


@pytest.mark.parametrize("optimizer", optimization.OPTIMIZERS)
def test_weights_change_after_all_reads(optimizer):
    with tf.Graph().as_default() as graph:
        weights = tf.get_variable("dense/kernel", [3, 4], use_resource=True)
        loss = tf.reduce_sum(tf.square(tf.matmul(tf.ones([2, 3]), weights)))
        before = set(graph.get_operations())
        optimization.create_optimizer(loss, 0.1, 10, 0, use_tpu=False, optimizer=optimizer)
        [read] = [op for op in before if op.type == "ReadVariableOp" and op in _ancestors(loss.op)]
        changes = [
            op
            for op in set(graph.get_operations()) - before
            if op.type in ("AssignVariableOp", "ResourceApplyAdam") and op.inputs[0] is weights.handle
        ]
        assert changes
        assert all(read in _ancestors(op) for op in changes)


def _ancestors(operation):
    found, left = set(), [operation]
    while left:
        last = left.pop()
        new = {*(tensor.op for tensor in last.inputs), *last.control_inputs} - found
        found |= new
        left.extend(new)
    return found


@pytest.mark.parametrize("optimizer, correct", [("lamb", True), ("lamb_without_bias_correction", False)])
def test_lamb_equals_numpy(optimizer, correct):
    rng = np.random.default_rng(0)
    initial = {
        "bert/embeddings/table": rng.normal(size=(4, 3)),
        "bert/encoder/layer_0/kernel": rng.normal(size=(3, 3)),
        "bert/encoder/layer_1/kernel": np.zeros((3, 3)),  # without a norm, its step is not scaled
        "bert/encoder/layer_1/bias": rng.normal(size=3),
        "output_weights": rng.normal(size=(2, 3)),
    }
    heights = [-1, 0, 1, 1, 2]
    targets = {name: rng.normal(size=value.shape) for name, value in initial.items()}
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [tf.get_variable(name, value.shape, use_resource=True) for name, value in initial.items()]
        loss = tf.add_n([tf.reduce_sum((v - targets[v.op.name]) ** 2) / 100 for v in variables])
        train_op = optimization.create_optimizer(
            loss,
            0.1,
            20,
            0,
            use_tpu=False,
            optimizer=optimizer,
            layerwise_lr_decay=0.5,
            beta_2=0.98,
            power=0.5,
            end_lr=0.01,
        )
        session.run(tf.global_variables_initializer())
        load_variables(session, variables, initial)
        for _ in range(10):
            session.run(train_op)
        found = {variable.op.name: session.run(variable) for variable in variables}
    expected = {name: value.copy() for name, value in initial.items()}
    m, v = ({name: np.zeros_like(value) for name, value in initial.items()} for _ in range(2))
    for step in range(10):
        for (name, value), height in zip(expected.items(), heights):
            gradient = (value - targets[name]) / 50
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.98 * v[name] + 0.02 * gradient**2
            corrections = (1 - 0.9 ** (step + 1), 1 - 0.98 ** (step + 1)) if correct else (1, 1)
            update = m[name] / corrections[0] / (np.sqrt(v[name] / corrections[1]) + 1e-6)
            rate = (0.01 + 0.09 * (1 - step / 20) ** 0.5) * 0.5 ** (2 - height)
            if not name.endswith("bias"):
                update += 0.01 * value
                if value.any():
                    rate *= np.linalg.norm(value) / np.linalg.norm(update)
            expected[name] = value - rate * update
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("num_warmup_steps", [0, None, 10, 40])
def test_learning_rate(num_warmup_steps):
    with tf.Graph().as_default(), tf.Session() as session:
        optimization.create_optimizer(tf.get_variable("x", []) ** 2, 1e-4, 30, num_warmup_steps, use_tpu=False)
        learning_rate = tf.get_collection(optimization.LEARNING_RATE)[0]
        session.run(tf.global_variables_initializer())
        steps = [0, 1, 9, 10, 11, 29, 30, 31, 50]
        found = []
        for step in steps:
            tf.train.get_global_step().load(step, session)
            found.append(session.run(learning_rate))
    expected = [optimization.learning_rate_at(step, 1e-4, 30, num_warmup_steps) for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_warmup_replaces_the_decay():
    rates = [optimization.learning_rate_at(step, 1.0, 100, 10) for step in (0, 5, 9, 10, 55, 100, 200)]
    assert rates == pytest.approx([0, 0.5, 0.9, 0.9, 0.45, 0, 0])


def test_rows_of_an_embedding_are_summed_before_the_norm_and_all_rows_move():
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", [4, 2], initializer=tf.ones_initializer(), use_resource=True)
        loss = tf.reduce_sum(tf.gather(table, [1, 1, 1, 2])) / 10
        train_op = optimization.create_optimizer(loss, 0.1, 10, 0, use_tpu=False)
        session.run(tf.global_variables_initializer())
        _, norm = session.run([train_op, tf.get_collection(optimization.GRADIENT_NORM)[0]])
        assert norm == pytest.approx(np.sqrt(2 * (0.3**2 + 0.1**2)))
        values = session.run(table)
    # The untouched rows decay: 1 - 0.1 * 0.01.
    np.testing.assert_allclose(values[[0, 3]], 0.999, rtol=1e-6)
    assert (values[[1, 2]] < 0.95).all()


def test_a_gradient_that_is_not_finite_shows_in_every_variable():
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.get_variable("x", []), tf.get_variable("y", [])
        factor = tf.placeholder(tf.float32, [])
        train_op = optimization.create_optimizer(x * factor + y, 0.1, 10, 5, use_tpu=False)
        session.run(tf.global_variables_initializer())
        session.run(train_op, {factor: np.inf})
        assert np.isnan(session.run([x, y])).all()


def test_dropout_and_schedule_see_the_step_before_it_is_counted():
    # Reads and the assignment are unordered in a graph unless control dependencies order them.
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.get_or_create_global_step()
        x = tf.get_variable("x", [256, 256], use_resource=True)
        mask = modeling.dropout(tf.ones([256, 256]), 0.5)
        train_op = optimization.create_optimizer(tf.reduce_sum(x * mask), 0.1, 1000, 5, use_tpu=False)
        session.run(tf.global_variables_initializer())
        trained = [session.run([mask, train_op])[0] for _ in range(5)]
        for i, expected in enumerate(trained):
            step.load(i, session)
            np.testing.assert_array_equal(session.run(mask), expected)


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """Returns what training on 1 and on 2 replicas left behind."""
    folder = tmp_path_factory.mktemp("replicated")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    command = [sys.executable, str(TESTS / "replicated_training.py"), str(folder), "1", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [dict(np.load(folder / f"{replica_count}.npz")) for replica_count in (1, 2)]


def test_replicas_make_the_same_steps_as_one(replicated):
    one, two = replicated
    names = set(one) - {"dropped"}
    assert names == set(two) - {"dropped"}
    assert two["global_step"] == 4
    assert (one["norms"] > 1).all()
    for name in names:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_replicas_and_steps_drop_different_elements(replicated):
    dropped = np.concatenate(replicated[1]["dropped"])  # [steps * replicas, elements]
    for i, one in enumerate(dropped):
        assert one.mean() == pytest.approx(0.5, abs=0.07)
        for other in dropped[:i]:
            assert (one == other).mean() == pytest.approx(0.5, abs=0.1)


def training_step(config, features):
    """Builds the whole step of pretraining; returns its loss and train_op."""
    loss, _ = pretraining.build_losses(config, features, is_training=True, use_one_hot_embeddings=False)
    return loss, optimization.create_optimizer(loss, 1e-3, 100, 10, use_tpu=True)


TPU_CONFIG = modeling.BertConfig(
    31, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, type_vocab_size=2
)


def test_graph_for_8_tpu_cores_is_built():
    batch = random_batch(TPU_CONFIG, np.random.default_rng(0), batch_size=16)
    names = sorted(batch)
    with tf.Graph().as_default() as graph:
        tf.train.get_or_create_global_step()
        seen = []

        def step(*tensors):
            seen.append(replicas.count())
            loss, train_op = training_step(TPU_CONFIG, dict(zip(names, tensors)))
            with tf.control_dependencies([train_op]):
                return tf.identity(loss)

        tf.tpu.shard(step, [tf.constant(batch[name]) for name in names], num_shards=8)
        types = [op.type for op in graph.get_operations()]
        assert seen == [8]
        assert types.count("TPUReplicateMetadata") == 1
        # The gradients of all variables, and the weight of the masked tokens.
        assert types.count("CrossReplicaSum") == len(tf.trainable_variables()) + 1
        assert "XlaReplicaId" in types
    assert replicas.count() == 1


def test_training_step_compiles_with_xla():
    # The same compiler front end as a TPU's: an operation it lacks, or a dynamic shape, is an error here.
    batch = random_batch(TPU_CONFIG, np.random.default_rng(0), batch_size=2)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        global_step = tf.train.get_or_create_global_step()
        features = {name: tf.constant(value) for name, value in batch.items()}
        [loss] = tf.xla.experimental.compile(lambda: training_step(TPU_CONFIG, features))
        session.run(tf.global_variables_initializer())
        losses = [session.run(loss) for _ in range(3)]
        assert session.run(global_step) == 3
        assert np.isfinite(losses).all()
