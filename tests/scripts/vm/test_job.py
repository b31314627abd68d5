"""A job is started once however often it is asked for, goes on without whoever did, and tells how it ended."""

import datetime
import fcntl
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

JOB = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "vm" / "job.py"
_SPEC = importlib.util.spec_from_file_location("job", JOB)
job_module = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(job_module)


class Run:
    """A folder in which a job may run."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "log"

    def ask(self, verb, *arguments, check=True):
        """The answer of a verb."""
        command = [sys.executable, JOB, verb, self.folder, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder.parent)
        assert not check or result.returncode == 0, result.stderr
        return json.loads(result.stdout) if result.returncode == 0 else result

    def start(self, script, name="1", **more):
        """Starts a shell script as a job."""
        options = [f"--{option}={value}" for option, value in more.items()]
        return self.ask("start", f"--id={name}", "--verb=pretrain", *options, "--", "bash", "-c", script)

    def state(self):
        """The state of the job."""
        return self.ask("status")["state"]

    def wait(self):
        """The state of the job at its end."""
        end = time.monotonic() + 30
        while (status := self.ask("status"))["state"] in ("running", "stopping"):
            assert time.monotonic() < end
            time.sleep(0.05)
        return status

    def lines(self, *arguments):
        """What `log` writes: position of the end and text of each line, and the state at the end."""
        command = [sys.executable, JOB, "log", self.folder, "--nonce=N", *map(str, arguments)]
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        parts = [line.split(":", 3) for line in output.splitlines() if line.startswith("N:") and line[2] != ":"]
        (news,) = (line[3:] for line in output.splitlines() if line.startswith("N::{"))
        return [(int(end), text) for _, _, end, text in parts], json.loads(news)


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "run" / "job")
    run.folder.parent.mkdir()
    yield run
    run.ask("kill")


def test_what_a_program_leaves_behind_does_not_keep_its_job_running(run):
    run.start("sleep 60 & exit 5")
    assert run.wait()["state"] == "failed"
    assert run.start("exit 0", name="2")["started"] and run.wait()["state"] == "finished"


def test_a_job_outlives_its_starter_and_keeps_its_status(run):
    assert run.state() == "absent"
    begin = time.monotonic()
    started = run.start("sleep 2; echo done; exit 5")
    assert time.monotonic() - begin < 2  # not bound to the caller's pipes
    assert started["started"] and started["state"] == "running"
    status = run.wait()
    assert (status["state"], status["exit_status"]) == ("failed", 5)
    assert "done\n" in run.log.read_text() and "with status 5\n" in run.log.read_text()


def test_the_same_start_never_starts_twice(run):
    # gcloud runs a command again after a broken connection: while the job runs, and also when it has ended already.
    assert run.start("echo once; sleep 4")["started"]
    assert not run.start("echo once; sleep 4")["started"]
    assert not run.start("echo another", name="2")["started"]
    assert run.wait()["state"] == "finished"
    again = run.start("echo once; sleep 4")
    assert not again["started"] and again["state"] == "finished"
    assert run.log.read_text().count("once") == 1 and "another" not in run.log.read_text()
    assert run.start("echo another", name="2")["started"]
    assert run.wait()["log_start"] > 0
    assert run.log.read_text().count("pretrain started") == 2


def test_many_starts_at_once_start_one(run):
    command = [sys.executable, JOB, "start", run.folder, "--verb=x"]
    starts = [
        subprocess.Popen([*command, f"--id={i}", "--", "bash", "-c", "sleep 5"], stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    answers = [json.loads(process.communicate(timeout=30)[0]) for process in starts]
    assert sum(answer["started"] for answer in answers) == 1
    assert len({answer["id"] for answer in answers}) == 1


def test_one_lock_for_two_runs_keeps_the_second_out(run):
    other = Run(run.folder.parent.parent / "other" / "job")
    other.folder.parent.mkdir()
    lock = run.folder.parent.parent / "lock"
    run.start("sleep 4", lock=lock)
    assert other.start("true", lock=lock) == {"state": "busy", "holder": str(run.folder), "started": False}
    run.wait()
    assert other.start("true", lock=lock)["started"]
    assert other.wait()["state"] == "finished" and run.state() == "finished"


def test_stop_sends_one_signal_and_waits(run):
    run.start("trap 'echo signal; sleep 1; exit 75' TERM; echo ready; while true; do sleep 0.1; done")
    while "ready" not in run.log.read_text():
        time.sleep(0.05)
    assert run.ask("stop", "--wait=0")["state"] == "stopping"
    status = run.ask("stop")
    assert (status["state"], status["exit_status"]) == ("stopped", 75)
    assert run.log.read_text().count("signal") == 1
    assert run.ask("stop")["state"] == "stopped"


def test_a_job_whose_processes_vanish_has_died(run):
    run.start("sleep 100")
    pid = run.ask("status")["pid"]
    supervisor = int((pathlib.Path("/proc") / str(pid) / "stat").read_text().split()[3])
    os.kill(supervisor, signal.SIGKILL)
    assert run.state() == "running"  # the program itself lives, and holds the lock
    os.killpg(pid, signal.SIGKILL)
    assert run.wait()["state"] == "died"
    assert run.start("true", name="2")["started"]
    assert run.wait()["state"] == "finished"


def test_the_log_is_followed_to_the_end_from_any_position(run):
    run.start("for i in 1 2 3; do echo line $i; sleep 0.3; done; printf 'no end'; exit 255")
    lines, state = run.lines("--follow", "--offset=0")
    texts = [text for _, text in lines]
    assert texts[1:4] == ["line 1", "line 2", "line 3"] and texts[4].startswith("no end=== pretrain ended")
    assert (state["state"], state["exit_status"]) == ("failed", 255)
    assert run.lines("--offset", lines[1][0])[0] == lines[2:]
    assert run.lines("--lines=2")[0] == lines[-2:]
    assert run.lines("--offset", lines[-1][0])[0] == []


def test_since_knows_times_of_day(run):
    run.folder.mkdir()
    hours = range(48, -1, -6)
    now = datetime.datetime.now().replace(microsecond=0)
    moments = [now - datetime.timedelta(hours=hour) for hour in hours]
    text = f"=== pretrain started {moments[0].astimezone(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ} on here\n"
    text += "".join(f"{moment:%H:%M:%S} {hour} hours ago\n  and more\n" for moment, hour in zip(moments, hours))
    run.log.write_text(text)
    found, moment = [], datetime.datetime.min
    for line in text.encode().splitlines()[1::2]:
        moment = job_module.time_of(line, moment if found else moments[0])
        found.append(moment)
    assert found == moments
    texts = [text[9:] for _, text in run.lines(f"--since={25 * 3600}")[0]]
    assert texts[::2] == ["24 hours ago", "18 hours ago", "12 hours ago", "6 hours ago", "0 hours ago"]


def test_a_full_disk_is_said_at_the_start_and_does_not_end_what_runs(run):
    run.folder.mkdir()
    run.log.symlink_to("/dev/full")
    failed = run.ask("start", "--id=1", "--verb=x", "--", "true", check=False)
    assert failed.returncode == 3 and "full" in failed.stderr and "Traceback" not in failed.stderr
    run.log.unlink()
    # The record of the end takes no room that was not there at the start.
    run.start("sleep 1; exit 4")
    record = run.folder / "job.json"
    size = record.stat().st_size
    (run.folder / "job.tmp").mkdir()  # nothing can be written beside it
    assert run.wait()["exit_status"] == 4
    assert record.stat().st_size == size


def test_what_cannot_be_started_says_so(run):
    run.ask("start", "--id=1", "--verb=x", "--", "./no-such-program")
    assert run.wait()["exit_status"] == 127
    assert "no-such-program cannot be started: No such file or directory" in run.log.read_text()


def test_looking_does_not_keep_others_from_starting(run):
    run.start("true")
    run.wait()
    with open(run.ask("status")["lock"]) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        looker = subprocess.Popen(["sleep", "0.3"], pass_fds=[lock.fileno()])
    assert run.start("true", name="2")["started"]
    looker.wait()
