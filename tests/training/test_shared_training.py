"""Devices of one machine, and several machines, that share each batch: as one device with the whole of it."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf

PROGRAM = pathlib.Path(__file__).parent / "shared_training.py"
STEPS = 4


def losses(folder):
    return {
        event.step: value.simple_value
        for path in sorted(folder.glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss"
    }


def variables(folder):
    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{STEPS}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_devices_and_machines_share_batches(tiny_text, tiny_model, tmp_path):
    config = json.loads((tiny_model / "bert_config.json").read_text())
    # Dropout differs from place to place.
    config.update(num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    flags = {
        "input_file": tiny_text,
        "vocab_file": tiny_model / "vocab.txt",
        "bert_config_file": tmp_path / "bert_config.json",
        "max_seq_length": 16,
        "max_predictions_per_seq": 3,
        "train_batch_size": 8,
        "num_accumulation_steps": 2,
        "num_train_steps": STEPS,
        "num_warmup_steps": 1,
        "learning_rate": 1e-3,
        "log_steps": 1,
        "num_workers": 1,
    }
    command = [sys.executable, str(PROGRAM), str(tmp_path), "one", "mirrored", "workers"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]

    of_one, weights_of_one = losses(tmp_path / "one"), variables(tmp_path / "one")
    assert len(of_one) == STEPS
    for way in ("mirrored", "workers"):
        found, weights = losses(tmp_path / way), variables(tmp_path / way)
        assert found.keys() == of_one.keys()
        for step, loss in found.items():
            assert abs(loss - of_one[step]) < 1e-5
        assert weights.keys() == weights_of_one.keys()
        for name, value in weights.items():
            np.testing.assert_allclose(value, weights_of_one[name], atol=1e-5, err_msg=f"{way}: {name}")
        for name, value in variables(tmp_path / f"{way}-again").items():
            np.testing.assert_array_equal(value, weights[name], err_msg=f"{way}, gone on: {name}")
