"""What every program shares: strict flags, errors without stack traces, plain log lines."""

import os
import sys

from absl import app, flags, logging

from bert.errors import InputError

EXIT_USER_ERROR = 2


def run(main, required=()):
    """Parses the flags strictly and calls ``main()``.

    Unknown flags are errors with a suggestion (``tf.app.run`` ignores them silently), and a mistake of the
    user's is printed in words, with exit status 2.

    Args:
      main: a function of no arguments.
      required: names of flags that must be given.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    for name in required:
        flags.mark_flag_as_required(name)
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    logging.set_stderrthreshold(logging.INFO)

    def guarded(argv):
        if len(argv) > 1:
            fail(f"unexpected argument {argv[1]!r}: every option is a flag, as in --flag=value.")
        try:
            main()
        except InputError as e:
            fail(str(e))

    app.run(guarded)


def fail(message):
    """Ends the program with a message for the user."""
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr, flush=True)
    sys.exit(EXIT_USER_ERROR)
