"""make logs: the log of the run's job, followed to the job's end; from the bucket if the machine is gone."""

import os
import re

from scripts.cloud import follow, prompt
from scripts.cloud.errors import CloudError, UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_GONE = ("not_found", "terminal", "unreachable")


def main(settings, gcloud):
    """Prints and follows the log; returns the job's exit status once it has ended."""
    settings.need("VM")
    lines, since = _lines(os.environ.get("LINES", "")), _seconds(os.environ.get("SINCE", ""))
    if not lines and not since:
        lines = 20
    try:
        return follow.follow(settings, gcloud, lines=lines, since=since)
    except CloudError as e:
        if e.kind not in _GONE or not settings.bucket:
            raise
        text = gcloud.storage_cat(f"{settings.job}/log")
        if text is None:
            raise
        for line in text.splitlines()[-lines:]:
            print(line)
        prompt.say(settings, f"This is the copy in {settings.job}/log, at most half a minute behind the machine.")
        raise


def _lines(value):
    if value and (not value.isdigit() or int(value) == 0):
        raise UsageError(f"LINES={value!r} cannot be used: it is a whole number above zero.")
    return int(value or 0)


def _seconds(value):
    match = re.fullmatch(r"(\d+)([smhd]?)", value)
    if value and not match:
        raise UsageError(f"SINCE={value!r} cannot be used: it is a time such as 30s, 10m, 2h or 1d.")
    return int(match[1]) * _UNITS[match[2] or "s"] if match else 0
