"""Enhancement's report: per-case quality, means, pass rate, rating and the shuffled control."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseEntry, CaseScore, CaseSubmission, Prior
from automedbench.base.untrusted.npy import parse_float_array
from automedbench.metrics.image_quality import SIGMA, WINDOW, psnr, ssim
from automedbench.metrics.perceptual import MIN_SIDE, Lpips, lpips_problems
from automedbench.metrics.structural_similarity import windowed_ssim
from automedbench.tracks import Metrics, ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import case_output, mean, read_collected
from automedbench.tracks.enhancement.settings import EnhancementSettings
from automedbench.tracks.enhancement.truth import (
    RATINGS,
    Ranges,
    output_shape,
    rate,
    read_bands,
    read_reference,
)

RESOURCE = "lpips"


def load_lpips(
    settings: EnhancementSettings, resources: Mapping[str, Path], shapes: set[tuple[int, int]]
) -> tuple[Lpips | None, list[str]]:
    """The metric, or None and the reason as a note.

    Raises InfrastructureError for weights that are there and cannot be used.
    """
    if settings.lpips == "off":
        return None, []
    problems = lpips_problems(resources.get(RESOURCE))
    if min(min(shape) for shape in shapes) < MIN_SIDE:
        problems.append(f"LPIPS: images with a side below {MIN_SIDE} pixels have none")
    if problems:
        return None, [f"{'; '.join(problems)}. The value is null and influences nothing."]
    try:
        return Lpips.load(resources[RESOURCE]), []
    except ValueError as error:
        raise InfrastructureError(f"{error}.\nReplace the files, or set metric.settings.lpips to off.") from error


Image = NDArray[np.float32]
Perceptual = Callable[[Image, Image], float]


@dataclass(frozen=True)
class Row:
    """One expected case and, if it has a usable prediction, its quality unclipped and that against the next case."""

    score: CaseScore
    aligned: Metrics | None = None
    control: Metrics | None = None


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean SSIM over all expected cases, cut to [0, 1] in each; a row per case, and the diagnostics.

    Means are over completed cases, pass rate and rating over all. Raises InfrastructureError when a reference is
    missing or unusable.
    """
    settings: EnhancementSettings = track_settings(inputs.card)
    shapes = {output_shape(case) for case in inputs.manifest.cases}
    perceptual, notes = load_lpips(settings, inputs.resources, shapes)
    rows = _rows(inputs, perceptual, with_control=len(inputs.manifest.cases) > 1 and len(shapes) == 1)
    bands = read_bands(inputs.private)
    found = [row.aligned for row in rows if row.aligned is not None]
    aligned, control = _means(found), _means([row.control for row in rows if row.control is not None])
    quality = math.fsum(row.score.metrics["ssim"] or 0.0 for row in rows) / len(rows)
    identity = bands.baselines.get("identity")
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics={
            **{f"mean_{name}": value for name, value in aligned.items()},
            **{f"control_{name}": value for name, value in control.items()},
            "pass_rate": sum((each["ssim"] or 0.0) >= bands.pass_threshold for each in found) / len(rows),
            "pass_threshold": bands.pass_threshold,
            "rating": RATINGS[rate(bands, aligned["ssim"], aligned["psnr"], all_valid=inputs.checked.all_valid)],
            "n_cases": len(rows),
            "n_completed": len(found),
        },
        groups={f"baseline {name}": dict(each) for name, each in bands.baselines.items()},
        cases=[row.score for row in rows],
        prior=identity and Prior(answers="the input itself", value=clip_ssim(identity.mean_ssim)),
        notes=[*notes, *_control_notes(aligned["ssim"], control["ssim"])],
    )


def _rows(inputs: ScoringInputs, perceptual: Perceptual | None, *, with_control: bool) -> list[Row]:
    """One row per expected case. The control compares each prediction with the next case's reference (cyclic)."""
    cases, ranges = inputs.manifest.cases, Ranges(inputs.private)
    rows = []
    reference = read_reference(inputs.private, cases[0])
    for number, (case, verdict) in enumerate(inputs.pairs):
        following = cases[(number + 1) % len(cases)]
        after, data_range = read_reference(inputs.private, following), ranges.of(case.id, reference)
        prediction = read_prediction(inputs, case) if verdict.completed else None
        aligned = control = None
        if prediction is not None:
            against = functools.partial(measure, prediction, perceptual=perceptual)
            aligned = against(reference, data_range=data_range)
            control = against(after, data_range=ranges.of(following.id, after)) if with_control else None
        rows.append(Row(_case_score(verdict, data_range, prediction, aligned), aligned, control))
        reference = after
    return rows


def read_input(inputs: ScoringInputs, case: CaseEntry) -> Image:
    """The array that the agent was given."""
    height, width = case.geometry["input_shape"]
    path = inputs.given(case.id) / inputs.card.inputs[0].file
    return parse_float_array(path.read_bytes(), (int(height), int(width))).values


def read_prediction(inputs: ScoringInputs, case: CaseEntry) -> Image:
    """The array of one case that the format check found complete."""
    output = case_output(inputs.card, "npy")
    return read_collected(
        inputs.submission, output, case.id, lambda data: parse_float_array(data, output_shape(case)).values
    )


def measure(prediction: Image, reference: Image, *, data_range: float, perceptual: Perceptual | None) -> Metrics:
    """SSIM, PSNR in dB and LPIPS of one pair; null where not computed."""
    first, second = prediction.astype(np.float64), reference.astype(np.float64)
    return {
        "ssim": ssim(first, second, data_range=data_range),
        "psnr": psnr(first, second, data_range=data_range),
        "lpips": None if perceptual is None else perceptual(prediction, reference),
    }


def clip_ssim(value: float | None) -> float:
    """SSIM as it is scored: in [0, 1]; an undefined one (values beyond all reason) earns nothing."""
    return 0.0 if value is None or not math.isfinite(value) else min(1.0, max(0.0, value))


def _means(found: Sequence[Metrics]) -> Metrics:
    """Means of what is defined; a metric without any value, or with one that is not finite, has none."""
    return {name: mean(each[name] for each in found) for name in ("ssim", "psnr", "lpips")}


def _control_notes(aligned: float | None, control: float | None) -> list[str]:
    if aligned is None or control is None or control < aligned:
        return []
    return [
        f"Shuffled control: outputs fit the next case's reference as well as their own "
        f"(SSIM {control:.4f} against {aligned:.4f})."
    ]


def _case_score(
    verdict: CaseSubmission, data_range: float, prediction: Image | None, found: Metrics | None
) -> CaseScore:
    known = found or dict.fromkeys(("ssim", "psnr", "lpips"))
    return CaseScore(
        case=verdict.case,
        status=verdict.status,
        metrics={
            "ssim": clip_ssim(known["ssim"]),
            "ssim_unclipped": _finite(known["ssim"]),
            "psnr": _finite(known["psnr"]),
            "lpips": known["lpips"],
            "data_range": data_range,
        },
        detail={
            "output_min": None if prediction is None else float(prediction.min()),
            "output_max": None if prediction is None else float(prediction.max()),
        },
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_TWIN_TOLERANCE = 1e-6


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """Mean SSIM again, from the formula over whole windows."""
    ranges = Ranges(inputs.private)
    values = []
    for case, verdict in inputs.pairs:
        if not verdict.completed:
            continue
        reference = read_reference(inputs.private, case)
        prediction = read_prediction(inputs, case)
        data_range = ranges.of(case.id, reference)
        found = windowed_ssim(prediction, reference, data_range=data_range, weights=gaussian_weights())
        values.append(clip_ssim(found))
    twin = f"numpy {np.__version__} (SSIM over whole windows)"
    return twin, math.fsum(values) / len(inputs.manifest.cases), _TWIN_TOLERANCE


def gaussian_weights() -> NDArray[np.float64]:
    """Weights of SSIM's window along one axis."""
    offsets = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-0.5 * (offsets / SIGMA) ** 2)
    return np.asarray(weights / weights.sum())
