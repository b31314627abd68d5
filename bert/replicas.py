"""Values across the replicas of one training step.

The same model code runs as a single replica, as one of the replicas of a TPU computation, and as one of the
replicas of a `tf.distribute` strategy. These functions find out which, so that nothing else has to.
"""

import tensorflow.compat.v1 as tf
from tensorflow.python.tpu import tpu_function


def count():
    """Number of replicas that run the current step together; 1 outside of any replication."""
    if _num_tpu_shards():
        return _num_tpu_shards()
    context = tf.distribute.get_replica_context()
    return context.num_replicas_in_sync if context else 1


def replica_id():
    """Which replica this is: an int32 scalar tensor, or the integer 0 if there is only one."""
    if count() == 1:
        return 0
    if _num_tpu_shards():
        from tensorflow.compiler.tf2xla.python import xla

        return tf.bitcast(xla.replica_id(), tf.int32)
    return tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)


def sum(tensors):
    """Adds up a dense tensor, or each of a list of them, over the replicas.

    Returns:
      The same structure. Every replica gets the same values; a single replica gets its own tensors back.
    """
    if count() == 1:
        return tensors
    if _num_tpu_shards():
        return tf.nest.map_structure(tf.tpu.cross_replica_sum, tensors)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def mean(tensors):
    """Averages a dense tensor, or each of a list of them, over the replicas; see `sum`."""
    replicas = count()
    if replicas == 1:
        return tensors
    return sum(tf.nest.map_structure(lambda tensor: tensor / replicas, tensors))


def local_copy(variable):
    """This replica's copy of a variable. Copies may be updated one by one if all get the same update."""
    copies = tf.distribute.get_strategy().experimental_local_results(variable)
    if len(copies) == 1:
        return copies[0]
    # Each machine has the copies of its own replicas, in their order.
    return copies[tf.get_static_value(replica_id()) % len(copies)]


def on_tpu():
    """Whether this is a replica of a TPU computation."""
    return _num_tpu_shards() is not None


def _num_tpu_shards():
    """Number of replicas of the TPU computation being built; None outside of one."""
    return tpu_function.get_tpu_context().number_of_shards
