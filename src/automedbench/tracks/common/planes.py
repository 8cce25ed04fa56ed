"""Axial slices of volumes that are read front to back: which to show, and how they lie in a picture.

Pictures follow radiology: seen from the feet, the patient's right on the left, the front at the top.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.untrusted.nifti import VolumeReader

Plane = NDArray[Any]


@dataclass(frozen=True)
class AxialView:
    """How a stored volume is cut: ``axis`` runs along the body, ``rows`` and ``columns`` are the stored axes of a
    picture. A flag says whether the picture runs against the axis (for ``axis``: from the head down).
    """

    axis: int
    rows: int
    columns: int
    from_head: bool
    rows_flipped: bool
    columns_flipped: bool

    @classmethod
    def of(cls, affine: Any, shape: Sequence[int]) -> AxialView:
        """The view for an affine (4×4, to RAS in mm); one that points nowhere counts as RAS, a flat image stays."""
        import nibabel

        orientation: Any = nibabel.orientations.io_orientation
        if math.prod(shape[2:3]) == 1:
            return cls(2, 1, 0, False, False, False)
        try:
            with np.errstate(all="ignore"):
                found = orientation(np.asarray(affine, dtype=np.float64))
        except (ValueError, np.linalg.LinAlgError):
            found = np.full((3, 2), np.nan)
        if not np.isfinite(found).all():
            found = np.array([[0, 1], [1, 1], [2, 1]])
        stored = {int(world): (axis, bool(sign > 0)) for axis, (world, sign) in enumerate(found)}
        (columns, to_right), (rows, to_front), (axis, to_head) = stored[0], stored[1], stored[2]
        return cls(axis, rows, columns, not to_head, to_front, to_right)

    def spacing(self, spacing: Sequence[float]) -> tuple[float, float]:
        """Millimetres per row and per column of a picture; a size of 0 counts as 1."""
        sizes = [size if size > 0 else 1.0 for size in (*spacing, 1.0, 1.0, 1.0)[:3]]
        return sizes[self.rows], sizes[self.columns]

    def number(self, index: int, depth: int) -> int:
        """Number of a slice counted from the feet, from 1."""
        return depth - index if self.from_head else index + 1

    def picture(self, cut: Plane) -> Plane:
        """A cut, its axes in stored order, as (rows, columns) of a picture."""
        turned = cut if self.rows < self.columns else cut.T
        return turned[:: -1 if self.rows_flipped else 1, :: -1 if self.columns_flipped else 1]


def planes_of(reader: VolumeReader) -> Iterator[Plane]:
    """The (x, y) planes of a volume along its third axis; of one with more axes those of the first volume."""
    x, y, z = (*reader.header.shape, 1, 1, 1)[:3]
    for values in itertools.islice(reader.blocks(x * y), z):
        yield values.reshape((x, y), order="F")


def areas(planes: Iterable[Plane], axis: int) -> NDArray[np.int64]:
    """Number of values other than 0 in every slice along ``axis``."""
    if axis == 2:
        return np.array([np.count_nonzero(plane) for plane in planes], dtype=np.int64)
    counts = [np.count_nonzero(plane, axis=1 - axis) for plane in planes]
    return np.asarray(np.sum(counts, axis=0), dtype=np.int64)


def pick(planes: Iterable[Plane], view: AxialView, wanted: Sequence[int]) -> list[Plane]:
    """The wanted slices as pictures, in the order asked for; nothing else is kept."""
    if view.axis == 2:
        kept = {number: plane for number, plane in enumerate(planes) if number in wanted}
        return [view.picture(kept[number]) for number in wanted]
    stacked = np.stack([np.take(plane, wanted, axis=view.axis) for plane in planes], axis=-1)
    return [view.picture(np.take(stacked, number, axis=view.axis)) for number in range(len(wanted))]


def choose_slices(found: NDArray[np.int64], count: int) -> list[int]:
    """At most ``count`` slices in ascending order: the largest, and others evenly through what there is.

    Where nothing is found they are spread over the whole volume, away from its ends.
    """
    filled = np.flatnonzero(found)
    if not filled.size:
        return sorted({int((number + 0.5) * len(found) / count) for number in range(count)})
    first, last, largest = int(filled[0]), int(filled[-1]), int(np.argmax(found))
    others = max(1, count - 1)
    places = {first + int((number + 0.5) * (last - first + 1) / others) for number in range(count - 1)}
    return sorted({largest, *places})
