"""`run.json`: what a run was asked to do, what it did, and how it ended."""

import datetime
import json
import os
import platform
import subprocess
import sys

import numpy
import tensorflow as tf

from bert import __version__, files

FILE_NAME = "run.json"
SUMMARY_FILE = "training_summary.json"
RESULTS_FILE = "eval_results.txt"


class RunRecord:
    """The content of `run.json` in an output folder, written anew at every change.

    A folder may see many runs of the program, as a training is interrupted and resumed or evaluated later: the
    record is the newest run's, and `starts` counts all of them with the step each began at.
    """

    def __init__(self, output_dir, program, flags):
        self._path = os.path.join(output_dir, FILE_NAME)
        before = read(output_dir) or {}
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
        }

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self.update(status="finished", end=_now())
        elif issubclass(kind, Exception):
            self.update(status="failed", end=_now(), reason=f"{kind.__name__}: {error}")
        else:
            self.update(status="stopped", end=_now(), reason=kind.__name__)

    def update(self, **entries):
        """Sets entries and writes the file."""
        self.content.update(entries)
        write_json(self._path, self.content)

    def add_start(self, step):
        """Records that training begins, or goes on, at a global step."""
        self.content["starts"].append({"time": _now(), "step": step})
        self.update()


def read(output_dir):
    """The content of `run.json`, or None if there is none."""
    path = os.path.join(output_dir, FILE_NAME)
    return files.read_json_object(path) if files.exists(path) else None


def write_json(path, content):
    """Writes a dict as indented JSON, whole or not at all."""
    with files.atomic_write(path, "w") as f:
        f.write(json.dumps(content, indent=2, default=_plain) + "\n")


def update_summary(output_dir, summary):
    """Sets entries of `training_summary.json`.

    They are train_loss, last_train_metrics, eval_metrics, total_training_steps and examples_per_second; those that
    are not given keep what an earlier run of the program has found.
    """
    path = os.path.join(output_dir, SUMMARY_FILE)
    before = files.read_json_object(path) if files.exists(path) else {}
    write_json(path, {**before, **summary})


def read_results(output_dir):
    """The content of `eval_results.txt` as a dict; empty if there is none."""
    path = os.path.join(output_dir, RESULTS_FILE)
    if not files.exists(path):
        return {}
    lines = [line.split(" = ") for line in files.read_text(path).splitlines()]
    return {name: float(value) for name, value in lines}


def write_results(output_dir, results):
    """Writes `eval_results.txt`: a line "key = value" for each result, sorted."""
    with files.atomic_write(os.path.join(output_dir, RESULTS_FILE), "w") as f:
        for name, value in sorted(results.items()):
            f.write(f"{name} = {value}\n")


def _plain(value):
    """NumPy scalars as the numbers they are; anything else by its text."""
    return value.item() if isinstance(value, numpy.generic) else str(value)


def _now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _git_commit():
    folder = os.path.dirname(os.path.abspath(__file__))
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
