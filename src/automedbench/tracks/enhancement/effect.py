"""Enhancement's outputs and answers for the effect of the case: coarse images, and the middle of each at full size."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import CaseEntry
from automedbench.metrics.image_quality import ssim
from automedbench.tracks import EffectEvidence, ScoringInputs
from automedbench.tracks.common.restoration import (
    BORDER,
    RestoredCase,
    centre,
    restored_evidence,
    smoothed,
    smoothings,
)
from automedbench.tracks.enhancement.score import clip_ssim, read_input, read_prediction
from automedbench.tracks.enhancement.truth import Ranges, read_reference

Floats = NDArray[np.float64]
COARSE, CROP = 32, 128 + 2 * BORDER
"""Sides of the coarse image, which is compared with all answers, and of the part that is compared with the input."""


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Outputs and references of every completed case, and forms of its input; raises ValueError without public data."""
    ranges = Ranges(inputs.private)
    completed = (case for case, verdict in inputs.pairs if verdict.completed)
    return restored_evidence((_restored(inputs, case, ranges) for case in completed), COARSE, CROP)


def _restored(inputs: ScoringInputs, case: CaseEntry, ranges: Ranges) -> RestoredCase:
    reference, given = read_reference(inputs.private, case), read_input(inputs, case)
    forms = trivial_forms(given, reference.shape)
    parts = [*forms.values(), *smoothings(forms["input" if given.shape == reference.shape else "bicubic input"])]
    quality = functools.partial(_quality, data_range=ranges.of(case.id, reference))
    return RestoredCase(read_prediction(inputs, case)[None], reference[None], forms, parts, quality)


def trivial_forms(given: NDArray[np.float32], shape: tuple[int, ...]) -> dict[str, Floats]:
    """The middle of the input, as it is and smoothed, or interpolated to the output's shape."""
    if given.shape == shape:
        image = centre(given[None], CROP)
        return {"input": image, "smoothed input": smoothed(image, 1), "smoothed input, more": smoothed(image, 4)}
    from PIL import Image

    filters = Image.Resampling
    picture = Image.fromarray(given)
    return {
        name: centre(np.asarray(picture.resize((shape[1], shape[0]), kind))[None], CROP)
        for name, kind in (
            ("repeated input", filters.NEAREST),
            ("bilinear input", filters.BILINEAR),
            ("bicubic input", filters.BICUBIC),
            ("Hamming input", filters.HAMMING),
            ("Lanczos input", filters.LANCZOS),
        )
    }


def _quality(picture: Floats, answer: Floats, data_range: float) -> float:
    return clip_ssim(ssim(picture[0], answer[0], data_range=data_range))
