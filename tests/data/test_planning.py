"""Planning of segment pairs: the rules hold for every instance, and the distribution is the original's."""

import numpy as np
import pytest

from bert.data import corpus as corpora
from bert.data import planning
from bert.data.pretraining_data import Settings


def make_corpus(folder, documents):
    """A corpus of documents given as lists of sentence lengths; each token is the number of its sentence."""
    lengths = np.array([length for document in documents for length in document])
    np.repeat(np.arange(len(lengths)), lengths).astype("<u2").tofile(folder / "tokens")
    np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tofile(folder / "sentences")
    np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype(np.int64).tofile(
        folder / "documents"
    )
    return corpora.Corpus(str(folder))


def document_lengths(number):
    return [[1 + (d * 13 + s * 17) % 31 for s in range(1 + d * 7 % 23)] for d in range(number)]


def plan(corpus, seed=0, passes=1, **settings):
    planner = planning.Planner(corpus, Settings(random_seed=seed, **{"max_seq_length": 64, **settings}))
    borders = planning.blocks(corpus).tolist()
    return np.concatenate(
        [
            planner.plan(number, block, first, end)
            for number in range(passes)
            for block, (first, end) in enumerate(zip(borders, borders[1:]))
        ]
    )


def trim_slowly(len_a, len_b, room):
    while len_a + len_b > room:
        if len_a > len_b:
            len_a -= 1
        else:
            len_b -= 1
    return len_a, len_b


def test_trim_takes_as_many_tokens_as_one_by_one():
    len_a, len_b, room = (x.ravel() for x in np.meshgrid(range(1, 25), range(1, 25), range(2, 30)))
    start = np.zeros(len(room), np.int64)
    a, new_a, b, new_b = planning.trim(np.random.default_rng(0), start, len_a, start, len_b, room)
    expected = [trim_slowly(*pair) for pair in zip(len_a.tolist(), len_b.tolist(), room.tolist())]
    np.testing.assert_array_equal(np.stack([new_a, new_b], axis=1), expected)
    for first, before, after in ((a, len_a, new_a), (b, len_b, new_b)):
        assert (first >= 0).all() and (first + after <= before).all()


def test_trim_takes_from_either_end_with_equal_probability():
    draws = 20_000
    ones = np.ones(draws, np.int64)
    a, _, b, _ = planning.trim(np.random.default_rng(1), 0 * ones, 30 * ones, 0 * ones, 34 * ones, 50)
    for front, taken in ((a, 5), (b, 9)):
        assert abs(front.mean() - taken / 2) < 4.5 * np.sqrt(taken / 4 / draws)
        assert abs(front.var() - taken / 4) < 0.2


@pytest.mark.parametrize("seed", range(4))
def test_every_instance_keeps_the_rules(tmp_path, seed):
    documents = document_lengths(40)
    corpus = make_corpus(tmp_path, documents)
    rows = plan(corpus, seed, passes=3)
    tokens, sentences = corpus.sentences.array, corpus.documents.array
    document_of = np.searchsorted(sentences, np.frombuffer(corpus.tokens, "<u2"), side="right") - 1
    assert (rows["len_a"] >= 1).all() and (rows["len_b"] >= 1).all()
    assert (rows["len_a"].astype(int) + rows["len_b"] <= 61).all()
    for part in "ab":
        last = rows[part] + rows["len_" + part] - 1
        np.testing.assert_array_equal(document_of[rows[part]], document_of[last])
    same = document_of[rows["a"]] == document_of[rows["b"]]
    np.testing.assert_array_equal(same, ~rows["is_random"])
    # What follows in the text comes after what precedes it; nothing lies between them unless it was trimmed.
    follows = ~rows["is_random"]
    gap = rows["b"] - (rows["a"] + rows["len_a"])
    assert (gap[follows] >= 0).all()
    untrimmed = follows & (rows["len_a"].astype(int) + rows["len_b"] < 61)
    assert untrimmed.any() and (gap[untrimmed] == 0).all()
    starts = set(tokens.tolist())
    assert all(int(row["a"]) in starts and int(row["b"]) in starts for row in rows[untrimmed])


def test_a_single_sentence_is_followed_by_a_random_one(tmp_path):
    rows = plan(make_corpus(tmp_path, [[5]] * 300))
    assert len(rows) == 300 and rows["is_random"].all()
    assert (rows["len_a"] == 5).all() and (rows["len_b"] == 5).all()


def test_every_sentence_that_is_not_trimmed_away_is_used_as_a_or_real_b(tmp_path):
    # With room for everything, each document is one chunk, and a random B gives its sentences back.
    documents = [[3] * 4] * 50
    corpus = make_corpus(tmp_path, documents)
    rows = plan(corpus, max_seq_length=512, short_seq_prob=0.0)
    used = np.zeros(len(corpus.tokens) // 2, int)
    for row in rows:
        used[row["a"] : row["a"] + row["len_a"]] += 1
        if not row["is_random"]:
            used[row["b"] : row["b"] + row["len_b"]] += 1
    np.testing.assert_array_equal(used, 1)


def test_ten_draws_avoid_the_same_document(tmp_path):
    # Of two documents each draw takes the same with probability 1/2; ten in a row are needed to keep it.
    corpus = make_corpus(tmp_path, [[2] * 2000, [2] * 2000])
    rows = plan(corpus, passes=60, max_seq_length=16, max_predictions_per_seq=2)
    rows = rows[rows["is_random"]]
    same = (rows["a"] < 4000) == (rows["b"] < 4000)
    expected = len(rows) / 2**10
    assert expected > 20 and abs(same.sum() - expected) < 4.5 * np.sqrt(expected)


def statistics(rows, max_seq_length):
    len_a, len_b, is_random = rows["len_a"].astype(int), rows["len_b"].astype(int), rows["is_random"]
    total = len_a + len_b
    return [
        len(rows),
        len_a.mean(),
        len_a.std(),
        len_b.mean(),
        len_b.std(),
        is_random.mean(),
        (total == max_seq_length - 3).mean(),
        (total < 30).mean(),
        len_a[is_random].mean(),
        len_b[is_random].mean(),
        len_b[~is_random].mean(),
    ]


def test_distribution_is_the_originals(tmp_path):
    # Mean and standard deviation over 1,000 seeds of google-research/bert on documents of these lengths.
    mean = [188.871, 24.7747, 12.3227, 29.4363, 13.2766, 0.5752, 0.6884, 0.0729, 23.6318, 29.7046, 29.1355]
    deviation = [10.7185, 1.1023, 0.4982, 1.3428, 0.5811, 0.0412, 0.0688, 0.0292, 1.2641, 1.8981, 1.4035]
    corpus = make_corpus(tmp_path, document_lengths(40))
    ours = np.array([statistics(plan(corpus, seed), 64) for seed in range(200)])
    error = np.sqrt(np.square(deviation) / 1000 + ours.var(axis=0, ddof=1) / 200)
    assert np.abs((ours.mean(axis=0) - mean) / error).max() < 4
    np.testing.assert_allclose(ours.std(axis=0, ddof=1), deviation, rtol=0.2)


def test_windows_do_not_change_the_rules(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "_SENTENCES_PER_WINDOW", 3)
    corpus = make_corpus(tmp_path, document_lengths(40))
    ours = np.array([statistics(plan(corpus, seed), 64) for seed in range(40)])
    monkeypatch.undo()
    whole = np.array([statistics(plan(corpus, seed), 64) for seed in range(40, 100)])
    error = np.sqrt(ours.var(axis=0, ddof=1) / 40 + whole.var(axis=0, ddof=1) / 60)
    assert np.abs((ours.mean(axis=0) - whole.mean(axis=0)) / error).max() < 4


def test_blocks_cover_all_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "_MIN_SENTENCES_PER_BLOCK", 25)
    corpus = make_corpus(tmp_path, document_lengths(40))
    borders = planning.blocks(corpus)
    assert borders[0] == 0 and borders[-1] == 40 and (np.diff(borders) > 0).all() and len(borders) > 5
    rows = plan(corpus)
    assert abs(len(rows) - 189) < 60


def test_segments_without_pairs_cover_each_document_once_a_pass(tmp_path):
    documents = document_lengths(40)
    corpus = make_corpus(tmp_path, documents)
    rows = plan(corpus, seed=5, passes=2, no_nsp=True)
    assert not rows["len_b"].any() and not rows["is_random"].any()
    used = np.zeros(len(corpus.tokens) // 2, int)
    for row in rows:
        used[row["a"] : row["a"] + row["len_a"]] += 1
    np.testing.assert_array_equal(used, 2)
    assert rows["len_a"].max() == 62
    document_of = np.searchsorted(corpus.documents.array, np.frombuffer(corpus.tokens, "<u2"), side="right")
    np.testing.assert_array_equal(document_of[rows["a"]], document_of[rows["a"] + rows["len_a"] - 1])


def test_random_below_is_uniform_and_in_range():
    bounds = np.repeat([1, 2, 3, 7, 2**31 - 1], 20_000)
    drawn = planning.random_below(np.random.default_rng(0), bounds)
    assert (drawn >= 0).all() and (drawn < bounds).all()
    for bound in (2, 3, 7):
        counts = np.bincount(drawn[bounds == bound], minlength=bound)
        assert np.abs(counts - 20_000 / bound).max() < 4.5 * np.sqrt(20_000 / bound)


def test_a_stream_depends_on_seed_stage_and_unit():
    keys = [
        (1, "plan", 0, 0),
        (1, "plan", 0, 1),
        (1, "plan", 1, 0),
        (1, "write", 0, 0),
        (2, "plan", 0, 0),
        (-1, "plan", 0),
    ]
    draws = [planning.random_stream(*key).integers(1 << 60) for key in keys]
    assert len(set(draws)) == len(keys)
    assert draws == [planning.random_stream(*key).integers(1 << 60) for key in keys]
