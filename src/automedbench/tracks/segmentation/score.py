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
from automedbench.base.records import CaseScore, CaseSubmission, Prior
from automedbench.metrics.overlap import BothEmpty, dice
from automedbench.tracks import ScoringInputs, TrackScore
from automedbench.tracks.common.cases import mean, output_path
from automedbench.tracks.segmentation.compare import CaseCounts, TargetCounts, compare_case
from automedbench.tracks.segmentation.settings import (
    MAX_LABEL,
    LabelFile,
    SegmentationSettings,
    label_files,
    load_settings,
)

Metrics = dict[str, float | None]
EMPTY_POLICY: dict[BothEmpty, str] = {"one": "counts as Dice 1", "skip": "is left out of the target's mean"}


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
        prior=report.prior(),
        notes=report.notes(),
    )


def _report(inputs: ScoringInputs) -> SegmentationReport:
    settings, files = load_settings(inputs.card), label_files(inputs.card)
    cases = [compare_case(inputs, case, verdict, files, settings) for case, verdict in inputs.pairs]
    return SegmentationReport(cases, [target.name for target in inputs.card.targets], settings)


def case_dice(case: CaseCounts, target: str, both_empty: BothEmpty) -> float | None:
    """Dice of one target in one case; None when undefined. A completed case of the wrong shape has nothing right."""
    if not case.comparable:
        return 0.0
    count = case.targets[target]
    value = dice(
        np.array([count.both]), np.array([count.reference]), np.array([count.prediction]), both_empty=both_empty
    )[0]
    return None if np.isnan(value) else float(value)


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
            "n_affine_mismatch": float(sum(_elsewhere(case) for case in self.cases)),
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

    def case_scores(self) -> list[CaseScore]:
        """One row per expected case; targets absent from truth and prediction are not listed."""
        return [self._case(case) for case in self.cases]

    def _case(self, case: CaseCounts) -> CaseScore:
        done = case.verdict.completed
        counts = case.targets.values()
        metrics: Metrics = {
            "dice": mean(self._dice(case, target) for target in self.targets) if done else None,
            "hd95_mm": mean(count.hd95_mm for count in counts),
            "surface_dice": mean(count.surface_dice for count in counts),
        }
        details = {
            target: self._detail_entry(case, target, count)
            for target, count in case.targets.items()
            if not count.both_empty
        }
        return CaseScore(
            case=case.verdict.case,
            status=case.verdict.status,
            metrics=metrics,
            detail={"targets": details, "voxel_ml": case.voxel_ml, "comparable": case.comparable},
        )

    def _detail_entry(self, case: CaseCounts, target: str, count: TargetCounts) -> dict[str, Any]:
        return {
            "dice": self._dice(case, target) if case.verdict.completed else None,
            "reference_voxels": count.reference,
            "predicted_voxels": count.prediction,
            "hd95_mm": count.hd95_mm,
            "surface_dice": count.surface_dice,
        }

    def _dice(self, case: CaseCounts, target: str) -> float | None:
        return case_dice(case, target, self.settings.both_empty)

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
        elsewhere = sum(_elsewhere(case) for case in self.cases)
        if elsewhere:
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

    def _given_up(self) -> list[TargetCounts]:
        """Targets that are in truth and prediction, but whose surfaces took too long."""
        counts = [count for case in self.completed if case.comparable for count in case.targets.values()]
        return [count for count in counts if count.reference and count.prediction and count.hd95_mm is None]


def _elsewhere(case: CaseCounts) -> bool:
    return any(problem.code == "affine_mismatch" for problem in case.verdict.problems)


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """Macro Dice again by nibabel and SimpleITK."""
    quality = macro_dice(inputs, label_files(inputs.card), load_settings(inputs.card))
    return f"SimpleITK {version('simpleitk')}", quality, 1e-9


def macro_dice(inputs: ScoringInputs, files: tuple[LabelFile, ...], settings: SegmentationSettings) -> float:
    """Mean over targets of the mean over cases, as docs/specification.md, 10.1 words it.

    A table targets × cases: NaN where a case says nothing about a target, and ``waiting`` where a case that was not
    completed would have.
    """
    names = [target.name for file in files for target in file.targets]
    values = np.full((len(names), len(inputs.manifest.cases)), np.nan)
    waiting = np.zeros(values.shape, dtype=bool)
    for column, (case, verdict) in enumerate(inputs.pairs):
        row = 0
        for file in files:
            truth = _labels(inputs.private / case.id / file.name, file)
            path = output_path(inputs.submission, file.output, case.id)
            scores = _scores(truth, path, file, verdict, settings)
            for label, score in zip(file.values, scores, strict=True):
                has_it = bool((truth == label).any())
                counted = has_it or names[row] not in settings.positive_only
                if verdict.completed and counted and score is not None:
                    values[row, column] = score
                waiting[row, column] = not verdict.completed and counted and (has_it or settings.both_empty == "one")
                row += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row without any value
        means = np.nanmean(values, axis=1)
    means[np.isnan(means) & waiting.any(axis=1)] = 0.0
    return float(np.nanmean(means))


def _scores(
    truth: NDArray[Any], path: Path, file: LabelFile, verdict: CaseSubmission, settings: SegmentationSettings
) -> list[float | None]:
    """Dice of each target of a file."""
    if not verdict.completed or any(problem.code == "shape_mismatch" for problem in verdict.problems):
        return [0.0] * len(file.values)
    return label_dice(truth, _labels(path, file), list(file.values), both_empty=settings.both_empty)


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


_BLOCK = 2**20


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
    present = _present(reference, labels) | _present(prediction, labels)
    absent = 1.0 if both_empty == "one" else None
    return [float(measures.GetDiceCoefficient(label)) if label in present else absent for label in labels]


def _present(values: NDArray[Any], labels: list[int]) -> set[int]:
    """Those of the labels that occur."""
    found: set[int] = set()
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        found.update(np.unique(flat[start : start + _BLOCK]).tolist())
    return found.intersection(labels)
