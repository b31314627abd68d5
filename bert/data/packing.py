"""Several pairs of segments in one row of a record, so that few of its places hold padding.

Pairs are short if documents are. Those of one unit of planning are put together by best fit, the longest first: each
goes into the fullest row that has room for it. A row never holds a part of a pair, nor more pairs than `max_pairs`, nor
more than have `max_predictions_per_seq` predictions together; so a packed pair is masked as it would be alone. As in
Krell et al., "Efficient Sequence Packing without Cross-contamination", https://arxiv.org/abs/2107.02027, the model
keeps the pairs of a row apart.
"""

import numpy as np

from bert.data import masking, planning

_TOKENS_PER_PAIR = 8


def max_pairs(max_seq_length):
    """How many pairs a row has room for: one number, since shapes are static, that pairs of 8 tokens would reach."""
    return max(2, max_seq_length // _TOKENS_PER_PAIR)


def row_type(settings):
    """NumPy type of what becomes one record: `planning.ROW`, or `max_pairs` of them, where absent ones have no A."""
    return np.dtype((planning.ROW, (max_pairs(settings.max_seq_length),))) if settings.pack_sequences else planning.ROW


def pack(pairs, settings):
    """Puts pairs into rows.

    Args:
      pairs: array of `planning.ROW`, [pairs].
      settings: `pretraining_data.Settings`.

    Returns:
      Array of `planning.ROW`, [rows, max_pairs]. Absent pairs are zero, after those that are there.
    """
    lengths = pairs["len_a"].astype(np.int64) + pairs["len_b"] + settings.special_tokens  # [pairs]
    predictions = masking.budgets(lengths, settings.masked_lm_prob, settings.max_predictions_per_seq)  # [pairs]
    most = max_pairs(settings.max_seq_length)
    found = _best_fit(lengths, predictions, settings.max_seq_length, settings.max_predictions_per_seq, most)
    sizes = np.fromiter(map(len, found), np.int64, len(found))  # [rows]
    rows = np.zeros((len(found), most), pairs.dtype)
    rows[np.arange(most) < sizes[:, np.newaxis]] = pairs[np.concatenate([np.zeros(0, np.int64), *found])]
    return rows


def _best_fit(lengths, predictions, room, room_for_predictions, most):
    """Indices of the pairs of each row: a list of lists."""
    rows = []
    # Rows that take more, by their free places, and there by the predictions that they may still have.
    taking = [{} for _ in range(room)]
    some_take = 0  # bit n is set if there is a row with n free places
    longest_first = np.argsort(-lengths, kind="stable")
    for pair, length, wanted in zip(
        longest_first.tolist(), lengths[longest_first].tolist(), predictions[longest_first].tolist()
    ):
        row, free, left = [], room, room_for_predictions
        fitting = some_take >> length << length
        while fitting:
            lowest = fitting & -fitting
            place = lowest.bit_length() - 1
            enough = next((allowed for allowed in taking[place] if allowed >= wanted), None)
            if enough is not None:
                free, left = place, enough
                row = taking[free][left].pop()
                if not taking[free][left]:
                    del taking[free][left]
                    if not taking[free]:
                        some_take ^= lowest
                break
            fitting ^= lowest
        if not row:
            rows.append(row)
        row.append(pair)
        free, left = free - length, left - wanted
        if free and left and len(row) < most:
            taking[free].setdefault(left, []).append(row)
            some_take |= 1 << free
    return rows


def lay(features, lengths, is_pair):
    """Lays features of pairs, each in a row of its own, into rows that share one.

    Args:
      features: dict from name to array [pairs, length], of records with or without masks.
      lengths: int64 [pairs], number of tokens of each, special ones included.
      is_pair: bool [rows, max_pairs], where the pairs belong, in order.

    Returns:
      A dict of features of packed records [rows, length], see `bert.data.records`.
    """
    of_rows = np.zeros(is_pair.shape, np.int64)
    of_rows[is_pair] = lengths  # [rows, max_pairs]

    def shift(values, used):
        """Moves what is used of each pair together."""
        counts = np.zeros(is_pair.shape, np.int64)
        counts[is_pair] = used.sum(axis=1)
        width = values.shape[1]
        laid = np.zeros((len(is_pair), width), values.dtype)
        laid[np.arange(width) < counts.sum(axis=1)[:, np.newaxis]] = values[used]
        return laid

    def spread(values):
        """Gives each pair of a row its values."""
        spread = np.zeros((*is_pair.shape, values.shape[1]), values.dtype)
        spread[is_pair] = values
        return spread.reshape(len(is_pair), -1)

    labels = {"next_sentence_labels": spread(features["next_sentence_labels"])}
    if "tokens" in features:
        is_token = np.arange(features["tokens"].shape[1]) < lengths[:, np.newaxis]  # [pairs, seq]
        return {
            "tokens": shift(features["tokens"], is_token),
            "segment_lengths": spread(features["segment_lengths"]),
            **labels,
        }
    is_token, is_used = features["input_mask"] > 0, features["masked_lm_weights"] > 0
    first = (np.cumsum(of_rows, axis=1) - of_rows)[is_pair]  # [pairs], place of [CLS]
    positions = features["masked_lm_positions"] + first[:, np.newaxis].astype(np.uint16)
    return {
        **{name: shift(features[name], is_token) for name in ("input_ids", "segment_ids")},
        "masked_lm_positions": shift(positions, is_used),
        **{name: shift(features[name], is_used) for name in ("masked_lm_ids", "masked_lm_weights")},
        **labels,
        "pair_lengths": of_rows.astype(np.uint16),
    }
