"""Evaluations in the course of a training: their curve, the best checkpoint, and when to stop early.

All that is decided here follows from `evaluations.jsonl`, so that a training that is resumed decides as one that was
never interrupted.
"""

import json
import os

import tensorflow.compat.v1 as tf
from absl import logging

from bert import files
from bert.training import checkpoints, run_folder
from bert.training.preflight import CONFIG_FILE, VOCAB_FILE

BEST_FOLDER = "best"


def next_pause(step, eval_every, last_step):
    """The step up to which to train before the next evaluation, or to the end."""
    return min(last_step, (step // eval_every + 1) * eval_every) if eval_every else last_step


def write_events(output_dir, step, scalars):
    """Adds scalars of an evaluation to its event files, those that Estimator writes into the folder "eval".

    Args:
      output_dir: folder of the run.
      step: global step that was evaluated.
      scalars: dict of numbers; what is no number is left out.
    """
    numbers = {name: _plain(value) for name, value in scalars.items() if isinstance(_plain(value), (int, float))}
    summary = tf.Summary(value=[tf.Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()])
    with tf.Graph().as_default():  # TensorFlow refuses to make the writer elsewhere if eager execution is on
        writer = tf.summary.FileWriterCache.get(os.path.join(output_dir, "eval"))
    writer.add_summary(summary, step)
    writer.flush()


class Evaluations:
    """The evaluations of a run and its best checkpoint, which is kept apart in the folder "best"."""

    def __init__(self, output_dir, metric, patience=None):
        """Reads what there is.

        Args:
          output_dir: folder of the run.
          metric: by which checkpoints are compared. Less is better if "loss" is in its name, else more.
          patience: number of evaluations in a row without a better one after which the training is to end; None:
            never.
        """
        self._output_dir = output_dir
        self._metric = metric
        self._sign = -1 if "loss" in metric else 1
        self._patience = patience
        self._entries = run_folder.read_evaluations(output_dir)

    def get(self, step):
        """The evaluation of the checkpoint of a step, or None."""
        return next((entry for entry in self._entries if entry["global_step"] == step), None)

    def add(self, results, checkpoint):
        """Adds the evaluation of the newest checkpoint, and keeps the checkpoint if none was better.

        Args:
          results: dict of metrics with "global_step". Evaluations are compared only with those of the same
            "max_seq_length", if there is such an entry: another length is another task.
          checkpoint: path prefix.
        """
        step = int(results["global_step"])
        if self._metric not in results:
            known = ", ".join(sorted(results))
            raise ValueError(f"{self._metric} is not among the metrics: {known}")
        self._entries = [entry for entry in self._entries if entry["global_step"] < step]
        self._entries.append({name: _plain(value) for name, value in results.items()})
        if self._best() is self._entries[-1]:
            checkpoints.copy(checkpoint, os.path.join(self._output_dir, BEST_FOLDER), (CONFIG_FILE, VOCAB_FILE))
        # Written last: whatever is missing after a crash is evaluated and kept once more.
        with files.atomic_write(os.path.join(self._output_dir, run_folder.EVALUATIONS_FILE), "w") as f:
            f.writelines(json.dumps(entry) + "\n" for entry in self._entries)
        logging.info(
            "evaluation at step %d: %s %.4f; best %.4f at step %d",
            step,
            self._metric,
            results[self._metric],
            self._best()[self._metric],
            self._best()["global_step"],
        )

    def is_enough(self, step):
        """Whether the patience has run out at a step; says so."""
        comparable = self._comparable(step)
        if not self._patience or not comparable:
            return False
        best = max(comparable, key=self._score)
        since = len(comparable) - 1 - comparable.index(best)
        if since < self._patience:
            return False
        logging.info(
            "stopping early at step %d: %s has been no better than the %.4f of step %d for %d evaluations",
            step,
            self._metric,
            best[self._metric],
            best["global_step"],
            since,
        )
        return True

    def _best(self):
        """The best of the evaluations that can be compared with the newest, the first of several that are equal."""
        return max(self._comparable(self._entries[-1]["global_step"]), key=self._score)

    def _score(self, entry):
        return self._sign * entry[self._metric]

    def _comparable(self, step):
        entries = [entry for entry in self._entries if entry["global_step"] <= step]
        return [entry for entry in entries if entry.get("max_seq_length") == entries[-1].get("max_seq_length")]


def _plain(value):
    return value.item() if hasattr(value, "item") else value
