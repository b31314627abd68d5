"""One watch at a time looks after a run, wherever it runs: an object in the bucket says which.

The object is created only if there is none, and rewritten every `RENEWAL` seconds by its owner, each time only if it is
still the owner's. One that has not been renewed for `EXPIRY` seconds is taken over; machines' clocks are assumed to
agree better than that.
"""

import calendar
import contextlib
import json
import platform
import threading
import time

from scripts.cloud.errors import CloudError, UsageError

FILE_NAME = "watch.lock"
RENEWAL = 60.0  # seconds
EXPIRY = 300.0  # seconds


@contextlib.contextmanager
def hold(settings, gcloud):
    """Holds the lock of the run.

    Yields:
      A function that raises a `CloudError` if the lock is lost: to be called before anything is made or deleted.

    Raises:
      UsageError: another watch holds it.
    """
    url = f"{settings.job}/{FILE_NAME}"
    me = {"host": platform.node(), "owner": settings.owner, "start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    content = json.dumps(me) + "\n"
    owned = {"generation": _take(gcloud, url, content), "renewed": time.monotonic()}
    ended = threading.Event()

    def renew():
        while not ended.wait(RENEWAL):
            with contextlib.suppress(CloudError):  # the network may come back before it expires
                generation = gcloud.storage_write(url, content, owned["generation"])
                if generation is None:
                    owned["renewed"] = float("-inf")
                    return
                owned.update(generation=generation, renewed=time.monotonic())

    def check():
        if not gcloud.shell.dry_run and time.monotonic() - owned["renewed"] > EXPIRY:
            raise CloudError("another watch has taken over, or this one was cut off from the bucket for too long.")

    thread = threading.Thread(target=renew, daemon=True)
    if not gcloud.shell.dry_run:
        thread.start()
    try:
        yield check
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()
        with contextlib.suppress(CloudError):
            gcloud.storage_delete(url, owned["generation"])


def holder(settings, gcloud):
    """Who holds the lock, as a dict with `host`, `owner` and `start`; None if nobody does, or not any more."""
    url = f"{settings.job}/{FILE_NAME}"
    found = gcloud.storage_describe(url)
    if found is None or _age(found) > EXPIRY:
        return None
    return json.loads(gcloud.storage_cat(url) or "null")


def _take(gcloud, url, content):
    generation = gcloud.storage_write(url, content, 0)
    if generation is not None:
        return generation
    found = gcloud.storage_describe(url)
    if found is not None and _age(found) > EXPIRY:
        generation = gcloud.storage_write(url, content, found["generation"])
        if generation is not None:
            return generation
    other = json.loads(gcloud.storage_cat(url) or "{}")
    raise UsageError(
        f"the run is already looked after: watch runs on {other.get('host', 'another machine')} since "
        f"{other.get('start', 'just now')}. If that one is dead, its lock expires {EXPIRY / 60:.0f} minutes after it."
    )


def _age(found):
    """Seconds since an object was written."""
    return time.time() - calendar.timegm(time.strptime(found["update_time"][:19], "%Y-%m-%dT%H:%M:%S"))
