"""Images in HDF5 files: an array of images, one of labels, and a table with one row per image (PatchCamelyon).

Options of the card (``staging.options``): ``images`` and ``labels`` are files below the raw data, ``image_key`` and
``label_key`` the arrays in them; ``table`` is a CSV in the arrays' order, whose ``group_column`` names the slide or
patient of each image. Upstream's class of an image is its label as a number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.csvfile import csv_rows
from automedbench.datasets.forms.labelled import LabelledImage
from automedbench.datasets.forms.pictures import picture_of_array
from automedbench.datasets.forms.problems import missing, unreadable

Result = TypeVar("Result")


class Options(Model):
    """Where things are below the raw folder, and what the arrays and the column are called."""

    images: str
    labels: str
    image_key: str = Field("x", description="array (image, height, width, 3), uint8")
    label_key: str = Field("y", description="array of integers, one per image; other axes have length 1")
    table: str | None = None
    group_column: str | None = Field(None, description="column of the table: images that belong together")


def read(raw: Path, card: TaskCard) -> list[LabelledImage]:
    """All images in the arrays' order; the id is the place in the array. Pixels are read one image at a time.

    Raises MissingDataError for an absent file, InfrastructureError for a file that cannot be read, an array of another
    shape or type, and labels or rows that are not as many as images.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    path = raw / options.images
    n_images = _from_array(path, options.image_key, partial(_count_images, path))
    labels = _labels(raw / options.labels, options.label_key, n_images)
    groups = _groups(raw, options, n_images)
    return [
        LabelledImage(
            str(place),
            picture_of_array(f"{path}#{place}", partial(_pixels, path, options.image_key, place)),
            str(label),
            groups[place],
        )
        for place, label in enumerate(labels)
    ]


def _from_array(path: Path, key: str, use: Callable[[Any], Result]) -> Result:
    """What ``use`` makes of an array while its file is open."""
    import h5py

    if not path.is_file():
        raise missing(path)
    try:
        with h5py.File(path, "r") as file:
            if not isinstance(file.get(key), h5py.Dataset):
                raise unreadable(path, f"holds no array '{key}' (has {', '.join(sorted(file)) or 'nothing'})")
            return use(file[key])
    except (OSError, RuntimeError) as error:
        raise unreadable(path, f"cannot be read as HDF5: {error}") from error


def _count_images(path: Path, array: Any) -> int:
    if array.ndim != 4 or array.shape[3] != 3 or array.dtype != np.uint8 or not array.shape[0]:
        raise unreadable(path, f"holds {array.dtype} of shape {array.shape}, not uint8 (images, height, width, 3)")
    return int(array.shape[0])


def _labels(path: Path, key: str, n_images: int) -> list[int]:
    values: NDArray[Any] = _from_array(path, key, lambda array: np.asarray(array[()]))
    if values.dtype.kind not in "iub" or values.ndim == 0 or values.size != values.shape[0]:
        raise unreadable(path, f"holds {values.dtype} of shape {values.shape}, not one integer per image")
    _require_as_many(path, values.shape[0], n_images)
    return [int(value) for value in values.ravel()]


def _groups(raw: Path, options: Options, n_images: int) -> list[str]:
    """The group of every image; empty without a table."""
    if options.table is None or options.group_column is None:
        return [""] * n_images
    path = raw / options.table
    rows = csv_rows(path, [options.group_column], "table of groups")
    _require_as_many(path, len(rows), n_images)
    return [row[0] for row in rows]


def _pixels(path: Path, key: str, place: int) -> NDArray[np.uint8]:
    return _from_array(path, key, lambda array: np.asarray(array[place], dtype=np.uint8))


def _require_as_many(path: Path, found: int, n_images: int) -> None:
    if found != n_images:
        raise unreadable(path, f"has {found} entries for {n_images} images; the files are of different splits")
