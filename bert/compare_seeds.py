"""Compares trainings that differ in their seed only, and keeps the best where it is looked for.

    python -m bert.compare_seeds --output_dir=out/mrpc

reads the results in out/mrpc/seed-1, seed-2 ..., writes seeds.json with median and spread of each metric, and copies
the model of the best seed into out/mrpc, where prediction and export find it.
"""

import os

from absl import flags, logging

from bert import files, program
from bert.errors import InputError
from bert.tasks import results
from bert.training import checkpoints, preflight, run_folder, run_record, seeds

FLAGS = flags.FLAGS

# What makes a folder with a checkpoint a model of its own, and tells how good it is.
_BESIDE = (
    preflight.CONFIG_FILE,
    preflight.VOCAB_FILE,
    results.SETTINGS_FILE,
    results.LABELS_FILE,
    run_folder.RESULTS_FILE,
    run_folder.DETAILS_FILE,
)

flags.DEFINE_string("output_dir", None, "Folder with the folders seed-1, seed-2, ... of the trainings.")
flags.DEFINE_string("metric", None, "Metric by which the best is chosen. Default: the task's.")


def main():
    """Compares, writes, and copies."""
    seeds_file = os.path.join(FLAGS.output_dir, "seeds.json")
    if checkpoints.latest(FLAGS.output_dir)[0] and not files.exists(seeds_file):
        raise InputError(
            f"--output_dir={FLAGS.output_dir} has a checkpoint of a training of its own, which the best seed's would "
            "replace. Take another folder for the seeds."
        )
    found = seeds.read(FLAGS.output_dir)
    if not found:
        raise InputError(f"--output_dir={FLAGS.output_dir}: no folder seed-N in it has an {run_folder.RESULTS_FILE}.")
    metric = FLAGS.metric or _metric(next(iter(found.values())), min(found))
    best, table = seeds.compare(found, metric)
    run_record.write_json(
        seeds_file,
        {
            "metric": metric,
            "best_seed": best,
            "metrics": table,
            "results": {str(seed): of for seed, of in found.items()},
        },
    )
    logging.info("%d seeds: %s", len(found), ", ".join(map(str, found)))
    for name, of in sorted(table.items()):
        logging.info(
            "  %s: median %.4f, from %.4f to %.4f, standard deviation %.4f",
            name,
            of["median"],
            of["min"],
            of["max"],
            of["standard_deviation"],
        )
    checkpoints.copy(
        checkpoints.latest(os.path.join(FLAGS.output_dir, seeds.FOLDER.format(best)))[0], FLAGS.output_dir, _BESIDE
    )
    logging.info(
        "the best by %s is seed %d: %.4f; its model is in %s", metric, best, found[best][metric], FLAGS.output_dir
    )


def _metric(of_a_seed, seed):
    """The task's metric, or else what is usual."""
    settings = os.path.join(FLAGS.output_dir, seeds.FOLDER.format(seed), results.SETTINGS_FILE)
    named = files.read_json_object(settings).get("best_metric") if files.exists(settings) else None
    candidates = [named, "f1", "best_f1", "eval_accuracy", "loss"]
    return next(name for name in candidates if name in of_a_seed)


if __name__ == "__main__":
    program.run(main, required=["output_dir"])
