"""Segmentation's pictures: slices of the scan, the prediction as areas and the reference as outlines above it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseEntry, CaseScore
from automedbench.base.untrusted.nifti import open_trusted
from automedbench.base.views import Frame, LegendItem
from automedbench.tracks import Drawing, ScoringInputs
from automedbench.tracks.common.pictures import (
    COLOURS,
    MAX_TITLE,
    OTHER,
    AxialView,
    Plane,
    Window,
    choose_slices,
    fitted,
    grey_layer,
    intensity_window,
    iterate_planes,
    label_layer,
    magnified,
    pick_slices,
    resized_numbers,
    slice_areas,
)
from automedbench.tracks.segmentation.compare import MaskPair, is_comparable
from automedbench.tracks.segmentation.settings import LabelFile, label_files

N_SLICES = 7
SOFT_TISSUE: Window = (-160.0, 240.0)
LUNG: Window = (-1350.0, 150.0)
_LUNG_WORDS = re.compile(r"lung|pulmon|airway|bronch|trachea|nodule|covid|infection|pneumo", re.IGNORECASE)
_AIR_HU = -300.0
"""A scan in Hounsfield units holds values far below this, one that was rescaled does not."""

Numbers = NDArray[np.uint16]


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """Up to seven axial slices through what reference and prediction mark, the largest cross-section among them."""
    sources = _Sources.of(inputs, case)
    shape = (*sources.shape, 1, 1, 1)[:3]
    view = AxialView.of(sources.entry.geometry["affine"], shape)
    found = sum((sources.areas(side, view.axis) for side in sources.sides), np.zeros(shape[view.axis], np.int64))
    wanted = choose_slices(found, N_SLICES)
    labels = {side: sources.labels(side, view, wanted) for side in sources.sides}
    scans = sources.scan(view, wanted)
    colours = _Colours.of([target.name for file in sources.files for target in file.targets], list(labels.values()))
    window, description = _window(inputs, scans)
    size = magnified(fitted(scans[0].shape, view.spacing(sources.entry.geometry["spacing"])))
    largest = int(np.argmax(found)) if found.any() else None
    frames = []
    for place, index in enumerate(wanted):
        layers = [grey_layer("input", scans[place], window, size)]
        for side in sources.sides:
            drawn = resized_numbers(colours.table[labels[side][place]], size)
            layers.append(label_layer(side, drawn, colours.palette, outline=side == "reference"))  # type: ignore[arg-type]
        title = f"axial {view.number(index, shape[view.axis])} of {shape[view.axis]}"
        title += (" · largest" if index == largest else "") + f" · {description}"
        frames.append(Frame(title=title[:MAX_TITLE], width=size[0], height=size[1], layers=layers))
    return Drawing(frames=frames, legend=colours.legend)


@dataclass(frozen=True)
class _Sources:
    """Volumes of one case; ``sides`` holds ``prediction`` only where there is one on the case's grid."""

    inputs: ScoringInputs
    entry: CaseEntry
    files: tuple[LabelFile, ...]
    sides: tuple[str, ...]

    @classmethod
    def of(cls, inputs: ScoringInputs, case: CaseScore) -> _Sources:
        """The volumes of a case."""
        entry = inputs.entry(case.case)
        usable = is_comparable(inputs.verdict(case.case))
        return cls(inputs, entry, label_files(inputs.card), ("prediction", "reference") if usable else ("reference",))

    @property
    def shape(self) -> tuple[int, ...]:
        """Voxels along each stored axis."""
        return tuple(self.entry.geometry["shape"])

    def areas(self, side: str, axis: int) -> NDArray[np.int64]:
        """Marked voxels in every slice along an axis."""
        counts = [slice_areas(self._planes(side, file), axis) for file in self.files]
        return np.asarray(np.sum(counts, axis=0), dtype=np.int64)

    def labels(self, side: str, view: AxialView, wanted: list[int]) -> list[Numbers]:
        """The wanted slices as numbers of targets over all files, from 1; where two are, the later one shows."""
        merged: list[Numbers] = []
        first = 1
        for file in self.files:
            picked = (cut.astype(np.uint16) for cut in pick_slices(self._planes(side, file), view, wanted))
            # Values that are no label of the task are not drawn.
            cuts = [np.where((cut > 0) & (cut <= len(file.targets)), cut + np.uint16(first - 1), 0) for cut in picked]
            merged = [np.where(cut > 0, cut, below) for cut, below in zip(cuts, merged or cuts, strict=True)]
            first += len(file.targets)
        return merged

    def scan(self, view: AxialView, wanted: list[int]) -> list[Plane]:
        """The wanted slices of the first input."""
        path = self.inputs.given(self.entry.id) / self.inputs.card.inputs[0].file
        with open_trusted(path) as reader:
            if reader.header.shape[: len(self.shape)] != self.shape:
                raise InfrastructureError(f"{path}: shape differs from the manifest; stage the task again.")
            return pick_slices(iterate_planes(reader), view, wanted)

    def _planes(self, side: str, file: LabelFile) -> Iterator[Plane]:
        pair = MaskPair(self.inputs, self.entry, file, with_prediction=side == "prediction")
        numbers = pair.truth_numbers if side == "reference" else pair.predicted_numbers
        x, y, z = (*self.shape, 1, 1, 1)[:3]
        return (block.reshape((x, y), order="F") for block in itertools.islice(numbers(x * y), z))


@dataclass(frozen=True)
class _Colours:
    """From numbers of targets to places in a palette, and what they are called."""

    table: NDArray[np.uint8]
    palette: list[str]
    legend: list[LegendItem]

    @classmethod
    def of(cls, names: list[str], planes: list[list[Numbers]]) -> _Colours:
        """A colour for each target where there are few, else for those that fill most of the slices."""
        present = np.zeros(len(names) + 1, dtype=np.int64)
        for plane in (plane for side in planes for plane in side):
            present += np.bincount(plane.ravel(), minlength=len(names) + 1)
        own = list(range(1, len(names) + 1))  # few keep their colours from case to case, also where one is absent
        if len(names) > len(COLOURS):
            by_area = (np.argsort(-present[1:], kind="stable") + 1).tolist()
            own = [number for number in sorted(by_area[: len(COLOURS)]) if present[number]]
        colours = dict(zip(own, COLOURS, strict=False))
        own = [number for number in own if present[number]]
        table: Any = np.full(len(names) + 1, len(own) + 1, dtype=np.uint8)
        table[0] = 0
        table[own] = np.arange(1, len(own) + 1)
        legend = [LegendItem(name=names[number - 1][:MAX_TITLE], colour=colours[number]) for number in own]
        n_others = int(np.count_nonzero(present[1:])) - len(own)
        if n_others:
            legend.append(LegendItem(name=f"{n_others} other structures", colour=OTHER))
        return cls(table, [*(colours[number] for number in own), OTHER], legend)


def _window(inputs: ScoringInputs, scans: list[Plane]) -> tuple[Window, str]:
    """Window of grey values, and its name: of CT by what is looked for, else by the values."""
    values = np.stack(scans)
    is_ct = re.search(r"\bCT\b", inputs.card.modality) is not None and float(values.min()) < _AIR_HU
    if not is_ct:
        window = intensity_window(values)
        return window, f"grey {window[0]:.4g} to {window[1]:.4g}"
    lung = all(_LUNG_WORDS.search(target.name) for target in inputs.card.targets)
    window = LUNG if lung else SOFT_TISSUE
    return window, f"HU {window[0]:g} to {window[1]:g}"
