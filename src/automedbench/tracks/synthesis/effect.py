"""Synthesis' outputs and answers for the effect of the case: five planes of each volume, coarse and their middle."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import CaseEntry
from automedbench.base.untrusted.nifti import open_trusted
from automedbench.metrics.structural_similarity import plane_ssim
from automedbench.tracks import EffectEvidence, ScoringInputs, track_settings
from automedbench.tracks.common.cases import case_output, output_path
from automedbench.tracks.common.restoration import (
    BORDER,
    RestoredCase,
    centre,
    restored_evidence,
    smoothed,
    smoothings,
)
from automedbench.tracks.synthesis.measures import Plane
from automedbench.tracks.synthesis.score import is_scorable, predicted_planes
from automedbench.tracks.synthesis.settings import SynthesisSettings
from automedbench.tracks.synthesis.stage import TRUTH

Floats = NDArray[np.float64]
PLACES = (0.30, 0.37, 0.44, 0.51, 0.58)
"""Places of the planes along z, as shares of the depth: nothing behind the last is read."""
COARSE, CROP = 16, 160 + 2 * BORDER
"""Sides of the coarse planes, which are compared with all answers, and of the part that is compared with the input."""


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Planes of every output that can be scored, and of its answer and input; raises ValueError without public data."""
    settings: SynthesisSettings = track_settings(inputs.card)
    scorable = (case for case, verdict in inputs.pairs if is_scorable(verdict))
    return restored_evidence((_restored(inputs, case, settings) for case in scorable), COARSE, CROP)


def choose_planes(depth: int) -> list[int]:
    """Numbers of the planes, ascending; always as many as ``PLACES``, so that features of all cases have one size."""
    return [min(depth - 1, int(place * depth)) for place in PLACES]


def pick_planes(planes: Iterable[Plane], wanted: list[int]) -> Plane:
    """The wanted planes, (n, x, y); nothing behind the last of them is read."""
    kept: dict[int, Plane] = {}
    for number, plane in enumerate(planes):
        if number in wanted:
            kept[number] = np.asarray(plane, dtype=np.float32)
        if number == wanted[-1]:
            break
    return np.stack([kept[number] for number in wanted])


def _trusted(path: Path, wanted: list[int]) -> Plane:
    with open_trusted(path) as volume:
        return pick_planes(volume.slices(), wanted)


def _restored(inputs: ScoringInputs, case: CaseEntry, settings: SynthesisSettings) -> RestoredCase:
    output, wanted = case_output(inputs.card, "nii.gz"), choose_planes(int(case.geometry["shape"][2]))
    path = output_path(inputs.submission, output, case.id)
    given = {
        each.file: centre(_trusted(inputs.given(case.id) / each.file, wanted), CROP) for each in inputs.card.inputs
    }
    first = next(iter(given))
    return RestoredCase(
        output=pick_planes(predicted_planes(path, output.max_bytes), wanted),
        answer=np.clip(_trusted(inputs.private / case.id / TRUTH, wanted), *settings.hu_window),
        forms=given
        | {
            f"smoothed {first}": smoothed(given[first], 1),
            f"smoothed {first}, more": smoothed(given[first], 4),
        },
        parts=[*given.values(), *(-planes for planes in given.values()), *smoothings(given[first])],
        quality=functools.partial(_quality, settings=settings),
    )


def _quality(planes: Floats, truth: Floats, settings: SynthesisSettings) -> float:
    found = [
        plane_ssim(
            plane, true_plane, data_range=settings.data_range, window=settings.ssim_window, clip=settings.hu_window
        ).mean
        for plane, true_plane in zip(planes, truth, strict=True)
    ]
    return max(0.0, float(np.mean(found)))
