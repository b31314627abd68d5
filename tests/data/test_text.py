"""Reading text: nothing is lost or changed, whatever the encoding and the size of the blocks."""

import codecs
import os

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bert.data import text
from bert.errors import InputError


def write(folder, content):
    path = os.path.join(folder, "text.txt")
    with open(path, "wb") as f:
        f.write(content)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gb18030", "shift_jis", "utf-7"])
def test_blocks_are_whole_lines_of_all_the_text(folder, encoding):
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.text(st.sampled_from("ab \r日本ア.\t"), max_size=30), max_size=20), st.integers(1, 50))
    def check(lines, block_bytes):
        content = "\n".join(lines)
        path = write(folder, content.encode(encoding))
        blocks = list(text.read_blocks(path, encoding, block_bytes=block_bytes))
        assert "".join(blocks) == content
        assert all(block.endswith("\n") for block in blocks[:-1])
        assert "" not in blocks

    check()


@given(st.text(max_size=200), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_only_newlines_end_lines(folder, content, block_bytes):
    content = content.lstrip("\ufeff").encode("utf-8", "ignore").decode()
    blocks = list(text.read_blocks(write(folder, content.encode()), block_bytes=block_bytes))
    assert "".join(blocks) == content
    assert all(block.endswith("\n") for block in blocks[:-1])


@given(st.binary(max_size=100))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_text_or_an_error_with_the_line(folder, content):
    path = write(folder, content)
    try:
        expected = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        line = content[: e.start].count(b"\n") + 1
        with pytest.raises(InputError, match=rf"text\.txt, line {line}: not utf-8 .*--input_encoding"):
            list(text.read_blocks(path, block_bytes=7))
    else:
        assert "".join(text.read_blocks(path, block_bytes=7)) == expected


@given(
    st.text(max_size=60).map(lambda content: content.encode("utf-8", "ignore").decode()),
    st.sampled_from(["utf-8", "utf-16", "utf-16-le", "gb18030", "shift_jis", "euc_kr", "iso8859-1", "cp1251"]),
    st.integers(1, 9),
    st.data(),
)
@settings(max_examples=300, deadline=None)
def test_damaged_text_is_what_python_makes_of_it_or_an_error(folder, content, encoding, block_bytes, data):
    raw = bytearray(content.encode(encoding, "ignore"))
    del raw[data.draw(st.integers(0, len(raw))) :]
    for bit in data.draw(st.lists(st.integers(0, 8 * len(raw) - 1), max_size=2)) if raw else ():
        raw[bit // 8] ^= 1 << bit % 8
    # Without the mark that says which, Python's decoder of whole strings guesses the order of bytes.
    assume(encoding != "utf-16" or raw[:2] in (b"", codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    path = write(folder, bytes(raw))
    try:
        expected = bytes(raw).decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError:
        with pytest.raises(InputError, match=rf"text\.txt, line \d+: not {encoding} "):
            list(text.read_blocks(path, encoding, block_bytes=block_bytes))
    else:
        assert "".join(text.read_blocks(path, encoding, block_bytes=block_bytes)) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030"])
def test_byte_order_mark_is_no_text(folder, encoding):
    path = write(folder, "\ufeffa\n".encode(encoding))
    assert list(text.read_blocks(path, encoding)) == ["a\n"]


def test_a_line_longer_than_a_block_comes_whole(folder):
    path = write(folder, b"a\n" + b"x" * 5000 + b"\nb")
    assert list(text.read_blocks(path, block_bytes=10)) == ["a\n", "x" * 5000 + "\n", "b"]


def test_wrong_encodings(folder):
    path = write(folder, "über\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 1: not utf-8 \(bytes fc: invalid start byte\)"):
        list(text.read_blocks(path))
    assert list(text.read_blocks(path, "latin-1")) == ["über\n"]
    with pytest.raises(InputError, match="line 1: not utf-16"):
        list(text.read_blocks(path, "utf-16"))
    for encoding in ("klingon", "base64", "rot13", ""):
        with pytest.raises(InputError, match=f"--input_encoding={encoding}: Python knows no text encoding"):
            list(text.read_blocks(path, encoding))


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt: cannot be read"):
        list(text.read_blocks(str(tmp_path / "none.txt")))
    with pytest.raises(InputError, match="cannot be read"):
        list(text.read_blocks(str(tmp_path)))


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        (
            "Dr. Smith paid $3.50. He left at noon! Did he?",
            ["Dr. Smith paid $3.50.", "He left at noon!", "Did he?"],
        ),
        ("第一句。第二句！第三句？", ["第一句。", "第二句！", "第三句？"]),
        ("यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        (" no\u2028end\u00a0 here ", ["no end here"]),
        (" \t ", []),
    ],
)
def test_segment(paragraph, sentences):
    assert text.segment(paragraph) == sentences


@pytest.mark.parametrize("sentence", ["He paid Dr. Smith.", "他说师父莫怕。", "A b c " * 1000 + "end."])
def test_segmenting_long_paragraphs_takes_no_longer_a_sentence(sentence):
    space = " " if sentence.isascii() else ""
    assert text.segment(space.join([sentence] * 300)) == [sentence] * 300


@given(st.text(st.sampled_from("ab AB.!?\"'()\u2028\x0b\x85\u00a0\u3000。！”1[]é\u200bΣ\U0001f600"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_segmenting_keeps_all_but_white_space(content):
    assert "".join("".join(text.segment(content)).split()) == "".join(content.split())


def test_segmented_text_keeps_its_documents(folder):
    content = (
        "One. Two.\nThree.\r\n\r\n"  # a paragraph a line
        "This is wrapped by\nhand at a narrow width. It has\ntwo sentences.\n"
        "\n\n"
        "Last"
    )
    expected = "One.\nTwo.\nThree.\n\nThis is wrapped by hand at a narrow width.\nIt has two sentences.\n\n\nLast\n"
    path = write(folder, content.encode())
    for block_bytes in (75, 90, 1000):
        blocks = text.read_blocks(path, segment_sentences=True, block_bytes=block_bytes)
        assert "".join(blocks) == expected
