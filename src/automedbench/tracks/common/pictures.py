"""Pictures of cases: grey values and labels as small images in data URIs, in colours that all eyes can tell apart.

Arrays are (rows, columns), origin top left.

Slices of volumes follow radiology: seen from the feet, the patient's right on the left, the front at the top. Volumes
are read front to back.
"""

from __future__ import annotations

import base64
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from automedbench.base.untrusted.nifti import VolumeReader
from automedbench.base.views import Frame, LegendItem, Side, ViewLayer

Plane = NDArray[Any]
Window = tuple[float, float]

# Okabe and Ito (2008), without black and without the blue that vanishes on dark tissue.
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#d55e00", "#cc79a7")
OTHER = "#c8c8c8"
BELOW, EQUAL, ABOVE = "#0072b2", "#f7f7f7", "#d55e00"
"""Ends and middle of a difference map."""
LONGEST, LONGEST_PHOTO = 320, 512
"""Pixels of the long side of a slice, and of an image that is looked at as a whole."""
MAX_FACTOR = 3
MAX_PHOTOS = 4
_QUALITY = 72
MAX_TITLE = 100
MAX_CASE_CHARS = 150_000
"""Characters of the pictures of one case; base64 makes four of three bytes."""


def fitted(
    shape: tuple[int, ...], spacing: tuple[float, float] = (1.0, 1.0), longest: int = LONGEST
) -> tuple[int, int]:
    """Width and height in square pixels of an array of (rows, columns) with this spacing (mm per row, per column).

    The finer axis keeps its pixels unless the long side would pass ``longest``.
    """
    height, width = shape[0] * spacing[0], shape[1] * spacing[1]
    pixel = max(min(spacing), height / longest, width / longest)
    return max(1, round(width / pixel)), max(1, round(height / pixel))


def magnified(size: tuple[int, int]) -> tuple[int, int]:
    """A small picture's size times 2 or 3, as far as ``LONGEST`` allows: lines on it are then thinner than a voxel."""
    factor = max(1, min(MAX_FACTOR, LONGEST // max(size)))
    return size[0] * factor, size[1] * factor


def intensity_window(values: Plane) -> Window:
    """The 1st to 99th percentile of the finite values; widened where that is nothing."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = (float(value) for value in np.percentile(finite, (1, 99)))
    if low >= high:
        low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low - 0.5, low + 0.5)


def windowed(values: Plane, window: Window) -> NDArray[np.uint8]:
    """Values as grey: black at the lower end of the window and below, white at the upper end and above."""
    low, high = window
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.nan_to_num((values.astype(np.float64) - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0)
    return np.asarray(np.rint(255 * share.clip(0, 1)), dtype=np.uint8)


def grey_layer(side: Side, values: Plane, window: Window, size: tuple[int, int]) -> ViewLayer:
    """Values as a grey picture of ``size`` (width, height); where it grows, every value stays a block."""
    return ViewLayer(side=side, picture=_lossy(_resized(Image.fromarray(windowed(values, window)), size)))


def photo_layer(side: Side, path: Path) -> tuple[ViewLayer, tuple[int, int]]:
    """An image file of ours as it is, reduced to ``LONGEST_PHOTO``, with its width and height."""
    with Image.open(path) as image:
        pixels = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    width, height = fitted((pixels.height, pixels.width), longest=LONGEST_PHOTO)
    return ViewLayer(side=side, picture=_lossy(_resized(pixels, (width, height)))), (width, height)


def photo_frame(title: str, path: Path) -> Frame:
    """An image file of ours as a frame of its own."""
    layer, (width, height) = photo_layer("input", path)
    return Frame(title=title[:MAX_TITLE], width=width, height=height, layers=[layer])


def photo_frames(folder: Path, names: Sequence[str]) -> list[Frame]:
    """The first ``MAX_PHOTOS`` of the image files below a case's folder, numbered."""
    return [
        photo_frame(f"image {number} of {len(names)}", folder / name)
        for number, name in enumerate(names[:MAX_PHOTOS], 1)
    ]


def label_layer(side: Side, numbers: NDArray[np.uint8], colours: Sequence[str], *, outline: bool = False) -> ViewLayer:
    """An overlay: number 0 is transparent, number n has ``colours[n - 1]``; with ``outline`` edges alone are drawn."""
    image = Image.fromarray(outlined(numbers) if outline else numbers).convert("P")
    image.putpalette([0, 0, 0, *(part for colour in colours for part in bytes.fromhex(colour[1:]))])
    return ViewLayer(side=side, picture=_uri(image, "png", transparency=0, optimize=True), overlay=True)


def outlined(numbers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The pixels of every region that touch another number or the border, the others 0."""
    padded = np.pad(numbers, 1)
    inner = np.ones(numbers.shape, dtype=bool)
    for rows, columns in ((0, 1), (2, 1), (1, 0), (1, 2)):
        inner &= padded[rows : rows + numbers.shape[0], columns : columns + numbers.shape[1]] == numbers
    return np.where(inner, np.uint8(0), numbers)


def resized_numbers(numbers: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Numbers on a grid of ``size`` (width, height): each pixel takes the nearest."""
    return np.asarray(Image.fromarray(numbers).resize(size, Image.Resampling.NEAREST), dtype=np.uint8)


def difference_layer(difference: Plane, limit: float, size: tuple[int, int]) -> ViewLayer:
    """Prediction − reference: blue at −``limit`` and below, white at 0, orange at ``limit`` and above."""
    share = (windowed(difference, (-limit, limit)).astype(np.float64) / 127.5 - 1)[..., None]
    below, middle, above = (np.array(list(bytes.fromhex(colour[1:])), float) for colour in (BELOW, EQUAL, ABOVE))
    pixels = middle + np.where(share < 0, below - middle, above - middle) * np.abs(share)
    image = _resized(Image.fromarray(np.asarray(np.rint(pixels), dtype=np.uint8)), size)
    # Fine lines of colour would turn grey where a codec halves the resolution of colours.
    return ViewLayer(side="difference", picture=_uri(image, "jpeg", quality=_QUALITY, subsampling=0))


def difference_legend(limit: float, unit: str = "") -> list[LegendItem]:
    """Legend of the colours of a difference map."""
    return [
        LegendItem(name=f"prediction lower by {limit:g}{unit} or more", colour=BELOW),
        LegendItem(name="equal", colour=EQUAL),
        LegendItem(name=f"prediction higher by {limit:g}{unit} or more", colour=ABOVE),
    ]


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    if image.size == size:
        return image
    grows = size[0] >= image.width and size[1] >= image.height
    return image.resize(size, Image.Resampling.NEAREST if grows else Image.Resampling.BOX)


def _lossy(image: Image.Image) -> str:
    return _uri(image, "webp" if features.check("webp") else "jpeg", quality=_QUALITY)


def _uri(image: Image.Image, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind.upper(), **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


@dataclass(frozen=True)
class AxialView:
    """Axial cut of a stored volume: ``axis`` runs along the body, ``rows`` and ``columns`` are the stored axes of a
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
        if math.prod(shape[2:3]) == 1:
            return cls(2, 1, 0, False, False, False)
        from nibabel.orientations import io_orientation

        try:
            with np.errstate(all="ignore"):
                found = np.asarray(io_orientation(np.asarray(affine, dtype=np.float64)))  # type: ignore[no-untyped-call]
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


def iterate_planes(reader: VolumeReader) -> Iterator[Plane]:
    """The (x, y) planes of a volume along its third axis; of one with more axes those of the first volume."""
    x, y, z = (*reader.header.shape, 1, 1, 1)[:3]
    for values in itertools.islice(reader.blocks(x * y), z):
        yield values.reshape((x, y), order="F")


def slice_areas(planes: Iterable[Plane], axis: int) -> NDArray[np.int64]:
    """Number of values other than 0 in every slice along ``axis``."""
    if axis == 2:
        return np.array([np.count_nonzero(plane) for plane in planes], dtype=np.int64)
    counts = [np.count_nonzero(plane, axis=1 - axis) for plane in planes]
    return np.asarray(np.sum(counts, axis=0), dtype=np.int64)


def pick_slices(planes: Iterable[Plane], view: AxialView, wanted: Sequence[int]) -> list[Plane]:
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
