"""The BERT model: a Transformer encoder over WordPiece tokens, with a pooler over the first one.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
https://arxiv.org/abs/1810.04805. The names, signatures, variable names and initialisation are those of the
original TensorFlow 1 code, so that its callers and its checkpoints work unchanged.

Variables are always float32. Every function computes in the dtype of the tensor it is given, but for layer
normalisation, the softmax and the losses, which are computed in float32. So the one place that decides is where
`BertModel` casts the encoder's input.
"""

import copy
import functools
import json
import math
import re

import tensorflow.compat.v1 as tf

from bert import files, stateless
from bert.errors import InputError

# What attention scores of padding get added: after the softmax, such positions have weight 0 in float32.
MASKED_SCORE = -10000.0
LAYER_NORM_EPSILON = 1e-12
# What activations and products can be computed in.
COMPUTE_DTYPES = {"fp32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}


class BertConfig:
    """Shape and hyper-parameters of a `BertModel`: the content of bert_config.json."""

    def __init__(
        self,
        vocab_size,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=512,
        type_vocab_size=16,
        initializer_range=0.02,
    ):
        """Makes a config; the defaults are those of BERT base, but for `type_vocab_size`.

        Args:
          vocab_size: number of entries of the WordPiece vocabulary.
          hidden_size: width of the encoder's layers and of the pooler; a multiple of `num_attention_heads`.
          num_hidden_layers: number of encoder layers.
          num_attention_heads: attention heads in each layer.
          intermediate_size: width of the feed-forward layer.
          hidden_act: activation of the feed-forward layer, see `get_activation`.
          hidden_dropout_prob: dropout of the embeddings and of each layer's two outputs.
          attention_probs_dropout_prob: dropout of the attention probabilities.
          max_position_embeddings: longest sequence the model can take, in tokens.
          type_vocab_size: number of segment ids; 2 in the released models.
          initializer_range: standard deviation of the truncated normal that weights start from.
        """
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.hidden_act = hidden_act
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range

    @classmethod
    def from_dict(cls, json_object):
        """Makes a config from a dictionary; keys that the model does not know are kept as attributes."""
        config = cls(vocab_size=None)
        config.__dict__.update(json_object)
        return config

    @classmethod
    def from_json_file(cls, json_file):
        """Reads and checks a config.

        Raises:
          InputError: there is no such file, it is not JSON, or it describes no model.
        """
        config = cls.from_dict(files.read_json_object(json_file))
        try:
            config.check()
        except InputError as e:
            raise InputError(f"{json_file}: {e}") from e
        return config

    def check(self):
        """Raises InputError, naming the values, if no model has this shape."""
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} is {value!r}: a positive integer is needed.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise InputError(f"{name} is {value!r}: a number from 0 to below 1 is needed.")
        _check_heads(self.hidden_size, self.num_attention_heads)
        get_activation(self.hidden_act)

    def to_dict(self):
        """Returns the config as a dictionary."""
        return copy.deepcopy(self.__dict__)

    def to_json_string(self):
        """Returns the config as JSON text."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


class BertModel:
    """The encoder, from token ids to vectors.

    Example:
        config = modeling.BertConfig(vocab_size=30522, type_vocab_size=2)
        model = modeling.BertModel(config, is_training=False, input_ids=tf.constant([[101, 7592, 102]]))
        vectors = model.get_sequence_output()  # [1, 3, 768]
        sentence = model.get_pooled_output()  # [1, 768]
    """

    def __init__(
        self,
        config,
        is_training,
        input_ids,
        input_mask=None,
        token_type_ids=None,
        use_one_hot_embeddings=False,
        scope=None,
        compute_dtype=tf.float32,
        position_ids=None,
        pooled_places=None,
        recompute_grad=False,
    ):
        """Builds the graph of the encoder.

        Args:
          config: a `BertConfig`.
          is_training: whether dropout is applied.
          input_ids: int32 tensor [batch_size, seq_length] of token ids.
          input_mask: int32 tensor [batch_size, seq_length], 1 for tokens, 0 for padding; default: all ones. Or
            [batch_size, seq_length, seq_length], 1 where the token of the second index may look at that of the third.
          token_type_ids: int32 tensor [batch_size, seq_length] of segment ids; default: all zeros.
          use_one_hot_embeddings: look words up by a matrix product with one-hot vectors, which can pay on a
            TPU and is slow elsewhere.
          scope: variable scope; default "bert".
          compute_dtype: dtype of the encoder's activations and products, and so of all outputs; see
            `COMPUTE_DTYPES`.
          position_ids: int32 tensor [batch_size, seq_length], below seq_length, the position of each token in its
            text; default: its place in the row.
          pooled_places: int32 tensor [n] of places in the batch, row * seq_length + place in the row, whose vectors
            are pooled; default: the first of each row.
          recompute_grad: as of `transformer_model`.

        Raises:
          InputError: the config describes no model, or the sequence is longer than its positions.
          ValueError: a tensor has another rank.
        """
        hidden_dropout_prob = config.hidden_dropout_prob if is_training else 0.0
        attention_probs_dropout_prob = config.attention_probs_dropout_prob if is_training else 0.0

        batch_size, seq_length = get_shape_list(input_ids, expected_rank=2)
        if input_mask is None:
            input_mask = tf.ones([batch_size, seq_length], tf.int32)
        if token_type_ids is None:
            token_type_ids = tf.zeros([batch_size, seq_length], tf.int32)

        with tf.variable_scope(scope, default_name="bert", use_resource=True):
            with tf.variable_scope("embeddings"):
                self.embedding_output, self.embedding_table = embedding_lookup(
                    input_ids,
                    vocab_size=config.vocab_size,
                    embedding_size=config.hidden_size,
                    initializer_range=config.initializer_range,
                    use_one_hot_embeddings=use_one_hot_embeddings,
                )
                self.embedding_output = embedding_postprocessor(
                    self.embedding_output,
                    use_token_type=True,
                    token_type_ids=token_type_ids,
                    token_type_vocab_size=config.type_vocab_size,
                    initializer_range=config.initializer_range,
                    max_position_embeddings=config.max_position_embeddings,
                    dropout_prob=hidden_dropout_prob,
                    position_ids=position_ids,
                )
                self.embedding_output = tf.cast(self.embedding_output, compute_dtype)  # [batch, seq, hidden]
            with tf.variable_scope("encoder"):
                self.all_encoder_layers = transformer_model(
                    self.embedding_output,
                    # Where every position may look at the same ones, one row of the mask serves them all.
                    attention_mask=tf.expand_dims(input_mask, 1) if input_mask.shape.ndims == 2 else input_mask,
                    hidden_size=config.hidden_size,
                    num_hidden_layers=config.num_hidden_layers,
                    num_attention_heads=config.num_attention_heads,
                    intermediate_size=config.intermediate_size,
                    intermediate_act_fn=get_activation(config.hidden_act),
                    hidden_dropout_prob=hidden_dropout_prob,
                    attention_probs_dropout_prob=attention_probs_dropout_prob,
                    initializer_range=config.initializer_range,
                    do_return_all_layers=True,
                    recompute_grad=recompute_grad,
                )
            self.sequence_output = self.all_encoder_layers[-1]
            with tf.variable_scope("pooler"):
                if pooled_places is None:
                    first = self.sequence_output[:, 0]  # [batch, hidden]
                else:
                    first = tf.gather(reshape_to_matrix(self.sequence_output), pooled_places)  # [n, hidden]
                self.pooled_output = dense(
                    first,
                    config.hidden_size,
                    activation=tf.tanh,
                    initializer_range=config.initializer_range,
                )

    def get_pooled_output(self):
        """Returns the pooler's output for each first token, float [batch_size, hidden_size]."""
        return self.pooled_output

    def get_sequence_output(self):
        """Returns the last layer's output, float [batch_size, seq_length, hidden_size]."""
        return self.sequence_output

    def get_all_encoder_layers(self):
        """Returns every layer's output, a list of float [batch_size, seq_length, hidden_size]."""
        return self.all_encoder_layers

    def get_embedding_output(self):
        """Returns the encoder's input, float [batch_size, seq_length, hidden_size].

        It is the sum of word, segment and position embeddings, after layer normalisation and dropout.
        """
        return self.embedding_output

    def get_embedding_table(self):
        """Returns the word embeddings, a float32 variable [vocab_size, hidden_size]."""
        return self.embedding_table


@tf.custom_gradient
def gelu(x):
    """Gaussian error linear unit in the tanh approximation that BERT was trained with.

    0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks and Gimpel, https://arxiv.org/abs/1606.08415.
    """
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    x_squared = x * x
    t = tf.tanh(x * (scale + scale * cubic * x_squared))
    half = 0.5 + 0.5 * t

    # By hand, which keeps fewer tensors and makes fewer passes over memory than the derived gradient.
    def gradient(dy):
        # Half of tanh's derivative, (1 - t^2) / 2, is 2 half (1 - half).
        # In this order nothing overflows in float16.
        return dy * (half + half * (1.0 - half) * x * (2 * scale + 6 * scale * cubic * x_squared))

    return x * half, gradient


def gelu_erf(x):
    """Exact Gaussian error linear unit, x Phi(x): what Hugging Face models call "gelu"."""
    return 0.5 * x * (1.0 + tf.math.erf(x * math.sqrt(0.5)))


_ACTIVATIONS = {
    "linear": None,
    "relu": tf.nn.relu,
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "tanh": tf.tanh,
}


def get_activation(activation_string):
    """Returns the function with this name: linear, relu, gelu (tanh approximation), gelu_erf (exact) or tanh.

    Args:
      activation_string: a name in any case. "linear", an empty name and None mean no function, and
        what is not a string is returned as it is.

    Raises:
      InputError: there is no such activation.
    """
    if not isinstance(activation_string, str):
        return activation_string
    name = activation_string.lower() or "linear"
    if name not in _ACTIVATIONS:
        raise InputError(f"unknown activation {activation_string!r}; known are {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def get_assignment_map_from_checkpoint(tvars, init_checkpoint):
    """Finds the variables that a checkpoint can initialise, by name.

    Args:
      tvars: variables of the current model.
      init_checkpoint: prefix of a checkpoint, such as "folder/bert_model.ckpt".

    Returns:
      A dictionary {name: name} for `tf.train.init_from_checkpoint`, and one that has an entry 1 for each such
      variable under "name" and "name:0".

    Raises:
      InputError: there is no such checkpoint.
    """
    try:
        in_checkpoint = [name for name, _ in tf.train.list_variables(init_checkpoint)]
    except (tf.errors.OpError, ValueError) as e:
        raise InputError(f"{init_checkpoint}: no checkpoint can be read there ({e}).") from e
    wanted = {re.sub(r":\d+$", "", variable.name) for variable in tvars}
    assignment_map = {name: name for name in in_checkpoint if name in wanted}
    initialized = dict.fromkeys(assignment_map, 1)
    initialized.update((f"{name}:0", 1) for name in assignment_map)
    return assignment_map, initialized


def dropout(input_tensor, dropout_prob):
    """Sets a random share of the elements to 0 and scales up the others, so that the mean stays.

    The bits are those of `bert.stateless`. Each decision takes 8 of them, so the share is `dropout_prob`
    rounded to a multiple of 1/256 (0.1 becomes 26/256 = 0.1016); the scale matches it exactly.

    Args:
      input_tensor: float tensor.
      dropout_prob: probability that an element is dropped; None or 0 returns the tensor as it is.
    """
    if not dropout_prob:
        return input_tensor
    dropped = min(max(round(dropout_prob * 256), 1), 255)
    keep = stateless.random_bytes(get_shape_list(input_tensor)) >= tf.constant(dropped, tf.uint8)
    return input_tensor * (tf.cast(keep, input_tensor.dtype) * (256 / (256 - dropped)))


def layer_norm(input_tensor, name=None):
    """Normalises the last dimension to mean 0 and variance 1, then scales by gamma and adds beta.

    Ba et al., https://arxiv.org/abs/1607.06450.
    """
    width = input_tensor.shape.as_list()[-1]
    with tf.variable_scope(name, default_name="LayerNorm", use_resource=True):
        beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
        output = _normalise(tf.cast(input_tensor, tf.float32), tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta))
    return tf.cast(output, input_tensor.dtype)


@tf.custom_gradient
def _normalise(x, gamma, beta):
    """Layer normalisation with its gradient by hand, which makes fewer passes over memory than the derived one."""
    centred = x - tf.reduce_mean(x, -1, keepdims=True)  # [..., width]
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)  # [..., 1]
    inverse = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
    normal = centred * inverse  # [..., width]

    def gradient(dy):
        rows = list(range(dy.shape.ndims - 1))
        dy_normal = dy * normal
        d_normal = dy * gamma
        along = tf.reduce_mean(d_normal * normal, -1, keepdims=True)
        dx = (d_normal - tf.reduce_mean(d_normal, -1, keepdims=True) - normal * along) * inverse
        return dx, tf.reduce_sum(dy_normal, rows), tf.reduce_sum(dy, rows)

    return normal * gamma + beta, gradient


def layer_norm_and_dropout(input_tensor, dropout_prob, name=None):
    """Layer normalisation followed by dropout."""
    return dropout(layer_norm(input_tensor, name), dropout_prob)


def create_initializer(initializer_range=0.02):
    """Returns the initializer of all weight matrices: a normal cut off at two standard deviations."""
    return tf.truncated_normal_initializer(stddev=initializer_range)


def dense(input_tensor, units, activation=None, name=None, initializer_range=0.02):
    """Fully connected layer: activation(x W + b), with variables "kernel" and "bias" in scope "dense".

    Args:
      input_tensor: float tensor [rows, width].
      units: width of the output.
      activation: function applied to the output, or None.
      name: variable scope; default "dense".
      initializer_range: standard deviation of the initial kernel.

    Returns:
      Float tensor [rows, units].
    """
    with tf.variable_scope(name, default_name="dense", use_resource=True):
        kernel, bias = _dense_variables(input_tensor.shape.as_list()[-1], units, initializer_range)
        output = _linear(input_tensor, kernel, bias)
        return activation(output) if activation else output


def _dense_variables(width, units, initializer_range):
    kernel = tf.get_variable("kernel", [width, units], initializer=create_initializer(initializer_range))
    bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    return kernel, bias


def _linear(x, kernel, bias):
    return tf.nn.bias_add(tf.matmul(x, tf.cast(kernel, x.dtype)), tf.cast(bias, x.dtype))


def embedding_lookup(
    input_ids,
    vocab_size,
    embedding_size=128,
    initializer_range=0.02,
    word_embedding_name="word_embeddings",
    use_one_hot_embeddings=False,
):
    """Looks up the vector of each id.

    Args:
      input_ids: int32 tensor [batch_size, seq_length].
      vocab_size: number of rows of the table.
      embedding_size: width of the table.
      initializer_range: standard deviation of the initial table.
      word_embedding_name: name of the table's variable.
      use_one_hot_embeddings: use a matrix product with one-hot vectors rather than a gather.

    Returns:
      Float tensor [batch_size, seq_length, embedding_size], and the table [vocab_size, embedding_size].
    """
    embedding_table = tf.get_variable(
        word_embedding_name,
        [vocab_size, embedding_size],
        initializer=create_initializer(initializer_range),
        use_resource=True,
    )
    if use_one_hot_embeddings:
        flat_ids = tf.reshape(input_ids, [-1])
        output = tf.matmul(tf.one_hot(flat_ids, vocab_size), embedding_table)  # [batch * seq, width]
        output = tf.reshape(output, [*get_shape_list(input_ids), embedding_size])
    else:
        output = tf.gather(embedding_table, input_ids)  # [batch, seq, width]
    return output, embedding_table


def embedding_postprocessor(
    input_tensor,
    use_token_type=False,
    token_type_ids=None,
    token_type_vocab_size=16,
    token_type_embedding_name="token_type_embeddings",
    use_position_embeddings=True,
    position_embedding_name="position_embeddings",
    initializer_range=0.02,
    max_position_embeddings=512,
    dropout_prob=0.1,
    position_ids=None,
):
    """Adds segment and position embeddings to word embeddings, then normalises and applies dropout.

    Args:
      input_tensor: float tensor [batch_size, seq_length, width].
      use_token_type: whether to add an embedding of `token_type_ids`.
      token_type_ids: int32 tensor [batch_size, seq_length]; needed if `use_token_type`.
      token_type_vocab_size: number of segment ids.
      token_type_embedding_name: name of the segment table's variable.
      use_position_embeddings: whether to add an embedding of each position.
      position_embedding_name: name of the position table's variable.
      initializer_range: standard deviation of the initial tables.
      max_position_embeddings: rows of the position table: the longest sequence allowed.
      dropout_prob: dropout of the result.
      position_ids: int32 tensor [batch_size, seq_length], below seq_length; default: each token's place in its row.

    Returns:
      Float tensor of the shape of `input_tensor`.

    Raises:
      InputError: the sequence is longer than `max_position_embeddings`.
      ValueError: `token_type_ids` is missing.
    """
    batch_size, seq_length, width = get_shape_list(input_tensor, expected_rank=3)
    output = input_tensor
    if use_token_type:
        if token_type_ids is None:
            raise ValueError("`token_type_ids` must be given if `use_token_type` is True.")
        token_type_table = tf.get_variable(
            token_type_embedding_name,
            [token_type_vocab_size, width],
            initializer=create_initializer(initializer_range),
            use_resource=True,
        )
        # With so few rows, a matrix product is faster than a gather, above all backwards.
        one_hot_ids = tf.one_hot(tf.reshape(token_type_ids, [-1]), token_type_vocab_size)
        token_type_embeddings = tf.matmul(one_hot_ids, token_type_table)  # [batch * seq, width]
        output += tf.reshape(token_type_embeddings, [batch_size, seq_length, width])
    if use_position_embeddings:
        if isinstance(seq_length, int) and seq_length > max_position_embeddings:
            raise InputError(
                f"max_seq_length {seq_length} is longer than the model's max_position_embeddings "
                f"{max_position_embeddings}: shorten the sequences or take a model with more positions."
            )
        position_table = tf.get_variable(
            position_embedding_name,
            [max_position_embeddings, width],
            initializer=create_initializer(initializer_range),
            use_resource=True,
        )
        positions = tf.slice(position_table, [0, 0], [seq_length, -1])  # [seq, width]
        if position_ids is not None:
            one_hot_ids = tf.one_hot(tf.reshape(position_ids, [-1]), seq_length)
            positions = tf.reshape(tf.matmul(one_hot_ids, positions), [batch_size, seq_length, width])
        output += positions
    return layer_norm_and_dropout(output, dropout_prob)


def create_attention_mask_from_input_mask(from_tensor, to_mask):
    """Repeats a mask of positions for each position that looks at them.

    Args:
      from_tensor: tensor [batch_size, from_seq_length, ...], of which only the shape is used.
      to_mask: int32 tensor [batch_size, to_seq_length].

    Returns:
      Float tensor [batch_size, from_seq_length, to_seq_length].
    """
    batch_size, from_seq_length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_seq_length = get_shape_list(to_mask, expected_rank=2)[1]
    to_mask = tf.expand_dims(tf.cast(to_mask, tf.float32), 1)  # [batch, 1, to]
    return tf.broadcast_to(to_mask, [batch_size, from_seq_length, to_seq_length])


def create_attention_mask_from_parts(part_ids):
    """A mask that keeps the texts that share a row apart: attention within each alone.

    Args:
      part_ids: int32 tensor [batch_size, seq_length], which of the row's texts a place belongs to.

    Returns:
      int32 tensor [batch_size, seq_length, seq_length].
    """
    return tf.cast(tf.equal(part_ids[:, :, tf.newaxis], part_ids[:, tf.newaxis, :]), tf.int32)


def attention_layer(
    from_tensor,
    to_tensor,
    attention_mask=None,
    num_attention_heads=1,
    size_per_head=512,
    query_act=None,
    key_act=None,
    value_act=None,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.02,
    do_return_2d_tensor=False,
    batch_size=None,
    from_seq_length=None,
    to_seq_length=None,
):
    """Multi-head attention from each position of `from_tensor` to all positions of `to_tensor`.

    softmax(Q K^T / sqrt(size_per_head)) V per head; Vaswani et al., https://arxiv.org/abs/1706.03762.

    Args:
      from_tensor: float tensor [batch_size, from_seq_length, width], or two-dimensional with one row per
        position.
      to_tensor: float tensor of the same rank over `to_seq_length`; the same tensor for self-attention.
      attention_mask: tensor [batch_size, from_seq_length, to_seq_length], 1 where attention is allowed and 0
        where not; [batch_size, 1, to_seq_length] if that is the same from every position.
      num_attention_heads: number of heads.
      size_per_head: width of each head.
      query_act: activation of the queries, or None.
      key_act: activation of the keys, or None.
      value_act: activation of the values, or None.
      attention_probs_dropout_prob: dropout of the attention probabilities.
      initializer_range: standard deviation of the initial kernels.
      do_return_2d_tensor: return one row per position rather than three dimensions.
      batch_size: needed with two-dimensional tensors.
      from_seq_length: needed with two-dimensional tensors.
      to_seq_length: needed with two-dimensional tensors.

    Returns:
      Float tensor [batch_size, from_seq_length, num_attention_heads * size_per_head], or with its first two
      dimensions in one.

    Raises:
      ValueError: the ranks differ, or sizes are missing.
    """
    from_shape = get_shape_list(from_tensor, expected_rank=[2, 3])
    to_shape = get_shape_list(to_tensor, expected_rank=[2, 3])
    if len(from_shape) != len(to_shape):
        raise ValueError(f"`from_tensor` has rank {len(from_shape)}, but `to_tensor` has rank {len(to_shape)}.")
    if len(from_shape) == 3:
        batch_size, from_seq_length = from_shape[:2]
        to_seq_length = to_shape[1]
    elif batch_size is None or from_seq_length is None or to_seq_length is None:
        raise ValueError("Two-dimensional tensors need `batch_size`, `from_seq_length` and `to_seq_length`.")

    width = num_attention_heads * size_per_head
    variables = []
    for tensor, name in ((from_tensor, "query"), (to_tensor, "key"), (to_tensor, "value")):
        with tf.variable_scope(name, use_resource=True):
            variables.append(_dense_variables(tensor.shape.as_list()[-1], width, initializer_range))
    kernels, biases = zip(*variables)
    if from_tensor is to_tensor:
        # One product of three times the width is faster than three.
        projected = _linear(reshape_to_matrix(from_tensor), tf.concat(kernels, 1), tf.concat(biases, 0))
        query, key, value = tf.split(projected, 3, axis=1)  # [batch * seq, width] each
    else:
        from_matrix, to_matrix = reshape_to_matrix(from_tensor), reshape_to_matrix(to_tensor)
        query = _linear(from_matrix, kernels[0], biases[0])
        key = _linear(to_matrix, kernels[1], biases[1])
        value = _linear(to_matrix, kernels[2], biases[2])

    def split_heads(x, activation, seq_length):
        x = activation(x) if activation else x
        x = tf.reshape(x, [batch_size, seq_length, num_attention_heads, size_per_head])
        return tf.transpose(x, [0, 2, 1, 3])  # [batch, heads, seq, size_per_head]

    query = split_heads(query, query_act, from_seq_length)
    key = split_heads(key, key_act, to_seq_length)
    value = split_heads(value, value_act, to_seq_length)

    # Scaling the queries costs less than scaling the scores.
    query *= 1.0 / math.sqrt(size_per_head)
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [batch, heads, from, to]
    if attention_mask is not None:
        allowed = tf.cast(tf.expand_dims(attention_mask, 1), tf.float32)  # [batch, 1, from or 1, to]
        scores += (1.0 - allowed) * MASKED_SCORE
    probabilities = dropout(tf.cast(tf.nn.softmax(scores), value.dtype), attention_probs_dropout_prob)
    context = tf.matmul(probabilities, value)  # [batch, heads, from, size_per_head]
    context = tf.transpose(context, [0, 2, 1, 3])  # [batch, from, heads, size_per_head]
    if do_return_2d_tensor:
        return tf.reshape(context, [batch_size * from_seq_length, width])
    return tf.reshape(context, [batch_size, from_seq_length, width])


def transformer_model(
    input_tensor,
    attention_mask=None,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    intermediate_act_fn=gelu,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    initializer_range=0.02,
    do_return_all_layers=False,
    recompute_grad=False,
):
    """The stack of Transformer encoder layers, normalised after each residual sum.

    Args:
      input_tensor: float tensor [batch_size, seq_length, hidden_size].
      attention_mask: tensor [batch_size, seq_length or 1, seq_length], see `attention_layer`.
      hidden_size: width of each layer.
      num_hidden_layers: number of layers.
      num_attention_heads: heads in each layer.
      intermediate_size: width of the feed-forward layer.
      intermediate_act_fn: activation of the feed-forward layer, a function or None.
      hidden_dropout_prob: dropout of each layer's two outputs.
      attention_probs_dropout_prob: dropout of the attention probabilities.
      initializer_range: standard deviation of the initial kernels.
      do_return_all_layers: return a list of every layer's output rather than the last one's.
      recompute_grad: compute each layer once more when its gradient is computed, rather than keep what is in it: a
        third more work, and memory for the layers' outputs only.

    Returns:
      Float tensor [batch_size, seq_length, hidden_size], or a list of them.

    Raises:
      InputError: `hidden_size` is not a multiple of `num_attention_heads`.
      ValueError: the input has another width.
    """
    _check_heads(hidden_size, num_attention_heads)
    input_shape = get_shape_list(input_tensor, expected_rank=3)
    batch_size, seq_length, input_width = input_shape
    if input_width != hidden_size:
        raise ValueError(
            f"The input is {input_width} wide, but hidden_size is {hidden_size}; residuals need one width."
        )

    scope = tf.get_variable_scope()

    def transformer_layer(layer_input, layer):
        # The scope is named whole, since a layer that is computed once more is built elsewhere.
        reuse = tf.AUTO_REUSE if recompute_grad else None
        with tf.variable_scope(scope, reuse=reuse, auxiliary_name_scope=False), tf.variable_scope(f"layer_{layer}"):
            with tf.variable_scope("attention"):
                with tf.variable_scope("self"):
                    attention_output = attention_layer(
                        layer_input,
                        layer_input,
                        attention_mask=attention_mask,
                        num_attention_heads=num_attention_heads,
                        size_per_head=hidden_size // num_attention_heads,
                        attention_probs_dropout_prob=attention_probs_dropout_prob,
                        initializer_range=initializer_range,
                        do_return_2d_tensor=True,
                        batch_size=batch_size,
                        from_seq_length=seq_length,
                        to_seq_length=seq_length,
                    )
                with tf.variable_scope("output"):
                    attention_output = dense(attention_output, hidden_size, initializer_range=initializer_range)
                    attention_output = dropout(attention_output, hidden_dropout_prob)
                    attention_output = layer_norm(attention_output + layer_input)
            with tf.variable_scope("intermediate"):
                intermediate_output = dense(
                    attention_output,
                    intermediate_size,
                    activation=intermediate_act_fn,
                    initializer_range=initializer_range,
                )  # [batch * seq, intermediate]
            with tf.variable_scope("output"):
                layer_output = dense(intermediate_output, hidden_size, initializer_range=initializer_range)
                layer_output = dropout(layer_output, hidden_dropout_prob)
                layer_output = layer_norm(layer_output + attention_output)
        return layer_output

    # Two dimensions throughout: reshaping back and forth is not free on a TPU.
    layer_output = reshape_to_matrix(input_tensor)  # [batch * seq, hidden]
    layer_outputs = []
    for layer in range(num_hidden_layers):
        compute = functools.partial(transformer_layer, layer=layer)
        if recompute_grad:
            compute = tf.recompute_grad(stateless.repeatable(compute))
        layer_output = compute(layer_output)
        layer_outputs.append(layer_output)

    if do_return_all_layers:
        return [reshape_from_matrix(output, input_shape) for output in layer_outputs]
    return reshape_from_matrix(layer_output, input_shape)


def _check_heads(hidden_size, num_attention_heads):
    if hidden_size % num_attention_heads:
        raise InputError(f"hidden_size {hidden_size} is not a multiple of num_attention_heads {num_attention_heads}.")


def get_shape_list(tensor, expected_rank=None, name=None):
    """Returns the shape as a list: integers where it is known, scalar int32 tensors where it is not.

    Args:
      tensor: a tensor.
      expected_rank: integer or list of integers that the rank must be one of, see `assert_rank`.
      name: what to call the tensor in an error.
    """
    if expected_rank is not None:
        assert_rank(tensor, expected_rank, name)
    shape = tensor.shape.as_list()
    if None in shape:
        dynamic = tf.shape(tensor)
        shape = [dynamic[i] if size is None else size for i, size in enumerate(shape)]
    return shape


def reshape_to_matrix(input_tensor):
    """Merges all dimensions but the last: [..., width] becomes [rows, width]."""
    rank = input_tensor.shape.ndims
    if rank < 2:
        raise ValueError(f"A tensor of rank 2 or more is needed, not shape {input_tensor.shape}.")
    if rank == 2:
        return input_tensor
    return tf.reshape(input_tensor, [-1, input_tensor.shape.as_list()[-1]])


def reshape_from_matrix(output_tensor, orig_shape_list):
    """Undoes `reshape_to_matrix`: [rows, width] becomes `orig_shape_list` with its last dimension `width`."""
    if len(orig_shape_list) == 2:
        return output_tensor
    return tf.reshape(output_tensor, [*orig_shape_list[:-1], get_shape_list(output_tensor)[-1]])


def assert_rank(tensor, expected_rank, name=None):
    """Raises ValueError if the rank of a tensor is not `expected_rank`, an integer or a list of them."""
    allowed = [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
    if tensor.shape.ndims not in allowed:
        raise ValueError(
            f"Tensor {name or tensor.name!r} in scope {tf.get_variable_scope().name!r} has rank "
            f"{tensor.shape.ndims} (shape {tensor.shape}); expected: {expected_rank}."
        )
