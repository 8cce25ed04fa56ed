"""Scores of synthesis: SSIM slice by slice of streamed volumes, errors in HU, and what the untouched input scores."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from automedbench.base.cards import OutputFile
from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.files import read_record
from automedbench.base.records import CaseEntry, CaseScore, CaseSubmission, Prior
from automedbench.base.untrusted.nifti import open_trusted, open_volume
from automedbench.metrics.image_quality import PSNR_CAP_DB
from automedbench.metrics.structural_similarity import windowed_ssim
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import case_output, mean, not_as_collected, output_path
from automedbench.tracks.common.signals import has_problem
from automedbench.tracks.synthesis.check import COPY_OF_INPUT, UNSCORABLE
from automedbench.tracks.synthesis.measures import Plane, as_float32, compare
from automedbench.tracks.synthesis.settings import SynthesisSettings
from automedbench.tracks.synthesis.stage import BASELINE, MASK, TRUTH, InputBaseline

RANGE = "range_hu"
"""Detail of a case that could be scored: its lowest and highest value."""
MEASURES = ("mae", "rmse", "psnr", "ssim_masked", "ssim_soft")


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean SSIM over all expected cases, with errors in HU and the untouched input's score beside it.

    Raises InfrastructureError when truth is missing or does not fit the manifest.
    """
    settings: SynthesisSettings = track_settings(inputs.card)
    cases = [_score_case(inputs, entry, verdict, settings) for entry, verdict in inputs.pairs]
    metrics = _overall(cases, inputs.checked.cases)
    quality = float(np.mean([case.metrics["ssim"] for case in cases]))
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics=metrics,
        groups={},
        cases=cases,
        prior=_prior(cases),
        notes=_notes(metrics, inputs.checked.cases),
    )


def _prior(cases: list[CaseScore]) -> Prior | None:
    """Score of the unchanged input; None where a case has no such baseline."""
    values = [value for case in cases if (value := case.metrics["ssim_input"]) is not None]
    if len(values) < len(cases):
        return None
    return Prior(answers="the input itself", value=min(1.0, max(0.0, float(np.mean(values)))))


def _score_case(
    inputs: ScoringInputs, entry: CaseEntry, verdict: CaseSubmission, settings: SynthesisSettings
) -> CaseScore:
    """Row of a case; what cannot be scored has the SSIM 0 and no other measure.

    The gain is the share of what the untouched input lacks that was won (negative when it got worse).
    """
    private, measures = inputs.private / entry.id, None
    baseline = read_record(private / BASELINE, InputBaseline) if BASELINE in entry.private else None
    detail: dict[str, Any] = {name: entry.geometry[name] for name in ("shape", "spacing")}
    if is_scorable(verdict):
        output = case_output(inputs.card, "nii.gz")
        with contextlib.closing(_slices(inputs.submission, output, private, entry)) as slices:
            measures = compare(slices, settings)
        by_slice = [None if value is None else round(value, 4) for value in measures.slices]
        detail |= {RANGE: [measures.lowest, measures.highest], "ssim_by_slice": by_slice}
    ssim = measures.score if measures else 0.0
    room = 1 - baseline.ssim if baseline and measures else 0.0
    metrics = {
        "ssim": ssim,
        **{name: getattr(measures, name, None) for name in MEASURES},
        "ssim_input": baseline.ssim if baseline else None,
        "ssim_gain": (ssim - baseline.ssim) / room if baseline and room > 0 else None,
    }
    return CaseScore(case=entry.id, status=verdict.status, metrics=metrics, detail=detail)


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


def _overall(cases: list[CaseScore], verdicts: list[CaseSubmission]) -> dict[str, float | None]:
    """Means over scored cases (``n_scored`` of them), but ``mean_ssim_all`` and ``mean_ssim_input`` over all."""
    scored = [case for case in cases if RANGE in case.detail]
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
        "mean_ssim_all": mean([case.metrics["ssim"] for case in cases]),
        "mean_ssim_input": mean([case.metrics["ssim_input"] for case in cases]),
        "n_psnr_capped": sum(case.metrics["psnr"] == PSNR_CAP_DB for case in cases),
        "n_copies": sum(has_problem(verdict, COPY_OF_INPUT) for verdict in verdicts),
        "n_cases": len(cases),
        "n_predicted": sum(case.status != "missing" for case in cases),
        "n_scored": len(scored),
    }


def _notes(metrics: dict[str, float | None], verdicts: list[CaseSubmission]) -> list[str]:
    notes = []
    if (baseline := metrics["mean_ssim_input"]) is not None:
        notes.append(
            f"The untouched inputs have a mean SSIM of {baseline:.4f}: compare the score with that, not with 0."
        )
    for code, what in (
        (COPY_OF_INPUT, "are copies of the input."),
        ("affine_mismatch", "have another affine; they were compared voxel by voxel."),
    ):
        if count := sum(has_problem(verdict, code) for verdict in verdicts):
            notes.append(f"{count} of {len(verdicts)} volumes {what}")
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
