"""Classification's outputs and answers for the effect of the case: one class number each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from automedbench.metrics.classification import NONE
from automedbench.tracks import EffectEvidence, ScoringInputs
from automedbench.tracks.classification.score import read_case_labels


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Predicted and true class of every case with a usable label; a right one has quality 1."""
    labels = read_case_labels(inputs)
    pairs = [pair for pair in zip(labels.predicted, labels.truth, strict=True) if pair[0] != NONE]
    return EffectEvidence(
        outputs=[predicted for predicted, _ in pairs],
        answers=[truth for _, truth in pairs],
        quality=lambda first, second: equal(first, second).astype(float),
        same=equal,
        labels=True,
        none_below=0.10,
    )


def equal(first: Sequence[int], second: Sequence[int]) -> NDArray[np.bool_]:
    """Whether class numbers (m,) and (k,) are the same, (m, k)."""
    return np.asarray(np.equal.outer(np.asarray(first), np.asarray(second)))
