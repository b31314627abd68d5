"""What an evaluation shows beyond its scores: how each label fares, which are mistaken for which, the worst errors."""

import numpy as np

MAX_ERRORS = 20
MAX_LABELS = 60  # of a confusion matrix that a person can read


def per_label(labels, confusion):
    """Precision, recall and F1 of each label.

    Args:
      labels: names of the labels.
      confusion: int [labels, labels], number of examples by true label (rows) and prediction (columns).

    Returns:
      A list of dicts with "label", "precision", "recall", "f1" and "examples".
    """
    right, predicted, there = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    return [
        {
            "label": label,
            "precision": float(right[i] / predicted[i]) if predicted[i] else 0.0,
            "recall": float(right[i] / there[i]) if there[i] else 0.0,
            "f1": float(2 * right[i] / (predicted[i] + there[i])) if predicted[i] + there[i] else 0.0,
            "examples": int(there[i]),
        }
        for i, label in enumerate(labels)
    ]


def confusion(expected, chosen, num_labels):
    """Number of examples by true label (rows) and prediction (columns), int [labels, labels].

    Args:
      expected, chosen: ids of labels, int [examples].
      num_labels: number of labels.
    """
    return np.bincount(np.asarray(expected) * num_labels + chosen, minlength=num_labels**2).reshape(-1, num_labels)


def of_task(task, labels, outputs, losses, examples=None):
    """Details of the evaluation of a sentence task.

    Args:
      task: a `bert.tasks.task.Task`.
      labels, outputs: as of `Task.scores`.
      losses: float [examples].
      examples: iterable of the `Example`s in their order, if their text is known.

    Returns:
      A dict: "labels", a list as of `per_label`, and "confusion", where each example has one label; "errors", the
      wrong predictions with the highest loss, or for regression the predictions that are farthest off.
    """
    decisions = task.decide(outputs)
    details = {}
    if task.label_kind == "single":
        counts = confusion(labels, decisions, len(task.labels))
        details["labels"] = per_label(task.labels, counts)
        if len(task.labels) <= MAX_LABELS:
            details["confusion"] = counts.tolist()
    elif task.label_kind == "multi":
        details["labels"] = [
            per_label((name, ""), confusion(1 - labels[:, i], 1 - decisions[:, i], 2))[0]
            for i, name in enumerate(task.labels)
        ]
    wrong = decisions != labels  # [examples] or [examples, labels]
    wrong = np.flatnonzero(wrong if wrong.ndim == 1 else wrong.any(axis=1))
    worst = wrong[np.argsort(-losses[wrong], kind="stable")][:MAX_ERRORS]
    errors = {
        int(i): {
            "number": int(i) + 1,
            "label": task.describe(labels[i]),
            "predicted": task.describe(decisions[i]),
            "probability": task.describe_probability(decisions[i], outputs[i]),
            "loss": float(losses[i]),
        }
        for i in worst
    }
    for i, example in enumerate(examples or ()):
        if i in errors:
            errors[i].update(text_a=example.text_a, text_b=example.text_b or "")
    details["errors"] = list(errors.values())
    return details
