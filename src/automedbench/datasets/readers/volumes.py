"""Volumes: images with a label map or with a mask per structure, single volumes, and pairs on one grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from automedbench.base.cards import Target, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.tables import SubjectTable, list_subjects
from automedbench.datasets.forms.volumes import (
    MaskPart,
    SourceSegmentation,
    SourceVolume,
    fill_pattern,
    find_files,
    find_subjects,
    upstream_file,
)

Value = TypeVar("Value")


class LabelMapsOptions(Model):
    """One label map per image: in a folder of its own (Medical Segmentation Decathlon, PANTHER) or beside it (KiTS,
    FeTA).

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


def label_maps(raw: Path, card: TaskCard) -> list[SourceSegmentation]:
    """All subjects that have a label map, sorted by id; images without one (the public test sets) are left out.

    With a table: the subjects that it lists, in its order. Whether a subject's files are there is seen when it is
    taken. Raises MissingDataError when there is no label map and ConfigError for options that make no sense.
    """
    options = validate(card.staging.options, LabelMapsOptions, card.id, "staging.options")
    values = _by_target(card, options.labels, "labels", lambda target: [target.id])
    found = find_files(raw, options.label, f"{card.id}: staging.options.label")
    subjects = _listed(raw, options.table, card)
    sources = []
    for name in found if subjects is None else subjects:
        names = found[name][0].names if name in found else {"id": name}
        label = raw / fill_pattern(options.label, names)
        parts = {target: (MaskPart(label, tuple(numbers)),) for target, numbers in values.items()}
        sources.append(
            SourceSegmentation(name, raw / fill_pattern(options.image, names), parts, options.lacking_labels)
        )
    return sources


def _by_target(
    card: TaskCard, given: dict[str, list[Value]], key: str, usual: Callable[[Target], list[Value]]
) -> dict[str, list[Value]]:
    """Values of the card's option for each of its targets, in their order; ``usual`` by default."""
    if unknown := sorted(set(given) - {target.name for target in card.targets}):
        raise ConfigError([f"{card.id}: staging.options.{key}: '{unknown[0]}' is no target of the card"])
    return {target.name: given.get(target.name, usual(target)) for target in card.targets}


def _listed(raw: Path, table: SubjectTable | None, card: TaskCard) -> list[str] | None:
    """Subjects of the card's split that its table lists; None without a table, which a split needs."""
    split = card.staging.sampling.split
    if table is not None:
        return list_subjects(raw, table, split, f"{card.id}: staging.options.table")
    if split is not None:
        raise ConfigError([f"{card.id}: staging.sampling.split: no staging.options.table gives the splits"])
    return None


class MaskFoldersOptions(Model):
    """One folder per subject with an image and one binary mask file per structure (TotalSegmentator, PanTS, AeroPath).

    Patterns of files are below the raw data.
    """

    image: str = Field("{id}/ct.nii.gz", description="the image; {id} is the subject's name")
    mask: str = Field("{id}/segmentations/{structure}.nii.gz", description="the mask of one structure")
    structures: dict[str, list[str]] = Field(
        default_factory=dict, description="target → structures that it is made of; default: its source or own name"
    )
    table: SubjectTable | None = Field(None, description="subjects and their order; without one all that have an image")
    sparse: bool = Field(False, description="a structure without a mask file is absent in that subject")


def mask_folders(raw: Path, card: TaskCard) -> list[SourceSegmentation]:
    """All subjects that have an image, sorted by id; with a table those that it lists, in its order.

    Whether a subject's files are there is seen when it is taken. Raises MissingDataError when there is no image and
    ConfigError for options that make no sense.
    """
    options = validate(card.staging.options, MaskFoldersOptions, card.id, "staging.options")
    structures = _by_target(card, options.structures, "structures", lambda target: [target.source or target.name])
    subjects = _listed(raw, options.table, card)
    if subjects is None:
        subjects = list(find_subjects(raw, options.image, f"{card.id}: staging.options.image"))

    def masks(subject: str, structures: list[str]) -> tuple[MaskPart, ...]:
        paths = (raw / fill_pattern(options.mask, {"id": subject, "structure": name}) for name in structures)
        return tuple(MaskPart(path) for path in paths if not options.sparse or path.is_file())

    return [
        SourceSegmentation(
            name,
            raw / fill_pattern(options.image, {"id": name}),
            {target: masks(name, parts) for target, parts in structures.items()},
        )
        for name in subjects
    ]


class NiftiVolumesOptions(Model):
    """NIfTI volumes, one per subject, found by patterns.

    ``staging.options``: ``image`` is the path of a subject's volume below the raw data with ``{id}`` for its name, for
    example ``{id}/ct.nii.gz``, or a list of such patterns, of which at least one must fit something. ``exclude`` are
    ids that are left out. Nothing is loaded here.
    """

    image: str | list[str] = "{id}/ct.nii.gz"
    exclude: list[str] = Field(default_factory=list, description="subjects that are never staged")


def nifti_volumes(raw: Path, card: TaskCard) -> list[SourceVolume]:
    """One record per volume, sorted by subject.

    Raises MissingDataError when there is none, InfrastructureError when two patterns find the same subject.
    """
    options = validate(card.staging.options, NiftiVolumesOptions, card.id, "staging.options")
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


class PairedVolumesOptions(Model):
    """Paired volumes: an input, the target and a mask on one grid for each subject (SynthRAD's layout).

    ``staging.options``: ``input``, ``target`` and ``mask`` are paths with ``{id}`` for the subject, for example
    ``{id}/mr.mha``, below one of the folders ``roots``; the first of them that holds a target is taken, as archives are
    unpacked with or without a folder around them. .mha, .mhd, .nrrd, .nii.gz and .nii are read. Nothing is loaded here.
    """

    roots: list[str] = Field(["."], min_length=1)
    input: str = "{id}/mr.mha"
    target: str = "{id}/ct.mha"
    mask: str = "{id}/mask.mha"


def paired_volumes(raw: Path, card: TaskCard) -> list[SourceVolume]:
    """One record per target, sorted by subject.

    Raises MissingDataError when there is no target at all, or one without its input or mask.
    """
    options = validate(card.staging.options, PairedVolumesOptions, card.id, "staging.options")
    folders = [raw / root for root in options.roots]
    found = (folder for folder in folders if any(folder.glob(fill_pattern(options.target, {"id": "*"}))))
    folder = next(found, folders[0])
    targets = find_subjects(folder, options.target, f"{card.id}: staging.options.target")
    return [
        SourceVolume(
            name, path, upstream_file(folder, options.input, id=name), upstream_file(folder, options.mask, id=name)
        )
        for name, path in targets.items()
    ]
