"""Enhancement's outputs and answers for the effect of the case: coarse images, and the middle of each at full size."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import CaseEntry
from automedbench.base.untrusted.npy import parse_float_array
from automedbench.metrics.image_quality import ssim
from automedbench.tracks import EffectEvidence, ScoringInputs
from automedbench.tracks.common.coarse import coarse_plane, correlation, same_picture
from automedbench.tracks.common.restoration import (
    BORDER,
    RestoredCase,
    centre,
    collect_restored,
    compare_restored,
    smoothed,
    smoothings,
)
from automedbench.tracks.enhancement.score import clip_ssim, read_prediction
from automedbench.tracks.enhancement.truth import Ranges, read_reference

Floats = NDArray[np.float64]
COARSE, CROP = 32, 128 + 2 * BORDER
"""Sides of the coarse image, which is compared with all answers, and of the part that is compared with the input."""


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Outputs and references of every completed case, and forms of its input; raises ValueError without public data."""
    ranges = Ranges(inputs.private)
    outputs, answers, restored = [], [], []
    for case in (case for case, verdict in inputs.pairs if verdict.completed):
        prediction, reference = read_prediction(inputs, case), read_reference(inputs.private, case)
        outputs.append(coarse_plane(prediction, COARSE))
        answers.append(coarse_plane(reference, COARSE))
        restored.append(_restored(inputs, case, prediction, reference, ranges.of(case.id, reference)))
    return EffectEvidence(outputs, answers, correlation, same_picture, restoration=collect_restored(restored))


def _restored(
    inputs: ScoringInputs,
    case: CaseEntry,
    prediction: NDArray[np.float32],
    reference: NDArray[np.float32],
    data_range: float,
) -> RestoredCase:
    height, width = case.geometry["input_shape"]
    path = inputs.given(case.id) / inputs.card.inputs[0].file
    given = parse_float_array(path.read_bytes(), (int(height), int(width))).values
    forms = trivial_forms(given, reference.shape)
    parts = [*forms.values(), *smoothings(forms["input" if given.shape == reference.shape else "bicubic input"])]
    output, answer = (centre(image[None], CROP) for image in (prediction, reference))
    return compare_restored(output, answer, forms, parts, functools.partial(_quality, data_range=data_range))


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
