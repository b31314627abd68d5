"""Kills a training again and again, and compares its last variables with those of one that was left alone.

    python tests/training/killed_training.py run_pretraining --data=tiny.txt --model=folder --output=folder --kills=20
    python tests/training/killed_training.py run_classifier --data=sentences.tsv --model=folder --output=folder

A pretraining has two phases. A training saves often, and is evaluated on the way. It is killed (SIGKILL) in turn at a
random time, as soon as a checkpoint is being written, and shortly after a checkpoint that is followed by an evaluation
or by the next phase. Prints a JSON object: the moments of the kills, the step at which each run began, and both hashes.
"""

import contextlib
import hashlib
import importlib
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
import tensorflow as tf
from absl import flags

# Only one of the programs: both have flags of the same names.
program = importlib.import_module(f"bert.{sys.argv.pop(1)}")

STEPS, PAUSE = 16, 8
PHASES = [
    {"share": 0.5, "max_seq_length": 16, "max_predictions_per_seq": 3},
    {"share": 0.5, "max_seq_length": 32, "max_predictions_per_seq": 5},
]

flags.DEFINE_string("data", None, "Text to pretrain on, or a table with the columns text and label.")
flags.DEFINE_string("model", None, "Folder with bert_config.json and vocab.txt.")
flags.DEFINE_string("output", None, "Folder to work in.")
flags.DEFINE_integer("kills", 20, "How often to kill.")
flags.DEFINE_integer("kill_seed", 1, "Seed of the moments.")
FLAGS = flags.FLAGS


def start(folder, log):
    """Trains in a child process. Forked, so that TensorFlow need not be loaded each time."""
    child = os.fork()
    if child:
        return child
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    status = 1
    try:
        FLAGS.output_dir = str(folder)
        program.main()
        status = 0
    except BaseException as e:
        print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def ended(child):
    return os.waitpid(child, os.WNOHANG)[0] != 0


def wait_for(condition, child):
    """Waits until a condition is true or the child has ended; whether it has not ended."""
    while not condition():
        if ended(child):
            return False
        time.sleep(0.001)
    return not ended(child)


def last_step(folder):
    with contextlib.suppress(FileNotFoundError, IndexError):
        return int((folder / "checkpoint").read_text().split('"')[1].rpartition("-")[2])
    return 0


def kill_somewhere(kind, child, folder, duration, choose):
    """Kills the child at a moment of some kind; None if it was too late."""
    before = last_step(folder)
    if kind == "any time":
        delay = choose.uniform(0, duration)
        end = time.monotonic() + delay
        alive = wait_for(lambda: time.monotonic() > end, child)
    elif kind == "saving":
        written = set(folder.glob("model.ckpt-*_temp*"))
        alive = wait_for(lambda: set(folder.glob("model.ckpt-*_temp*")) - written, child)
    else:
        alive = wait_for(lambda: last_step(folder) > before and last_step(folder) % PAUSE == 0, child)
        end = time.monotonic() + choose.uniform(0, 0.15 * duration)
        alive = alive and wait_for(lambda: time.monotonic() > end, child)
    if not alive:
        return None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"kind": kind, "step": last_step(folder)}


def hash_variables(folder):
    """Hash of all variables of the last checkpoint, Adam's slots and the global step among them."""
    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{STEPS}"))
    digest = hashlib.sha256()
    for name in sorted(reader.get_variable_to_shape_map()):
        digest.update(name.encode() + np.ascontiguousarray(reader.get_tensor(name)).tobytes())
    return digest.hexdigest()


def options(output):
    """Flags of the program."""
    common = {
        "num_train_steps": STEPS,
        "learning_rate": 1e-3,
        "save_checkpoints_steps": 2,
        "keep_checkpoint_max": STEPS,
        "eval_every": PAUSE,
        "bert_config_file": pathlib.Path(FLAGS.model) / "bert_config.json",
    }
    if program.__name__ == "bert.run_classifier":
        return {
            "task_name": "tsv",
            "train_file": FLAGS.data,
            "eval_file": FLAGS.data,
            "text_a_column": "text",
            "label_column": "label",
            "max_seq_length": 16,
            "train_batch_size": 4,
            **common,
        }
    (output / "recipe.json").write_text(json.dumps({"phases": PHASES, "flags": {"train_batch_size": 4}}))
    return {
        "recipe": output / "recipe.json",
        "input_file": FLAGS.data,
        "records_dir": output / "records",
        "num_warmup_steps": 3,
        "held_out_fraction": 0.2,
        "num_workers": 1,
        **common,
    }


def main():
    FLAGS(sys.argv)
    output = pathlib.Path(FLAGS.output)
    FLAGS([sys.argv[0], "--do_train", "--do_eval", *(f"--{name}={value}" for name, value in options(output).items())])
    log, whole, killed = (output / name for name in ("log", "whole", "killed"))
    begin = time.monotonic()
    wait_for(lambda: False, start(whole, log))
    duration = time.monotonic() - begin

    choose = random.Random(FLAGS.kill_seed)
    kills, starts = [], 0
    while len(kills) < FLAGS.kills:
        child = start(killed, log)
        starts += 1
        kind = ("any time", "saving", "evaluating")[starts % 3]
        kill = kill_somewhere(kind, child, killed, duration, choose)
        if kill:
            kills.append(kill)
        elif last_step(killed) != STEPS:
            sys.exit(f"The training ended by itself:\n{log.read_text()}")
        else:
            # The training is over: so that there is something to kill, its last checkpoints are lost.
            last_kept = choose.randrange(0, STEPS, 2)
            for path in killed.glob("model.ckpt-*"):
                if int(path.name.split("-")[1].split(".")[0]) > last_kept:
                    path.unlink()
    wait_for(lambda: False, start(killed, log))
    runs = json.loads((killed / "run.json").read_text())["starts"]
    report = {
        "seconds": round(duration, 1),
        "kills": kills,
        "starts": [run["step"] for run in runs],
        "whole": hash_variables(whole),
        "killed": hash_variables(killed),
        "evaluations_equal": (whole / "evaluations.jsonl").read_bytes() == (killed / "evaluations.jsonl").read_bytes(),
        "leftovers": [path.name for path in killed.iterdir() if "_temp" in path.name or path.name.endswith(".tmp")],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
