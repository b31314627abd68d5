"""`run.json`: what a run was asked to do, what it did, and how it ended."""

import datetime
import json
import os
import platform
import subprocess
import sys
import time

import numpy
import tensorflow as tf
from absl import logging

from bert import __version__, files
from bert.errors import in_words
from bert.training import run_folder
from bert.training.run_folder import read_results  # noqa: F401  (its counterpart is `write_results`)

_UPDATE_SECONDS = 20.0  # at most so often is a report of progress written: in a bucket every write is an upload


class RunRecord:
    """The content of `run.json` in an output folder, written anew at every change.

    A folder may see many runs of the program, as a training is interrupted and resumed or evaluated later: the
    record is the newest run's, and `starts` lists all beginnings of training with the step of each, and how the run
    before had ended. A run whose status is "running" while no process holds the folder was killed.
    """

    def __init__(self, output_dir, program, flags):
        self._path = os.path.join(output_dir, run_folder.RECORD_FILE)
        before = run_folder.read_json(output_dir, run_folder.RECORD_FILE) or {}
        self.content = {
            "program": program,
            "status": "running",
            "flags": flags,
            "versions": {
                "bert": __version__,
                "python": platform.python_version(),
                "tensorflow": tf.__version__,
                "numpy": numpy.__version__,
            },
            "git_commit": _git_commit(),
            "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
            "host": platform.node(),
            "start": _now(),
            "end": None,
            "starts": before.get("starts", []),
            **{key: before[key] for key in ("data", "step", "metrics", "last_checkpoint") if key in before},
        }
        self._before = before
        self._written = 0.0

    @property
    def follows_finished_run(self):
        """Whether the run before this one has come to its end."""
        return self._before.get("status") == "finished"

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            end = {"status": "finished"}
        elif issubclass(kind, Exception):
            end = {"status": "failed", "reason": in_words(error) or f"{kind.__name__}: {error}"}
        else:
            end = {"status": "stopped", "reason": str(error) or kind.__name__}
        try:
            self.update(end=_now(), **end)
        except (OSError, tf.errors.OpError) as e:
            if kind is None:
                raise
            # The disk that made the run fail may refuse this too, and must not hide the reason.
            logging.warning("%s cannot be written: %s", self._path, in_words(e) or e)

    def update(self, **entries):
        """Sets entries and writes the file."""
        self.content.update(entries)
        write_json(self._path, self.content)
        self._written = time.monotonic()

    def set_data(self, data):
        """Records what is trained on, and warns if it is not what the training began with."""
        now = [entry["fingerprint"] for entry in data]
        before = [entry.get("fingerprint") for entry in self._before.get("data", [])]
        if self.content["starts"] and before and before != now:
            logging.warning("%s: the training began with other data than it goes on with", self._path)
        self.update(data=data)

    def report(self, step, metrics):
        """Records the progress of a training, as often as is reasonable."""
        self.content.update(step=int(step), metrics=dict(metrics), updated=_now())
        if time.monotonic() - self._written > _UPDATE_SECONDS:
            self.update()

    def saved(self, step):
        """Records that a checkpoint is complete."""
        self.update(step=step, last_checkpoint={"step": step, "time": _now()})

    def add_start(self, step):
        """Records that training begins, or goes on, at a global step."""
        before = self._before.get("status")
        ended = "killed" if before == "running" else before
        self.content["starts"].append({"time": _now(), "step": step, "run_before": ended})
        self.update()


def write_json(path, content):
    """Writes a dict as indented JSON, whole or not at all."""
    with files.atomic_write(path, "w") as f:
        f.write(json.dumps(content, indent=2, default=_plain) + "\n")


def update_summary(output_dir, summary):
    """Sets entries of `training_summary.json`, and logs them.

    They are train_loss, last_train_metrics, eval_metrics, eval_data, total_training_steps, examples_per_second and
    batches; those that are not given keep what an earlier run of the program has found.
    """
    before = run_folder.read_json(output_dir, run_folder.SUMMARY_FILE) or {}
    write_json(os.path.join(output_dir, run_folder.SUMMARY_FILE), {**before, **summary})
    logging.info("Training Summary:\n%s", json.dumps(summary, indent=2, default=_plain))


def write_results(output_dir, results):
    """Writes `eval_results.txt`, and logs it: a line "key = value" for each result, sorted."""
    lines = [f"{name} = {value}" for name, value in sorted(results.items())]
    with files.atomic_write(os.path.join(output_dir, run_folder.RESULTS_FILE), "w") as f:
        f.writelines(f"{line}\n" for line in lines)
    for line in lines:
        logging.info("  %s", line)


def _plain(value):
    """NumPy scalars as the numbers they are; anything else by its text."""
    return value.item() if isinstance(value, numpy.generic) else str(value)


def _now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _git_commit():
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sent = os.path.join(folder, "git_commit.txt")  # by scripts/cloud/sync.py, to a machine without the repository
    if os.path.exists(sent):
        with open(sent, encoding="utf-8") as f:
            return f.read().strip()
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
