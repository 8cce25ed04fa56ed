"""Macro Dice again on another path: nibabel reads, SimpleITK counts, means are taken here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import CaseSubmission
from automedbench.metrics.overlap import BothEmpty
from automedbench.tracks import ScoringInputs
from automedbench.tracks.common.cases import output_path, require_same_cases
from automedbench.tracks.segmentation.settings import MAX_LABEL, LabelFile, Settings, label_files, settings_of


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """Macro Dice again by nibabel and SimpleITK."""
    require_same_cases(inputs)
    return library(), macro_dice(inputs, label_files(inputs.card), settings_of(inputs.card)), 1e-9


def macro_dice(inputs: ScoringInputs, files: tuple[LabelFile, ...], settings: Settings) -> float:
    """Mean over targets of the mean over cases, as docs/specification.md, 10.1 words it.

    A table targets × cases: NaN where a case says nothing about a target, and ``waiting`` where a case that was not
    completed would have.
    """
    names = [target.name for file in files for target in file.targets]
    values = np.full((len(names), len(inputs.manifest.cases)), np.nan)
    waiting = np.zeros(values.shape, dtype=bool)
    for column, (case, verdict) in enumerate(zip(inputs.manifest.cases, inputs.checked.cases, strict=True)):
        row = 0
        for file in files:
            truth = _labels(inputs.private / case.id / file.name, file)
            path = output_path(inputs.submission, file.output, case.id)
            scores = _scores(truth, path, file, verdict, settings)
            for label, score in zip(file.values, scores, strict=True):
                has_it = bool((truth == label).any())
                asked = has_it or names[row] not in settings.positive_only
                if verdict.completed and asked and score is not None:
                    values[row, column] = score
                waiting[row, column] = not verdict.completed and asked and (has_it or settings.both_empty == "one")
                row += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row without any value
        means = np.nanmean(values, axis=1)
    means[np.isnan(means) & waiting.any(axis=1)] = 0.0
    return float(np.nanmean(means))


def _scores(
    truth: NDArray[Any], path: Path, file: LabelFile, verdict: CaseSubmission, settings: Settings
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


def library() -> str:
    """Name and version of the library behind :func:`label_dice`."""
    from importlib.metadata import version

    return f"SimpleITK {version('simpleitk')}"


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
