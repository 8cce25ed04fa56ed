"""Verification: mAP again by pycocotools."""

from __future__ import annotations

import contextlib
import io
from importlib.metadata import version
from typing import Any

import numpy as np

from automedbench.metrics.average_precision import Boxes, Floats, area
from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.detection.score import evidence_of
from automedbench.tracks.detection.settings import Settings


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """mAP@0.5 again by pycocotools with the exact recall grid."""
    settings: Settings = track_settings(inputs.card)
    evidence = evidence_of(inputs, settings.max_detections)
    ap = coco_average_precision(
        evidence.predicted,
        evidence.reference,
        n_classes=len(evidence.classes),
        iou_threshold=settings.iou_threshold,
        max_detections=settings.max_detections,
    )
    return library(), float(np.nanmean(ap)), 1e-9


def library() -> str:
    """Name and version of the library behind this module."""
    return f"pycocotools {version('pycocotools')}"


def coco_average_precision(
    predictions: Boxes, reference: Boxes, *, n_classes: int, iou_threshold: float, max_detections: int
) -> Floats:
    """AP (n_classes,) at one IoU threshold; NaN for classes without truth (and for all when there is none)."""
    if not len(reference):
        return np.full(n_classes, np.nan)
    from pycocotools.cocoeval import COCOeval

    images = range(int(max(predictions.image.max(initial=0), reference.image.max(initial=0))) + 1)
    with contextlib.redirect_stdout(io.StringIO()):
        # pycocotools takes the last of several truth boxes with equal IoU, our definition the first: hence reversed.
        truth = _coco(reference.take(np.arange(len(reference))[::-1]), images, n_classes)
        evaluation = COCOeval(truth, _coco(predictions, images, n_classes), "bbox")
        evaluation.params.iouThrs = np.array([iou_threshold])
        evaluation.params.recThrs = np.arange(101) / 100
        evaluation.params.maxDets = [max_detections]
        evaluation.params.areaRng = [[0.0, float("inf")]]
        evaluation.params.areaRngLbl = ["all"]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][0, :, :, 0, 0]
    ap: Floats = np.where((precision < 0).any(axis=0), np.nan, precision.mean(axis=0))
    return ap


def _coco(boxes: Boxes, images: range, n_classes: int) -> Any:
    from pycocotools.coco import COCO

    coco = COCO()
    coco.dataset = {
        "images": [{"id": image} for image in images],
        "categories": [{"id": number} for number in range(n_classes)],
        # Annotation ids start at 1: pycocotools reads a match with id 0 as no match.
        "annotations": [_annotation(boxes, row, size) for row, size in enumerate(area(boxes.xyxy).tolist())],
    }
    coco.createIndex()
    return coco


def _annotation(boxes: Boxes, row: int, size: float) -> dict[str, Any]:
    x1, y1, x2, y2 = boxes.xyxy[row].tolist()
    return {
        "id": row + 1,
        "image_id": int(boxes.image[row]),
        "category_id": int(boxes.category[row]),
        "bbox": [x1, y1, x2 - x1, y2 - y1],
        "area": size,
        "iscrowd": 0,
        "score": float(boxes.score[row]),
    }
