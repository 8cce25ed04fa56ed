"""Detection: boxes with class and score per image; quality is mAP@0.5 over all expected images.

The metric is COCO's AP at one IoU threshold, averaged over the classes that have truth. A missing or unreadable
image has no predictions, so its truth boxes are misses; the caller multiplies by the completion rate on top.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from automedbench.cards import OutputFile, TaskCard
from automedbench.datasets import get_reader
from automedbench.errors import ConfigError, InfrastructureError, InvalidSubmission
from automedbench.metrics.average_precision import evaluate_thresholds
from automedbench.records import CaseEntry, CaseSubmission, FileEntry, Manifest, Model, Problem, SubmissionRecord
from automedbench.tracks import TrackScore, track_settings
from automedbench.tracks._detection_prediction import Prediction, parse_prediction
from automedbench.tracks._detection_report import Evidence, Tables
from automedbench.tracks._detection_truth import TRUTH, classes_of, file_entry, read_truth, spellings, stage_images
from automedbench.untrusted import read_bounded

VERSION = 1
QUALITY = "map50"
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
    output = _output(card)
    return [_check_case(case, output, submission, names) for case in manifest.cases]


def _output(card: TaskCard) -> OutputFile:
    outputs = [output for output in card.outputs if "{case}" in output.path and output.format == "json"]
    if len(outputs) != 1:
        raise ConfigError([f"{card.id}: outputs: detection needs exactly one JSON file with {{case}} in its path"])
    return outputs[0]


def _check_case(case: CaseEntry, output: OutputFile, submission: Path, names: dict[str, str]) -> CaseSubmission:
    path = output.path.replace("{case}", case.id)
    files: dict[str, FileEntry] = {}
    try:
        data = read_bounded(submission / "agents_outputs" / path, output.max_bytes)
        if data is None:
            return _verdict(case, "missing", [Problem(code="not_found", message=f"{path} was not submitted")])
        files = {path: file_entry(data)}
        prediction = parse_prediction(data, names, case.geometry["width"], case.geometry["height"])
    except InvalidSubmission as error:
        return _verdict(case, "malformed", [Problem(code=error.code, message=f"{path} {error}")], files)
    return CaseSubmission(
        case=case.id,
        status="malformed" if prediction.problems else "valid",
        completed=True,
        problems=prediction.problems,
        files=files,
        dropped=prediction.dropped,
    )


def _verdict(
    case: CaseEntry,
    status: Literal["malformed", "missing"],
    problems: list[Problem],
    files: dict[str, FileEntry] | None = None,
) -> CaseSubmission:
    return CaseSubmission(case=case.id, status=status, completed=False, problems=problems, files=files or {})


# --- score ----------------------------------------------------------------------------------------------------


def score(card: TaskCard, manifest: Manifest, submission: Path, private: Path, checked: SubmissionRecord) -> TrackScore:
    """mAP@0.5 over all expected images, a table per class and per image, and the diagnostics.

    Raises InfrastructureError when truth is missing, does not fit the card, or holds no box.
    """
    settings: Settings = track_settings(card)
    evidence = _evidence(card, manifest, submission, private, checked, settings.max_detections)
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
        task_score=quality * checked.completion_rate,
        metrics=tables.overall() | {"map50_95": float(np.mean([each.mean_ap for each in coco]))},
        groups=tables.per_class(),
        cases=[tables.case(number, verdict) for number, verdict in enumerate(checked.cases)],
    )


def verify(
    card: TaskCard, manifest: Manifest, submission: Path, private: Path, checked: SubmissionRecord
) -> tuple[str, float, float]:
    """mAP@0.5 again by pycocotools with the exact recall grid."""
    from automedbench.metrics.coco_twin import coco_average_precision, library

    settings: Settings = track_settings(card)
    evidence = _evidence(card, manifest, submission, private, checked, settings.max_detections)
    ap = coco_average_precision(
        evidence.predicted,
        evidence.reference,
        n_classes=len(evidence.classes),
        iou_threshold=settings.iou_threshold,
        max_detections=settings.max_detections,
    )
    return library(), float(np.nanmean(ap)), 1e-9


def _evidence(
    card: TaskCard,
    manifest: Manifest,
    submission: Path,
    private: Path,
    checked: SubmissionRecord,
    max_detections: int,
) -> Evidence:
    if [case.case for case in checked.cases] != manifest.case_ids:
        raise InfrastructureError(f"{card.id}: submission.json and manifest list different cases; collect again.")
    classes = classes_of(card)
    truths = [read_truth(private / case.id / TRUTH, case, classes) for case in manifest.cases]
    if not any(truth.boxes for truth in truths):
        raise InfrastructureError(f"{card.id}: the private data holds no truth box; stage the task again.")
    names, output = spellings(card, with_source=False), _output(card)
    predictions = [
        _read_prediction(case, verdict, output, submission, names).best(max_detections)
        for case, verdict in zip(manifest.cases, checked.cases, strict=True)
    ]
    return Evidence(classes, truths, predictions)


def _read_prediction(
    case: CaseEntry, verdict: CaseSubmission, output: OutputFile, submission: Path, names: dict[str, str]
) -> Prediction:
    """The boxes of one image; none unless the format check found it complete."""
    if not verdict.completed:
        return Prediction([], [], 0)
    path = submission / "agents_outputs" / output.path.replace("{case}", case.id)
    try:
        data = read_bounded(path, output.max_bytes)
        return parse_prediction(data or b"", names, case.geometry["width"], case.geometry["height"])
    except InvalidSubmission as error:
        raise InfrastructureError(
            f"{path} is not what was collected: it {error}.\nCollect the submission again."
        ) from error
