"""Masking: budgets, choice of tokens and whole words, replacement."""

import collections
import random

import numpy as np
import pytest

from bert.data import masking

CLS, SEP, MASK, PAD = 1, 2, 3, 0


def z_scores(counts, draws, probability):
    return (np.asarray(counts) - draws * probability) / np.sqrt(draws * probability * (1 - probability) + 1e-9)


def test_budgets_round_half_to_even_and_stay_within_bounds():
    lengths = np.array([3, 10, 30, 50, 128])
    expected = [min(20, max(1, round(int(n) * 0.15))) for n in lengths]
    assert masking.budgets(lengths, 0.15, 20).tolist() == expected == [1, 2, 4, 8, 19]
    assert masking.budgets(lengths, 0.5, 20).tolist() == [2, 5, 15, 20, 20]
    assert masking.budgets(lengths, 0.0, 20).tolist() == [1] * 5


@pytest.mark.parametrize("seed", range(5))
def test_chosen_tokens_fill_the_budget_and_are_never_special(seed):
    rng = np.random.default_rng(seed)
    len_a, len_b = rng.integers(1, 30, 500), rng.integers(0, 30, 500)
    budget = rng.integers(1, 25, 500)
    chosen = masking.choose_tokens(rng, len_a, len_b, budget, 64)
    column = np.arange(64)
    in_a = (column >= 1) & (column <= len_a[:, None])
    in_b = (column >= len_a[:, None] + 2) & (column < len_a[:, None] + 2 + len_b[:, None])
    assert not (chosen & ~(in_a | in_b)).any()
    np.testing.assert_array_equal(chosen.sum(axis=1), np.minimum(budget, len_a + len_b))


def test_tokens_are_chosen_uniformly_and_in_pairs_too():
    draws, len_a, len_b, budget = 40_000, 3, 4, 3
    full = [np.full(draws, value) for value in (len_a, len_b, budget)]
    chosen = masking.choose_tokens(np.random.default_rng(7), *full, 12)
    columns = [1, 2, 3, 5, 6, 7, 8]
    assert np.abs(z_scores(chosen[:, columns].sum(axis=0), draws, 3 / 7)).max() < 4.5
    subsets = collections.Counter(map(tuple, chosen[:, columns].tolist()))
    assert len(subsets) == 35  # 7 over 3
    assert np.abs(z_scores(list(subsets.values()), draws, 1 / 35)).max() < 4.5


def words_of(tokens, continues):
    """The words of a sequence as lists of positions, by the rule in words."""
    words = []
    for position, (token, tail) in enumerate(zip(tokens, continues)):
        if token in (CLS, SEP, PAD):
            continue
        if tail and words:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def choose_words_slowly(rng, words, budget):
    chosen = []
    for word in rng.sample(words, len(words)):
        if len(chosen) + len(word) <= budget:
            chosen += word
    return chosen


# "#" stands for a piece that continues a word; S for [SEP]. B may open with one after trimming, and so may A.
SEQUENCES = ["Cabc#d##efSghi#S", "C#ab##########cS#dS", "CaS#####S", "C#####S##S", "CabScdS", "Ca####Sb####S"]


def encode(text, width):
    kinds = {"C": CLS, "S": SEP}
    ids = np.array([kinds.get(char, 10 + i) for i, char in enumerate(text)] + [PAD] * (width - len(text)))
    continues = np.array([char == "#" for char in text] + [False] * (width - len(text)))
    return ids, continues


@pytest.mark.parametrize("text", SEQUENCES)
@pytest.mark.parametrize("budget", [1, 2, 3, 5, 9])
def test_whole_words_have_the_distribution_of_the_greedy_rule(text, budget):
    draws = 4000
    ids, continues = encode(text, 24)
    is_candidate = ids > MASK
    words = words_of(ids, continues)
    shape = (draws, 24)
    chosen = masking.choose_words(
        np.random.default_rng(1),
        np.broadcast_to(is_candidate, shape),
        np.broadcast_to(continues, shape),
        np.full(draws, budget),
    )
    for word in words:
        together = chosen[:, word]
        np.testing.assert_array_equal(together.all(axis=1), together.any(axis=1))
    assert not chosen[:, ~is_candidate].any()
    assert chosen.sum(axis=1).max() <= budget

    rng = random.Random(2)
    counts = np.zeros(24)
    sizes = collections.Counter()
    for _ in range(draws):
        positions = choose_words_slowly(rng, words, budget)
        counts[positions] += 1
        sizes[len(positions)] += 1
    pooled = (counts + chosen.sum(axis=0)) / (2 * draws)
    z = (chosen.sum(axis=0) - counts) / np.sqrt(2 * draws * pooled * (1 - pooled) + 1e-9)
    assert np.abs(z).max() < 4.5
    assert set(chosen.sum(axis=1).tolist()) == set(sizes)


def test_words_of_one_piece_are_chosen_like_tokens():
    draws = 20_000
    is_candidate = np.zeros((draws, 10), bool)
    is_candidate[:, [1, 2, 4, 5, 6]] = True
    chosen = masking.choose_words(
        np.random.default_rng(3), is_candidate, np.zeros_like(is_candidate), np.full(draws, 2)
    )
    np.testing.assert_array_equal(chosen.sum(axis=1), 2)
    assert np.abs(z_scores(chosen[:, [1, 2, 4, 5, 6]].sum(axis=0), draws, 2 / 5)).max() < 4.5


def test_labels_restore_the_text_and_rates_are_80_10_10():
    batch, width, vocab = 4000, 40, 50
    rng = np.random.default_rng(11)
    original = rng.integers(10, vocab, (batch, width)).astype(np.uint16)
    len_a, len_b = np.full(batch, 17), np.full(batch, 20)
    chosen = masking.choose_tokens(rng, len_a, len_b, rng.integers(1, 7, batch), width)
    ids = original.copy()
    positions, labels, weights = masking.replace(rng, ids, chosen, 8, MASK, np.arange(vocab, dtype=np.uint16))
    np.testing.assert_array_equal(ids[~chosen], original[~chosen])
    used = weights == 1
    np.testing.assert_array_equal(used.sum(axis=1), chosen.sum(axis=1))
    assert weights.dtype == np.float32 and set(np.unique(weights)) == {0, 1}
    assert not positions[~used].any() and not labels[~used].any()
    rows = np.broadcast_to(np.arange(batch)[:, None], used.shape)[used]
    assert (np.diff(positions.astype(int), axis=1)[used[:, 1:]] > 0).all()
    np.testing.assert_array_equal(original[rows, positions[used]], labels[used])
    now, before = ids[rows, positions[used]], labels[used]
    n = len(now)
    # A random token may happen to be the one that was there, or [MASK].
    assert abs(z_scores((now == MASK).sum(), n, 0.8 + 0.1 / vocab)) < 4.5
    assert abs(z_scores((now == before).sum(), n, 0.1 + 0.1 / vocab)) < 4.5
    other = np.bincount(now[(now != MASK) & (now != before)], minlength=vocab)
    assert (other[:10] > 0).sum() == 9  # special tokens come in at random too
    assert np.abs(z_scores(other[[i for i in range(10) if i != MASK]], n, 0.1 / vocab)).max() < 4.5


def test_more_predictions_than_tokens():
    ids = np.array([[CLS, 10, SEP, 11, SEP, 0]], np.uint16)
    rng = np.random.default_rng(0)
    chosen = masking.choose_tokens(rng, np.array([1]), np.array([1]), np.array([9]), 6)
    positions, labels, weights = masking.replace(rng, ids, chosen, 4, MASK, np.arange(20, dtype=np.uint16))
    assert positions.tolist() == [[1, 3, 0, 0]]
    assert labels.tolist() == [[10, 11, 0, 0]]
    assert weights.tolist() == [[1, 1, 0, 0]]
