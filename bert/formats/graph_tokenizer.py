"""The tokenizer as TensorFlow operations, so that an exported model can take text.

Only operations of TensorFlow itself are used: whoever serves the model needs nothing else. The ids are those of
`bert.tokenization`, because its own functions, asked about every character once, fill the tables:

- Cleaning, lower-casing, dropping accents and setting apart punctuation and ideographs look at one character at a
  time. What becomes of a character, and how that stands to its neighbours, is in a table by code point.
- Lower-casing looks further in one case, a capital sigma, which becomes another letter at the end of a word.
- WordPiece looks up the beginnings of what is left of each word, longest first, in a hash table.

One difference is known: combining characters that are spacing and out of canonical order are not put into it.
"""

import unicodedata

import numpy as np
import tensorflow.compat.v1 as tf

from bert import tokenization

_MAX_WORD_CHARS = 200
_CODE_POINTS = 0x110000
_PAGE = 256
_CAPITAL_SIGMA, _FINAL_SIGMA = 0x3A3, 0x3C2
# What a character is, beside its neighbours: it separates words, is one, or is part of one.
_SPACE, _SINGLE, _WORD = range(3)
# What a character is to a capital sigma before or after it: the end of a word, a letter, or not looked at.
_OTHER, _CASED, _SKIPPED = range(3)


class GraphTokenizer:
    """Builds the operations that tokenize, in the current graph, whose tables must be initialised before use."""

    def __init__(self, vocab, do_lower_case):
        """Makes the tables.

        Args:
          vocab: mapping from token to id, with [UNK], [CLS] and [SEP].
          do_lower_case: whether text is lower-cased and loses its accents.
        """
        self._lowers = do_lower_case
        self._unknown, self._cls, self._sep = vocab["[UNK]"], vocab["[CLS]"], vocab["[SEP]"]
        tokens = {token: token_id for token, token_id in vocab.items() if token}
        self._longest = max(len(token.removeprefix("##")) for token in tokens)
        initializer = tf.lookup.KeyValueTensorInitializer(
            list(tokens), list(tokens.values()), key_dtype=tf.string, value_dtype=tf.int64
        )
        self._vocab = tf.lookup.StaticHashTable(initializer, default_value=-1)
        self._pages, *columns = _character_tables(tokenization.BasicTokenizer(do_lower_case))
        self._replacements, self._kinds, self._counts, self._sigma_kinds = columns

    def tokenize(self, texts):
        """Ids of the WordPieces of texts.

        Args:
          texts: string Tensor [batch], UTF-8.

        Returns:
          An int32 RaggedTensor [batch, tokens].
        """
        words, rows = self._words(texts)  # [words] each
        unique, which = tf.unique(words)
        pieces = tf.gather(self._word_pieces(unique), which)  # [words, pieces]
        return tf.RaggedTensor.from_value_rowids(
            pieces.values,
            tf.repeat(rows, pieces.row_lengths()),
            nrows=tf.size(texts, out_type=tf.int64),
        )

    def features(self, texts_a, texts_b, max_seq_length):
        """The features of texts or of pairs of texts, as `bert.tasks.features` makes them, but no longer than need be.

        Args:
          texts_a: string Tensor [batch].
          texts_b: string Tensor [batch] of second texts, of which an empty one is none; or None.
          max_seq_length: tokens to which longer texts are cut.

        Returns:
          input_ids, input_mask and segment_ids, int32 Tensors [batch, longest].
        """
        a = self.tokenize(texts_a)
        b = self.tokenize(tf.zeros_like(texts_a) if texts_b is None else texts_b)
        lengths_a, lengths_b = a.row_lengths(), b.row_lengths()  # [batch] each
        has_b = tf.cast(lengths_b > 0, tf.int64)  # [batch]
        # While the pair is too long, the longer text loses a token, and the second if they are equal.
        room = max_seq_length - 2 - has_b  # [batch]
        most_a = tf.where(lengths_b > 0, tf.maximum((room + 1) // 2, room - lengths_b), room)
        kept_a = tf.minimum(lengths_a, most_a)
        kept_b = tf.minimum(lengths_b, room - kept_a)
        one = tf.ones_like(has_b)
        parts = [
            _filled(self._cls, one),
            _first(a, kept_a),
            _filled(self._sep, one),
            _first(b, kept_b),
            _filled(self._sep, has_b),
        ]
        input_ids = tf.concat(parts, axis=1).to_tensor()  # [batch, longest]
        lengths = 2 + kept_a + tf.where(lengths_b > 0, kept_b + 1, kept_b)  # [batch]
        input_mask = tf.sequence_mask(lengths, dtype=tf.int32)
        first = tf.sequence_mask(2 + kept_a, tf.shape(input_ids)[1], dtype=tf.int32)
        return input_ids, input_mask, input_mask * (1 - first)

    def _words(self, texts):
        """Words of all texts, string [words], and the row of each, int64 [words]."""
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        codes, rows = decoded.values, decoded.value_rowids()  # [characters] each
        if self._lowers:
            codes = self._end_words_in_sigma(codes, rows)
        slots = self._slots(codes)
        used = tf.sequence_mask(tf.gather(self._counts, slots), self._replacements.shape[1])  # [characters, width]
        replaced = codes[:, tf.newaxis] + tf.gather(self._replacements, slots)  # [characters, width]
        rows = tf.boolean_mask(tf.broadcast_to(rows[:, tf.newaxis], tf.shape(used)), used)
        kinds = tf.boolean_mask(tf.gather(self._kinds, slots), used)
        codes = tf.boolean_mask(replaced, used)
        # A word begins where no part of the same word goes before.
        goes_on = tf.concat([[False], tf.equal(kinds[:-1], _WORD) & tf.equal(rows[:-1], rows[1:])], 0)
        starts = tf.equal(kinds, _SINGLE) | (tf.equal(kinds, _WORD) & ~goes_on[: tf.size(kinds)])
        in_word = tf.not_equal(kinds, _SPACE)
        numbers = tf.cumsum(tf.cast(tf.boolean_mask(starts, in_word), tf.int64)) - 1
        words = tf.RaggedTensor.from_value_rowids(tf.boolean_mask(codes, in_word), numbers)
        return tf.strings.unicode_encode(words, "UTF-8"), tf.boolean_mask(rows, starts)

    def _slots(self, codes):
        """Where in the tables characters are, int32 [characters]."""
        return tf.gather(self._pages, codes // _PAGE) * _PAGE + codes % _PAGE

    def _end_words_in_sigma(self, codes, rows):
        """Replaces capital sigmas after a letter and not before one: by Unicode's rule for lower-casing."""
        kinds = tf.gather(self._sigma_kinds, self._slots(codes))
        looked_at = tf.where(tf.not_equal(kinds, _SKIPPED))  # [looked at, 1]
        codes_there, kinds_there, rows_there = (tf.gather_nd(of, looked_at) for of in (codes, kinds, rows))
        cased = tf.equal(kinds_there, _CASED)
        same_row = tf.equal(rows_there[1:], rows_there[:-1])
        size = tf.size(codes_there)
        after = tf.concat([[False], cased[:-1] & same_row], 0)[:size]
        before = tf.concat([cased[1:] & same_row, [False]], 0)[:size]
        final = tf.equal(codes_there, _CAPITAL_SIGMA) & after & ~before
        ended = tf.where(final, tf.fill(tf.shape(codes_there), _FINAL_SIGMA), codes_there)
        return tf.tensor_scatter_nd_update(codes, looked_at, ended)

    def _word_pieces(self, words):
        """Ids of the pieces of words, an int32 RaggedTensor [words, pieces]."""
        sizes = tf.strings.length(words, unit="UTF8_CHAR")  # [words]
        too_long = sizes > _MAX_WORD_CHARS
        # Longest first.
        tried = tf.range(self._longest, 0, -1)  # [longest]

        def find(active, places, piece_words, pieces, failed):
            """Finds the next piece of each word of which something is left."""
            left = tf.gather(sizes, active) - places  # [active]
            lengths = tf.minimum(tried, left[:, tf.newaxis])  # [active, longest]
            tails = tf.strings.substr(
                tf.gather(words, active)[:, tf.newaxis],
                tf.broadcast_to(places[:, tf.newaxis], tf.shape(lengths)),
                lengths,
                unit="UTF8_CHAR",
            )  # [active, longest]
            prefixes = tf.where(places > 0, tf.fill(tf.shape(places), "##"), tf.fill(tf.shape(places), ""))
            ids = self._vocab.lookup(prefixes[:, tf.newaxis] + tails)  # [active, longest]
            known = (ids >= 0) & (tried <= left[:, tf.newaxis])
            best = tf.argmax(tf.cast(known, tf.int32), axis=1, output_type=tf.int32)  # [active]
            found = tf.gather(known, best, batch_dims=1)
            chosen = tf.boolean_mask(active, found)
            places = tf.boolean_mask(places + tf.gather(tried, best), found)
            pieces = tf.concat([pieces, tf.boolean_mask(tf.gather(ids, best, batch_dims=1), found)], 0)
            piece_words = tf.concat([piece_words, chosen], 0)
            failed = tf.concat([failed, tf.boolean_mask(active, ~found)], 0)
            goes_on = places < tf.gather(sizes, chosen)
            return (
                tf.boolean_mask(chosen, goes_on),
                tf.boolean_mask(places, goes_on),
                piece_words,
                pieces,
                failed,
            )

        active = tf.boolean_mask(tf.range(tf.size(words)), ~too_long)
        none = tf.zeros([0], tf.int32)
        _, _, piece_words, pieces, failed = tf.while_loop(
            lambda active, *_: tf.size(active) > 0,
            find,
            [
                active,
                tf.zeros_like(active),
                none,
                tf.zeros([0], tf.int64),
                tf.boolean_mask(tf.range(tf.size(words)), too_long),
            ],
            shape_invariants=[tf.TensorShape([None])] * 5,
        )
        # Of a word that cannot be composed, no piece counts.
        is_unknown = tf.tensor_scatter_nd_update(
            tf.zeros(tf.shape(words), tf.bool), failed[:, tf.newaxis], tf.ones_like(failed, tf.bool)
        )
        counts = ~tf.gather(is_unknown, piece_words)
        piece_words = tf.concat([tf.boolean_mask(piece_words, counts), failed], 0)
        pieces = tf.concat(
            [tf.boolean_mask(pieces, counts), tf.fill(tf.shape(failed), tf.constant(self._unknown, tf.int64))], 0
        )
        order = tf.argsort(piece_words, stable=True)
        return tf.RaggedTensor.from_value_rowids(
            tf.cast(tf.gather(pieces, order), tf.int32),
            tf.cast(tf.gather(piece_words, order), tf.int64),
            nrows=tf.size(words, out_type=tf.int64),
        )


def _filled(value, lengths):
    """RaggedTensor [batch, length] of one int32 value."""
    return tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(lengths)], value), lengths)


def _first(rows, lengths):
    """The first so many of each row of a RaggedTensor."""
    return tf.ragged.boolean_mask(rows, tf.ragged.range(rows.row_lengths()) < lengths[:, tf.newaxis])


def _character_tables(basic):
    """What becomes of each character.

    Args:
      basic: a `bert.tokenization.BasicTokenizer`.

    Returns:
      Tables in pages of code points, of which equal ones are kept once: the number of each page, int32 [pages]; and
      by page and place in it what to add to the code point for each character that replaces it, int32 [slots, width];
      what these are, int32 [slots, width]; how many there are, int32 [slots]; and what the character is to a capital
      sigma, int32 [slots].
    """
    # What most code points have: no character of known properties, and so a part of a word as it is.
    unknown = [i for i in range(_CODE_POINTS) if _is_unknown(chr(i))]
    known = np.setdiff1d(np.arange(_CODE_POINTS), unknown).tolist()
    outcomes = [_outcome(chr(code_point), basic) for code_point in known]
    width = max(len(characters) for characters, _, _ in outcomes)
    rows = np.zeros((_CODE_POINTS, 2 * width + 2), np.int32)
    rows[unknown, width], rows[unknown, -2:] = _WORD, (1, _OTHER)
    for code_point, (characters, kinds, sigma_kind) in zip(known, outcomes):
        size = len(characters)
        rows[code_point, :size] = [ord(character) - code_point for character in characters]
        rows[code_point, width : width + size] = kinds
        rows[code_point, -2:] = size, sigma_kind
    numbers = {}  # of each page, by content
    pages = [numbers.setdefault(page.tobytes(), len(numbers)) for page in rows.reshape(_CODE_POINTS // _PAGE, -1)]
    slots = np.frombuffer(b"".join(numbers), np.int32).reshape(-1, rows.shape[1])
    return (
        tf.constant(pages, tf.int32),
        tf.constant(slots[:, :width]),
        tf.constant(slots[:, width : 2 * width]),
        tf.constant(slots[:, -2]),
        tf.constant(slots[:, -1]),
    )


def _is_unknown(char):
    """Whether nothing is known of a character: it is unassigned, for private use, or half of a pair."""
    return unicodedata.category(char) in ("Cn", "Co", "Cs") and not tokenization._is_cjk(char)


def _outcome(char, basic):
    """The characters that replace one, what each of them is, and what it is to a capital sigma."""
    cleaned = tokenization._clean(char)
    if not cleaned:
        return "", [], _SKIPPED
    if cleaned == " ":
        return " ", [_SPACE], _OTHER
    normalized = basic.normalize(char)
    if len(cleaned) > 1:  # an ideograph
        kinds = [_SINGLE] * len(normalized)
    else:
        kinds = [
            _SPACE if of.isspace() else _SINGLE if tokenization._is_punctuation(of) else _WORD for of in normalized
        ]
    # Python's own rule: a sigma is final after a letter, whatever is in between that is not looked at.
    if not (f"A{char}\u03a3").lower().endswith("\u03c2"):
        sigma_kind = _OTHER
    else:
        sigma_kind = _CASED if f"{char}\u03a3".lower().endswith("\u03c2") else _SKIPPED
    return normalized, kinds, sigma_kind
