"""Masks drawn while reading: the distribution of stored masks, and a function of seed and position alone."""

import collections

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bert import tokenization
from bert.data import dynamic_masking, input_pipeline, masking, pretraining_data, records
from bert.data.dynamic_masking import DynamicMasking
from bert.data.pretraining_data import Settings

VOCAB = {
    token: number
    for number, token in enumerate(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *("##" + c for c in "abcde")]
    )
}
CONTINUES = np.array([token.startswith("##") for token in VOCAB])
CLS, SEP, MASK = VOCAB["[CLS]"], VOCAB["[SEP]"], VOCAB["[MASK]"]
# In the spelling of the vocabulary, [SEP] as |. B may open with a piece that continues a word, and so may A.
SEQUENCES = ["ab##c##de|##afg##b|", "##ab##a##b##c##d##e##ac|##ad|", "a##a##b##c|", "abc|d|", "##a##b|##c##d|", "a|"]


def encode(text, width):
    """Token ids [width] and lengths of the segments, special tokens included."""
    tokens, i = ["[CLS]"], 0
    while i < len(text):
        size = 3 if text[i] == "#" else 1
        tokens.append("[SEP]" if text[i] == "|" else text[i : i + size])
        i += size
    first = tokens.index("[SEP]") + 1
    ids = [VOCAB[token] for token in tokens]
    return ids + [0] * (width - len(ids)), [first, len(ids) - first]


def with_places(ids, len_a, len_b):
    """Token ids and lengths of the segments to tokens as records without masks hold them: int32 [width]."""
    tokens, first = np.array(ids, np.int32), 1
    for column in range(1, len_a + len_b - 1):
        if column != len_a - 1:
            first = first if CONTINUES[ids[column]] else column
            tokens[column] |= (column - first + 1) << records.TOKEN_ID_BITS
    return tokens


def draw(texts, position, seed=1, width=24, **options):
    """Masks sequences, given as texts, from a position on; returns the features as arrays."""
    options = {"max_predictions_per_seq": 5, "masked_lm_prob": 0.3, "do_whole_word_mask": False, **options}
    ids, lengths = zip(*(encode(text, width) for text in texts))
    with tf.Graph().as_default(), tf.Session() as session:
        features = {
            "tokens": tf.constant(np.stack([with_places(row, *both) for row, both in zip(ids, lengths)])),
            "segment_lengths": tf.constant(np.array(lengths, np.int32)),
            "next_sentence_labels": tf.zeros([len(ids), 1], tf.int32),
        }
        return session.run(DynamicMasking(VOCAB, seed=seed, **options)(features, tf.constant(position, tf.int64)))


def z_scores(counts, others, draws):
    pooled = (np.asarray(counts) + others) / (2 * draws)
    return (np.asarray(counts) - others) / np.sqrt(2 * draws * pooled * (1 - pooled) + 1e-9)


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("budget", [1, 2, 4, 9])
def test_choice_has_the_distribution_of_stored_masks(budget, whole_words):
    draws, width = 4000, 24
    drawn = draw(
        [text for text in SEQUENCES for _ in range(draws)],
        0,
        max_predictions_per_seq=budget,
        masked_lm_prob=1.0,
        do_whole_word_mask=whole_words,
    )
    all_chosen = np.zeros((len(SEQUENCES) * draws, width), bool)
    used = drawn["masked_lm_weights"] == 1
    rows = np.broadcast_to(np.arange(len(all_chosen))[:, None], used.shape)
    all_chosen[rows[used], drawn["masked_lm_positions"][used]] = True

    rng, full = np.random.default_rng(2), np.full(draws, budget)
    for text, chosen in zip(SEQUENCES, np.split(all_chosen, len(SEQUENCES))):
        ids, (len_a, len_b) = encode(text, width)
        is_candidate = np.broadcast_to(np.array(ids) > MASK, chosen.shape)
        if whole_words:
            continues = np.array([list(VOCAB)[token].startswith("##") for token in ids])
            stored = masking.choose_words(rng, is_candidate, np.broadcast_to(continues, chosen.shape), full)
        else:
            both = np.full(draws, len_a - 2), np.full(draws, max(len_b - 1, 0))
            stored = masking.choose_tokens(rng, *both, full, width)
        assert not chosen[~is_candidate].any()
        assert np.abs(z_scores(chosen.sum(axis=0), stored.sum(axis=0), draws)).max() < 4.5
        subsets = [collections.Counter(map(bytes, array)) for array in (chosen, stored)]
        common = [subset for subset in subsets[1] if subsets[1][subset] > 50]
        counts, others = (np.array([counter[subset] for subset in common]) for counter in subsets)
        assert not common or np.abs(z_scores(counts, others, draws)).max() < 4.5
        sizes = [np.bincount(array.sum(axis=1), minlength=width) for array in (chosen, stored)]
        assert np.abs(z_scores(*sizes, draws)).max() < 4.5


def test_features_are_those_of_stored_masks():
    draws = 20_000
    (text, *_), width = SEQUENCES, 24
    ids, (len_a, len_b) = encode(text, width)
    drawn = draw([text] * draws, 0)
    assert {name: value.dtype for name, value in drawn.items()} == {
        name: np.float32 if name == "masked_lm_weights" else np.int32 for name in records.FEATURE_NAMES
    }
    positions, labels, weights = (drawn[f"masked_lm_{name}"] for name in ("positions", "ids", "weights"))
    total = len_a + len_b
    np.testing.assert_array_equal(weights.sum(axis=1), masking.budgets(np.array(total), 0.3, 5))
    np.testing.assert_array_equal(weights, np.broadcast_to([1, 1, 1, 1, 0], weights.shape))
    assert (np.diff(positions[:, :4], axis=1) > 0).all() and not positions[:, 4].any() and not labels[:, 4].any()
    np.testing.assert_array_equal(labels[:, :4], np.array(ids)[positions[:, :4]])
    np.testing.assert_array_equal(drawn["input_mask"][7], np.arange(width) < total)
    np.testing.assert_array_equal(drawn["segment_ids"][7], (np.arange(width) >= len_a) & (np.arange(width) < total))
    restored = drawn["input_ids"].copy()
    rows = np.arange(draws)[:, None]
    now, before = restored[rows, positions[:, :4]].ravel(), labels[:, :4].ravel()
    restored[rows, positions[:, :4]] = labels[:, :4]
    np.testing.assert_array_equal(restored, np.broadcast_to(ids, restored.shape))

    n, size = len(now), len(VOCAB)

    def z(count, p):
        return (count - n * p) / np.sqrt(n * p * (1 - p))

    assert abs(z((now == MASK).sum(), 0.8 + 0.1 / size)) < 4.5
    assert abs(z((now == before).sum(), 0.1 + 0.1 / size)) < 4.5
    others = np.bincount(now, minlength=size)[[0, 1, 2, 3, 15 + 4]]  # of the vocabulary, but not in the text
    assert np.abs(z(others, 0.1 / size)).max() < 4.5
    # What becomes of a token is independent of which are chosen, and of what becomes of its neighbour.
    is_mask = (restored[rows, 0] >= 0) & (drawn["input_ids"][rows, positions[:, :4]] == MASK)
    assert np.abs(np.corrcoef(is_mask.T)[np.triu_indices(4, 1)]).max() < 4.5 / np.sqrt(draws)


def test_budgets_are_those_of_stored_masks():
    lengths = np.arange(513)
    for prob in (0.0, 0.15, 0.25, 0.3, 0.5, 1.0):
        with tf.Graph().as_default(), tf.Session() as session:
            ours = session.run(dynamic_masking.budgets(tf.constant(lengths, tf.int32), prob, 77))
        np.testing.assert_array_equal(ours, masking.budgets(lengths, prob, 77))


@pytest.mark.parametrize("whole_words", [False, True])
def test_a_mask_depends_on_seed_and_position_alone(whole_words):
    texts = [SEQUENCES[i % 3] for i in range(30)]
    whole = draw(texts, 100, do_whole_word_mask=whole_words)
    part = draw(texts[7:20], 107, do_whole_word_mask=whole_words)
    for name, value in whole.items():
        np.testing.assert_array_equal(value[7:20], part[name])
    for other in (
        draw(texts, 100, seed=2, do_whole_word_mask=whole_words),
        draw(texts, 101, do_whole_word_mask=whole_words),
    ):
        same = (whole["masked_lm_positions"] == other["masked_lm_positions"]).all(axis=1)
        assert same.mean() < 0.9  # whole words leave few choices in these


def philox(key, counter):
    """Philox4x32-10 (Salmon et al., SC 2011) in Python's integers."""
    low = 2**32 - 1
    keys = [key & low, key >> 32]
    x = [counter >> 32 * i & low for i in range(4)]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [b >> 32 ^ x[1] ^ keys[0], b & low, a >> 32 ^ x[3] ^ keys[1], a & low]
        keys = [(keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low]
    return x


def test_bits_are_uniform_and_those_of_the_reference():
    def bits(seed, position, stream, batch, size):
        with tf.Graph().as_default(), tf.Session() as session:
            return session.run(
                dynamic_masking.random_bits(seed, tf.constant(position, tf.int64), stream, tf.constant(batch), size)
            )

    many = bits(6, 0, 0, 4000, 126)
    assert many.shape == (4000, 128)
    np.testing.assert_array_equal(many[1000:1100], bits(6, 1000, 0, 100, 126))
    ones = np.unpackbits(many.view(np.uint8), axis=1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(4000)
    key = int(np.random.SeedSequence([5, 3]).generate_state(1, np.uint64)[0])
    for position, stream in ((0, 0), (1, 2), (2**40, 3)):
        expected = [value for i in range(3) for value in philox(key, position * 3 + i + (stream << 64))]
        np.testing.assert_array_equal(bits(5, position, stream, 1, 9)[0], expected)


@pytest.fixture(scope="module")
def unmasked(tiny_text, tiny_model, tmp_path_factory):
    """Record files without masks, and their manifest."""
    folder = tmp_path_factory.mktemp("unmasked")
    outputs = [str(folder / f"{i}.tfrecord") for i in range(2)]
    settings = Settings(max_seq_length=32, dupe_factor=1, dynamic_masking=True)
    cache = str(folder / "cache")
    vocab_file = str(tiny_model / "vocab.txt")
    return pretraining_data.create([str(tiny_text)], vocab_file, outputs, settings, token_cache=cache), vocab_file


def test_unmasked_records_are_the_pairs_of_those_with_masks(unmasked, tiny_text, tmp_path):
    manifest, vocab_file = unmasked
    stored = pretraining_data.create(
        [str(tiny_text)],
        vocab_file,
        [str(tmp_path / "r")],
        Settings(max_seq_length=32, dupe_factor=1),
        token_cache=str(tmp_path),
    )

    def pairs(paths):
        found = []
        for path in paths:
            for features in map(records.parse, records.read(path)):
                if "segment_lengths" in features:
                    len_a, len_b = features["segment_lengths"].tolist()
                    ids = (features["tokens"] & records.TOKEN_ID).astype(np.int64)
                else:
                    ids, segments = features["input_ids"].copy(), features["segment_ids"]
                    used = features["masked_lm_weights"] > 0
                    ids[features["masked_lm_positions"][used]] = features["masked_lm_ids"][used]
                    len_b = int(segments.sum())
                    len_a = int(features["input_mask"].sum()) - len_b
                found.append((*ids.tolist(), len_a, len_b, *features["next_sentence_labels"].tolist()))
        return sorted(found)

    assert pairs(manifest.output_files) == pairs(stored.output_files)
    shape = records.peek(manifest.output_files[0])
    assert (shape.max_seq_length, shape.max_predictions_per_seq) == (32, None)
    assert shape.feature_names == records.UNMASKED_FEATURE_NAMES


def test_unmasked_records_do_not_depend_on_how_they_will_be_masked(tiny_text, tiny_model):
    def fingerprint(**options):
        settings = Settings(**options)
        return pretraining_data.fingerprint([str(tiny_text)], str(tiny_model / "vocab.txt"), settings)

    masks = {"do_whole_word_mask": True, "masked_lm_prob": 0.3, "max_predictions_per_seq": 40}
    assert fingerprint(dynamic_masking=True) == fingerprint(dynamic_masking=True, **masks)
    assert fingerprint(dynamic_masking=True) != fingerprint(dynamic_masking=True, random_seed=1)
    assert len({fingerprint(), fingerprint(**masks), fingerprint(dynamic_masking=True)}) == 3


@pytest.mark.parametrize("with_layout", [False, True])
def test_resumed_reading_draws_the_same_masks_and_each_epoch_others(unmasked, with_layout):
    manifest, vocab_file = unmasked
    vocab = tokenization.load_vocab(vocab_file)
    shape = records.peek(manifest.output_files[0])
    batch_size = 4
    input_fn = input_pipeline.training_input_fn(
        manifest.output_files,
        manifest.counts,
        input_pipeline.unmasked_feature_spec(32),
        shape.feature_names,
        3,
        batch_size,
        first_step=10,
        layout=shape.layout if with_layout else None,
        masking=DynamicMasking(vocab, 5, 0.15, True, seed=3),
    )
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        iterator = tf.data.make_initializable_iterator(input_fn({"batch_size": batch_size}))
        batch = iterator.get_next()
        assert batch["masked_lm_ids"].shape.as_list() == [batch_size, 5]

        def batches(first, count):
            with tf.Session() as session:
                session.run(step.assign(first))
                session.run(iterator.initializer)
                return [session.run(batch) for _ in range(count)]

        per_epoch = manifest.records // batch_size + 1
        whole = batches(10, 2 * per_epoch)
        for offset in (1, 7, per_epoch, per_epoch + 3):
            for again, before in zip(batches(10 + offset, 2), whole[offset:]):
                for name, value in before.items():
                    np.testing.assert_array_equal(again[name], value)
    # The same text in both epochs, under other masks.
    masks = collections.defaultdict(set)
    for features in whole:
        for ids, positions, labels, weights in zip(
            *(features[name] for name in ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"))
        ):
            text = ids.copy()
            text[positions[weights > 0]] = labels[weights > 0]
            masks[text.tobytes()].add(positions.tobytes())
    assert len(masks) == manifest.records
    assert np.mean([len(seen) for seen in masks.values()]) > 1.7
