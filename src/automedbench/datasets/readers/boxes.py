"""Images with boxes: a CSV with a row per box, COCO's JSON, Pascal VOC's XML, and YOLO's text files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from xml.etree import ElementTree

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.dicom import DICOM_SUFFIXES, picture_and_size
from automedbench.datasets.forms.problems import first_file, missing, one_place, read_text, unexpected, unreadable
from automedbench.datasets.forms.sources import Corners, SourceImage, source_image
from automedbench.datasets.forms.tables import csv_rows, json_object, parse_xml
from automedbench.datasets.patterns import search_pattern

SUFFIXES = (*DICOM_SUFFIXES, ".png", ".jpg", ".jpeg")
_COLUMNS = ["image_id", "class_name", "x_min", "y_min", "x_max", "y_max"]
_NOTHING = "no finding"


class BoxTableOptions(Model):
    """A CSV with one row per box (VinDr-CXR): image, class and corners in pixels, beside DICOM or other images.

    ``staging.options``:

    - ``table``: the CSV below the raw data, and ``images``: where an image is, with ``{id}`` and without its suffix;
    - ``rename``: class upstream → class of the card.

    A row of the class "No finding" has no box: its image shows none of the classes.
    """

    table: str
    images: str
    rename: dict[str, str] = Field(default_factory=dict)


class _BoxRow(NamedTuple):
    image: str
    label: str
    box: Corners | None


def box_table(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images of the table, in the order of their first rows.

    Raises MissingDataError for an absent table or an image that is annotated but not there, and InfrastructureError for
    a table that cannot be read, and boxes outside of their image.
    """
    options = validate(card.staging.options, BoxTableOptions, card.id, "staging.options")
    if options.images.count("{id}") != 1:
        raise ConfigError([f"{card.id}: staging.options.images: must hold {{id}} once"])
    path = raw / options.table
    images: dict[str, list[_BoxRow]] = {}
    for row in _box_rows(path):
        images.setdefault(row.image, []).append(row)
    return [_table_image(raw, path, name, rows, options) for name, rows in images.items()]


def _box_rows(path: Path) -> list[_BoxRow]:
    rows = []
    for number, (name, label, *corners) in enumerate(csv_rows(path, _COLUMNS, "table of boxes"), start=2):
        if not name or PurePosixPath(name).name != name:
            raise unreadable(path, f"row {number} names the image {name[:60]!r}, which is not the name of a file")
        empty = label.lower() in ("", _NOTHING)
        rows.append(_BoxRow(name, label, None if empty else _table_corners(corners, path, number)))
    if not rows:
        raise unreadable(path, "has no rows")
    return rows


def _table_corners(cells: list[str], path: Path, row: int) -> Corners:
    problem = f"row {row} holds {{!r}} where a number is needed"
    x1, y1, x2, y2 = (_number(cell, path, problem.format(cell[:40])) for cell in cells)
    return x1, y1, x2, y2


def _number(text: str, path: Path, problem: str) -> float:
    """A finite number; raises InfrastructureError with what is wrong for other text."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise unreadable(path, problem)
    return value


def _table_image(raw: Path, table: Path, name: str, rows: list[_BoxRow], options: BoxTableOptions) -> SourceImage:
    stem = options.images.replace("{id}", name)
    image = first_file((raw / f"{stem}{suffix}" for suffix in SUFFIXES), f"image that {table.name} annotates")
    picture, size = picture_and_size(image)
    boxes = [(row.label, row.box) for row in rows if row.box is not None]
    if any(x1 + x2 > 2 * size[0] or y1 + y2 > 2 * size[1] for _, (x1, y1, x2, y2) in boxes):
        raise unexpected(
            table, f"has a box outside of image {name} ({size[0]} × {size[1]} pixels): is it a resized copy?"
        )
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


_Item = dict[str, Any]


class CocoBoxesOptions(Model):
    """COCO and its relatives: one JSON file with images, annotations (``bbox``: x, y, width, height) and categories.

    ``staging.options``:

    - ``annotations``: pattern of the one JSON file, and ``images``: pattern of the one folder that ``file_name`` is
      relative to, both below the raw data;
    - ``category`` and ``categories``: keys of an annotation's category and of the list of categories; DENTEX has three.

    Boxes are 0-based; floats are kept, and what lies outside of the image is cut off. When the file states another size
    of an image than it has, its boxes are scaled. Crowd regions (``iscrowd``) are no boxes of one thing and are left
    out.
    """

    annotations: str
    images: str
    category: str = "category_id"
    categories: str = "categories"


def coco_boxes(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images of the file, in the order of their names.

    Raises MissingDataError for absent files, InfrastructureError for unreadable ones, an annotation of an unknown image
    or category, and an image that is listed twice.
    """
    options = validate(card.staging.options, CocoBoxesOptions, card.id, "staging.options")
    path, folder = one_place(raw, options.annotations), one_place(raw, options.images)
    content = json_object(path, "annotations")
    labels = {_id(item, "id", path): str(item.get("name", "")) for item in _items(content, options.categories, path)}
    images = {_id(item, "id", path): item for item in _items(content, "images", path)}
    boxes: dict[str, list[_Item]] = {name: [] for name in images}
    for item in _items(content, "annotations", path):
        image, label = _id(item, "image_id", path), _id(item, options.category, path)
        if image not in images or label not in labels:
            what = f"image {image}" if image not in images else f"{options.category} {label}"
            raise unexpected(path, f"has an annotation of {what}, which it does not list")
        if not item.get("iscrowd"):
            boxes[image].append({"label": labels[label], "bbox": item.get("bbox")})
    files = _files(images, path)
    return [
        _coco_image(folder, path, files[name], images[name], boxes[name])
        for name in sorted(images, key=files.__getitem__)
    ]


def _items(content: _Item, key: str, path: Path) -> Iterable[_Item]:
    items = content.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise unexpected(path, f"has no list of objects '{key}'")
    return items


def _id(item: _Item, key: str, path: Path) -> str:
    """An id as text: some files write the same one as a number and as a string."""
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise unexpected(path, f"has an entry whose '{key}' is {str(value)[:40]!r}, neither a number nor a text")
    return str(value).strip()


def _files(images: dict[str, _Item], path: Path) -> dict[str, str]:
    """Id of each image → its file below the folder of images."""
    files = {name: str(item.get("file_name", "")) for name, item in images.items()}
    for name in files.values():
        parts = PurePosixPath(name)
        if not name or parts.is_absolute() or ".." in parts.parts:
            raise unexpected(path, f"names the image {name[:60]!r}, which is not below the folder of images")
    if len(set(files.values())) < len(files):
        raise unexpected(path, "lists an image file twice")
    return files


def _coco_image(folder: Path, path: Path, name: str, item: _Item, found: list[_Item]) -> SourceImage:
    picture, size = picture_and_size(first_file([folder / name], "image"))
    stated = [item.get("width") or size[0], item.get("height") or size[1]]
    if not all(isinstance(side, (int, float)) and side > 0 for side in stated):
        raise unexpected(path, f"states the size {stated} of image {name}")
    scale = size[0] / stated[0], size[1] / stated[1]
    boxes = [(box["label"], _coco_corners(box["bbox"], scale, path, name)) for box in found]
    return source_image(name, picture, path, size, boxes)


def _coco_corners(box: Any, scale: tuple[float, float], path: Path, name: str) -> Corners:
    numbers = isinstance(box, list) and all(isinstance(side, (int, float)) for side in box)
    if not numbers or len(box) != 4 or not all(map(math.isfinite, box)):
        raise unexpected(path, f"has the box {str(box)[:60]} of image {name}, not four numbers")
    x, y, width, height = box
    across, down = scale
    return x * across, y * down, (x + width) * across, (y + height) * down


MAX_LIST_BYTES = 100_000_000
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")


class PascalVocOptions(Model):
    """Pascal VOC: one XML file per image, split lists, 1-based inclusive boxes.

    ``staging.options``: ``images``, ``annotations`` and ``splits`` are folders below the raw data.
    """

    images: str = "JPEGImages"
    annotations: str = "Annotations"
    splits: str = "ImageSets/Main"


def pascal_voc(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images of the card's split (of the whole data set without one), in the order of the split list.

    Raises MissingDataError for absent files, InfrastructureError for unreadable ones, naming file and remedy, and
    ConfigError for wrong options.
    """
    options = validate(card.staging.options, PascalVocOptions, card.id, "staging.options")
    names = _split(raw / options.splits, card.staging.sampling.split, raw / options.annotations)
    return [_read_image(raw / options.images, raw / options.annotations / f"{name}.xml", name) for name in names]


def half_open(voc: Corners, scale: tuple[float, float] = (1.0, 1.0)) -> Corners:
    """A VOC box (xmin, ymin, xmax, ymax; 1-based, inclusive) as 0-based half-open x1, y1, x2, y2, unclipped.

    ``scale`` is pixels of the image per annotated pixel, across and down. A box without area as written (xmax ≤ xmin, a
    known defect of published annotations) keeps none.
    """
    xmin, ymin, xmax, ymax = voc
    across, down = scale
    if xmax <= xmin or ymax <= ymin:
        return 0.0, 0.0, 0.0, 0.0
    return (xmin - 1) * across, (ymin - 1) * down, xmax * across, ymax * down


def _split(folder: Path, split: str | None, annotations: Path) -> list[str]:
    if split is None:
        return sorted(path.stem for path in annotations.glob("*.xml"))
    path = folder / f"{split}.txt"
    lines = read_text(path, f"list of split '{split}'", MAX_LIST_BYTES).splitlines()
    names = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not names or any(PurePosixPath(name).name != name for name in names):
        raise unreadable(path, "names no image" if not names else "holds a line that is not a file name")
    return names


def _read_image(images: Path, annotation: Path, name: str) -> SourceImage:
    picture, size = picture_and_size(first_file((images / f"{name}{suffix}" for suffix in IMAGE_SUFFIXES), "image"))
    root = parse_xml(annotation, "annotation")
    scale = _scale(root, annotation, *size)
    boxes = [_voc_box(item, annotation, scale) for item in root.iter("object")]
    return source_image(name, picture, annotation, size, boxes)


def _scale(root: ElementTree.Element, path: Path, width: int, height: int) -> tuple[float, float]:
    """Pixels of the image per annotated pixel: 1 unless the image was resized after it was annotated."""
    if root.find("size") is None:
        return 1.0, 1.0
    stated = _xml_number(root, "size/width", path), _xml_number(root, "size/height", path)
    return (width / stated[0], height / stated[1]) if min(stated) > 0 else (1.0, 1.0)


def _voc_box(item: ElementTree.Element, path: Path, scale: tuple[float, float]) -> tuple[str, Corners]:
    name = (item.findtext("name") or "").strip()
    if not name:
        raise unreadable(path, "holds an object without a name")
    xmin, ymin, xmax, ymax = (_xml_number(item, f"bndbox/{key}", path) for key in ("xmin", "ymin", "xmax", "ymax"))
    return name, half_open((xmin, ymin, xmax, ymax), scale)


def _xml_number(item: ElementTree.Element, key: str, path: Path) -> float:
    text = item.findtext(key, "")
    return _number(text, path, f"{key} is {text[:40]!r}, not a number")


MAX_LABEL_BYTES = 1_000_000


class YoloBoxesOptions(Model):
    """YOLO: one text file per image, a line per box: number of the class, centre, width and height as parts of the
    image.

    ``staging.options``:

    - ``images``: pattern of the image files, and ``labels``: pattern of the one folder of text files with the same
      stems, below the raw data; an image without a text file has no box;
    - ``classes``: the names of classes 0, 1, 2, …;
    - ``subject_pattern``: regular expression that finds the patient in a file's name (group 1, or the whole match).
    """

    images: str
    labels: str
    classes: list[str] = Field(min_length=1)
    subject_pattern: re.Pattern[str] | None = None


def yolo_boxes(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images, in the order of their names.

    Raises MissingDataError when there is no image or no folder of labels, InfrastructureError for a file that cannot be
    read, two images of one name, labels without an image, and a line that is no box of a known class.
    """
    options = validate(card.staging.options, YoloBoxesOptions, card.id, "staging.options")
    labels, images = one_place(raw, options.labels), _yolo_images(raw, options.images)
    if not labels.is_dir():
        raise missing(labels, "folder of labels")
    extra = sorted({path.stem for path in labels.glob("*.txt")} - images.keys())
    if extra:
        raise missing(raw / options.images.replace("*", extra[0]), f"image of {extra[0]}.txt")
    return [_yolo_image(images[name], labels / f"{name}.txt", options) for name in sorted(images)]


def _yolo_images(raw: Path, pattern: str) -> dict[str, Path]:
    images: dict[str, Path] = {}
    for path in sorted(raw.glob(pattern)):
        if images.setdefault(path.stem, path) != path:
            raise unexpected(path, f"has the same name as {images[path.stem]}")
    if not images:
        raise missing(raw / pattern, "images")
    return images


def _yolo_image(path: Path, labels: Path, options: YoloBoxesOptions) -> SourceImage:
    picture, size = picture_and_size(path)
    annotation = labels if labels.is_file() else None
    boxes = _yolo_boxes(labels, size, options.classes) if annotation else []
    return source_image(path.stem, picture, annotation, size, boxes, _subject(path, options.subject_pattern))


def _subject(path: Path, pattern: re.Pattern[str] | None) -> str:
    found = search_pattern(pattern, path.stem) if pattern is not None else ""
    if found is None:
        raise unexpected(path, f"has a name in which {pattern and pattern.pattern!r} finds no patient")
    return found


def _yolo_boxes(path: Path, size: tuple[int, int], classes: list[str]) -> list[tuple[str, Corners]]:
    lines = read_text(path, "labels", MAX_LABEL_BYTES).splitlines()
    return [
        _yolo_box(line.split(), path, number, size, classes) for number, line in enumerate(lines, 1) if line.strip()
    ]


def _yolo_box(
    parts: list[str], path: Path, line: int, size: tuple[int, int], classes: list[str]
) -> tuple[str, Corners]:
    """Class and corners in pixels of one line; what reaches beyond the image is cut off later."""
    try:
        number, x, y, width, height = map(float, parts)
    except ValueError:
        raise unreadable(path, f"line {line} is not a class and four numbers") from None
    if not all(map(math.isfinite, (x, y, width, height))):
        raise unreadable(path, f"line {line} holds a number that is not finite")
    if not number.is_integer() or not 0 <= number < len(classes):
        raise unexpected(path, f"line {line} has the class {parts[0][:20]}; staging.options.classes has {len(classes)}")
    across, down = size
    corners = (x - width / 2) * across, (y - height / 2) * down, (x + width / 2) * across, (y + height / 2) * down
    return classes[int(number)], corners
