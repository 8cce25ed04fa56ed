"""NIfTI volumes, one per subject, found by patterns.

Options of the card (``staging.options``): ``image`` is the path of a subject's volume below the raw data with ``{id}``
for its name, for example ``{id}/ct.nii.gz``, or a list of such patterns, of which at least one must fit something.
``exclude`` are ids that are left out. Nothing is loaded here.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.volume_source import SourceVolume
from automedbench.datasets.forms.volumes import find_subjects


class Options(Model):
    """Where the volumes are below the raw folder."""

    image: str | list[str] = "{id}/ct.nii.gz"
    exclude: list[str] = Field(default_factory=list, description="subjects that are never staged")


def read(raw: Path, card: TaskCard) -> list[SourceVolume]:
    """One record per volume, sorted by subject.

    Raises MissingDataError when there is none, InfrastructureError when two patterns find the same subject.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    patterns = [options.image] if isinstance(options.image, str) else options.image
    found: dict[str, Path] = {}
    missing: list[MissingDataError] = []
    for pattern in patterns:
        try:
            more = find_subjects(raw, pattern, f"{card.id}: staging.options.image")
        except MissingDataError as error:
            missing.append(error)
            continue
        for name in sorted(found.keys() & more.keys()):
            raise InfrastructureError(
                f"{found[name]} and {more[name]} are both subject {name} of {card.id}.\n"
                "Keep one of them in the raw data."
            )
        found |= more
    if not found and missing:
        raise missing[0]
    return [SourceVolume(name, found[name]) for name in sorted(found.keys() - set(options.exclude))]
