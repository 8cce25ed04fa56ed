"""One folder per subject with an image and one binary mask file per structure (TotalSegmentator, PanTS, AeroPath).

Options of the card (``staging.options``): patterns of the files below the raw data, of which structures a target is
made, and the table that says which subjects are taken in which order.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.subjects import SubjectTable, listed
from automedbench.datasets.forms.volumes import MaskPart, SourceSegmentation, filled, find_subjects, upstream_file


class Options(Model):
    """Where things are below the raw folder."""

    image: str = Field("{id}/ct.nii.gz", description="the image; {id} is the subject's name")
    mask: str = Field("{id}/segmentations/{structure}.nii.gz", description="the mask of one structure")
    structures: dict[str, list[str]] = Field(
        default_factory=dict, description="target → structures that it is made of; default: its source or own name"
    )
    table: SubjectTable | None = Field(None, description="subjects and their order; without one all that have an image")


def read(raw: Path, card: TaskCard) -> list[SourceSegmentation]:
    """All subjects that have an image, sorted by id; with a table those that it lists, in its order.

    Raises MissingDataError for absent files, naming file and remedy (files of listed subjects are looked for when the
    subject is taken), and ConfigError for options that make no sense.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    structures = _structures(card, options)
    split = card.staging.sampling.split
    if options.table is not None:
        subjects = listed(raw, options.table, split, f"{card.id}: staging.options.table")
        return [_listed(raw, options, subject, structures) for subject in subjects]
    if split is not None:
        raise ConfigError([f"{card.id}: staging.sampling.split: no staging.options.table tells the splits"])
    images = find_subjects(raw, options.image, f"{card.id}: staging.options.image")
    return [_complete(raw, options, subject, image, structures) for subject, image in images.items()]


def _listed(raw: Path, options: Options, subject: str, structures: dict[str, list[str]]) -> SourceSegmentation:
    return SourceSegmentation(
        id=subject,
        image=raw / filled(options.image, {"id": subject}),
        parts={
            target: tuple(MaskPart(raw / filled(options.mask, {"id": subject, "structure": name})) for name in names)
            for target, names in structures.items()
        },
    )


def _complete(
    raw: Path, options: Options, subject: str, image: Path, structures: dict[str, list[str]]
) -> SourceSegmentation:
    return SourceSegmentation(
        id=subject,
        image=image,
        parts={
            target: tuple(MaskPart(upstream_file(raw, options.mask, id=subject, structure=name)) for name in names)
            for target, names in structures.items()
        },
    )


def _structures(card: TaskCard, options: Options) -> dict[str, list[str]]:
    """Target → structures, in card order."""
    names = [target.name for target in card.targets]
    if unknown := sorted(set(options.structures) - set(names)):
        raise ConfigError([f"{card.id}: staging.options.structures: '{unknown[0]}' is no target of the card"])
    return {target.name: options.structures.get(target.name, [target.source or target.name]) for target in card.targets}
