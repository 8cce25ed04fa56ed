"""Detection: greedy matching and 101-point average precision over all boxes of a data set at once.

Definition: COCO's AP for one IoU threshold and all areas, with the recall grid exactly i/100 compared in integers
(recall ≥ k/100 ⇔ 100·TP ≥ k·N; a floating grid loses 1/101 where a recall equals a threshold).

Boxes are rows x1, y1, x2, y2 in continuous coordinates, half-open (no +1 pixel anywhere).
"""

from __future__ import annotations

from collections.abc import Sequence
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


RECALL_POINTS = 101
UNMATCHED = -1


@dataclass(frozen=True)
class Pairs:
    """Predictions and truth boxes that overlap enough to match, in the order in which they may match."""

    prediction: Ints
    reference: Ints
    iou: Floats


@dataclass(frozen=True)
class Matching:
    """Predictions by descending score, what each was matched to at one threshold, and AP per class.

    ``ranked`` (m,) are rows of the given predictions, at most ``max_detections`` of an image and class;
    ``matched`` (m,) is the row of the truth box or UNMATCHED; ``ap`` (n_classes,) is NaN for classes without truth.
    """

    ranked: Ints
    matched: Ints
    ap: Floats

    @property
    def mean_ap(self) -> float:
        """Mean over the classes with truth; NaN when there is none."""
        defined = self.ap[~np.isnan(self.ap)]
        return float(defined.mean()) if len(defined) else float("nan")


def evaluate_thresholds(
    predictions: Boxes, reference: Boxes, *, n_classes: int, iou_thresholds: Sequence[float], max_detections: int
) -> list[Matching]:
    """Match and score at each threshold, overlaps computed once; an image without boxes needs no row anywhere."""
    ranked = rank(predictions, max_detections)
    best = predictions.take(ranked)
    pairs = overlapping_pairs(best, reference, min(iou_thresholds))
    n_reference = np.bincount(reference.category, minlength=n_classes)
    results = []
    for threshold in iou_thresholds:
        matched = match(pairs, len(best), len(reference), threshold)
        results.append(Matching(ranked, matched, _ap_per_class(matched, best.category, n_reference)))
    return results


def rank(predictions: Boxes, max_detections: int) -> Ints:
    """Rows by descending score, then image, then row; only the best ``max_detections`` of each image and class."""
    group = _group(predictions, predictions)
    grouped = np.lexsort((-predictions.score, group))
    first = np.searchsorted(group[grouped], group[grouped], side="left")
    kept = np.sort(grouped[np.arange(len(grouped)) - first < max_detections])
    return kept[np.lexsort((predictions.image[kept], -predictions.score[kept]))]


def overlapping_pairs(best: Boxes, reference: Boxes, min_iou: float) -> Pairs:
    """All pairs of one image and class with IoU ≥ ``min_iou``: by rank, then IoU descending, then truth order."""
    group = _group(reference, best)
    order = np.argsort(group, kind="stable")
    wanted = _group(best, reference)
    first = np.searchsorted(group[order], wanted, side="left")
    count = np.searchsorted(group[order], wanted, side="right") - first
    prediction = np.repeat(np.arange(len(best)), count)
    place = np.arange(len(prediction)) - np.repeat(np.cumsum(count) - count, count)
    truth = order[np.repeat(first, count) + place]
    iou = paired_iou(best.xyxy[prediction], reference.xyxy[truth])
    near = np.flatnonzero(iou >= min_iou)
    near = near[np.lexsort((truth[near], -iou[near], prediction[near]))]
    return Pairs(prediction[near], truth[near], iou[near])


def _group(boxes: Boxes, other: Boxes) -> Ints:
    """One number (n,) per image and class, the same for both sets of boxes."""
    stride = max(boxes.category.max(initial=0), other.category.max(initial=0)) + 1
    group: Ints = boxes.image * stride + boxes.category
    return group


def match(pairs: Pairs, n_predictions: int, n_reference: int, iou_threshold: float) -> Ints:
    """Truth row of each prediction or UNMATCHED: in order of rank, each takes its best unused truth box."""
    enough = pairs.iou >= iou_threshold
    matched = [UNMATCHED] * n_predictions
    used = [False] * n_reference
    for prediction, truth in zip(pairs.prediction[enough].tolist(), pairs.reference[enough].tolist(), strict=True):
        if matched[prediction] == UNMATCHED and not used[truth]:
            matched[prediction] = truth
            used[truth] = True
    return np.array(matched, dtype=np.int64)


def average_precision(hits: NDArray[np.bool_], n_reference: int) -> float:
    """101-point AP of hits (n,) by descending score against ``n_reference`` > 0 truth boxes."""
    true_positives = np.cumsum(hits, dtype=np.int64)
    precision = true_positives / np.arange(1, len(hits) + 1)
    envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    needed = np.arange(RECALL_POINTS) * n_reference
    return float(envelope[np.searchsorted(100 * true_positives, needed)].mean())


def ratio(part: float, whole: float) -> float | None:
    """``part / whole``, or None where nothing was there to divide by."""
    return part / whole if whole else None


def precision_recall_f1(tp: int, n_predictions: int, n_reference: int) -> dict[str, float | None]:
    """Precision, recall and F1 of counted boxes; None where undefined (no predictions, no truth, neither)."""
    return {
        "precision": ratio(tp, n_predictions),
        "recall": ratio(tp, n_reference),
        "f1": ratio(2 * tp, n_predictions + n_reference),
    }


def _ap_per_class(matched: Ints, category: Ints, n_reference: Ints) -> Floats:
    ap = np.full(len(n_reference), np.nan)
    for number in np.flatnonzero(n_reference):
        ap[number] = average_precision(matched[category == number] != UNMATCHED, int(n_reference[number]))
    return ap
