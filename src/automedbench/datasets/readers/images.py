"""Images with one label each: in class folders, beside a table, or as arrays in HDF5 files."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.pictures import load_array_picture, picture_file
from automedbench.datasets.forms.problems import first_file, incomplete, unreadable
from automedbench.datasets.forms.sources import LabelledImage
from automedbench.datasets.forms.tables import csv_rows
from automedbench.datasets.patterns import search_pattern


class ClassFoldersOptions(Model):
    """Class folders: ``<split>/<class>/*.jpg``, the label is the name of the folder; other files are left out."""

    root: str = Field(".", description="folder that holds the splits, or the classes when there is no split")
    suffixes: list[str] = Field(
        [".jpg", ".jpeg", ".png", ".tif", ".tiff"], min_length=1, description="endings of image files"
    )
    group: re.Pattern[str] | None = Field(
        None,
        description="finds the patient in a file name: group 1, or the whole match; of a patient one image is taken, "
        "and images whose names it does not fit stand alone",
    )


def class_folders(raw: Path, card: TaskCard) -> list[LabelledImage]:
    """All images of the card's split, in order of class and name; the id is ``<class>/<file>``.

    Raises MissingDataError when the folder is absent or holds no image, ConfigError for a pattern that is none.
    """
    options = validate(card.staging.options, ClassFoldersOptions, card.id, "staging.options")
    folder = raw / options.root / (card.staging.sampling.split or "")
    suffixes = {suffix.lower() for suffix in options.suffixes}
    images = [
        LabelledImage(
            f"{classes.name}/{path.name}",
            picture_file(path),
            classes.name,
            search_pattern(options.group, path.name) or "",
        )
        for classes in _folders(folder)
        for path in sorted(classes.iterdir())
        if path.suffix.lower() in suffixes and path.name[0] != "." and path.is_file()
    ]
    if not images:
        raise incomplete(f"{folder} contains no class folder with {' or '.join(sorted(suffixes))} files")
    return images


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")


Result = TypeVar("Result")


class Hdf5ImagesOptions(Model):
    """Images in HDF5 files: an array of images, one of labels, and a table with one row per image (PatchCamelyon).

    ``staging.options``: ``images`` and ``labels`` are files below the raw data, ``image_key`` and ``label_key`` the
    arrays in them; ``table`` is a CSV in the arrays' order, whose ``group_column`` names the slide or patient of each
    image. Upstream's class of an image is its label as a number.
    """

    images: str
    labels: str
    image_key: str = Field("x", description="array (image, height, width, 3), uint8")
    label_key: str = Field("y", description="array of integers, one per image; other axes have length 1")
    table: str | None = None
    group_column: str | None = Field(None, description="column of the table: images that belong together")


def hdf5_images(raw: Path, card: TaskCard) -> list[LabelledImage]:
    """All images in the arrays' order; the id is the place in the array. Pixels are read one image at a time.

    Raises MissingDataError for an absent file, InfrastructureError for a file that cannot be read, an array of another
    shape or type, and labels or rows that are not as many as images.
    """
    options = validate(card.staging.options, Hdf5ImagesOptions, card.id, "staging.options")
    path = raw / options.images
    n_images = _from_array(path, options.image_key, partial(_count_images, path))
    labels = _hdf5_labels(raw / options.labels, options.label_key, n_images)
    groups = _groups(raw, options, n_images)
    return [
        LabelledImage(
            str(place),
            load_array_picture(f"{path}#{place}", partial(_pixels, path, options.image_key, place)),
            str(label),
            groups[place],
        )
        for place, label in enumerate(labels)
    ]


def _from_array(path: Path, key: str, use: Callable[[Any], Result]) -> Result:
    """Apply ``use`` to an array while its file is open."""
    import h5py

    try:
        with h5py.File(first_file([path]), "r") as file:
            if not isinstance(file.get(key), h5py.Dataset):
                raise unreadable(path, f"contains no array '{key}' (has {', '.join(sorted(file)) or 'nothing'})")
            return use(file[key])
    except (OSError, RuntimeError) as error:
        raise unreadable(path, f"cannot be read as HDF5: {error}") from error


def _count_images(path: Path, array: Any) -> int:
    if array.ndim != 4 or array.shape[3] != 3 or array.dtype != np.uint8 or not array.shape[0]:
        raise unreadable(path, f"holds {array.dtype} of shape {array.shape}, not uint8 (images, height, width, 3)")
    return int(array.shape[0])


def _hdf5_labels(path: Path, key: str, n_images: int) -> list[int]:
    values: NDArray[Any] = _from_array(path, key, lambda array: np.asarray(array[()]))
    if values.dtype.kind not in "iub" or values.ndim == 0 or values.size != values.shape[0]:
        raise unreadable(path, f"holds {values.dtype} of shape {values.shape}, not one integer per image")
    _require_as_many(path, values.shape[0], n_images)
    return [int(value) for value in values.ravel()]


def _groups(raw: Path, options: Hdf5ImagesOptions, n_images: int) -> list[str]:
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


class LabelTableOptions(Model):
    """Label table: a folder of images, and a table with one row per image that holds its id and label (ISIC, HAM10000).

    Cells of the table are separated by commas, in .tab and .tsv files by tabs.
    """

    table: str | list[str] = Field(description="below the raw data; of several the first that is there is read")
    images: list[str] = Field(["images"], min_length=1, description="folders, searched in this order")
    suffix: str = Field(".jpg", description="ending of an image file; empty when the ids have it already")
    id_column: str = "image_id"
    label_column: str = "label"
    group_column: str | None = Field(None, description="images of one lesion or patient")


def label_table(raw: Path, card: TaskCard) -> list[LabelledImage]:
    """All rows, in the order of the table.

    Raises MissingDataError for an absent table or image, InfrastructureError for a table that cannot be read, an id
    that is there twice, or a row without label.
    """
    options = validate(card.staging.options, LabelTableOptions, card.id, "staging.options")
    names = [options.table] if isinstance(options.table, str) else options.table
    path = first_file((raw / name for name in names), "table of labels")
    columns = [options.id_column, options.label_column, *filter(None, [options.group_column])]
    seen: set[str] = set()
    images = []
    for name, label, *group in csv_rows(path, columns, "table of labels"):
        if name in seen or PurePosixPath(name).name != name or not label:
            why = "is there twice" if name in seen else "has no label" if not label else "is not the name of a file"
            raise unreadable(path, f"image {name[:60]!r} {why}")
        seen.add(name)
        places = (raw / folder / f"{name}{options.suffix}" for folder in options.images)
        image = picture_file(first_file(places, "image in the table of labels"))
        images.append(LabelledImage(name, image, label, *group))
    if not images:
        raise unreadable(path, "names no image")
    return images
