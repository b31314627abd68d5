"""WordPiece vocabularies: training one from text, adding a domain's words to one, judging one by a text.

Words are counted by the very splitting that pretraining data goes through, so that what is trained for is what
will be seen. Pieces are then found by byte-pair encoding of the counted words (Sennrich et al. 2016): beginning
with single characters, the pair of neighbours that comes most often becomes a piece, again and again. The same
text and settings give the same vocabulary, in any process.
"""

import collections
import heapq

import numpy as np
from absl import logging

from bert import files, tokenization
from bert.data import text, wordpiece
from bert.errors import InputError

# With 99 of [unused], [UNK] and the others have the ids that they have in the released vocabularies.
NUM_UNUSED = 99
_LAST_SPECIAL_TOKENS = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Memory is bounded by how many different words are counted at a time and how many are trained from. They are
# reached by corpora of gigabytes; what is left out then are the rarest.
_MAX_COUNTED_WORDS = 2_000_000
_MAX_TRAINING_WORDS = 500_000
_MAX_WORD_CHARS = 200  # WordPiece leaves longer words unknown.

_HIGH_UNKNOWN_RATE = 0.05

Report = collections.namedtuple("Report", "file words pieces unknown longest")
Report.__doc__ = """How a vocabulary fits a file of text.

Attributes:
  file: its path.
  words: number of words.
  pieces: number of pieces that they become, an unknown word counting as one.
  unknown: number of words that are unknown.
  longest: list of the longest words that are known, longest first.
"""


def train(
    input_files,
    vocab_size,
    do_lower_case=True,
    strip_accents=None,
    num_unused=NUM_UNUSED,
    min_count=2,
    input_encoding="utf-8",
):
    """Trains a vocabulary.

    Args:
      input_files: list of paths of text files of any size.
      vocab_size: number of tokens wanted, special ones included.
      do_lower_case: whether text will be lower-cased.
      strip_accents: whether accents will be dropped; None: if lower-casing.
      num_unused: number of ``[unused]`` tokens, to be replaced by words that turn up later.
      min_count: a character or piece is worth an entry if it comes this often.
      input_encoding: of the files.

    Returns:
      List of tokens: ``[PAD]``, ``[unused0]`` and so on, ``[UNK]``, ``[CLS]``, ``[SEP]``, ``[MASK]``, characters,
      pieces from frequent to rare. It is shorter than `vocab_size` if the text has too few repeated pieces.

    Raises:
      InputError: there are no words, or too many different characters for `vocab_size`.
    """
    counts = count_words(input_files, do_lower_case, strip_accents, input_encoding)
    if not counts:
        raise InputError(f"No words to train a vocabulary from in {_names(input_files)}.")
    special = ["[PAD]", *(f"[unused{n}]" for n in range(num_unused)), *_LAST_SPECIAL_TOKENS]
    alphabet = _alphabet(counts, min_count)
    if len(special) + len(alphabet) > vocab_size:
        raise InputError(
            f"--vocab_size={vocab_size} is too small: the text's characters take {len(alphabet)} tokens and the "
            f"special tokens {len(special)}, {len(special) + len(alphabet)} in all before the first longer piece. "
            f"Raise --vocab_size, or raise --min_count={min_count} so that rare characters become [UNK]."
        )
    pieces = _merge(counts, alphabet, vocab_size - len(special) - len(alphabet), min_count)
    tokens = special + alphabet + pieces
    if len(tokens) < vocab_size:
        logging.warning(
            "Only %d tokens instead of %d: no other piece comes %d times in %s.",
            len(tokens),
            vocab_size,
            min_count,
            _names(input_files),
        )
    return tokens


def append(tokens, input_files, do_lower_case=True, strip_accents=None, min_count=2, input_encoding="utf-8"):
    """Puts words of a domain into the ``[unused]`` slots of a vocabulary, so that its checkpoint stays usable.

    The words chosen are those that take up the most pieces beyond one in the text, or that are unknown.

    Args:
      tokens: list of tokens of the vocabulary.
      input_files: list of paths of text of the domain.
      do_lower_case: as the vocabulary was trained.
      strip_accents: likewise.
      min_count: a word is worth a slot if it comes this often.
      input_encoding: of the files.

    Returns:
      List of tokens, as many as before.

    Raises:
      InputError: the vocabulary has no ``[unused]`` slot.
    """
    slots = [n for n, token in enumerate(tokens) if token.startswith("[unused") and token.endswith("]")]
    if not slots:
        raise InputError(f"The vocabulary of {len(tokens)} tokens has no [unused...] left to replace.")
    split = tokenization.WordpieceTokenizer(set(tokens)).tokenize
    saved = {}
    for word, count in count_words(input_files, do_lower_case, strip_accents, input_encoding).items():
        pieces = split(word) if count >= min_count and len(word) <= _MAX_WORD_CHARS else [word]
        if pieces == ["[UNK]"]:
            saved[word] = count * len(word)
        elif len(pieces) > 1:
            saved[word] = count * (len(pieces) - 1)
    best = heapq.nsmallest(len(slots), saved, key=lambda word: (-saved[word], word))
    result = list(tokens)
    for slot, word in zip(slots, best):
        result[slot] = word
    return result


def count_words(input_files, do_lower_case=True, strip_accents=None, input_encoding="utf-8"):
    """Counts the words of text files: a dict from word to count.

    Of more than two million different words, those that came least often so far are forgotten now and then.
    """
    counter = _WordCounter(tokenization.BasicTokenizer(do_lower_case, strip_accents))
    for path in input_files:
        for block in text.read_blocks(path, input_encoding):
            counter.add(block)
    return counter.counts()


def report(vocab, input_files, do_lower_case=True, strip_accents=None, input_encoding="utf-8", num_longest=5):
    """Judges a vocabulary, a mapping from token to id, by text: a list of `Report`, one a file."""
    split = tokenization.WordpieceTokenizer(vocab).tokenize
    basic = tokenization.BasicTokenizer(do_lower_case, strip_accents)
    reports = []
    for path in input_files:
        known = set()

        def encode_word(word, known=known):
            """Number of pieces, 0 for an unknown word."""
            pieces = split(word)
            if pieces == ["[UNK]"]:
                return [0]
            known.add(word)
            if len(known) > 1000:
                longest = sorted(known, key=_by_length)[:num_longest]
                known.clear()
                known.update(longest)
            return [len(pieces)]

        encoder = wordpiece.BlockEncoder(basic, encode_word, np.uint8)
        words = pieces = unknown = 0
        for block in text.read_blocks(path, input_encoding):
            numbers, _, _ = encoder.encode(block)
            words += len(numbers)
            unknown += int(np.count_nonzero(numbers == 0))
            pieces += int(np.maximum(numbers, 1).sum())
        if unknown > _HIGH_UNKNOWN_RATE * words:
            logging.warning("%s: %.1f%% of its words are unknown.", path, 100 * unknown / words)
        reports.append(Report(path, words, pieces, unknown, sorted(known, key=_by_length)[:num_longest]))
    return reports


def format_report(reports):
    """Lays out reports as a table, a line a file, with a line for all of them if they are several."""
    if len(reports) > 1:
        longest = sorted({word for r in reports for word in r.longest}, key=_by_length)[: len(reports[0].longest)]
        sums = [sum(numbers) for numbers in zip(*((r.words, r.pieces, r.unknown) for r in reports))]
        reports = [*reports, Report("all files", *sums, longest)]
    lines = [f"{'words':>12} {'unknown':>9} {'pieces/word':>11}  file, longest words"]
    for r in reports:
        rate, pieces = (r.unknown / r.words, r.pieces / r.words) if r.words else (0, 0)
        longest = ", ".join(word if len(word) <= 40 else word[:37] + "..." for word in r.longest)
        lines.append(f"{r.words:12,} {rate:9.3%} {pieces:11.3f}  {r.file}: {longest}")
    return "\n".join(lines)


def write(tokens, path):
    """Writes a vocabulary file, whole or not at all."""
    with files.atomic_write(path) as f:
        f.write("".join(token + "\n" for token in tokens).encode())


class _WordCounter:
    """Counts words block by block."""

    def __init__(self, basic_tokenizer):
        self._encoder = wordpiece.BlockEncoder(basic_tokenizer, self._number_of, np.uint32)
        self._numbers = {}  # word -> its place in _counts
        self._counts = np.zeros(1 << 16, np.int64)

    def _number_of(self, word):
        return [self._numbers.setdefault(word, len(self._numbers))]

    def add(self, block):
        """Counts the words of a block of text."""
        numbers, _, _ = self._encoder.encode(block)
        found = np.bincount(numbers)
        if len(found) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(found), np.int64)])
        self._counts[: len(found)] += found
        if len(self._numbers) > _MAX_COUNTED_WORDS:
            self._forget_rare()

    def _forget_rare(self):
        """Keeps the more frequent half of the words."""
        counts = self._counts[: len(self._numbers)]
        rare = np.partition(counts, len(counts) // 2)[len(counts) // 2]
        kept = [(word, counts[n]) for word, n in self._numbers.items() if counts[n] > rare]
        self._numbers = {word: n for n, (word, _) in enumerate(kept)}
        self._counts[:] = 0
        self._counts[: len(kept)] = [count for _, count in kept]
        self._encoder.clear()  # Its numbers are void.

    def counts(self):
        return {word: int(self._counts[n]) for word, n in self._numbers.items()}


def _alphabet(counts, min_count):
    """The one-character pieces of the words: those that begin a word, then those that go on with one.

    A character that comes both alone and in company, such as a letter, gets both kinds, whichever were seen: a new
    word may need the other.
    """
    totals, in_company = collections.Counter(), set()
    for word, count in counts.items():
        for char in word:
            totals[char] += count
        if 1 < len(word) <= _MAX_WORD_CHARS:
            in_company.update(word)
    chars = sorted(char for char, total in totals.items() if total >= min_count)
    return chars + ["##" + char for char in chars if char in in_company]


def _merge(counts, alphabet, num_pieces, min_count):
    """Finds up to `num_pieces` pieces longer than a character, in the order in which they are found."""
    tokens = list(alphabet)
    ids = {token: n for n, token in enumerate(tokens)}
    frequent = heapq.nsmallest(_MAX_TRAINING_WORDS, counts, key=lambda word: (-counts[word], word))
    words, word_counts = [], []  # as lists of token ids
    for word in frequent:
        pieces = [ids.get(char if n == 0 else "##" + char) for n, char in enumerate(word)]
        if 1 < len(word) <= _MAX_WORD_CHARS and None not in pieces:
            words.append(pieces)
            word_counts.append(counts[word])

    pair_counts = collections.Counter()
    places = collections.defaultdict(list)  # pair -> words that have, or had, it; some perhaps twice
    for n, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pair_counts[pair] += word_counts[n]
            places[pair].append(n)
    # Among equals the pair of the older tokens comes first. Counts in the heap may be out of date.
    heap = [(-count, pair) for pair, count in pair_counts.items() if count >= min_count]
    heapq.heapify(heap)
    while heap and len(tokens) < len(alphabet) + num_pieces:
        negative, pair = heapq.heappop(heap)
        count = pair_counts[pair]
        if count != -negative:
            if count >= min_count:
                heapq.heappush(heap, (-count, pair))
            continue
        token = tokens[pair[0]] + tokens[pair[1]][2:]
        # The same piece may be found as another pair again.
        token_id = ids.setdefault(token, len(tokens))
        if token_id == len(tokens):
            tokens.append(token)
        changes = collections.Counter()
        for n in set(places.pop(pair)):
            old = words[n]
            new = words[n] = _replace(old, pair, token_id)
            if len(new) == len(old):
                continue
            for gone in zip(old, old[1:]):
                changes[gone] -= word_counts[n]
            for come in zip(new, new[1:]):
                changes[come] += word_counts[n]
                if token_id in come:
                    places[come].append(n)
        for changed, change in changes.items():
            pair_counts[changed] += change
            if change > 0 and pair_counts[changed] >= min_count:
                heapq.heappush(heap, (-pair_counts[changed], changed))
        del pair_counts[pair]
    return tokens[len(alphabet) :]


def _replace(word, pair, token_id):
    """`word` with `token_id` in place of each `pair`, from left to right."""
    result = []
    n = 0
    while n < len(word):
        if word[n] == pair[0] and n + 1 < len(word) and word[n + 1] == pair[1]:
            result.append(token_id)
            n += 2
        else:
            result.append(word[n])
            n += 1
    return result


def _by_length(word):
    return -len(word), word


def _names(input_files):
    return ", ".join(map(str, input_files[:3])) + (f" and {len(input_files) - 3} more" * (len(input_files) > 3))
