"""The lock in a bucket: one owner, taken over when he is gone or silent, and told so when it is lost."""

import json
import signal
import subprocess
import sys
import time

import pytest

HOLD = """
import platform, sys, time
from bert.training import locking
locking.RENEWAL, locking.EXPIRY = float(sys.argv[2]), float(sys.argv[3])
if len(sys.argv) > 4:
    platform.node = lambda: sys.argv[4]
try:
    with locking.hold(sys.argv[1]) as check:
        print("held", flush=True)
        sys.stdin.read()
        check()
except (locking.InputError, locking.TrainingError) as e:
    print(e, flush=True)
"""


@pytest.fixture
def start(gcs):
    processes = []

    def start(renewal=0.2, expiry=60, host=""):
        command = [sys.executable, "-W", "ignore", "-c", HOLD, f"gs://{gcs.bucket}/out", str(renewal), str(expiry)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([*command, *([host] if host else [])], env=gcs.env, text=True, **pipes)
        processes.append(process)
        return process, process.stdout.readline()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_the_second_is_refused_while_the_first_renews(gcs, start):
    gcs.fault("POST .*run.lock", "lose_reply")  # created, but the client must find out by asking
    first, line = start(host="one")
    assert line == "held\n"
    holder = json.loads(gcs.read("out/run.lock"))
    _, line = start(host="two")
    assert f"is in use by process {holder['process']} on one, since 20" in line and "last sign of life" in line
    time.sleep(0.5)
    assert first.communicate("")[0] == ""  # has not lost it
    assert gcs.names() == []


def test_a_killed_process_of_this_machine_is_no_obstacle(start):
    first, _ = start()
    first.kill()
    first.wait()
    assert start()[1] == "held\n"


def test_a_silent_owner_is_replaced_and_told(start):
    first, _ = start(host="one", expiry=1)
    first.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    second, line = start(host="two", expiry=1)
    assert line == "held\n"
    first.send_signal(signal.SIGCONT)
    time.sleep(1)
    assert "has been taken over by process" in first.communicate("")[0]
    assert second.communicate("")[0] == ""
