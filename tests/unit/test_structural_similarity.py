"""SSIM by planes and by volume: by hand, against scikit-image on random input, and the edges where libraries differ."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage.metrics import structural_similarity

from automedbench.metrics import structural_similarity as module
from automedbench.metrics.structural_similarity import (
    HuErrors,
    PlaneSsim,
    VolumeSsim,
)

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


def planes(volume: Array) -> list[Array]:
    return [volume[:, :, k] for k in range(volume.shape[2])]


def plane_ssim(prediction: Array, reference: Array, **options: Any) -> float:
    return PlaneSsim(prediction.shape, **options).compare(prediction, reference).mean


def mean_plane_ssim(pairs: Iterable[tuple[Array, Array]], **options: Any) -> float:
    return float(np.mean([plane_ssim(prediction, reference, **options) for prediction, reference in pairs]))


def volume_ssim(pairs: Iterable[tuple[Array, Array]], **options: Any) -> float:
    similarity: VolumeSsim | None = None
    for prediction, reference in pairs:
        similarity = similarity or VolumeSsim(prediction.shape, **options)
        similarity.add(prediction, reference)
    assert similarity is not None
    return similarity.mean()


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
    value = plane_ssim(np.full(shape, prediction), np.full(shape, reference), data_range=R)
    assert value == pytest.approx(expected, abs=1e-14)


def test_one_window_by_hand() -> None:
    """A single 7 × 7 window: x is 49 in one voxel, y is 49 in another; R = 100.

    Means 1 and 1. Sums of squares 49² each, of products 0; with divisor 48 the variances are (49² − 49) / 48 = 49, the
    covariance is −49 / 48. C1 = 1, C2 = 9: SSIM = (2 + 1)(−49/24 + 9) / ((2 + 1)(98 + 9)).
    """
    x, y = np.zeros((7, 7)), np.zeros((7, 7))
    x[1, 2], y[5, 5] = 49, 49
    assert plane_ssim(x, y, data_range=100) == pytest.approx((9 - 49 / 24) / 107, abs=1e-15)


def test_identical_images_score_exactly_one() -> None:
    _, reference = noisy((40, 33, 9), 1)
    pairs = [(plane, plane) for plane in planes(reference)]
    assert mean_plane_ssim(pairs, data_range=R, clip=HU) == 1
    assert volume_ssim(pairs, data_range=R, clip=HU) == 1


def test_clipping() -> None:
    """Whatever lies beyond the window on the same side is equal."""
    low, high = np.full((8, 8), -1024), np.full((8, 8), -5000)
    assert plane_ssim(high, low, data_range=R, clip=HU) == 1
    assert plane_ssim(high, low, data_range=R) < 0.5


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
        pytest.param((300, 210), 7, id="several bands"),
    ],
)
def test_planes_equal_scikit_image(shape: tuple[int, int], window: int, order: Any) -> None:
    prediction, reference = (np.asarray(image, order=order) for image in noisy(shape, 2))
    value = plane_ssim(prediction, reference, data_range=R, window=window, clip=HU)
    assert value == pytest.approx(skimage_ssim(prediction, reference, window), abs=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        pytest.param((7, 7, 7), 7, id="one window"),
        pytest.param((9, 30, 8), 7, id="two layers of windows"),
        pytest.param((20, 12, 15), 5, id="window 5"),
        pytest.param((140, 90, 10), 7, id="several bands"),
    ],
)
def test_volumes_equal_scikit_image(shape: tuple[int, int, int], window: int, order: Any) -> None:
    prediction, reference = (np.asarray(image, order=order) for image in noisy(shape, 3))
    pairs = zip(planes(prediction), planes(reference), strict=True)
    value = volume_ssim(pairs, data_range=R, window=window, clip=HU)
    assert value == pytest.approx(skimage_ssim(prediction, reference, window), abs=1e-12)


@pytest.mark.parametrize("band", [1, 100, 1_000, 10**9])
def test_bands_do_not_show(band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a plane is cut into bands, the value is the same."""
    monkeypatch.setattr(module, "_BAND_ELEMENTS", band)
    prediction, reference = noisy((41, 37, 9), 4)
    pairs = list(zip(planes(prediction), planes(reference), strict=True))
    by_plane = np.mean([skimage_ssim(*pair) for pair in pairs])
    assert mean_plane_ssim(pairs, data_range=R, clip=HU) == pytest.approx(by_plane, abs=1e-12)
    assert volume_ssim(pairs, data_range=R, clip=HU) == pytest.approx(skimage_ssim(prediction, reference), abs=1e-12)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4", "f8", ">i2", ">f4"])
def test_any_type_of_number(dtype: str) -> None:
    """Nothing wraps around, and byte order is no matter."""
    prediction, reference = (np.clip(image, 0, 255).astype(dtype) for image in noisy((30, 30), 5, 100))
    value = plane_ssim(prediction, reference, data_range=255)
    expected = structural_similarity(reference.astype(float), prediction.astype(float), win_size=7, data_range=255)
    assert value == pytest.approx(expected, abs=1e-12)


def test_map_and_region() -> None:
    """The map is scikit-image's without its border; a region averages windows whose centre lies in it."""
    prediction, reference = noisy((40, 52), 6)
    similarity = PlaneSsim((40, 52), data_range=R, clip=HU)
    clipped = (np.clip(image.astype(np.float64), *HU) for image in (reference, prediction))
    _, full = structural_similarity(*clipped, win_size=7, data_range=R, full=True)
    assert similarity.compare(prediction, reference).mean == pytest.approx(full[3:-3, 3:-3].mean(), abs=1e-12)

    region = np.zeros((40, 52), bool)
    region[:10, 5:30] = True  # partly on the border, where there are no windows
    for order in ("C", "F"):
        arrays = [np.asarray(array, order=order) for array in (prediction, reference, region)]
        found = similarity.compare(*arrays)
        assert found.n_roi == 7 * 25
        assert found.roi_total / found.n_roi == pytest.approx(full[3:10, 5:30].mean(), abs=1e-12)
        assert found.mean == pytest.approx(full[3:-3, 3:-3].mean(), abs=1e-12)


def test_empty_region() -> None:
    prediction, reference = noisy((10, 10), 7)
    found = PlaneSsim((10, 10), data_range=R).compare(prediction, reference, np.zeros((10, 10), bool))
    assert (found.roi_total, found.n_roi) == (0, 0)


def test_memory_does_not_grow_with_the_slices() -> None:
    """200 slices of 128 × 128 need about as much as 20: scikit-image would hold 32 MB for each copy of 200."""

    def peak(n_slices: int) -> int:
        prediction, reference = noisy((128, 128), 8)
        tracemalloc.start()
        volume_ssim(((prediction, reference) for _ in range(n_slices)), data_range=R, clip=HU)
        mean_plane_ssim(((prediction, reference) for _ in range(n_slices)), data_range=R, clip=HU)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    few, many = peak(20), peak(200)
    assert many < few * 1.1
    assert many < 8_000_000


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        pytest.param((6, 9), {"data_range": R}, "smaller than the window", id="plane too small"),
        pytest.param((9, 9), {"data_range": 0}, "data_range", id="no data range"),
        pytest.param((9, 9), {"data_range": -1}, "data_range", id="negative data range"),
        pytest.param((9, 9), {"data_range": math.nan}, "data_range", id="NaN for a data range"),
        pytest.param((9, 9), {"data_range": math.inf}, "data_range", id="infinite data range"),
        pytest.param((9, 9), {"data_range": R, "window": 4}, "odd", id="even window"),
        pytest.param((9, 9), {"data_range": R, "window": 1}, "odd", id="window of one voxel"),
    ],
)
def test_options_without_sense(shape: tuple[int, int], options: dict[str, Any], message: str) -> None:
    for kind in (PlaneSsim, VolumeSsim):
        with pytest.raises(ValueError, match=message):
            kind(shape, **options)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes"):
        plane_ssim(np.zeros((9, 8)), np.zeros((8, 9)), data_range=R)
    with pytest.raises(ValueError, match="shapes"):
        volume_ssim([(np.zeros((9, 9)), np.zeros((9, 8)))], data_range=R)


@pytest.mark.parametrize("n_slices", [0, 1, 6])
def test_volumes_thinner_than_the_window(n_slices: int) -> None:
    """scikit-image raises as well."""
    similarity = VolumeSsim((9, 9), data_range=R)
    for _ in range(n_slices):
        similarity.add(np.zeros((9, 9)), np.zeros((9, 9)))
    with pytest.raises(ValueError, match=r"slices|window"):
        similarity.mean()


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
