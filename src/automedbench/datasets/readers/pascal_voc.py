"""Pascal VOC: one XML file per image, split lists, 1-based inclusive boxes.

Options of the card (``staging.options``): ``images``, ``annotations`` and ``splits`` are folders below the raw data.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from PIL import Image, UnidentifiedImageError

from automedbench.cards import TaskCard
from automedbench.datasets.pictures import picture_file
from automedbench.datasets.source import SourceBox, SourceImage
from automedbench.errors import InfrastructureError, MissingDataError
from automedbench.records import Model

MAX_XML_BYTES = 4_000_000
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")
Corners = tuple[float, float, float, float]


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
    x1, y1 = max((xmin - 1) * across, 0.0), max((ymin - 1) * down, 0.0)
    x2, y2 = min(xmax * across, float(width)), min(ymax * down, float(height))
    written = xmax > xmin and ymax > ymin
    return (x1, y1, x2, y2) if written and x2 > x1 and y2 > y1 else None


def parse_annotation(path: Path) -> ElementTree.Element:
    """Root of one XML file; a document type (and with it any entity) is refused.

    Raises MissingDataError when absent and InfrastructureError when too large or not well-formed.
    """
    try:
        size = path.stat().st_size
        if size > MAX_XML_BYTES:
            raise _unreadable(path, f"has {size} bytes, more than the limit of {MAX_XML_BYTES}")
        return ElementTree.fromstring(path.read_bytes(), ElementTree.XMLParser(target=_NoDocumentType()))
    except FileNotFoundError as error:
        raise _missing(path, "annotation") from error
    except (ElementTree.ParseError, ValueError, LookupError, OSError, RecursionError) as error:
        raise _unreadable(path, f"is not a readable annotation: {error}") from error


class _NoDocumentType(ElementTree.TreeBuilder):
    """Builds the tree, but stops at a DOCTYPE, the only way to define entities."""

    def doctype(self, name: str, public_id: str | None, system: str | None) -> None:
        raise ValueError(f"declares a document type '{name}', which is not allowed")


def _split(folder: Path, split: str | None, annotations: Path) -> list[str]:
    if split is None:
        return sorted(path.stem for path in annotations.glob("*.xml"))
    path = folder / f"{split}.txt"
    try:
        names = list(dict.fromkeys(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()))
    except FileNotFoundError as error:
        raise _missing(path, f"list of split '{split}'") from error
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"is not a readable list: {error}") from error
    if not names or any(PurePosixPath(name).name != name for name in names):
        raise _unreadable(path, "names no image" if not names else "holds a line that is not a file name")
    return names


def _read_image(images: Path, annotation: Path, name: str) -> SourceImage:
    path = _find_image(images, name)
    width, height = _size_of(path)
    root = parse_annotation(annotation)
    scale = _scale(root, annotation, width, height)
    found = [_box(item, annotation, scale, width, height) for item in root.iter("object")]
    boxes = tuple(box for box in found if box is not None)
    return SourceImage(name, picture_file(path), annotation, width, height, boxes, dropped=len(found) - len(boxes))


def _find_image(folder: Path, name: str) -> Path:
    for suffix in IMAGE_SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    raise _missing(folder / f"{name}{IMAGE_SUFFIXES[0]}", "image")


def _size_of(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            return image.size
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise _unreadable(path, f"is not a readable image: {error}") from error


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
        raise _unreadable(path, "holds an object without a name")
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
        raise _unreadable(path, f"{key} is {text[:40]!r}, not a number")
    return value


def _missing(path: Path, what: str) -> MissingDataError:
    return MissingDataError(
        f"{path} ({what}) does not exist.\n"
        "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
    )


def _unreadable(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(f"{path}: {why}.\nDelete the file and fetch the data again (`snakemake prepare`).")
