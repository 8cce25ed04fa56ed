"""The same accuracies by scikit-learn: the independent twin of ``classification`` for tests and --verify."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version


def library() -> str:
    """Name and version of the library behind this module."""
    return f"scikit-learn {version('scikit-learn')}"


def accuracies(predicted: Sequence[int], truth: Sequence[int]) -> tuple[float, float]:
    """Accuracy and balanced accuracy of class numbers; a prediction without class is any number that no truth has."""
    from sklearn.metrics import accuracy_score, balanced_accuracy_score

    with warnings.catch_warnings():
        # It warns of labels that no truth has (they are left out of the mean, as meant) and of a single label.
        warnings.simplefilter("ignore")
        balanced = balanced_accuracy_score(truth, predicted)
    return float(accuracy_score(truth, predicted)), float(balanced)
