"""What the output folder of a run tells a person who looks, read without loading TensorFlow for a local one."""

import datetime
import json
import os

from bert import files
from bert.training import locking

RECORD_FILE = "run.json"
SUMMARY_FILE = "training_summary.json"
RESULTS_FILE = "eval_results.txt"
EVALUATIONS_FILE = "evaluations.jsonl"
DETAILS_FILE = "eval_details.json"


def read_json(output_dir, name):
    """Content of a JSON file of the folder as a dict, or None if it is not there."""
    path = os.path.join(output_dir, name)
    return files.read_json_object(path) if files.exists(path) else None


def read_record(output_dir):
    """The content of `run.json`, or None. A run that was killed has the status "killed" here."""
    record = read_json(output_dir, RECORD_FILE)
    if record and record.get("status") == "running" and locking.holder(output_dir) is None:
        record["status"] = "killed"
    return record


def read_results(output_dir):
    """The content of `eval_results.txt` as a dict; empty if there is none."""
    path = os.path.join(output_dir, RESULTS_FILE)
    if not files.exists(path):
        return {}
    lines = [line.split(" = ") for line in files.read_text(path).splitlines()]
    return {name: float(value) for name, value in lines}


def describe(output_dir, now=None):
    """The state of a run in a few lines for people.

    Args:
      output_dir: folder of the run.
      now: the time as an aware datetime; None: now.

    Returns:
      A list of lines; empty if the folder has no `run.json`.
    """
    record = read_record(output_dir)
    if record is None:
        return []
    now = now or datetime.datetime.now(datetime.timezone.utc)
    status = f"{output_dir}: {record['status']}"
    if record["status"] == "running":
        status += f" on {record['host']}, {record.get('device', 'unknown device')}, since {record['start']}"
    elif record.get("reason"):
        status += f" ({record['reason']})"
    lines = [status]
    step, total = record.get("step"), record.get("settings", {}).get("num_train_steps")
    if step is not None and total:
        metrics = record.get("metrics", {})
        parts = [f"step {step} of {total} ({100 * step / total:.1f} %)"]
        if "loss" in metrics:
            parts.append(f"loss {metrics['loss']:.4f}")
        rate = metrics.get("examples_per_second")
        if rate and record["status"] == "running":
            left = (total - step) * record["settings"]["train_batch_size"] / rate
            parts += [f"{rate:.4g} examples/s", f"{duration(left)} left"]
        lines.append(", ".join(parts))
    if record.get("updated") and record["status"] == "running":
        lines.append(f"last report {_ago(record['updated'], now)} ago")
    checkpoint = record.get("last_checkpoint")
    if checkpoint:
        lines.append(f"last checkpoint: step {checkpoint['step']}, {_ago(checkpoint['time'], now)} ago")
    restarts = [f"{start['step']} ({start.get('run_before')})" for start in record.get("starts", [])[1:]]
    if restarts:
        lines.append(f"restarts: {len(restarts)}, at step {', '.join(restarts[-8:])}")
    results = read_results(output_dir)
    if results:
        lines.append("evaluation: " + ", ".join(f"{name} {value:.4g}" for name, value in sorted(results.items())))
    return lines


def duration(seconds):
    """Seconds as text for people: "2 d 03:04", "3:04:05" or "4:05"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d}:{minutes:02d}"
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


def read_evaluations(output_dir):
    """The evaluations on the way of a training, oldest first: dicts with "global_step" and metrics."""
    path = os.path.join(output_dir, EVALUATIONS_FILE)
    return [json.loads(line) for line in files.read_text(path).splitlines()] if files.exists(path) else []


def _ago(time, now):
    return duration(max(0.0, (now - datetime.datetime.fromisoformat(time)).total_seconds()))
