"""Exact match and F1 of answers, by the rules of SQuAD's official evaluation.

Both compare answers without case, punctuation, articles and superfluous white space; of several right answers, the one
that fits best counts.
"""

import collections
import re
import string

# By which checkpoints may be compared, by whether questions may have no answer.
NAMES = {False: ("exact_match", "f1"), True: ("exact", "f1", "best_exact", "best_f1")}
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(answer):
    """An answer in lower case, without punctuation (of ASCII) and articles."""
    text = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION))
    return " ".join(text.split())


def f1(answer, prediction, version_2=False):
    """F1 of the words of a prediction; in version 2, an empty answer and an empty prediction are equal."""
    wanted, given = normalize(answer).split(), normalize(prediction).split()
    if version_2 and not (wanted and given):
        return float(wanted == given)
    common = sum((collections.Counter(wanted) & collections.Counter(given)).values())
    return 2 * common / (len(wanted) + len(given)) if common else 0.0


def exact_match(answer, prediction):
    """Whether the two are the same."""
    return float(normalize(answer) == normalize(prediction))


def evaluate(questions, predictions):
    """Scores of SQuAD 1.1, in percent.

    Args:
      questions: list of `bert.tasks.squad.Question` with answers.
      predictions: dict from question id to answer; a question without one counts as wrong.

    Returns:
      {"exact_match": ..., "f1": ...}.
    """
    totals = [0.0, 0.0]
    for question in questions:
        prediction = predictions.get(question.qas_id)
        if prediction is not None and question.answers:
            totals[0] += max(exact_match(answer, prediction) for answer in question.answers)
            totals[1] += max(f1(answer, prediction) for answer in question.answers)
    return dict(zip(("exact_match", "f1"), (100 * total / len(questions) for total in totals)))


def evaluate_version_2(questions, predictions, null_odds=None):
    """Scores of SQuAD 2.0, in percent.

    Args:
      questions: as of `evaluate`; those without answers have no answer.
      predictions: dict from question id to answer, "" for none; questions without a prediction are left out.
      null_odds: dict from question id to the odds of no answer, to find the threshold that would have been best.

    Returns:
      Dict with exact, f1 and total, the same for questions with and without an answer (HasAns_, NoAns_), and, with
      `null_odds`, best_exact, best_f1 and their thresholds.
    """
    scored = [question for question in questions if question.qas_id in predictions]
    exact, overlap, has_answer = {}, {}, {}
    for question in scored:
        answers = [answer for answer in question.answers if normalize(answer)] or [""]
        prediction = predictions[question.qas_id]
        exact[question.qas_id] = max(exact_match(answer, prediction) for answer in answers)
        overlap[question.qas_id] = max(f1(answer, prediction, version_2=True) for answer in answers)
        has_answer[question.qas_id] = bool(question.answers)
    result = {}
    for prefix, ids in (
        ("", list(exact)),
        ("HasAns_", [qas_id for qas_id in exact if has_answer[qas_id]]),
        ("NoAns_", [qas_id for qas_id in exact if not has_answer[qas_id]]),
    ):
        if ids:
            result[f"{prefix}exact"] = 100 * sum(exact[qas_id] for qas_id in ids) / len(ids)
            result[f"{prefix}f1"] = 100 * sum(overlap[qas_id] for qas_id in ids) / len(ids)
            result[f"{prefix}total"] = len(ids)
    if null_odds and scored:
        for name, scores in (("exact", exact), ("f1", overlap)):
            best, threshold = _best_threshold(predictions, scores, null_odds, has_answer)
            result[f"best_{name}"], result[f"best_{name}_thresh"] = 100 * best / len(scored), threshold
    return result


def _best_threshold(predictions, scores, null_odds, has_answer):
    """The best sum of scores, and the lowest odds above which no answer is to be given to reach it."""
    current = best = sum(not answered for answered in has_answer.values())
    threshold = 0.0
    for qas_id in sorted((qas_id for qas_id in null_odds if qas_id in scores), key=null_odds.get):
        if has_answer[qas_id]:
            current += scores[qas_id]
        elif predictions[qas_id]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[qas_id]
    return best, threshold
