"""Class folders: ``<split>/<class>/*.jpg``, the label is the name of the folder.

Options of the card (``staging.options``): ``root`` is the folder below the raw data that holds the splits (or the
classes, when the card names no split), ``suffixes`` are the endings of image files; other files are left out.
``group`` is a regular expression for file names that tell the patient: what it finds (its first group, if it has one)
is the patient, of whom one image is taken; images whose names it does not fit stand alone.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import MissingDataError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.labelled import LabelledImage
from automedbench.datasets.forms.pictures import picture_file
from automedbench.datasets.patterns import RegularExpression, found_by


class Options(Model):
    """Where things are below the raw folder."""

    root: str = Field(".", description="folder that holds the splits, or the classes when there is no split")
    suffixes: list[str] = Field([".jpg", ".jpeg", ".png", ".tif", ".tiff"], min_length=1)
    group: RegularExpression | None = Field(None, description="finds the patient in a file name")


def read(raw: Path, card: TaskCard) -> list[LabelledImage]:
    """All images of the card's split, in order of class and name; the id is ``<class>/<file>``.

    Raises MissingDataError when the folder is absent or holds no image, ConfigError for a pattern that is none.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    folder = raw / options.root / (card.staging.sampling.split or "")
    suffixes = {suffix.lower() for suffix in options.suffixes}
    images = [
        LabelledImage(
            f"{classes.name}/{path.name}", picture_file(path), classes.name, found_by(options.group, path.name) or ""
        )
        for classes in _folders(folder)
        for path in sorted(classes.iterdir())
        if path.suffix.lower() in suffixes and path.name[0] != "." and path.is_file()
    ]
    if not images:
        raise MissingDataError(
            f"{folder} holds no class folder with {' or '.join(sorted(suffixes))} files.\n"
            "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
        )
    return images


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")
