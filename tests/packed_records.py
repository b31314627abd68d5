"""Packed records taken apart into the pairs that they hold."""

import numpy as np


def take_apart(features):
    """The features of each pair of a packed record, as in a record of its own: a list of dicts."""
    width = len(features["tokens" if "tokens" in features else "input_ids"])
    if "tokens" in features:
        lengths = features["segment_lengths"].reshape(-1, 2).sum(axis=1)
    else:
        lengths = features["pair_lengths"]
    count = np.count_nonzero(lengths)
    assert not lengths[count:].any() and not features["next_sentence_labels"][count:].any()
    pairs, end = [], 0
    for number in range(count):
        start, end = end, end + lengths[number]
        pair = {"next_sentence_labels": features["next_sentence_labels"][number : number + 1]}
        if "tokens" in features:
            pair["segment_lengths"] = features["segment_lengths"][2 * number : 2 * number + 2]
        else:
            positions, weights = features["masked_lm_positions"], features["masked_lm_weights"]
            used = (positions >= start) & (positions < end) & (weights > 0)
            for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
                values = features[name][used] - (start if name.endswith("positions") else 0)
                pair[name] = _fill(values, len(positions))
            pair["input_mask"] = _fill(np.ones_like(features["input_ids"][start:end]), width)
        for name in {"tokens", "input_ids", "segment_ids"} & set(features):
            pair[name] = _fill(features[name][start:end], width)
        pairs.append(pair)
    assert not features["tokens" if "tokens" in features else "input_ids"][end:].any()
    return pairs


def _fill(values, width):
    return np.pad(values, (0, width - len(values)))
