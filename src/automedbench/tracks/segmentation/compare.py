"""One case of segmentation: truth and prediction read side by side, voxels counted, surfaces measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission
from automedbench.base.untrusted.nifti import BLOCK_VOXELS, open_trusted, open_volume
from automedbench.metrics.overlap import JointHistogram, Overlap
from automedbench.metrics.surface import SearchBudget, Surfaces, find_surfaces, surface_distances
from automedbench.tracks import ScoringInputs
from automedbench.tracks.common.cases import not_as_collected, output_path
from automedbench.tracks.segmentation.check import Encoder, Numbers
from automedbench.tracks.segmentation.settings import LabelFile, SegmentationSettings

# Bounds of the surface search of one case: an honest whole-body map at 1.5 mm has about a million surface voxels, and a
# unit of work takes up to 0.5 µs: 10 s in all.
MAX_SURFACE_VOXELS = 2_000_000
MAX_SURFACE_WORK = 20_000_000.0
NEAR_VOXELS = 32


@dataclass(frozen=True)
class TargetCounts:
    """One target in one case, in voxels; surface values are None where undefined, not asked for, or given up."""

    reference: int
    prediction: int
    both: int
    hd95_mm: float | None = None
    surface_dice: float | None = None

    @property
    def both_empty(self) -> bool:
        """The target is absent from truth and prediction."""
        return self.reference == 0 and self.prediction == 0


@dataclass(frozen=True)
class CaseCounts:
    """All targets of one case; ``comparable`` is False where the shape was wrong: then nothing of it is right."""

    verdict: CaseSubmission
    targets: dict[str, TargetCounts]
    comparable: bool
    voxel_ml: float


def compare_case(
    inputs: ScoringInputs,
    case: CaseEntry,
    verdict: CaseSubmission,
    files: tuple[LabelFile, ...],
    settings: SegmentationSettings,
) -> CaseCounts:
    """Count one case. A case that is not completed, or of another shape, has an empty prediction.

    Raises InfrastructureError when truth is missing or damaged, or a collected file is not what was checked.
    """
    usable = is_comparable(verdict)
    targets: dict[str, TargetCounts] = {}
    budget = SearchBudget(MAX_SURFACE_WORK)
    for file in files:
        pair = MaskPair(inputs, case, file, usable)
        overlap = pair.overlap()
        counts = [
            TargetCounts(int(overlap.reference[row]), int(overlap.prediction[row]), int(overlap.both[row]))
            for row in range(1, len(file.targets) + 1)
        ]
        if settings.surface_metrics:
            counts = _with_surfaces(pair, counts, settings, budget)
        targets |= {target.name: count for target, count in zip(file.targets, counts, strict=True)}
    voxel_mm3 = math.prod(case.geometry["spacing"])
    return CaseCounts(verdict, targets, usable or not verdict.completed, voxel_mm3 / 1000)


def is_comparable(verdict: CaseSubmission) -> bool:
    """Return whether masks can be compared voxel by voxel: all read to their end, on the case's grid."""
    return verdict.completed and all(problem.code != "shape_mismatch" for problem in verdict.problems)


class MaskPair:
    """Truth and prediction of one file, in step."""

    def __init__(self, inputs: ScoringInputs, case: CaseEntry, file: LabelFile, with_prediction: bool) -> None:
        self._truth = inputs.private / case.id / file.name
        self._prediction = output_path(inputs.submission, file.output, case.id) if with_prediction else None
        self._max_bytes = file.output.max_bytes
        self._file = file
        self.shape: tuple[int, ...] = tuple(case.geometry["shape"])
        self.spacing: tuple[float, ...] = tuple(case.geometry["spacing"])

    @property
    def plane_voxels(self) -> int:
        """Voxels of a plane of the first two axes."""
        return math.prod(self.shape[:2])

    def overlap(self) -> Overlap:
        """Voxels per number in truth, prediction and both."""
        histogram = JointHistogram(Encoder(self._file).n_numbers)
        truth = self.truth_numbers(BLOCK_VOXELS)
        if self._prediction is None:
            for numbers in truth:
                histogram.add(numbers, np.zeros_like(numbers))
        else:
            for numbers, predicted in zip(truth, self.predicted_numbers(BLOCK_VOXELS), strict=True):
                histogram.add(numbers, predicted)
        return histogram.overlap()

    def surfaces(self) -> tuple[Surfaces, Surfaces] | None:
        """Surfaces of truth and prediction; None when one of them has too many voxels."""
        x, y = (*self.shape, 1, 1)[:2]
        truth, prediction = (
            find_surfaces((numbers.reshape(y, x) for numbers in blocks), max_voxels=MAX_SURFACE_VOXELS)
            for blocks in (self.truth_numbers(x * y), self.predicted_numbers(x * y))
        )
        return None if truth is None or prediction is None else (truth, prediction)

    def truth_numbers(self, n_voxels: int) -> Iterator[Numbers]:
        """Numbers of the truth in file order, at most ``n_voxels`` at a time."""
        with open_trusted(self._truth) as reader:
            encoder = Encoder(self._file)
            if reader.header.shape != self.shape:
                raise InfrastructureError(f"{self._truth}: shape differs from the manifest; stage the task again.")
            for block in reader.blocks(n_voxels):
                yield encoder.encode(block)
        if encoder.problems:
            raise InfrastructureError(f"{self._truth} {encoder.problems[0].message}.\nStage the task again.")

    def predicted_numbers(self, n_voxels: int) -> Iterator[Numbers]:
        """Numbers of the prediction in file order, at most ``n_voxels`` at a time."""
        path = self._prediction
        if path is None:
            raise ValueError("there is no prediction")
        try:
            with open_volume(path, max_bytes=self._max_bytes) as reader:
                encoder = Encoder(self._file)
                if reader.header.shape != self.shape:
                    raise InvalidSubmission("shape_mismatch", f"has shape {reader.header.shape}")
                for block in reader.blocks(n_voxels):
                    yield encoder.encode(block)
        except InvalidSubmission as error:
            raise not_as_collected(path, error) from error


# --- surfaces -------------------------------------------------------------------------------------------------


def _with_surfaces(
    pair: MaskPair, counts: list[TargetCounts], settings: SegmentationSettings, budget: SearchBudget
) -> list[TargetCounts]:
    """The same counts with HD95 and surface Dice.

    A target in one of the two volumes only has a surface Dice of 0, and for HD95 the diagonal of the image (as in the
    BraTS challenge): without it, leaving out hard targets would improve the mean. So has every target of a case that
    was not handed in, cannot be read, or has another shape.
    """
    surfaces = None
    if any(count.reference and count.prediction for count in counts) and len(pair.shape) <= 3:
        surfaces = pair.surfaces()
        if surfaces is None:
            return counts
    # Small targets first: where the allowance ends, it is the fewest that go without.
    order = sorted(range(len(counts)), key=lambda row: counts[row].reference + counts[row].prediction)
    measured = {row: _measured(row + 1, counts[row], surfaces, pair, settings, budget) for row in order}
    return [measured[row] for row in range(len(counts))]


def _measured(
    number: int,
    count: TargetCounts,
    surfaces: tuple[Surfaces, Surfaces] | None,
    pair: MaskPair,
    settings: SegmentationSettings,
    budget: SearchBudget,
) -> TargetCounts:
    if count.both_empty:
        return count
    if not (count.reference and count.prediction):
        diagonal_mm = math.hypot(*(size * step for size, step in zip(pair.shape, pair.spacing, strict=True)))
        return replace(count, hd95_mm=diagonal_mm, surface_dice=0.0)
    if surfaces is None:
        return replace(count, surface_dice=0.0)
    truth, prediction = surfaces
    distances = surface_distances(
        truth.of(number),
        prediction.of(number),
        shape=pair.shape,
        spacing_mm=pair.spacing,
        near_mm=max(NEAR_VOXELS * max(pair.spacing), 2 * settings.tolerance_mm),
        budget=budget,
    )
    if distances is None:
        return count
    hd95_mm, surface_dice = distances.hausdorff95(), distances.surface_dice(settings.tolerance_mm)
    return replace(count, hd95_mm=hd95_mm, surface_dice=surface_dice)
