"""Several pairs in one row: which go together, what packed records hold, and how they are masked while reading."""

import numpy as np
import pytest
import tensorflow as tf
from packed_records import take_apart

from bert import tokenization
from bert.data import input_pipeline, masking, packing, planning, pretraining_data, records
from bert.data.dynamic_masking import DynamicMasking
from bert.data.packed_masking import PackedMasking
from bert.data.pretraining_data import Settings


@pytest.mark.parametrize("predictions", [77, 40])
def test_rows_hold_every_pair_once_within_all_limits(predictions):
    settings = Settings(max_seq_length=512, max_predictions_per_seq=predictions, pack_sequences=True)
    rng = np.random.default_rng(0)
    pairs = np.zeros(3000, planning.ROW)
    total = rng.integers(0, 508, len(pairs)) // rng.integers(1, 30, len(pairs)) + 2
    pairs["len_a"] = 1 + planning.random_below(rng, total - 1)
    pairs["len_b"], pairs["a"] = total - pairs["len_a"], np.arange(len(pairs))
    rows = packing.pack(pairs, settings)
    assert rows.dtype == planning.ROW and rows.shape[1] == packing.max_pairs(512) == 64
    is_pair = rows["len_a"] > 0
    assert (np.diff(is_pair.astype(int), axis=1) <= 0).all()
    assert sorted(rows[is_pair].tolist()) == sorted(pairs.tolist())
    lengths = np.where(is_pair, rows["len_a"].astype(int) + rows["len_b"] + 3, 0)
    budgets = np.where(is_pair, masking.budgets(lengths, 0.15, predictions), 0)
    assert lengths.sum(axis=1).max() <= 512 and budgets.sum(axis=1).max() <= predictions
    # The rows are full, of tokens or of predictions: but for a few, by the sum of what must go in.
    needed = max(lengths.sum() / 512, budgets.sum() / predictions)
    assert len(rows) < 1.02 * needed + 2
    assert not len(packing.pack(pairs[:0], settings))


@pytest.fixture(scope="module")
def made(tiny_text, tiny_model, tmp_path_factory):
    """A function that makes records of some settings: their file, and their manifest."""
    folder = tmp_path_factory.mktemp("packed")
    vocab_file = str(tiny_model / "vocab.txt")

    def make(**options):
        path = str(folder / "-".join(["r", *options]))
        settings = Settings(max_seq_length=64, max_predictions_per_seq=10, dupe_factor=1, short_seq_prob=1.0, **options)
        manifest = pretraining_data.create([str(tiny_text)], vocab_file, [path], settings, token_cache=str(folder))
        return path, manifest

    return make


@pytest.mark.parametrize("options", [{}, {"no_nsp": True}, {"dynamic_masking": True}])
def test_packed_records_hold_the_pairs_of_others(made, options):
    def texts(features):
        if "tokens" in features:
            return tuple(features[name].tobytes() for name in records.UNMASKED_FEATURE_NAMES)
        ids, used = features["input_ids"].copy(), features["masked_lm_weights"] > 0
        ids[features["masked_lm_positions"][used]] = features["masked_lm_ids"][used]
        others = (features[name].tobytes() for name in ("input_mask", "segment_ids", "next_sentence_labels"))
        return ids.tobytes(), *others, int(used.sum())

    (alone, manifest), (packed, packed_manifest) = made(**options), made(pack_sequences=True, **options)
    rows = list(map(records.parse, records.read(packed)))
    pairs = [pair for row in rows for pair in take_apart(row)]
    assert sorted(map(texts, pairs)) == sorted(texts(records.parse(record)) for record in records.read(alone))
    assert packed_manifest.records == len(rows) < 0.8 * packed_manifest.pairs
    assert packed_manifest.pairs == manifest.pairs == manifest.records
    assert packed_manifest.tokens == manifest.tokens
    shape = records.peek(packed)
    assert (shape.max_pairs, records.peek(alone).max_pairs) == (8, None)
    assert shape.layout is not None and shape.max_predictions_per_seq == (None if "tokens" in rows[0] else 10)


def test_pairs_are_masked_as_they_are_alone(made, tiny_model):
    path, _ = made(pack_sequences=True, dynamic_masking=True)
    arguments = tokenization.load_vocab(str(tiny_model / "vocab.txt")), 10, 0.15, True, 5
    serialized = list(records.read(path))[:5]
    position, stream, max_pairs = 1000, 2, 8

    @tf.function
    def read(batch):
        spec = input_pipeline.unmasked_feature_spec(64, max_pairs)
        return PackedMasking(*arguments)(input_pipeline.parse_batch(batch, spec, tuple(spec)), position, stream)

    laid = {name: value.numpy() for name, value in read(tf.constant(serialized)).items()}
    shapes = {name: list(of.shape) for name, of in input_pipeline.feature_spec(64, 10, max_pairs).items()}
    assert {name: list(value.shape[1:]) for name, value in laid.items()} == shapes
    checked = 0
    for row, record in enumerate(serialized):
        pairs, texts = take_apart({name: value[row] for name, value in laid.items()}), take_apart(records.parse(record))
        assert len(pairs) == len(texts)
        features = {name: np.stack([text[name] for text in texts]).astype(np.int32) for name in texts[0]}
        alone = DynamicMasking(*arguments)(features, (position + row) * max_pairs, stream)
        for name, values in alone.items():
            np.testing.assert_array_equal(np.stack([pair[name] for pair in pairs]), values, err_msg=name)
        checked += len(pairs)
    assert checked > 1.5 * len(serialized)
