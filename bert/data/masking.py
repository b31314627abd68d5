"""Masking of tokens for the masked language model, for many sequences at once.

The distribution is that of the original's ``create_masked_lm_predictions``:

- The budget is the share `masked_lm_prob` of all tokens, special ones included, rounded half to even, at least 1
  and at most `max_predictions_per_seq`.
- Without whole words, that many tokens other than [CLS] and [SEP] are chosen at random.
- With whole words, words are visited in random order and taken if they fit in what is left of the budget. A piece
  that begins with ## belongs to the word before it; at the start of B that is A's last word.
- Each chosen piece by itself becomes [MASK] with probability 0.8, stays with 0.1, and with 0.1 becomes any entry of
  the vocabulary, special ones included.
"""

import numpy as np

# Of 2**32 random values, those below the first become [MASK], those below the second stay, the rest are replaced.
MASK_BELOW = round(0.8 * 2**32)
KEEP_BELOW = round(0.9 * 2**32)


def budgets(lengths, masked_lm_prob, max_predictions_per_seq):
    """Number of tokens to predict: int64, of the shape of `lengths`."""
    rounded = np.rint(lengths * masked_lm_prob).astype(np.int64)
    return np.minimum(max_predictions_per_seq, np.maximum(1, rounded))


def choose_tokens(rng, len_a, len_b, budget, width):
    """Chooses tokens of the sequences [CLS] A [SEP] B [SEP] at random.

    Args:
      rng: generator.
      len_a, len_b: int64 [batch], numbers of tokens of the segments; B may be empty.
      budget: int64 [batch], how many tokens to choose; all, if there are fewer.
      width: number of columns of the result.

    Returns:
      bool array [batch, width].
    """
    chosen = np.zeros((len(len_a), width), bool)
    flat = chosen.reshape(-1)
    candidates = len_a + len_b
    budget = np.minimum(budget, candidates)
    steps = np.arange(budget.max(initial=0))[:, np.newaxis]  # [steps, 1]
    # Floyd's sampling without replacement (Bentley and Floyd, CACM 30(9), 1987): in each step one more candidate
    # comes into play; a random one of those in play is chosen, or the new one if that was chosen before.
    newest = candidates - budget + steps  # [steps, batch]
    bits = rng.integers(0, 1 << 32, newest.shape, dtype=np.uint32)
    drawn = bits * (newest + 1) >> 32
    # Sequences whose budget is used up choose [CLS], which is taken back in the end.
    active = steps < budget
    row_start = np.arange(len(len_a)) * width

    def place(candidate):
        # Candidates are numbered without the special tokens.
        return (candidate + 1 + (candidate >= len_a)) * active + row_start

    for place_drawn, place_newest in zip(place(drawn), place(newest)):
        flat[np.where(flat[place_drawn], place_newest, place_drawn)] = True
    chosen[:, 0] = False
    return chosen


def opens_word(is_candidate, continues):
    """Where words begin: bool [batch, width]; arguments as of `choose_words`."""
    opens = is_candidate & ~continues
    # What nothing precedes opens a word, even if it looks like the continuation of one.
    opens[np.arange(len(opens)), is_candidate.argmax(axis=1)] |= is_candidate.any(axis=1)
    return opens


def choose_words(rng, is_candidate, continues, budget):
    """Chooses whole words at random.

    Args:
      rng: generator.
      is_candidate: bool [batch, width], False at special tokens and padding.
      continues: bool [batch, width], whether a token continues the word of the candidate before it.
      budget: int64 [batch], how many tokens to choose at most.

    Returns:
      bool array [batch, width].
    """
    batch, width = is_candidate.shape
    row_start = np.arange(batch) * width
    opens = opens_word(is_candidate, continues)
    word = np.cumsum(opens, axis=1, dtype=np.int32) - 1  # [batch, width]
    num_words = word[:, -1] + 1
    word += row_start.astype(np.int32)[:, np.newaxis]
    sizes = np.bincount(word[is_candidate], minlength=batch * width)
    chosen = np.zeros(batch * width, bool)  # by word

    # The words are shuffled (Fisher and Yates) one place at a time in all sequences that have budget left.
    order = np.tile(np.arange(width), batch)
    row, left, step = np.arange(batch), budget.copy(), 0
    while True:
        row = row[(left[row] > 0) & (num_words[row] > step)]
        if not len(row):
            break
        start = row_start[row]
        bits = rng.integers(0, 1 << 32, len(row), dtype=np.uint32)
        drawn = start + step + (bits * (num_words[row] - step) >> 32)
        candidate = start + order[drawn]
        order[drawn] = order[start + step]
        size = sizes[candidate]
        fits = size <= left[row]
        chosen[candidate] = fits
        left[row] -= size * fits
        step += 1
    return chosen[word] & is_candidate


def replace(rng, ids, chosen, max_predictions, mask_id, vocabulary_ids):
    """Masks the chosen tokens and collects what is to be predicted.

    Args:
      rng: generator.
      ids: unsigned integers [batch, width], token ids; changed in place.
      chosen: bool [batch, width], at most `max_predictions` a row.
      max_predictions: width of the results.
      mask_id: id of [MASK].
      vocabulary_ids: array of the ids that a random token is drawn from.

    Returns:
      (positions, labels, weights): arrays [batch, max_predictions], sorted by position and filled up with zeros;
      the labels are the tokens before masking, weights are float32, 1 where there is something to predict.
    """
    batch, width = ids.shape
    place = np.flatnonzero(chosen)
    counts = np.diff(np.searchsorted(place, np.arange(batch + 1) * width))
    is_used = np.arange(max_predictions) < counts[:, np.newaxis]  # [batch, max_predictions]
    flat = ids.reshape(-1)
    labels = np.zeros(is_used.shape, ids.dtype)
    labels[is_used] = original = flat[place]
    positions = np.zeros(is_used.shape, np.uint16)
    positions[is_used] = place - np.repeat(np.arange(batch) * width, counts)
    bits = rng.integers(0, 1 << 32, len(place), dtype=np.uint32)
    replaced = np.where(bits < MASK_BELOW, ids.dtype.type(mask_id), original)
    # The values beyond the second border are themselves uniform, and choose the random token.
    is_random = bits >= KEEP_BELOW
    beyond = (bits[is_random] - np.uint32(KEEP_BELOW)).astype(np.uint64)
    replaced[is_random] = vocabulary_ids[beyond * len(vocabulary_ids) // (2**32 - KEEP_BELOW)]
    flat[place] = replaced
    return positions, labels, is_used.astype(np.float32)
