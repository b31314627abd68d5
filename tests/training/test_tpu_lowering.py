"""The graphs that a TPU runs, built and checked without one."""

import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from numpy_bert import small_config
from tensorflow.python.tpu import tpu_function

from bert import stateless
from bert.data import input_pipeline
from bert.errors import InputError
from bert.training import (
    devices,
    estimator,
    finetuning,
    pretraining,
    tpu_compilation,
    tpu_estimates,
    tpu_lowering,
    trainer,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = ROOT / ".venv-preflight" / "bin" / "python"
TPU = devices.Device(use_tpu=True, description="a TPU")
REPLICAS = 8
BATCH = 4  # of each replica
CONFIG = small_config(0.1, num_hidden_layers=1)
TRAIN, EVAL, PREDICT = tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.EVAL, tf.estimator.ModeKeys.PREDICT


def model_fn(program, mode, num_accumulation_steps=1, compute_dtype=tf.float32, packed=False):
    """A program's model function, as it is for a TPU, and its features."""
    schedule = trainer.Schedule(REPLICAS * BATCH, 1e-3, 100, 10, num_accumulation_steps=num_accumulation_steps)
    options = {"output_dir": "unused", "seed": 1, "compute_dtype": compute_dtype}
    if program == "pretraining":
        spec = input_pipeline.feature_spec(12, 3, 2 if packed else None)
        model = pretraining.Pretrainer(CONFIG, TPU, **options)
    else:
        spec = finetuning.sequence_spec(12)
        labels = ("label_ids",) if program == "classifier" else ("start_positions", "end_positions")
        labels += ("index",) if mode == PREDICT else ()
        if packed:  # three rows for four examples
            spec.update({name: tf.FixedLenFeature([9], tf.int64) for name in ("input_ids", "segment_ids")})
            spec.update({name: tf.FixedLenFeature([9], tf.int64) for name in ("example_ids", "position_ids")})
            labels += ("first_places",)
        spec.update({name: tf.FixedLenFeature([1], tf.int64) for name in labels})
        head = finetuning.classifier(CONFIG, 3, "single") if program == "classifier" else None
        model = finetuning.Finetuner(CONFIG, TPU, head=head or finetuning.span_finder(CONFIG), **options)
        if mode == PREDICT:
            spec["index"] = tf.FixedLenFeature([1], tf.int64)
    if mode == TRAIN:
        return model.training_model_fn(trainer.Stretch(0, 100, schedule, spec, None)), spec
    return (model.evaluation_model_fn() if mode == EVAL else model.prediction_model_fn()), spec


@pytest.mark.parametrize(
    ("program", "mode", "options"),
    [
        ("pretraining", TRAIN, {}),
        ("pretraining", TRAIN, {"packed": True, "num_accumulation_steps": 2, "compute_dtype": tf.bfloat16}),
        ("pretraining", EVAL, {"packed": True}),
        ("classifier", TRAIN, {}),
        ("classifier", TRAIN, {"packed": True, "num_accumulation_steps": 2}),
        ("classifier", PREDICT, {}),
        ("squad", TRAIN, {"compute_dtype": tf.bfloat16}),
        ("squad", PREDICT, {"packed": True}),
    ],
)
def test_every_step_has_only_what_xla_has_and_shapes_that_are_known(program, mode, options):
    function, spec = model_fn(program, mode, **options)
    step = tpu_lowering.replica_graph(function, spec, BATCH, REPLICAS, mode)
    assert tpu_lowering.refused_operations(step) == []
    # What leaves a TPU does so row by row, one or more from each replica.
    outputs = [step.graph.get_tensor_by_name(name) for name in step.outputs]
    assert outputs
    assert mode == EVAL or all(tensor.shape.ndims >= 1 for tensor in outputs)
    if mode == TRAIN:
        with step.graph.as_default():
            weights = sum(variable.shape.num_elements() for variable in tf.trainable_variables())
        # All gradients are summed over the replicas once, however many micro-batches there are, and the few scalars of
        # the loss.
        unused = 16 * 17 if program == "squad" else 0  # the pooler's
        assert 4 * (weights - unused) <= step.replica_sum_bytes <= 4 * (weights - unused) + 64
        module = tpu_lowering.lower(step)
        assert tpu_lowering.SUM_OVER_REPLICAS.encode() in module


@pytest.mark.parametrize("program", ["classifier", "squad"])
def test_the_replicated_computation_can_be_built(program):
    function, spec = model_fn(program, TRAIN)
    with tf.Graph().as_default() as graph:
        tf.train.get_or_create_global_step()
        names = list(spec)
        batches = [
            tf.zeros([REPLICAS * BATCH, *of.shape], tf.int32 if of.dtype == tf.int64 else of.dtype)
            for of in spec.values()
        ]

        def step(*features):
            made = function(dict(zip(names, features)), None, TRAIN, {})
            assert made.host_call is not None
            with tf.control_dependencies([made.train_op]):
                return tf.reshape(made.loss, [1])

        tf.tpu.shard(step, batches, num_shards=REPLICAS)
        kinds = {operation.type for operation in graph.get_operations()}
    assert {"TPUReplicateMetadata", "TPUReplicatedInput", "TPUReplicatedOutput", "CrossReplicaSum"} <= kinds


def test_each_host_feeds_its_own_cores(tmp_path):
    made = estimator.make(lambda features, labels, mode, params: None, devices.Device(False, "CPU"), str(tmp_path), 1)
    per_host = tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2
    assert made.config.tpu_config.per_host_input_for_training == per_host


def test_what_a_tpu_cannot_run_is_named():
    def dynamic(features, labels, mode, params):
        rows = tf.where(features["input_ids"] > 0)  # [as many as there are, 2]
        text = tf.strings.length(tf.strings.as_string(features["input_ids"]))
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"rows": rows, "text": text})

    step = tpu_lowering.replica_graph(dynamic, {"input_ids": tf.FixedLenFeature([12], tf.int64)}, BATCH, 1, PREDICT)
    refused = "\n".join(tpu_lowering.refused_operations(step))
    assert "XLA has no AsString" in refused
    assert "its shape (None, 2) is not known before the run" in refused


def test_features_that_a_step_does_not_use_are_no_hindrance():
    def half(features, labels, mode, params):
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"used": features["used"] + 1})

    spec = {name: tf.FixedLenFeature([12], tf.int64) for name in ("unused", "used")}
    assert tpu_lowering.lower(tpu_lowering.replica_graph(half, spec, BATCH, 1, PREDICT))


def test_random_bytes_of_a_tpu_are_uniform_and_independent():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.get_or_create_global_step()
        with tpu_function.tpu_shard_context(1):
            drawn = stateless.random_bytes([10, 64, 50])
        session.run(tf.global_variables_initializer())
        values = session.run(drawn)
    assert values.dtype == np.uint8
    assert values.shape == (10, 64, 50)
    counts = np.bincount(values.ravel(), minlength=256)
    assert ((counts - 125) ** 2 / 125).sum() < 350  # chi-squared with 255 degrees of freedom: p < 1e-4
    for i in range(10):
        for j in range(i):
            assert (values[i] == values[j]).mean() < 0.015


def test_the_largest_batch_is_found_in_few_compilations():
    tried = []

    def compile_batch(batch):
        tried.append(batch)
        needed = int(1e9 + 5e7 * batch + 2e5 * batch**1.5)
        if needed > 16 * 2**30:
            return tpu_compilation.Compiled(error=f"Ran out of memory. Used {needed / 2**30:.2f}G of 15.48G hbm.")
        return tpu_compilation.Compiled(arguments=10**9, temporaries=needed - 10**9)

    for first in (8, 32, 400):
        tried.clear()
        batch, compiled = tpu_compilation.largest_batch(compile_batch, first, 16 * 2**30)
        assert batch == 296
        assert compiled.total <= 16 * 2**30 < compile_batch(304).total
        assert len(tried) <= 7  # that of the line above among them

    def refuse(batch):
        return tpu_compilation.Compiled(error=f"no such operation: {batch}")

    with pytest.raises(InputError, match="no such operation: 32"):
        tpu_compilation.largest_batch(refuse, 32, 16 * 2**30)


def test_slices_and_their_sums():
    assert (tpu_estimates.find_slice("v3-8").cores, tpu_estimates.find_slice("v4-8").cores) == (8, 4)
    assert tpu_estimates.find_slice("v3-2048").cores == 2048
    assert tpu_estimates.find_slice("v5e-4").cores == 4
    for name in ("v1-8", "v3", "v3-2", "8"):
        with pytest.raises(InputError, match=f"--tpu_type={name}"):
            tpu_estimates.find_slice(name)
    # On one host, four chips in a square send 1.5 times 0.4 GB over two links of 82 GB/s.
    seconds = tpu_estimates.all_reduce_seconds(tpu_estimates.find_slice("v3-8"), 4e8)
    assert seconds == pytest.approx(1.5 * 4e8 / 164e9)


@pytest.mark.skipif(not COMPILER.exists(), reason="make preflight-tpu has not installed the compiler for TPUs here")
def test_the_tpu_compiler_takes_the_step(tmp_path):
    function, spec = model_fn("pretraining", TRAIN)
    step = tpu_lowering.replica_graph(function, spec, BATCH, REPLICAS)
    generation = tpu_estimates.GENERATIONS["v3"]
    compiled = tpu_compilation.Compiler(str(COMPILER), generation, REPLICAS, str(tmp_path)).compile(
        tpu_lowering.lower(step)
    )
    assert not compiled.error
    assert 0 < compiled.total < 2**30
    assert compiled.cycles > 0
