"""Detection: boxes with class and score per image; quality is mAP@0.5 over all expected images.

The metric is COCO's AP at one IoU threshold, averaged over the classes that have truth. A missing or unreadable
image has no predictions, so its truth boxes are misses; the caller multiplies by the completion rate on top.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, Model
from automedbench.datasets import get_reader
from automedbench.metrics.average_precision import evaluate_thresholds
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import (
    Judged,
    case_output,
    check_file,
    collected_bytes,
    not_as_collected,
    output_path,
    require_same_cases,
)
from automedbench.tracks.detection.check import Prediction, parse_prediction
from automedbench.tracks.detection.score import Evidence, Tables
from automedbench.tracks.detection.show import show_case as show
from automedbench.tracks.detection.stage import TRUTH, classes_of, read_truth, spellings, stage_images

__all__ = ["CASE_QUALITY", "QUALITY", "VERSION", "Settings", "check", "score", "show", "stage", "verify"]

VERSION = 1
QUALITY = "map50"
CASE_QUALITY = "f1"
# COCO's range of thresholds for the diagnostic mean, as exact hundredths.
COCO_THRESHOLDS = [hundredths / 100 for hundredths in range(50, 100, 5)]


class Settings(Model):
    """Metric settings of a detection card."""

    iou_threshold: float = Field(0.5, gt=0, le=1, description="a prediction matches from this overlap on")
    max_detections: int = Field(100, ge=1, description="best-scored boxes that count, per image and class")


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's image and truth and the private tables; the same card and data give the same bytes.

    Raises InfrastructureError for raw data that is absent, unreadable, of unknown class, or without a single box.
    """
    return stage_images(card, get_reader(card.staging.reader)(raw, card), public, private)


# --- format check ---------------------------------------------------------------------------------------------


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected ``prediction.json``; image sizes come from the manifest, nothing private is read."""
    names = spellings(card, with_source=False)
    output = case_output(card, "json")
    return [_check_case(case, output, submission, names) for case in manifest.cases]


def _check_case(case: CaseEntry, output: OutputFile, submission: Path, names: dict[str, str]) -> CaseSubmission:
    dropped = 0

    def judge(case: CaseEntry, data: bytes) -> Judged:
        nonlocal dropped
        prediction = _parse(data, case, names)
        dropped = prediction.dropped
        return prediction.problems, []

    return check_file(case, output, submission, judge).model_copy(update={"dropped": dropped})


def _parse(data: bytes, case: CaseEntry, names: dict[str, str]) -> Prediction:
    return parse_prediction(data, names, case.geometry["width"], case.geometry["height"])


# --- score ----------------------------------------------------------------------------------------------------


def score(inputs: ScoringInputs) -> TrackScore:
    """mAP@0.5 over all expected images, a table per class and per image, and the diagnostics.

    Raises InfrastructureError when truth is missing, does not fit the card, or holds no box.
    """
    settings: Settings = track_settings(inputs.card)
    evidence = _evidence(inputs, settings.max_detections)
    result, *coco = evaluate_thresholds(
        evidence.predicted,
        evidence.reference,
        n_classes=len(evidence.classes),
        iou_thresholds=[settings.iou_threshold, *COCO_THRESHOLDS],
        max_detections=settings.max_detections,
    )
    tables = Tables(evidence, result)
    quality = min(result.mean_ap, 1.0)
    return TrackScore(
        quality=quality,
        task_score=quality * inputs.checked.completion_rate,
        metrics=tables.overall() | {"map50_95": float(np.mean([each.mean_ap for each in coco]))},
        groups=tables.per_class(),
        cases=[tables.case(number, verdict) for number, verdict in enumerate(inputs.checked.cases)],
    )


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """mAP@0.5 again by pycocotools with the exact recall grid."""
    from automedbench.metrics.coco_twin import coco_average_precision, library

    settings: Settings = track_settings(inputs.card)
    evidence = _evidence(inputs, settings.max_detections)
    ap = coco_average_precision(
        evidence.predicted,
        evidence.reference,
        n_classes=len(evidence.classes),
        iou_threshold=settings.iou_threshold,
        max_detections=settings.max_detections,
    )
    return library(), float(np.nanmean(ap)), 1e-9


def _evidence(inputs: ScoringInputs, max_detections: int) -> Evidence:
    require_same_cases(inputs)
    card, cases = inputs.card, inputs.manifest.cases
    classes = classes_of(card)
    truths = [read_truth(inputs.private / case.id / TRUTH, case, classes) for case in cases]
    if not any(truth.boxes for truth in truths):
        raise InfrastructureError(f"{card.id}: the private data holds no truth box; stage the task again.")
    names, output = spellings(card, with_source=False), case_output(card, "json")
    predictions = [
        _read_prediction(case, output, inputs.submission, names).best(max_detections)
        if verdict.completed
        else Prediction([], [], 0)
        for case, verdict in zip(cases, inputs.checked.cases, strict=True)
    ]
    return Evidence(classes, truths, predictions)


def _read_prediction(case: CaseEntry, output: OutputFile, submission: Path, names: dict[str, str]) -> Prediction:
    """The boxes of one image that the format check found complete."""
    path = output_path(submission, output, case.id)
    try:
        return _parse(collected_bytes(path, output.max_bytes), case, names)
    except InvalidSubmission as error:
        raise not_as_collected(path, error) from error
