"""Which stretches of the corpus become the two segments of each instance.

The distribution is that of the original's ``create_instances_from_document``, drawn for many documents at once:

- One target length per document and pass: all there is room for, or with probability `short_seq_prob` one that is
  uniform on 2 .. room.
- Sentences are gathered up to the target length or the end of the document. A is a random number of the first of
  them, all but one at most. B is the rest of them or, with probability 1/2 and always after a single sentence, a
  random one: whole sentences from a random sentence of a random document on, until the target length is reached.
  What was not used is used again by the next instance. Another document is drawn for B up to ten times in order
  to avoid A's own; the tenth draw is kept whatever it is.
- Then the longer of the two (B when they are equal) loses a token at either end with equal probability until the
  pair fits.

An instance begins where the one before it in the document ended, and nothing else passes from one to the next. So
everything is drawn for every sentence as if an instance began there, in a few array operations, and a walk from
sentence to sentence picks those that do begin one.
"""

import numpy as np

from bert.data.corpus import READS_PER_RELEASE

# One instance: index of the first token and number of tokens of each segment. Without a pair, B is empty.
ROW = np.dtype([("a", "<i8"), ("b", "<i8"), ("len_a", "<u2"), ("len_b", "<u2"), ("is_random", "?")])

SPECIAL_TOKENS_PER_PAIR = 3  # [CLS] A [SEP] B [SEP]
SPECIAL_TOKENS_ALONE = 2  # [CLS] A [SEP]

_SENTENCES_PER_WINDOW = 1 << 16
_MIN_SENTENCES_PER_BLOCK = 1 << 16
_MAX_BLOCKS = 256
_DOCUMENT_DRAWS = 10

# What a random stream is for; part of its key.
_STAGES = {"plan": 0, "write": 1, "pack": 2}


def random_stream(seed, stage, *unit):
    """A generator keyed by what it is for, so that results do not depend on who draws, or when.

    Args:
      seed: int.
      stage: "plan", "write" or "pack".
      unit: ints that name the piece of work.
    """
    key = np.random.SeedSequence([seed % (1 << 64), _STAGES[stage], *unit])
    return np.random.Generator(np.random.Philox(key))


def random_below(rng, bounds):
    """Draws an int64 uniformly from 0 .. bound - 1 for each element of an array of bounds below 2**31."""
    bits = rng.integers(0, 1 << 32, np.shape(bounds), dtype=np.uint32)
    return bits * np.asarray(bounds, np.int64) >> 32


def blocks(corpus):
    """Cuts the documents into blocks, the units of planning.

    Returns:
      int64 array of the first document of each block, and the number of documents.
    """
    size = max(_MIN_SENTENCES_PER_BLOCK, -(-corpus.num_sentences // _MAX_BLOCKS))
    wanted = np.arange(0, corpus.num_sentences, size)
    borders = np.searchsorted(corpus.documents.array, wanted)
    return np.unique(np.append(borders, corpus.num_documents))


class Planner:
    """Plans the instances of one pass over one block of documents.

    Args:
      corpus: `Corpus`.
      settings: object with max_seq_length, short_seq_prob, random_seed and no_nsp.
    """

    def __init__(self, corpus, settings):
        self._corpus = corpus
        self._settings = settings

    def plan(self, pass_number, block, first_document, end_document):
        """Plans the instances, in random order.

        Returns:
          Array of `ROW`.
        """
        rng = random_stream(self._settings.random_seed, "plan", pass_number, block)
        targets = self._targets(rng, end_document - first_document)
        find = self._segments if self._settings.no_nsp else self._pairs
        rows = find(rng, targets, first_document, end_document)
        self._corpus.release()
        return rows[rng.permutation(len(rows))]

    def _room(self):
        special = SPECIAL_TOKENS_ALONE if self._settings.no_nsp else SPECIAL_TOKENS_PER_PAIR
        return self._settings.max_seq_length - special

    def _targets(self, rng, num_documents):
        """Target lengths of documents: int64 [num_documents]."""
        room = self._room()
        is_short = rng.random(num_documents) < self._settings.short_seq_prob
        short = 2 + random_below(rng, np.full(num_documents, room - 1))
        return np.where(is_short, short, room)

    def _segments(self, rng, targets, first_document, end_document):
        """Stretches of a document of the target length, whatever the sentences; the last may be shorter."""
        borders = self._corpus.sentences.array[self._corpus.documents.array[first_document : end_document + 1]]
        lengths = np.diff(borders)  # [documents]
        counts = -(-lengths // targets)
        document = np.repeat(np.arange(len(counts)), counts)  # [instances]
        offset = (np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)) * targets[document]
        rows = np.zeros(len(document), ROW)
        rows["a"] = borders[document] + offset
        rows["len_a"] = np.minimum(targets[document], lengths[document] - offset)
        return rows

    def _pairs(self, rng, targets, first_document, end_document):
        corpus = self._corpus
        borders = corpus.documents.array[first_document : end_document + 1]
        sentence, end = int(borders[0]), int(borders[-1])
        windows = []
        while sentence < end:
            window_end = min(sentence + _SENTENCES_PER_WINDOW, end)
            candidates = _Candidates(rng, corpus.sentences.array, borders, targets, sentence, window_end)
            starts, sentence = candidates.walk()
            windows.append(self._rows(rng, candidates, starts, first_document))
            corpus.release()
        return np.concatenate(windows)

    def _rows(self, rng, candidates, starts, first_document):
        """Completes the instances that begin at the candidates `starts`."""
        rows = np.empty(len(starts), ROW)
        first, middle, end, target = (
            part[starts]
            for part in (
                candidates.first_token,
                candidates.middle_token,
                candidates.end_token,
                candidates.target,
            )
        )
        is_random = candidates.is_random[starts]
        document = first_document + candidates.document[starts]
        a, b, len_a, len_b = first, middle, middle - first, end - middle
        drawn = np.flatnonzero(is_random)
        for start in range(0, len(drawn), READS_PER_RELEASE):
            some = drawn[start : start + READS_PER_RELEASE]
            b[some], len_b[some] = self._random_segments(rng, document[some], target[some] - len_a[some])
            self._corpus.release()
        a, len_a, b, len_b = trim(rng, a, len_a, b, len_b, self._room())
        rows["a"], rows["b"], rows["len_a"], rows["len_b"], rows["is_random"] = a, b, len_a, len_b, is_random
        return rows

    def _random_segments(self, rng, own_document, wanted):
        """First tokens and lengths of whole sentences of random documents, at least `wanted` tokens if there are."""
        corpus = self._corpus
        document = np.empty_like(own_document)
        again = np.arange(len(document))
        for _ in range(_DOCUMENT_DRAWS):
            document[again] = random_below(rng, np.full(len(again), corpus.num_documents))
            again = again[document[again] == own_document[again]]
            if not len(again):
                break
        first = corpus.documents.array[document]
        end = corpus.documents.array[document + 1]
        first += random_below(rng, end - first)
        tokens = corpus.sentences.array
        first_token = tokens[first]
        # The end is the first border that is far enough, looked for by halves of what is left between two of them.
        # No sentence is empty, so that it is near, and the search reads next to nothing of a large corpus.
        low, high = first + 1, np.minimum(end, first + np.maximum(wanted, 1))
        while (low < high).any():
            middle = (low + high) // 2
            reached = tokens[middle] - first_token >= wanted
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        return first_token, tokens[high] - first_token


class _Candidates:
    """The instance that would begin at each sentence of a window.

    Attributes: arrays [sentences of the window].
      document: index within the block.
      target: target length.
      first_token, middle_token, end_token: borders of A and of the B that follows it.
      is_random: whether a random B takes the place of that.
    """

    def __init__(self, rng, tokens, borders, targets, start, end):
        self._start = start
        sentence = np.arange(start, end)
        self.document = np.searchsorted(borders, sentence, side="right") - 1
        self.target = targets[self.document]
        self.first_token = tokens[start:end]
        # No sentence is empty, so that no chunk has more of them than tokens.
        near = tokens[start : end + int(targets.max()) + 1]
        chunk_end = start + np.searchsorted(near, self.first_token + self.target)
        chunk_end = np.minimum(chunk_end, borders[self.document + 1])
        size = chunk_end - sentence
        middle = sentence + 1 + random_below(rng, np.maximum(size - 1, 1))
        coin = rng.integers(0, 2, len(size), dtype=np.uint8).view(bool)
        self.is_random = coin | (size == 1)
        # A single sentence is followed by nothing: `middle` is the end of the chunk.
        self._next = np.where(self.is_random, middle, chunk_end)
        self.middle_token = tokens[middle]
        self.end_token = tokens[chunk_end]

    def walk(self):
        """Follows the instances; returns (indices of the candidates taken, first sentence after them)."""
        following = (self._next - self._start).tolist()
        taken = []
        candidate = 0
        while candidate < len(following):
            taken.append(candidate)
            candidate = following[candidate]
        return np.array(taken, np.int64), self._start + candidate


def trim(rng, a, len_a, b, len_b, room):
    """Shortens pairs to `room` tokens as if token by token, each from the longer segment and from a random end.

    Args:
      rng: generator.
      a, b: int64 [n], first token of each segment.
      len_a, len_b: int64 [n].
      room: most tokens of a pair.

    Returns:
      (a, len_a, b, len_b), trimmed.
    """
    excess = np.maximum(len_a + len_b - room, 0)
    # B loses while it is at least as long as A. Once they are within one of each other they lose by turns.
    gap = len_b - len_a
    alone = np.minimum(np.abs(gap), excess)
    turns = excess - alone
    # After `alone` steps the two are equal, where B comes first.
    from_b = np.where(gap > 0, alone, 0) + (turns + 1) // 2
    from_a = excess - from_b
    front_a, front_b = rng.binomial(from_a, 0.5), rng.binomial(from_b, 0.5)
    return a + front_a, len_a - from_a, b + front_b, len_b - from_b
