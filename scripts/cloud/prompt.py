"""Questions before anything is spent or deleted."""

import sys

from scripts.cloud.errors import UsageError


def confirm(settings, question):
    """Asks, and returns only if the answer is yes.

    YES=1 and a dry run count as yes.

    Args:
      settings: a `Settings`.
      question: without the question mark.

    Raises:
      UsageError: the answer is no, or nobody is there to give one.
    """
    if settings.yes or settings.dry_run:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question}? There is no terminal to answer at: give YES=1 to go on.")
    print(f"{question}? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was done.")
