"""What every program shares: strict flags, errors without stack traces, plain log lines."""

import logging as std_logging
import os
import sys
import time

from absl import app, flags, logging

from bert import stopping
from bert.errors import Checked, InputError, TrainingError, in_words

EXIT_INPUT_ERROR = 2
EXIT_TRAINING_ERROR = 3
# Told to stop by a signal; run again, the program goes on.
EXIT_STOPPED = stopping.EXIT_STOPPED


def run(main, required=()):
    """Parses the flags strictly and calls ``main()``.

    Unknown flags are errors with a suggestion (``tf.app.run`` ignores them silently). A mistake of the user's, be it
    a flag or a file, is printed in words, with exit status 2; so is a training or a storage that fails, with status 3.
    SIGTERM and SIGINT stop the program as `bert.stopping` describes, with status 75.

    Args:
      main: a function of no arguments.
      required: names of flags that must be given.
    """
    for name in required:
        flags.mark_flag_as_required(name)
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    logging.set_stderrthreshold(logging.INFO)
    logging.get_absl_handler().setFormatter(_LineFormatter())
    # Estimator tells of each graph and session it makes, and warns that it is deprecated; the programs say
    # themselves what matters of that. Its logger has a handler of its own, which would print everything twice.
    tensorflow_logger = std_logging.getLogger("tensorflow")
    tensorflow_logger.setLevel(std_logging.ERROR)
    tensorflow_logger.handlers.clear()

    def guarded(argv):
        if len(argv) > 1:
            fail(f"unexpected argument {argv[1]!r}: every option is a flag, as in --flag=value.")
        stopping.install()
        try:
            main()
        except Checked:
            logging.info("--check_only: all that can be checked before training holds")
        except InputError as e:
            fail(str(e))
        except TrainingError as e:
            fail(str(e), EXIT_TRAINING_ERROR)
        except stopping.Stopped as e:
            fail(f"stopped by {e.reason}; run again to go on.", EXIT_STOPPED)
        except Exception as e:
            message = in_words(e)
            if message is None:
                raise
            fail(message, EXIT_TRAINING_ERROR)

    app.run(guarded, flags_parser=_parse_flags)


def _parse_flags(argv):
    try:
        return flags.FLAGS(argv)
    except flags.Error as e:
        fail(f"{e}\nPass --helpshort or --helpfull to see help on flags.")


class _LineFormatter(std_logging.Formatter):
    """The time and the message, after the level if it is more than a note."""

    def format(self, record):
        level = "" if record.levelno <= std_logging.INFO else f"{record.levelname}: "
        return f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {level}{record.getMessage()}"


def fail(message, status=EXIT_INPUT_ERROR):
    """Ends the program with a message for the user."""
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr, flush=True)
    sys.exit(status)


def flag_values():
    """Dict of the program's own flags, without those of the libraries it uses."""
    values = {}
    for module, module_flags in flags.FLAGS.flags_by_module_dict().items():
        if not module.startswith(("absl.", "tensorflow")):
            values.update({flag.name: flag.value for flag in module_flags})
    return values
