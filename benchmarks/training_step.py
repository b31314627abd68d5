"""The pretraining step: this project beside google-research/bert and Hugging Face transformers on PyTorch.

    python benchmarks/training_step.py --original=path/to/google-research/bert --torch_python=venv/bin/python \
        --shapes=bert-mini:32,bert-base:8 --rounds=7

Arms, each a process of its own that makes bursts of steps in turn with the others, on the same batch of length 128 with
20 predictions a row; forward, backward, clipping and Adam:

- peak: the product of two square float32 matrices of 2048 rows, by the library that TensorFlow uses;
- original: its model_fn, with what TensorFlow 2 has moved out of tf.contrib put back in its place; original:onednn:
  the same with oneDNN, which TensorFlow leaves off by itself on CPUs without AVX-512 VNNI;
- fp32, bf16, fp16: ours by --dtype, with the metrics that a training shows;
- torch: transformers' BertForPreTraining with sdpa, see training_step_torch.py. torch:gathered computes the vocabulary
  only where tokens are masked; :bf16 is autocast, :compile is torch.compile.

The arms with bf16 are among those that run by default where the CPU multiplies such numbers. The table has the medians
over the rounds, of CPU seconds a step (user and system, all threads, which other programs on the machine change little)
and of wall seconds; how many times as fast as the first arm it is by either; the share that the multiplications of the
model's products take of what the peak reaches in the same CPU time; and the loss after the last step.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import results
import tensorflow.compat.v1 as tf
import timed_steps
import training_step_arm
from absl import flags

from bert import configs, modeling, program
from bert.data import input_pipeline
from bert.training import devices, pretraining, trainer

FLAGS = flags.FLAGS
flags.DEFINE_string("original", None, "Folder of a copy of google-research/bert, for the arm `original`.")
flags.DEFINE_string("torch_python", None, "Python interpreter that has torch and transformers, for the arms `torch`.")
flags.DEFINE_list("shapes", ["bert-mini:32", "bert-base:8"], "Model shapes with batch sizes, a table each.")
flags.DEFINE_list("arms", None, "Which arms to run. Default: original, fp32, and three of torch, as far as given.")
flags.DEFINE_integer("rounds", 5, "How many bursts each arm makes.", lower_bound=1)
flags.DEFINE_float("burst_seconds", 3.0, "A burst has as many steps as take so long on an idle machine.")
flags.DEFINE_bool("apart", False, "Run each burst in a new process, where not all arms fit in the memory together.")
flags.DEFINE_string("run", None, "Run one arm in this process: arm,shape,batch size.")

SEQ_LENGTH, PREDICTIONS = 128, 20
_HERE = pathlib.Path(__file__).resolve().parent
_PEAK, _PEAK_ROWS = "peak", 2048


def main():
    """Prints the tables, or as a child process, answers requests for bursts of steps."""
    if FLAGS.run:
        arm, shape, batch_size = FLAGS.run.split(",")
        training_step_arm.serve(_peak() if arm == _PEAK else _ours(arm, shape, int(batch_size)))
        return
    arms = FLAGS.arms or _default_arms()
    for shape in FLAGS.shapes:
        name, batch_size = shape.split(":")
        _compare(arms, name, int(batch_size))


def _default_arms():
    has_bfloat16 = devices.cpu_has_bfloat16()
    if not has_bfloat16:
        print("without bf16: this CPU has neither avx512_bf16 nor amx_bf16, and cannot multiply such numbers")
    arms = ["original", "original:onednn"] if FLAGS.original else []
    arms += ["fp32", "bf16"] if has_bfloat16 else ["fp32"]
    if FLAGS.torch_python:
        arms += ["torch", "torch:gathered", "torch:gathered:compile"]
        arms += ["torch:gathered:bf16", "torch:gathered:bf16:compile"] if has_bfloat16 else []
    return arms


def _compare(arms, shape, batch_size):
    """Prints the table of one shape."""
    config = configs.load_model_config(shape, vocab_size=30522)
    with tempfile.TemporaryDirectory() as folder:
        inputs = os.path.join(folder, "inputs.npz")
        np.savez(inputs, **_batch(config, batch_size))
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            f.write(config.to_json_string())
        children = {arm: _Arm(arm, shape, batch_size, folder) for arm in [_PEAK, *arms]}
        bursts = {arm: [] for arm in children}
        for _ in range(FLAGS.rounds):
            for arm, child in children.items():
                bursts[arm].append(child.burst())
                if FLAGS.apart:
                    child.stop()
        for child in children.values():
            child.stop()
    seconds = {arm: [statistics.median(values) for values in zip(*found)] for arm, found in bursts.items()}
    peak = 2 * _PEAK_ROWS**3 / seconds[_PEAK][0]
    print(f"{shape}, batch {batch_size}, {SEQ_LENGTH} tokens; peak {peak / 1e9:.1f} GFLOP a CPU second")
    print(f"{'':>28}{'CPU s':>8}{'':>8}{'wall s':>8}{'':>8}{'of peak':>9}{'loss':>8}")
    for arm in arms:
        cpu, wall, _ = seconds[arm]
        by_cpu, by_wall = (base / own for base, own in zip(seconds[arms[0]], (cpu, wall)))
        share = _flops(config, batch_size) / cpu / peak
        print(
            f"{arm:>28}{cpu:>8.3f}{by_cpu:>7.2f}x{wall:>8.3f}{by_wall:>7.2f}x{share:>9.0%}{bursts[arm][-1][2]:>8.3f}",
            flush=True,
        )
        what = f"{shape}, batch {batch_size}, {arm}"
        results.add("training step", what, share, "multiplications of the peak, in CPU time")


class _Arm:
    """One arm, in a process of its own."""

    def __init__(self, arm, shape, batch_size, folder):
        own = {"TF_CPP_MIN_LOG_LEVEL": "3", training_step_arm.FOLDER: folder}
        environment = training_step_arm.ENVIRONMENT
        if arm == "original:onednn":
            own["TF_ENABLE_ONEDNN_OPTS"] = "1"
        if arm.startswith("original"):
            self._command = [sys.executable, str(_HERE / "training_step_original.py"), folder, FLAGS.original]
        elif arm.startswith("torch"):
            self._command = [FLAGS.torch_python, str(_HERE / "training_step_torch.py"), folder, arm]
        else:
            self._command = [sys.executable, __file__, *sys.argv[1:], f"--run={arm},{shape},{batch_size}"]
            environment = os.environ  # with what this project sets before TensorFlow is loaded
        self._environment = {**environment, **own}
        self._process, self._steps = None, None

    def burst(self):
        """CPU seconds and wall seconds a step, and the last loss."""
        if not self._process:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self._process = subprocess.Popen(self._command, env=self._environment, text=True, **pipes)
            self._make(1)
            cpu, _, _ = self._make(1)
            self._steps = max(1, round(FLAGS.burst_seconds / (cpu / os.cpu_count())))
        return self._make(self._steps)

    def stop(self):
        if self._process:
            self._process.communicate()
            self._process = None

    def _make(self, steps):
        print(steps, file=self._process.stdin, flush=True)
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"{self._command} ended with status {self._process.wait()}.")
            if line.startswith("burst "):
                return tuple(map(float, line.split()[1:]))


def _batch(config, batch_size):
    rng = np.random.default_rng(0)
    return {
        "input_ids": rng.integers(1000, config.vocab_size, (batch_size, SEQ_LENGTH), np.int32),
        "input_mask": np.ones((batch_size, SEQ_LENGTH), np.int32),
        "segment_ids": np.repeat(np.int32([[0, 1]]), SEQ_LENGTH // 2, axis=1).repeat(batch_size, axis=0),
        "masked_lm_positions": np.stack(
            [np.sort(rng.choice(SEQ_LENGTH, PREDICTIONS, replace=False)) for _ in range(batch_size)]
        ).astype(np.int32),
        "masked_lm_ids": rng.integers(1000, config.vocab_size, (batch_size, PREDICTIONS), np.int32),
        "masked_lm_weights": np.ones((batch_size, PREDICTIONS), np.float32),
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1), np.int32),
    }


def _flops(config, batch_size):
    """Multiplications and additions of the products of a step, twice as many backwards as forwards."""
    hidden, tokens, predictions = config.hidden_size, batch_size * SEQ_LENGTH, batch_size * PREDICTIONS
    layer = tokens * (4 * hidden**2 + 2 * hidden * config.intermediate_size) + 2 * tokens * SEQ_LENGTH * hidden
    head = predictions * (hidden**2 + hidden * config.vocab_size)
    return 3 * 2 * (config.num_hidden_layers * layer + head)


def _peak():
    x = tf.random.normal([_PEAK_ROWS, _PEAK_ROWS])
    return lambda: tf.matmul(x, x)[0, 0].numpy()


def _ours(dtype, shape, batch_size):
    config = configs.load_model_config(shape, vocab_size=30522)
    pretrainer = pretraining.Pretrainer(
        config, devices.Device(False, "CPU"), "unused", seed=1, compute_dtype=modeling.COMPUTE_DTYPES[dtype]
    )
    spec = input_pipeline.feature_spec(SEQ_LENGTH, PREDICTIONS)
    schedule = trainer.Schedule(batch_size, 1e-4, 10**6, 100)
    stretch = trainer.Stretch(0, 10**6, schedule, spec, lambda params: training_step_arm.dataset())
    return timed_steps.of_training(pretrainer, stretch)


if __name__ == "__main__":
    program.run(main)
