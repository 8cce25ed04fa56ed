"""A CSV with one row per box (VinDr-CXR): image, class and corners in pixels, beside DICOM or other images.

Options of the card (``staging.options``):

- ``table``: the CSV below the raw data, and ``images``: where an image is, with ``{id}`` and without its suffix;
- ``columns``: names of the columns; ``width`` and ``height`` say the size of the image that was annotated, where the
  images are resized copies, and ``reader`` who drew the box;
- ``nothing``: the class of rows without a box, which say that an image shows none of the classes;
- ``rename``: class upstream → class of the card;
- ``merge_iou``: boxes of one class that several readers drew become one, the mean of those that overlap so much.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.boxes import Corners, SourceImage, source_image
from automedbench.datasets.forms.csvfile import csv_rows
from automedbench.datasets.forms.problems import missing, unexpected, unreadable
from automedbench.datasets.forms.radiographs import DICOM_SUFFIXES, picture_and_size

SUFFIXES = (*DICOM_SUFFIXES, ".png", ".jpg", ".jpeg")


class Columns(Model):
    """Names of the table's columns; null where there is none."""

    image: str = "image_id"
    label: str = "class_name"
    box: tuple[str, str, str, str] = ("x_min", "y_min", "x_max", "y_max")
    reader: str | None = None
    width: str | None = None
    height: str | None = None


class Options(Model):
    """Where things are below the raw folder, and what the columns and classes mean."""

    table: str
    images: str
    columns: Columns = Columns()
    nothing: str = "No finding"
    rename: dict[str, str] = Field(default_factory=dict)
    merge_iou: float | None = Field(None, gt=0, le=1)


class _Row(NamedTuple):
    image: str
    label: str
    box: Corners | None
    reader: str
    stated: tuple[float, float] | None


def read(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images of the table, in the order of their first rows.

    Raises MissingDataError for an absent table or an image that is annotated but not there, and InfrastructureError for
    a table that cannot be read, boxes of several readers without ``merge_iou``, and boxes outside of their image.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    if options.images.count("{id}") != 1:
        raise ConfigError([f"{card.id}: staging.options.images: must hold {{id}} once"])
    path = raw / options.table
    images: dict[str, list[_Row]] = {}
    for row in _rows(path, options):
        images.setdefault(row.image, []).append(row)
    return [_image(raw, path, name, rows, options) for name, rows in images.items()]


def _rows(path: Path, options: Options) -> list[_Row]:
    columns = options.columns
    optional = [columns.reader, columns.width, columns.height]
    named = [columns.image, columns.label, *columns.box, *(name for name in optional if name)]
    rows = []
    for number, cells in enumerate(csv_rows(path, named, "table of boxes"), start=2):
        name, label, *corners = cells[:6]
        more = dict(zip((name for name in optional if name), cells[6:], strict=True))
        if not name or PurePosixPath(name).name != name:
            raise unreadable(path, f"row {number} names the image {name[:60]!r}, which is not the name of a file")
        empty = label.lower() in ("", options.nothing.lower())
        size = [_number(more[key], path, number) for key in (columns.width, columns.height) if key]
        if any(side <= 0 for side in size):
            raise unreadable(path, f"row {number} states an image of no size")
        box = None if empty else _corners(corners, path, number)
        stated = (size[0], size[1]) if len(size) == 2 else None
        rows.append(_Row(name, label, box, more.get(columns.reader or "", ""), stated))
    if not rows:
        raise unreadable(path, "has no rows")
    return rows


def _corners(cells: list[str], path: Path, row: int) -> Corners:
    x1, y1, x2, y2 = (_number(cell, path, row) for cell in cells)
    return x1, y1, x2, y2


def _number(cell: str, path: Path, row: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise unreadable(path, f"row {row} holds {cell[:40]!r} where a number is needed")
    return value


def _image(raw: Path, table: Path, name: str, rows: list[_Row], options: Options) -> SourceImage:
    image = _find(raw, options.images, name, table)
    picture, size = picture_and_size(image)
    found = _merged(rows, table, options.merge_iou)
    scales = {row.stated or size for row in rows}
    if len(scales) > 1:
        raise unexpected(table, f"states several sizes of image {name}")
    (width, height) = scales.pop()
    boxes = []
    for label, (x1, y1, x2, y2) in found:
        if x1 + x2 > 2 * width or y1 + y2 > 2 * height:
            raise unexpected(
                table, f"has a box outside of image {name} ({size[0]} × {size[1]} pixels): is it a resized copy?"
            )
        across, down = size[0] / width, size[1] / height
        boxes.append((label, (x1 * across, y1 * down, x2 * across, y2 * down)))
    return _renamed(source_image(name, picture, table, size, boxes), options.rename)


def _renamed(image: SourceImage, names: dict[str, str]) -> SourceImage:
    """The image with the card's names of its classes; what upstream wrote is kept beside them."""
    boxes = [
        replace(box, source_class=names[box.source_class], written=box.source_class)
        if box.source_class in names
        else box
        for box in image.boxes
    ]
    return replace(image, boxes=tuple(boxes))


def _find(raw: Path, pattern: str, name: str, table: Path) -> Path:
    stem = pattern.replace("{id}", name)
    found = next((raw / f"{stem}{suffix}" for suffix in SUFFIXES if (raw / f"{stem}{suffix}").is_file()), None)
    if found is None:
        raise missing(raw / f"{stem}{SUFFIXES[0]}", f"image that {table.name} annotates")
    return found


# --- several readers ------------------------------------------------------------------------------------------


def _merged(rows: list[_Row], table: Path, least: float | None) -> list[tuple[str, Corners]]:
    """Class and corners of an image's boxes, those of several readers merged.

    Each box, in the order of the table, joins the box of its class that it overlaps most, if by ``least`` (IoU), and
    moves it to the mean of all that joined.
    """
    boxes = [(row.label, row.box) for row in rows if row.box is not None]
    if least is None:
        if len({row.reader for row in rows}) > 1:
            raise unexpected(table, f"has several readers of image {rows[0].image}; set merge_iou")
        return boxes
    groups: list[tuple[str, list[Corners]]] = []
    for label, box in boxes:
        near = [(overlap(box, mean(group)), number) for number, (kind, group) in enumerate(groups) if kind == label]
        best, number = max(near, key=lambda pair: (pair[0], -pair[1]), default=(0.0, 0))
        if best >= least:
            groups[number][1].append(box)
        else:
            groups.append((label, [box]))
    return [(label, mean(group)) for label, group in groups]


def mean(boxes: list[Corners]) -> Corners:
    """Corners halfway between those of all boxes."""
    x1, y1, x2, y2 = (math.fsum(sides) / len(boxes) for sides in zip(*boxes, strict=True))
    return x1, y1, x2, y2


def overlap(first: Corners, second: Corners) -> float:
    """Intersection over union, 0 where a box has no area."""
    across = min(first[2], second[2]) - max(first[0], second[0])
    down = min(first[3], second[3]) - max(first[1], second[1])
    shared = across * down if across > 0 and down > 0 else 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    union = sum(areas) - shared
    return shared / union if union > 0 else 0.0
