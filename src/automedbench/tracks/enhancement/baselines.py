"""The simple methods that a task's bands are built on: doing nothing, and one classical method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from automedbench.datasets.forms.degradation import Degradation, Downsample, bicubic

RECIPES = {
    "downsample": {
        "identity": "every pixel repeated",
        "classical": "bicubic (Pillow, a = -1/2, single precision)",
    },
    "gaussian_noise": {
        "identity": "the input",
        "classical": "non-local means (scikit-image, 5×5 patches, distance 6, h = 0.8 sigma by Immerkær)",
    },
}
RECIPES["upstream"] = RECIPES["gaussian_noise"]


def outputs(
    image: NDArray[np.float32], shape: tuple[int, int], degradation: Degradation
) -> dict[str, NDArray[np.float32]]:
    """Outputs of each baseline for an input; arrays of the output's ``shape``."""
    if isinstance(degradation, Downsample):
        repeated = np.kron(image, np.ones((degradation.scale, degradation.scale), np.float32))
        return {"identity": repeated, "classical": bicubic(image, shape).astype(np.float32)}
    return {"identity": image, "classical": _non_local_means(image)}


def _non_local_means(image: NDArray[np.float32]) -> NDArray[np.float32]:
    from skimage.restoration import denoise_nl_means

    sigma = noise_sigma(image)
    smooth = denoise_nl_means(image, patch_size=5, patch_distance=6, h=0.8 * sigma, sigma=sigma, preserve_range=True)
    return np.asarray(smooth, dtype=np.float32)


def noise_sigma(image: NDArray[np.float32]) -> float:
    """Standard deviation of white noise on an image, from the difference of two Laplacians (Immerkær 1996).

    The mask (1, -2, 1)ᵀ(1, -2, 1) cancels edges that run straight; over independent normal noise the mean absolute
    response is 6·σ·√(2/π).
    """
    response = np.diff(np.diff(image.astype(np.float64), n=2, axis=0), n=2, axis=1)
    return float(np.sqrt(np.pi / 2) / 6 * np.abs(response).mean())
