"""Record files that are made only if what they are made from has changed."""

import hashlib
import json

from absl import logging

from bert import files
from bert.errors import InputError


def make(output, sources, settings, write):
    """Makes a file of records, unless it is there already, made from the same.

    Args:
      output: the TFRecord file to write; a small JSON file is put beside it.
      sources: paths of the files that the records are made from, such as text and vocabulary.
      settings: what else decides them; its `repr` counts.
      write: function that writes the records into the opened file that it is given, and returns what it has seen: a
        dict with "count", their number.

    Returns:
      What `write` has returned, and "fingerprint", a function of the sources' content and the settings.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for path in sources:
        _add_content(digest, path)
    fingerprint = digest.hexdigest()[:32]
    found = _read_description(output)
    if found.get("fingerprint") == fingerprint:
        logging.info("%s: the %d records of %s are there already", output, found["count"], sources[0])
        return found
    if files.exists(_description(output)):
        files.remove(_description(output))  # or it might describe other records, if this is interrupted
    with files.writing(output), files.atomic_write(output) as f:
        made = write(f)
    made["fingerprint"] = fingerprint
    with files.atomic_write(_description(output), "w") as f:
        f.write(json.dumps(made) + "\n")
    return made


def fingerprint(path):
    """What tells the content of a record file from another's: its fingerprint, if `make` made it, or else its size."""
    return _read_description(path).get("fingerprint") or files.size(path)


def _read_description(path):
    there = files.exists(path) and files.exists(_description(path))
    return files.read_json_object(_description(path)) if there else {}


def _description(path):
    return f"{path}.json"


def _add_content(digest, path):
    try:
        with files.open_file(path) as f:
            while content := f.read(1 << 20):
                digest.update(content)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}.") from e
