"""Tables as they are found, and what is said of those that cannot be read."""

import json

import pytest

from bert.errors import InputError
from bert.tasks import tables

COLUMNS = {"text_a": ("sentence",), "label": ("label",)}
POSITIONS = {"text_a": 3, "label": 1}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize(
    "content",
    [
        'sentence\tlabel\nA b.\t1\nC "d.\t0\n',
        '\ufeffsentence\tlabel\nA b.\t1\nC "d.\t0',
        'sentence\tlabel\r\nA b.\t1\r\n\r\n\nC "d.\t0\r\n\r\n',
        'Label\tindex\tSENTENCE\n1\t5\tA b.\n0\t6\tC "d.\n',
        'g\t1\t\tA b.\ng\t0\t*\tC "d.\n',
    ],
    ids=["plain", "byte order mark", "carriage returns and blank lines", "other order", "no header"],
)
def test_tsv_in_many_forms_is_the_same_table(tmp_path, content):
    path = write(tmp_path / "x.tsv", content)
    rows = [row for _, row in tables.read(path, COLUMNS, POSITIONS)]
    assert rows == [{"text_a": "A b.", "label": "1"}, {"text_a": 'C "d.', "label": "0"}]


def test_csv_cells_may_have_commas_quotes_and_line_ends(tmp_path):
    path = write(tmp_path / "x.csv", 'label,sentence\n1,"a, ""b""\nc"\n\n0,d\n')
    assert list(tables.read(path, COLUMNS)) == [
        (2, {"text_a": 'a, "b"\nc', "label": "1"}),
        (5, {"text_a": "d", "label": "0"}),
    ]


def test_json_lines(tmp_path):
    rows = [{"sentence": "a\u2028b", "label": 1, "more": []}, {"label": ["x"], "sentence": "c"}]
    path = write(tmp_path / "x.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n")
    assert [row for _, row in tables.read(path, COLUMNS)] == [
        {"text_a": "a\u2028b", "label": 1},
        {"text_a": "c", "label": ["x"]},
    ]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.tsv", "sentence\tlabel\na\t1\nb\n", r"x.tsv:3: 1 columns, but the lines before have 2"),
        ("x.tsv", "sentence,label\na,1\n", r"x.tsv:1: no column named sentence; .* its name should end in .csv"),
        (
            "x.tsv",
            "text\tlabel\na\t1\n",
            r"x.tsv:1: no column named sentence; the first line has 2 columns: text, label",
        ),
        ("x.csv", 'sentence,label\n"a,1\n', r"x.csv:2: not well-formed CSV"),
        ("x.jsonl", '{"sentence": "a", "label": 1}\n{"sentence": "a"', r"x.jsonl:2, column 17: not valid JSON"),
        (
            "x.jsonl",
            '{"sentence": "a", "label": 1}\n{"sentence": "a"}',
            r"x.jsonl:2: no 'label'; the object has sentence",
        ),
        ("x.jsonl", "[1]", r"x.jsonl:1: an object a line is expected, not list"),
        ("x.json", '[{"sentence": "a", "label": 1},\n', r"x.json:1, column 32: .*an object a line is expected"),
        (
            "x.jsonl",
            '{"sentence": ["a", ["b"]], "label": 1}',
            r"x.jsonl:1, column 'sentence': text or a number is expe",
        ),
        (
            "x.jsonl",
            '{"sentence": {"a": 1}, "label": 1}',
            r"x.jsonl:1, column 'sentence': text or a number is expected",
        ),
        ("x.jsonl", '{"sentence": "\\ud800", "label": 1}', r"x.jsonl:1: there is half a character in it"),
        ("x.jsonl", '{"sentence": "\\ud83d\\ude00"}', r"no column named label"),
        ("x.jsonl", "[" * 99_999, r"x.jsonl:1: the JSON is nested too deeply"),
        ("x.tsv", "sentence\tSentence\tlabel\na\tb\t1\n", r"x.tsv:1: several columns named sentence"),
        ("x.tsv", b"sentence\tlabel\n\xff\t1\n", r"x.tsv, line 2: not utf-8"),
    ],
)
def test_errors_name_the_line(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        list(tables.read(path, COLUMNS))


def test_an_empty_file_has_no_rows(tmp_path):
    assert list(tables.read(write(tmp_path / "x.tsv", ""), COLUMNS)) == []
