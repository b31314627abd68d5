"""Fine-tuning results beside Hugging Face transformers on PyTorch: the same encoder, data and hyper-parameters.

    python benchmarks/finetuning_peer.py --model=hugging-face-folder --glue=glue --torch_python=venv/bin/python \
        --work_dir=out/peer

Each task is trained by both with every seed, in turns. --model has a BERT encoder and its vocabulary, --glue the
folders CoLA, SST-2, MRPC, RTE and STS-B of GLUE's own files. What is done is kept in --work_dir, and a second run goes
on from there. Prints a table with mean and standard deviation over the seeds, and Welch's t of the difference, which
with three seeds each is beyond 2.8 by chance once in twenty tasks.
"""

import itertools
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags
from scipy import stats

from bert import program

FLAGS = flags.FLAGS
ROOT = pathlib.Path(__file__).resolve().parents[1]
flags.DEFINE_string("model", None, "Hugging Face folder of a BERT encoder.")
flags.DEFINE_string("glue", None, "Folder of the tasks' folders.")
flags.DEFINE_string("torch_python", None, "Python interpreter that has torch, transformers, scikit-learn and SciPy.")
flags.DEFINE_string("work_dir", None, "Folder for models and results.")
flags.DEFINE_list("tasks", ["cola", "sst-2", "mrpc", "rte", "sts-b"], "Which tasks.")
flags.DEFINE_list("seeds", ["1", "2", "3"], "Which seeds.")
flags.DEFINE_list("arms", ["ours", "torch"], "What trains; besides these: padded and packed, ours with such batches.")
flags.DEFINE_integer(
    "sst_2_examples", 4000, "How many of the 67,349 examples of SST-2, the first ones, are trained on."
)
flags.DEFINE_integer("batch_size", 32, "Examples in a step.", lower_bound=1)
flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.")
flags.DEFINE_float("epochs", 3.0, "Passes over the training set.")
flags.DEFINE_integer("max_seq_length", 128, "Longest example in tokens.")
_FOLDERS = {"cola": "CoLA", "sst-2": "SST-2", "mrpc": "MRPC", "rte": "RTE", "sts-b": "STS-B"}
# The metric of the task, and its name in this project's eval_results.txt and from the peer.
_METRICS = {"cola": ("matthews_correlation", "matthews"), "mrpc": ("f1", "f1"), "sts-b": ("pearson", "pearson")}
_ACCURACY = ("eval_accuracy", "accuracy")
_BATCHES = {
    "ours": [],
    "padded": ["--bucket_by_length=false", "--pack_sequences=false"],
    "packed": ["--pack_sequences=true"],
}


def main():
    """Trains what is not done yet, and prints the table."""
    work = pathlib.Path(FLAGS.work_dir)
    work.mkdir(parents=True, exist_ok=True)
    init = work / "init"
    if not init.exists():
        _run(
            [
                sys.executable,
                "-m",
                "bert.convert_checkpoint",
                f"--input={FLAGS.model}",
                f"--output={init}",
            ]
        )
    for task in FLAGS.tasks:
        for seed, arm in itertools.product(FLAGS.seeds, FLAGS.arms):
            result = work / f"{task}-{arm}-{seed}.json"
            if not result.exists():
                data = _data_dir(task, work)
                found = _peer(task, data, seed) if arm == "torch" else _ours(task, data, seed, arm, init, work)
                result.write_text(json.dumps(found))
                print(f"{task}, {arm}, seed {seed}: {found:.4f}", file=sys.stderr, flush=True)
    print(f"| task | {' | '.join(FLAGS.arms)} | Welch's t |")
    print(f"|{'---|' * (len(FLAGS.arms) + 2)}")
    for task in FLAGS.tasks:
        found = {
            arm: [100 * json.loads((work / f"{task}-{arm}-{seed}.json").read_text()) for seed in FLAGS.seeds]
            for arm in FLAGS.arms
        }
        cells = " | ".join(f"{statistics.mean(x):.2f} +- {statistics.stdev(x):.2f}" for x in found.values())
        t = stats.ttest_ind(*list(found.values())[:2], equal_var=False).statistic
        print(f"| {task}, {_METRICS.get(task, _ACCURACY)[1]} | {cells} | {t:+.1f} |")


def _data_dir(task, work):
    """The task's folder, or one with the first lines of its training file."""
    folder = pathlib.Path(FLAGS.glue) / _FOLDERS[task]
    if task != "sst-2":
        return folder
    subset = work / "SST-2"
    subset.mkdir(exist_ok=True)
    lines = (folder / "train.tsv").read_text(encoding="utf-8").split("\n")[: FLAGS.sst_2_examples + 1]
    (subset / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (subset / "dev.tsv").write_bytes((folder / "dev.tsv").read_bytes())
    return subset


def _hyperparameters(batch_flag, epochs_flag):
    return [
        f"--{batch_flag}={FLAGS.batch_size}",
        f"--{epochs_flag}={FLAGS.epochs}",
        f"--learning_rate={FLAGS.learning_rate}",
        f"--max_seq_length={FLAGS.max_seq_length}",
    ]


def _ours(task, data, seed, arm, init, work):
    """Trains with this project; returns the task's metric on the dev set."""
    out = work / f"{task}-{arm}-{seed}"
    command = [sys.executable, "-m", "bert.run_classifier", f"--task_name={task}", f"--data_dir={data}"]
    command += ["--do_train", "--do_eval", f"--init_checkpoint={init}", f"--output_dir={out}", f"--seed={seed}"]
    command += ["--save_checkpoints_steps=100000", *_BATCHES[arm]]
    _run(command + _hyperparameters("train_batch_size", "num_train_epochs"))
    lines = dict(line.split(" = ") for line in (out / "eval_results.txt").read_text().splitlines())
    return float(lines[_METRICS.get(task, _ACCURACY)[0]])


def _peer(task, data, seed):
    """Trains with the peer; returns the task's metric on the dev set."""
    command = [FLAGS.torch_python, str(ROOT / "benchmarks" / "finetuning_peer_torch.py"), f"--model={FLAGS.model}"]
    command += [f"--task={task}", f"--data_dir={data}", f"--seed={seed}", *_hyperparameters("batch_size", "epochs")]
    return json.loads(_run(command).splitlines()[-1])[_METRICS.get(task, _ACCURACY)[1]]


def _run(command):
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    program.run(main, required=["model", "glue", "torch_python", "work_dir"])
