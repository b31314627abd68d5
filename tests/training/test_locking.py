"""The second process on an output folder is refused, and a lock never outlives its owner for long."""

import os
import signal
import subprocess
import sys

import pytest

from bert.errors import InputError
from bert.training import locking

HOLD = """
import sys, time
from bert.training import locking
with locking.hold(sys.argv[1]) as check:
    print("held", flush=True)
    sys.stdin.read()
    check()
"""


def start(folder):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder], text=True, **pipes)
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_holds_the_folder(tmp_path):
    process = start(tmp_path)
    with (
        pytest.raises(InputError, match=rf"in use by process {process.pid} on \S+, since 20"),
        locking.hold(str(tmp_path)),
    ):
        pass
    process.communicate("")
    with locking.hold(str(tmp_path)):
        pass


def test_a_killed_owner_leaves_no_lock(tmp_path):
    process = start(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with locking.hold(str(tmp_path)):
        pass


def test_children_do_not_hold_on_to_the_lock(tmp_path):
    read, write = os.pipe()
    with locking.hold(str(tmp_path)):
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    process = start(tmp_path)
    process.communicate("")
    os.close(write)
    os.close(read)
    os.waitpid(child, 0)
    assert process.returncode == 0


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"file/out/run.lock: cannot be written: Not a directory"),
        locking.hold(str(tmp_path / "file" / "out")),
    ):
        pass
