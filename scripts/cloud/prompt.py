"""What the verbs say and ask on the terminal."""

import sys
import time

from scripts.cloud.errors import UsageError


def say(settings, text):
    """Prints a line; a dry run makes it a comment among the commands that it prints."""
    print(f"# {text}" if settings.dry_run else text, flush=True)


def confirm(settings, question):
    """Asks, and returns only if the answer is yes.

    YES=1 and a dry run count as yes.

    Args:
      settings: a `Settings`.
      question: without the question mark.

    Raises:
      UsageError: the answer is no, or nobody is there to give one.
    """
    if settings.dry_run:
        say(settings, f"{question}? Here it would ask.")
    if settings.yes or settings.dry_run:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question}? There is no terminal to answer at: give YES=1 to go on.")
    print(f"{question}? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was done.")


class Progress:
    """Says now and then for how long something has been going on.

    Args:
      settings: a `Settings`.
      what: as in "my-tpu is being made".
    """

    def __init__(self, settings, what):
        self._settings = settings
        self._what = what
        self._start = time.monotonic()

    def __call__(self):
        """Says it."""
        say(self._settings, f"{self._what}: {duration(time.monotonic() - self._start)}")


def duration(seconds):
    """Seconds as text for people: "2 d 03:04", "3:04:05" or "4:05"."""
    minutes, seconds = divmod(round(max(0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d}:{minutes:02d}"
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
