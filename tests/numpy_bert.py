"""BERT and its losses in NumPy float64, from the paper's formulas: what the TensorFlow graph is held to."""

import math

import numpy as np

from bert import modeling

_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
}


def small_config(dropout=0.0, **changes):
    """The config of a model that is made in a moment; `changes` are other arguments of `BertConfig`."""
    sizes = {
        "vocab_size": 31,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 12,
        "type_vocab_size": 2,
    }
    return modeling.BertConfig(
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **{**sizes, **changes}
    )


def softmax(x):
    """Over the last dimension."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    """Over the last dimension."""
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class NumpyBert:
    """The model with the given variables {name: array}."""

    def __init__(self, config, variables):
        self.config = config
        self.variables = {name: np.asarray(value, np.float64) for name, value in variables.items()}
        self.activation = ACTIVATIONS[config.hidden_act]

    def dense(self, x, scope):
        """X W + b."""
        return x @ self.variables[scope + "/kernel"] + self.variables[scope + "/bias"]

    def layer_norm(self, x, scope):
        """Over the last dimension."""
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * self.variables[scope + "/LayerNorm/gamma"] + self.variables[scope + "/LayerNorm/beta"]

    def encode(self, input_ids, input_mask=None, token_type_ids=None):
        """Returns the outputs of the embeddings and of every layer, each [batch, seq, hidden]."""
        batch, seq = input_ids.shape
        heads = self.config.num_attention_heads
        mask = np.ones((batch, seq)) if input_mask is None else input_mask
        types = np.zeros((batch, seq), int) if token_type_ids is None else token_type_ids
        x = self.variables["bert/embeddings/word_embeddings"][input_ids]
        x = x + self.variables["bert/embeddings/token_type_embeddings"][types]
        x = x + self.variables["bert/embeddings/position_embeddings"][:seq]
        x = self.layer_norm(x, "bert/embeddings")
        outputs = [x]
        for layer in range(self.config.num_hidden_layers):
            scope = f"bert/encoder/layer_{layer}"
            q, k, v = (
                self.dense(x, f"{scope}/attention/self/{name}").reshape(batch, seq, heads, -1)
                for name in ("query", "key", "value")
            )
            scores = np.einsum("bfnd,btnd->bnft", q, k) / math.sqrt(q.shape[-1])
            scores = scores + (1 - mask)[:, None, None, :] * -10000.0
            context = np.einsum("bnft,btnd->bfnd", softmax(scores), v).reshape(batch, seq, -1)
            attention = self.dense(context, f"{scope}/attention/output/dense")
            attention = self.layer_norm(attention + x, f"{scope}/attention/output")
            x = self.activation(self.dense(attention, f"{scope}/intermediate/dense"))
            x = self.layer_norm(self.dense(x, f"{scope}/output/dense") + attention, f"{scope}/output")
            outputs.append(x)
        return outputs

    def pool(self, sequence_output):
        """Returns the pooled output [batch, hidden]."""
        return np.tanh(self.dense(sequence_output[:, 0], "bert/pooler/dense"))

    def masked_lm(self, sequence_output, positions, label_ids, label_weights):
        """Returns the loss and the log probabilities [batch * predictions, vocab]."""
        rows = np.arange(len(positions))[:, None]
        x = sequence_output[rows, positions].reshape(-1, self.config.hidden_size)
        x = self.activation(self.dense(x, "cls/predictions/transform/dense"))
        x = self.layer_norm(x, "cls/predictions/transform")
        logits = x @ self.variables["bert/embeddings/word_embeddings"].T
        log_probs = log_softmax(logits + self.variables["cls/predictions/output_bias"])
        nll = -log_probs[np.arange(label_ids.size), label_ids.ravel()]
        weights = label_weights.ravel()
        return (weights * nll).sum() / (weights.sum() + 1e-5), log_probs

    def next_sentence(self, pooled_output, labels):
        """Returns the loss and the log probabilities [batch, 2]."""
        logits = pooled_output @ self.variables["cls/seq_relationship/output_weights"].T
        log_probs = log_softmax(logits + self.variables["cls/seq_relationship/output_bias"])
        return -log_probs[np.arange(labels.size), labels.ravel()].mean(), log_probs

    def pretraining_loss(self, batch):
        """Returns the sum of the two losses for a dictionary of the features of pretraining records."""
        sequence_output = self.encode(batch["input_ids"], batch["input_mask"], batch["segment_ids"])[-1]
        masked_lm_loss, _ = self.masked_lm(
            sequence_output,
            batch["masked_lm_positions"],
            batch["masked_lm_ids"],
            batch["masked_lm_weights"],
        )
        next_sentence_loss, _ = self.next_sentence(self.pool(sequence_output), batch["next_sentence_labels"])
        return masked_lm_loss + next_sentence_loss


def random_batch(config, rng, batch_size=4, seq_length=12, predictions=3):
    """Returns the features of random pretraining records, with padding in rows and in predictions."""
    lengths = rng.integers(seq_length // 2, seq_length + 1, batch_size)
    lengths[0] = seq_length
    input_mask = (np.arange(seq_length) < lengths[:, None]).astype(np.int32)
    input_ids = rng.integers(1, config.vocab_size, (batch_size, seq_length)).astype(np.int32) * input_mask
    weights = np.ones((batch_size, predictions), np.float32)
    weights[1:, -1] = 0
    label_ids = rng.integers(1, config.vocab_size, (batch_size, predictions)).astype(np.int32)
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": (np.arange(seq_length) >= lengths[:, None] // 2).astype(np.int32) * input_mask,
        "masked_lm_positions": rng.integers(0, seq_length // 2, (batch_size, predictions)).astype(np.int32),
        "masked_lm_ids": (label_ids * weights).astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1)).astype(np.int32),
    }


def random_variables(shapes, rng):
    """Returns random values for variables {name: shape}, so large that every part of the model matters."""
    return {
        name: (rng.normal(0, 0.3, shape) + name.endswith("gamma")).astype(np.float32) for name, shape in shapes.items()
    }


def load_variables(session, variables, values):
    """Sets variables to the arrays {name: array}, in one run of the session."""
    initializers = [variable.initializer for variable in variables]
    session.run(initializers, {i.inputs[1]: values[v.op.name] for i, v in zip(initializers, variables)})
