"""Paired volumes: an input, the target and a mask on one grid for each subject (SynthRAD's layout).

Options of the card (``staging.options``): ``input``, ``target`` and ``mask`` are paths with ``{id}`` for the subject,
for example ``{id}/mr.mha``, below one of the folders ``roots``; the first of them that holds a target is taken, as
archives are unpacked with or without a folder around them. .mha, .mhd, .nrrd, .nii.gz and .nii are read. Nothing is
loaded here.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import MissingDataError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.volume_source import SourceVolume
from automedbench.datasets.forms.volumes import find_subjects, upstream_file


class Options(Model):
    """Where things are below the raw folder."""

    roots: list[str] = Field(["."], min_length=1)
    input: str = "{id}/mr.mha"
    target: str = "{id}/ct.mha"
    mask: str = "{id}/mask.mha"


def read(raw: Path, card: TaskCard) -> list[SourceVolume]:
    """One record per target, sorted by subject.

    Raises MissingDataError when there is no target at all, or one without its input or mask.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    missing: list[MissingDataError] = []
    for root in options.roots:
        folder = raw / root
        try:
            targets = find_subjects(folder, options.target, f"{card.id}: staging.options.target")
        except MissingDataError as error:
            missing.append(error)
            continue
        return [
            SourceVolume(
                name, path, upstream_file(folder, options.input, id=name), upstream_file(folder, options.mask, id=name)
            )
            for name, path in targets.items()
        ]
    raise missing[0]
