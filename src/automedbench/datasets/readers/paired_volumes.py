"""Paired volumes: an input, the target and a mask on one grid for each subject (SynthRAD's layout).

Options of the card (``staging.options``): ``input``, ``target`` and ``mask`` are paths below the raw data with ``{id}``
for the subject, for example ``Task1/HN/{id}/mr.mha``; .mha, .mhd, .nrrd, .nii.gz and .nii are read. Nothing is loaded
here.
"""

from __future__ import annotations

from pathlib import Path

from automedbench.cards import TaskCard
from automedbench.datasets.volume_source import SourceVolume
from automedbench.datasets.volumes import find_subjects, upstream_file
from automedbench.records import Model
from automedbench.yamlfile import validate


class Options(Model):
    """Where things are below the raw folder."""

    input: str = "{id}/mr.mha"
    target: str = "{id}/ct.mha"
    mask: str = "{id}/mask.mha"


def read(raw: Path, card: TaskCard) -> list[SourceVolume]:
    """One record per target, sorted by subject.

    Raises MissingDataError when there is no target at all, or one without its input or mask.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    targets = find_subjects(raw, options.target, f"{card.id}: staging.options.target")
    return [
        SourceVolume(name, path, upstream_file(raw, options.input, id=name), upstream_file(raw, options.mask, id=name))
        for name, path in targets.items()
    ]
