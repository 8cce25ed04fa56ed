"""Verification: the accuracy again by scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version

from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.classification.score import labels_of
from automedbench.tracks.classification.settings import Settings


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again by scikit-learn, with missing predictions as a label of their own."""
    settings: Settings = track_settings(inputs.card)
    labels = labels_of(inputs)
    plain, balanced = accuracies(labels.predicted, labels.truth)
    value = plain if settings.score_metric == "accuracy" else balanced
    return f"scikit-learn {version('scikit-learn')}", value, 1e-12


def accuracies(predicted: Sequence[int], truth: Sequence[int]) -> tuple[float, float]:
    """Accuracy and balanced accuracy of class numbers; a prediction without class is any number that no truth has."""
    from sklearn.metrics import accuracy_score, balanced_accuracy_score

    with warnings.catch_warnings():
        # It warns of labels that no truth has (they are left out of the mean, as meant) and of a single label.
        warnings.simplefilter("ignore")
        balanced = balanced_accuracy_score(truth, predicted)
    return float(accuracy_score(truth, predicted)), float(balanced)
