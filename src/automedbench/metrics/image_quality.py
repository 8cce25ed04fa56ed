"""Full-reference quality of 2-D grey images: PSNR and SSIM for a stated data range.

Both take ``prediction, reference`` as float arrays of one shape (height, width) in the same unit. Nothing is rescaled,
clipped or registered, and the data range is the caller's: measured on the prediction it would be the prediction's to
choose.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PSNR_CAP_DB = 99.0
"""PSNR of equal images; a perfect one would be infinite."""
WINDOW = 11
"""Side of SSIM's gaussian window in pixels: σ 1.5 cut off at 3.5 σ. No image side may be shorter."""
SIGMA = 1.5
TRUNCATE = 3.5
K1, K2 = 0.01, 0.03
_EQUAL_MSE = 1e-12

Image = NDArray[np.floating]


def psnr(prediction: Image, reference: Image, *, data_range: float) -> float:
    """Peak signal-to-noise ratio in dB: 10·log10(data_range² / mean squared error), at most 99.

    A mean squared error of 1e-12 or less counts as equal. Raises ValueError for different shapes, images that are not
    2-D, values that are not finite, and a data range that is not a positive number.
    """
    first, second = _checked(prediction, reference, data_range)
    mse = float(np.mean((first - second) ** 2))
    if mse <= _EQUAL_MSE:
        return PSNR_CAP_DB
    return min(PSNR_CAP_DB, 20 * math.log10(data_range) - 10 * math.log10(mse))


def ssim(prediction: Image, reference: Image, *, data_range: float) -> float:
    """Mean structural similarity (Wang et al. 2004) by scikit-image, in [−1, 1].

    Gaussian weights of σ 1.5 in an 11×11 window, population covariance, K1 = 0.01, K2 = 0.03; mean over the map
    without a border of 5 pixels. Computed in double precision: on images whose values lie within a few data ranges of
    each other single precision differs by less than 1e-5, beyond that it says nothing.

    Raises ValueError as ``psnr`` does, and for a side shorter than 11 pixels.
    """
    first, second = _checked(prediction, reference, data_range)
    if min(first.shape) < WINDOW:
        raise ValueError(f"images of {first.shape} are smaller than the {WINDOW}-pixel window")
    from skimage.metrics import structural_similarity

    return float(
        structural_similarity(  # type: ignore[no-untyped-call]
            second,
            first,
            data_range=data_range,
            gaussian_weights=True,
            sigma=SIGMA,
            truncate=TRUNCATE,
            use_sample_covariance=False,
            K1=K1,
            K2=K2,
        )
    )


def _checked(prediction: Image, reference: Image, data_range: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both images in double precision; a prediction is never broadcast."""
    first, second = np.asarray(prediction, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(f"prediction {first.shape} and reference {second.shape} must be 2-D and have the same shape")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("prediction and reference must be finite")
    if not (math.isfinite(data_range) and data_range > 0):
        raise ValueError(f"data_range is {data_range}; it must be a positive number")
    return first, second
