"""Enhancement's pictures: what was given, what came back, what it should be, and the difference of the last two."""

from __future__ import annotations

import numpy as np

from automedbench.base.records import CaseScore
from automedbench.base.views import Frame
from automedbench.tracks import Drawing, ScoringInputs, track_settings
from automedbench.tracks.common.pictures import MAX_CASE_CHARS, difference_layer, difference_legend, fitted, grey_layer
from automedbench.tracks.enhancement.score import read_input, read_prediction
from automedbench.tracks.enhancement.settings import EnhancementSettings
from automedbench.tracks.enhancement.truth import read_reference

DIFFERENCE_SHARE = 0.1
"""Share of the grey scale at which the colours of the difference end: half a tenth is clearly seen."""
SIZES = (512, 384, 256, 160)
"""Pixels of the long side: the first that leaves the case small enough."""


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """One frame with input, prediction, reference and difference on the reference's grid and grey scale."""
    entry = inputs.entry(case.case)
    reference = read_reference(inputs.private, entry)
    given = read_input(inputs, entry)
    settings: EnhancementSettings = track_settings(inputs.card)
    window = settings.intensity_range or (float(reference.min()), float(reference.max()))
    title = f"grey {window[0]:.4g} to {window[1]:.4g} · input {given.shape[1]} × {given.shape[0]} pixels"
    prediction = read_prediction(inputs, entry) if inputs.verdict(entry.id).completed else None
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
