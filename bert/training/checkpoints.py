"""Where a training starts from: its own newest checkpoint, another model's, or nothing."""

import dataclasses
import re

import tensorflow.compat.v1 as tf
from absl import logging

from bert import modeling
from bert.errors import InputError


@dataclasses.dataclass(frozen=True)
class Initialisation:
    """What of an initial checkpoint goes into the model.

    Attributes:
      checkpoint: path prefix of the checkpoint.
      matched: names of the variables that are in both.
      new: names of the model's variables that the checkpoint lacks.
      unused: names of the checkpoint's variables that the model lacks, without optimizer slots.
    """

    checkpoint: str
    matched: tuple
    new: tuple
    unused: tuple


def latest(output_dir):
    """Path prefix of the newest checkpoint in a folder and its global step; (None, 0) if there is none."""
    checkpoint = tf.train.latest_checkpoint(output_dir)
    if checkpoint is None:
        return None, 0
    return checkpoint, int(re.search(r"-(\d+)$", checkpoint).group(1))


def read_shapes(checkpoint, flag="init_checkpoint"):
    """Names and shapes of the variables in a checkpoint.

    Raises:
      InputError: there is no checkpoint at that path.
    """
    try:
        return dict(tf.train.list_variables(checkpoint))
    except (ValueError, tf.errors.OpError) as e:
        raise InputError(
            f"--{flag}={checkpoint}: no TensorFlow checkpoint can be read there ({e}). A checkpoint is named by "
            f"its prefix, as in bert_model.ckpt for bert_model.ckpt.index."
        ) from e


def plan_initialisation(checkpoint, variables):
    """Finds out which variables an initial checkpoint gives, and refuses one that does not fit.

    Args:
      checkpoint: path prefix.
      variables: dict from the model's variable names to their shapes (lists).

    Returns:
      An `Initialisation`.

    Raises:
      InputError: a variable has other shapes on the two sides, or none has the same name.
    """
    there = read_shapes(checkpoint)
    for name, shape in variables.items():
        if name in there and list(there[name]) != list(shape):
            raise InputError(
                f"--init_checkpoint={checkpoint}: {name} has shape {list(there[name])} there but {list(shape)} in this "
                f"model. Use the bert_config.json that belongs to the checkpoint."
            )
    matched = tuple(name for name in variables if name in there)
    if not matched:
        raise InputError(
            f"--init_checkpoint={checkpoint}: none of its {len(there)} variables is in this model "
            f"(it has {', '.join(sorted(there)[:3])}, ...; this model has {', '.join(sorted(variables)[:3])}, ...)."
        )
    return Initialisation(
        checkpoint,
        matched,
        tuple(name for name in variables if name not in there),
        tuple(
            name
            for name in there
            if name not in variables and not name.endswith(("/adam_m", "/adam_v")) and name != "global_step"
        ),
    )


def log_initialisation(initialisation):
    """Says in one line what comes from the initial checkpoint."""
    logging.info(
        "initialising from %s: %d of %d variables; new: %s; unused: %s",
        initialisation.checkpoint,
        len(initialisation.matched),
        len(initialisation.matched) + len(initialisation.new),
        _some(initialisation.new),
        _some(initialisation.unused),
    )


def initialise(init_checkpoint, use_tpu):
    """Makes the graph's trainable variables start from a checkpoint, as far as it has them.

    Returns:
      A function that makes the scaffold, or None. (On a TPU the values are set when the session is made.)
    """
    assignment_map, _ = modeling.get_assignment_map_from_checkpoint(tf.trainable_variables(), init_checkpoint)
    if use_tpu:

        def scaffold_fn():
            tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
            return tf.train.Scaffold()

        return scaffold_fn
    tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
    return None


def _some(names, limit=4):
    if not names:
        return "none"
    return ", ".join(names[:limit]) + (f", and {len(names) - limit} more" if len(names) > limit else "")
