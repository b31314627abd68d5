"""Fine-tuning: an encoder with a task's head on it, its training, and its outputs for every example."""

import dataclasses
import time
from typing import Callable, Optional

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from bert import heads, modeling
from bert.data import batching, finetuning_input
from bert.errors import InputError
from bert.training import checkpoints, trainer
from bert.training.example_encoder import EncodedExamples

_REPORT_SECONDS = 30.0


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
      A function of an `EncodedExamples`, a dict of features, and whether this is a training, to a `HeadOutput`. Outputs
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
      "start_positions" and "end_positions" among the features, losses are 0. In padded batches places of padding have
      a part in the loss, as in the original; in others, which have no outputs for them, they have none.
    """

    def build(model, features, is_training):
        del is_training
        start_logits, end_logits = heads.span_logits(model.get_sequence_output())  # [batch, seq] each
        if model.token_mask is not None:
            masked = (1.0 - tf.cast(model.token_mask, tf.float32)) * modeling.MASKED_SCORE  # [batch, seq]
            start_logits, end_logits = start_logits + masked, end_logits + masked
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
    return head(EncodedExamples(features, config, is_training, **model_options), features, is_training)


@dataclasses.dataclass
class Finetuner(trainer.Trainer):
    """Fine-tunes one model in one output folder, and computes its outputs.

    Attributes:
      head: function as `classifier` returns it.
      batch_kind: how examples lie in batches, a kind of `bert.data.batching`.
    """

    head: Optional[Callable] = None
    batch_kind: str = batching.PADDED

    def train(self, data, schedule, record=None, course=None, evaluate=None, eval_every=None):
        """Trains from the newest checkpoint on.

        Args:
          data: a `finetuning_input.Data`.
          schedule: a `trainer.Schedule`.
          record, course, eval_every: as of `trainer.Trainer`.
          evaluate: if there is a course, a function that evaluates the newest checkpoint and returns its results.

        Returns:
          What training_summary.json says of the training, as of `trainer.Trainer`, and "batches" if they were not
          padded; empty if there was nothing to do.
        """
        fills = []

        def on_fill(fill):
            fills.append(fill)
            _log_fill("training", fill)

        input_fn = finetuning_input.training_input_fn(
            data,
            self.seed,
            schedule.train_batch_size,
            schedule.num_train_steps,
            self.batch_kind,
            schedule.num_accumulation_steps,
            on_fill,
        )
        stretch = trainer.Stretch(0, schedule.num_train_steps, schedule, data.spec, input_fn, evaluate)
        summary = self._train_stretches([stretch], record, course, eval_every)
        return {**summary, "batches": fills[-1].summary()} if fills else summary

    def outputs(self, data, batch_size):
        """Computes the outputs of all examples with the newest checkpoint, or, if there is none, the initial one.

        Args:
          data: a `finetuning_input.Data`.
          batch_size: examples in a step, over all replicas.

        Returns:
          A dict of arrays [examples, ...] in the order of the records: the head's outputs, and "loss".
        """
        predictor = self._estimator(self.prediction_model_fn(), predict_batch_size=batch_size)
        input_fn = finetuning_input.prediction_input_fn(
            data, self.batch_kind, lambda fill: _log_fill("evaluation or prediction", fill)
        )
        columns, is_done, reported = {}, np.zeros(data.count, bool), time.monotonic()
        for batch in predictor.predict(input_fn, yield_single_examples=False):
            index = batch.pop("index")[:, 0]  # [batch]
            is_real = (index >= 0) & (index < data.count)
            for name, values in batch.items():
                if name not in columns:
                    columns[name] = np.empty((data.count, *values.shape[1:]), values.dtype)
                columns[name][index[is_real]] = values[is_real]
            is_done[index[is_real]] = True
            if time.monotonic() - reported > _REPORT_SECONDS:
                reported = time.monotonic()
                logging.info("%d of %d examples", is_done.sum(), data.count)
        if not is_done.all():
            raise InputError(f"{data.files[0]}: {is_done.sum()} records were read, but there should be {data.count}.")
        return columns

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
                predictions={**result.outputs, "loss": result.losses, "index": features["index"]},
                scaffold_fn=checkpoints.scaffold_function(self.init_checkpoint),
            )

        return model_fn

    def _build(self, features, is_training):
        return _build(self.config, self.head, features, is_training, **self.model_options)


def _log_fill(what, fill):
    logging.info(
        "%s: %s batches; tokens are in %.1f %% of their places, instead of %.1f %%",
        what,
        fill.kind,
        100 * fill.share,
        100 * fill.padded_share,
    )
