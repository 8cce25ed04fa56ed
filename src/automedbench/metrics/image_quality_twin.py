"""SSIM a second time, from the formula of Wang et al. 2004 with NumPy alone: the twin of ``image_quality.ssim``.

Only windows that lie wholly inside the image are formed. They are exactly those that scikit-image keeps when it leaves
out a border of half a window, so no rule for pixels beyond the edge takes part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from automedbench.metrics.image_quality import K1, K2, SIGMA, WINDOW

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
