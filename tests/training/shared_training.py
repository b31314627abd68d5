"""Runs a program on a CPU that is split into several logical devices, which share each batch.

A program of its own, since the number of devices must be known before TensorFlow starts.

    python tests/training/shared_training.py DEVICES run_pretraining --input_file=... --output_dir=...
"""

import importlib
import pathlib
import sys

import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bert import program

if __name__ == "__main__":
    count, name = int(sys.argv.pop(1)), sys.argv.pop(1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    program.run(importlib.import_module(f"bert.{name}").main)
