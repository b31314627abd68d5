"""The fast tokenizer equals the reference, whatever the text."""

import hashlib
import pickle
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert import tokenization
from bert.data import wordpiece
from bert.errors import InputError

CASES = [(True, None), (False, None), (True, False), (False, True)]

# Pieces for every letter of ASCII and some others, so that words do not all become [UNK] and hide a difference.
CHARS = [chr(code) for code in range(0x21, 0x250)] + list("αβγοσςΣΑлщקשגدनกㄱ가中國語、。“”’—…€\U0001f600")
TOKENS = ["[PAD]", "[UNK]", *CHARS, *("##" + char for char in CHARS), "ab", "abc", "##bc", "##cab", "abcabcabcabc"]
VOCAB = {token: n for n, token in enumerate(dict.fromkeys(TOKENS))}


def reference(lines, vocab, do_lower_case, strip_accents):
    """What `BlockTokenizer.encode` must return for the lines."""
    basic = tokenization.BasicTokenizer(do_lower_case, strip_accents)
    split = tokenization.WordpieceTokenizer(vocab).tokenize
    ids = [[vocab[piece] for word in basic.tokenize(line) for piece in split(word)] for line in lines]
    return [i for line in ids for i in line], [len(line) for line in ids], [not line.strip() for line in lines]


def assert_equal(lines, vocab=VOCAB, do_lower_case=True, strip_accents=None, tokenizer=None):
    tokenizer = tokenizer or wordpiece.BlockTokenizer(vocab, do_lower_case, strip_accents)
    got = tokenizer.encode("".join(line + "\n" for line in lines))
    for array, expected in zip(got, reference(lines, vocab, do_lower_case, strip_accents)):
        if array.tolist() != expected:
            for line in lines:
                one = [a.tolist() for a in tokenizer.encode(line + "\n")]
                assert one == [list(a) for a in reference([line], vocab, do_lower_case, strip_accents)], ascii(line)
            raise AssertionError("lines differ together but not alone")


@pytest.mark.parametrize(("do_lower_case", "strip_accents"), CASES)
def test_every_assigned_character(do_lower_case, strip_accents):
    numerous = ("CJK UNIFIED", "HANGUL SYLLABLE", "TANGUT IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH")
    lines = []
    for char in map(chr, range(sys.maxunicode + 1)):
        if char == "\n" or unicodedata.category(char) in ("Cn", "Co", "Cs"):
            continue
        if unicodedata.name(char, "").startswith(numerous):
            lines.append(f"a{char}b")
        else:
            # Alone, in a word, beside punctuation, around the letter whose lower case looks at its neighbours,
            # beside an ideograph and before a mark.
            lines.append(f"{char} a{char}b,{char}\u03a3{char} \u4e2d{char}\u0301")
    if (do_lower_case, strip_accents) != (True, None):
        lines = lines[:10_000] + lines[10_000::17]
    assert_equal(lines, do_lower_case=do_lower_case, strip_accents=strip_accents)


def test_every_other_character():
    # Beyond plane 2 they are long uniform ranges, of which a sample is looked at.
    codes = [*range(0x30000), *range(0x30000, sys.maxunicode + 1, 97)]
    chars = [char for char in map(chr, codes) if unicodedata.category(char) in ("Cn", "Co", "Cs")]
    assert_equal([" ".join(chars[n : n + 50]) for n in range(0, len(chars), 50)])


HOSTILE = st.lists(
    st.one_of(
        st.sampled_from("abcABC  \t\r.,'!-_#[]\0\x0b\x0c\x1c\x7f\x85"),
        st.sampled_from("ΣσςΑα\u0301\u0345\u00ad\u200b\u2028\u3000\ufeff\ufffd’“。\u037e\u1fef\u2260İßǅﬁ각中\uf900"),
        st.characters(exclude_characters="\n"),
        st.sampled_from(["abcabcabcabcabc", "a" * 199, "c" * 201, "é" * 17, "中" * 9, "[UNK]", "##ab", "ΑΣ"]),
    ),
    max_size=60,
).map("".join)


@pytest.mark.parametrize(("do_lower_case", "strip_accents"), CASES)
def test_hostile_lines(do_lower_case, strip_accents):
    # One tokenizer for all examples: what the cache holds must never matter.
    tokenizer = wordpiece.BlockTokenizer(VOCAB, do_lower_case, strip_accents)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(HOSTILE, max_size=8))
    def check(lines):
        assert_equal(lines, VOCAB, do_lower_case, strip_accents, tokenizer)

    check()


@given(st.binary(max_size=300), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_random_words_of_every_length(data, spread):
    words = [("abc" * 30)[n % 3 : n % 3 + n // spread % 70] for n in data]
    assert_equal([" ".join(words), ",".join(words).upper()])


def test_a_word_may_be_as_long_as_the_table_of_any_width():
    for size in (7, 8, 9, 15, 16, 17, 31, 32, 33, 199, 200, 201, 300):
        assert_equal(["a" * size, "é" * size, "a" * size + "\0", "\0" * size, "中" * size, "A" * size + "Σ"])


def test_lines_and_breaks():
    tokenizer = wordpiece.BlockTokenizer(VOCAB)
    ids, lengths, breaks = tokenizer.encode("ab\n\n \x0c\u2028\n\u00ad\0\nab abc")
    assert ids.tolist() == [VOCAB["ab"], VOCAB["ab"], VOCAB["abc"]]
    assert lengths.tolist() == [1, 0, 0, 0, 2]
    # A line of deleted characters has no pieces but is no blank line.
    assert breaks.tolist() == [False, True, True, False, False]
    assert (ids.dtype, lengths.dtype, breaks.dtype) == (np.uint16, np.int32, bool)
    assert [array.tolist() for array in tokenizer.encode("")] == [[], [], []]
    assert [array.tolist() for array in tokenizer.encode("\n")] == [[], [0], [True]]


def test_large_ids_take_four_bytes():
    vocab = {"[UNK]": 0, "a": 65_536}
    ids, _, _ = wordpiece.BlockTokenizer(vocab).encode("a b")
    assert (ids.tolist(), ids.dtype) == ([65_536, 0], np.uint32)


def test_a_full_cache_is_begun_anew():
    small = wordpiece.BlockTokenizer(VOCAB, cache_bytes=1000)
    large = wordpiece.BlockTokenizer(VOCAB)
    for n in range(40):
        text = " ".join(f"ab{i}c" for i in range(n, n + 50)) + "\n" + "z" * 40 + str(n) + "\n"
        assert small.encode(text)[0].tolist() == large.encode(text)[0].tolist()
    assert small._cached_bytes < 12_000 < large._cached_bytes


def test_tokenizers_can_be_sent_to_workers():
    tokenizer = wordpiece.BlockTokenizer(VOCAB)
    tokenizer.encode("abc é")
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode("Abc É x")[0].tolist() == tokenizer.encode("Abc É x")[0].tolist()


def test_a_vocabulary_needs_unk():
    with pytest.raises(InputError, match=r"no \[UNK\]"):
        wordpiece.BlockTokenizer({"a": 0})


# Lines, tokens and SHA-256 of ids, lengths and breaks, computed with google-research/bert on Python 3.11.
CORPORA = [
    ("blns", "cased", 742, 11431, "5dea80da004af4de"),
    ("blns", "chinese", 742, 11351, "b5e59f6b467539f5"),
    ("blns", "multi_cased", 742, 11463, "936fb722967b3c36"),
    ("blns", "uncased", 742, 10650, "4bf0379c4edf6b0c"),
    ("en_gutenberg", "cased", 249130, 5993642, "90618215d0c53455"),
    ("en_gutenberg", "uncased", 249130, 5819388, "e84d023a3529233d"),
    ("en_inaugural", "cased", 5271, 165128, "61ae4672421077e9"),
    ("en_inaugural", "uncased", 5271, 161642, "2ee1b98738c12e83"),
    ("en_state_union", "cased", 17847, 423783, "48201e9d8effd8e1"),
    ("en_state_union", "uncased", 17847, 413786, "1bc8aa52139ab5d2"),
    ("karamazov_iso8859-1", "uncased", 36481, 486213, "ba510ec374c19d1f"),
    ("udhr_387_languages", "cased", 36257, 1940053, "98f100bec1e291ea"),
    ("udhr_387_languages", "chinese", 36257, 1846393, "807d48b807eaade0"),
    ("udhr_387_languages", "multi_cased", 36257, 1581039, "bd1e4c46f1f6f6ac"),
    ("udhr_387_languages", "uncased", 36257, 1783144, "fe7638e162fd1f12"),
    ("zh_xiyouji", "chinese", 30184, 642654, "1268c6b9b8297392"),
    ("zh_xiyouji.gb18030", "chinese", 3922, 644999, "b973c0ac47d7dbdd"),
    ("zh_xiyouji", "multi_cased", 30184, 642615, "c3cd8f0294218a8f"),
    ("zh_xiyouji", "uncased", 30184, 642683, "f100d651d91a15d6"),
]


@pytest.mark.parametrize(("corpus", "vocab", "num_lines", "num_tokens", "digest"), CORPORA)
def test_corpora_as_the_original_tokenizes_them(shared_data, corpus, vocab, num_lines, num_tokens, digest):
    from bert.data import text

    encoding = {"karamazov_iso8859-1": "iso8859-1", "zh_xiyouji.gb18030": "gb18030"}.get(corpus, "utf-8")
    vocab_file = str(shared_data / "vocab" / vocab / "vocab.txt")
    tokenizer = wordpiece.BlockTokenizer(tokenization.load_vocab(vocab_file), vocab in ("uncased", "chinese"))
    blocks = text.read_blocks(str(shared_data / "corpus" / f"{corpus}.txt"), encoding)
    ids, lengths, breaks = map(np.concatenate, zip(*map(tokenizer.encode, blocks)))
    assert (len(lengths), len(ids)) == (num_lines, num_tokens)
    content = ids.astype("<u4").tobytes() + lengths.astype("<i4").tobytes() + breaks.tobytes()
    assert hashlib.sha256(content).hexdigest().startswith(digest)


@pytest.mark.parametrize("vocab", ["uncased", "cased", "multi_cased", "chinese"])
def test_samples_of_corpora_as_the_reference_tokenizes_them(shared_data, vocab):
    from bert.data import text

    vocab_file = str(shared_data / "vocab" / vocab / "vocab.txt")
    vocabulary = tokenization.load_vocab(vocab_file)
    for corpus, step in [("blns", 1), ("udhr_387_languages", 29), ("zh_xiyouji", 29), ("en_gutenberg", 499)]:
        content = "".join(text.read_blocks(str(shared_data / "corpus" / f"{corpus}.txt")))
        assert_equal(content.split("\n")[::step], vocabulary, vocab in ("uncased", "chinese"))
