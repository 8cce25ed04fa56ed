"""Slices as readers return them: one record per 2-D grey image, its pixels read only when it is chosen.

The options that all of them share are here as well: which files are images and whom they show (``ImageFiles``), and
what becomes of the values of one of them (``Shaping``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, field_validator, model_validator

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Model
from automedbench.datasets.forms.degradation import bicubic
from automedbench.datasets.forms.problems import incomplete
from automedbench.datasets.patterns import search_pattern

Image = NDArray[np.float32]
Percent = Annotated[float, Field(ge=0, le=100)]
_VOLUME_SUFFIXES = (".nii.gz", ".nii")


@dataclass(frozen=True)
class SliceOrigin:
    """Origin of a slice, once that is known: its file, and what was unusual about the files around it."""

    file: Path
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceSlice:
    """An image or slice upstream; ``pixels()`` reads it as float32 (height, width) in the unit of the task.

    ``subject`` is the patient it shows. ``path`` is its file, or the folder of its series; then ``origin()`` says which
    file it is. ``degraded()`` is the same slice as a data set of pairs has it, in the same shape and unit.
    """

    id: str
    subject: str
    path: Path
    pixels: Callable[[], Image]
    degraded: Callable[[], Image] | None = None
    origin: Callable[[], SliceOrigin] | None = None
    data_range: float | None = None
    """Data range that the data set gives the slice for its metrics; None where it gives none."""

    @property
    def source(self) -> SliceOrigin:
        """The file that the pixels are read from."""
        return SliceOrigin(self.path) if self.origin is None else self.origin()


# --- which files, and whom they show --------------------------------------------------------------------------


class Shaping(Model):
    """Preprocessing of an image: values mapped to 0…1, then resampled to one size."""

    window: tuple[float, float] | None = Field(
        None, description="values (after the offset, if any) that become 0 and 1, clipped; null keeps them as they are"
    )
    percentiles: tuple[Percent, Percent] | None = Field(
        None, description="percentiles of the image (0 to 100) that become 0 and 1, clipped, instead of a window"
    )
    size: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="height and width of the result; null: as it is"
    )
    fit: Literal["resize", "cover", "pad"] = Field(
        "resize",
        description="resize: bicubic, for any proportions; cover: cut to the proportions of size first; "
        "pad: not resampled, centred on ground of the value fill, cut where it is larger",
    )
    fill: float = Field(0.0, description="ground for fit: pad, in the unit of the result")

    @field_validator("window", "percentiles")
    @classmethod
    def _rises(cls, limits: tuple[float, float] | None) -> tuple[float, float] | None:
        if limits is not None and limits[1] <= limits[0]:
            raise ValueError("must be two rising numbers")
        return limits

    @model_validator(mode="after")
    def _one_scale(self) -> Shaping:
        if self.window is not None and self.percentiles is not None:
            raise ValueError("window and percentiles exclude each other")
        return self


class ImageFiles(Shaping):
    """Selection of image files, and their patients."""

    images: list[str] = Field(min_length=1, description="patterns of image files below the raw folder")
    identity: Literal["name", "path"] = Field(
        "name", description="an image's id: its file name, or its path below the raw folder; both without suffix"
    )
    subject: re.Pattern[str] | None = Field(
        None, description="finds the patient in the id: group 1, or the whole match"
    )
    exclude: list[str] = Field(default_factory=list, description="ids of images that are left out")


class CutVolumes(ImageFiles):
    """Selection of volume files, and of their slices that become images."""

    positions: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        [0.5],
        min_length=1,
        description="relative places in the stack of slices; along a patient's axis 0 is left, back or feet",
    )


@dataclass(frozen=True)
class ImageFile:
    """One file that the patterns take."""

    id: str
    subject: str
    path: Path


def find_images(raw: Path, options: ImageFiles) -> list[ImageFile]:
    """All files that the patterns take, sorted by path; hidden files (macOS leaves ``._`` copies) are none.

    Raises MissingDataError when there is none, InfrastructureError for a name without patient or two files of one id.
    """
    names = sorted(
        {
            path.relative_to(raw).as_posix()
            for pattern in options.images
            for path in raw.glob(pattern)
            if not path.name.startswith(".")
        }
    )
    if not names:
        raise incomplete(f"{raw} contains no image that matches {', '.join(options.images)}")
    found = {name: _identity(name, options) for name in names}
    kept = {name: identity for name, identity in found.items() if identity not in options.exclude}
    _require_unique(raw, kept)
    return [ImageFile(identity, subject_id(identity, options.subject), raw / name) for name, identity in kept.items()]


def subject_id(identity: str, pattern: re.Pattern[str] | None) -> str:
    """The patient in an id, by the card's pattern; the id itself without one. Raises InfrastructureError for none."""
    if pattern is None:
        return identity
    found = search_pattern(pattern, identity)
    if found is None:
        raise InfrastructureError(
            f"{identity}: staging.options.subject '{pattern.pattern}' finds no patient in this name.\n"
            "Correct the pattern in the card, or remove the file."
        )
    return found


def slice_positions(identity: str, positions: Sequence[float]) -> Iterator[tuple[str, float]]:
    """Id and position of each slice of a volume; of a single one, the id is the volume's."""
    for number, position in enumerate(positions, start=1):
        yield identity if len(positions) == 1 else f"{identity}#{number}", position


def slice_index(position: float, length: int) -> int:
    """The slice at a relative position (0 to 1) of a stack of ``length``: ⌊position × length⌋, at most the last."""
    return min(int(position * length), length - 1)


def _identity(name: str, options: ImageFiles) -> str:
    suffix = next((each for each in _VOLUME_SUFFIXES if name.endswith(each)), PurePosixPath(name).suffix)
    bare = PurePosixPath(name.removesuffix(suffix))
    return bare.name if options.identity == "name" else str(bare)


def _require_unique(raw: Path, found: dict[str, str]) -> None:
    names: dict[str, str] = {}
    for name, identity in found.items():
        if names.setdefault(identity, name) != name:
            raise InfrastructureError(
                f"{raw / names[identity]} and {raw / name} have one name, so they would be one case.\n"
                "Narrow staging.options.images in the card, or set identity: path."
            )


# --- what becomes of their values -----------------------------------------------------------------------------


def shape_image(values: NDArray[np.floating], options: Shaping) -> Image:
    """An image (height, width) mapped to the scale and brought to the size of the options, as float32.

    What resampling overshoots is cut to 0…1 again where there is a window or percentiles. An image of one value
    becomes 0 under percentiles.
    """
    limits = options.window
    if options.percentiles is not None:
        low, high = np.percentile(values, options.percentiles)
        limits = (float(low), float(high))
    scaled = values if limits is None else _unit(values, limits)
    if options.size is not None and scaled.shape != options.size:
        scaled = _fitted(scaled, options.size, options)
        scaled = scaled if limits is None else np.clip(scaled, 0, 1)
    return np.asarray(scaled, dtype=np.float32)


def _unit(values: NDArray[np.floating], limits: tuple[float, float]) -> NDArray[np.floating]:
    low, high = limits
    if high == low:
        return np.zeros_like(values)
    return np.clip((values.astype(np.float64) - low) / (high - low), 0, 1)


def _fitted(values: NDArray[np.floating], size: tuple[int, int], options: Shaping) -> NDArray[np.floating]:
    if options.fit == "resize":
        return bicubic(values, size)
    if options.fit == "pad":
        return _centred(values, size, options.fill)
    height, width = values.shape
    ratio = size[0] / size[1]
    cut = (min(height, round(width * ratio)), min(width, round(height / ratio)))
    return bicubic(_centred(values, cut, 0.0), size)


def _centred(values: NDArray[np.floating], size: tuple[int, int], fill: float) -> NDArray[np.floating]:
    """The middle of an image on ground of one value; an odd row or column too many falls to the end."""
    result = np.full(size, fill, dtype=values.dtype)
    inner, outer = [], []
    for have, want in zip(values.shape, size, strict=True):
        kept = min(have, want)
        inner.append(slice((have - kept) // 2, (have - kept) // 2 + kept))
        outer.append(slice((want - kept) // 2, (want - kept) // 2 + kept))
    result[tuple(outer)] = values[tuple(inner)]
    return result
