"""Label table: a folder of images, and a table with one row per image that holds its id and label (ISIC, HAM10000).

Options of the card (``staging.options``): ``table`` and ``images`` are below the raw data; ``id_column``,
``label_column``, ``group_column`` (images of one lesion or patient) and ``split_column`` name columns of the table. Of
several tables the first that is there is read: cells are separated by commas, in .tab and .tsv files by tabs.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.csvfile import csv_rows
from automedbench.datasets.forms.labelled import LabelledImage
from automedbench.datasets.forms.pictures import picture_file
from automedbench.datasets.forms.problems import missing, unreadable


class Options(Model):
    """Where things are below the raw folder, and what the columns are called."""

    table: str | list[str]
    images: list[str] = Field(["images"], min_length=1, description="folders, searched in this order")
    suffix: str = Field(".jpg", description="ending of an image file; empty when the ids have it already")
    id_column: str = "image_id"
    label_column: str = "label"
    group_column: str | None = None
    split_column: str | None = Field(None, description="rows whose value is the card's split are taken")


def read(raw: Path, card: TaskCard) -> list[LabelledImage]:
    """All rows of the card's split, in the order of the table.

    Raises MissingDataError for an absent table or image, InfrastructureError for a table that cannot be read, an id
    that is there twice, or a row without label.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    path = _find_table(raw, options.table)
    rows = _rows(path, options, card.staging.sampling.split)
    seen: set[str] = set()
    images = []
    for name, label, group in rows:
        if name in seen or PurePosixPath(name).name != name or not label:
            why = "is there twice" if name in seen else "has no label" if not label else "is not the name of a file"
            raise unreadable(path, f"image {name[:60]!r} {why}")
        seen.add(name)
        images.append(LabelledImage(name, picture_file(_find_image(raw, options, name)), label, group))
    if not images:
        raise unreadable(path, "names no image of the split")
    return images


def _rows(path: Path, options: Options, split: str | None) -> list[tuple[str, str, str]]:
    """(id, label, group) of the rows that belong to the split."""
    columns = [options.id_column, options.label_column, options.group_column, options.split_column]
    rows = csv_rows(path, [column for column in columns if column], "table of labels")
    wanted = split if options.split_column else None
    kept = [row for row in rows if wanted is None or row[-1] == wanted]
    return [(row[0], row[1], row[2] if options.group_column else "") for row in kept]


def _find_table(raw: Path, names: str | list[str]) -> Path:
    paths = [raw / name for name in ([names] if isinstance(names, str) else names)]
    return next((path for path in paths if path.is_file()), paths[0])


def _find_image(raw: Path, options: Options, name: str) -> Path:
    paths = [raw / folder / f"{name}{options.suffix}" for folder in options.images]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise missing(paths[0], "image in the table of labels")
    return found
