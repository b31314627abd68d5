"""Tests of `bert.tasks.tagging`."""

import numpy as np
import pytest

from bert.data import records
from bert.errors import InputError
from bert.tasks import tagging

CONLL = """\ufeff-DOCSTART- -X- -X- O\r
\r
Anna NNP I-NP B-PER\r
sleeps VBZ I-VP O\r
\r
\r
in IN I-PP O\r
New NNP I-NP B-LOC\r
York NNP I-NP I-LOC"""
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "anna", "sleep", "##s", "in", "new", "york", "a", "##b"]


@pytest.fixture
def conll(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(CONLL, encoding="utf-8", newline="")
    return str(path)


@pytest.fixture
def vocab_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n")
    return str(path)


def test_sentences_and_tags(conll):
    sentences = list(tagging.read(conll))
    assert [sentence.words for sentence in sentences] == [("Anna", "sleeps"), ("in", "New", "York")]
    assert sentences[1].tags == ("O", "B-LOC", "I-LOC")
    assert tagging.find_tags(conll, sentences) == ("O", "B-LOC", "B-PER", "I-LOC")
    assert tagging.are_entities(("O", "B-LOC")) and not tagging.are_entities(("NN", "O"))


def test_rows_stay_rows(conll, tmp_path):
    rows = tagging.rows_with_tags(conll, [["B", "C"], ["D", "E", "F"]])
    assert "".join(rows) == "-DOCSTART-\tO\n\nAnna\tB\nsleeps\tC\n\n\nin\tD\nNew\tE\nYork\tF\n"
    with pytest.raises(InputError, match=r"train\.txt:9: the file has grown since it was read"):
        list(tagging.rows_with_tags(conll, [["B", "C", "D", "E"]]))
    (tmp_path / "spaces.txt").write_text("New\u00a0York  B\n a\u2028b O \n", encoding="utf-8")
    (sentence,) = tagging.read(str(tmp_path / "spaces.txt"))
    assert sentence == tagging.Sentence(("New\u00a0York", "a\u2028b"), ("B", "O"))


def test_what_cannot_be_used(tmp_path, conll):
    path = tmp_path / "words.txt"
    path.write_text("Anna\tO\nsleeps\n")
    with pytest.raises(InputError, match=r"words.txt:2: the word 'sleeps' has no tag"):
        list(tagging.read(str(path)))
    assert [sentence.tags for sentence in tagging.read(str(path), tagged=False)] == [("O", "")]
    path.write_text("\n\n")
    with pytest.raises(InputError, match="there are no sentences"):
        list(tagging.read(str(path)))
    with pytest.raises(InputError, match=r"train.txt:3: the tag 'B-PER' of the word 'Anna' is unknown; .* O, B-LOC"):
        list(tagging.read(conll, known=("O", "B-LOC")))
    for words, message in (("w O\n" * 3, "there is only 'O'"), ("".join(f"w {i}\n" for i in range(1001)), "is 1001")):
        path.write_text(words)
        with pytest.raises(InputError, match=message):
            tagging.find_tags(str(path), tagging.read(str(path)))
    with pytest.raises(InputError, match=r"no test\.txt or"):
        tagging.find(str(tmp_path), "test")


@pytest.mark.parametrize("length", [3, 4, 6, 16])
def test_every_word_is_in_one_window_and_comes_back(conll, vocab_file, length):
    sentences = [*tagging.read(conll), tagging.Sentence(("\u200b", "abbbbbb", "in"), ("O", "B-LOC", ""))]
    tags = tagging.find_tags(conll, sentences[:2])
    encoder = tagging.Encoder(vocab_file, True, length, tags)
    windows = list(encoder.windows(sentences))
    assert all(len(window.pieces) <= length - 2 for window in windows)
    # The right choices at the words' first pieces, and wrong ones elsewhere.
    choices = np.full([len(windows), length], tags.index("I-LOC"))
    for row, window in zip(choices, windows):
        for start, tag in zip(window.starts, window.tags):
            row[1 + start] = tags.index(tag or "O")
    chosen = tagging.choose(sentences, windows, choices, tags)
    assert [tuple(found) for found in chosen] == [*(s.tags for s in sentences[:2]), ("O", "B-LOC", "O")]


def test_records(conll, vocab_file, tmp_path):
    sentences = list(tagging.read(conll))
    tags = tagging.find_tags(conll, sentences)
    encoder = tagging.Encoder(vocab_file, True, 8, tags)
    output = str(tmp_path / "train.tf_record")
    made = encoder.make_records(iter(sentences), conll, output)
    assert {**made, "fingerprint": ""} == {
        "count": 2,
        "sentences": 2,
        "words": 5,
        "tokens": 10,
        "cut": 0,
        "tags": {"B-PER": 1, "O": 2, "B-LOC": 1, "I-LOC": 1},
        "fingerprint": "",
    }
    assert encoder.make_records(None, conll, output) == made  # they are there already
    assert records.count(output) == 2
    cut = tagging.Encoder(vocab_file, True, 4, tags).make_records(sentences, conll, str(tmp_path / "cut.tf_record"))
    assert (cut["count"], cut["cut"]) == (4, 2)
    import tensorflow as tf

    spec = {name: tf.io.FixedLenFeature([8], tf.int64) for name in ("input_ids", "input_mask", "label_ids")}
    first, second = (tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(output))
    assert [VOCAB[i] for i in first["input_ids"]] == ["[CLS]", "anna", "sleep", "##s", "[SEP]", *["[PAD]"] * 3]
    assert list(first["input_mask"]) == [1] * 5 + [0] * 3
    assert list(first["label_ids"]) == [0, 3, 1, 0, 0, 0, 0, 0]  # B-PER, O, none for the second piece
    assert list(second["label_ids"]) == [0, 1, 2, 4, 0, 0, 0, 0]


def test_scores_of_the_conll_script():
    # Entities count as a whole: one of two found, one found that is none.
    expected = [["B-PER", "O", "B-LOC", "I-LOC"]]
    chosen = [["B-PER", "B-PER", "B-LOC", "O"]]
    found = tagging.scores(expected, chosen, entities=True)
    assert found == pytest.approx({"eval_accuracy": 0.5, "precision": 1 / 3, "recall": 1 / 2, "f1": 0.4})
    assert tagging.scores(expected, chosen, entities=False) == {"eval_accuracy": 0.5}
