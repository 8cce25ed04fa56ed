"""The degradation along z: by hand on straight lines, and the figures that froze its definition."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from automedbench.datasets.forms.degradation import ZLinear, degrade_z, resize_z


def line(*values: float) -> np.ndarray:
    """A volume of one voxel by one with these slices."""
    return np.array(values, dtype=np.float32).reshape(1, 1, -1)


@pytest.mark.parametrize(
    ("values", "n_slices", "expected"),
    [
        pytest.param([5], 1, [5], id="one slice"),
        pytest.param([5], 3, [5, 5, 5], id="one slice repeated"),
        pytest.param([0, 8], 1, [4], id="mean of two: position 0.5"),
        # Positions (k + ½)·4/1 − ½ = 1.5: between the second and the third.
        pytest.param([0, 10, 30, 100], 1, [20], id="four to one: mean of the inner two"),
        # Positions (z + ½)/2 − ½ = −0.25 (kept at 0), 0.25, 0.75, 1.25 (kept at 1).
        pytest.param([0, 8], 4, [0, 2, 6, 8], id="two to four: edges repeat"),
        pytest.param([0, 1, 2, 3, 4, 5], 6, [0, 1, 2, 3, 4, 5], id="the same number: unchanged"),
        # Positions (k + ½)·3/2 − ½ = 0.25 and 1.75.
        pytest.param([0, 4, 8], 2, [1, 7], id="three to two"),
    ],
)
def test_resize(values: list[float], n_slices: int, expected: list[float]) -> None:
    assert resize_z(line(*values), n_slices).ravel().tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([7], [7], id="one slice stays"),
        pytest.param([0, 6, 2], [6, 6, 6], id="three: one low slice, in the middle"),
        # Low slices 1.5 and 5.5; back at −0.375 … 1.375 in eighths.
        pytest.param(range(8), [1.5, 1.5, 2, 3, 4, 5, 5.5, 5.5], id="a ramp of eight keeps its slope inside"),
        # round(6 / 4) = 2 (ties to even), round(10 / 4) = 2.
        pytest.param([0, 0, 0, 6, 6, 6], [0, 0, 2, 4, 6, 6], id="six slices: two low ones"),
    ],
)
def test_degrade(values: list[float], expected: list[float]) -> None:
    """A quarter of the slices and back, by hand."""
    assert degrade_z(line(*values), 4).ravel().tolist() == pytest.approx(expected)


def test_ties_go_to_the_even_number() -> None:
    """Ten slices give round(2.5) = 2 low ones: the input is made of two levels and a slope between them."""
    degraded = degrade_z(line(*[0] * 5, *[10] * 5), 4).ravel()
    assert (degraded[0], degraded[-1]) == (0, 10)
    assert len(set(np.diff(np.diff(degraded)).round(4).tolist())) > 1
    assert degraded[2] == pytest.approx(0)
    assert degraded[7] == pytest.approx(10)


def test_type_and_grid() -> None:
    """float32 of the same shape whatever comes in; the plane is untouched where slices are equal."""
    plane = np.arange(12, dtype=np.int16).reshape(3, 4)
    volume = np.repeat(plane[:, :, None], 9, axis=2)
    degraded = degrade_z(volume, 4)
    assert (degraded.dtype, degraded.shape) == (np.dtype(np.float32), (3, 4, 9))
    assert (degraded == volume).all()


def test_values_of_the_specification() -> None:
    """The test volume of the specification: its MAE after the degradation, all 12 slices (three low ones)."""
    x, y, z = np.meshgrid(*(np.arange(size) for size in (24, 20, 12)), indexing="ij")
    inside = ((x - 12) / 9) ** 2 + ((y - 10) / 7.5) ** 2 < 1
    volume = (-1000 + 1100 * inside + 150 * np.sin(0.7 * x) * np.cos(0.5 * y + 0.4 * z)).astype(np.float32)
    difference = degrade_z(volume, 4).astype(np.float64) - volume
    assert np.abs(difference).mean() == pytest.approx(16.1063, abs=5e-5)
    assert np.sqrt((difference**2).mean()) == pytest.approx(23.0635, abs=5e-5)


@pytest.mark.parametrize(
    "options", [{}, {"kind": "z_cubic"}, {"kind": "z_linear", "factor": 1}, {"kind": "z_linear", "blur": 1}]
)
def test_unknown_degradations(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ZLinear.model_validate(options)
