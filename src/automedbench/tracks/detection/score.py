"""Detection's report: all boxes of a run as arrays, and the tables per class and per image made from the matches."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseScore, CaseSubmission, Prior
from automedbench.metrics.average_precision import (
    UNMATCHED,
    Boxes,
    Floats,
    Matching,
    area,
    evaluate_thresholds,
    make_boxes,
    precision_recall_f1,
)
from automedbench.tracks import Metrics, ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import case_output, read_collected
from automedbench.tracks.common.staging import spellings
from automedbench.tracks.detection.check import Prediction, parse_case
from automedbench.tracks.detection.settings import DetectionSettings
from automedbench.tracks.detection.stage import TRUTH, BoxTruth, list_classes, read_truth

# COCO's range of thresholds for the diagnostic mean, as exact hundredths.
COCO_THRESHOLDS = [hundredths / 100 for hundredths in range(50, 100, 5)]


@dataclass(frozen=True)
class DetectionEvidence:
    """Truth and predictions of every expected case, in manifest order."""

    classes: list[str]
    truths: list[BoxTruth]
    predictions: list[Prediction]

    @cached_property
    def reference(self) -> Boxes:
        """All truth boxes; the image number is the place of the case."""
        rows = [(number, box) for number, truth in enumerate(self.truths) for box in truth.boxes]
        numbers = {name: number for number, name in enumerate(self.classes)}
        return make_boxes(
            [number for number, _ in rows],
            [numbers[box.class_] for _, box in rows],
            [(box.x1, box.y1, box.x2, box.y2) for _, box in rows],
        )

    @cached_property
    def predicted(self) -> Boxes:
        """All predicted boxes, in file order."""
        rows = [(number, box) for number, prediction in enumerate(self.predictions) for box in prediction.boxes]
        numbers = {name: number for number, name in enumerate(self.classes)}
        return make_boxes(
            [number for number, _ in rows],
            [numbers[box.name] for _, box in rows],
            [box.corners for _, box in rows],
            [box.score for _, box in rows],
        )

    def match(self, boxes: Boxes, settings: DetectionSettings, more: Sequence[float] = ()) -> list[Matching]:
        """Matchings of boxes with the truth: at the card's IoU threshold, and at more of them."""
        return evaluate_thresholds(
            boxes,
            self.reference,
            n_classes=len(self.classes),
            iou_thresholds=[settings.iou_threshold, *more],
            max_detections=settings.max_detections,
        )


class Tables:
    """Tables of one matching: of the run, each class and each image. Only boxes that count are listed."""

    def __init__(self, evidence: DetectionEvidence, result: Matching) -> None:
        self._evidence = evidence
        self._ap = result.ap
        self._counted = evidence.predicted.take(result.ranked)
        self._hit = result.matched != UNMATCHED
        self._found = np.zeros(len(evidence.reference), dtype=bool)
        self._found[result.matched[self._hit]] = True

    def overall(self) -> Metrics:
        """Mean AP and the micro averages over all boxes of all classes."""
        defined = self._ap[~np.isnan(self._ap)]
        counts = _counts(self._hit, len(self._evidence.reference))
        micro = {f"micro_{name}": counts.pop(name) for name in ("precision", "recall", "f1")}
        dropped = sum(prediction.dropped for prediction in self._evidence.predictions)
        return {"map50": float(defined.mean()), **micro, **counts, "dropped": dropped}

    def per_class(self) -> dict[str, Metrics]:
        """AP (null without truth) and counts of every class of the card."""
        return {name: self._class(number) for number, name in enumerate(self._evidence.classes)}

    def _class(self, number: int) -> Metrics:
        ap = float(self._ap[number])
        n_truth = int((self._evidence.reference.category == number).sum())
        return {"ap50": None if np.isnan(ap) else ap, **_counts(self._hit[self._counted.category == number], n_truth)}

    def case(self, number: int, verdict: CaseSubmission) -> CaseScore:
        """Counts of one image, its predicted boxes with whether they matched, and its truth for comparison."""
        rows = np.flatnonzero(self._counted.image == number)
        truth = self._evidence.truths[number]
        found = self._found[self._evidence.reference.image == number].tolist()
        return CaseScore(
            case=verdict.case,
            status=verdict.status,
            metrics={**_counts(self._hit[rows], len(truth.boxes)), "dropped": verdict.dropped},
            detail={
                "width": truth.width,
                "height": truth.height,
                "boxes": [self._detail_entry(row) for row in rows.tolist()],
                "reference": [
                    {**_drawn(box.class_, (box.x1, box.y1, box.x2, box.y2)), "matched": matched}
                    for box, matched in zip(truth.boxes, found, strict=True)
                ],
            },
        )

    def _detail_entry(self, row: int) -> dict[str, Any]:
        name = self._evidence.classes[int(self._counted.category[row])]
        corners = self._counted.xyxy[row].tolist()
        return {**_drawn(name, corners), "score": float(self._counted.score[row]), "matched": bool(self._hit[row])}


def score(inputs: ScoringInputs) -> TrackScore:
    """mAP@0.5 over all expected images, a table per class and per image, and the diagnostics.

    Raises InfrastructureError when truth is missing, does not fit the card, or holds no box.
    """
    settings: DetectionSettings = track_settings(inputs.card)
    evidence = read_evidence(inputs, settings.max_detections)
    result, *coco = evidence.match(evidence.predicted, settings, COCO_THRESHOLDS)
    tables = Tables(evidence, result)
    quality = min(result.mean_ap, 1.0)
    return TrackScore(
        quality=quality,
        task_score=quality * inputs.checked.completion_rate,
        metrics=tables.overall() | {"map50_95": float(np.mean([each.mean_ap for each in coco]))},
        groups=tables.per_class(),
        cases=[tables.case(number, verdict) for number, verdict in enumerate(inputs.checked.cases)],
        prior=prior(evidence, settings),
    )


def prior(evidence: DetectionEvidence, settings: DetectionSettings) -> Prior:
    """One box per class in every image: the median of the class's truth boxes, as shares of width and height."""
    truth, n_images = evidence.reference, len(evidence.truths)
    sides = np.array([(one.width, one.height, one.width, one.height) for one in evidence.truths], dtype=float)
    present = np.unique(truth.category)
    places = [np.median((truth.xyxy / sides[truth.image])[truth.category == number], axis=0) for number in present]
    constant = make_boxes(
        np.repeat(np.arange(n_images), len(present)),
        np.tile(present, n_images),
        np.concatenate([np.stack(places) * side for side in sides]),
        np.ones(n_images * len(present)),
    )
    (result,) = evidence.match(constant, settings)
    return Prior(answers="one box per class, at the same place of every image", value=min(result.mean_ap, 1.0))


def read_evidence(inputs: ScoringInputs, max_detections: int) -> DetectionEvidence:
    """Truth and prediction of every expected image; raises InfrastructureError when there is no truth box at all."""
    card, pairs = inputs.card, inputs.pairs
    classes = list_classes(card)
    truths = [read_truth(inputs.private / case.id / TRUTH, case, classes) for case, _ in pairs]
    if not any(truth.boxes for truth in truths):
        raise InfrastructureError(f"{card.id}: the private data contains no truth box; stage the task again.")
    names, output = spellings(card), case_output(card, "json")
    predictions = [
        read_collected(inputs.submission, output, case.id, functools.partial(parse_case, case=case, names=names)).best(
            max_detections
        )
        if verdict.completed
        else Prediction([], [], 0)
        for case, verdict in pairs
    ]
    return DetectionEvidence(classes, truths, predictions)


def _counts(hit: Any, n_truth: int) -> Metrics:
    """Counts and rates of a group of predictions (which of them hit) against its number of truth boxes."""
    tp, n_predictions = int(hit.sum()), len(hit)
    counts: Metrics = {
        "n_truth": n_truth,
        "n_predictions": n_predictions,
        "tp": tp,
        "fp": n_predictions - tp,
        "fn": n_truth - tp,
    }
    return counts | precision_recall_f1(tp, n_predictions, n_truth)


def _drawn(name: str, corners: Any) -> dict[str, Any]:
    return {"class": name, **dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True))}


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """mAP@0.5 again by pycocotools with the exact recall grid."""
    settings: DetectionSettings = track_settings(inputs.card)
    evidence = read_evidence(inputs, settings.max_detections)
    ap = coco_average_precision(
        evidence.predicted,
        evidence.reference,
        n_classes=len(evidence.classes),
        iou_threshold=settings.iou_threshold,
        max_detections=settings.max_detections,
    )
    return f"pycocotools {version('pycocotools')}", float(np.nanmean(ap)), 1e-9


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
