"""The one exception for mistakes that the user can mend."""


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message names the file, line or flag, the two values that disagree, and what to do. Programs print it
    without a stack trace and exit with status 2; libraries simply raise it.
    """


class TrainingError(RuntimeError):
    """A training cannot go on, as when the loss is not a number.

    The message says at which step, why, and what to do. Programs print it and exit with status 3.
    """
