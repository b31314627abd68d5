"""Questions whose answer is a span of a paragraph: SQuAD 1.1 and, with unanswerable questions, 2.0.

Rajpurkar et al., https://arxiv.org/abs/1606.05250 and https://arxiv.org/abs/1806.03822. A paragraph that is too long is
read in windows that overlap. Windows, targets and the choice of answers are those of the original project.

| feature | values |
|---|---|
| unique_ids | int64 [1], counted from 1,000,000,000 |
| input_ids, input_mask, segment_ids | int64 [max_seq_length] |
| start_positions, end_positions | int64 [1], in training; 0, 0 if the answer is not in the window |
| is_impossible | int64 [1], in training |
"""

import collections
import dataclasses
import functools
import itertools
import json

import numpy as np
from absl import logging

from bert import files, tokenization
from bert.data import record_cache, records
from bert.errors import InputError

TARGETS = ("start_positions", "end_positions")
_FORMAT = 1  # changes when the records of the same input do
_FIRST_ID = 1_000_000_000
_WHITE_SPACE = frozenset(" \t\r\n\u202f")
_BATCH = 500


@dataclasses.dataclass
class Question:
    """A question about a paragraph.

    Attributes:
      qas_id: its id in the file.
      text: the question.
      paragraph: the `Paragraph`.
      answers: list of texts, all that count as right.
      answer_start: where the first of them begins in the paragraph, in characters.
      is_impossible: whether the paragraph has no answer.
    """

    qas_id: str
    text: str
    paragraph: "Paragraph"
    answers: list
    answer_start: int = -1
    is_impossible: bool = False


class Paragraph:
    """A paragraph as words separated by white space."""

    def __init__(self, context):
        self.words = []
        self.word_of_char = []
        after_space = True
        for char in context:
            if char in _WHITE_SPACE:
                after_space = True
            elif after_space:
                self.words.append(char)
                after_space = False
            else:
                self.words[-1] += char
            self.word_of_char.append(len(self.words) - 1)


@dataclasses.dataclass
class Window:
    """A question and as much of its paragraph as fits.

    Attributes:
      question: index of the question.
      tokens: list of tokens, without padding.
      text_begins: position of the paragraph's first token.
      words: for each token of the paragraph's part, the index of its word.
      is_best: for each of them, whether no other window shows more around it.
      start, end: positions of the answer's first and last token; 0, 0 if it is not in the window.
      is_impossible: whether the question has no answer.
    """

    question: int
    tokens: list
    text_begins: int
    words: list
    is_best: list
    start: int = 0
    end: int = 0
    is_impossible: bool = False


def read(path, version_2=False, training=False):
    """Reads a file in SQuAD's form.

    Args:
      path: JSON file.
      version_2: whether questions may have no answer.
      training: whether every question must have a usable answer; if not, ids must differ, since answers go by them.

    Returns:
      List of `Question`.

    Raises:
      InputError: the file has another form; names the question.
    """
    content = files.read_json_object(path)
    questions, ids = [], set()
    for i, article in enumerate(_get(path, "the top", content, "data", list)):
        where = f"article {i + 1}"
        for passage in _get(path, where, article, "paragraphs", list):
            paragraph = Paragraph(_get(path, where, passage, "context", str))
            for entry in _get(path, where, passage, "qas", list):
                question = _question(path, where, entry, paragraph, version_2)
                if training and not (question.answers or question.is_impossible):
                    raise InputError(
                        f"{path}: question {question.qas_id!r} has no answer to train on; for SQuAD 2.0 give "
                        "--version_2_with_negative."
                    )
                if question.qas_id in ids and not training:
                    raise InputError(f"{path}: there are two questions with the id {question.qas_id!r}.")
                ids.add(question.qas_id)
                questions.append(question)
    if not questions:
        raise InputError(f"{path}: there are no questions in it.")
    return questions


def _question(path, where, entry, paragraph, version_2):
    qas_id = _get(path, f"a question of {where}", entry, "id", (str, int))
    where = f"question {qas_id!r}"
    impossible = version_2 and _get(path, where, entry, "is_impossible", bool, False)
    answers = [] if impossible else _get(path, where, entry, "answers", list, [])
    texts = [_get(path, where, answer, "text", str) for answer in answers]
    starts = [_get(path, where, answer, "answer_start", int) for answer in answers]
    question = _get(path, where, entry, "question", str)
    return Question(str(qas_id), question, paragraph, texts, starts[0] if starts else -1, impossible)


def _get(path, where, entry, name, kind, default=None):
    """An entry of a JSON object, if it is of the right kind."""
    if not isinstance(entry, dict):
        raise InputError(f"{path}: not in SQuAD's form at {where}: an object is expected, not {entry!r:.60}.")
    value = entry.get(name, default)
    if value is None and name not in entry:
        raise InputError(f"{path}: not in SQuAD's form at {where}: there is no {name!r} in it.")
    if not isinstance(value, kind):
        raise InputError(f"{path}: not in SQuAD's form at {where}: {name!r} cannot be {value!r:.60}.")
    return value


class Encoder:
    """Questions to windows, and windows to records."""

    def __init__(self, vocab_file, do_lower_case, max_seq_length, doc_stride, max_query_length):
        """Checks the lengths.

        Args:
          vocab_file: the vocabulary.
          do_lower_case: whether text is lower-cased.
          max_seq_length: tokens in a window.
          doc_stride: how many tokens a window begins after the one before.
          max_query_length: longest question in tokens; the rest of a longer one is left out.
        """
        if max_seq_length <= max_query_length + 3:
            raise InputError(
                f"--max_seq_length={max_seq_length} leaves no room for a paragraph: it must be more than "
                f"--max_query_length={max_query_length} + 3."
            )
        self.tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case)
        self.do_lower_case = do_lower_case
        self._vocab_file = vocab_file
        self.max_seq_length = max_seq_length
        self._doc_stride = doc_stride
        self._max_query_length = max_query_length
        self._tokenize = functools.lru_cache(1 << 18)(self.tokenizer.tokenize)
        self._paragraph = None

    def windows(self, question, index, training):
        """Cuts a question's paragraph into windows.

        Args:
          question: a `Question`.
          index: what the windows call it.
          training: whether the answer's place is wanted.

        Returns:
          List of `Window`; empty if the answer is not found in the paragraph's text.
        """
        span = None
        if training and not question.is_impossible:
            span = self._answer_words(question)
            if span is None:
                return []
        if self._paragraph is not question.paragraph:
            self._paragraph = question.paragraph
            pieces = [self._tokenize(word) for word in question.paragraph.words]
            self._pieces = [piece for of_word in pieces for piece in of_word]
            self._word_of_piece = [word for word, of_word in enumerate(pieces) for _ in of_word]
            self._piece_of_word = [0, *itertools.accumulate(map(len, pieces))]
        pieces = self._pieces
        if span:
            first, last = self._piece_of_word[span[0]], self._piece_of_word[span[1] + 1] - 1
            first, last = self._improve(first, last, question.answers[0])
        query = self.tokenizer.tokenize(question.text)[: self._max_query_length]
        spans = self._spans(len(pieces), self.max_seq_length - len(query) - 3)
        best = _best_spans(spans, len(pieces))
        found = []
        for number, (start, end) in enumerate(spans):
            begin = len(query) + 2
            window = Window(
                question=index,
                tokens=["[CLS]", *query, "[SEP]", *pieces[start:end], "[SEP]"],
                text_begins=begin,
                words=self._word_of_piece[start:end],
                is_best=[best[position] == number for position in range(start, end)],
                is_impossible=question.is_impossible,
            )
            if span and start <= first and last < end:
                window.start, window.end = first - start + begin, last - start + begin
            found.append(window)
        return found

    def all_windows(self, questions, training):
        """Yields the windows of questions, an iterable, by whose numbers they call them."""
        for number, question in enumerate(questions):
            yield from self.windows(question, number, training)

    def make_records(self, sources, output, training, version_2):
        """Makes the records of the questions of files, unless they are there already.

        Args:
          sources: paths, as of `read`.
          output: the TFRecord file to write, as of `record_cache.make`.
          training: whether the records are to train on. Questions whose answer is not found in the paragraph are left
            out then.
          version_2: as of `read`.

        Returns:
          A dict with "count", the number of records, and "questions", that of the questions in them.
        """
        lengths = (self.max_seq_length, self._doc_stride, self._max_query_length)
        settings = ("squad", _FORMAT, training, version_2, bool(self.do_lower_case), lengths)

        def write(f):
            questions = itertools.chain.from_iterable(read(path, version_2, training) for path in sources)
            made = self.write(self.all_windows(questions, training), f, training)
            if not made["count"]:
                raise InputError(f"{', '.join(sources)}: no answer is found in its paragraph.")
            return made

        return record_cache.make(output, (*sources, self._vocab_file), settings, write)

    def write(self, windows, f, training):
        """Writes the records of windows into an opened file.

        Args:
          windows: iterable of `Window`, those of a question one after the other.
          f: the file.
          training: as of `make_records`.

        Returns:
          A dict as of `make_records`.
        """
        layout = self._layout(training)
        count, questions, last = 0, 0, None
        windows = iter(windows)
        while batch := list(itertools.islice(windows, _BATCH)):
            f.write(layout.encode(self._columns(batch, _FIRST_ID + count, training)).tobytes())
            count += len(batch)
            for window in batch:
                questions += window.question != last
                last = window.question
        return {"count": count, "questions": questions}

    def _layout(self, training):
        length = self.max_seq_length
        features = {
            "unique_ids": (1, 1 << 31),
            "input_ids": (length, len(self.tokenizer.vocab) - 1),
            "input_mask": (length, 1),
            "segment_ids": (length, 1),
        }
        if training:
            features.update(start_positions=(1, length - 1), end_positions=(1, length - 1), is_impossible=(1, 1))
        return records.Layout(features)

    def _columns(self, windows, first_id, training):
        ids = np.zeros((len(windows), self.max_seq_length), np.uint32)  # [windows, seq]
        sizes = np.array([[len(window.tokens)] for window in windows])  # [windows, 1]
        begins = np.array([[window.text_begins] for window in windows])  # [windows, 1]
        for row, window in enumerate(windows):
            ids[row, : len(window.tokens)] = self.tokenizer.convert_tokens_to_ids(window.tokens)
        position = np.arange(self.max_seq_length)  # [seq]
        columns = {
            "unique_ids": first_id + np.arange(len(windows), dtype=np.uint32)[:, np.newaxis],
            "input_ids": ids,
            "input_mask": (position < sizes).astype(np.uint8),
            "segment_ids": ((position >= begins) & (position < sizes)).astype(np.uint8),
        }
        if training:
            columns["start_positions"] = np.array([[window.start] for window in windows], np.uint32)
            columns["end_positions"] = np.array([[window.end] for window in windows], np.uint32)
            columns["is_impossible"] = np.array([[window.is_impossible] for window in windows], np.uint8)
        return columns

    def _answer_words(self, question):
        """The first and last word of the first answer, or None if its text is not there."""
        places = question.paragraph.word_of_char
        last = question.answer_start + len(question.answers[0]) - 1
        if not 0 <= question.answer_start <= last < len(places):
            words = ()
        else:
            words = places[question.answer_start], places[last]
        text = " ".join(question.paragraph.words[words[0] : words[1] + 1]) if words else ""
        if not words or " ".join(question.answers[0].split()) not in text:
            logging.warning("question %s: the answer %r is not found, left out", question.qas_id, question.answers[0])
            return None
        return words

    def _improve(self, first, last, answer):
        """The span of pieces inside a span of words that is the answer itself: words may be longer, as in "(1895".."""
        wanted = " ".join(self.tokenizer.tokenize(answer))
        for start in range(first, last + 1):
            for end in range(last, start - 1, -1):
                if " ".join(self._pieces[start : end + 1]) == wanted:
                    return start, end
        return first, last

    def _spans(self, length, room):
        """Beginnings and ends of the windows over a paragraph of `length` pieces."""
        spans = []
        start = 0
        while True:
            end = min(start + room, length)
            spans.append((start, end))
            if end == length:
                return spans
            start += min(end - start, self._doc_stride)


def _best_spans(spans, length):
    """For each piece, the number of the span with most context around it: the less of both sides, then the longer."""
    best, best_score = [0] * length, [-1.0] * length
    for number, (start, end) in enumerate(spans):
        for position in range(start, end):
            score = min(position - start, end - 1 - position) + 0.01 * (end - start)
            if score > best_score[position]:
                best[position], best_score[position] = number, score
    return best


@dataclasses.dataclass
class Answer:
    """A candidate: its text and the two logits that speak for it."""

    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self):
        """Sum of the logits."""
        return self.start_logit + self.end_logit


def choose_answers(
    questions,
    windows,
    start_logits,
    end_logits,
    do_lower_case,
    n_best_size=20,
    max_answer_length=30,
    version_2=False,
    null_score_diff_threshold=0.0,
):
    """Chooses an answer to each question.

    Args:
      questions: list of `Question`.
      windows: iterable of `Window`, in the order of the questions.
      start_logits, end_logits: float [windows, seq].
      do_lower_case: whether text was lower-cased.
      n_best_size: how many starts and ends are looked at in a window, and candidates are kept.
      max_answer_length: longest answer in tokens.
      version_2: whether there may be no answer.
      null_score_diff_threshold: the answer is empty if its score is higher than the best other's by more than this.

    Returns:
      Three `OrderedDict` by question id: the answer; the candidates, as dicts with text, probability and logits; and,
      for version 2, the score of no answer minus that of the best other.
    """
    basic = tokenization.BasicTokenizer(do_lower_case)
    by_question = itertools.groupby(zip(windows, start_logits, end_logits), lambda row: row[0].question)
    chosen, n_best, odds = (collections.OrderedDict() for _ in range(3))
    for number, rows in by_question:
        question = questions[number]
        found = []
        null = None
        for window, starts, ends in rows:
            if null is None or starts[0] + ends[0] < null.score:
                null = Answer("", float(starts[0]), float(ends[0]))
            for start, end in _spans_of(window, starts, ends, n_best_size, max_answer_length):
                found.append((float(starts[start]), float(ends[end]), window, start, end))
        if version_2:
            found.append((null.start_logit, null.end_logit, None, 0, 0))
        found.sort(key=lambda candidate: candidate[0] + candidate[1], reverse=True)
        answers = {}
        for start_logit, end_logit, window, start, end in found:
            if len(answers) == n_best_size:
                break
            text = "" if window is None else _text(question, window, start, end, basic)
            answers.setdefault(text, Answer(text, start_logit, end_logit))
        if version_2:
            answers.setdefault("", null)
        answers = list(answers.values())
        has_candidate = any(answer.text for answer in answers)
        if not has_candidate:
            answers.insert(0, Answer("empty", 0.0, 0.0))
        scores = np.array([answer.score for answer in answers], np.float64)
        probabilities = np.exp(scores - scores.max())
        probabilities /= probabilities.sum()
        n_best[question.qas_id] = [
            {
                "text": answer.text,
                "probability": float(probability),
                "start_logit": answer.start_logit,
                "end_logit": answer.end_logit,
            }
            for answer, probability in zip(answers, probabilities)
        ]
        best = answers[0]
        if version_2:
            best = next(answer for answer in answers if answer.text)
            odds[question.qas_id] = null.score - best.score
            if odds[question.qas_id] > null_score_diff_threshold or not has_candidate:
                best = null
        chosen[question.qas_id] = best.text
    return chosen, n_best, odds


def _spans_of(window, starts, ends, n_best_size, max_answer_length):
    """Pairs of positions in a window that can be an answer."""
    first, size = window.text_begins, len(window.words)
    best_ends = [end for end in _largest(ends, n_best_size) if first <= end < first + size]
    for start in _largest(starts, n_best_size):
        if first <= start < first + size and window.is_best[start - first]:
            for end in best_ends:
                if start <= end < start + max_answer_length:
                    yield start, end


def _largest(values, count):
    return np.argsort(-values, kind="stable")[:count].tolist()


def _text(question, window, start, end, basic):
    """The paragraph's own text of a span of tokens."""
    tokens = " ".join(window.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
    words = [window.words[position - window.text_begins] for position in (start, end)]
    original = " ".join(question.paragraph.words[words[0] : words[1] + 1])
    return align(" ".join(tokens.split()), original, basic)


def align(predicted, original, basic):
    """Finds predicted tokens, lower-cased and without accents as they may be, in the original text.

    The original may say "Smith's" where the tokens are "smith": the two are aligned by their characters without
    spaces. Where that is not possible, all of the original is returned.

    Args:
      predicted: tokens, joined.
      original: text of whole words.
      basic: the `tokenization.BasicTokenizer` that made the tokens.
    """
    tokenized = " ".join(basic.tokenize(original))
    start = tokenized.find(predicted)
    original_places = [place for place, char in enumerate(original) if char != " "]
    tokenized_places = [place for place, char in enumerate(tokenized) if char != " "]
    if start < 0 or len(original_places) != len(tokenized_places):
        return original
    number = {place: i for i, place in enumerate(tokenized_places)}
    first, last = number.get(start), number.get(start + len(predicted) - 1)
    if first is None or last is None:
        return original
    return original[original_places[first] : original_places[last] + 1]


def write_json(path, content):
    """Writes predictions as the original does."""
    with files.atomic_write(path, "w") as f:
        f.write(json.dumps(content, indent=4) + "\n")
