"""Gradients of a batch that is too large for the device's memory, from micro-batches one after the other."""

import dataclasses

import tensorflow.compat.v1 as tf

from bert import modeling, optimization, stateless


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a training step computes: names of its metrics, and names and shapes of the variables it changes."""

    metrics: tuple
    variables: tuple


def signature(build, spec):
    """Finds the `Signature` of a step.

    Args:
      build: as of `gradients`.
      spec: dict from the features' names to `tf.FixedLenFeature`.
    """
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        features = {
            name: tf.zeros([1, *of.shape], tf.int32 if of.dtype == tf.int64 else of.dtype) for name, of in spec.items()
        }
        loss, metrics = build(features)
        pairs = optimization.dense_gradients(loss)
        return Signature(
            tuple(sorted(metrics)), tuple((variable.name, variable.shape.as_list()) for _, variable in pairs)
        )


def gradients(build, features, num_micro_batches, of):
    """Computes the mean loss of a batch and its gradients.

    The micro-batches run in a loop within the step, so that memory does not grow with their number.

    Args:
      build: function from a dict of features to a loss, and a dict of scalar metrics. The batch's loss is the mean of
        those of its equal micro-batches.
      features: dict of Tensors [batch, ...]; the batch is a multiple of `num_micro_batches`.
      num_micro_batches: int; with 1 there is no loop.
      of: the `Signature` of build, which a loop needs.

    Returns:
      The loss, a dict of the metrics' means, and pairs of gradient and variable.
    """
    if num_micro_batches == 1:
        loss, metrics = build(features)
        return loss, metrics, optimization.dense_gradients(loss)
    parts = {
        name: tf.reshape(
            value, [num_micro_batches, value.shape[0] // num_micro_batches, *modeling.get_shape_list(value)[1:]]
        )
        for name, value in features.items()
    }  # [micro-batches, micro-batch, ...] each

    def add(index, scalars, sums):
        with stateless.micro_batch(index, num_micro_batches):
            loss, metrics = build({name: tf.gather(part, index) for name, part in parts.items()})
            # Here too, since a layer may be computed once more for its gradient.
            found = {variable.name: gradient for gradient, variable in optimization.dense_gradients(loss)}
        sums = [total + found[name] for total, (name, _) in zip(sums, of.variables)]
        return index + 1, scalars + tf.stack([loss, *(metrics[name] for name in of.metrics)]), sums

    _, scalars, sums = tf.while_loop(
        lambda index, *_: index < num_micro_batches,
        add,
        [tf.zeros([], tf.int32), tf.zeros([1 + len(of.metrics)]), [tf.zeros(shape) for _, shape in of.variables]],
        parallel_iterations=1,
        back_prop=False,
        maximum_iterations=num_micro_batches,
    )
    loss, *means = tf.unstack(scalars / num_micro_batches)
    trained = {variable.name: variable for variable in tf.trainable_variables()}
    pairs = [(total / num_micro_batches, trained[name]) for total, (name, _) in zip(sums, of.variables)]
    return loss, dict(zip(of.metrics, means)), pairs
