"""One folder per subject with an image and one binary mask file per structure (TotalSegmentator, PanTS, AeroPath).

Options of the card (``staging.options``): patterns of the files below the raw data, of which structures a target is
made, and the table that says which subject belongs to which split.
"""

from __future__ import annotations

import csv
from pathlib import Path

from pydantic import Field

from automedbench.cards import TaskCard
from automedbench.datasets.volumes import MaskPart, SourceSegmentation, find_subjects, upstream_file
from automedbench.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.records import Model
from automedbench.yamlfile import validate


class SplitTable(Model):
    """A table of subjects; its columns are found by name."""

    file: str = "meta.csv"
    delimiter: str = Field(";", min_length=1, max_length=1)
    id: str = "image_id"
    split: str = "split"


class Options(Model):
    """Where things are below the raw folder."""

    image: str = Field("{id}/ct.nii.gz", description="the image; {id} is the subject's name")
    mask: str = Field("{id}/segmentations/{structure}.nii.gz", description="the mask of one structure")
    structures: dict[str, list[str]] = Field(
        default_factory=dict, description="target → structures that it is made of; default: its source or own name"
    )
    split_table: SplitTable = SplitTable()


def read(raw: Path, card: TaskCard) -> list[SourceSegmentation]:
    """All subjects of the card's split (of the whole data set without one), sorted by id.

    Raises MissingDataError for absent files, naming file and remedy, and ConfigError for options that make no sense.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    structures = _structures(card, options)
    images = find_subjects(raw, options.image, f"{card.id}: staging.options.image")
    subjects = _of_split(list(images), raw, card.staging.sampling.split, options.split_table)
    return [
        SourceSegmentation(
            id=subject,
            image=images[subject],
            parts={
                target: tuple(
                    MaskPart(upstream_file(raw, options.mask, id=subject, structure=structure)) for structure in names
                )
                for target, names in structures.items()
            },
        )
        for subject in subjects
    ]


def _structures(card: TaskCard, options: Options) -> dict[str, list[str]]:
    """Target → structures, in card order."""
    names = [target.name for target in card.targets]
    if unknown := sorted(set(options.structures) - set(names)):
        raise ConfigError([f"{card.id}: staging.options.structures: '{unknown[0]}' is no target of the card"])
    return {target.name: options.structures.get(target.name, [target.source or target.name]) for target in card.targets}


def _of_split(subjects: list[str], raw: Path, split: str | None, table: SplitTable) -> list[str]:
    if split is None:
        return subjects
    wanted = {row[table.id] for row in _rows(raw / table.file, table) if row[table.split] == split}
    chosen = [subject for subject in subjects if subject in wanted]
    if not chosen:
        raise InfrastructureError(
            f"{raw / table.file} puts no subject that is there into split '{split}'.\nCheck staging.sampling.split."
        )
    return chosen


def _rows(path: Path, table: SplitTable) -> list[dict[str, str]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter=table.delimiter))
    except FileNotFoundError as error:
        raise MissingDataError(
            f"{path} (table of splits) does not exist.\nFetch the data again (`snakemake prepare`)."
        ) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InfrastructureError(f"{path} is not a readable table: {error}.\nFetch the data again.") from error
    if rows and not {table.id, table.split} <= set(rows[0]):
        raise InfrastructureError(
            f"{path} has the columns {sorted(map(str, rows[0]))}, not '{table.id}' and '{table.split}'.\n"
            "Check staging.options.split_table of the card."
        )
    return rows
