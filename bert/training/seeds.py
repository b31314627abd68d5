"""Trainings that differ in their seed only: their results, and the best of them."""

import os
import re
import statistics

from bert import files
from bert.training import run_folder

FOLDER = "seed-{}"


def read(output_dir):
    """Results of all seeds: a dict from seed to the content of its eval_results.txt, in the order of the seeds."""
    found = {}
    for name in files.list_folder(output_dir):
        match = re.fullmatch(r"seed-(\d+)/?", name)
        if match:
            results = run_folder.read_results(os.path.join(output_dir, name))
            if results:
                found[int(match.group(1))] = results
    return dict(sorted(found.items()))


def compare(results, metric):
    """Finds the best seed, and the spread of all metrics.

    Args:
      results: as of `read`.
      metric: by which seeds are compared. Less is better if "loss" is in its name, else more.

    Returns:
      The best seed, and a dict from metric to its median, min, max and standard_deviation.
    """
    sign = -1 if "loss" in metric else 1
    best = max(results, key=lambda seed: sign * results[seed][metric])
    table = {}
    for name in set.intersection(*(set(of) for of in results.values())) - {"global_step"}:
        values = [of[name] for of in results.values()]
        table[name] = {
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "standard_deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        }
    return best, table
