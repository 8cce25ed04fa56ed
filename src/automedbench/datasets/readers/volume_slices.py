"""Slices of NIfTI volumes, one file per volume, taken at fixed places of the patient's axes.

Options of the card (``staging.options``): ``images``, ``identity``, ``subject`` and ``exclude`` choose the volumes,
``axis`` and ``positions`` the slices, ``degraded`` finds a second volume with the same slices as a data set of pairs
has them; ``window`` or ``percentiles`` (of the slice), ``size``, ``fit`` and ``fill`` say what becomes of the values.

A volume is read as a stream, so that one slice is in memory, not the volume (both with ``within: content``). Slices
lie as radiologists look at them: the patient's right at the left edge, front or head at the top; a sagittal one has
the front at its left. Axes are turned and flipped to the closest orientation, never resampled.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Model
from automedbench.base.untrusted.nifti import VolumeHeader, VolumeReader, open_trusted
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.slices import ImageFiles, SourceSlice, find_images, numbered, place, shaped

# Plane → patient's axis (x to the right, y to the front, z upwards) that it is perpendicular to, of its rows, columns.
_AXES = {"sagittal": (0, 2, 1), "coronal": (1, 2, 0), "axial": (2, 1, 0)}


class Pair(Model):
    """How the path of a volume becomes the path of its degraded twin."""

    replace: str = Field(min_length=1, description="part of the path below the raw folder")
    by: str


class Options(ImageFiles):
    """Which volumes, and which slices of them."""

    axis: Literal["axial", "coronal", "sagittal"] = "axial"
    positions: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        [0.5],
        min_length=1,
        description="relative places along the axis: 0 is the patient's left, back or feet, 1 the other end",
    )
    within: Literal["volume", "content"] = Field(
        "volume", description="content: places count between the first and the last slice that is not constant"
    )
    degraded: Pair | None = None


def read(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """A record per volume and position, sorted by path; nothing is opened yet.

    Raises MissingDataError when there is no volume or a twin is missing, InfrastructureError for a name without
    patient or two volumes of one id.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    found = []
    for each in find_images(raw, options):
        twin = _twin(raw, each.path, options.degraded)
        for number, position in enumerate(options.positions, start=1):
            pixels = functools.partial(read_plane, each.path, options, position)
            degraded = None if twin is None else functools.partial(_read_twin, twin, each.path, options, position)
            identity = numbered(each.id, number, len(options.positions))
            found.append(SourceSlice(identity, each.subject, each.path, pixels, degraded))
    return found


def read_plane(path: Path, options: Options, position: float) -> NDArray[np.float32]:
    """One slice of a volume as float32 (height, width), its values and size as the options say.

    Raises InfrastructureError for a volume that is damaged, has no three axes, no usable geometry or no content.
    """
    with open_trusted(path) as reader:
        return shaped(_plane(reader, path, options, position), options)


def _read_twin(twin: Path, original: Path, options: Options, position: float) -> NDArray[np.float32]:
    with open_trusted(twin) as second, open_trusted(original) as first:
        if first.header.shape != second.header.shape:
            raise _unusable(twin, f"has shape {second.header.shape}, but {original} has {first.header.shape}")
        if _orientation(first.header, original) != _orientation(second.header, twin):
            raise _unusable(twin, f"is oriented otherwise than {original}")
    return read_plane(twin, options, position)


def _twin(raw: Path, path: Path, pair: Pair | None) -> Path | None:
    if pair is None:
        return None
    name = path.relative_to(raw).as_posix()
    twin = raw / name.replace(pair.replace, pair.by, 1)
    if twin == path or not twin.is_file():
        raise MissingDataError(
            f"{twin} does not exist, or is the volume itself: {path} has no degraded twin.\n"
            "Fetch the data again (`snakemake prepare`), or correct staging.options.degraded of the card."
        )
    return twin


# --- one plane ------------------------------------------------------------------------------------------------


def _plane(reader: VolumeReader, path: Path, options: Options, position: float) -> NDArray[Any]:
    shape = (*reader.header.shape, 1, 1, 1)[:3]
    if reader.header.n_voxels != int(np.prod(shape)) or min(shape) < 2:
        raise _unusable(path, f"has shape {reader.header.shape}, not three axes")
    orientation = _orientation(reader.header, path)
    across, *_ = _AXES[options.axis]
    axis = next(stored for stored, (turned, _) in enumerate(orientation) if turned == across)
    upwards = orientation[axis][1] > 0
    if options.within == "content":
        stack = np.moveaxis(np.stack(list(reader.slices()), axis=-1), axis, 0)
        stack = _content(stack, path)
        index = place(position, len(stack))
        values = stack[index if upwards else len(stack) - 1 - index]
    else:
        index = place(position, shape[axis])
        values = _cut(reader, axis, index if upwards else shape[axis] - 1 - index)
    return _upright(values, [each for stored, each in enumerate(orientation) if stored != axis], options.axis)


def _cut(reader: VolumeReader, axis: int, index: int) -> NDArray[Any]:
    """The plane of that index across a stored axis; the other two axes stay in their order."""
    if axis == 2:
        chosen = [values for z, values in enumerate(reader.slices()) if z == index]
        return chosen[0]
    return np.stack([np.take(values, index, axis=axis) for values in reader.slices()], axis=-1)


def _content(stack: NDArray[Any], path: Path) -> NDArray[Any]:
    """From the first to the last plane that is not of one value."""
    varied = np.flatnonzero(stack.min(axis=(1, 2)) != stack.max(axis=(1, 2)))
    if varied.size == 0:
        raise _unusable(path, "holds one value only")
    return stack[varied[0] : varied[-1] + 1]


def _upright(values: NDArray[Any], orientation: list[tuple[int, int]], plane: str) -> NDArray[Any]:
    """Rows from head or front downwards, columns from the patient's right, or front, onwards."""
    _, rows, _ = _AXES[plane]
    for number, (_, direction) in enumerate(orientation):
        # The patient's axes point to the right, front and head; a picture begins with each of them.
        values = np.flip(values, number) if direction > 0 else values
    return values if orientation[0][0] == rows else values.T


def _orientation(header: VolumeHeader, path: Path) -> list[tuple[int, int]]:
    """For each stored axis, the patient's axis that it is closest to, and 1 or -1 for its direction."""
    import nibabel

    affine = header.affine
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
        raise _unusable(path, "has no usable geometry")
    orientations: Any = nibabel.orientations
    return [(int(axis), int(direction)) for axis, direction in orientations.io_orientation(affine)]


def _unusable(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(
        f"{path} {why}.\nDelete it and fetch the data again (`snakemake prepare`), or name it in "
        "staging.options.exclude of the card."
    )
