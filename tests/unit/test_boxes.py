"""Areas and overlaps of boxes."""

from __future__ import annotations

import numpy as np
import pytest

from automedbench.metrics.average_precision import area, make_boxes, paired_iou


def rows(*boxes: tuple[float, ...]) -> np.ndarray:
    return np.array(boxes, dtype=float).reshape(-1, 4)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param((0, 0, 0, 0), (0, 0, 0, 0), 0.0, id="both empty"),
        pytest.param((10, 10, 0, 0), (0, 0, 10, 10), 0.0, id="inverted"),
        pytest.param((0, 0, 10, 10), (0, 0, 10, 10), 1.0, id="identical"),
        pytest.param((0, 0, 10, 10), (10, 0, 20, 10), 0.0, id="touching: half-open, no +1"),
        pytest.param((0, 0, 10, 10), (30, 30, 40, 40), 0.0, id="apart"),
        pytest.param((0, 0, 10, 10), (2, 2, 7, 7), 0.25, id="inside: 25 / 100"),
        pytest.param((0, 0, 30, 10), (10, 0, 40, 10), 0.5, id="200 / 400"),
        pytest.param((0, 0, 10, 10), (5, 5, 15, 15), 25 / 175, id="corner: 25 / (100 + 100 - 25)"),
        pytest.param((-1e308, -1e308, 1e308, 1e308), (0, 0, 10, 10), 0.0, id="overflowing area"),
        pytest.param((-1e308, 5, 1e308, 5), (0, 0, 10, 10), 0.0, id="infinitely wide, no height"),
    ],
)
def test_paired_iou(a: tuple[float, ...], b: tuple[float, ...], expected: float) -> None:
    """By hand; symmetric."""
    assert paired_iou(rows(a), rows(b)).tolist() == [expected]
    assert paired_iou(rows(b), rows(a)).tolist() == [expected]


def test_no_boxes() -> None:
    """Empty in, empty out."""
    assert paired_iou(rows(), rows()).shape == (0,)
    assert area(rows()).shape == (0,)
    assert make_boxes([], [], []).xyxy.shape == (0, 4)


def test_area_of_each_row() -> None:
    """2 × 3, nothing, nothing."""
    assert area(rows((1, 1, 3, 4), (3, 1, 1, 4), (1, 1, 1, 4))).tolist() == [6.0, 0.0, 0.0]


def test_take_keeps_rows_together() -> None:
    """All four columns follow the same rows."""
    boxes = make_boxes([0, 1], [2, 3], [(0, 0, 1, 1), (0, 0, 2, 2)], [0.1, 0.9])
    second = boxes.take(np.array([1]))
    assert (second.image.tolist(), second.category.tolist(), second.score.tolist()) == ([1], [3], [0.9])
    assert second.xyxy.tolist() == [[0, 0, 2, 2]]
