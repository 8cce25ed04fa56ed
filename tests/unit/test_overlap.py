"""The joint histogram: counts by hand, equal to a plain count, Dice with its edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from automedbench.metrics.overlap import BothEmpty, JointHistogram, dice
from automedbench.tracks.segmentation.score import label_dice


def histogram(reference: Any, prediction: Any, n_labels: int, block: int = 10**9) -> JointHistogram:
    """Two label maps counted block by block."""
    table = JointHistogram(n_labels)
    for start in range(0, len(reference), block):
        table.add(np.asarray(reference[start : start + block]), np.asarray(prediction[start : start + block]))
    return table


def test_nothing() -> None:
    """No voxel at all."""
    assert histogram(np.zeros(0, np.uint8), np.zeros(0, np.uint8), 3).counts.sum() == 0
    assert JointHistogram(1).overlap().dice("one").tolist() == [1.0]


def test_by_hand() -> None:
    """Rows are the reference, columns the prediction; counted on paper."""
    reference = np.array([0, 0, 1, 1, 2, 2, 2, 0, 1], np.uint8)
    prediction = np.array([0, 1, 1, 2, 2, 2, 0, 0, 1], np.uint8)
    table = histogram(reference, prediction, 3)
    assert table.counts.tolist() == [[2, 1, 0], [0, 2, 1], [1, 0, 2]]
    overlap = table.overlap()
    assert overlap.reference.tolist() == [3, 3, 3]
    assert overlap.prediction.tolist() == [3, 3, 3]
    assert overlap.both.tolist() == [2, 2, 2]
    assert overlap.dice("one").tolist() == [pytest.approx(2 / 3)] * 3


MAPS = ["noise", "runs", "mostly empty", "one label", "empty prediction"]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("n_voxels", [1, 7, 8, 9, 64, 1003])
def test_equal_to_a_plain_count(kind: str, n_voxels: int, dtype: Any) -> None:
    """The word trick changes nothing, whatever the length, type and block size; expected values by np.add.at."""
    rng = np.random.default_rng(n_voxels)
    n_labels = 5
    maps = {
        "noise": rng.integers(0, n_labels, (2, n_voxels)),
        "runs": np.repeat(rng.integers(0, n_labels, (2, n_voxels // 10 + 1)), 10, axis=1)[:, :n_voxels],
        "mostly empty": np.where(rng.random((2, n_voxels)) < 0.02, 3, 0),
        "one label": np.full((2, n_voxels), 4),
        "empty prediction": np.stack([rng.integers(0, n_labels, n_voxels), np.zeros(n_voxels, int)]),
    }
    reference, prediction = maps[kind].astype(dtype)
    expected = np.zeros((n_labels, n_labels), int)
    np.add.at(expected, (reference.astype(int), prediction.astype(int)), 1)
    for block in (n_voxels, 13):
        np.testing.assert_array_equal(histogram(reference, prediction, n_labels, block).counts, expected)


@pytest.mark.parametrize(("n_labels", "dtype"), [(256, np.uint8), (300, np.uint16)])
def test_many_labels(n_labels: int, dtype: Any) -> None:
    """The product of labels exceeds their own type: 117 · 118 wraps in uint8 (notes on traps)."""
    reference = np.arange(n_labels).astype(dtype)
    table = histogram(reference, reference[::-1].copy(), n_labels)
    np.testing.assert_array_equal(table.counts, np.eye(n_labels, dtype=int)[::-1])


def test_strided_blocks() -> None:
    """Views that are not contiguous count the same."""
    both = np.array([[1, 0], [1, 1], [0, 1], [2, 2]] * 5, np.uint8)
    assert histogram(both[:, 0], both[:, 1], 3).counts.tolist() == [[0, 5, 0], [5, 5, 0], [0, 0, 5]]


@pytest.mark.parametrize(
    ("reference", "prediction"),
    [
        pytest.param([0, 1], [0, 1, 1], id="unequal lengths"),
        pytest.param([[0, 1]], [[0, 1]], id="not flat"),
        pytest.param([0, 3], [0, 0], id="label too large"),
        pytest.param([0, 0], [0, -1], id="negative label"),
    ],
)
def test_bad_blocks(reference: Any, prediction: Any) -> None:
    """Nothing is silently miscounted."""
    with pytest.raises(ValueError, match=r"blocks|label"):
        JointHistogram(3).add(np.array(reference), np.array(prediction))


def test_no_labels() -> None:
    with pytest.raises(ValueError, match="n_labels"):
        JointHistogram(0)


@pytest.mark.parametrize(
    ("both", "reference", "prediction", "one", "skip"),
    [
        pytest.param(0, 0, 0, 1.0, None, id="both empty"),
        pytest.param(0, 0, 5, 0.0, 0.0, id="reference empty"),
        pytest.param(0, 5, 0, 0.0, 0.0, id="prediction empty"),
        pytest.param(0, 5, 5, 0.0, 0.0, id="disjoint"),
        pytest.param(5, 5, 5, 1.0, 1.0, id="equal"),
        pytest.param(1, 3, 1, 0.5, 0.5, id="a third of it"),
        pytest.param(2**40, 2**40, 3 * 2**40, 0.5, 0.5, id="beyond 32 bits"),
    ],
)
def test_dice(both: int, reference: int, prediction: int, one: float, skip: float | None) -> None:
    """2·|R∩P| / (|R|+|P|) worked out by hand; the caller says what nothing at all is worth."""
    counts = [np.array([value]) for value in (both, reference, prediction)]
    policies: dict[BothEmpty, float | None] = {"one": one, "skip": skip}
    for policy, expected in policies.items():
        value = dice(counts[0], counts[1], counts[2], both_empty=policy)[0]
        assert np.isnan(value) if expected is None else value == expected


@pytest.mark.parametrize("policy", ["one", "skip"])
def test_equal_to_simpleitk(policy: BothEmpty) -> None:
    """Our twin on random maps in which labels 5 and 6 never occur; SimpleITK would call those 0."""
    rng = np.random.default_rng(1)
    reference, prediction = rng.integers(0, 5, (2, 6, 7, 8))
    reference[reference == 4] = 0
    own = histogram(reference.ravel(), prediction.ravel(), 7).overlap().dice(policy)[1:]
    twin = label_dice(reference, prediction, [1, 2, 3, 4, 5, 6], both_empty=policy)
    assert [None if np.isnan(value) else value for value in own] == [
        None if value is None else pytest.approx(value, abs=1e-12) for value in twin
    ]
