"""Classification: one label per case; quality is the accuracy over all expected cases.

A missing, unknown or contradictory label is wrong, so that quality already counts what is missing and is not
multiplied by the completion rate. A card may ask for the balanced accuracy (mean recall of the classes) instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseEntry, CaseScore, CaseSubmission, Manifest, Model
from automedbench.datasets import get_reader
from automedbench.metrics import classification as metrics
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.classification.check import read_answers
from automedbench.tracks.classification.score import Labels, notes_on, overall, per_class
from automedbench.tracks.classification.show import show_case as show
from automedbench.tracks.classification.stage import TRUTH, classes_of, read_truth, stage_images
from automedbench.tracks.common.cases import require_same_cases

__all__ = ["CASE_QUALITY", "QUALITY", "VERSION", "Settings", "check", "score", "show", "stage", "verify"]

VERSION = 1
QUALITY = "accuracy"
CASE_QUALITY = "correct"


class Settings(Model):
    """Metric settings of a classification card."""

    score_metric: Literal["accuracy", "balanced_accuracy"] = Field(
        "accuracy", description="which of the two is the quality; both are always reported"
    )


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's image and label and the private tables; the same card and data give the same bytes.

    Raises InfrastructureError for raw data that is absent, unreadable, or without a class that the card asks for.
    """
    return stage_images(card, get_reader(card.staging.reader)(raw, card), public, private)


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected case from ``predictions.csv`` and, where the card has it, the case's JSON file."""
    return [answer.verdict for answer in read_answers(card, manifest.cases, submission)]


def score(inputs: ScoringInputs) -> TrackScore:
    """The card's metric over all expected cases, a table per class and per case, and the diagnostics.

    Raises InfrastructureError when truth is missing or does not fit the card, or the submission was changed.
    """
    settings: Settings = track_settings(inputs.card)
    labels = _labels(inputs)
    confusion = labels.confusion()
    summary = overall(confusion)
    quality = summary[settings.score_metric]
    assert quality is not None  # both are defined as soon as there is a case
    return TrackScore(
        quality=quality,
        quality_name=settings.score_metric,
        task_score=quality,
        metrics=summary,
        groups=per_class(labels.classes, confusion),
        cases=[_case(labels, number, verdict) for number, verdict in enumerate(inputs.checked.cases)],
        notes=notes_on(settings.score_metric, labels.classes, summary, confusion),
    )


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again by scikit-learn, with missing predictions as a label of their own."""
    from automedbench.metrics.classification_twin import accuracies, library

    settings: Settings = track_settings(inputs.card)
    labels = _labels(inputs)
    plain, balanced = accuracies(labels.predicted, labels.truth)
    return library(), plain if settings.score_metric == "accuracy" else balanced, 1e-12


def _labels(inputs: ScoringInputs) -> Labels:
    """Truth and prediction of every expected case, in manifest order."""
    require_same_cases(inputs)
    card, cases = inputs.card, inputs.manifest.cases
    classes = classes_of(card)
    answers = read_answers(card, cases, inputs.submission)
    for answer, verdict in zip(answers, inputs.checked.cases, strict=True):
        if answer.verdict.files != verdict.files:
            raise InfrastructureError(
                f"{inputs.submission}: the prediction of {verdict.case} is not what was collected.\n"
                "Collect the submission again."
            )
    numbers = {name: number for number, name in enumerate(classes)}
    predicted = [metrics.NONE if answer.label is None else numbers[answer.label] for answer in answers]
    return Labels(classes, [read_truth(inputs.private / case.id / TRUTH, classes) for case in cases], predicted)


def _case(labels: Labels, number: int, verdict: CaseSubmission) -> CaseScore:
    truth, predicted = labels.truth[number], labels.predicted[number]
    return CaseScore(
        case=verdict.case,
        status=verdict.status,
        metrics={"correct": float(truth == predicted)},
        detail={
            "reference": labels.classes[truth],
            "predicted": None if predicted == metrics.NONE else labels.classes[predicted],
        },
    )
