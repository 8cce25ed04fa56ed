"""SSIM by planes: by hand, against scikit-image and the formula on random input, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage.metrics import structural_similarity

from automedbench.metrics.structural_similarity import HuErrors, plane_ssim, windowed_ssim

Array = NDArray[Any]
R = 4095.0
HU = (-1024.0, 3071.0)


def noisy(shape: tuple[int, ...], seed: int, scale: float = 400.0) -> tuple[Array, Array]:
    """A float32 prediction and an int16 reference that resemble each other."""
    random = np.random.default_rng(seed)
    reference = np.rint(random.normal(0, scale, shape)).astype(np.int16)
    return (reference + random.normal(20, 60, shape)).astype(np.float32), reference


def skimage_ssim(prediction: Array, reference: Array, window: int = 7, data_range: float = R) -> float:
    clipped = (np.clip(image.astype(np.float64), *HU) for image in (reference, prediction))
    return float(structural_similarity(*clipped, win_size=window, data_range=data_range))


def mean_ssim(prediction: Array, reference: Array, **options: Any) -> float:
    """By scikit-image through the metric; the formula must say the same."""
    given = {"data_range": R, "window": 7, "clip": (-math.inf, math.inf), **options}
    mean = plane_ssim(prediction, reference, **given).mean
    clipped = (np.clip(image.astype(np.float64), *given["clip"]) for image in (prediction, reference))
    weights = np.full(given["window"], 1 / given["window"])
    twin = windowed_ssim(*clipped, data_range=given["data_range"], weights=weights, sample=True)
    assert twin == pytest.approx(mean, abs=1e-12)
    return mean


# --- values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        pytest.param(0.0, 0.0, 1.0, id="both zero: the constants alone"),
        pytest.param(-1000.0, -1000.0, 1.0, id="equal"),
        # No variance: only (2·μx·μy + C1) / (μx² + μy² + C1) is left, with C1 = (0.01·4095)² = 1676.9025.
        pytest.param(100.0, 0.0, 1676.9025 / (10_000 + 1676.9025), id="100 against 0"),
        pytest.param(100.0, 50.0, (10_000 + 1676.9025) / (12_500 + 1676.9025), id="100 against 50"),
        pytest.param(-100.0, 100.0, (-20_000 + 1676.9025) / (20_000 + 1676.9025), id="of other sign: negative"),
    ],
)
def test_constant_planes(prediction: float, reference: float, expected: float) -> None:
    shape = (9, 8)
    value = mean_ssim(np.full(shape, prediction), np.full(shape, reference))
    assert value == pytest.approx(expected, abs=1e-14)


def test_one_window_by_hand() -> None:
    """A single 7 × 7 window: x is 49 in one voxel, y is 49 in another; R = 100.

    Means 1 and 1. Sums of squares 49² each, of products 0; with divisor 48 the variances are (49² − 49) / 48 = 49, the
    covariance is −49 / 48. C1 = 1, C2 = 9: SSIM = (2 + 1)(−49/24 + 9) / ((2 + 1)(98 + 9)).
    """
    x, y = np.zeros((7, 7)), np.zeros((7, 7))
    x[1, 2], y[5, 5] = 49, 49
    assert mean_ssim(x, y, data_range=100) == pytest.approx((9 - 49 / 24) / 107, abs=1e-15)


def test_identical_images_score_exactly_one() -> None:
    _, reference = noisy((40, 33), 1)
    assert mean_ssim(reference, reference, clip=HU) == 1


def test_clipping() -> None:
    """Whatever lies beyond the window on the same side is equal."""
    low, high = np.full((8, 8), -1024), np.full((8, 8), -5000)
    assert mean_ssim(high, low, clip=HU) == 1
    assert mean_ssim(high, low) < 0.5


# --- scikit-image -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        pytest.param((7, 7), 7, id="one window"),
        pytest.param((7, 50), 7, id="one row of windows"),
        pytest.param((50, 7), 7, id="one column of windows"),
        pytest.param((31, 45), 3, id="window 3"),
        pytest.param((31, 45), 5, id="window 5"),
        pytest.param((31, 45), 9, id="window 9"),
        pytest.param((40, 31), 11, id="window 11"),
        pytest.param((300, 210), 7, id="larger"),
    ],
)
def test_planes_equal_scikit_image(shape: tuple[int, int], window: int, order: Any) -> None:
    prediction, reference = (np.asarray(image, order=order) for image in noisy(shape, 2))
    value = mean_ssim(prediction, reference, window=window, clip=HU)
    assert value == pytest.approx(skimage_ssim(prediction, reference, window), abs=1e-12)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4", "f8", ">i2", ">f4"])
def test_any_type_of_number(dtype: str) -> None:
    """Nothing wraps around, and byte order is no matter."""
    prediction, reference = (np.clip(image, 0, 255).astype(dtype) for image in noisy((30, 30), 5, 100))
    value = mean_ssim(prediction, reference, data_range=255)
    expected = structural_similarity(reference.astype(float), prediction.astype(float), win_size=7, data_range=255)
    assert value == pytest.approx(expected, abs=1e-12)


def test_region() -> None:
    """A region averages windows whose centre lies in it; on the border there are none."""
    prediction, reference = noisy((40, 52), 6)
    clipped = (np.clip(image.astype(np.float64), *HU) for image in (reference, prediction))
    _, full = structural_similarity(*clipped, win_size=7, data_range=R, full=True)
    region = np.zeros((40, 52), bool)
    region[:10, 5:30] = True
    for order in ("C", "F"):
        arrays = [np.asarray(array, order=order) for array in (prediction, reference, region)]
        found = plane_ssim(*arrays, data_range=R, window=7, clip=HU)
        assert (found.n, found.n_roi) == (34 * 46, 7 * 25)
        assert found.roi_total / found.n_roi == pytest.approx(full[3:10, 5:30].mean(), abs=1e-12)
        assert found.mean == pytest.approx(full[3:-3, 3:-3].mean(), abs=1e-12)
    empty = plane_ssim(prediction, reference, np.zeros((40, 52), bool), data_range=R, window=7, clip=HU)
    assert (empty.roi_total, empty.n_roi) == (0, 0)


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "window"),
    [
        pytest.param(((6, 9), (6, 9)), 7, id="plane too small"),
        pytest.param(((9, 9), (9, 9)), 4, id="even window"),
        pytest.param(((9, 8), (8, 9)), 7, id="two shapes"),
    ],
)
def test_refused(shapes: tuple[tuple[int, int], tuple[int, int]], window: int) -> None:
    with pytest.raises(ValueError, match=r"win_size|Window size|dimensions|shape"):
        plane_ssim(*map(np.zeros, shapes), data_range=R, window=window, clip=HU)


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        pytest.param([0, 0], [0, 0], (0.0, 0.0, 99.0), id="equal: PSNR is cut off"),
        pytest.param([3, 0], [0, 4], (3.5, math.sqrt(12.5), 20 * math.log10(4095 / math.sqrt(12.5))), id="3 and 4"),
        pytest.param([-32768, 0], [32767, 0], (32767.5, 65535 / math.sqrt(2), None), id="int16 does not wrap"),
    ],
)
def test_errors(prediction: list[int], reference: list[int], expected: tuple[float, float, float | None]) -> None:
    """By hand; PSNR = 20·log10(4095 / RMSE)."""
    errors = HuErrors()
    errors.add(np.array([prediction], dtype=np.int16), np.array([reference], dtype=np.int16))
    assert (errors.mae, errors.rmse) == pytest.approx(expected[:2])
    if expected[2] is not None:
        assert errors.psnr(R) == pytest.approx(expected[2])


def test_errors_of_a_region_over_planes() -> None:
    errors = HuErrors()
    region = np.array([[True, False], [False, True]])
    errors.add(np.array([[1.0, 50], [50, 2]]), np.zeros((2, 2)), region)
    errors.add(np.array([[3.0, 50], [50, 6]]), np.zeros((2, 2)), region)
    assert (errors.n, errors.mae, errors.rmse) == (4, 3.0, pytest.approx(math.sqrt(50 / 4)))


def test_no_voxels() -> None:
    errors = HuErrors()
    assert math.isnan(errors.mae)
    assert math.isnan(errors.rmse)
