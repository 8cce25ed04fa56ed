"""Synthesis' pictures: slices of the source, the synthetic CT and the true one, and their difference in HU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

from automedbench.base.records import CaseScore
from automedbench.base.untrusted.nifti import VolumeReader, open_trusted, open_volume
from automedbench.base.views import Frame, ViewLayer
from automedbench.tracks import Drawing, ScoringInputs, track_settings
from automedbench.tracks.common.cases import case_output, output_path
from automedbench.tracks.common.pictures import (
    MAX_TITLE,
    AxialView,
    Plane,
    difference_layer,
    difference_legend,
    fitted,
    grey_layer,
    intensity_window,
    iterate_planes,
    pick_slices,
)
from automedbench.tracks.synthesis.score import is_scorable
from automedbench.tracks.synthesis.settings import SynthesisSettings
from automedbench.tracks.synthesis.stage import TRUTH, read_degradation

N_SLICES = 5
DIFFERENCE_HU = 200.0


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """Five axial slices from bottom to top, and the least similar one."""
    entry = inputs.entry(case.case)
    settings: SynthesisSettings = track_settings(inputs.card)
    depth = int(entry.geometry["shape"][2])
    similarity: list[float | None] = case.detail.get("ssim_by_slice") or [None] * depth
    wanted = choose_slices(similarity)
    view = AxialView.of(entry.geometry["affine"], entry.geometry["shape"])
    source = _cuts(open_trusted(inputs.given(entry.id) / inputs.card.inputs[0].file), view, wanted)
    truth = _cuts(open_trusted(inputs.private / entry.id / TRUTH), view, wanted)
    prediction = None
    if is_scorable(inputs.verdict(entry.id)):
        output = case_output(inputs.card, "nii.gz")
        path = output_path(inputs.submission, output, entry.id)
        prediction = _cuts(open_volume(path, max_bytes=output.max_bytes), view, wanted)
    size = fitted(truth[0].shape, view.spacing(entry.geometry["spacing"]))
    window = settings.soft_window
    # The source of paired data is an MR, with grey values of its own.
    source_window = intensity_window(np.stack(source)) if read_degradation(inputs.card) is None else window
    frames = []
    for place, index in enumerate(wanted):
        layers: list[ViewLayer] = [grey_layer("input", source[place], source_window, size)]
        if prediction is not None:
            layers.append(grey_layer("prediction", prediction[place], window, size))
            difference = prediction[place].astype(np.float64) - truth[place]
            layers.append(difference_layer(difference, DIFFERENCE_HU, size))
        layers.append(grey_layer("reference", truth[place], window, size))
        title = _title(index, similarity) + f" · HU {window[0]:g} to {window[1]:g}"
        frames.append(Frame(title=title[:MAX_TITLE], width=size[0], height=size[1], layers=layers))
    legend = difference_legend(DIFFERENCE_HU, " HU") if prediction is not None else []
    return Drawing(frames=frames, legend=legend)


def _cuts(volume: AbstractContextManager[VolumeReader], view: AxialView, wanted: list[int]) -> list[Plane]:
    """The wanted slices of one volume."""
    with volume as reader:
        return pick_slices(iterate_planes(reader), view, wanted)


def choose_slices(similarity: Sequence[float | None]) -> list[int]:
    """Slices to show: evenly spaced ones, and the one with the lowest SSIM."""
    depth = len(similarity)
    evenly = {int((number + 0.5) * depth / N_SLICES) for number in range(N_SLICES)}
    worst = _worst(similarity)
    return sorted(evenly | ({worst} if worst is not None else set()))


def _worst(similarity: Sequence[float | None]) -> int | None:
    known = [(value, index) for index, value in enumerate(similarity) if value is not None]
    return min(known)[1] if known else None


def _title(index: int, similarity: Sequence[float | None]) -> str:
    value = similarity[index]
    label = "" if value is None else f" · SSIM {value:.3f}"
    return f"axial {index + 1} of {len(similarity)}{label}" + (" (lowest)" if index == _worst(similarity) else "")
