"""The metrics of GLUE and of classification in general, by scikit-learn and SciPy.

Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding",
https://arxiv.org/abs/1804.07461, section 3.
"""

import math

import numpy as np


def accuracy(labels, predictions):
    """Share of examples whose prediction equals the label; for several labels, of rows that are equal as a whole."""
    equal = np.equal(labels, predictions)  # [examples] or [examples, labels]
    return float(np.mean(equal if equal.ndim == 1 else equal.all(axis=1)))


def f1(labels, predictions):
    """F1 of label 1, the positive one; 0 if it is neither there nor predicted."""
    import sklearn.metrics

    return float(sklearn.metrics.f1_score(labels, predictions, zero_division=0))


def matthews_correlation(labels, predictions):
    """Matthews' correlation coefficient; 0 if all predictions are the same."""
    import sklearn.metrics

    return float(sklearn.metrics.matthews_corrcoef(labels, predictions))


def pearson(labels, predictions):
    """Pearson's correlation coefficient; 0 if either side is constant."""
    import scipy.stats

    return _correlation(scipy.stats.pearsonr, labels, predictions)


def spearman(labels, predictions):
    """Spearman's rank correlation coefficient; 0 if either side is constant."""
    import scipy.stats

    return _correlation(scipy.stats.spearmanr, labels, predictions)


def micro_f1(labels, predictions):
    """F1 over all decisions of a multi-label task, int [examples, labels]."""
    import sklearn.metrics

    return float(sklearn.metrics.f1_score(labels, predictions, average="micro", zero_division=0))


def macro_f1(labels, predictions):
    """Mean over the labels of each one's F1."""
    import sklearn.metrics

    return float(sklearn.metrics.f1_score(labels, predictions, average="macro", zero_division=0))


BY_NAME = {
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews_correlation": matthews_correlation,
    "micro_f1": micro_f1,
    "pearson": pearson,
    "spearman": spearman,
}


def _correlation(function, labels, predictions):
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    value = float(function(labels, predictions)[0])
    return value if math.isfinite(value) else 0.0
