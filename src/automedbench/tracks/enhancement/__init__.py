"""Enhancement: one float array per case (denoised, or with twice the resolution); quality is mean SSIM.

SSIM is cut to [0, 1] per case and averaged over all expected cases; a missing or unusable output counts 0, so that the
mean is quality × completion rate already. PSNR, LPIPS, pass rate and rating stand beside it and change nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, Problem
from automedbench.base.untrusted.npy import FloatArray, parse_float_array
from automedbench.datasets import get_reader
from automedbench.metrics.image_quality_twin import library, windowed_ssim
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
from automedbench.tracks.enhancement.lpips import load_lpips, missing_for
from automedbench.tracks.enhancement.score import Perceptual, Report, Row, clipped, measure
from automedbench.tracks.enhancement.settings import Settings
from automedbench.tracks.enhancement.show import show_case as show
from automedbench.tracks.enhancement.stage import stage_slices
from automedbench.tracks.enhancement.truth import Ranges, output_shape, read_bands, read_reference

__all__ = ["CASE_QUALITY", "QUALITY", "VERSION", "Settings", "check", "preflight", "score", "show", "stage", "verify"]

VERSION = 1
STAGED_SETTINGS = ("data_range", "intensity_range", "output_shape", "ssim_offset", "baselines", "classical")
QUALITY = "ssim"
CASE_QUALITY = "ssim"
# A remark is made when an output leaves the plausible range by more than this share of its width.
_RANGE_SLACK = 0.25
_TWIN_TOLERANCE = 1e-6

Image = NDArray[np.float32]


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's degraded input and its reference, data ranges, baseline bands and the split record.

    Raises InfrastructureError for raw data that is absent, unreadable or cannot be scored.
    """
    return stage_slices(card, get_reader(card.staging.reader)(raw, card), public, private)


def preflight(card: TaskCard, resources: Mapping[str, Path]) -> list[str]:
    """What is missing for LPIPS where the card requires it."""
    return missing_for(track_settings(card), resources)


# --- format check ---------------------------------------------------------------------------------------------


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected array; its shape comes from the manifest, nothing private is read."""
    settings: Settings = track_settings(card)
    output = case_output(card, "npy")

    def judge(case: CaseEntry, data: bytes) -> Judged:
        return [], _remarks(parse_float_array(data, output_shape(case)), settings)

    return [check_file(case, output, submission, judge) for case in manifest.cases]


def _remarks(found: FloatArray, settings: Settings) -> list[Problem]:
    """What is unusual about an array that is scored all the same."""
    remarks = []
    if found.dtype != "float32":
        remarks.append(Problem(code="dtype", message=f"is {found.dtype}; float32 was asked for"))
    if found.trailing_bytes:
        remarks.append(Problem(code="trailing_bytes", message=f"{found.trailing_bytes} bytes behind the array ignored"))
    if settings.intensity_range is not None:
        low, high = settings.intensity_range
        slack = _RANGE_SLACK * (high - low)
        least, most = float(found.values.min()), float(found.values.max())
        if least < low - slack or most > high + slack:
            remarks.append(
                Problem(code="range", message=f"values from {least:g} to {most:g}, plausible are {low:g} to {high:g}")
            )
    return remarks


# --- score ----------------------------------------------------------------------------------------------------


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean SSIM over all expected cases, a row per case, and the diagnostics.

    Raises InfrastructureError when a reference is missing or unusable, MissingDataError without required weights.
    """
    require_same_cases(inputs)
    settings: Settings = track_settings(inputs.card)
    shapes = {output_shape(case) for case in inputs.manifest.cases}
    perceptual, notes = load_lpips(settings, inputs.resources, shapes)
    rows = _rows(inputs, settings, perceptual, with_control=len(inputs.manifest.cases) > 1 and len(shapes) == 1)
    report = Report(rows, settings, read_bands(inputs.private))
    quality = report.quality()
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics=report.overall(),
        groups=report.groups(),
        cases=report.cases(),
        notes=[*notes, *report.notes()],
    )


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """Mean SSIM again, from the formula over whole windows."""
    require_same_cases(inputs)
    settings: Settings = track_settings(inputs.card)
    ranges = Ranges(inputs.private)
    values = []
    for case, verdict in zip(inputs.manifest.cases, inputs.checked.cases, strict=True):
        if not verdict.completed:
            continue
        reference = read_reference(inputs.private, case)
        span, offset = ranges.of(case.id, reference), settings.offset
        first, second = (image.astype(np.float64) + offset for image in (_read(inputs, case), reference))
        values.append(clipped(windowed_ssim(first, second, data_range=span)))
    return library(), math.fsum(values) / len(inputs.manifest.cases), _TWIN_TOLERANCE


def _rows(inputs: ScoringInputs, settings: Settings, perceptual: Perceptual | None, *, with_control: bool) -> list[Row]:
    """One row per expected case. The control compares each prediction with the next case's reference (cyclic)."""
    cases, ranges = inputs.manifest.cases, Ranges(inputs.private)
    rows = []
    reference = read_reference(inputs.private, cases[0])
    for number, (case, verdict) in enumerate(zip(cases, inputs.checked.cases, strict=True)):
        following = cases[(number + 1) % len(cases)]
        after = read_reference(inputs.private, following)
        row = Row(verdict, ranges.of(case.id, reference))
        if verdict.completed:
            prediction = _read(inputs, case)
            against = functools.partial(measure, prediction, offset=settings.offset, perceptual=perceptual)
            row = replace(
                row,
                aligned=against(reference, data_range=row.data_range),
                control=against(after, data_range=ranges.of(following.id, after)) if with_control else None,
                extremes=(float(prediction.min()), float(prediction.max())),
            )
        rows.append(row)
        reference = after
    return rows


def _read(inputs: ScoringInputs, case: CaseEntry) -> Image:
    """The array of one case that the format check found complete."""
    output = case_output(inputs.card, "npy")
    path = output_path(inputs.submission, output, case.id)
    try:
        return parse_float_array(collected_bytes(path, output.max_bytes), output_shape(case)).values
    except InvalidSubmission as error:
        raise not_as_collected(path, error) from error
