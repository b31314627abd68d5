"""Jobs on a machine elsewhere, through the real gcloud and ssh: broken connections, closed laptops, vanished machines.

All of the scripts are the project's, but for the one that the job runs: it counts.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import fake_vm
import pytest
import stand_ins

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """#!/usr/bin/env bash
source "$(dirname "$0")/lib.sh"
if is_remote; then exec_cloud "${1/train/pretrain}"; fi
trap 'echo "checkpoint is saved"; exit 75' TERM
echo "corpus=${CORPUS:-} out=$OUT tpu=$TPU_NAME"
for i in $(seq "$STEPS"); do
  echo "step $i"
  sleep 0.5
done
exit "$SEED"
"""


class Laptop:
    """A checkout from which verbs are run, and a TPU VM whose environment is set up."""

    def __init__(self, cloud, folder):
        self.cloud, self.folder, self.processes = cloud, folder, []
        shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("Makefile", "requirements.txt"):
            shutil.copy(ROOT / name, folder)
        (folder / "bert").mkdir()
        (folder / "scripts" / "pretrain.sh").write_text(PROGRAM)
        cloud.make_bucket()
        cloud.make_tpu()
        venv = cloud.home() / "bert-venv"
        (venv / "bin").mkdir(parents=True)
        (venv / "bin" / "python").symlink_to(sys.executable)
        (venv / ".place").write_text(str(cloud.home()))
        (venv / ".installed-requirements.txt").write_text((ROOT / "requirements.txt").read_text() * 2)

    def start(self, verb, **variables):
        """Starts a verb; its process has its output in `stdout`."""
        given = {"TPU_NAME": "my-tpu", "BUCKET": "gs://my-bucket", "ZONE": "us-central1-b", "YES": "1"}
        given.update({"STEPS": "6", "SEED": "0", **variables})
        words = [f"{name}={value}" for name, value in given.items()]
        process = subprocess.Popen(
            ["make", "--no-print-directory", verb, *words],
            cwd=self.folder,
            env=self.cloud.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, verb, **variables):
        """Runs a verb; returns what it printed and the status that make reports, 0 if none."""
        return self.end(self.start(verb, **variables))

    def end(self, process, printed=""):
        """Waits for a verb; returns what it printed, and the status that make reports, 0 if none."""
        # Not by communicate(), which leaves out what `until` has read beyond its line.
        printed += process.stdout.read()
        process.wait()
        status = re.search(r"Error (\d+)\n$", printed)
        return printed, int(status[1]) if status else process.returncode

    def until(self, process, text):
        """Reads what a verb prints until a line has a text."""
        printed = ""
        while text not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        return printed

    def log(self):
        """The log on the machine."""
        return (self.cloud.home() / "bert-runs" / "pretrain" / "job" / "log").read_text()

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def laptop(cloud, tmp_path):
    if not fake_vm.find_sshd():
        pytest.skip("needs sshd: sudo apt-get install openssh-server")
    laptop = Laptop(cloud, tmp_path)
    yield laptop
    laptop.close()
    cloud.reset()


def steps(text):
    return [int(number) for number in re.findall(r"^step (\d+)$", text, re.MULTILINE)]


def test_connections_that_break_lose_nothing_and_start_nothing_twice(laptop):
    corpus = laptop.folder / "my 'corpus' $(touch hit).txt"
    corpus.write_text("A text.\n")
    laptop.cloud.drop_ssh("start", "job.py status")
    laptop.cloud.drop_ssh("end", "job.py start")
    laptop.cloud.drop_ssh("4", "job.py log")
    printed, status = laptop.run("pretrain", CORPUS=str(corpus), STEPS="12", SEED="7")
    assert status == 7
    assert steps(printed) == list(range(1, 13))
    assert f"corpus=gs://my-bucket/pretrain/data/corpus/0/{corpus.name}" in printed and "tpu=local" in printed
    assert laptop.log().count("pretrain started") == 1
    assert not list(laptop.folder.rglob("hit")) and not list(laptop.cloud.home().rglob("hit"))
    names = laptop.cloud.names()
    assert f"pretrain/data/corpus/0/{corpus.name}" in names and "pretrain/job/status.json" in names
    assert laptop.cloud.read("pretrain/job/log").decode() == laptop.log()


def test_what_a_person_does_to_the_follower_does_not_reach_the_job(laptop):
    first = laptop.start("pretrain", STEPS="600")
    printed = laptop.until(first, "step 1\n")
    second = laptop.start("pretrain", STEPS="600")  # another laptop, or the same command again
    seen = laptop.until(second, "step 2\n")
    assert "pretrain is running on my-tpu" in seen and "other settings" not in seen
    os.killpg(second.pid, signal.SIGKILL)  # it is closed
    os.killpg(_descendant(first.pid, "job.py log"), signal.SIGKILL)  # gcloud and its ssh
    printed += laptop.until(first, "Connecting to my-tpu again")
    printed += laptop.until(first, "step ")
    os.kill(_descendant(first.pid, "-m scripts.cloud"), signal.SIGINT)  # Ctrl-C
    printed, status = laptop.end(first, printed)
    assert status == 130, printed
    assert "the job goes on on my-tpu" in printed and "make logs TPU_NAME=my-tpu" in printed
    assert steps(printed) == list(range(1, len(steps(printed)) + 1))
    before = len(steps(laptop.log()))
    printed, status = laptop.run("stop")
    assert status == 0 and "pretrain is stopped" in printed
    assert len(steps(laptop.log())) >= before and laptop.log().count("checkpoint is saved") == 1
    printed, status = laptop.run("logs", LINES="2")
    assert status == 75 and "checkpoint is saved" in printed and not steps(printed)


def test_two_laptops_at_once_start_one_job(laptop):
    printed, status = laptop.run("logs")  # makes the key that both have
    assert status == 0 and "Nothing was started" in printed
    both = [laptop.start("pretrain", STEPS="30") for _ in range(2)]
    ends = [laptop.end(process) for process in both]
    assert [status for _, status in ends] == [0, 0], ends
    assert [steps(printed) for printed, _ in ends] == 2 * [list(range(1, 31))]
    assert laptop.log().count("pretrain started") == 1


def test_a_machine_that_vanishes_is_said_and_its_log_stays(laptop):
    process = laptop.start("pretrain", STEPS="600")
    printed = laptop.until(process, "step 1\n")
    end = time.monotonic() + 120
    while "pretrain/job/log" not in laptop.cloud.names():
        assert time.monotonic() < end
        time.sleep(0.5)
    laptop.cloud.set_node("my-tpu", state="PREEMPTED")
    printed, status = laptop.end(process, printed)
    assert status == 3 and "the TPU my-tpu is PREEMPTED" in printed and "make watch" in printed
    printed, status = laptop.run("logs")
    assert status == 3 and "corpus=" in printed and "This is the copy in gs://my-bucket/pretrain/job/log" in printed


def test_a_shell_and_curves_through_ssh(laptop):
    words = ["make", "--no-print-directory", "ssh", "TPU_NAME=my-tpu", "ZONE=us-central1-b"]
    shell = {"cwd": laptop.folder, "env": laptop.cloud.env, "capture_output": True, "text": True, "timeout": 400}
    result = subprocess.run(words, input='echo "at $HOME"; exit 7\n', **shell)
    assert f"at {laptop.cloud.home()}" in result.stdout and "Error 7" in result.stderr
    program = laptop.cloud.home() / "bert-venv" / "bin" / "tensorboard"
    program.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} -m tensorboard.main "$@"\n')
    program.chmod(0o755)
    process = laptop.start("tensorboard")
    laptop.until(process, "http://localhost:6006 shows gs://my-bucket/pretrain/out")
    end = time.monotonic() + 400
    while True:
        try:
            with stand_ins.NO_PROXY.open("http://localhost:6006/", timeout=10) as page:
                assert page.status == 200 and b"TensorBoard" in page.read()
            break
        except OSError:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C on the terminal reaches all of them
    printed, status = laptop.end(process)
    assert status and "Traceback" not in printed
    time.sleep(1)
    with pytest.raises(OSError):
        stand_ins.NO_PROXY.open("http://localhost:16006/", timeout=10)


# As PROGRAM, but what it does depends on how often it was started: it hangs, makes steps for ever, is done.
UNSTEADY = """#!/usr/bin/env bash
source "$(dirname "$0")/lib.sh"
if is_remote; then exec_cloud "${1/train/pretrain}"; fi
trap 'exit 75' TERM
echo start >>STARTS
case $(wc -l <STARTS) in
  1) echo "hangs"; sleep 900 & wait ;;
  2) for i in $(seq 900); do echo "step $i"; sleep 0.5; done ;;
  *) echo "done" ;;
esac
"""


def test_watch_recovers_a_job_that_hangs_and_a_machine_that_was_deleted(laptop):
    starts = laptop.folder / "starts"
    program = laptop.folder / "scripts" / "pretrain.sh"
    program.write_text(UNSTEADY.replace("STARTS", str(starts)))
    first = laptop.start("pretrain")
    laptop.until(first, "hangs")
    os.killpg(first.pid, signal.SIGKILL)
    watch = laptop.start("watch", HANG_MINUTES="0.1", WATCH_SECONDS="1")
    printed = laptop.until(watch, "restart: no new step for ")
    printed += laptop.until(watch, "the job runs")
    laptop.cloud.lose_node("my-tpu")
    printed, status = laptop.end(watch, printed)
    assert status == 0 and "recreate: it is ABSENT" in printed and "done: the job is done" in printed, printed
    assert starts.read_text() == 3 * "start\n" and laptop.cloud.node("my-tpu")["state"] == "READY"
    assert laptop.log().count("pretrain started") == 3  # it goes on after that of the machine before


def test_watch_ends_what_does_not_get_better_and_leaves_nothing_that_costs(laptop):
    _, status = laptop.run("pretrain", STEPS="1", SEED="2")
    assert status == 2
    printed, status = laptop.run("watch", WATCH_SECONDS="1")
    assert (
        status == 2 and "the program refuses its settings" in printed and "restart" not in printed.split("refuses")[0]
    )
    assert "still there and costs" in printed and laptop.cloud.node("my-tpu")
    _, status = laptop.run("pretrain", STEPS="1", SEED="3")
    assert status == 3
    printed, status = laptop.run("watch", WATCH_SECONDS="0.1", MAX_HOURS="100")
    assert status == 3, printed
    assert (
        "gives up: 3 restarts have brought no checkpoint after step 0, and again: the job failed with status 3"
        in printed
    )
    assert "my-tpu is deleted" in printed and not laptop.cloud.state()["nodes"]
    assert laptop.cloud.read("pretrain/job/log").decode().count("pretrain started") == 5


def test_a_control_vm_is_made_looked_after_and_deleted(laptop):
    laptop.cloud.lose_node("my-tpu")
    starts = laptop.folder / "starts"
    starts.write_text("start\n")  # so that it makes steps for ever, and is done the next time
    (laptop.folder / "scripts" / "pretrain.sh").write_text(UNSTEADY.replace("STARTS", str(starts)))
    place = {"TPU_NAME": "grpc://10.0.0.2:8470", "CONTROL_VM": "my-vm"}
    printed, status = laptop.run("cloud-up", **place)
    assert status == 0 and "my-vm and gs://my-bucket are ready" in printed, printed
    (vm,) = laptop.cloud.state()["instances"].values()
    assert vm["labels"] == {"managed-by": "bert-on-tpu", "run": "pretrain", "owner": vm["labels"]["owner"]}
    assert vm["machineType"].endswith("/e2-standard-4")
    first = laptop.start("pretrain", **place)
    laptop.until(first, "step 1\n")
    os.killpg(first.pid, signal.SIGKILL)
    stop = ["gcloud", "compute", "instances", "stop", "my-vm", "--quiet"]
    subprocess.run(stop, env=laptop.cloud.env, check=True, capture_output=True)
    printed, status = laptop.run("watch", WATCH_SECONDS="1", **place)
    assert status == 0 and "my-vm: recreate: it is STOPPED" in printed and "done: the job is done" in printed, printed
    printed, status = laptop.run("clean-cloud", **place)
    assert status == 0 and not laptop.cloud.state()["instances"], printed


def _descendant(pid, text):
    """Id of the process below another whose command line has a text."""
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for candidate in sorted(parents):
        above = candidate
        while above in parents and above != pid:
            above = parents[above]
        command = pathlib.Path(f"/proc/{candidate}/cmdline")
        if above == pid and command.exists() and text in command.read_text().replace("\0", " "):
            return candidate
    raise AssertionError(f"no process with {text}")
