"""What the arms of training_step.py have in common; nothing of this project, since not all may see it."""

import os
import sys
import time

import numpy as np

# The environment variable that names the folder of inputs.npz, the batch, and config.json, the model's.
FOLDER = "BENCHMARK_FOLDER"
# The environment before this project sets what it finds best for itself, if this is imported first.
ENVIRONMENT = dict(os.environ)


def serve(step):
    """Answers each number of steps that is read with what they took."""
    for line in sys.stdin:
        count = int(line)
        cpu, wall = time.process_time(), time.monotonic()
        for _ in range(count):
            loss = step()
        print("burst", (time.process_time() - cpu) / count, (time.monotonic() - wall) / count, float(loss), flush=True)


def inputs():
    """The batch, a dict of arrays."""
    return dict(np.load(os.path.join(os.environ[FOLDER], "inputs.npz")))


def features():
    """The batch as Tensors, from a dataset."""
    import tensorflow.compat.v1 as tf

    return tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(inputs()).repeat()).get_next()


def stepper(loss, *operations):
    """Returns a function that makes one step in a new session, and returns the loss."""
    import tensorflow.compat.v1 as tf

    session = tf.Session()
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    return lambda: session.run([loss, *operations])[0]
