"""Dicts of arrays, such as the variables of a checkpoint."""

import os

import numpy as np
import tensorflow.compat.v1 as tf


def read_variables(folder, step):
    """All variables of a checkpoint: model, optimizer slots and global step."""
    reader = tf.train.load_checkpoint(os.path.join(folder, f"model.ckpt-{step}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same(one, other):
    """Checks that two dicts have the same arrays, bit for bit."""
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
