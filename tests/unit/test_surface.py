"""Surface distances: geometry worked out by hand, and equality with MONAI."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from automedbench.metrics.surface import (
    QUERY_WORK,
    Neighbours,
    SearchBudget,
    SurfaceDistances,
    Surfaces,
    find_surfaces,
    surface_distances,
)

SHAPE = (12, 10, 8)


def box(*sides: slice, shape: tuple[int, ...] = SHAPE, label: int = 1) -> Any:
    """A map with one box of one label."""
    labels = np.zeros(shape, np.uint8)
    labels[sides] = label
    return labels


def surfaces(labels: Any, **options: Any) -> Surfaces:
    """All surfaces of a map (x, y, z), handed over plane by plane as the reader gives them."""
    found = find_surfaces((labels[:, :, z].T for z in range(labels.shape[2])), **options)
    assert found is not None
    return found


def distances(reference: Any, prediction: Any, spacing: Any = (1, 1, 1), label: int = 1, **options: Any) -> Any:
    """Distances of one label of two maps."""
    sides = [surfaces(labels).of(label) for labels in (reference, prediction)]
    return surface_distances(sides[0], sides[1], shape=reference.shape, spacing_mm=spacing, **options)


EMPTY = np.zeros(SHAPE, np.uint8)
CUBE = box(slice(2, 7), slice(2, 7), slice(2, 7))


def test_surface_of_a_cube() -> None:
    """5³ voxels without the inner 3³ (by hand), in file order; none where the map is empty."""
    found = surfaces(CUBE)
    assert found.labels == (1,)
    assert found.of(1).size == 5**3 - 3**3
    assert found.of(1)[0] == 2 + 12 * (2 + 10 * 2)
    assert found.of(2).size == 0
    assert surfaces(EMPTY).labels == ()


def test_border_and_neighbours_are_surface() -> None:
    """A volume full of one label has the volume's border as its surface; a border between labels belongs to both."""
    full = np.ones((4, 4, 4), np.uint8)
    assert surfaces(full).of(1).size == 4**3 - 2**3
    halves = full.copy()
    halves[2:] = 2
    assert (surfaces(halves).of(1).size, surfaces(halves).of(2).size) == (32, 32)


def test_one_plane() -> None:
    """A single slice is all border."""
    assert surfaces(np.ones((3, 3, 1), np.uint8)).of(1).size == 9


def test_too_many() -> None:
    """Noise is given up."""
    assert find_surfaces((CUBE[:, :, z].T for z in range(8)), max_voxels=97) is None
    assert find_surfaces((CUBE[:, :, z].T for z in range(8)), max_voxels=98) is not None


@pytest.mark.parametrize(
    ("reference", "prediction", "hd95", "share"),
    [
        pytest.param(EMPTY, EMPTY, None, None, id="both empty"),
        pytest.param(EMPTY, CUBE, None, 0.0, id="reference empty"),
        pytest.param(CUBE, EMPTY, None, 0.0, id="prediction empty"),
        pytest.param(CUBE, CUBE, 0.0, 1.0, id="equal"),
        # One voxel against one voxel 3 along x and 4 along y.
        pytest.param(box(1, 1, 1), box(4, 5, 1), 5.0, 0.0, id="two voxels, 5 mm apart"),
        # Two planes 2 apart: every distance is 2.
        pytest.param(box(2), box(4), 2.0, 1.0, id="parallel planes at the tolerance"),
        pytest.param(box(2), box(5), 3.0, 0.0, id="parallel planes beyond the tolerance"),
    ],
)
def test_by_hand(reference: Any, prediction: Any, hd95: float | None, share: float | None) -> None:
    """Spacing 1 mm, tolerance 2 mm."""
    found = distances(reference, prediction)
    assert found.hausdorff95() == (None if hd95 is None else pytest.approx(hd95))
    assert found.surface_dice(2.0) == (None if share is None else pytest.approx(share))


def test_spacing() -> None:
    """Millimetres along each axis: 2 voxels of 0.7 mm; a distance that equals the tolerance is within it."""
    found = distances(box(2), box(5), (0.7, 1.0, 2.5))
    assert found.hausdorff95() == pytest.approx(2.1)
    assert found.surface_dice(2.1) == 1.0
    assert found.surface_dice(2.09) == 0.0
    assert distances(box(1, 1, 1), box(1, 1, 3), (0.7, 1.0, 2.5)).hausdorff95() == pytest.approx(5.0)


def test_percentile() -> None:
    """Linear interpolation at rank 0.95 (n - 1), the larger of both sides; an infinite value in reach makes it None."""
    side = np.arange(21.0)  # rank 19
    assert SurfaceDistances(side, np.zeros(3)).hausdorff95() == pytest.approx(19.0)
    assert SurfaceDistances(np.arange(11.0), side).hausdorff95() == pytest.approx(19.0)
    assert SurfaceDistances(np.arange(11.0), np.zeros(1)).hausdorff95() == pytest.approx(9.5)
    side[20] = np.inf
    assert SurfaceDistances(side, np.zeros(3)).hausdorff95() == pytest.approx(19.0)
    side[19] = np.inf
    assert SurfaceDistances(side, np.zeros(3)).hausdorff95() is None


def test_surface_dice_looks_at_both_sides() -> None:
    """3 of 4 voxels of the reference and none of 2 of the prediction are within 1 mm: 3 / 6."""
    found = SurfaceDistances(np.array([0.0, 0.5, 1.0, 9.0]), np.array([2.0, 9.0]))
    assert found.surface_dice(1.0) == pytest.approx(0.5)


def test_bounds() -> None:
    """Far distances are looked up only while the allowance lasts; near ones are exact all the same."""
    near, far = box(2), box(11)
    exact = distances(near, far)
    budget = SearchBudget(10**6)
    bounded = distances(near, far, near_mm=4.0, budget=budget)
    assert bounded.hausdorff95() == exact.hausdorff95() == pytest.approx(9.0)
    assert 0 < budget.spent <= 10**6
    # 80 voxels a side: nothing lies within 4 mm, which costs each query a leaf at most and leaves nothing for the rest.
    given_up = distances(near, far, near_mm=4.0, budget=SearchBudget(1000))
    assert (given_up.hausdorff95(), given_up.surface_dice(2.0)) == (None, 0.0)
    assert math.isinf(given_up.from_reference.max())
    assert distances(near, far, near_mm=4.0, budget=SearchBudget(10)) is None


@pytest.fixture(scope="module")
def surrounded() -> tuple[Any, Any]:
    """A thin shell around noise: every voxel of the one has most of the other at about the same distance."""
    size = 100
    radius = np.sqrt(((np.indices((size,) * 3) - size // 2) ** 2).sum(axis=0))
    shell = (radius > 0.42 * size) & (radius < 0.44 * size)
    noise = (radius < 0.27 * size) & (np.random.default_rng(0).random(radius.shape) < 0.5)
    return shell.astype(np.uint8), noise.astype(np.uint8)


def test_a_surface_around_the_other(surrounded: tuple[Any, Any]) -> None:
    """Also what lies near is bounded: 40 000 noisy voxels in a shell of 39 000 would open 290 leaves each."""
    assert distances(*surrounded, near_mm=32.0, budget=SearchBudget(10**6)) is None


def test_an_honest_error_is_measured() -> None:
    """The same limit lets 20 000 + 20 000 surface voxels of a ball 3 voxels off pass; values as without a limit."""
    grid = np.indices((110, 110, 110)) - 55
    ball = ((grid**2).sum(axis=0) < 45**2).astype(np.uint8)
    moved = np.roll(ball, 3, axis=0)
    budget = SearchBudget(10**6)
    found = distances(ball, moved, near_mm=32.0, budget=budget)
    exact = distances(ball, moved)
    assert 0 < budget.spent <= 10**6
    assert found.hausdorff95() == exact.hausdorff95()
    assert 2.0 <= found.hausdorff95() <= 3.0  # no voxel is further than the shift
    np.testing.assert_array_equal(found.from_prediction, exact.from_prediction)


def test_work_is_what_a_search_does(surrounded: tuple[Any, Any]) -> None:
    """By hand: one leaf, one query; from the middle of a sphere all leaves are opened, from outside few."""
    points = np.argwhere(surrounded[0]).astype(np.float64)
    one = Neighbours(points[:20])
    assert one.work(points[:1], limit=1.0) == QUERY_WORK + 1
    assert one.work(points[:0], limit=1.0) == 0
    shell = Neighbours(points)
    fewest = len(points) / 32
    assert shell.work(np.full((1, 3), 50.0), limit=1.0) >= QUERY_WORK + fewest
    assert shell.work(np.full((1, 3), 50.0), 10.0, limit=1.0) < fewest
    assert shell.work(np.array([[50.0, 50.0, 95.0]]), limit=1.0) < fewest / 4


@pytest.mark.parametrize("spacing", [(1, 1), (0, 1, 1), (1, 1, math.nan)])
def test_bad_spacing(spacing: Any) -> None:
    with pytest.raises(ValueError, match="spacing"):
        distances(CUBE, CUBE, spacing)


@pytest.mark.filterwarnings("ignore")  # MONAI's own use of what MONAI deprecates
def test_equal_to_monai() -> None:
    """Random maps, spacings and tolerances: HD95 and NSD within MONAI's single precision (1e-5)."""
    pytest.importorskip("monai")
    import torch
    from monai.metrics import compute_hausdorff_distance, compute_surface_dice

    rng = np.random.default_rng(5)
    for _ in range(12):
        shape = tuple(rng.integers(4, 16, 3))
        spacing = tuple(rng.uniform(0.4, 3.0, 3))
        maps = [(rng.random(shape) < rng.uniform(0.05, 0.9)).astype(np.uint8) for _ in range(2)]
        tolerance = float(rng.uniform(0.3, 3.0))
        found = distances(*maps, spacing)
        truth, guess = (torch.from_numpy(labels)[None, None] for labels in maps)
        options: dict[str, Any] = {"include_background": True, "spacing": spacing}
        hd95 = float(compute_hausdorff_distance(guess, truth, percentile=95, **options))
        share = float(compute_surface_dice(guess, truth, [tolerance], **options))
        assert found.hausdorff95() == pytest.approx(hd95, abs=1e-5)
        assert found.surface_dice(tolerance) == pytest.approx(share, abs=1e-5)
