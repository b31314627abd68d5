"""Records for fine-tuning: those of the original, fast, as a stream, and made only once."""

import hashlib
import random

import numpy as np
import pytest

from bert import tokenization
from bert.data import records
from bert.errors import InputError
from bert.tasks import features, glue, results, tabular, task

NAMES = ("input_ids", "input_mask", "segment_ids", "label_ids", "is_real_example")


def read(path):
    return [records.parse(record) for record in records.read(str(path))]


def digest(rows):
    content = hashlib.sha256()
    for row in rows:
        for name in NAMES:
            content.update(np.asarray(row[name], "<i8").tobytes())
    return content.hexdigest()


# Of the records that the original's run_classifier.py makes, with the uncased vocabulary: all 3,668 and 408.
@pytest.mark.parametrize(
    "split, length, expected",
    [
        ("train", 128, "56e204ce69a340a32e2e95e7600ee62c75ce0e34f57949ea9bf88c10d0f49ecd"),
        ("dev", 128, "0e5c675353d0a5e898689d4ac616333a39e0693c6aac79aa62e21f0f21939510"),
        ("test", 128, "2ef5e350845ccd68bf6eb89188833c7b3b3290f960c853b25059d6347829fdb5"),
        ("dev", 40, "a1a8eea9769bb866d23200cab9b2989a3b92c7f9d8de449a6613ad6243972099"),
    ],
)
def test_mrpc_is_that_of_the_original(shared_data, tmp_path, split, length, expected):
    mrpc = glue.Mrpc()
    source = mrpc.find(str(shared_data / "glue" / "MRPC"), split)
    vocab = str(shared_data / "vocab" / "uncased" / "vocab.txt")
    made = features.write(mrpc, source, split, str(tmp_path / "x.tf_record"), vocab, True, length)
    rows = read(made.path)
    assert len(rows) == made.count
    assert digest(rows) == expected


def test_truncation_is_that_of_taking_tokens_off_one_by_one():
    def one_by_one(a, b, room):
        while a + b > room:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        return a, b

    lengths = [(a, b) for a in range(12) for b in range(12)] + [(100_000, 3), (7, 99_999)]
    a, b = np.array(lengths).T
    for length in range(4, 16):
        kept = np.transpose(features.truncate_pairs(a, b, length)).tolist()
        expected = [one_by_one(*pair, length - 3) if pair[1] else (min(pair[0], length - 2), 0) for pair in lengths]
        assert kept == [list(pair) for pair in expected]


@pytest.fixture
def table(tmp_path, tiny_model):
    """Function that makes records of rows of a TSV file."""

    def make(lines, kind=task.SINGLE, length=16, split="train"):
        path = tmp_path / f"{split}.tsv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        own = tabular.Tabular(label_kind=kind)
        if split == "train":
            own.find_labels(str(path))
        output = str(tmp_path / f"{split}.tf_record")
        return features.write(own, str(path), split, output, str(tiny_model / "vocab.txt"), True, length)

    return make


def test_tokens_are_those_of_the_reference_tokenizer(table, tiny_model):
    words = ["the", "of", "He,", "zzz", "Was.", "…", "中", "it's", "\u00e9", "which"]
    shuffled = random.Random(1)
    texts = [" ".join(shuffled.choices(words, k=shuffled.randrange(9))) for _ in range(60)]
    made = table(["text_a\ttext_b\tlabel", *(f"{a}\t{b}\t{i % 3}" for i, (a, b) in enumerate(zip(texts, texts[1:])))])
    tokenizer = tokenization.FullTokenizer(str(tiny_model / "vocab.txt"))
    for i, row in enumerate(read(made.path)):
        a, b = (tokenizer.tokenize(text) for text in texts[i : i + 2])
        while b and len(a) + len(b) > 13:
            (a if len(a) > len(b) else b).pop()
        tokens = ["[CLS]", *a[:14], "[SEP]", *b, *["[SEP]"] * bool(b)]
        ids = tokenizer.convert_tokens_to_ids(tokens)
        assert row["input_ids"].tolist() == ids + [0] * (16 - len(ids))
        assert row["input_mask"].sum() == len(ids)
        assert row["segment_ids"].sum() == (len(b) + 1 if b else 0)
        assert row["label_ids"].tolist() == [i % 3]
    assert made.label_counts == [20, 20, 19]


def test_texts_of_any_length_and_of_none(table, caplog):
    caplog.set_level("INFO")
    made = table(["text\tlabel", "the " * 25_000 + "\t0", "\t1", "of\t1"])
    rows = read(made.path)
    assert [int(row["input_mask"].sum()) for row in rows] == [16, 2, 3]
    assert (made.count, made.truncated, made.without_text) == (3, 1, 1)
    own = tabular.Tabular()
    own.labels = ("0", "1")
    features.log_description(made, own, "train", 16)
    assert "3 examples, 7.0 tokens on average, 1 (33.3 %) cut to 16 tokens" in caplog.text
    assert "1 examples have no text" in caplog.text and "label 0: 1 (33.3 %), label 1: 2 (66.7 %)" in caplog.text


def test_records_are_written_while_examples_are_read(tmp_path, tiny_model):
    class Stream(tabular.Tabular):
        def examples(self, source, split):
            for i in range(3000):
                if i == 2500:
                    self.written = sum(path.stat().st_size for path in tmp_path.iterdir())
                yield task.Example(str(i), "the of and", label=float(i))

    own = Stream(label_kind=task.REGRESSION)
    vocab_file, output = str(tiny_model / "vocab.txt"), tmp_path / "train.tf_record"
    features.write(own, vocab_file, "train", str(output), vocab_file, True, 16)
    assert own.written > output.stat().st_size * 0.6


def test_labels_of_each_kind(table):
    rows = read(table(["text\tlabel", "the\t1.25", "of\t-3"], task.REGRESSION).path)
    assert [row["label_ids"].tolist() for row in rows] == [[1.25], [-3.0]]
    made = table(["text\tlabel", "the\ta,c", "of\tb", "of\t"], task.MULTI)
    assert [row["label_ids"].tolist() for row in read(made.path)] == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert made.label_counts == [1, 1, 1]


@pytest.mark.parametrize(
    "kind, rows, message",
    [
        (task.SINGLE, [], r"train.tsv: there are no examples in it"),
        (task.SINGLE, ["the\t1", "of\t1"], r"train.tsv: at least two different labels are needed, .* only '1'"),
        (task.SINGLE, ["the\t1", "of\t"], r"train.tsv:3, column 'label': no label"),
        (task.MULTI, ["the\t", "of\t ,"], r"train.tsv: none of its 2 examples has a label"),
        (task.REGRESSION, ["the\t1,5"], r"train.tsv:2, column 'label': '1,5' is not a number"),
        (task.REGRESSION, ["the\t1_5"], r"train.tsv:2, column 'label': '1_5' is not a number"),
        (task.REGRESSION, ["the\t-1e39"], r"train.tsv:2, column 'label': -1e39 is more than 32 bits can hold"),
    ],
)
def test_labels_that_cannot_be_used(table, kind, rows, message):
    with pytest.raises(InputError, match=message):
        table(["text\tlabel", *rows], kind)


def test_labels_that_look_like_numbers(table, tmp_path):
    for names, ordered in ((("10", "-2", "9"), ("-2", "9", "10")), (("\u00b2", "--1", "3"), ("--1", "3", "\u00b2"))):
        made = table(["text\tlabel", *(f"the\t{name}" for name in names)])
        own = tabular.Tabular()
        own.find_labels(str(tmp_path / "train.tsv"))
        assert own.labels == ordered and made.label_counts == [1, 1, 1]


def test_a_list_of_labels_where_one_is_meant(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "the", "label": ["a", "b"]}\n')
    with pytest.raises(InputError, match=r"x.jsonl:1, column 'label': one label .* give --label_kind=multi"):
        tabular.Tabular().find_labels(str(tmp_path / "x.jsonl"))


def test_every_prediction_is_one_line(tmp_path):
    own = tabular.Tabular()
    own.labels = ("a\tb", "c\r\nd")
    outputs = np.array([[0.75, 0.25], [0.25, 0.75]])
    results.write_labels(str(tmp_path), own)
    results.write_predictions(str(tmp_path), own, "", ["x\ty", "z\n"], outputs)
    assert (tmp_path / "labels.txt").read_text() == "a b\nc d\n"
    lines = (tmp_path / "test_predictions.tsv").read_text().splitlines()
    assert lines[1:] == ["x y\ta b\t0.750000", "z \tc d\t0.750000"]


def test_records_are_made_again_only_if_something_changed(table, caplog):
    caplog.set_level("INFO")
    lines = ["text\tlabel", "the\t0", "of\t1"]
    first = table(lines)
    assert table(lines) == first and "the 2 records" in caplog.text
    other = table([*lines[:2], "of\t0", "and\t1"])
    assert other.count == 3 and other.fingerprint != first.fingerprint
    assert table(lines, length=8).fingerprint != first.fingerprint
    assert len(read(first.path)[0]["input_ids"]) == 8


def test_a_file_without_rows_is_refused(table):
    with pytest.raises(InputError, match=r"dev.tsv: there are no examples in it"):
        table(["text\tlabel"], task.REGRESSION, split="dev")


def test_lower_casing_follows_the_vocabulary():
    assert features.check_case(["[CLS]", "the"], "v", None) is True
    assert features.check_case(["[CLS]", "The"], "v", None) is False
    assert features.check_case(["[CLS]", "the"], "v", True) is True
    with pytest.raises(InputError, match=r"--do_lower_case=True does not fit v, which has 1 of 1 tokens with capitals"):
        features.check_case(["The"], "v", True)
    with pytest.raises(InputError, match=r"Give --do_lower_case=True"):
        features.check_case(["the"], "v", False)
