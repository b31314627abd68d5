"""Trains a small model for some steps on several CPU devices of one process, and writes what came out.

A program of its own, since the number of devices must be known before TensorFlow starts.

    python tests/replicated_training.py FOLDER REPLICAS ...

For each number, FOLDER gets a file REPLICAS.npz.
"""

import re
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from numpy_bert import load_variables, random_batch, random_variables, small_config

from bert import modeling, optimization, replicas
from bert.training import pretraining

BATCH_SIZE = 8
STEPS = 4
MAX_REPLICAS = 4


def train(num_replicas, output):
    """Trains on equal parts of the same global batches, whatever the number of replicas."""
    config = small_config(num_hidden_layers=1)
    rng = np.random.default_rng(0)
    batches = [random_batch(config, rng, BATCH_SIZE) for _ in range(STEPS)]
    if num_replicas == 1:
        strategy = tf.distribute.get_strategy()
    else:
        strategy = tf.distribute.MirroredStrategy([f"cpu:{i}" for i in range(num_replicas)])

    with tf.Graph().as_default(), strategy.scope():
        tf.set_random_seed(1)
        tf.train.get_or_create_global_step()
        features = {name: tf.placeholder(value.dtype, value.shape) for name, value in batches[0].items()}
        collected = []

        def step():
            rows = BATCH_SIZE // num_replicas
            start = replicas.replica_id() * rows
            f = {name: tensor[start : start + rows] for name, tensor in features.items()}
            loss, _ = pretraining.build_losses(config, f, is_training=True, use_one_hot_embeddings=False)
            collected.append((loss, tf.equal(modeling.dropout(tf.ones([1000]), 0.5), 0)))
            return optimization.create_optimizer(loss, 1e-3, 2 * STEPS, 2, use_tpu=False)

        train_op = strategy.extended.call_for_each_replica(step)
        train_op = train_op if num_replicas == 1 else strategy.group(train_op)
        local_copies = strategy.experimental_local_results
        norm = tf.get_collection(optimization.GRADIENT_NORM)[0]
        trained = [copy for variable in tf.trainable_variables() for copy in local_copies(variable)]
        names = {copy.op.name: re.sub(r"/replica_\d+$", "", copy.op.name) for copy in trained}
        initial = random_variables({names[v.op.name]: v.shape.as_list() for v in trained}, np.random.default_rng(1))
        losses, norms, dropped = [], [], []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            load_variables(session, trained, {copy: initial[name] for copy, name in names.items()})
            for batch in batches:
                fetched = session.run(
                    {"collected": collected, "norm": norm, "train": train_op},
                    {features[name]: value for name, value in batch.items()},
                )
                losses.append(np.mean([loss for loss, _ in fetched["collected"]]))
                norms.append(fetched["norm"])
                dropped.append([mask for _, mask in fetched["collected"]])
            results = {}
            for name, copies in session.run({v.op.name: list(local_copies(v)) for v in tf.global_variables()}).items():
                for value in copies:
                    np.testing.assert_array_equal(value, copies[0])
                results[name] = copies[0]
    np.savez(output, losses=losses, norms=norms, dropped=dropped, **results)


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * MAX_REPLICAS)
    folder, *numbers = sys.argv[1:]
    for number in numbers:
        train(int(number), f"{folder}/{number}.npz")
