"""Text to vectors: of each token, or of the whole text, from any of the encoder's layers."""

import dataclasses
import itertools

import numpy as np
import tensorflow.compat.v1 as tf

from bert import inference, tokenization
from bert.data.wordpiece import BlockTokenizer
from bert.errors import InputError
from bert.tasks import features
from bert.training import checkpoint_formats, devices, preflight

POOLINGS = ("cls", "mean", "max", "none")

_SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")


@dataclasses.dataclass(frozen=True)
class EncodedText:
    """What the encoder makes of a text.

    Attributes:
      tokens: its WordPieces, with [CLS] and [SEP].
      vectors: float32 array [layers, hidden] of the text, or [tokens, layers, hidden] without pooling.
    """

    tokens: list
    vectors: np.ndarray


class TextEncoder:
    """A model and its tokenizer.

    Example:
        encoder = TextEncoder("uncased_L-12_H-768_A-12", pooling="mean")
        vectors = encoder.encode(["Hello world", ("a first text", "and a second")])  # [2, 768]

    Attributes:
      config: the `BertConfig`.
      layers: the layers whose output is computed.
      pooling: one of `POOLINGS`.
    """

    def __init__(
        self,
        checkpoint,
        config=None,
        vocab_file=None,
        do_lower_case=None,
        layers=(-1,),
        pooling="mean",
        max_seq_length=128,
        batch_size=32,
        device=None,
        num_tpu_cores=8,
        use_one_hot_embeddings=False,
    ):
        """Reads the model and starts a session for it.

        Args:
          checkpoint: what `bert.training.checkpoint_formats.read` takes.
          config: a `BertConfig`; None: the checkpoint's.
          vocab_file: path; None: the checkpoint's.
          do_lower_case: whether text is lower-cased; None: as the vocabulary is.
          layers: indices of layers, 0 for the first, -1 for the last.
          pooling: how a text's vector is made of its tokens', those of [CLS] and [SEP] among them: "cls" takes the
            first, "mean" and "max" do what they say, and with "none" each token keeps its own.
          max_seq_length: tokens; what is longer is cut as in the original.
          batch_size: texts computed at a time.
          device: a `bert.training.devices.Device`; None: this machine's GPU, or else its CPU.
          num_tpu_cores: on a TPU, over how many cores a batch is spread.
          use_one_hot_embeddings: as of `bert.modeling.BertModel`.

        Raises:
          InputError: something is missing, or does not fit the rest.
        """
        device = device or devices.choose(False)
        model = checkpoint_formats.read(checkpoint)
        self.config = config or model.config
        if self.config is None:
            raise InputError(f"--bert_config_file is needed: there is no bert_config.json beside {checkpoint}.")
        vocab_file = vocab_file or model.vocab_file
        if vocab_file is None:
            raise InputError(f"--vocab_file is needed: there is no vocab.txt beside {checkpoint}.")
        preflight.check_config(self.config, max_seq_length)
        vocab = tokenization.load_vocab(vocab_file, required=_SPECIAL_TOKENS)
        preflight.check_vocabulary(self.config, len(vocab), vocab_file, "the model's config")
        if pooling not in POOLINGS:
            raise InputError(f"--pooling={pooling}: there are {', '.join(POOLINGS)}.")
        wrong = [i for i in layers if not -self.config.num_hidden_layers <= i < self.config.num_hidden_layers]
        if wrong:
            raise InputError(
                f"--layers: there is no layer {wrong[0]}; the model has {self.config.num_hidden_layers}, counted from "
                "0, or backwards from -1."
            )
        if device.use_tpu and batch_size % num_tpu_cores:
            raise InputError(f"--batch_size={batch_size} is not a multiple of --num_tpu_cores={num_tpu_cores}.")
        self.layers = tuple(layers)
        self.pooling = pooling
        self._max_seq_length = max_seq_length
        self._batch_size = batch_size
        self._has_fixed_shapes = device.use_tpu
        self._tokens = {token_id: token for token, token_id in vocab.items()}
        self._cls, self._sep = vocab["[CLS]"], vocab["[SEP]"]
        do_lower_case = features.check_case(vocab, vocab_file, do_lower_case)
        self._tokenizer = BlockTokenizer(vocab, do_lower_case)
        self._session = self._start(device, model.variables, checkpoint, num_tpu_cores, use_one_hot_embeddings)

    def encode(self, texts):
        """Vectors of texts.

        Args:
          texts: iterable of `str`, or of pairs of `str`.

        Returns:
          With pooling a float32 array [texts, hidden], or [texts, layers, hidden] for several layers. Without, a list
          of arrays [tokens, hidden], or [tokens, layers, hidden].
        """
        vectors = [encoded.vectors for encoded in self.iterate(texts)]
        if len(self.layers) == 1:
            vectors = [vector[..., 0, :] for vector in vectors]
        if self.pooling == "none":
            return vectors
        shape = (len(self.layers),) * (len(self.layers) > 1) + (self.config.hidden_size,)
        return np.stack(vectors) if vectors else np.zeros((0, *shape), np.float32)

    def iterate(self, texts, read_ahead=32):
        """Yields an `EncodedText` for each text, in order.

        Args:
          texts: iterable of `str`, or of pairs of `str`; it need not fit into memory.
          read_ahead: how many batches of texts are read before the first is computed. Those of like length are
            computed together.
        """
        texts = iter(texts)
        while True:
            block = list(itertools.islice(texts, read_ahead * self._batch_size))
            if not block:
                return
            rows = self._tokenize(block)
            order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
            vectors = [None] * len(rows)
            for start in range(0, len(rows), self._batch_size):
                chosen = order[start : start + self._batch_size]
                for i, values in zip(chosen, self._compute([rows[i] for i in chosen])):
                    vectors[i] = values[: len(rows[i][0])] if self.pooling == "none" else values
            for (ids, _), values in zip(rows, vectors):
                yield EncodedText([self._tokens[token_id] for token_id in ids], values)

    def _tokenize(self, texts):
        """Lists of token ids of texts, and of how many of them belong to the first segment."""
        pairs = [(text, "") if isinstance(text, str) else text for text in texts]
        # A line end is white space to the tokenizer; here it ends a text.
        lines = [text.replace("\n", " ") for column in zip(*pairs) for text in column]
        pieces, lengths, _ = self._tokenizer.encode("\n".join(lines) + "\n")
        ends = np.cumsum(lengths)
        starts = (ends - lengths).reshape(2, -1)
        lengths_a, lengths_b = lengths.reshape(2, -1).astype(np.int64)  # [texts] each
        kept_a, kept_b = features.truncate_pairs(lengths_a, lengths_b, self._max_seq_length)  # [texts] each
        rows = []
        for row, (size_a, size_b) in enumerate(zip(kept_a.tolist(), kept_b.tolist())):
            ids = [self._cls, *pieces[starts[0, row] :][:size_a].tolist(), self._sep]
            first = len(ids)
            if size_b:
                ids += [*pieces[starts[1, row] :][:size_b].tolist(), self._sep]
            rows.append((ids, first))
        return rows

    def _compute(self, rows):
        """Vectors of a batch of rows as of `_tokenize`: [rows, layers, hidden] or [rows, seq, layers, hidden]."""
        shape = len(rows), max(len(ids) for ids, _ in rows)
        if self._has_fixed_shapes:
            shape = self._batch_size, self._max_seq_length
        input_ids, input_mask, segment_ids = np.zeros((3, *shape), np.int32)  # [batch, seq] each
        for i, (ids, first) in enumerate(rows):
            input_ids[i, : len(ids)] = ids
            input_mask[i, : len(ids)] = 1
            segment_ids[i, first : len(ids)] = 1
        return self._session.run(self._output, dict(zip(self._inputs, (input_ids, input_mask, segment_ids))))

    def _start(self, device, variables, path, num_tpu_cores, use_one_hot_embeddings):
        graph = tf.Graph()
        with graph.as_default():
            shape = [self._batch_size, self._max_seq_length] if self._has_fixed_shapes else [None, None]
            self._inputs = [tf.placeholder(tf.int32, shape) for _ in range(3)]

            def compute(input_ids, input_mask, segment_ids):
                model = inference.build_model(self.config, input_ids, input_mask, segment_ids, use_one_hot_embeddings)
                layers = model.get_all_encoder_layers()
                vectors = tf.stack([layers[i] for i in self.layers], axis=2)  # [batch, seq, layers, hidden]
                return _pool(vectors, input_mask, self.pooling)

            if device.use_tpu:
                (self._output,) = tf.tpu.batch_parallel(compute, self._inputs, num_shards=num_tpu_cores)
                session = tf.Session(device.resolver.master(), config=_cluster_config(device.resolver))
                session.run(tf.tpu.initialize_system())
            else:
                self._output = compute(*self._inputs)
                session = tf.Session()
            inference.load_variables(session, variables, path)
        return session


def _cluster_config(resolver):
    """Tells a session of the machines that have the TPU, if they are others than this one."""
    spec = resolver.cluster_spec()
    return tf.ConfigProto(cluster_def=spec.as_cluster_def()) if spec and spec.jobs else None


def _pool(vectors, input_mask, pooling):
    """Makes a text's vectors of its tokens'.

    Args:
      vectors: float Tensor [batch, seq, layers, hidden].
      input_mask: int32 Tensor [batch, seq], 1 for tokens.
      pooling: one of `POOLINGS`.

    Returns:
      Float Tensor [batch, layers, hidden], or `vectors` for "none".
    """
    if pooling == "none":
        return vectors
    if pooling == "cls":
        return vectors[:, 0]
    mask = tf.cast(input_mask, tf.float32)[:, :, tf.newaxis, tf.newaxis]  # [batch, seq, 1, 1]
    if pooling == "max":
        return tf.reduce_max(vectors + (mask - 1.0) * 1e30, axis=1)
    # Rows that only fill the batch have no tokens.
    return tf.reduce_sum(vectors * mask, axis=1) / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0)
