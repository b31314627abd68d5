"""make rehearse: the whole life of a run on this machine, with the real gcloud, ssh, scripts and training.

Google's APIs and the TPU VM are the stand-ins of tests/cloud, on loopback. Each verb is the one that a person would
give, as a process of its own. Unlike the other modules of this folder this one needs the project's environment.
"""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cloud"))
import stand_ins  # noqa: E402

TPU, BUCKET = "my-tpu", "gs://my-bucket"
STEPS, CHECKPOINT_STEPS = 400, 100
VARIABLES = {"TPU_NAME": TPU, "BUCKET": BUCKET}
TRAINING = {"STEPS": str(STEPS), "ARGS": f"--save_checkpoints_steps={CHECKPOINT_STEPS} --log_steps=50"}
# What TensorFlow says on every start, and Google's libraries about versions of Python; of no use to a reader.
_NOISE = re.compile(r"cuda_(dnn|fft|blas)|FutureWarning|warnings\.warn|Broken pipe")
_PATIENCE_SECONDS = 900


class Failed(Exception):
    """Something did not happen as it should."""


class Rehearsal:
    """The stand-ins, and what is shown.

    Args:
      cloud: a `stand_ins.Cloud`.
    """

    def __init__(self, cloud):
        self.cloud = cloud
        # What a user's own settings in the environment or in config.mk say must not get into it.
        self.env = {name: value for name, value in cloud.env.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
        self.env.update(ZONE="us-central1-b", YES="1", WATCH_SECONDS="2", PYTHONUNBUFFERED="1")
        self.times, self.processes = [], []

    def title(self, text):
        """Says what is going to happen."""
        print(f"\n== {len(self.times) + 1}. {text}", flush=True)

    def make(self, verb, expected=0, until=None, **variables):
        """Runs a verb, shows what it says, and takes its time.

        Args:
          verb: as in `pretrain`.
          expected: its exit status.
          until: function that is called with each line; once it returns true, the verb is left alone with what it
            does: the whole process group is killed, as when a laptop is switched off.
          **variables: of the Makefile.
        """
        begin = time.monotonic()
        process = self.start(verb, **variables)
        for line in process.stdout:
            self.show(line)
            if until and until(line):
                os.killpg(process.pid, signal.SIGKILL)
                self.note("the laptop is switched off: make, gcloud and ssh are killed")
                break
        status = process.wait()
        self.ended(verb, begin)
        if not until and status != expected:
            raise Failed(f"make {verb} ended with status {status} instead of {expected}")

    def start(self, verb, **variables):
        """Starts a verb."""
        given = {**VARIABLES, **variables}
        words = [f"{name}={value}" for name, value in given.items()]
        print(
            " ".join(["$ make", verb, *(f"{name}={shlex.quote(value)}" for name, value in given.items())]), flush=True
        )
        process = subprocess.Popen(
            ["make", "--no-print-directory", verb, *words],
            cwd=ROOT,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def close(self):
        """Ends what still runs."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def show(self, line):
        """Shows a line of a verb."""
        if not _NOISE.search(line) and line.strip():
            print(f"  {line.rstrip()}"[:200], flush=True)

    def note(self, text):
        """Says what the rehearsal itself does."""
        print(f"  >>> {text}", flush=True)

    def ended(self, verb, begin):
        """Notes how long a verb took."""
        seconds = time.monotonic() - begin
        self.times.append((verb, seconds))
        print(f"  ({seconds:.0f} s)", flush=True)

    def step(self):
        """The step of the last checkpoint in the bucket; 0 if there is none."""
        name = "pretrain/out/checkpoint"  # written once the files of the checkpoint are there
        content = self.cloud.read(name).decode() if name in self.cloud.names() else ""
        newest = re.match(r'model_checkpoint_path: "model\.ckpt-(\d+)"', content)
        return int(newest[1]) if newest else 0

    def wait_for_step(self, step):
        """Waits for a checkpoint of a step that is no older."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while self.step() < step:
            if time.monotonic() > end:
                raise Failed(f"there was no checkpoint of step {step} after {_PATIENCE_SECONDS} s")
            time.sleep(0.3)


def rehearse(rehearsal):
    """The life of a run, from nothing to nothing."""
    cloud = rehearsal.cloud
    rehearsal.title("A bucket and a TPU VM")
    rehearsal.make("cloud-up")

    rehearsal.title("Is everything as it must be? Asked before anything costs more")
    rehearsal.make("preflight")

    rehearsal.title("Code and data to the bucket and onto the machine")
    rehearsal.make("sync")

    rehearsal.title("Pretraining; the laptop is switched off as soon as it makes steps")
    rehearsal.make("pretrain", until=lambda line: re.search(r"step \d+ of", line), **TRAINING)

    rehearsal.title("The training has not noticed")
    rehearsal.make("status")

    rehearsal.title(f"A watch looks after it; the TPU is preempted after step {CHECKPOINT_STEPS}")
    begin = time.monotonic()
    watch = rehearsal.start("watch")
    reader = threading.Thread(target=lambda: [rehearsal.show(line) for line in watch.stdout], daemon=True)
    reader.start()
    rehearsal.wait_for_step(CHECKPOINT_STEPS)
    first = cloud.node(TPU)["id"]
    cloud.set_node(TPU, state="PREEMPTED")
    rehearsal.note(f"{TPU} is preempted: the machine is gone, with its disk and all that ran on it")
    status = watch.wait(_PATIENCE_SECONDS)
    reader.join()
    rehearsal.ended("watch", begin)
    if status or cloud.node(TPU)["id"] == first or rehearsal.step() != STEPS:
        raise Failed(f"watch ended with status {status} at step {rehearsal.step()}")

    rehearsal.title("The same command again: it is done")
    rehearsal.make("pretrain", **TRAINING)

    rehearsal.title("Evaluation")
    rehearsal.make("eval")

    rehearsal.title("The end of the log")
    rehearsal.make("logs", LINES="4")

    rehearsal.title("Everything is removed, the data too")
    rehearsal.make("clean-cloud", DELETE_DATA="1")
    state = cloud.state()
    left = [name for kind in ("nodes", "queued", "instances") for name in state[kind]] + cloud.buckets()
    if left:
        raise Failed(f"left over: {left}")
    rehearsal.note("no TPU VM, no queued resource, no VM, no bucket is left")


def main():
    """Rehearses and returns an exit status."""
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(
        "The whole life of a run in the cloud, rehearsed on this machine. make, gcloud, ssh and the training are the\n"
        "real ones; Google's APIs and the TPU VM are stand-ins that listen on 127.0.0.1, and that VM trains on its\n"
        "CPU. Nothing leaves this machine, and nothing costs anything.\n\n"
        "$ export ZONE=us-central1-b YES=1 WATCH_SECONDS=2",
        flush=True,
    )
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rehearsal-"))
    process, url, ca_file = stand_ins.start_server("google_apis", folder)
    rehearsal = Rehearsal(stand_ins.Cloud(url, ca_file, folder))
    try:
        rehearse(rehearsal)
    except (Failed, subprocess.TimeoutExpired) as e:
        print(f"\nFAILED: {e}", flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        rehearsal.close()
        process.terminate()  # which kills the machines
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    parts = ", ".join(f"{verb} {seconds:.0f} s" for verb, seconds in rehearsal.times)
    minutes, seconds = divmod(round(time.monotonic() - begin), 60)
    print(f"\nAll of it in {minutes}:{seconds:02d} minutes on {os.cpu_count()} cores: {parts}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
