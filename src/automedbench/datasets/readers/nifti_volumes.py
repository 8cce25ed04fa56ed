"""NIfTI volumes, one per subject, found by a pattern.

Option of the card (``staging.options``): ``image`` is the path of a subject's volume below the raw data with ``{id}``
for its name, for example ``{id}/ct.nii.gz``. Nothing is loaded here.
"""

from __future__ import annotations

from pathlib import Path

from automedbench.cards import TaskCard
from automedbench.datasets.volume_source import SourceVolume
from automedbench.datasets.volumes import find_subjects
from automedbench.records import Model
from automedbench.yamlfile import validate


class Options(Model):
    """Where the volumes are below the raw folder."""

    image: str = "{id}/ct.nii.gz"


def read(raw: Path, card: TaskCard) -> list[SourceVolume]:
    """One record per volume, sorted by subject; raises MissingDataError when there is none."""
    options = validate(card.staging.options, Options, card.id, "staging.options")
    found = find_subjects(raw, options.image, f"{card.id}: staging.options.image")
    return [SourceVolume(name, path) for name, path in found.items()]
