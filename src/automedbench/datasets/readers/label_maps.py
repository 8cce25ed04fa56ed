"""One label map per image: in a folder of its own (Medical Segmentation Decathlon) or beside it (KiTS, FeTA).

Options of the card (``staging.options``): patterns of image and label map below the raw data (``{id}`` is the
subject), and which label values a target is made of.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from automedbench.cards import TaskCard
from automedbench.datasets.volumes import MaskPart, SourceSegmentation, find_subjects, upstream_file
from automedbench.errors import ConfigError
from automedbench.records import Model
from automedbench.yamlfile import validate


class Options(Model):
    """Where things are below the raw folder."""

    image: str = Field("imagesTr/{id}.nii.gz", description="for KiTS 'data/{id}/imaging.nii.gz'")
    label: str = Field("labelsTr/{id}.nii.gz", description="for KiTS 'data/{id}/segmentation.nii.gz'")
    labels: dict[str, list[int]] = Field(
        default_factory=dict, description="target → upstream label values that it is made of; default: its id"
    )


def read(raw: Path, card: TaskCard) -> list[SourceSegmentation]:
    """All subjects that have a label map, sorted by id; images without one (the public test sets) are left out.

    Raises MissingDataError for a label map without image and ConfigError for options that make no sense.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    labels = _labels(card, options)
    maps = find_subjects(raw, options.label, f"{card.id}: staging.options.label")
    return [
        SourceSegmentation(
            id=subject,
            image=upstream_file(raw, options.image, id=subject),
            parts={target: (MaskPart(path, tuple(values)),) for target, values in labels.items()},
        )
        for subject, path in maps.items()
    ]


def _labels(card: TaskCard, options: Options) -> dict[str, list[int]]:
    """Target → upstream label values, in card order."""
    names = [target.name for target in card.targets]
    if unknown := sorted(set(options.labels) - set(names)):
        raise ConfigError([f"{card.id}: staging.options.labels: '{unknown[0]}' is no target of the card"])
    return {target.name: options.labels.get(target.name, [target.id]) for target in card.targets}
