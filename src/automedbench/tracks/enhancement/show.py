"""Enhancement's pictures: what was given, what came back, what it should be, and the difference of the last two."""

from __future__ import annotations

import numpy as np

from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseScore
from automedbench.base.records.views import Frame
from automedbench.base.untrusted import read_bounded
from automedbench.base.untrusted.npy import parse_float_array
from automedbench.tracks import Drawing, ScoringInputs, track_settings
from automedbench.tracks.common.cases import case_output, output_path
from automedbench.tracks.common.pictures import MAX_CASE_CHARS, difference_layer, difference_legend, fitted, grey_layer
from automedbench.tracks.enhancement.settings import Settings
from automedbench.tracks.enhancement.truth import Image, output_shape, read_reference

DIFFERENCE_SHARE = 0.1
"""Share of the grey scale at which the colours of the difference end: half a tenth is clearly seen."""
SIZES = (512, 384, 256, 160)
"""Pixels of the long side: the first that leaves the case small enough."""


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """One frame with input, prediction, reference and difference on the reference's grid and grey scale."""
    if inputs.public is None:
        raise ValueError("pictures need the public data")
    entry = next(each for each in inputs.manifest.cases if each.id == case.case)
    reference = read_reference(inputs.private, entry)
    path = inputs.public / entry.id / inputs.card.inputs[0].file
    height, width = entry.geometry["input_shape"]
    given = parse_float_array(path.read_bytes(), (int(height), int(width))).values
    settings: Settings = track_settings(inputs.card)
    window = settings.intensity_range or (float(reference.min()), float(reference.max()))
    title = f"grey {window[0]:.4g} to {window[1]:.4g} · input {width} × {height} pixels"
    prediction = _prediction(inputs, case, output_shape(entry))
    limit = float(f"{DIFFERENCE_SHARE * (window[1] - window[0]):.2g}")
    for longest in SIZES:
        size = fitted(reference.shape, longest=longest)
        layers = [grey_layer("input", given, window, size)]
        if prediction is not None:
            difference = prediction.astype(np.float64) - reference
            layers += [grey_layer("prediction", prediction, window, size), difference_layer(difference, limit, size)]
        layers.append(grey_layer("reference", reference, window, size))
        if sum(len(layer.picture) for layer in layers) <= MAX_CASE_CHARS:
            break
    frame = Frame(title=title, width=size[0], height=size[1], layers=layers)
    return Drawing(frames=[frame], legend=[] if prediction is None else difference_legend(limit))


def _prediction(inputs: ScoringInputs, case: CaseScore, shape: tuple[int, int]) -> Image | None:
    if not next(each for each in inputs.checked.cases if each.case == case.case).completed:
        return None
    output = case_output(inputs.card, "npy")
    data = read_bounded(output_path(inputs.submission, output, case.case), output.max_bytes)
    if data is None:
        raise InvalidSubmission("not_found", "is gone")
    return parse_float_array(data, shape).values
