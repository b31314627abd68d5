"""Whole words of Chinese: what the segmenter finds is masked together, stored or while reading."""

import sys

import numpy as np
import pytest

from bert import tokenization
from bert.data import chinese_words, pretraining_data, records, token_store, wordpiece
from bert.data.pretraining_data import Settings
from bert.errors import InputError

LINES = [
    "使用语言模型来预测下一个词的概率。",
    "我爱北京天安门, playing ABCx 是unplayable的!",
    "一",
    "T恤衫豈龜\u00ad人工智能",
    "no words",
]
WORDS = ["使用", "语言", "模型", "预测", "一个", "概率", "北京", "天安门", "人工智能"]


def make_vocab():
    """A vocabulary with most of the ideographs of the lines, and some pieces."""
    ideographs = sorted({char for line in LINES for char in line if tokenization._is_cjk(char)} - {"龜"})
    pieces = ["play", "##ing", "un", "##play", "##able", "abc", "##x", "no", "words", "t", ",", "!", "。"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *ideographs]
    return {token: number for number, token in enumerate(tokens)}


def test_without_the_library_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(
        InputError, match=r"--whole_word_segmenter=rjieba: the library is missing .*requirements-chinese"
    ):
        chinese_words.version("rjieba")


def test_a_segmenter_needs_whole_words():
    with pytest.raises(InputError, match="--whole_word_segmenter needs --do_whole_word_mask"):
        Settings(whole_word_segmenter="rjieba")


def test_marks_are_the_words_and_ids_are_as_ever():
    rjieba = pytest.importorskip("rjieba")
    vocab = make_vocab()
    names = {number: token for token, number in vocab.items()}
    text = "\n".join(LINES) + "\n"
    marked, lengths, breaks = chinese_words.MarkingTokenizer(vocab, segmenter="rjieba").encode(text)
    plain = wordpiece.BlockTokenizer(vocab).encode(text)
    np.testing.assert_array_equal(marked >> 1, plain[0])
    np.testing.assert_array_equal(lengths, plain[1])
    np.testing.assert_array_equal(breaks, plain[2])
    groups = []
    for token in marked.tolist():
        piece = names[token >> 1].removeprefix("##")
        if token & 1:
            groups[-1] += piece
        else:
            groups.append(piece)
    assert set(WORDS) <= set(groups) and {"playing", "unplayable", "abcx", "t"} <= set(groups)
    assert rjieba.cut(LINES[0][:-1]) == groups[: len(rjieba.cut(LINES[0][:-1]))]


@pytest.mark.parametrize("dynamic", [False, True])
def test_words_are_masked_together(tmp_path, dynamic):
    pytest.importorskip("rjieba")
    vocab = make_vocab()
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    (tmp_path / "text.txt").write_text("\n\n".join(["\n".join(LINES)] * 30))
    arguments = [str(tmp_path / "text.txt")], str(tmp_path / "vocab.txt"), [str(tmp_path / "r")]
    settings = Settings(
        max_seq_length=64,
        max_predictions_per_seq=12,
        dupe_factor=3,
        do_whole_word_mask=True,
        whole_word_segmenter="rjieba",
        dynamic_masking=dynamic,
    )
    made = pretraining_data.create(*arguments, settings, token_cache=str(tmp_path))
    assert made.stores[0].unknown == 30  # the ideograph that is not in the vocabulary
    word = [vocab[char] for char in "天安门"]
    together = 0
    for features in map(records.parse, records.read(str(tmp_path / "r"))):
        if dynamic:
            ids, places = features["tokens"] & records.TOKEN_ID, features["tokens"] >> records.TOKEN_ID_BITS
        else:
            ids = features["input_ids"].copy()
            used = features["masked_lm_weights"] > 0
            ids[features["masked_lm_positions"][used]] = features["masked_lm_ids"][used]
        for start in range(len(ids) - 2):
            if ids[start : start + 3].tolist() == word:
                if dynamic:
                    assert places[start : start + 3].tolist() == [1, 2, 3]
                    together += 1
                else:
                    inside = np.isin(range(start, start + 3), features["masked_lm_positions"][used])
                    assert inside.all() == inside.any()
                    together += inside.all()
    assert together > 5
    # Other marks, other tokens: neither the records nor the tokenized text are taken for each other.
    plain = Settings(**{**vars(settings), "whole_word_segmenter": None})
    assert pretraining_data.fingerprint(*arguments[:2], plain) != made.fingerprint
    assert token_store.name("0", "1", plain) != token_store.name("0", "1", settings)
