"""The tokenizer in the graph gives the ids of the one in Python."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bert import tokenization
from bert.formats.graph_tokenizer import GraphTokenizer

TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "un",
    "##aff",
    "##able",
    "##a",
    "a",
    "e",
    "##e",
    "!",
    "#",
    "中",
    "σ",
]
TOKENS += ["ο", "##ο", "##ς", "##σ", "'", "i", "##i", "가", "ᄀ", "##ᅡ", "É", "A", "##B"]
HARD = [
    "", " \t\n", "Unaffable the!the", "thé Éa", "E\u0301e\u0301", "a\u00ada\x00a\ufffd", "##aff#a", "中国中", "가a",
    "ΟΣ", "ΟΣ ΣΟ ΟΣΟ Σ", "ΟΣ'", "ΟΣ'Ο", "Ο\u00adΣ\x01", "İi", "a\u2028b\u3000a", "a\u200da", "AB aB", "a" * 200,
    "a" * 201, "a" * 5000, "unaffx", "\U0001f600a", "\U00020000\u2f800", "a\u0300\u0300", "...",
]  # fmt: skip


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_hard_texts(do_lower_case):
    vocab = {token: i for i, token in enumerate(TOKENS)}
    basic = tokenization.BasicTokenizer(do_lower_case)
    wordpiece = tokenization.WordpieceTokenizer(vocab)

    def reference(text):
        return [vocab[piece] for word in basic.tokenize(text) for piece in wordpiece.tokenize(word)]

    rng = np.random.default_rng(0)
    letters = [*"ΣσςAaΟE'.: #!é中가", "\u00ad", "\u0301", "\x01", "\u200d"]
    texts = HARD + ["".join(rng.choice(letters, rng.integers(12))) for _ in range(500)]
    with tf.Graph().as_default(), tf.Session() as session:
        tokenizer = GraphTokenizer(vocab, do_lower_case)
        first, second = tf.placeholder(tf.string, [None]), tf.placeholder(tf.string, [None])
        ids = tokenizer.tokenize(first)
        features = tokenizer.features(first, second, 8)
        session.run(tf.tables_initializer())
        encoded = [text.encode() for text in texts]
        values, splits = session.run([ids.values, ids.row_splits], {first: encoded})
        pairs = list(zip(texts, texts[1:] + texts[:1]))
        found = session.run(features, {first: encoded, second: encoded[1:] + encoded[:1]})
    for text, start, end in zip(texts, splits, splits[1:]):
        assert values[start:end].tolist() == reference(text), repr(text)
    for (a, b), row, mask, types in zip(pairs, *found):
        a, b = reference(a), reference(b)
        while len(a) + len(b) > 8 - 2 - bool(b):
            (a if len(a) > len(b) else b).pop()
        wanted = [2, *a, 3, *b, *[3] * bool(b)]
        assert row[: len(wanted)].tolist() == wanted and not row[len(wanted) :].any()
        assert mask.tolist() == [1] * len(wanted) + [0] * (len(row) - len(wanted))
        assert types[: len(a) + 2].sum() == 0 and types.sum() == (len(b) + 1) * bool(b)
