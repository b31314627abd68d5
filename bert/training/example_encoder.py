"""The encoder's outputs for each example of a batch, however the examples lie in it."""

import tensorflow.compat.v1 as tf

from bert import modeling


class EncodedExamples:
    """What a `BertModel` makes of the examples of a batch, as `bert.data.batching` lays them.

    Attributes:
      token_mask: int32 Tensor [batch, seq], 1 for tokens; None if padding has been encoded like tokens, as the original
        does, and has outputs of its own.
    """

    def __init__(self, features, config, is_training, **options):
        """Builds the encoder.

        Args:
          features: dict of Tensors, as records hold them, or as `batching.bucket` or `batching.pack_features` returns
            them.
          config, is_training, **options: as of `BertModel`.
        """
        mask = features["input_mask"]  # [batch, seq]
        self._seq_length = mask.shape.as_list()[1]
        self._first = None
        if "first_places" in features:
            self._first = features["first_places"][:, 0]  # [batch]
            example_ids = self._rows(features["example_ids"])  # [rows, seq]
            self._model = modeling.BertModel(
                config,
                is_training,
                self._rows(features["input_ids"]),  # [rows, seq]
                modeling.create_attention_mask_from_parts(example_ids),  # [rows, seq, seq]
                self._rows(features["segment_ids"]),  # [rows, seq]
                position_ids=self._rows(features["position_ids"]),  # [rows, seq]
                pooled_places=self._first,
                **options,
            )
            self.token_mask = mask
            return
        ids = features["input_ids"]  # [batch, seq], or shorter
        is_cut = ids.shape.as_list()[1] != self._seq_length
        if is_cut:
            mask = mask[:, : tf.shape(ids)[1]]
        self._model = modeling.BertModel(config, is_training, ids, mask, features["segment_ids"], **options)
        self.token_mask = features["input_mask"] if is_cut else None

    def get_pooled_output(self):
        """Returns the pooler's output for the first token of each example, float [batch, hidden]."""
        return self._model.get_pooled_output()

    def get_sequence_output(self):
        """Returns the last layer's output for each example, float [batch, seq, hidden]; 0 where `token_mask` is."""
        vectors = self._model.get_sequence_output()
        if self.token_mask is None:
            return vectors
        if self._first is None:
            missing = self._seq_length - tf.shape(vectors)[1]
            vectors = tf.pad(vectors, [[0, 0], [0, missing], [0, 0]])  # [batch, seq, hidden]
        else:
            vectors = modeling.reshape_to_matrix(vectors)  # [rows * seq, hidden]
            places = self._first[:, tf.newaxis] + tf.range(self._seq_length)  # [batch, seq]
            # Those behind the last row are no tokens.
            vectors = tf.gather(vectors, tf.minimum(places, modeling.get_shape_list(vectors)[0] - 1))
        return vectors * tf.cast(self.token_mask, vectors.dtype)[:, :, tf.newaxis]

    def _rows(self, packed):
        """Entries of the examples [batch, width] to the rows that they are, [rows, seq]."""
        rows = packed.shape.num_elements() // self._seq_length
        return tf.reshape(tf.reshape(packed, [-1])[: rows * self._seq_length], [rows, self._seq_length])
