"""Segmentation's numbers: Dice per case and target, means per target, macro Dice, and the tables around them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseEntry, CaseScore, CaseSubmission, Prior
from automedbench.metrics.overlap import BothEmpty, dice
from automedbench.tracks import Metrics, ScoringInputs, TrackScore
from automedbench.tracks.common.cases import mean, output_path
from automedbench.tracks.common.signals import has_problem
from automedbench.tracks.segmentation.compare import CaseCounts, TargetCounts, compare_case, is_comparable
from automedbench.tracks.segmentation.settings import (
    MAX_LABEL,
    LabelFile,
    SegmentationSettings,
    label_files,
    load_settings,
)

EMPTY_POLICY: dict[BothEmpty, str] = {"one": "counts as Dice 1", "skip": "is left out of the target's mean"}


def score(inputs: ScoringInputs) -> TrackScore:
    """Macro Dice and its tables over all expected cases.

    Raises InfrastructureError when truth is missing or damaged, or when no target can be scored.
    """
    settings, files = load_settings(inputs.card), label_files(inputs.card)
    cases = [compare_case(inputs, case, verdict, files, settings) for case, verdict in inputs.pairs]
    report = SegmentationReport(cases, [target.name for target in inputs.card.targets], settings)
    quality = report.macro_dice()
    return TrackScore(
        quality=quality,
        task_score=quality * inputs.checked.completion_rate,
        metrics=report.metrics(),
        groups=report.groups(),
        cases=[report.case_score(case) for case in cases],
        prior=report.prior(),
        notes=report.notes(),
    )


@dataclass(frozen=True)
class SegmentationReport:
    """Everything that one run's counts say."""

    cases: list[CaseCounts]
    targets: list[str]
    settings: SegmentationSettings

    @property
    def completed(self) -> list[CaseCounts]:
        """Cases with a prediction that can be read."""
        return [case for case in self.cases if case.verdict.completed]

    def evaluable(self, cases: list[CaseCounts], target: str) -> list[CaseCounts]:
        """Cases that a target's mean is over: all, or those that truly have it where the card says so."""
        if target not in self.settings.positive_only:
            return cases
        return [case for case in cases if case.targets[target].reference > 0]

    def target_dice(self, target: str) -> float | None:
        """Mean Dice of a target over its completed, evaluable cases.

        None when no case can say anything about it. When only cases can that were not completed it is 0: otherwise
        hard cases could be left out on purpose.
        """
        found = mean(self._dice(case, target) for case in self.evaluable(self.completed, target))
        if found is not None:
            return found
        missed = [case for case in self.evaluable(self.cases, target) if not case.verdict.completed]
        if self.settings.both_empty == "skip":
            missed = [case for case in missed if case.targets[target].reference > 0]
        return 0.0 if missed else None

    def prior(self) -> Prior:
        """Score of empty masks: above zero where absent targets count as found."""
        empty = [
            replace(
                case,
                verdict=case.verdict.model_copy(update={"status": "valid", "completed": True}),
                targets={name: TargetCounts(count.reference, 0, 0) for name, count in case.targets.items()},
                comparable=True,
            )
            for case in self.cases
        ]
        return Prior(answers="no voxel of any target", value=replace(self, cases=empty).macro_dice())

    def macro_dice(self) -> float:
        """Mean over targets, each with the same weight; raises InfrastructureError when no target can be scored."""
        value = mean(self.target_dice(target) for target in self.targets)
        if value is None:
            raise InfrastructureError("No case has any target that could be scored; stage the task again.")
        return value

    def metrics(self) -> Metrics:
        """Diagnostics over the whole run; those of single targets only where each has a file of its own."""
        groups = self.groups()
        overall: Metrics = {
            "valid_rate": sum(case.verdict.status == "valid" for case in self.cases) / len(self.cases),
            "hd95_mm": mean(group["hd95_mm"] for group in groups.values()),
            "surface_dice": mean(group["surface_dice"] for group in groups.values()),
            "n_targets_scored": float(sum(group["dice"] is not None for group in groups.values())),
            "n_both_empty": sum(group["n_both_empty"] or 0.0 for group in groups.values()),
            "n_affine_mismatch": float(self._n_elsewhere),
        }
        if self.settings.files:
            overall |= {f"{target}_dice": groups[target]["dice"] for target in self.targets}
        for target in self.settings.positive_only:
            overall[f"{target}_dice_all"] = mean(self._dice(case, target) for case in self.completed)
            overall |= self._surfaces(self.cases, target, f"{target}_", "_all")
            overall[f"{target}_false_positive_cases"] = groups[target]["n_false_positive"]
        return overall

    def groups(self) -> dict[str, Metrics]:
        """One row per target: Dice over completed cases, surfaces over all (positive_only: those that have it)."""
        return {target: self._group(target) for target in self.targets}

    def _group(self, target: str) -> Metrics:
        scored = self.evaluable(self.completed, target)
        usable = [(case, case.targets[target]) for case in self.completed if case.comparable]
        return {
            "dice": self.target_dice(target),
            "n_cases": float(sum(self._dice(case, target) is not None for case in scored)),
            "n_both_empty": float(sum(count.both_empty for _, count in usable)),
            "n_false_positive": float(sum(count.reference == 0 < count.prediction for _, count in usable)),
            "n_missed": float(sum(count.prediction == 0 < count.reference for _, count in usable)),
            "reference_ml": mean(count.reference * case.voxel_ml for case, count in usable),
            "prediction_ml": mean(count.prediction * case.voxel_ml for case, count in usable),
            **self._surfaces(self.evaluable(self.cases, target), target),
        }

    def _surfaces(self, cases: list[CaseCounts], target: str, before: str = "", behind: str = "") -> Metrics:
        """Mean HD95 and surface Dice over cases, those that were not completed among them."""
        counts = [case.targets[target] for case in cases]
        return {
            f"{before}hd95_mm{behind}": mean(count.hd95_mm for count in counts),
            f"{before}surface_dice{behind}": mean(count.surface_dice for count in counts),
        }

    def case_score(self, case: CaseCounts) -> CaseScore:
        """The row of a case; targets absent from truth and prediction are not listed."""
        dices = {target: self._dice(case, target) if case.verdict.completed else None for target in self.targets}
        details = {
            target: {
                "dice": dices[target],
                "reference_voxels": count.reference,
                "predicted_voxels": count.prediction,
                "hd95_mm": count.hd95_mm,
                "surface_dice": count.surface_dice,
            }
            for target, count in case.targets.items()
            if not count.both_empty
        }
        counts = case.targets.values()
        return CaseScore(
            case=case.verdict.case,
            status=case.verdict.status,
            metrics={
                "dice": mean(dices.values()),
                "hd95_mm": mean(count.hd95_mm for count in counts),
                "surface_dice": mean(count.surface_dice for count in counts),
            },
            detail={"targets": details, "voxel_ml": case.voxel_ml, "comparable": case.comparable},
        )

    def _dice(self, case: CaseCounts, target: str) -> float | None:
        """Dice of a target in a case; None when undefined. A completed case of the wrong shape has nothing right."""
        count = case.targets[target]
        if not case.comparable:
            return 0.0
        voxels = (np.array([number]) for number in (count.both, count.reference, count.prediction))
        value = dice(*voxels, both_empty=self.settings.both_empty)[0]
        return None if np.isnan(value) else float(value)

    def notes(self) -> list[str]:
        """Notes for readers of the numbers."""
        settings = self.settings
        notes = [f"A target absent from truth and prediction of a case {EMPTY_POLICY[settings.both_empty]}."]
        if settings.positive_only:
            notes.append(f"Mean over the cases that have the target: {', '.join(settings.positive_only)}.")
        dropped = [target for target in self.targets if self.target_dice(target) is None]
        if dropped:
            notes.append(
                f"{len(dropped)} of {len(self.targets)} targets could not be scored in any case: not in the mean."
            )
        if elsewhere := self._n_elsewhere:
            notes.append(f"{elsewhere} cases have another affine than their scan; they are scored voxel by voxel.")
        if not settings.surface_metrics:
            notes.append("HD95 and surface Dice were not computed (metric.settings.surface_metrics).")
        elif given_up := self._given_up():
            without_dice = sum(count.surface_dice is None for count in given_up)
            notes.append(
                f"HD95 is missing for {len(given_up)} targets of single cases, surface Dice for {without_dice} of them:"
                " surfaces too scattered or too far apart."
            )
        return notes

    @property
    def _n_elsewhere(self) -> int:
        return sum(has_problem(case.verdict, "affine_mismatch") for case in self.cases)

    def _given_up(self) -> list[TargetCounts]:
        """Targets that are in truth and prediction, but whose surfaces took too long."""
        counts = [count for case in self.completed if case.comparable for count in case.targets.values()]
        return [count for count in counts if count.reference and count.prediction and count.hd95_mm is None]


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """Macro Dice again by nibabel and SimpleITK, as docs/specification.md, 10.1 words it."""
    settings, files = load_settings(inputs.card), label_files(inputs.card)
    table = [
        [each for file in files for each in _verified(inputs, case, verdict, file, settings)]
        for case, verdict in inputs.pairs
    ]
    values = np.array([[value for value, _ in row] for row in table])
    waiting = np.array([[waits for _, waits in row] for row in table])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a target without any value
        means = np.nanmean(values, axis=0)
    means[np.isnan(means) & waiting.any(axis=0)] = 0.0
    return f"SimpleITK {version('simpleitk')}", float(np.nanmean(means)), 1e-9


def _verified(
    inputs: ScoringInputs, case: CaseEntry, verdict: CaseSubmission, file: LabelFile, settings: SegmentationSettings
) -> list[tuple[float, bool]]:
    """Dice of each target of a file, NaN where the case says nothing about it, and whether it would, if completed."""
    truth = _labels(inputs.private / case.id / file.name, file)
    present, dices = set(np.unique(truth)), list[float | None]([0.0] * len(file.values))
    if is_comparable(verdict):
        prediction = _labels(output_path(inputs.submission, file.output, case.id), file)
        dices = label_dice(truth, prediction, list(file.values), both_empty=settings.both_empty)
    found = []
    for target, label, value in zip(file.targets, file.values, dices, strict=True):
        counted = label in present or target.name not in settings.positive_only
        waits = not verdict.completed and counted and (label in present or settings.both_empty == "one")
        found.append((value if verdict.completed and counted and value is not None else np.nan, waits))
    return found


def _labels(path: Path, file: LabelFile) -> NDArray[np.uint16]:
    """Stored values of a file as nibabel reads them: foreground of a mask, or labels rounded (0 for what is none)."""
    import nibabel

    image: Any = nibabel.load(path)
    with np.errstate(all="ignore"):  # an agent's scaling may overflow
        values = np.asanyarray(image.dataobj)
    if file.is_mask:
        values = values > 0.5
    elif values.dtype.kind == "f":
        values = np.rint(values)
    labels: NDArray[np.uint16] = np.where((values >= 0) & (values <= MAX_LABEL), values, 0).astype(np.uint16)
    return labels


def label_dice(
    reference: NDArray[Any], prediction: NDArray[Any], labels: list[int], *, both_empty: BothEmpty
) -> list[float | None]:
    """Dice of each label of two integer label maps of one shape; None where undefined.

    SimpleITK gives 0 for a label absent from both maps (with a warning), so such labels are not asked for.
    """
    import SimpleITK

    toolkit: Any = SimpleITK
    measures = toolkit.LabelOverlapMeasuresImageFilter()
    # The same axis order on both sides: which one is of no importance for counts.
    measures.Execute(*(toolkit.GetImageFromArray(np.ascontiguousarray(values)) for values in (reference, prediction)))
    present = {*np.unique(reference), *np.unique(prediction)}
    absent = 1.0 if both_empty == "one" else None
    return [float(measures.GetDiceCoefficient(label)) if label in present else absent for label in labels]
