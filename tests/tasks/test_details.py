"""Tests of `bert.tasks.details`."""

import numpy as np
import pytest
import sklearn.metrics

from bert.tasks import details
from bert.tasks.glue import find
from bert.tasks.task import Example


def test_labels_as_scikit_learn_scores_them():
    rng = np.random.default_rng(0)
    task = find("mnli")()
    labels, outputs = rng.integers(3, size=200), rng.dirichlet(np.ones(3), size=200)
    losses = -np.log(outputs[np.arange(200), labels])
    examples = (Example(str(i), f"a {i}", f"b {i}" if i % 2 else None) for i in range(200))
    found = details.of_task(task, labels, outputs, losses, examples)
    choice = outputs.argmax(axis=1)
    expected = sklearn.metrics.precision_recall_fscore_support(labels, choice)
    for name, values in zip(("precision", "recall", "f1", "examples"), expected):
        assert [entry[name] for entry in found["labels"]] == pytest.approx(list(values))
    assert found["confusion"] == sklearn.metrics.confusion_matrix(labels, choice).tolist()

    assert len(found["errors"]) == details.MAX_ERRORS
    worst = found["errors"][0]
    row = worst["number"] - 1
    assert losses[row] == losses[choice != labels].max() == worst["loss"]
    assert (worst["label"], worst["predicted"]) == (task.labels[labels[row]], task.labels[choice[row]])
    assert (worst["text_a"], worst["text_b"]) == (f"a {row}", f"b {row}" if row % 2 else "")


def test_regression_and_no_errors():
    task = find("sts-b")()
    found = details.of_task(task, np.array([1.0, 2.0]), np.array([[3.0], [2.0]]), np.array([4.0, 0.0]))
    assert found["errors"] == [{"number": 1, "label": "1", "predicted": "3", "probability": "", "loss": 4.0}]
    assert "labels" not in found and "confusion" not in found
