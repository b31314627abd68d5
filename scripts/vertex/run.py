"""Fetches the code of a job and runs a command in it: what the container of a job of Vertex AI starts with.

python3 run.py gs://bucket/code.tar.gz COMMAND...
"""

import os
import pathlib
import sys
import tarfile
import tempfile

from google.cloud import storage


def main(url, *command):
    """Never returns: the command takes this process over."""
    folder = tempfile.mkdtemp(prefix="bert-")
    archive = pathlib.Path(folder, "code.tar.gz")
    with archive.open("wb") as f:
        storage.Client().download_blob_to_file(url, f)
    with tarfile.open(archive) as code:
        code.extractall(folder)
    os.chdir(folder)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
