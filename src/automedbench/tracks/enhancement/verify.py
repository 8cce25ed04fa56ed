"""Verification: mean SSIM again, from the formula over whole windows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from automedbench.metrics.image_quality import K1, K2, SIGMA, WINDOW
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


Map = NDArray[np.float64]


def windowed_ssim(prediction: NDArray[np.floating], reference: NDArray[np.floating], *, data_range: float) -> float:
    """Mean SSIM over all whole 11×11 windows with gaussian weights; arrays of shape (height, width)."""
    x, y = np.asarray(prediction, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    mean_x, mean_y = _weighted(x), _weighted(y)
    variance_x = _weighted(x * x) - mean_x**2
    variance_y = _weighted(y * y) - mean_y**2
    covariance = _weighted(x * y) - mean_x * mean_y
    c1, c2 = (K1 * data_range) ** 2, (K2 * data_range) ** 2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return float(np.mean(luminance * structure))


def library() -> str:
    """Name and version for the record."""
    return f"numpy {np.__version__} (SSIM over whole windows)"


def _weighted(image: Map) -> Map:
    """Weighted mean of every whole window, shape (height − 10, width − 10)."""
    offsets = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-0.5 * (offsets / SIGMA) ** 2)
    weights /= weights.sum()
    rows = image.shape[0] - WINDOW + 1
    columns = image.shape[1] - WINDOW + 1
    down = sum(weight * image[start : start + rows] for start, weight in enumerate(weights))
    return np.asarray(sum(weight * down[:, start : start + columns] for start, weight in enumerate(weights)))
