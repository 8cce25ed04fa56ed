"""Degradations: exact where there is a formula, statistical with wide margins where there is noise."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.datasets.forms.degradation import (
    Downsample,
    GaussianNoise,
    bicubic,
    degrade,
    generator,
    parse_degradation,
)


def random() -> np.random.Generator:
    return generator("task", "case_0001", 42)


# --- bicubic --------------------------------------------------------------------------------------------------


def keys(t: float) -> float:
    """Keys' cubic convolution kernel with a = -1/2."""
    t = abs(t)
    if t < 1:
        return 1.5 * t**3 - 2.5 * t**2 + 1
    return -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2 if t < 2 else 0.0


def test_reduction_is_keys_kernel_widened_by_two() -> None:
    """An impulse at column 17: reduced column j, whose centre lies at 2j + 0.5, sees it at distance (17 - 2j - 0.5)/2.

    The eight taps of a widened kernel sum to 2, so each weight is half the kernel's value. Rows work alike.
    """
    image = np.zeros((32, 32), np.float32)
    image[16, 17] = 1
    weights = {axis: np.array([keys((axis - 2 * j - 0.5) / 2) / 2 for j in range(16)]) for axis in (16, 17)}
    expected = np.outer(weights[16], weights[17])
    found = degrade(image, Downsample(kind="downsample"), random())
    assert found.shape == (16, 16)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_ramp_stays_a_ramp() -> None:
    """Cubic convolution reproduces straight lines; the border, where the kernel is cut off, is left out."""
    ramp = np.tile(np.arange(32.0), (32, 1))
    np.testing.assert_allclose(
        bicubic(ramp, (32, 16))[:, 3:-3], np.tile(np.arange(16) * 2 + 0.5, (32, 1))[:, 3:-3], atol=1e-5
    )
    np.testing.assert_allclose(bicubic(ramp, (32, 64))[0, 6:-6], (np.arange(64) / 2 - 0.25)[6:-6], atol=1e-5)


def test_overshoots_are_cut_where_the_card_says() -> None:
    step = np.zeros((32, 32), np.float32)
    step[:, 15:] = 1
    free = degrade(step, Downsample(kind="downsample"), random())
    cut = degrade(step, Downsample(kind="downsample", clip=(0, 1)), random())
    assert free.max() > 1 > 0 > free.min()
    np.testing.assert_array_equal(cut, np.clip(free, 0, 1))


@pytest.mark.parametrize("shape", [(33, 32), (32, 33)])
def test_odd_sides_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(InfrastructureError, match="cannot be reduced by 2"):
        degrade(np.zeros(shape, np.float32), Downsample(kind="downsample"), random())


# --- noise ----------------------------------------------------------------------------------------------------


def test_the_generator_is_seeded_by_task_case_and_seed() -> None:
    """PCG64 from the number that SHA-256 of ``task|case|seed`` is."""
    number = int(hashlib.sha256(b"task|case_0001|42").hexdigest(), 16)
    expected = np.random.Generator(np.random.PCG64(number)).random(4)
    assert generator("task", "case_0001", 42).random(4).tolist() == expected.tolist()
    others = [
        generator("task", "case_0002", 42),
        generator("other", "case_0001", 42),
        generator("task", "case_0001", 1),
    ]
    assert all(other.random() != expected[0] for other in others)


def test_gaussian_noise_has_its_sigma() -> None:
    """65 536 values: the standard error of sigma is 0.3 %, of the mean 0.4 % of sigma; margins are ten times that."""
    image = np.full((256, 256), 0.5, np.float32)
    noise = degrade(image, GaussianNoise(kind="gaussian_noise", sigma=0.05), random()) - 0.5
    assert noise.std() == pytest.approx(0.05, rel=0.03)
    assert abs(noise.mean()) < 0.002
    assert abs(np.corrcoef(noise[:, 1:].ravel(), noise[:, :-1].ravel())[0, 1]) < 0.05


def test_gaussian_noise_is_cut_to_the_range() -> None:
    image = np.zeros((64, 64), np.float32)
    noisy = degrade(image, GaussianNoise(kind="gaussian_noise", sigma=0.05, clip=(0, 1)), random())
    assert noisy.min() == 0
    assert 0.4 < (noisy == 0).mean() < 0.6  # the negative half


def disc(hu: float) -> np.ndarray:
    """A cylinder in air, 64×64 pixels of 4 mm: 23 cm across."""
    down, across = np.mgrid[0:64, 0:64] - 31.5
    return np.where(np.hypot(down, across) < 29, hu, -1000.0)


@pytest.mark.parametrize(
    "degradation",
    [
        pytest.param(Downsample(kind="downsample"), id="downsample"),
        pytest.param(GaussianNoise(kind="gaussian_noise", sigma=0.1), id="gaussian"),
    ],
)
def test_the_same_again(degradation: Any) -> None:
    image = disc(40).astype(np.float32)
    before = image.copy()
    assert degrade(image, degradation, random()).tobytes() == degrade(image, degradation, random()).tobytes()
    np.testing.assert_array_equal(image, before)


# --- card -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(None, "staging.degradation", id="absent"),
        pytest.param({}, "kind", id="empty"),
        pytest.param({"kind": "blur"}, "blur", id="unknown kind"),
        pytest.param({"kind": "downsample", "scale": 1}, "scale", id="scale 1"),
        pytest.param({"kind": "gaussian_noise"}, "sigma", id="no sigma"),
        pytest.param({"kind": "gaussian_noise", "sigma": -1}, "sigma", id="negative sigma"),
        pytest.param({"kind": "downsample", "clips": [0, 1]}, "clips", id="misspelt"),
    ],
)
def test_bad_cards_are_told(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_degradation(value, "a-task")


def test_good_cards_are_read() -> None:
    value = {"kind": "downsample", "description": "in words", "scale": 4, "clip": [0, 1]}
    assert parse_degradation(value, "a-task") == Downsample(
        kind="downsample", description="in words", scale=4, clip=(0, 1)
    )
