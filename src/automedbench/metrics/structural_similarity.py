"""Structural similarity (SSIM) of planes with uniform windows, errors in HU, and the formula of SSIM by itself.

The definition is scikit-image's ``structural_similarity`` with its defaults and a stated ``data_range`` R: equal
weights in windows of 7 voxels per axis, sample variances and covariance (divisor N − 1 for N voxels in a window),
C1 = (0.01 R)², C2 = (0.03 R)², and the mean over all windows that lie completely inside (Wang et al. 2004 with a
uniform instead of a Gaussian window). One plane is held at a time, in float64.

    plane_ssim      SSIM of one plane by scikit-image, optionally also over a region
    HuErrors        MAE, RMSE and PSNR accumulated over planes
    windowed_ssim   the formula over whole windows in NumPy alone, to verify scikit-image's values

Prediction first, reference second. R is never guessed from a data type; clip both images to the window that R spans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from automedbench.metrics.image_quality import K1, K2, PSNR_CAP_DB

Array = NDArray[Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PlaneSimilarity:
    """SSIM of one plane: sum over ``n`` windows, and over the ``n_roi`` windows whose centre lies in a region."""

    total: float
    n: int
    roi_total: float = 0.0
    n_roi: int = 0

    @property
    def mean(self) -> float:
        """Mean SSIM of the plane."""
        return self.total / self.n


def plane_ssim(
    prediction: Array,
    reference: Array,
    roi: Array | None = None,
    *,
    data_range: float,
    window: int,
    clip: tuple[float, float],
) -> PlaneSimilarity:
    """SSIM of one pair of planes, both cut to ``clip`` first; ``roi`` is a boolean plane.

    Raises ValueError for planes of different shapes or smaller than the window, and for an even window.
    """
    from skimage.metrics import structural_similarity

    pair = (np.clip(plane.astype(np.float64), *clip) for plane in (reference, prediction))
    _, full = structural_similarity(  # type: ignore[no-untyped-call]
        *pair, win_size=window, data_range=data_range, full=True
    )
    inner = (slice(window // 2, -(window // 2)),) * 2
    values = full[inner]
    if roi is None:
        return PlaneSimilarity(float(values.sum()), values.size)
    inside = values[roi[inner]]
    return PlaneSimilarity(float(values.sum()), values.size, float(inside.sum()), inside.size)


@dataclass
class HuErrors:
    """Absolute and squared differences in the unit of the images, accumulated over planes."""

    n: int = 0
    absolute: float = 0.0
    squared: float = 0.0

    def add(self, prediction: Array, reference: Array, roi: Array | None = None) -> None:
        """Add all voxels of a plane, or those where the boolean ``roi`` is true."""
        difference = np.subtract(prediction, reference, dtype=np.float64)
        values = difference.ravel(order="K") if roi is None else difference[roi]
        self.n += values.size
        self.squared += float(np.dot(values, values))
        self.absolute += float(np.abs(values, out=values).sum())

    @property
    def mae(self) -> float:
        """Mean absolute error; nan without a voxel."""
        return self.absolute / self.n if self.n else math.nan

    @property
    def rmse(self) -> float:
        """Root of the mean squared error; nan without a voxel."""
        return math.sqrt(self.squared / self.n) if self.n else math.nan

    def psnr(self, data_range: float) -> float:
        """20·log10(R / RMSE) in dB, at most 99 (which identical images get)."""
        return min(20 * math.log10(data_range / self.rmse), PSNR_CAP_DB) if self.rmse else PSNR_CAP_DB


# --- the formula ------------------------------------------------------------------------------------------------


def windowed_ssim(
    prediction: NDArray[Any], reference: NDArray[Any], *, data_range: float, weights: ArrayLike, sample: bool = False
) -> float:
    """Mean SSIM over all whole windows of images of shape (height, width).

    A window weighs each voxel by the product of the ``weights`` (which add up to 1) along both axes; with ``sample``
    variances and covariance of n equal weights have the divisor n² − 1.
    """
    x, y = np.asarray(prediction, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    along = np.asarray(weights, dtype=np.float64)
    n = along.size**2
    share = n / (n - 1) if sample else 1.0
    mean_x, mean_y = _weighted(x, along), _weighted(y, along)
    variance_x = share * (_weighted(x * x, along) - mean_x**2)
    variance_y = share * (_weighted(y * y, along) - mean_y**2)
    covariance = share * (_weighted(x * y, along) - mean_x * mean_y)
    c1, c2 = (K1 * data_range) ** 2, (K2 * data_range) ** 2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return float(np.mean(luminance * structure))


def _weighted(image: Floats, weights: Floats) -> Floats:
    """Weighted mean of every whole window."""
    rows, columns = (length - weights.size + 1 for length in image.shape)
    down = sum(weight * image[start : start + rows] for start, weight in enumerate(weights))
    return np.asarray(sum(weight * down[:, start : start + columns] for start, weight in enumerate(weights)))
