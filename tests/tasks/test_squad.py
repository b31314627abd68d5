"""Windows, answers and scores of SQuAD: those of the original and of the official evaluation."""

import hashlib
import json
import pathlib

import numpy as np
import pytest

from bert import tokenization
from bert.data import records
from bert.errors import InputError
from bert.tasks import squad, squad_metrics

# What the official scripts say of `predictions`.
V1 = {"exact_match": 33.445378151260506, "f1": 47.420048771780216}
V2 = {
    "exact": 41.71997157071784,
    "f1": 48.39216351672866,
    "total": 1407,
    "HasAns_exact": 33.90070921985816,
    "HasAns_f1": 47.21670080572657,
    "HasAns_total": 705,
    "NoAns_exact": 49.572649572649574,
    "NoAns_f1": 49.572649572649574,
    "NoAns_total": 702,
    "best_exact": 49.96446339729922,
    "best_exact_thresh": 0.0,
    "best_f1": 49.96446339729922,
    "best_f1_thresh": 0.0,
}
XQUAD, DEV = "xquad.en.json", "dev-v2.0_first5articles.json"


# Of the records that the original's run_squad.py makes: all features of all windows.
@pytest.mark.parametrize(
    "name, version_2, training, length, stride, count, expected",
    [
        (XQUAD, False, True, 128, 64, 2774, "b01e150526779b26e040f403b930fe7b40c4cd11a40eba63513b060bb246121c"),
        (DEV, True, False, 160, 64, 1991, "c2377a3c2cb91911df85a5d9fb32eb4a7bb86b7bc7d08b9056373a12a3f6ce47"),
        (DEV, True, True, 384, 128, 1414, "3826a07ee137043f020321f1944c14d93dda8bb0e39f33566625e4e39fe0d5ee"),
    ],
)
def test_windows_are_those_of_the_original(
    shared_data, tmp_path, name, version_2, training, length, stride, count, expected
):
    vocab = str(shared_data / "vocab" / "uncased" / "vocab.txt")
    encoder = squad.Encoder(vocab, True, length, stride, 64)
    source = str(shared_data / "squad" / name)
    assert encoder.make_records([source], str(tmp_path / "x"), training, version_2)["count"] == count
    content = hashlib.sha256()
    for record in records.read(str(tmp_path / "x")):
        features = records.parse(record)
        for key in sorted(features):
            content.update(np.asarray(features[key], "<i8").tobytes())
    assert content.hexdigest() == expected


def predictions(questions):
    """An answer to each question: right, nearly right, too long, empty, wrong."""
    chosen = {}
    for i, question in enumerate(questions):
        answer = (question.answers or [""])[0]
        words = question.paragraph.words
        kinds = (answer, f"the {answer.upper()}.", " ".join(words[i % 7 : i % 7 + 4]), "", f"{answer} of", "— the a")
        chosen[question.qas_id] = kinds[i % 6]
    return chosen


def test_scores_are_those_of_the_official_evaluation(shared_data):
    questions = squad.read(str(shared_data / "squad" / XQUAD))
    assert squad_metrics.evaluate(questions, predictions(questions)) == pytest.approx(V1)
    questions = squad.read(str(shared_data / "squad" / DEV), version_2=True)
    odds = {question.qas_id: (i * 37) % 101 / 10 for i, question in enumerate(questions)}
    assert squad_metrics.evaluate_version_2(questions, predictions(questions), odds) == pytest.approx(V2)


def test_what_counts_as_the_same_answer():
    assert squad_metrics.exact_match("The U.S.  Army", "us army") == 1
    assert squad_metrics.f1("one two three", "three four") == pytest.approx(2 * 0.5 * (1 / 3) / (0.5 + 1 / 3))
    assert squad_metrics.f1("", "the", version_2=True) == 1
    assert squad_metrics.f1("", "word", version_2=True) == 0


@pytest.mark.parametrize(
    "predicted, original, expected",
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1895", "(1895-1943).", "1895"),
        ("cafe", "Café!", "Café"),
        ("other", "Original text", "Original text"),
        ("x", "ﬁx", "x"),
    ],
)
def test_answers_are_cut_from_the_text_itself(predicted, original, expected):
    assert squad.align(predicted, original, tokenization.BasicTokenizer(True)) == expected


@pytest.fixture
def file(tmp_path):
    """Function that writes a file of questions about one paragraph, and returns its path."""

    def write(*entries, context="the was his. of and to"):
        path = tmp_path / "x.json"
        qas = [{"id": str(i), "question": "in he?", **entry} for i, entry in enumerate(entries)]
        path.write_text(json.dumps({"data": [{"title": "T", "paragraphs": [{"context": context, "qas": qas}]}]}))
        return str(path)

    return write


def answer(text, start):
    return {"answers": [{"text": text, "answer_start": start}]}


def test_an_answer_inside_a_word_and_a_window_without_it(file, tiny_model):
    encoder = squad.Encoder(str(tiny_model / "vocab.txt"), True, 10, 2, 5)
    (question,) = squad.read(file(answer("his", 8)))
    windows = encoder.windows(question, 0, training=True)
    assert [window.tokens[window.text_begins : -1] for window in windows] == [
        ["the", "was", "his", "."],
        ["his", ".", "of", "and"],
        ["of", "and", "to"],
    ]
    assert [(window.start, window.end) for window in windows] == [(7, 7), (5, 5), (0, 0)]
    assert [window.is_best for window in windows] == [
        [True] * 3 + [False],
        [False, True, True, False],
        [False, True, True],
    ]
    assert encoder.windows(squad.read(file(answer("his,", 8)))[0], 0, training=True) == []
    assert encoder.windows(squad.read(file(answer("to", 800)))[0], 0, training=True) == []


def test_the_best_spans_are_chosen(file, tiny_model):
    questions = squad.read(file(answer("of", 13), {"is_impossible": True}), version_2=True)
    encoder = squad.Encoder(str(tiny_model / "vocab.txt"), True, 20, 8, 5)
    windows = list(encoder.all_windows(questions, training=False))
    starts, ends = np.zeros((2, 20), np.float32), np.zeros((2, 20), np.float32)
    begin = windows[0].text_begins
    starts[:, begin + 4], ends[:, begin + 5] = 3.0, 2.0  # "of and"
    starts[1, 0] = 9.0
    chosen, n_best, odds = squad.choose_answers(questions, windows, starts, ends, True, version_2=True)
    assert chosen == {"0": "of and", "1": ""}
    assert n_best["0"][0]["text"] == "of and" and odds == {"0": -5.0, "1": 4.0}
    assert sum(entry["probability"] for entry in n_best["0"]) == pytest.approx(1)
    assert len({entry["text"] for entry in n_best["0"]}) == len(n_best["0"])
    chosen, _, _ = squad.choose_answers(
        questions, windows, starts, ends, True, version_2=True, null_score_diff_threshold=4.5
    )
    assert chosen["1"] == "of and"


def test_a_paragraph_without_text_gets_an_answer_too(file, tiny_model):
    questions = squad.read(file({"answers": []}, context=" "))
    encoder = squad.Encoder(str(tiny_model / "vocab.txt"), True, 20, 8, 5)
    windows = encoder.windows(questions[0], 0, training=False)
    zeros = np.zeros((1, 20), np.float32)
    for version_2 in (False, True):
        chosen, _, _ = squad.choose_answers(questions, windows, zeros, zeros, True, version_2=version_2)
        assert chosen == {"0": "" if version_2 else "empty"}


def test_files_of_another_form_are_refused(file, tmp_path, tiny_model):
    for entry, message in (
        ({"answers": [{"answer_start": 3}]}, "question '0': there is no 'text' in it"),
        (answer(4, 3), "question '0': 'text' cannot be 4"),
        (answer("his", "3"), "question '0': 'answer_start' cannot be '3'"),
        (answer("his", None), "question '0': 'answer_start' cannot be None"),
        ({"answers": None}, "question '0': 'answers' cannot be None"),
        ({"answers": ["his"]}, "question '0': an object is expected, not 'his'"),
        ({"question": 7}, "question '0': 'question' cannot be 7"),
        ({"id": [1]}, r"a question of article 1: 'id' cannot be \[1\]"),
        ({"is_impossible": "false"}, "question '0': 'is_impossible' cannot be 'false'"),
    ):
        with pytest.raises(InputError, match=rf"x.json: not in SQuAD's form at {message}"):
            squad.read(file(entry), version_2=True)
    with pytest.raises(InputError, match=r"x.json: not in SQuAD's form at article 1: 'context' cannot be None"):
        squad.read(file(answer("his", 3), context=None))
    with pytest.raises(InputError, match=r"x.json: there are two questions with the id 'a'"):
        squad.read(file({"id": "a", "answers": []}, {"id": "a", "answers": []}))
    with pytest.raises(InputError, match=r"x.json: question '0' has no answer.*--version_2_with_negative"):
        squad.read(file({"answers": []}), training=True)
    for content, message in (
        ("{}", "the top: there is no 'data' in it"),
        ('{"data": [1]}', "article 1: an object is expected, not 1"),
        ("[" * 99_999, "nested too deeply"),
    ):
        (tmp_path / "y.json").write_text(content)
        with pytest.raises(InputError, match=f"y.json: .*{message}"):
            squad.read(str(tmp_path / "y.json"))
    (tmp_path / "y.json").write_bytes(b"\xef\xbb\xbf" + pathlib.Path(file(answer("his", 8))).read_bytes())
    assert squad.read(str(tmp_path / "y.json"))[0].answers == ["his"]
    with pytest.raises(InputError, match=r"--max_seq_length=8 leaves no room"):
        squad.Encoder(str(tiny_model / "vocab.txt"), True, 8, 8, 5)
