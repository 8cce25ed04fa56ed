"""Scores of synthesis: SSIM slice by slice of streamed volumes, errors in HU, and what the untouched input scores."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from automedbench.base.cards import OutputFile
from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.files import read_record
from automedbench.base.records import CaseEntry, CaseScore, CaseSubmission, Prior
from automedbench.base.untrusted.nifti import open_trusted, open_volume
from automedbench.metrics.structural_similarity import windowed_ssim
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import case_output, mean, not_as_collected, output_path
from automedbench.tracks.common.signals import has_problem
from automedbench.tracks.synthesis.check import COPY_OF_INPUT, UNSCORABLE
from automedbench.tracks.synthesis.measures import Measures, Plane, as_float32, compare
from automedbench.tracks.synthesis.settings import SynthesisSettings
from automedbench.tracks.synthesis.stage import BASELINE, MASK, TRUTH, InputBaseline

MEASURES = ("mae", "rmse", "psnr", "ssim_masked", "ssim_soft")


@dataclass(frozen=True)
class _Case:
    """Everything about one case: what was asked, what came, what it scored (None for nothing that can be scored)."""

    entry: CaseEntry
    verdict: CaseSubmission
    baseline: InputBaseline | None
    measures: Measures | None

    @property
    def ssim(self) -> float:
        return self.measures.score if self.measures else 0.0

    @property
    def gain(self) -> float | None:
        """Share of what the untouched input lacks that was won (negative when it got worse)."""
        if self.measures is None or self.baseline is None or self.baseline.ssim >= 1:
            return None
        return (self.ssim - self.baseline.ssim) / (1 - self.baseline.ssim)

    @property
    def metrics(self) -> dict[str, float | None]:
        return {
            "ssim": self.ssim,
            **{name: getattr(self.measures, name, None) for name in MEASURES},
            "ssim_input": self.baseline.ssim if self.baseline else None,
            "ssim_gain": self.gain,
        }

    @property
    def scored(self) -> CaseScore:
        detail: dict[str, Any] = {name: self.entry.geometry[name] for name in ("shape", "spacing")}
        if self.measures is not None:
            slices = [None if value is None else round(value, 4) for value in self.measures.slices]
            detail |= {"range_hu": [self.measures.lowest, self.measures.highest], "ssim_by_slice": slices}
        return CaseScore(case=self.entry.id, status=self.verdict.status, metrics=self.metrics, detail=detail)


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean SSIM over all expected cases, with errors in HU and the untouched input's score beside it.

    Raises InfrastructureError when truth is missing or does not fit the manifest.
    """
    settings: SynthesisSettings = track_settings(inputs.card)
    cases = [_measure(inputs, entry, verdict, settings) for entry, verdict in inputs.pairs]
    quality = float(np.mean([case.ssim for case in cases]))
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics=_overall(cases),
        groups={},
        cases=[case.scored for case in cases],
        prior=_prior(cases),
        notes=_notes(cases),
    )


def _prior(cases: list[_Case]) -> Prior | None:
    """Score of the unchanged input; None where a case has no such baseline."""
    values = [case.baseline.ssim for case in cases if case.baseline is not None]
    if len(values) < len(cases):
        return None
    return Prior(answers="the input itself", value=min(1.0, max(0.0, float(np.mean(values)))))


def _measure(inputs: ScoringInputs, entry: CaseEntry, verdict: CaseSubmission, settings: SynthesisSettings) -> _Case:
    private = inputs.private / entry.id
    with_baseline = BASELINE in entry.private
    baseline = read_record(private / BASELINE, InputBaseline) if with_baseline else None
    measures = None
    if is_scorable(verdict):
        output = case_output(inputs.card, "nii.gz")
        with contextlib.closing(_slices(inputs.submission, output, private, entry)) as slices:
            measures = compare(slices, settings)
    return _Case(entry, verdict, baseline, measures)


def is_scorable(verdict: CaseSubmission) -> bool:
    """Return whether a volume can be scored: read completely, on the grid, with finite values."""
    return verdict.completed and not any(problem.code in UNSCORABLE for problem in verdict.problems)


def _slices(
    submission: Path, output: OutputFile, private: Path, entry: CaseEntry
) -> Generator[tuple[Plane, Plane, Plane | None], None, None]:
    """(prediction, truth, mask) of every slice, streamed; nothing is ever held as a whole."""
    path = output_path(submission, output, entry.id)
    with contextlib.ExitStack() as stack:
        truth = stack.enter_context(open_trusted(private / TRUTH))
        mask = stack.enter_context(open_trusted(private / MASK)) if MASK in entry.private else None
        shape = tuple(entry.geometry["shape"])
        for name, volume in ((TRUTH, truth), (MASK, mask)):
            if volume is not None and volume.header.shape != shape:
                raise InfrastructureError(
                    f"{private / name} has shape {volume.header.shape}, not {shape}; stage the task again."
                )
        predicted = predicted_planes(path, output.max_bytes)
        masks: Iterator[Plane | None] = iter([None] * shape[2]) if mask is None else (m > 0 for m in mask.slices())
        for plane, true_plane, region in zip(predicted, truth.slices(), masks, strict=True):
            yield as_float32(plane), true_plane, region


def predicted_planes(path: Path, max_bytes: int) -> Iterator[Plane]:
    """Slices of a collected volume along z; raises InfrastructureError when it is not what was collected."""
    try:
        with open_volume(path, max_bytes=max_bytes) as volume:
            yield from volume.slices()
    except InvalidSubmission as error:
        raise not_as_collected(path, error) from error


def _overall(cases: list[_Case]) -> dict[str, float | None]:
    """Means over scored cases (``n_scored`` of them), but ``mean_ssim_all`` and ``mean_ssim_input`` over all."""
    scored = [case for case in cases if case.measures is not None]
    means = {
        f"mean_{ours}": mean([case.metrics[name] for case in scored])
        for ours, name in {
            "ssim_scored": "ssim",
            "mae_hu": "mae",
            "rmse_hu": "rmse",
            "psnr_db": "psnr",
            "ssim_masked": "ssim_masked",
            "ssim_soft": "ssim_soft",
            "ssim_gain": "ssim_gain",
        }.items()
    }
    return means | {
        "mean_ssim_all": mean([case.ssim for case in cases]),
        "mean_ssim_input": mean([case.baseline.ssim if case.baseline else None for case in cases]),
        "n_psnr_capped": sum(case.measures is not None and case.measures.psnr_capped for case in cases),
        "n_copies": sum(has_problem(case.verdict, COPY_OF_INPUT) for case in cases),
        "n_cases": len(cases),
        "n_predicted": sum(case.verdict.status != "missing" for case in cases),
        "n_scored": len(scored),
    }


def _notes(cases: list[_Case]) -> list[str]:
    notes = []
    baseline = mean([case.baseline.ssim if case.baseline else None for case in cases])
    if baseline is not None:
        notes.append(
            f"The untouched inputs have a mean SSIM of {baseline:.4f}: compare the score with that, not with 0."
        )
    if copies := sum(has_problem(case.verdict, COPY_OF_INPUT) for case in cases):
        notes.append(f"{copies} of {len(cases)} volumes are copies of the input.")
    if moved := sum(has_problem(case.verdict, "affine_mismatch") for case in cases):
        notes.append(f"{moved} of {len(cases)} volumes have another affine; they were compared voxel by voxel.")
    return notes


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again from the formula over whole windows, plane by plane, on volumes that nibabel loaded."""
    settings: SynthesisSettings = track_settings(inputs.card)
    output = case_output(inputs.card, "nii.gz")
    values = [
        max(0.0, _twin(output_path(inputs.submission, output, case.id), inputs.private / case.id, settings))
        if is_scorable(verdict)
        else 0.0
        for case, verdict in inputs.pairs
    ]
    return f"numpy {np.__version__} (SSIM over whole windows)", float(np.mean(values)), 1e-9


def _twin(prediction: Path, private: Path, settings: SynthesisSettings) -> float:
    import nibabel

    def load(path: Path) -> Any:
        image: Any = nibabel.load(path)
        return image.get_fdata(dtype=np.float32, caching="unchanged")

    predicted, truth = load(prediction), load(private / TRUTH)
    mask = load(private / MASK) > 0.5 if (private / MASK).is_file() else None
    used = [k for k in range(truth.shape[2]) if mask is None or mask[:, :, k].sum() >= settings.mask_min_voxels]
    window = settings.ssim_window
    values = [
        windowed_ssim(
            *(np.clip(volume[:, :, k].astype(np.float64), *settings.hu_window) for volume in (predicted, truth)),
            data_range=settings.data_range,
            weights=np.full(window, 1 / window),
            sample=True,
        )
        for k in used
    ]
    return float(np.mean(values))
