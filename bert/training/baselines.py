"""How well one predicts masked tokens without a model: what a masked LM loss is to be compared with."""

import math

import numpy as np
import tensorflow as tf

from bert.data import input_pipeline, records

# Token frequencies are taken from the first so many training records: far more than they need.
MAX_RECORDS = 100_000
_BATCH = 1000


def label_counts(phase, vocab_size, max_records=-1):
    """How often each token is to be predicted in the records of a phase, or could be if they have no masks.

    Args:
      phase: a `bert.training.pretraining.Phase`.
      vocab_size: number of tokens.
      max_records: number of records to look at; -1: all.

    Returns:
      int64 array [vocab_size].
    """
    counts = np.zeros(vocab_size, np.int64)
    names = ("tokens", "segment_lengths") if phase.masking else ("masked_lm_ids", "masked_lm_weights")
    spec = {name: phase.record_spec[name] for name in names}
    dataset = tf.data.TFRecordDataset(list(phase.files)).take(max_records).batch(_BATCH)
    for batch in dataset.map(lambda serialized: input_pipeline.parse_batch(serialized, spec, phase.feature_names)):
        tokens, used = (batch[name].numpy() for name in names)
        if phase.masking:
            # All tokens that may be masked: all but the last of each segment and the first of each pair.
            ends = used.cumsum(axis=1)  # [batch, segments]
            used = np.arange(tokens.shape[1] + 1) < ends[:, -1:]
            np.put_along_axis(used, ends - 1, False, axis=1)
            np.put_along_axis(used, ends[:, 1::2], False, axis=1)
            used[:, 0] = False
            used = used[:, :-1]  # one column more than there are places: the last pair may end the row
            tokens = tokens & records.TOKEN_ID
        counts += np.bincount(tokens[used > 0], minlength=vocab_size)
    return counts


def masked_lm_losses(training_counts, held_out_counts):
    """Losses of two guesses that do not look at the context, in nats per masked token.

    Args:
      training_counts: int array [vocab_size], frequencies the second guess knows.
      held_out_counts: int array [vocab_size], what is to be predicted.

    Returns:
      A dict: "uniform_loss", of a uniform guess over the vocabulary, and "token_frequency_loss", of guessing
      each token by its (add-one smoothed) frequency in the training records.
    """
    vocab_size = len(training_counts)
    log_frequencies = np.log((training_counts + 1) / (training_counts.sum() + vocab_size))
    return {
        "uniform_loss": math.log(vocab_size),
        "token_frequency_loss": float(-(held_out_counts @ log_frequencies) / max(held_out_counts.sum(), 1)),
    }
