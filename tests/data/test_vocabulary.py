"""Vocabularies: layout, exactness, determinism, and what they make of text."""

import os
import random
import subprocess
import sys

import pytest

from bert import tokenization
from bert.data import vocabulary
from bert.errors import InputError

SPECIAL = ["[PAD]", *(f"[unused{n}]" for n in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def corpus(tmp_path):
    """Text of made-up words, Zipf-distributed, in two files."""
    rng = random.Random(5)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "é")]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(600)]
    paths = []
    for name in ("a.txt", "b.txt"):
        lines = (
            " ".join(rng.choices(words, [1 / (n + 1) for n in range(600)], k=12)).capitalize() + "." for _ in range(300)
        )
        path = tmp_path / name
        path.write_text("\n".join(lines), encoding="utf-8")
        paths.append(str(path))
    return paths


def write(tmp_path, text):
    path = tmp_path / "corpus.txt"
    path.write_text(text, encoding="utf-8")
    return [str(path)]


def test_layout_of_the_original(corpus):
    tokens = vocabulary.train(corpus, 400)
    assert len(tokens) == 400 == len(set(tokens))
    assert tokens[:104] == SPECIAL
    assert [tokens.index(t) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == [0, 100, 101, 102, 103]
    single = [token for token in tokens[104:] if len(token.removeprefix("##")) == 1]
    assert tokens[104 : 104 + len(single)] == single
    assert "." in single and "##." not in single
    assert not [token for token in tokens if token != token.lower() and token not in SPECIAL]
    assert vocabulary.train(corpus, 200, num_unused=3)[:5] == ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]"]


def test_cased_vocabularies_keep_case_and_accents(corpus):
    tokens = vocabulary.train(corpus, 400, do_lower_case=False)
    assert "B" in tokens and "##é" in tokens
    assert "##é" not in vocabulary.train(corpus, 400)
    assert "##é" in vocabulary.train(corpus, 400, strip_accents=False)


def test_pairs_are_merged_by_frequency_then_age(tmp_path):
    text = "low low low low low lower lower newest newest newest newest newest newest widest widest widest"
    tokens = vocabulary.train(write(tmp_path, text), 200, num_unused=0)
    letters = sorted("lowernstid")
    pieces = tokens[5:]
    assert pieces[:20] == letters + ["##" + letter for letter in letters]
    # es and st come 9 times each, and e is the older of their first letters; lo and ow 7 times each.
    assert pieces[20:24] == ["##es", "##est", "lo", "low"]
    assert {"newest", "widest", "lower"} <= set(pieces)


def brute_force_merges(words, alphabet, num_merges):
    """Byte-pair encoding by counting all pairs anew for each merge."""
    tokens = list(alphabet)
    words = [([w[0], *("##" + c for c in w[1:])], count) for w, count in words.items()]
    while len(tokens) < len(alphabet) + num_merges:
        counts = {}
        for pieces, count in words:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts or max(counts.values()) < 2:
            break
        first, second = min(counts, key=lambda p: (-counts[p], tokens.index(p[0]), tokens.index(p[1])))
        merged = first + second[2:]
        if merged not in tokens:
            tokens.append(merged)
        for pieces, _ in words:
            n = 0
            while n + 1 < len(pieces):
                if (pieces[n], pieces[n + 1]) == (first, second):
                    pieces[n : n + 2] = [merged]
                n += 1
    return tokens[len(alphabet) :]


def test_merges_are_those_of_counting_anew_each_time(corpus):
    words = vocabulary.count_words(corpus)
    tokens = vocabulary.train(corpus, 350, num_unused=0)
    singles = [token for token in tokens[5:] if len(token.removeprefix("##")) == 1]
    assert tokens[5 + len(singles) :] == brute_force_merges(words, singles, 350 - 5 - len(singles))


def test_words_are_counted_as_the_reference_splits_them(corpus):
    expected = {}
    for path in corpus:
        with open(path, encoding="utf-8") as f:
            for word in tokenization.BasicTokenizer().tokenize(f.read()):
                expected[word] = expected.get(word, 0) + 1
    assert vocabulary.count_words(corpus) == expected


def test_counting_forgets_rare_words_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "_MAX_COUNTED_WORDS", 100)
    paths = []
    for n in range(5):
        path = tmp_path / f"{n}.txt"
        path.write_text(" ".join(["the cat"] * 30 + [f"rare{n}x{i}" for i in range(90)]))
        paths.append(str(path))
    counts = vocabulary.count_words(paths)
    assert (counts["the"], counts["cat"]) == (150, 150)
    assert len(counts) <= 192


def test_every_frequent_character_is_in_the_vocabulary(tmp_path):
    paths = write(tmp_path, "中文 字 中文字 aé ☃ ☃ b7 x\u4e00 \U0001f600\U0001f600")
    tokens = vocabulary.train(paths, 300, do_lower_case=False)
    assert {"中", "文", "字", "☃", "\U0001f600"} <= set(tokens)
    assert "一" not in tokens  # once only
    assert "##中" not in tokens  # a word of its own always


def test_a_vocabulary_too_small_for_the_alphabet(corpus):
    with pytest.raises(InputError, match=r"--vocab_size=110 is too small: .* take \d+ tokens .* 104, \d+ in all"):
        vocabulary.train(corpus, 110)


def test_text_without_words(tmp_path):
    with pytest.raises(InputError, match=r"No words .* in .*corpus\.txt"):
        vocabulary.train(write(tmp_path, " \n\n"), 200)


def test_too_little_text_gives_fewer_tokens(tmp_path):
    tokens = vocabulary.train(write(tmp_path, "ab ab"), 1000)
    assert tokens[104:] == ["a", "b", "##a", "##b", "ab"]


def test_append_fills_unused_slots_with_split_and_unknown_words(tmp_path):
    tokens = ["[PAD]", "[unused1]", "[UNK]", "[unused2]", "a", "##a", "b", "##b", "ab"]
    paths = write(tmp_path, "ab ab ab ab abab abab aba xyz xyz once")
    assert vocabulary.append(tokens, paths) == ["[PAD]", "xyz", "[UNK]", "abab", *tokens[4:]]
    with pytest.raises(InputError, match=r"no \[unused"):
        vocabulary.append(["[PAD]", "[UNK]", "a"], paths)


def test_report(tmp_path):
    vocab = {token: n for n, token in enumerate(["[UNK]", "a", "##a", "b"])}
    paths = write(tmp_path, "a aa aaa b q\n aaa")
    (report,) = vocabulary.report(vocab, paths)
    assert report == (paths[0], 6, 11, 1, ["aaa", "aa", "a", "b"])
    table = vocabulary.format_report([report, report._replace(file="other")])
    assert "16.667%" in table and "all files: aaa" in table and len(table.split("\n")) == 4


def train_vocab(*args, hash_seed="0"):
    return subprocess.run(
        [sys.executable, "-m", "bert.train_vocab", *args],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
    )


def test_program_is_deterministic_and_reports(corpus, tmp_path):
    contents = []
    for seed in ("1", "2"):
        output = tmp_path / f"vocab{seed}.txt"
        args = [f"--input_file={tmp_path}/?.txt", f"--output_file={output}", "--vocab_size=500"]
        result = train_vocab(*args, hash_seed=seed)
        assert result.returncode == 0, result.stderr
        assert "all files" in result.stdout
        contents.append(output.read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].decode().split("\n")[:-1] == vocabulary.train(corpus, 500)

    extended = tmp_path / "extended.txt"
    domain = tmp_path / "domain"
    domain.write_text("Zyzzyva zyzzyva")
    args = [f"--input_file={domain}", f"--output_file={extended}"]
    result = train_vocab(*args, f"--append={tmp_path}/vocab1.txt")
    assert result.returncode == 0, result.stderr
    assert list(tokenization.load_vocab(str(extended)))[1] == "zyzzyva"

    result = train_vocab(*args, f"--append={tmp_path}/vocab1.txt", "--vocab_size=600")
    assert (result.returncode, "leave --vocab_size out" in result.stderr) == (2, True)
