"""What the arms of training_step.py have in common; nothing of this project, since not all may see it."""

import os
import sys

import numpy as np
import timed_steps

# The environment variable that names the folder of inputs.npz, the batch, and config.json, the model's.
FOLDER = "BENCHMARK_FOLDER"
# The environment before this project sets what it finds best for itself, if this is imported first.
ENVIRONMENT = dict(os.environ)


def serve(step):
    """Answers each number of steps that is read with what they took."""
    for line in sys.stdin:
        print("burst", *timed_steps.timed(step, int(line)), flush=True)


def inputs():
    """The batch, a dict of arrays."""
    return dict(np.load(os.path.join(os.environ[FOLDER], "inputs.npz")))


def dataset():
    """The batch, again and again."""
    import tensorflow.compat.v1 as tf

    return tf.data.Dataset.from_tensors(inputs()).repeat()
