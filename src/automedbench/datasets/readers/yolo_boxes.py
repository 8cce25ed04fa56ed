"""YOLO: one text file per image, a line per box: number of the class, centre, width and height as parts of the image.

Options of the card (``staging.options``):

- ``images``: pattern of the image files, and ``labels``: pattern of the one folder of text files with the same stems,
  below the raw data; an image without a text file has no box;
- ``classes``: the names of classes 0, 1, 2, …;
- ``subject_pattern``: regular expression that finds the patient in a file's name (group 1, or the whole match).
"""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.boxes import Corners, SourceImage, source_image
from automedbench.datasets.forms.places import one_place
from automedbench.datasets.forms.problems import missing, unexpected, unreadable
from automedbench.datasets.forms.radiographs import picture_and_size
from automedbench.datasets.patterns import RegularExpression, found_by

MAX_LABEL_BYTES = 1_000_000


class Options(Model):
    """Where things are below the raw folder, what the classes are, and who the patient is."""

    images: str
    labels: str
    classes: list[str] = Field(min_length=1)
    subject_pattern: RegularExpression | None = None


def read(raw: Path, card: TaskCard) -> list[SourceImage]:
    """All images, in the order of their names.

    Raises MissingDataError when there is no image or no folder of labels, InfrastructureError for a file that cannot be
    read, two images of one name, labels without an image, and a line that is no box of a known class.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    labels, images = one_place(raw, options.labels), _images(raw, options.images)
    if not labels.is_dir():
        raise missing(labels, "folder of labels")
    extra = sorted({path.stem for path in labels.glob("*.txt")} - images.keys())
    if extra:
        raise missing(raw / options.images.replace("*", extra[0]), f"image of {extra[0]}.txt")
    return [_image(images[name], labels / f"{name}.txt", options) for name in sorted(images)]


def _images(raw: Path, pattern: str) -> dict[str, Path]:
    images: dict[str, Path] = {}
    for path in sorted(raw.glob(pattern)):
        if images.setdefault(path.stem, path) != path:
            raise unexpected(path, f"has the same name as {images[path.stem]}")
    if not images:
        raise missing(raw / pattern, "images")
    return images


def _image(path: Path, labels: Path, options: Options) -> SourceImage:
    picture, size = picture_and_size(path)
    annotation = labels if labels.is_file() else None
    boxes = _boxes(labels, size, options.classes) if annotation else []
    return source_image(path.stem, picture, annotation, size, boxes, _subject(path, options.subject_pattern))


def _subject(path: Path, pattern: str | None) -> str:
    found = found_by(pattern, path.stem) if pattern is not None else ""
    if found is None:
        raise unexpected(path, f"has a name in which {pattern!r} finds no patient")
    return found


def _boxes(path: Path, size: tuple[int, int], classes: list[str]) -> list[tuple[str, Corners]]:
    try:
        if path.stat().st_size > MAX_LABEL_BYTES:
            raise unreadable(path, f"is larger than {MAX_LABEL_BYTES} bytes")
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, f"is not a readable text: {error}") from error
    return [_box(line.split(), path, number, size, classes) for number, line in enumerate(lines, 1) if line.strip()]


def _box(parts: list[str], path: Path, line: int, size: tuple[int, int], classes: list[str]) -> tuple[str, Corners]:
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
