"""Axis-aligned boxes as rows x1, y1, x2, y2 in continuous coordinates, half-open (no +1 pixel anywhere)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Boxes:
    """``n`` boxes of a whole data set: image and class number (n,), coordinates (n, 4); ``score`` (n,) of predictions.

    Numbers of images and classes start at 0. Where scores are equal, the lower image number ranks first, then the row.
    """

    image: Ints
    category: Ints
    xyxy: Floats
    score: Floats

    def __len__(self) -> int:
        return len(self.image)

    def take(self, rows: NDArray[Any]) -> Boxes:
        """The boxes of the given rows, in that order."""
        return Boxes(self.image[rows], self.category[rows], self.xyxy[rows], self.score[rows])


def make_boxes(image: Any, category: Any, xyxy: Any, score: Any = None) -> Boxes:
    """Boxes from sequences; the score of truth boxes is left out and reads 1."""
    images = np.asarray(image, dtype=np.int64)
    scores = np.ones(len(images)) if score is None else np.asarray(score, dtype=np.float64)
    return Boxes(
        images, np.asarray(category, dtype=np.int64), np.asarray(xyxy, dtype=np.float64).reshape(-1, 4), scores
    )


def area(xyxy: Floats) -> Floats:
    """Areas (n,) of boxes (n, 4); a box without positive extent has area 0, an overflowing one infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        sides = np.maximum(xyxy[:, 2:] - xyxy[:, :2], 0.0)
        # An infinite side times a zero side is no number; such a box is empty.
        return np.where((sides > 0).all(axis=1), sides[:, 0] * sides[:, 1], 0.0)


def paired_iou(a: Floats, b: Floats) -> Floats:
    """Intersection over union (n,) of the boxes (n, 4) in the same row; touching or empty boxes give 0."""
    shared = area(np.concatenate([np.maximum(a[:, :2], b[:, :2]), np.minimum(a[:, 2:], b[:, 2:])], axis=1))
    with np.errstate(over="ignore"):
        union = area(a) + area(b) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0)
