"""Text to WordPiece ids in bulk: the ids of `bert.tokenization`, many times faster.

A block of lines is cut into segments with array operations over its UTF-8 bytes, and each segment's pieces
are looked up in a cache; `bert.tokenization` itself decides what they are when a segment is first seen. The
result is exact because the pieces of a line are those of its segments, one after the other:

- White space and CJK characters separate words whatever stands beside them.
- So does punctuation, in whose place the reference, after lower-casing and decomposing, finds the same
  character. Punctuation that decomposes stays inside its segment.
- Lower-casing looks beyond a character in one case alone, that of a capital sigma, which becomes another
  letter at the end of a word. Around one, segments end at white space only.
- All else, control and unassigned characters included, stays in its segment, for the reference to judge.
"""

import unicodedata

import numpy as np

from bert import tokenization
from bert.errors import InputError

# What a byte is to the cutting of segments.
_SPACE, _WORD, _SINGLE, _SINGLE_TAIL, _LEAD, _TAIL = range(6)

_ASCII = bytes(range(0x80))
_NOT_PLAIN = "\0"  # The reference deletes it, so it is in no word.
_CAPITAL_SIGMA = "\u03a3"
_CACHE_BYTES = 64 << 20
# What an entry of the cache takes, tables and all, beside the segment itself.
_ENTRY_BYTES = 100
# How many missing segments are looked at before the cache is asked again.
_PART = 1 << 14
_MAX_WORD_CHARS = 200
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads keys over the high bits


def continues(vocab):
    """Whether each token of a vocabulary continues a word: bool [largest id + 1]."""
    marks = np.zeros(max(vocab.values()) + 1, bool)
    marks[[number for token, number in vocab.items() if token.startswith("##")]] = True
    return marks


class BlockEncoder:
    """Encodes the words of blocks of lines as whole numbers, by any function of a word."""

    def __init__(self, basic_tokenizer, encode_word, dtype, cache_bytes=_CACHE_BYTES):
        """Prepares the tables; they fill as text is seen.

        Args:
          basic_tokenizer: a `bert.tokenization.BasicTokenizer`, which tells what the words are.
          encode_word: function from a word to a list of numbers.
          dtype: of the numbers.
          cache_bytes: about how much memory the cache of segments may take before it is begun anew.
        """
        self._basic = basic_tokenizer
        self._encode_word = encode_word
        self._dtype = dtype
        self._byte_kinds = bytes([self._kind(chr(byte)) for byte in range(0x80)] + [_TAIL] * 0x40 + [_LEAD] * 0x40)
        # Kinds of the other characters, filled as they are met.
        self._kinds = np.full(0x110000, _LEAD, np.uint8)
        self._plain = _Plain(basic_tokenizer)
        self._cache_bytes = cache_bytes
        self.clear()

    def clear(self):
        """Forgets the segments seen."""
        self._cached_bytes = 0
        # Segments of up to 8, 16 and 32 bytes; of more.
        self._tables = [_Table(width) for width in (1, 2, 4)]
        self._long_segments = {}
        # Entry e of the cache has the pieces from offsets[e] on, counts[e] of them.
        self._offsets = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int32)
        self._pieces = np.zeros(0, self._dtype)

    def encode(self, text):
        r"""Encodes a block of lines.

        Args:
          text: `str`; lines end at "\n" only, and the last may lack it.

        Returns:
          ids: [pieces] of the encoder's dtype: the numbers of all lines' words.
          lengths: [lines] int32: how many of them each line has.
          breaks: [lines] bool: whether a line is empty but for white space, and so ends a document.
        """
        if self._cached_bytes > self._cache_bytes:
            self.clear()
        if text and not text.endswith("\n"):
            text += "\n"
        data = text.encode("utf-8", "surrogatepass")
        if self._basic.do_lower_case:
            data = data.lower()  # ASCII only, which is what most entries of the cache need
        starts, ends = self._cut(data)  # [segments]
        entries = self._find(data, starts, ends - starts)  # [segments]
        counts = self._counts[entries]  # [segments]
        piece_ends = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=piece_ends[1:])
        # Piece p of the block is number p - piece_ends[s] of its segment s.
        which = np.repeat(self._offsets[entries] - piece_ends[:-1], counts)
        which += np.arange(piece_ends[-1])
        ids = self._pieces[which]

        line_ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))  # [lines]
        lengths = np.diff(piece_ends[np.searchsorted(starts, line_ends)], prepend=0).astype(np.int32)
        breaks = lengths == 0
        # A line of characters that the reference deletes has no pieces either, but ends no document.
        line_starts = np.concatenate([[0], line_ends[:-1] + 1])[: len(line_ends)]
        for line in np.flatnonzero(breaks & (line_ends > line_starts)):
            breaks[line] = not _decode(data[line_starts[line] : line_ends[line]]).strip()
        return ids, lengths, breaks

    def _kind(self, char):
        """The kind of a character: _SPACE, _SINGLE or _WORD."""
        cleaned = tokenization._clean(char)
        if cleaned.isspace():
            return _SPACE
        if tokenization._is_cjk(char):
            return _SINGLE
        stays = unicodedata.normalize("NFD", char) == char.lower() == char and not unicodedata.combining(char)
        return _SINGLE if tokenization._is_punctuation(char) and stays else _WORD

    def _cut(self, data):
        """Cuts a block into segments; returns where each begins and where it has ended, [segments]."""
        kinds = np.frombuffer(data.translate(self._byte_kinds), np.uint8)  # [bytes]
        if not data.isascii():
            kinds = self._with_non_ascii(kinds.copy(), data)
        word, single = kinds == _WORD, kinds == _SINGLE  # [bytes]
        starts, ends = word.copy(), word.copy()
        starts[1:] &= ~word[:-1]
        starts |= single
        ends[:-1] &= ~word[1:]
        if data.isascii():
            ends |= single
        else:
            tail = kinds == _SINGLE_TAIL
            last = single | tail
            last[:-1] &= ~tail[1:]
            ends |= last
        return np.flatnonzero(starts), np.flatnonzero(ends) + 1

    def _with_non_ascii(self, kinds, data):
        """Replaces the kinds _LEAD and _TAIL by those of the characters; returns `kinds`, [bytes]."""
        characters = _decode(data.translate(None, _ASCII)).encode("utf-32-le", "surrogatepass")
        code_points = np.frombuffer(characters, np.uint32)  # [characters]
        for code_point in np.unique(code_points[self._kinds[code_points] == _LEAD]).tolist():
            self._kinds[code_point] = self._kind(chr(code_point))
        char_kinds = self._kinds[code_points]
        kinds[np.flatnonzero(kinds == _LEAD)] = char_kinds
        tails = 1 + (code_points > 0x7FF) + (code_points > 0xFFFF)  # bytes after the first
        tail_kinds = np.where(char_kinds == _SINGLE, _SINGLE_TAIL, char_kinds)
        kinds[np.flatnonzero(kinds == _TAIL)] = np.repeat(tail_kinds, tails)
        if self._basic.do_lower_case and (code_points == ord(_CAPITAL_SIGMA)).any():
            self._join_around_sigma(kinds, data)
        return kinds

    def _join_around_sigma(self, kinds, data):
        """Makes one segment of everything between white space that has a capital sigma in it."""
        sigma = _CAPITAL_SIGMA.encode()
        spaces = np.flatnonzero(kinds == _SPACE)
        at = data.find(sigma)
        while at >= 0:
            right = np.searchsorted(spaces, at)
            start, end = (spaces[right - 1] + 1 if right else 0), spaces[right]  # A newline ends the block.
            kinds[start:end] = _WORD
            at = data.find(sigma, end)

    def _find(self, data, starts, sizes):
        """Entries of the cache for segments, [segments] int32; those not yet there are added."""
        windows = _windows(data)
        entries = np.empty(len(starts), np.int32)
        rest = np.arange(len(starts))
        for table in self._tables:
            fits = sizes[rest] <= 8 * table.width
            chosen, rest = rest[fits], rest[~fits]
            keys = table.keys_of(windows, starts[chosen], sizes[chosen])
            found = table.find(keys)
            missing = np.flatnonzero(found < 0)
            while missing.size:
                # A part at a time: what comes often in the first is no longer missing in the next.
                part = missing[:_PART]
                where = dict(zip(_slices(data, starts[chosen[part]], sizes[chosen[part]]), part.tolist()))
                table.insert([column[list(where.values())] for column in keys], self._add(list(where)))
                found[missing] = table.find([column[missing] for column in keys])
                missing = missing[found[missing] < 0]
            entries[chosen] = found
        if rest.size:
            segments = _slices(data, starts[rest], sizes[rest])
            new = list(dict.fromkeys(segment for segment in segments if segment not in self._long_segments))
            self._long_segments.update(zip(new, self._add(new).tolist()))
            entries[rest] = [self._long_segments[segment] for segment in segments]
        return entries

    def _add(self, segments):
        """Encodes new segments of bytes, appends their pieces to the cache and returns their entries."""
        pieces = [self._encode_segment(_decode(segment)) for segment in segments]
        counts = np.array([len(ids) for ids in pieces], np.int32)
        entries = np.arange(len(segments), dtype=np.int32) + np.int32(len(self._counts))
        self._offsets = np.concatenate([self._offsets, len(self._pieces) + np.cumsum(counts) - counts])
        self._counts = np.concatenate([self._counts, counts])
        self._pieces = np.concatenate([self._pieces, np.array([i for ids in pieces for i in ids], self._dtype)])
        self._cached_bytes += sum(map(len, segments)) + _ENTRY_BYTES * len(segments)
        return entries

    def _encode_segment(self, segment):
        """Numbers of the words of a segment."""
        plain = segment if segment.isascii() and segment.isalnum() else segment.translate(self._plain)
        words = self._basic.tokenize(segment) if _NOT_PLAIN in plain else [plain] if plain else []
        return [number for word in words for number in self._encode_word(word)]


class _Plain(dict):
    """What becomes of characters that the reference treats without regard to their neighbours, as it mostly does.

    A table for `str.translate`, filled as characters are met, that makes of a segment its one word. To all other
    characters it gives _NOT_PLAIN.
    """

    def __init__(self, basic_tokenizer):
        super().__init__()
        self._basic = basic_tokenizer

    def __missing__(self, code_point):
        char = chr(code_point)
        cleaned = tokenization._clean(char)
        normal = self._basic.normalize(cleaned)
        if (
            cleaned not in ("", char)
            or (self._basic.do_lower_case and char == _CAPITAL_SIGMA)
            # Marks that outlive the dropping of accents are put in order by decomposition.
            or (self._basic.strip_accents and any(map(unicodedata.combining, normal)))
            or any(map(tokenization._is_punctuation, normal))
        ):
            normal = _NOT_PLAIN
        self[code_point] = normal
        return normal


class BlockTokenizer(BlockEncoder):
    """Tokenizes blocks of lines: ids are uint16, or uint32 for a vocabulary with ids above 65,535.

    >>> tokenizer = BlockTokenizer({"[UNK]": 0, "un": 1, "##able": 2, "!": 3})
    >>> tokenizer.encode("Unable!\\n\\nable\\n")
    (array([1, 2, 3, 0], dtype=uint16), array([3, 0, 1], dtype=int32), array([False,  True, False]))
    """

    def __init__(self, vocab, do_lower_case=True, strip_accents=None, cache_bytes=_CACHE_BYTES):
        """Prepares the tables.

        Args:
          vocab: mapping from token to id.
          do_lower_case: whether to lower-case.
          strip_accents: whether to drop accents; None: if lower-casing.
          cache_bytes: see `BlockEncoder`.

        Raises:
          InputError: the vocabulary has no ``[UNK]``.
        """
        if "[UNK]" not in vocab:
            raise InputError(f"The vocabulary of {len(vocab)} tokens has no [UNK].")
        self._unknown = vocab["[UNK]"]
        self._heads = {token: token_id for token, token_id in vocab.items() if token}
        self._tails = {token[2:]: vocab[token] for token in vocab if token[:2] == "##" and token[2:]}
        self._longest = max(map(len, vocab))
        basic = tokenization.BasicTokenizer(do_lower_case, strip_accents)
        dtype = np.uint16 if max(vocab.values()) < 1 << 16 else np.uint32
        super().__init__(basic, self._split, dtype, cache_bytes)

    def _split(self, word):
        """WordPiece as the reference has it, but trying no piece longer than the longest there is."""
        if len(word) > _MAX_WORD_CHARS:
            return [self._unknown]
        ids = []
        pieces, start, size = self._heads, 0, len(word)
        while start < size:
            for end in range(min(size, start + self._longest), start, -1):
                piece = pieces.get(word[start:end])
                if piece is not None:
                    break
            else:
                return [self._unknown]
            ids.append(piece)
            pieces, start = self._tails, end
        return ids


class _Table:
    """A hash table from segments of up to 8 * width bytes to entries, asked for many at a time.

    A segment's key is its bytes, filled up with zeros, as `width` integers of 64 bits: a list of as many
    arrays [segments]. (A zero byte at a segment's end is lost in this way; the reference deletes it.) Keys
    are compared in full, and what collides goes to the next free slot.
    """

    def __init__(self, width):
        self.width = width
        # Of integer c of a key, the bytes that belong to a segment of n bytes: masks[c][n].
        sizes = np.arange(8 * width + 1) - 8 * np.arange(width)[:, None]
        self._masks = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)[np.clip(sizes, 0, 8)]
        self._allocate(bits=12)

    def _allocate(self, bits):
        self._bits = bits
        self._keys = [np.zeros(1 << bits, np.uint64) for _ in range(self.width)]
        self._entries = np.full(1 << bits, -1, np.int32)
        self._used = 0

    def keys_of(self, windows, starts, sizes):
        """Keys of the segments that begin at `starts`, [segments]."""
        return [windows[starts + 8 * column] & masks[sizes] for column, masks in enumerate(self._masks)]

    def _home(self, keys):
        """The slot where to begin looking for each key, [segments]."""
        mixed = keys[0] * _MULTIPLIER
        for column in keys[1:]:
            mixed = (mixed ^ (mixed >> np.uint64(32)) ^ column) * _MULTIPLIER
        return (mixed >> np.uint64(64 - self._bits)).astype(np.int64)

    def _next(self, slots):
        return (slots + 1) & ((1 << self._bits) - 1)

    def _differ(self, slots, keys):
        """Whether another key, or none, is in each slot, [segments]."""
        differ = self._keys[0][slots] != keys[0]
        for stored, column in zip(self._keys[1:], keys[1:]):
            differ |= stored[slots] != column
        return differ

    def find(self, keys):
        """Entries of keys, [segments] int32; -1 where there is none."""
        slots = self._home(keys)
        found = self._entries[slots]
        # A free slot ends the search; those go on that met another's key.
        pending = np.flatnonzero(self._differ(slots, keys) & (found >= 0))
        while pending.size:
            slots[pending] = self._next(slots[pending])
            found[pending] = self._entries[slots[pending]]
            met = self._differ(slots[pending], [column[pending] for column in keys]) & (found[pending] >= 0)
            pending = pending[met]
        return found

    def insert(self, keys, entries):
        """Adds keys, all different and none of them there yet."""
        if 2 * (self._used + len(entries)) > len(self._entries):
            full = self._entries >= 0
            keys = [np.concatenate([stored[full], column]) for stored, column in zip(self._keys, keys)]
            entries = np.concatenate([self._entries[full], entries])
            self._allocate(bits=(4 * len(entries)).bit_length())
        self._used += len(entries)
        slots = self._home(keys)
        pending = np.arange(len(entries))
        while pending.size:
            free = pending[self._entries[slots[pending]] < 0]
            for stored, column in zip(self._keys, keys):
                stored[slots[free]] = column[free]
            self._entries[slots[free]] = entries[free]  # Of several that want one slot, the last gets it.
            pending = pending[self._entries[slots[pending]] != entries[pending]]
            slots[pending] = self._next(slots[pending])


def _slices(data, starts, sizes):
    """The segments themselves, a list of bytes."""
    return [data[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist())]


def _windows(data):
    """The 8 bytes from each byte of `data` on, as integers, without copying; zeros follow the end."""
    padded = data + bytes(40)
    return np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))


def _decode(data):
    return data.decode("utf-8", "surrogatepass")
