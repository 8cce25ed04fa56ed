"""Detection's outputs and answers for the effect of the case: the most certain boxes of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from automedbench.metrics.average_precision import Floats, Ints, paired_iou
from automedbench.tracks import EffectEvidence, ScoringInputs, track_settings
from automedbench.tracks.detection.score import DetectionEvidence, read_evidence

MAX_BOXES = 50
"""Boxes of an image that are compared, the most certain ones."""
SAME = 0.9
"""Overlap from which two sets of boxes are one, in pixels or in shares of the image."""
OTHER_CLASS = 0.5
"""What a box of the right place and another class is worth."""
Sides = tuple[Floats, Ints]
"""Corners and class numbers of an image's boxes."""


@dataclass(frozen=True)
class ImageBoxes:
    """Boxes of one image, the most certain first: corners (n, 4) in pixels and as shares of width and height, class
    numbers (n,), and how many of them are compared with answers (None: all).
    """

    pixels: Floats
    shares: Floats
    category: Ints
    compared: int | None = None


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Boxes of every completed image: over all images as many as there are true ones, by score."""
    evidence = read_evidence(inputs, track_settings(inputs.card).max_detections)
    measured = [number for number, (_, verdict) in enumerate(inputs.pairs) if verdict.completed]
    least = _least_score(evidence, measured)
    return EffectEvidence(
        outputs=[_predicted(evidence, number, least) for number in measured],
        answers=[_true(evidence, number) for number in measured],
        quality=quality,
        same=same,
    )


def quality(outputs: Sequence[ImageBoxes], answers: Sequence[ImageBoxes]) -> Floats:
    """Mutual overlap of boxes, (m, k), where a box of another class is worth ``OTHER_CLASS``.

    Finer than F1 at one threshold, so that a weak detector is told from one that does not look at the image.
    """
    chosen = [(each.shares[: each.compared], each.category[: each.compared]) for each in outputs]
    return mutual_overlap(chosen, _sides(answers), other_class=OTHER_CLASS)


def same(first: Sequence[ImageBoxes], second: Sequence[ImageBoxes]) -> NDArray[np.bool_]:
    """Whether two images have the same boxes, (m, k), at any scores: in pixels or in shares of the image."""
    counts = [np.array([len(each.category) for each in images]) for images in (first, second)]
    result = np.zeros((len(first), len(second)), bool)
    for count in set(counts[0]) & set(counts[1]):  # few images are compared where numbers of boxes differ
        rows, columns = (np.flatnonzero(each == count).tolist() for each in counts)
        result[np.ix_(rows, columns)] = _same([first[row] for row in rows], [second[column] for column in columns])
    return result


def _same(first: Sequence[ImageBoxes], second: Sequence[ImageBoxes]) -> NDArray[np.bool_]:
    """The same of images with equally many boxes."""
    shares = mutual_overlap(_sides(first), _sides(second), other_class=0.0)
    pixels = mutual_overlap(
        *([(each.pixels, each.category) for each in side] for side in (first, second)), other_class=0.0
    )
    return np.asarray(np.maximum(pixels, shares) >= SAME)


def mutual_overlap(first: Sequence[Sides], second: Sequence[Sides], *, other_class: float) -> Floats:
    """Mean over the boxes of both images of the IoU with the other's best box, (m, k).

    1 where both images have no box, 0 where only one has.
    """
    boxes = np.concatenate([np.empty((0, 4)), *(corners for corners, _ in first)])
    category = np.concatenate([np.empty(0, np.int64), *(classes for _, classes in first)])
    sizes = np.array([len(classes) for _, classes in first])
    result = np.empty((len(first), len(second)))
    for column, (others, classes) in enumerate(second):
        table = _iou(boxes, others) * np.where(np.equal.outer(category, classes), 1.0, other_class)
        best = _per_image(np.add, table.max(axis=1, initial=0.0), sizes)
        found = best + _per_image(np.maximum, table, sizes).sum(axis=1)
        counts = sizes + len(classes)
        result[:, column] = np.where(counts > 0, found / np.maximum(counts, 1), 1.0)
    return result


def _iou(boxes: Floats, others: Floats) -> Floats:
    rows, columns = np.indices((len(boxes), len(others))).reshape(2, -1)
    return paired_iou(boxes[rows], others[columns]).reshape(len(boxes), len(others))


def _per_image(combine: np.ufunc, values: Floats, sizes: Ints) -> Floats:
    """Values (boxes, …) combined over the boxes of each image; 0 for an image without boxes."""
    result = np.zeros((len(sizes), *values.shape[1:]))
    starts = (np.cumsum(sizes) - sizes)[sizes > 0]
    if len(starts):
        result[sizes > 0] = combine.reduceat(values, starts, axis=0)
    return result


def _sides(images: Sequence[ImageBoxes]) -> list[Sides]:
    return [(each.shares, each.category) for each in images]


def _least_score(evidence: DetectionEvidence, measured: Sequence[int]) -> float:
    """Score of the box that is reached when as many are taken as there are true ones in these images."""
    n_true = sum(len(evidence.truths[number].boxes) for number in measured)
    scores = sorted((box.score for number in measured for box in evidence.predictions[number].boxes), reverse=True)
    return scores[min(n_true, len(scores)) - 1] if scores and n_true else -np.inf


def _predicted(evidence: DetectionEvidence, number: int, least: float) -> ImageBoxes:
    found = sorted(evidence.predictions[number].boxes, key=lambda box: -box.score)[:MAX_BOXES]
    boxes = _boxes(evidence, number, [box.corners for box in found], [box.name for box in found])
    return replace(boxes, compared=sum(box.score >= least for box in found))


def _true(evidence: DetectionEvidence, number: int) -> ImageBoxes:
    boxes = evidence.truths[number].boxes[:MAX_BOXES]
    return _boxes(evidence, number, [(box.x1, box.y1, box.x2, box.y2) for box in boxes], [box.class_ for box in boxes])


def _boxes(
    evidence: DetectionEvidence, number: int, corners: Sequence[tuple[float, ...]], names: Sequence[str]
) -> ImageBoxes:
    truth = evidence.truths[number]
    pixels = np.array(corners, float).reshape(-1, 4)
    sides = np.array([truth.width, truth.height, truth.width, truth.height], float)
    return ImageBoxes(pixels, pixels / sides, np.array([evidence.classes.index(name) for name in names], np.int64))
