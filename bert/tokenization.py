"""Tokenization of BERT: text to words, words to WordPieces, WordPieces to ids.

This is the reference: one character at a time, easy to check by reading. Bulk text goes through
`bert.data.wordpiece`, which gives the same ids many times faster.

A character's category and lower case are those of the running Python's Unicode tables (13.0 in Python 3.9 and
3.10, 14.0 in 3.11), as they always were for BERT, so the few hundred characters that a newer standard adds or
moves may be tokenized differently by another Python version.
"""

import collections
import functools
import re
import unicodedata

from absl import logging

from bert import files
from bert.errors import InputError

# Blocks whose characters become words of their own. Japanese kana and Korean Hangul are not among them: those
# scripts are written with spaces or left to WordPiece.
_CJK_BLOCKS = (
    (0x3400, 0x4DBF),  # extension A
    (0x4E00, 0x9FFF),  # unified ideographs
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0x20000, 0x2A6DF),  # extension B
    (0x2A700, 0x2B73F),  # extension C
    (0x2B740, 0x2B81F),  # extension D
    (0x2B820, 0x2CEAF),  # extension E
    (0x2F800, 0x2FA1F),  # compatibility ideographs, supplement
)

# Folder names of the released checkpoints, the only thing in them that tells whether text was lower-cased.
_UNCASED_MODELS = frozenset(
    [
        "uncased_L-24_H-1024_A-16",
        "uncased_L-12_H-768_A-12",
        "multilingual_L-12_H-768_A-12",
        "chinese_L-12_H-768_A-12",
    ]
)
_CASED_MODELS = frozenset(["cased_L-12_H-768_A-12", "cased_L-24_H-1024_A-16", "multi_cased_L-12_H-768_A-12"])


def validate_case_matches_checkpoint(do_lower_case, init_checkpoint):
    """Checks that lower-casing fits a released checkpoint, which is recognised by its folder's name.

    Raises:
      InputError: an uncased model is to be given cased text, or the reverse.
    """
    match = re.match(r".*?([A-Za-z0-9_-]+)/bert_model.ckpt", init_checkpoint or "")
    if not match:
        return
    model = match.group(1)
    if model in (_CASED_MODELS if do_lower_case else _UNCASED_MODELS):
        raise InputError(
            f"--do_lower_case={bool(do_lower_case)} does not fit --init_checkpoint={init_checkpoint}: "
            f"{model} was pretrained on {'cased' if do_lower_case else 'lower-cased'} text. "
            f"Give --do_lower_case={not do_lower_case}."
        )


def convert_to_unicode(text):
    """Returns `text`, `str` or UTF-8 `bytes`, as `str`; bytes that do not decode are dropped."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Text is wanted, str or bytes, not {type(text).__name__}: {text!r}")


def printable_text(text):
    """Returns `text`, `str` or `bytes`, in a form fit for printing and logging."""
    return convert_to_unicode(text)


def load_vocab(vocab_file, required=()):
    """Reads a vocabulary: a token a line, whose id is the line's number, counted from 0.

    Lines end at newlines only: the Chinese vocabulary has a line separator (U+2028) for a token. White space
    around a token is dropped. Of a token that comes twice, the last id counts.

    Args:
      vocab_file: path of a UTF-8 file.
      required: tokens that the caller cannot do without.

    Returns:
      An `OrderedDict` from token to id.

    Raises:
      InputError: the file is missing, empty, not UTF-8, or lacks a required token.
    """
    if not files.exists(vocab_file):
        raise InputError(f"No vocabulary {vocab_file}.")
    lines = files.read_text(vocab_file).removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    vocab = collections.OrderedDict()
    repeated = []
    for token_id, line in enumerate(lines):
        token = line.strip()
        if token in vocab and token:
            repeated.append((token, vocab[token], token_id))
        vocab[token] = token_id
    if not any(vocab):
        raise InputError(f"{vocab_file}: the vocabulary is empty; a token a line is expected.")
    missing = [token for token in required if token not in vocab]
    if missing:
        raise InputError(f"{vocab_file}: no {', '.join(missing)} among its {len(lines)} lines, as BERT needs them.")
    if repeated:
        token, first, last = repeated[0]
        logging.warning(
            "%s: %d tokens come twice, the first of them %r in lines %d and %d; the last line counts.",
            vocab_file,
            len(repeated),
            token,
            first + 1,
            last + 1,
        )
    return vocab


def convert_by_vocab(vocab, items):
    """Looks up each of `items` in `vocab`."""
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab, tokens):
    """Ids of `tokens`, by a mapping from token to id."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab, ids):
    """Tokens of `ids`, by a mapping from id to token."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text):
    """Splits `text` at white space."""
    return text.split()


class FullTokenizer:
    """Text to WordPieces, with the ids of a vocabulary file.

    >>> FullTokenizer("vocab.txt").tokenize("Unaffable!")  # doctest: +SKIP
    ['una', '##ffa', '##ble', '!']

    Attributes:
      vocab: `OrderedDict` from token to id.
      inv_vocab: `dict` from id to token.
    """

    def __init__(self, vocab_file, do_lower_case=True, strip_accents=None):
        """Reads the vocabulary; for the other arguments see `BasicTokenizer`."""
        self.vocab = load_vocab(vocab_file)
        self.inv_vocab = {token_id: token for token, token_id in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)

    def tokenize(self, text):
        """Returns the list of WordPieces of `text`."""
        return [
            piece for word in self.basic_tokenizer.tokenize(text) for piece in self.wordpiece_tokenizer.tokenize(word)
        ]

    def convert_tokens_to_ids(self, tokens):
        """Returns the list of ids of `tokens`."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids):
        """Returns the list of tokens of `ids`."""
        return convert_by_vocab(self.inv_vocab, ids)


class BasicTokenizer:
    """Text to words: white space, CJK characters and punctuation separate words; accents and case may go."""

    def __init__(self, do_lower_case=True, strip_accents=None):
        """Sets how words are normalised.

        Args:
          do_lower_case: whether to lower-case.
          strip_accents: whether to decompose characters and drop their marks; None: if lower-casing.
        """
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents

    def tokenize(self, text):
        """Returns the list of words of `text`, `str` or UTF-8 `bytes`."""
        cleaned = "".join(map(_clean, convert_to_unicode(text)))
        words = []
        for chunk in whitespace_tokenize(cleaned):
            # Punctuation is looked for last: decomposing may bring it forth.
            spaced = "".join(f" {char} " if _is_punctuation(char) else char for char in self.normalize(chunk))
            words.extend(whitespace_tokenize(spaced))
        return words

    def normalize(self, chunk):
        """Lower-cases text without white space and drops its accents, as far as that is wished."""
        if self.do_lower_case:
            chunk = chunk.lower()
        if self.strip_accents:
            decomposed = unicodedata.normalize("NFD", chunk)
            chunk = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
        return chunk


class WordpieceTokenizer:
    """Words to WordPieces, greedily: each piece is the longest in the vocabulary that fits next."""

    def __init__(self, vocab, unk_token="[UNK]", max_input_chars_per_word=200):
        """Sets the pieces.

        Args:
          vocab: container of pieces; those that go on with a word begin with ``##``.
          unk_token: what becomes of a word that cannot be composed from pieces.
          max_input_chars_per_word: a longer word is unknown.
        """
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text):
        """Returns the list of pieces of `text`, words separated by white space.

        >>> WordpieceTokenizer({"un", "##aff", "##able"}).tokenize("unaffable")
        ['un', '##aff', '##able']
        """
        return [piece for word in whitespace_tokenize(convert_to_unicode(text)) for piece in self._split(word)]

    def _split(self, word):
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            start = end
        return pieces


@functools.lru_cache(1 << 16)
def _clean(char):
    """The character as cleaning leaves it: dropped, a space, set apart by spaces, or itself."""
    if char in "\0\ufffd" or _is_control(char):
        return ""
    if _is_whitespace(char):
        return " "
    if _is_cjk(char):
        return f" {char} "
    return char


def _is_cjk(char):
    """Whether `char` is a Chinese ideograph."""
    if not "\u3400" <= char <= "\U0002fa1f":
        return False
    code_point = ord(char)
    return any(first <= code_point <= last for first, last in _CJK_BLOCKS)


def _is_whitespace(char):
    """Whether `char` is a space of any width, a tab or a line end."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char):
    """Whether `char` is a control or format character, tab and line ends excepted."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


@functools.lru_cache(1 << 16)
def _is_punctuation(char):
    """Whether `char` is punctuation; all of ASCII that is neither letter, digit nor space counts as such."""
    if "!" <= char <= "~":
        return not char.isalnum()
    return unicodedata.category(char).startswith("P")
