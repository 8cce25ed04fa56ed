"""Verification: the accuracy again by scikit-learn."""

from __future__ import annotations

from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.classification.score import labels_of
from automedbench.tracks.classification.settings import Settings


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again by scikit-learn, with missing predictions as a label of their own."""
    from automedbench.metrics.classification_twin import accuracies, library

    settings: Settings = track_settings(inputs.card)
    labels = labels_of(inputs)
    plain, balanced = accuracies(labels.predicted, labels.truth)
    return library(), plain if settings.score_metric == "accuracy" else balanced, 1e-12
