"""The exceptions that programs tell in words: a user's mistake, and a training that cannot go on."""

import os
import re
import sys


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message names the file, line or flag, the two values that disagree, and what to do. Programs print it
    without a stack trace and exit with status 2; libraries simply raise it.
    """


class TrainingError(RuntimeError):
    """A training cannot go on, as when the loss is not a number.

    The message says at which step, why, and what to do. Programs print it and exit with status 3.
    """


class Checked(Exception):
    """With --check_only: everything is checked, and nothing is wrong. Programs say so and exit with status 0."""


def in_words(error):
    """What a person is to be told of an exception, in one line, if files, storage or a device are at fault.

    Returns:
      The text, or None if the exception looks like a mistake in a program, whose stack trace matters.
    """
    if isinstance(error, (InputError, TrainingError)):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None and error.errno is not None:
        return f"{error.filename}: {os.strerror(error.errno)}."
    tensorflow = sys.modules.get("tensorflow")  # without it none of its errors can be here
    if tensorflow is None or not isinstance(error, tensorflow.errors.OpError):
        return None
    causes = {
        tensorflow.errors.NotFoundError: "A file or bucket is missing",
        tensorflow.errors.PermissionDeniedError: "Access is denied",
        tensorflow.errors.UnauthenticatedError: "No valid credentials",
        tensorflow.errors.ResourceExhaustedError: "The disk is full, or memory ran out",
        tensorflow.errors.DataLossError: "A file is damaged",
        tensorflow.errors.OutOfRangeError: "A file ends too soon or has grown too large",
        tensorflow.errors.AbortedError: "The storage does not answer",
        tensorflow.errors.UnavailableError: "The storage or the TPU does not answer",
        tensorflow.errors.DeadlineExceededError: "The storage or the TPU does not answer",
    }
    cause = causes.get(type(error))
    if cause is None:
        return None
    return f"{cause}: {_first_message(error.message).rstrip('.')}."


def _first_message(text):
    """What happened, out of TensorFlow's account of where in the graph it happened."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    nodes = [i for i, line in enumerate(lines) if line.startswith("Node: ")]
    if lines[0].startswith("Graph execution error") and nodes:
        lines = lines[nodes[-1] + 1 :]
    if re.match(r"\d+ root error", lines[0]):
        lines = lines[1:]
    return re.sub(r"^\(\d+\) [A-Z_]+: *", "", lines[0])
