"""Trains on one device, on two devices of one process, or in two processes, and again from a checkpoint on the way.

A program of its own, since the number of devices must be known before TensorFlow starts.

    python tests/training/shared_training.py FOLDER WAY ... --input_file=... --bert_config_file=...

For each of the ways `one`, `mirrored` and `workers`, FOLDER gets the output folder WAY, of an undisturbed training,
and the output folder WAY-again, of one that has gone on from the first checkpoint of the other.
"""

import json
import os
import pathlib
import shutil
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import tensorflow as tf

from bert import program, run_pretraining

CUT = 2


def start(log, devices, flags, config=None):
    """Trains in a child process. Forked, so that TensorFlow need not be loaded each time."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
        if config:
            os.environ["TF_CONFIG"] = json.dumps(config)
        sys.argv[1:] = flags
        program.run(run_pretraining.main)
    except SystemExit as e:
        status = e.code or 0
    finally:
        os._exit(status)


def train(folder, way, flags):
    """Trains in one of the ways; ends this program if a training fails."""
    flags = [*flags, f"--output_dir={folder}"]
    log = f"{folder}.log"
    if way == "workers":
        cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
        children = [start(log, 1, flags, {"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in (0, 1)]
    elif way == "mirrored":
        children = [start(log, 2, [*flags, "--distribution_strategy=mirrored"])]
    else:
        children = [start(log, 1, flags)]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        sys.exit(f"{way}:\n{pathlib.Path(log).read_text()}")


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main():
    folder = pathlib.Path(sys.argv[1])
    ways, flags = [[a for a in sys.argv[2:] if a.startswith("--") == is_flag] for is_flag in (False, True)]
    flags += ["--do_train", f"--save_checkpoints_steps={CUT}", f"--records_dir={folder / 'records'}"]
    for way in ways:
        whole, again = folder / way, folder / f"{way}-again"
        train(whole, way, flags)
        if way != "one":
            shutil.copytree(whole, again, ignore=lambda _, names: [n for n in names if is_lost(n)])
            (again / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{CUT}"\n')
            train(again, way, flags)


def is_lost(name):
    """Whether a training that was killed after step `CUT` has no such file."""
    return name.startswith("events.") or (name.startswith("model.ckpt-") and not name.startswith(f"model.ckpt-{CUT}."))


if __name__ == "__main__":
    main()
