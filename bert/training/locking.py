"""One process at a time works in an output folder; the second is told who does.

On a disk the operating system holds the lock, and releases it when the process ends however it ends. In a bucket the
lock is an object that is created only if there is none (if-generation-match 0), and rewritten by its owner every
`RENEWAL` seconds, each time only if it is still the owner's. One that has not been renewed for `EXPIRY` seconds is
taken over: machines' clocks are assumed to differ by much less than that.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import platform
import threading
import time
import uuid

from absl import logging

from bert import files
from bert.errors import InputError, TrainingError

FILE_NAME = "run.lock"
RENEWAL = 20.0  # seconds
EXPIRY = 120.0  # seconds


@contextlib.contextmanager
def hold(folder):
    """Holds the lock of an output folder, which is made if need be.

    Args:
      folder: local or gs:// path.

    Yields:
      A function that raises TrainingError if the lock has been lost: before anything of importance is written, the
      owner should call it.

    Raises:
      InputError: another process holds it, or the folder cannot be written to.
    """
    me = {"host": platform.node(), "process": os.getpid(), "start": _now().isoformat(timespec="seconds")}
    with _hold_object(folder, me) if folder.startswith("gs://") else _hold_file(folder, me) as check:
        yield check


def holder(folder):
    """Who holds the lock of an output folder: a dict with "host", "process" and "start", or None.

    The holder of a lock in a bucket may be gone since up to `EXPIRY` seconds.
    """
    path = os.path.join(folder, FILE_NAME)
    if not files.exists(path):
        return None
    if folder.startswith("gs://"):
        return _parse(files.read_text(path))
    with open(path, "rb+") as f:
        try:
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return _parse(f.read())
    return None


def _in_use(folder, holder, more=""):
    return InputError(
        f"--output_dir={folder} is in use by process {holder.get('process', '?')} on {holder.get('host', '?')}, "
        f"since {holder.get('start', '?')}.{more} Wait for it or stop it, or take another --output_dir."
    )


@contextlib.contextmanager
def _hold_file(folder, me):
    path = os.path.join(folder, FILE_NAME)
    with files.writing(path):
        files.make_folder(folder)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            # Not flock: that one would be held on by worker processes that outlive a killed parent.
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in (errno.EACCES, errno.EAGAIN):
                raise _in_use(folder, _parse(os.read(handle, 4096))) from None
            # Some network file systems have no locks. Better without one than not at all.
            logging.warning("%s: no lock (%s): make sure that no other process works there", path, e.strerror)
        with files.writing(path):
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps(me).encode())
        yield lambda: None
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _hold_object(folder, me):
    me["token"] = uuid.uuid4().hex
    lock = _ObjectLock(folder, me)
    lock.acquire()
    stop = threading.Event()
    thread = threading.Thread(target=lock.renew_until, args=(stop,), daemon=True)
    thread.start()
    try:
        yield lock.check
    finally:
        stop.set()
        thread.join()
        lock.release()


class _ObjectLock:
    """An object in a bucket that says who works in its folder, and is renewed while he does."""

    def __init__(self, folder, me):
        from google.auth import exceptions as auth_exceptions
        from google.cloud import exceptions, storage

        self._exceptions = exceptions
        self._folder = folder
        self._me = me
        self._taken_by = None
        bucket, _, name = folder[len("gs://") :].partition("/")
        try:
            self._client = storage.Client()
        except (auth_exceptions.GoogleAuthError, OSError) as e:
            raise InputError(f"{folder}: no credentials for Cloud Storage: {e}") from e
        self._blob = self._client.bucket(bucket).blob(f"{name.strip('/')}/{FILE_NAME}".lstrip("/"))

    def acquire(self):
        """Creates the object, or takes over one that has expired or belongs to a process that is gone."""
        generation = 0
        for _ in range(3):
            if self._write(generation):
                return
            holder, age = self._read()
            if holder is None:  # it has just been released
                generation = 0
            elif holder.get("token") == self._me["token"]:
                return  # written by an attempt whose answer was lost
            elif age < EXPIRY and not _is_gone(holder):
                raise _in_use(
                    self._folder,
                    holder,
                    f" Its last sign of life is {age:.0f} s old; if it is gone, run again in {EXPIRY - age:.0f} s.",
                )
            else:
                logging.info("%s: taking over from process %s on %s", self._folder, holder["process"], holder["host"])
                generation = self._blob.generation
        raise _in_use(self._folder, holder or {})

    def renew_until(self, stop):
        """Rewrites the object again and again, until an event is set or another process has taken over."""
        renewed = time.monotonic()
        while not stop.wait(RENEWAL):
            try:
                if self._write(self._blob.generation):
                    renewed = time.monotonic()
                    continue
                holder, _ = self._read()
                if holder is None or holder.get("token") != self._me["token"]:
                    self._taken_by = holder or {}
                    return
            except Exception as e:  # a storage that fails now may answer the next time
                logging.warning(
                    "%s: %.0f s since the lock was renewed: %s", self._folder, time.monotonic() - renewed, e
                )

    def check(self):
        """Raises TrainingError if another process has taken over."""
        if self._taken_by is not None:
            holder = self._taken_by
            raise TrainingError(
                f"{self._folder} has been taken over by process {holder.get('process', '?')} on "
                f"{holder.get('host', '?')}, as the lock was not renewed for {EXPIRY:.0f} s. Nothing more is written."
            )

    def release(self):
        """Removes the object, if it is still one's own."""
        if self._taken_by is None:
            try:
                self._blob.delete(if_generation_match=self._blob.generation)
            except Exception as e:
                logging.warning("%s: the lock could not be removed, and expires: %s", self._folder, e)

    def _write(self, generation):
        """Writes the object if it has a generation (0: if it does not exist); whether it had."""
        try:
            self._blob.upload_from_string(json.dumps(self._me), if_generation_match=generation)
        except self._exceptions.PreconditionFailed:
            return False
        except self._exceptions.NotFound:
            raise InputError(f"{self._folder}: there is no such bucket.") from None
        except self._exceptions.Forbidden as e:
            raise InputError(f"{self._folder}: cannot be written: {e.message}") from e
        return True

    def _read(self):
        """The holder and the age of the lock in seconds; (None, 0) if there is none."""
        try:
            self._blob.reload()
            content = self._blob.download_as_bytes()
        except self._exceptions.NotFound:
            return None, 0.0
        return _parse(content), (_now() - self._blob.updated).total_seconds()


def _is_gone(holder):
    """Whether the holder was a process of this machine that runs no more."""
    if holder.get("host") != platform.node() or not isinstance(holder.get("process"), int):
        return False
    return holder["process"] == os.getpid() or not files.is_running(holder["process"])


def _parse(content):
    try:
        return json.loads(content)
    except ValueError:
        return {}


def _now():
    return datetime.datetime.now(datetime.timezone.utc)
