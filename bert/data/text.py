"""Text files larger than memory, a block of lines at a time.

A file holds a sentence a line and a blank line between documents, or running text that is to be cut into
sentences. Lines end at newlines only: the other characters that Python takes for line ends may stand inside a
sentence.
"""

import codecs
import importlib.metadata

from bert import files
from bert.errors import InputError

BLOCK_BYTES = 1 << 20

# Lines up to this long may be pieces of a paragraph that was wrapped by hand.
_WRAPPED_WIDTH = 100
_PART_CHARS = 2000
_SENTENCE_ENDS = tuple(".!?:;…。！？：；।॥؟۔։።\"'”’»」』)")


def read_blocks(path, encoding="utf-8", segment_sentences=False, language="en", block_bytes=BLOCK_BYTES):
    r"""Reads a text file in blocks that are cut at line ends.

    Args:
      path: a local or remote file.
      encoding: name of a text encoding that Python knows, such as ``gb18030`` or ``iso8859-1``.
      segment_sentences: whether to cut lines and paragraphs into sentences, a line each; blank lines stay.
      language: code of the language whose abbreviations sentence segmentation should know.
      block_bytes: about how much is read at a time; a longer line comes whole.

    Yields:
      `str`, whole lines of decoded text without byte order mark; only the last may lack its "\n".

    Raises:
      InputError: the encoding is unknown, the file cannot be read, or a line does not decode.
    """
    blocks = _whole_lines(_decoded(path, encoding, block_bytes))
    return _sentences(blocks, language) if segment_sentences else blocks


def read_lines(path, encoding="utf-8"):
    """Yields pairs of number and line, without line end."""
    number = 0
    for block in read_blocks(path, encoding):
        for line in block.removesuffix("\n").split("\n"):
            number += 1
            yield number, line.removesuffix("\r")


def segmentation_version():
    """Name and version of the library that finds sentences; versions cut differently."""
    return f"sentencex {importlib.metadata.version('sentencex')}"


def segment(text, language="en"):
    """Cuts a paragraph into a list of sentences; any white space between words becomes one space."""
    import sentencex

    # Single spaces only: the library has no mind for other white space (some of it makes version 1.0 panic).
    rest = " ".join(text.split())
    sentences = []
    # Its time grows with the square of the text's length where ideographs are many, hence a part at a time; what
    # a part has for a last sentence may go on in the next.
    size = _PART_CHARS
    while rest:
        found = [sentence.strip() for sentence in sentencex.segment(language, rest[:size])]
        found = [sentence for sentence in found if sentence]
        if size >= len(rest):
            return sentences + found
        if len(found) > 1:
            rest = rest[rest[:size].rindex(found.pop()) :]
            sentences.extend(found)
            size = _PART_CHARS
        else:
            size *= 2
    return sentences


def _decoded(path, encoding, block_bytes):
    """Yields the decoded text of a file, cut anywhere."""
    try:
        # Codecs that turn text into text or bytes into bytes have no such decoder or fail on it.
        decoder = codecs.getincrementaldecoder(encoding)()
        decoder.decode(b"", True)
        decoder.reset()
        is_text = codecs.lookup(encoding)._is_text_encoding
    except (LookupError, AttributeError, TypeError, ValueError):
        is_text = False
    if not is_text:
        raise InputError(
            f"--input_encoding={encoding}: Python knows no text encoding of this name. "
            "Examples: utf-8, utf-16, gb18030, shift_jis, iso8859-1, cp1251."
        )
    line = 1
    first = True
    try:
        with files.open_file(path) as f:
            while True:
                raw = f.read(block_bytes)
                text = decoder.decode(raw, final=not raw)
                if first and text:
                    text, first = text.removeprefix("\ufeff"), False
                line += text.count("\n")
                yield text
                if not raw:
                    return
    except UnicodeError as e:
        reason = str(e)
        if isinstance(e, UnicodeDecodeError):
            line += e.object[: e.start].decode(encoding, "replace").count("\n")
            reason = f"bytes {e.object[e.start : e.end].hex(' ')}: {e.reason}"
        raise InputError(
            f"{path}, line {line}: not {encoding} ({reason}). "
            "Give the file's encoding with --input_encoding, or mend the line."
        ) from e
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror or e}.") from e


def _whole_lines(texts):
    """Joins texts cut anywhere to texts cut at line ends."""
    unfinished = []
    for text in texts:
        end = text.rfind("\n") + 1
        if end:
            yield "".join(unfinished) + text[:end]
            unfinished.clear()
        if text[end:]:
            unfinished.append(text[end:])
    if unfinished:
        yield "".join(unfinished)


def _sentences(blocks, language):
    """Rewrites blocks with a sentence a line."""
    rest = ""
    for block in blocks:
        text = rest + block
        # A paragraph that the block cuts waits for its other part, unless nothing but it is there.
        end = max(text.rfind("\n\n"), text.rfind("\n\r\n")) + 1
        yield _segment_lines(text[:end] if end else text, language)
        rest = text[end:] if end else ""
    if rest:
        yield _segment_lines(rest, language)


def _segment_lines(text, language):
    result, paragraph = [], []
    for line in [*text.removesuffix("\n").split("\n"), ""]:
        if line.strip():
            paragraph.append(line)
            continue
        for part in _unwrap(paragraph):
            result.extend(segment(part, language))
        paragraph = []
        result.append("")
    # The blank line that was put at the end above closes a paragraph but is none of the text's.
    return "\n".join(result)


def _unwrap(lines):
    """Joins the lines of a paragraph if they look wrapped at a fixed width, rather than ended by the writer."""
    ended = sum(line.rstrip().endswith(_SENTENCE_ENDS) for line in lines[:-1])
    if len(lines) > 1 and max(map(len, lines)) <= _WRAPPED_WIDTH and 2 * ended < len(lines) - 1:
        return [" ".join(lines)]
    return lines
