"""Segmentation: binary masks or a label map per patient; quality is macro Dice.

Macro Dice is the mean over targets of the target's mean Dice over completed cases; the task score multiplies it by the
completion rate (docs/specification.md, 10.1). A case is completed when every file is there and can be read to its
end. A file of the wrong shape scores 0 in every target of its case; an affine other than the scan's is a remark, since
voxels are compared one by one and nothing is resampled.
"""

from __future__ import annotations

from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest
from automedbench.datasets import get_reader
from automedbench.tracks import ScoringInputs, TrackScore
from automedbench.tracks.common.cases import require_same_cases
from automedbench.tracks.segmentation.check import check_case
from automedbench.tracks.segmentation.compare import compare_case
from automedbench.tracks.segmentation.score import Report
from automedbench.tracks.segmentation.settings import Settings, label_files, settings_of
from automedbench.tracks.segmentation.show import show_case as show
from automedbench.tracks.segmentation.stage import stage_subjects
from automedbench.tracks.segmentation.verify import macro_dice

__all__ = ["CASE_QUALITY", "QUALITY", "VERSION", "Settings", "check", "score", "show", "stage", "verify"]

VERSION = 1
STAGED_SETTINGS = ("files",)
QUALITY = "macro_dice"
CASE_QUALITY = "dice"


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's image and truth and the private tables; the same card and data give the same bytes.

    Raises InfrastructureError for raw data that is absent, unreadable or inconsistent.
    """
    return stage_subjects(card, get_reader(card.staging.reader)(raw, card), public, private)


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected case; its grid comes from the manifest, nothing private is read."""
    files = label_files(card)
    return [check_case(case, files, submission) for case in manifest.cases]


def score(inputs: ScoringInputs) -> TrackScore:
    """Macro Dice and its tables over all expected cases.

    Raises InfrastructureError when truth is missing or damaged, or when no target can be scored.
    """
    report = _report(inputs)
    quality = report.macro_dice()
    return TrackScore(
        quality=quality,
        task_score=quality * inputs.checked.completion_rate,
        metrics=report.metrics(),
        groups=report.groups(),
        cases=report.case_scores(),
        notes=report.notes(),
    )


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """Macro Dice again by nibabel and SimpleITK."""
    from automedbench.metrics.overlap_twin import library

    require_same_cases(inputs)
    return library(), macro_dice(inputs, label_files(inputs.card), settings_of(inputs.card)), 1e-9


def _report(inputs: ScoringInputs) -> Report:
    require_same_cases(inputs)
    settings, files = settings_of(inputs.card), label_files(inputs.card)
    cases = [
        compare_case(inputs, case, verdict, files, settings)
        for case, verdict in zip(inputs.manifest.cases, inputs.checked.cases, strict=True)
    ]
    return Report(cases, [target.name for target in inputs.card.targets], settings)
