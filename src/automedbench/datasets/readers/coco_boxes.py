"""COCO and its relatives: one JSON file with images, annotations (``bbox``: x, y, width, height) and categories.

Options of the card (``staging.options``):

- ``annotations``: pattern of the one JSON file, and ``images``: pattern of the one folder that ``file_name`` is
  relative to, both below the raw data;
- ``category`` and ``categories``: keys of an annotation's category and of the list of categories; DENTEX has three.

Boxes are 0-based; floats are kept, and what lies outside of the image is cut off. When the file states another size of
an image than it has, its boxes are scaled. Crowd regions (``iscrowd``) are no boxes of one thing and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.boxes import Corners, SourceImage, source_image
from automedbench.datasets.forms.csvfile import json_object
from automedbench.datasets.forms.places import one_place
from automedbench.datasets.forms.problems import missing, unexpected
from automedbench.datasets.forms.radiographs import picture_and_size

_Item = dict[str, Any]


class Options(Model):
    """Where things are below the raw folder, and what the keys are called."""

    annotations: str
    images: str
    category: str = "category_id"
    categories: str = "categories"


def read(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images of the file, in the order of their names.

    Raises MissingDataError for absent files, InfrastructureError for unreadable ones, an annotation of an unknown image
    or category, and an image that is listed twice.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
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
        _image(folder, path, files[name], images[name], boxes[name]) for name in sorted(images, key=files.__getitem__)
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


def _image(folder: Path, path: Path, name: str, item: _Item, found: list[_Item]) -> SourceImage:
    if not (folder / name).is_file():
        raise missing(folder / name, "image")
    picture, size = picture_and_size(folder / name)
    stated = [item.get("width") or size[0], item.get("height") or size[1]]
    if not all(isinstance(side, (int, float)) and side > 0 for side in stated):
        raise unexpected(path, f"states the size {stated} of image {name}")
    scale = size[0] / stated[0], size[1] / stated[1]
    boxes = [(box["label"], _corners(box["bbox"], scale, path, name)) for box in found]
    return source_image(name, picture, path, size, boxes)


def _corners(box: Any, scale: tuple[float, float], path: Path, name: str) -> Corners:
    numbers = isinstance(box, list) and all(isinstance(side, (int, float)) for side in box)
    if not numbers or len(box) != 4 or not all(map(math.isfinite, box)):
        raise unexpected(path, f"has the box {str(box)[:60]} of image {name}, not four numbers")
    x, y, width, height = box
    across, down = scale
    return x * across, y * down, (x + width) * across, (y + height) * down
