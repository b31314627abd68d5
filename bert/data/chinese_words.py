"""Words of Chinese text, whose characters whole-word masking takes together, as in Chinese-BERT-wwm (arXiv:1906.08101).

A library says which ideographs that follow one another are a word. Nothing else changes: each ideograph is a token,
and what is between ideographs is words as ever.
"""

import importlib
import importlib.metadata
import re

import numpy as np

from bert import tokenization
from bert.data import wordpiece
from bert.errors import InputError

SEGMENTERS = ("rjieba",)

_RUN = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in tokenization._CJK_BLOCKS) + "]+")


def version(segmenter):
    """Name and version of a library that finds words; versions cut differently.

    Raises:
      InputError: it is not installed.
    """
    try:
        importlib.import_module(segmenter)
    except ImportError as e:
        raise InputError(
            f"--whole_word_segmenter={segmenter}: the library is missing ({e}): "
            "pip install -r requirements-chinese.txt."
        ) from e
    return f"{segmenter} {importlib.metadata.version(segmenter)}"


class MarkingTokenizer(wordpiece.BlockTokenizer):
    """A `BlockTokenizer` whose ids are twice those of the vocabulary, and 1 more where a token continues a word."""

    def __init__(self, vocab, do_lower_case=True, strip_accents=None, segmenter=None):
        """Prepares the tables; arguments as of `BlockTokenizer`, and the name of the library."""
        super().__init__(vocab, do_lower_case, strip_accents)
        self._dtype = np.uint32
        self.clear()
        self._cut_words = importlib.import_module(segmenter).cut
        self._continues = np.array(wordpiece.continues(vocab), np.uint32)

    def encode(self, text):
        """As of `BlockTokenizer`; ids are uint32."""
        ids, lengths, breaks = super().encode(text)
        # The tokens of ideographs come odd, in the order of the text.
        is_ideograph, ids = (ids & 1).astype(bool), ids >> 1
        marks = self._continues[ids]
        marks[is_ideograph] = self._ideograph_marks(text)
        return 2 * ids + marks, lengths, breaks

    def _split(self, word):
        is_ideograph = len(word) == 1 and tokenization._is_cjk(word)
        return [2 * number + is_ideograph for number in super()._split(word)]

    def _ideograph_marks(self, text):
        """For each ideograph of a text whether it continues a word: uint32 [ideographs]."""
        marks = []
        for run in _RUN.finditer(text):
            for word in self._cut_words(run.group()):
                marks += [0] + [1] * (len(word) - 1)
        return np.array(marks, np.uint32)
