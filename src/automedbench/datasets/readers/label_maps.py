"""One label map per image: in a folder of its own (Medical Segmentation Decathlon, PANTHER) or beside it (KiTS, FeTA).

Options of the card (``staging.options``): patterns of image and label map below the raw data, which label values a
target is made of, and the table that says which subjects are taken in which order.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.subjects import SubjectTable, listed
from automedbench.datasets.forms.volumes import Found, MaskPart, SourceSegmentation, filled, find_files, upstream_file


class Options(Model):
    """Where things are below the raw folder.

    ``{id}`` is the subject; another ``{name}`` of the label's pattern is the same in the image's (of two label maps of
    one subject the first by name counts).
    """

    image: str = Field("imagesTr/{id}.nii.gz", description="for KiTS 'data/{id}/imaging.nii.gz'; .mha becomes NIfTI")
    label: str = Field("labelsTr/{id}.nii.gz", description="for FeTA '{release}/{id}/anat/{id}_rec-{rec}_dseg.nii.gz'")
    labels: dict[str, list[int]] = Field(
        default_factory=dict, description="target → upstream label values that it is made of; default: its id"
    )
    table: SubjectTable | None = Field(None, description="subjects and their order; without one all that have a label")
    lacking_labels: bool = Field(
        False, description="subjects of the table without a label map (or with a Git LFS pointer) are passed over"
    )


def read(raw: Path, card: TaskCard) -> list[SourceSegmentation]:
    """All subjects that have a label map, sorted by id; images without one (the public test sets) are left out.

    With a table: the subjects that it lists, in its order; whether their files are there is seen when they are taken.
    Raises MissingDataError for a label map without image and ConfigError for options that make no sense.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    labels = _labels(card, options)
    found = find_files(raw, options.label, f"{card.id}: staging.options.label")
    if options.table is None:
        if card.staging.sampling.split is not None:
            raise ConfigError([f"{card.id}: staging.sampling.split: no staging.options.table tells the splits"])
        return [
            _subject(subject, upstream_file(raw, options.image, **maps[0].names), maps[0].path, labels)
            for subject, maps in found.items()
        ]
    subjects = listed(raw, options.table, card.staging.sampling.split, f"{card.id}: staging.options.table")
    return [_listed(raw, options, subject, found.get(subject, []), labels) for subject in subjects]


def _listed(
    raw: Path, options: Options, subject: str, maps: list[Found], labels: dict[str, list[int]]
) -> SourceSegmentation:
    names = maps[0].names if maps else {"id": subject}
    label = maps[0].path if maps else raw / filled(options.label, names)
    return _subject(subject, raw / filled(options.image, names), label, labels, options.lacking_labels)


def _subject(
    subject: str, image: Path, label: Path, labels: dict[str, list[int]], may_lack_truth: bool = False
) -> SourceSegmentation:
    parts = {target: (MaskPart(label, tuple(values)),) for target, values in labels.items()}
    return SourceSegmentation(subject, image, parts, may_lack_truth)


def _labels(card: TaskCard, options: Options) -> dict[str, list[int]]:
    """Target → upstream label values, in card order."""
    names = [target.name for target in card.targets]
    if unknown := sorted(set(options.labels) - set(names)):
        raise ConfigError([f"{card.id}: staging.options.labels: '{unknown[0]}' is no target of the card"])
    return {target.name: options.labels.get(target.name, [target.id]) for target in card.targets}
