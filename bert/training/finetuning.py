"""Fine-tuning: an encoder with a task's head on it, its training, and its outputs for every example."""

import dataclasses
import time
from typing import Callable, Optional

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from bert import files, heads, modeling
from bert.data import input_pipeline
from bert.errors import InputError
from bert.training import checkpoints, trainer

# A training set is shuffled as a whole if its records take no more than this.
_SHUFFLED_BYTES = 1 << 30
_REPORT_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Data:
    """Record files to train on, or to evaluate or predict.

    Attributes:
      files: paths.
      counts: number of records in each.
      spec: dict from the features' names to `tf.FixedLenFeature`.
      feature_names: the features as the files spell them.
    """

    files: tuple
    counts: tuple
    spec: dict
    feature_names: tuple

    @property
    def count(self):
        """Number of records in all files."""
        return sum(self.counts)

    @property
    def max_seq_length(self):
        """Tokens in a record."""
        return self.spec["input_ids"].shape[0]


@dataclasses.dataclass(frozen=True)
class HeadOutput:
    """What a head makes of a batch.

    Attributes:
      losses: float Tensor [batch].
      outputs: dict of Tensors [batch, ...], what an evaluation or prediction yields.
      metrics: dict of scalars, for the course of the training.
    """

    losses: tf.Tensor
    outputs: dict
    metrics: dict


def sequence_spec(max_seq_length):
    """The features that every task has."""
    return {name: tf.FixedLenFeature([max_seq_length], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}


def classifier(config, num_outputs, label_kind):
    """Returns the head of a classifier over the pooled first token.

    Its variables are those of the original: output_weights [outputs, hidden] and output_bias [outputs].

    Args:
      config: a `BertConfig`.
      num_outputs: number of labels; 1 for regression.
      label_kind: "single" (softmax, cross entropy), "multi" (a sigmoid for each label, mean cross entropy), or
        "regression" (the output itself, squared error).

    Returns:
      A function of a `BertModel`, a dict of features, and whether this is a training, to a `HeadOutput`. Outputs
      are "probabilities", float [batch, outputs], and "label_ids", as in the features.
    """

    def build(model, features, is_training):
        pooled = model.get_pooled_output()  # [batch, hidden]
        if is_training:
            pooled = modeling.dropout(pooled, 0.1)
        logits = heads.class_logits(pooled, num_outputs)  # [batch, outputs]
        probabilities = heads.probabilities(logits, label_kind)  # [batch, outputs]
        label_ids = features["label_ids"]  # [batch, size of a label]
        metrics = {}
        if label_kind == "single":
            labels = label_ids[:, 0]  # [batch]
            log_probs = tf.nn.log_softmax(logits)  # [batch, outputs]
            losses = -tf.reduce_sum(tf.one_hot(labels, num_outputs) * log_probs, axis=-1)  # [batch]
            choice = tf.argmax(logits, axis=-1, output_type=tf.int32)  # [batch]
            metrics["accuracy"] = tf.reduce_mean(tf.cast(tf.equal(choice, labels), tf.float32))
        elif label_kind == "multi":
            labels = tf.cast(label_ids, tf.float32)  # [batch, outputs]
            losses = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits), axis=-1)
        else:
            losses = tf.square(logits[:, 0] - label_ids[:, 0])  # [batch]
        if "weight" in features:
            losses *= features["weight"][:, 0]
        return HeadOutput(losses, {"probabilities": probabilities, "label_ids": label_ids}, metrics)

    return build


def span_finder(config):
    """Returns the head that finds the first and the last token of an answer.

    Its variables are those of the original: cls/squad/output_weights [2, hidden] and cls/squad/output_bias [2].

    Args:
      config: a `BertConfig`.

    Returns:
      A function as of `classifier`. Outputs are "start_logits" and "end_logits", float [batch, seq]. Without
      "start_positions" and "end_positions" among the features, losses are 0.
    """

    def build(model, features, is_training):
        del is_training
        start_logits, end_logits = heads.span_logits(model.get_sequence_output())  # [batch, seq] each
        losses = tf.zeros_like(start_logits[:, 0])  # [batch]
        if "start_positions" in features:
            for of, name in ((start_logits, "start_positions"), (end_logits, "end_positions")):
                losses += 0.5 * tf.nn.sparse_softmax_cross_entropy_with_logits(labels=features[name][:, 0], logits=of)
        return HeadOutput(losses, {"start_logits": start_logits, "end_logits": end_logits}, {})

    return build


def tagger(num_tags):
    """Returns the head that gives each token a tag.

    Its variables are output_weights [tags, hidden] and output_bias [tags].

    Args:
      num_tags: number of tags.

    Returns:
      A function as of `classifier`. The output is "choice", int32 [batch, seq]. The features' label_ids, int [batch,
      seq], are 1 + the tag of each token that has one, else 0; an example's loss is the mean over its tokens with tags.
    """

    def build(model, features, is_training):
        vectors = model.get_sequence_output()  # [batch, seq, hidden]
        if is_training:
            vectors = modeling.dropout(vectors, 0.1)
        logits = heads.token_logits(vectors, num_tags)  # [batch, seq, tags]
        choice = tf.argmax(logits, axis=-1, output_type=tf.int32)  # [batch, seq]
        labels = tf.cast(features["label_ids"], tf.int32) - 1  # [batch, seq]
        known = tf.cast(labels >= 0, tf.float32)  # [batch, seq]
        losses = -tf.reduce_sum(tf.one_hot(labels, num_tags) * tf.nn.log_softmax(logits), axis=-1)  # [batch, seq]
        losses = tf.reduce_sum(losses, axis=-1) / tf.maximum(tf.reduce_sum(known, axis=-1), 1.0)  # [batch]
        right = tf.reduce_sum(known * tf.cast(tf.equal(choice, labels), tf.float32))
        return HeadOutput(losses, {"choice": choice}, {"accuracy": right / tf.maximum(tf.reduce_sum(known), 1.0)})

    return build


def variable_shapes(config, head, spec):
    """Dict from the name of each trainable variable of a model with a head to its shape."""
    with tf.Graph().as_default():
        features = {
            name: tf.zeros([1, of.shape[0]], tf.int32 if of.dtype == tf.int64 else of.dtype)
            for name, of in spec.items()
        }
        _build(config, head, features, is_training=False)
        return {variable.op.name: variable.shape.as_list() for variable in tf.trainable_variables()}


def _build(config, head, features, is_training, **model_options):
    model = modeling.BertModel(
        config=config,
        is_training=is_training,
        input_ids=features["input_ids"],  # [batch, seq]
        input_mask=features["input_mask"],  # [batch, seq]
        token_type_ids=features["segment_ids"],  # [batch, seq]
        **model_options,
    )
    return head(model, features, is_training)


def _training_input_fn(data, seed, batch_size):
    """Input function that yields every record once in each epoch, in an order that seed and epoch decide.

    The position follows from the global step. The records are shuffled as a whole, or, if they take too much memory,
    within a window: they may well be sorted by label.
    """
    record_bytes = sum(map(files.size, data.files)) / data.count
    window = max(1, min(data.count, int(_SHUFFLED_BYTES / record_bytes)))

    def examples(position):
        first_epoch = position // data.count

        def epoch_examples(epoch):
            key = tf.random.stateless_uniform([], seed=tf.stack([seed, epoch]), maxval=2**31 - 1, dtype=tf.int64)
            dataset = tf.data.TFRecordDataset(list(data.files))
            dataset = dataset.shuffle(window, seed=key, reshuffle_each_iteration=False)
            return dataset.skip(tf.where(tf.equal(epoch, first_epoch), position % data.count, tf.zeros([], tf.int64)))

        return tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(epoch_examples)

    def input_fn(params):
        host, num_hosts = 0, 1
        if params.get("context") is not None:
            _, host, num_hosts, _ = params["context"].current_input_fn_deployment()
        # Read from the restored variable when the iterator is made, so that a session that is made anew inside one
        # process continues at the right example too.
        step = tf.cast(tf.train.get_or_create_global_step().read_value(), tf.int64)
        dataset = tf.data.Dataset.from_tensors(step * batch_size).flat_map(examples).shard(num_hosts, host)
        dataset = dataset.batch(params["batch_size"], drop_remainder=True)
        dataset = dataset.map(lambda batch: input_pipeline.parse_batch(batch, data.spec, data.feature_names))
        options = tf.data.Options()
        options.deterministic = True
        return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)

    return input_fn


def _prediction_input_fn(data):
    """Input function that yields every record once, in order; the last batch is filled up with zeros."""

    def input_fn(params):
        batch_size = params["batch_size"]

        def parse_and_fill(serialized):
            filled = {}
            for name, value in input_pipeline.parse_batch(serialized, data.spec, data.feature_names).items():
                value = tf.pad(value, [[0, batch_size - tf.shape(serialized)[0]], [0, 0]])
                filled[name] = tf.ensure_shape(value, [batch_size, value.shape[1]])
            return filled

        dataset = tf.data.TFRecordDataset(list(data.files)).batch(batch_size)
        return dataset.map(parse_and_fill).prefetch(tf.data.AUTOTUNE)

    return input_fn


@dataclasses.dataclass
class Finetuner(trainer.Trainer):
    """Fine-tunes one model in one output folder, and computes its outputs.

    Attributes:
      head: function as `classifier` returns it.
    """

    head: Optional[Callable] = None

    def train(self, data, schedule, record=None, course=None, evaluate=None, eval_every=None):
        """Trains from the newest checkpoint on.

        Args:
          data: a `Data`.
          schedule: a `trainer.Schedule`.
          record, course, eval_every: as of `trainer.Trainer`.
          evaluate: if there is a course, a function that evaluates the newest checkpoint and returns its results.

        Returns:
          A dict of the last training metrics, with "examples_per_second"; empty if there was nothing to do.
        """
        input_fn = _training_input_fn(data, self.seed, schedule.train_batch_size)
        stretch = trainer.Stretch(0, schedule.num_train_steps, schedule, data.spec, input_fn, evaluate)
        return self._train_stretches([stretch], record, course, eval_every)

    def outputs(self, data, batch_size):
        """Computes the outputs of all examples with the newest checkpoint, or, if there is none, the initial one.

        Args:
          data: a `Data`.
          batch_size: examples in a step, over all replicas.

        Returns:
          A dict of arrays [examples, ...] in the order of the records: the head's outputs, and "loss".
        """
        predictor = self._estimator(self.prediction_model_fn(), predict_batch_size=batch_size)
        batches = predictor.predict(_prediction_input_fn(data), yield_single_examples=False)
        columns, done, reported = {}, 0, time.monotonic()
        for batch in batches:
            for name, values in batch.items():
                columns.setdefault(name, []).append(values)
            done += len(values)
            if time.monotonic() - reported > _REPORT_SECONDS:
                reported = time.monotonic()
                logging.info("%d of %d examples", min(done, data.count), data.count)
        if done < data.count:
            raise InputError(f"{data.files[0]}: {done} records were read, but there should be {data.count}.")
        return {name: np.concatenate(values)[: data.count] for name, values in columns.items()}

    def loss_builder(self, batch, num_micro_batches=1):
        """As of `trainer.Trainer`."""
        del batch, num_micro_batches

        def build(features):
            result = self._build(features, is_training=True)
            return tf.reduce_mean(result.losses), result.metrics

        return build

    def prediction_model_fn(self):
        """Returns the model function of predictions for TPUEstimator."""

        def model_fn(features, labels, mode, params):
            del labels, params
            result = self._build(features, is_training=False)
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode=mode,
                predictions={**result.outputs, "loss": result.losses},
                scaffold_fn=checkpoints.scaffold_function(self.init_checkpoint),
            )

        return model_fn

    def _build(self, features, is_training):
        return _build(self.config, self.head, features, is_training, **self.model_options)
