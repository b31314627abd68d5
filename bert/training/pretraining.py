"""Pretraining: the model function, the phases of a training, and its evaluation."""

import dataclasses
import time
from typing import Optional

import tensorflow.compat.v1 as tf

from bert import modeling, pretraining_heads, replicas
from bert.data import input_pipeline
from bert.training import checkpoints, evaluations, trainer

METRICS = (
    "loss",
    "masked_lm_loss",
    "masked_lm_accuracy",
    "next_sentence_loss",
    "next_sentence_accuracy",
)  # of an evaluation


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of a training with records of one shape.

    Attributes:
      first_step, last_step: global steps between which the phase runs.
      max_seq_length, max_predictions_per_seq: shape of its records.
      schedule: the `bert.training.trainer.Schedule`.
      files: its record files.
      counts: number of records in each file.
      max_pairs: how many pairs a record has room for if they are packed, else None.
      feature_names: the features as the files spell them.
      layout: the `bert.data.records.Layout` of the files, or None.
      masking: the `bert.data.dynamic_masking.DynamicMasking` of files without masks, or None.
    """

    first_step: int
    last_step: int
    max_seq_length: int
    max_predictions_per_seq: int
    schedule: Optional[trainer.Schedule] = None
    files: tuple = ()
    counts: tuple = ()
    max_pairs: Optional[int] = None
    feature_names: tuple = ()
    layout: object = None
    masking: object = None

    @property
    def feature_spec(self):
        """The features that the model is given."""
        return input_pipeline.feature_spec(self.max_seq_length, self.max_predictions_per_seq, self.max_pairs)

    @property
    def record_spec(self):
        """The features to parse."""
        if self.masking:
            return input_pipeline.unmasked_feature_spec(self.max_seq_length, self.max_pairs)
        return self.feature_spec


class Rows:
    """Where the pairs of packed records lie.

    Attributes:
      pair_ids: int32 Tensor [batch, seq], which of the row's pairs a place belongs to; `max_pairs` for padding.
      position_ids: int32 Tensor [batch, seq], position of each token in its pair.
      first_places: int32 Tensor [batch * max_pairs], row * seq + place in the row of each pair's [CLS].
      pair_weights: float32 Tensor [batch, max_pairs], 0 where there is no pair. Its place is one in the row, too.
    """

    def __init__(self, pair_lengths, seq_length):
        """Finds it from the lengths of the pairs, int32 [batch, max_pairs]."""
        ends = tf.cumsum(pair_lengths, axis=1)  # [batch, max_pairs]
        starts = ends - pair_lengths  # [batch, max_pairs]
        place = tf.range(seq_length)  # [seq]
        is_behind = place >= ends[:, :, tf.newaxis]  # [batch, max_pairs, seq]
        self.pair_ids = tf.reduce_sum(tf.cast(is_behind, tf.int32), axis=1)
        ended = tf.where_v2(is_behind, ends[:, :, tf.newaxis], 0)  # [batch, max_pairs, seq]
        self.position_ids = place - tf.reduce_max(ended, axis=1)
        row_starts = tf.range(modeling.get_shape_list(starts)[0])[:, tf.newaxis] * seq_length  # [batch, 1]
        self.first_places = tf.reshape(row_starts + tf.minimum(starts, seq_length - 1), [-1])
        self.pair_weights = tf.cast(pair_lengths > 0, tf.float32)


def build_losses(
    config,
    features,
    is_training,
    next_sentence=True,
    masked_lm_weight=None,
    next_sentence_weight=None,
    **model_options,
):
    """Builds the model and both losses on a batch.

    Args:
      config: a `BertConfig`.
      features: dict of Tensors as of `bert.data.input_pipeline`; packed, if "pair_lengths" is among them.
      is_training: whether dropout is on.
      next_sentence: whether next sentence prediction is a part of the loss.
      masked_lm_weight, next_sentence_weight: as `total_weight` of the functions of `pretraining_heads`.
      **model_options: further arguments of `modeling.BertModel`.

    Returns:
      The total loss (scalar), and a dict of per-prediction and per-pair tensors for metrics. Of packed rows, there are
      batch * max_pairs pairs, of which those that are not there have weight 0.
    """
    mask, pair_weights = features.get("input_mask"), features.get("is_real_example")
    if "pair_lengths" in features:
        rows = Rows(features["pair_lengths"], features["input_ids"].shape.as_list()[1])
        mask = modeling.create_attention_mask_from_parts(rows.pair_ids)  # [batch, seq, seq]
        pair_weights = rows.pair_weights
        model_options.update(position_ids=rows.position_ids, pooled_places=rows.first_places)
    model = modeling.BertModel(
        config=config,
        is_training=is_training,
        input_ids=features["input_ids"],  # [batch, seq]
        input_mask=mask,  # [batch, seq], or [batch, seq, seq]
        token_type_ids=features["segment_ids"],  # [batch, seq]
        **model_options,
    )
    masked_lm_logits = pretraining_heads.masked_lm_logits(
        config, model.get_sequence_output(), model.get_embedding_table(), features["masked_lm_positions"]
    )
    masked_lm_loss, masked_lm_losses = pretraining_heads.masked_lm_loss(
        masked_lm_logits, features["masked_lm_ids"], features["masked_lm_weights"], masked_lm_weight
    )
    next_sentence_loss, next_sentence_losses, next_sentence_log_probs = pretraining_heads.get_next_sentence_output(
        config, model.get_pooled_output(), features["next_sentence_labels"], pair_weights, next_sentence_weight
    )
    labels = tf.reshape(features["next_sentence_labels"], [-1])  # [pairs]
    if pair_weights is None:
        pair_weights = tf.ones_like(labels, tf.float32)
    return masked_lm_loss + next_sentence_loss if next_sentence else masked_lm_loss, {
        "masked_lm_loss": masked_lm_loss,
        "masked_lm_losses": masked_lm_losses,  # [batch * predictions]
        "masked_lm_logits": masked_lm_logits,  # [batch * predictions, vocab]
        "masked_lm_ids": tf.reshape(features["masked_lm_ids"], [-1]),  # [batch * predictions]
        "masked_lm_weights": tf.reshape(features["masked_lm_weights"], [-1]),  # [batch * predictions]
        "next_sentence_loss": next_sentence_loss,
        "next_sentence_losses": next_sentence_losses,  # [pairs]
        "next_sentence_log_probs": next_sentence_log_probs,  # [pairs, 2]
        "next_sentence_labels": labels,  # [pairs]
        "next_sentence_weights": tf.reshape(pair_weights, [-1]),  # [pairs]
    }


def _training_metrics(outputs, next_sentence):
    """Scalars of one step on this replica."""
    logits = outputs["masked_lm_logits"]  # [batch * predictions, vocab]
    # The label is the model's first choice where no score exceeds its own: cheaper than argmax.
    of_label = tf.gather(logits, outputs["masked_lm_ids"], batch_dims=1)  # [batch * predictions]
    right = tf.cast(of_label >= tf.reduce_max(logits, axis=-1), tf.float32)  # [batch * predictions]
    weights = outputs["masked_lm_weights"]
    metrics = {
        "masked_lm_loss": outputs["masked_lm_loss"],
        "masked_lm_accuracy": tf.reduce_sum(weights * right) / (tf.reduce_sum(weights) + 1e-5),
    }
    if next_sentence:
        choice = _choice(outputs["next_sentence_log_probs"])  # [pairs]
        right = tf.cast(tf.equal(choice, outputs["next_sentence_labels"]), tf.float32)  # [pairs]
        weights = outputs["next_sentence_weights"]
        metrics["next_sentence_loss"] = outputs["next_sentence_loss"]
        metrics["next_sentence_accuracy"] = tf.reduce_sum(weights * right) / tf.maximum(tf.reduce_sum(weights), 1.0)
    return metrics


def _evaluation_tensors(outputs, next_sentence):
    """What leaves the device for `_evaluation_metrics`: choices and losses, not the scores."""
    tensors = {
        "masked_lm_choice": _choice(outputs["masked_lm_logits"]),
        "masked_lm_losses": outputs["masked_lm_losses"],
        "masked_lm_labels": outputs["masked_lm_ids"],
        "masked_lm_weights": outputs["masked_lm_weights"],
    }
    if next_sentence:
        tensors["next_sentence_choice"] = _choice(outputs["next_sentence_log_probs"])
        for name in ("next_sentence_losses", "next_sentence_labels", "next_sentence_weights"):
            tensors[name] = outputs[name]
    return tensors


def _evaluation_metrics(**tensors):
    """Means over all predictions and all examples of the evaluation, by the original's names."""
    metrics = {}
    for task in ("masked_lm", "next_sentence"):
        if f"{task}_choice" in tensors:
            labels, choice = tensors[f"{task}_labels"], tensors[f"{task}_choice"]
            losses, weights = tensors[f"{task}_losses"], tensors[f"{task}_weights"]
            metrics[f"{task}_accuracy"] = tf.metrics.accuracy(labels, choice, weights)
            metrics[f"{task}_loss"] = tf.metrics.mean(losses, weights)
    return metrics


def _choice(scores):
    return tf.argmax(scores, axis=-1, output_type=tf.int32)


def variable_shapes(config):
    """Dict from the name of each trainable variable of the pretraining model to its shape."""
    with tf.Graph().as_default():
        features = {
            name: tf.zeros([1, of.shape[0]], tf.int32 if of.dtype == tf.int64 else of.dtype)
            for name, of in input_pipeline.feature_spec(2, 1).items()
        }
        build_losses(config, features, is_training=False)
        return {variable.op.name: variable.shape.as_list() for variable in tf.trainable_variables()}


@dataclasses.dataclass
class Pretrainer(trainer.Trainer):
    """Pretrains one model in one output folder, and evaluates it.

    Attributes:
      eval_batch_size: examples per evaluation step.
      next_sentence: whether next sentence prediction is a part of the loss and of the metrics.
    """

    eval_batch_size: int = 8
    next_sentence: bool = True

    def train(self, phases, record=None, course=None, evaluation_phases=None, eval_every=None, max_eval_steps=None):
        """Trains through the phases that are not behind the newest checkpoint.

        Args:
          phases: list of `Phase` in order.
          record, course, eval_every: as of `trainer.Trainer`.
          evaluation_phases: if there is a course, a list like `phases`, with the files to evaluate on.
          max_eval_steps: as of `evaluate`.

        Returns:
          What training_summary.json says of the training, as of `trainer.Trainer`; empty if there was nothing to do.
        """

        def evaluation(phase):
            return lambda: {**self.evaluate(phase, max_eval_steps), "max_seq_length": phase.max_seq_length}

        stretches = [
            trainer.Stretch(
                phase.first_step,
                phase.last_step,
                phase.schedule,
                phase.feature_spec,
                input_pipeline.training_input_fn(
                    phase.files,
                    phase.counts,
                    phase.record_spec,
                    phase.feature_names,
                    self.seed,
                    phase.schedule.train_batch_size,
                    phase.first_step,
                    phase.layout,
                    phase.masking,
                ),
                evaluation(evaluation_phases[i]) if course else None,
            )
            for i, phase in enumerate(phases)
        ]
        return self._train_stretches(stretches, record, course, eval_every)

    def evaluate(self, phase, max_steps=None):
        """Evaluates the newest checkpoint on the phase's files, each record exactly once.

        Args:
          phase: a `Phase` whose files are evaluated.
          max_steps: at most so many batches; None: all.

        Returns:
          A dict of the original's metrics and `global_step`.
        """
        count = sum(phase.counts)
        steps = -(-count // self.eval_batch_size)
        if max_steps is not None and max_steps < steps:
            steps, count = max_steps, max_steps * self.eval_batch_size
        start = time.monotonic()
        results = self._estimator(self.evaluation_model_fn(), eval_batch_size=self.eval_batch_size).evaluate(
            input_pipeline.evaluation_input_fn(phase.files, phase.record_spec, phase.feature_names),
            steps=steps,
        )
        # Estimator's own "loss" is a mean over batches, in which a last batch that is not full weighs too much.
        results["loss"] = results["masked_lm_loss"] + results.get("next_sentence_loss", 0.0)
        rate = count / (time.monotonic() - start)
        evaluations.write_events(self.output_dir, results["global_step"], {"examples_per_second": rate})
        return dict(results)

    def loss_builder(self, batch, num_micro_batches=1):
        """As of `trainer.Trainer`. Predictions and pairs weigh the same in whichever micro-batch they are."""
        weights = {"masked_lm_weight": tf.reduce_sum(batch["masked_lm_weights"])}
        if "pair_lengths" in batch:
            pairs = tf.reduce_sum(tf.cast(batch["pair_lengths"] > 0, tf.float32))
            weights["next_sentence_weight"] = pairs
        # Here, since replicas cannot meet within the loop over micro-batches.
        weights = {name: replicas.sum(weight) / num_micro_batches for name, weight in weights.items()}

        def build(features):
            loss, outputs = self._build(features, is_training=True, **weights)
            return loss, _training_metrics(outputs, self.next_sentence)

        return build

    def evaluation_model_fn(self):
        """Returns the model function of the evaluation for TPUEstimator."""

        def model_fn(features, labels, mode, params):
            del labels, params
            loss, outputs = self._build(features, is_training=False)
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode=mode,
                loss=loss,
                eval_metrics=(_evaluation_metrics, _evaluation_tensors(outputs, self.next_sentence)),
                scaffold_fn=checkpoints.scaffold_function(self.init_checkpoint),
            )

        return model_fn

    def _build(self, features, is_training, **weights):
        return build_losses(
            self.config, features, is_training, next_sentence=self.next_sentence, **weights, **self.model_options
        )
