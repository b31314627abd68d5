"""Files that may be local or remote (``gs://``), without importing TensorFlow for local ones.

Workers that prepare data must start fast and stay small, so TensorFlow's file system is loaded only when a
path has a scheme.
"""

import contextlib
import errno
import glob
import json
import os
import shutil
import socket
import tempfile

from absl import logging

from bert.errors import InputError

# What a user can do something about when a file cannot be written.
_WRITE_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
)


# Bytes from which on the user is told what is going to be used.
_WORTH_TELLING = 100e6


def is_remote(path):
    """True if `path` has a scheme, such as ``gs://bucket/name``."""
    return "://" in str(path)


def _gfile():
    import tensorflow as tf

    return tf.io.gfile


def open_file(path, mode="rb"):
    """Opens a local or remote file; text modes are UTF-8 without newline translation."""
    if is_remote(path):
        return _gfile().GFile(path, mode)
    if "b" in mode:
        return open(path, mode)
    return open(path, mode, encoding="utf-8", newline="")


def read_text(path):
    """Returns the whole content of a UTF-8 file."""
    with open_file(path, "rb") as f:
        content = f.read()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as e:
        line = content.count(b"\n", 0, e.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8 ({e.reason}).") from e


def read_json_object(path):
    """Returns the content of a JSON file that holds one object, as a dictionary.

    Raises:
      InputError: there is no such file, or it is not valid JSON (names the line), or holds something else.
    """
    if not exists(path):
        raise InputError(f"{path}: no such file.")
    try:
        content = json.loads(read_text(path).removeprefix("\ufeff"))
    except json.JSONDecodeError as e:
        raise InputError(f"{path}, line {e.lineno}, column {e.colno}: not valid JSON: {e.msg}.") from e
    except RecursionError as e:
        raise InputError(f"{path}: the JSON in it is nested too deeply.") from e
    if not isinstance(content, dict):
        raise InputError(f'{path}: an object such as {{"key": value}} is expected, not {type(content).__name__}.')
    return content


def exists(path):
    """True if a file or folder is there."""
    return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def size(path):
    """Size of a file in bytes."""
    return _gfile().stat(path).length if is_remote(path) else os.path.getsize(path)


def make_folder(path):
    """Makes a folder and its parents; it may be there already. Remote folders need no making."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)


def list_folder(path):
    """Names in a folder, sorted; empty if there is no such folder."""
    if is_remote(path):
        names = _gfile().listdir(path) if _gfile().isdir(path) else []
        return sorted(name.rstrip("/") for name in names)
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def remove(path):
    """Removes a file."""
    if is_remote(path):
        _gfile().remove(path)
    else:
        os.remove(path)


def remove_folder(path):
    """Removes a folder and all that is in it; it may be missing."""
    if not is_remote(path):
        shutil.rmtree(path, ignore_errors=True)
    elif _gfile().isdir(path):
        _gfile().rmtree(path)


def rename(source, target):
    """Moves a file within one file system, replacing `target`; atomic on a local disk."""
    if is_remote(source):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def copy(source, target):
    """Copies a file, local or remote on either side; `target` appears whole or not at all."""
    with open_file(source) as f, atomic_write(target) as g:
        shutil.copyfileobj(f, g, 1 << 20)


def expand_globs(patterns, flag):
    """Expands comma-separated globs to a sorted list of files, in the order of the patterns.

    Args:
      patterns: a string such as ``"a/*.txt,b.txt"``, or a list of such strings.
      flag: the flag that holds it, for the message.

    Raises:
      InputError: a pattern matches no file.
    """
    if isinstance(patterns, str):
        patterns = [patterns]
    found = []
    for pattern in (part.strip() for text in patterns for part in text.split(",") if part.strip()):
        if is_remote(pattern):
            matches = sorted(_gfile().glob(pattern)) if _has_magic(pattern) else [pattern] * exists(pattern)
        else:
            # A file whose own name has glob characters in it is meant literally.
            matches = [pattern] if os.path.exists(pattern) else sorted(glob.glob(os.path.expanduser(pattern)))
        matches = [match for match in matches if is_remote(match) or not os.path.isdir(match)]
        if not matches:
            raise InputError(f"--{flag}: no file matches {pattern!r}.")
        found.extend(match for match in matches if match not in found)
    if not found:
        raise InputError(f"--{flag}: no files given.")
    return found


def _has_magic(pattern):
    return any(character in pattern for character in "*?[")


@contextlib.contextmanager
def atomic_write(path, mode="wb"):
    """Opens a file for writing that appears under its name only when it is complete.

    A local file is written beside its place, flushed to disk and renamed, so that a crash or a full disk
    leaves either the old content or none. An object in a bucket appears only when it is closed, so that a
    failure must not close it in the ordinary way: it is written to a temporary local file and copied at the end.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "content")
            with open_file(local, mode) as f:
                yield f
            with open(local, "rb") as f, _gfile().GFile(path, "wb") as g:
                shutil.copyfileobj(f, g, 1 << 20)
        return
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with open_file(temporary, mode) as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException as e:
        if isinstance(e, OSError) and e.errno is not None and e.filename is None:
            e.filename = path  # which a write that fails does not tell
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


@contextlib.contextmanager
def writing(path):
    """Turns a full disk, missing rights and the like, met while writing `path`, into errors in words."""
    try:
        yield
    except OSError as e:
        if e.errno not in _WRITE_ERRORS:
            raise
        raise InputError(f"{path}: cannot be written: {os.strerror(e.errno)}.") from e


def check_space(folder, size, purpose):
    """Checks that the disk of a local folder has room.

    Args:
      folder: an existing folder.
      size: bytes wanted.
      purpose: what for, for the messages.

    Raises:
      InputError: less than `size` bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if size > _WORTH_TELLING:
        logging.info("%.0f MB wanted in %s for %s; %.0f MB free.", size / 1e6, folder, purpose, free / 1e6)
    if size > free:
        raise InputError(
            f"{folder}: {size / 1e6:.0f} MB are wanted for {purpose}, but only {free / 1e6:.0f} MB are free."
        )


def temporary_path(path):
    """A hidden local path beside `path`, whose name tells which process of which machine it belongs to."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{socket.gethostname()}-{os.getpid()}.tmp")


def remove_leftovers(path):
    """Removes what processes of this machine left at their `temporary_path` of `path` when they were killed."""
    own = temporary_path(path)
    stem = own[: own.rindex("-") + 1]
    for leftover in glob.glob(glob.escape(stem) + "*.tmp"):
        process = leftover[len(stem) : -len(".tmp")]
        if not process.isdigit() or (leftover != own and is_running(int(process))):
            continue
        if os.path.isdir(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            os.remove(leftover)


def is_running(process):
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
