"""Verification: mean SSIM again, from the formula over whole windows."""

from __future__ import annotations

import math

import numpy as np

from automedbench.metrics.image_quality_twin import library, windowed_ssim
from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.common.cases import require_same_cases
from automedbench.tracks.enhancement.score import clipped, read_prediction
from automedbench.tracks.enhancement.settings import Settings
from automedbench.tracks.enhancement.truth import Ranges, read_reference

_TWIN_TOLERANCE = 1e-6


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """Mean SSIM again, from the formula over whole windows."""
    require_same_cases(inputs)
    settings: Settings = track_settings(inputs.card)
    ranges = Ranges(inputs.private)
    values = []
    for case, verdict in zip(inputs.manifest.cases, inputs.checked.cases, strict=True):
        if not verdict.completed:
            continue
        reference = read_reference(inputs.private, case)
        span, offset = ranges.of(case.id, reference), settings.offset
        first, second = (image.astype(np.float64) + offset for image in (read_prediction(inputs, case), reference))
        values.append(clipped(windowed_ssim(first, second, data_range=span)))
    return library(), math.fsum(values) / len(inputs.manifest.cases), _TWIN_TOLERANCE
