"""Pascal VOC: one XML file per image, split lists, 1-based inclusive boxes.

Options of the card (``staging.options``): ``images``, ``annotations`` and ``splits`` are folders below the raw data.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.datasets.forms.boxes import Corners, SourceBox, SourceImage, clipped
from automedbench.datasets.forms.problems import missing, unreadable
from automedbench.datasets.forms.radiographs import picture_and_size
from automedbench.datasets.forms.xmlfile import parse_xml

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")


class Options(Model):
    """Where things are below the raw folder."""

    images: str = "JPEGImages"
    annotations: str = "Annotations"
    splits: str = "ImageSets/Main"


def read(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images of the card's split (of the whole data set without one), in the order of the split list.

    Raises MissingDataError for absent files and InfrastructureError for unreadable ones, naming file and remedy.
    """
    options = Options.model_validate(card.staging.options)
    names = _split(raw / options.splits, card.staging.sampling.split, raw / options.annotations)
    return [_read_image(raw / options.images, raw / options.annotations / f"{name}.xml", name) for name in names]


def half_open(voc: Corners, width: int, height: int, scale: tuple[float, float] = (1.0, 1.0)) -> Corners | None:
    """A VOC box (xmin, ymin, xmax, ymax; 1-based, inclusive) as 0-based half-open x1, y1, x2, y2 clipped to the image.

    ``scale`` is pixels of the image per annotated pixel, across and down. None when the box has no area: as written
    (xmax ≤ xmin, a known defect of published annotations) or after clipping.
    """
    xmin, ymin, xmax, ymax = voc
    across, down = scale
    if xmax <= xmin or ymax <= ymin:
        return None
    return clipped(((xmin - 1) * across, (ymin - 1) * down, xmax * across, ymax * down), width, height)


def _split(folder: Path, split: str | None, annotations: Path) -> list[str]:
    if split is None:
        return sorted(path.stem for path in annotations.glob("*.xml"))
    path = folder / f"{split}.txt"
    try:
        names = list(dict.fromkeys(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()))
    except FileNotFoundError as error:
        raise missing(path, f"list of split '{split}'") from error
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, f"is not a readable list: {error}") from error
    if not names or any(PurePosixPath(name).name != name for name in names):
        raise unreadable(path, "names no image" if not names else "holds a line that is not a file name")
    return names


def _read_image(images: Path, annotation: Path, name: str) -> SourceImage:
    picture, (width, height) = picture_and_size(_find_image(images, name))
    root = parse_xml(annotation, "annotation")
    scale = _scale(root, annotation, width, height)
    found = [_box(item, annotation, scale, width, height) for item in root.iter("object")]
    boxes = tuple(box for box in found if box is not None)
    return SourceImage(name, picture, annotation, width, height, boxes, dropped=len(found) - len(boxes))


def _find_image(folder: Path, name: str) -> Path:
    for suffix in IMAGE_SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    raise missing(folder / f"{name}{IMAGE_SUFFIXES[0]}", "image")


def _scale(root: ElementTree.Element, path: Path, width: int, height: int) -> tuple[float, float]:
    """Pixels of the image per annotated pixel: 1 unless the image was resized after it was annotated."""
    if root.find("size") is None:
        return 1.0, 1.0
    stated = _number(root, "size/width", path), _number(root, "size/height", path)
    return (width / stated[0], height / stated[1]) if min(stated) > 0 else (1.0, 1.0)


def _box(
    item: ElementTree.Element, path: Path, scale: tuple[float, float], width: int, height: int
) -> SourceBox | None:
    name = (item.findtext("name") or "").strip()
    if not name:
        raise unreadable(path, "holds an object without a name")
    xmin, ymin, xmax, ymax = (_number(item, f"bndbox/{key}", path) for key in ("xmin", "ymin", "xmax", "ymax"))
    corners = half_open((xmin, ymin, xmax, ymax), width, height, scale)
    return None if corners is None else SourceBox(name, *corners)


def _number(item: ElementTree.Element, key: str, path: Path) -> float:
    text = item.findtext(key, "")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise unreadable(path, f"{key} is {text[:40]!r}, not a number")
    return value
