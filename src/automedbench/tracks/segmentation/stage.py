"""Segmentation's staging: which subjects become cases, and the volumes that are made of their upstream files."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import sha256_file, write_bytes
from automedbench.base.records import CaseEntry, Model
from automedbench.base.untrusted.nifti import BLOCK_VOXELS, VolumeHeader
from automedbench.base.yamlfile import validate
from automedbench.datasets import get_reader
from automedbench.datasets.forms.volumes import (
    MaskPart,
    SourceSegmentation,
    copy_volume,
    find_volume_problem,
    open_source,
    write_volume,
)
from automedbench.datasets.sampling import assign_case_ids, draw_cases, shuffle_sources
from automedbench.tracks.common.affines import TOLERANCE_VOXELS, affine_offset
from automedbench.tracks.common.staging import Content, StagedCase, choose_fit, csv_bytes, stage_cases
from automedbench.tracks.segmentation.check import describe_geometry
from automedbench.tracks.segmentation.settings import LabelFile, label_files

Volume = NDArray[Any]


class SegmentationSampling(Model):
    """Options of a segmentation card in ``staging.sampling.options``."""

    order: Literal["shuffled", "sorted", "numeric", "listed"] = Field(
        "shuffled",
        description="by seed; by upstream id as text (10 before 2) or by its numbers; as the reader's table lists them",
    )
    require: list[str] = Field(default_factory=list, description="targets that a subject must have to be taken")


@dataclass(frozen=True, eq=False)
class MaskTruth:
    """The volumes of one subject, one per expected file, and what was noticed while making them."""

    volumes: dict[str, Volume]
    header: VolumeHeader
    overwritten: int
    other_affine: int

    def voxels(self, files: tuple[LabelFile, ...]) -> dict[str, int]:
        """Target → number of voxels, in card order."""
        counts: dict[str, int] = {}
        for file in files:
            number = _histogram(self.volumes[file.name], max(file.values) + 1)
            counts |= {target.name: int(number[v]) for target, v in zip(file.targets, file.values, strict=True)}
        return counts


def _histogram(volume: Volume, n_values: int) -> NDArray[np.int64]:
    """Voxels of each value below ``n_values``, block by block: at once, every voxel would become eight bytes."""
    return np.asarray(sum(np.bincount(block, minlength=n_values) for block in _blocks(volume)), dtype=np.int64)


def _blocks(volume: Volume) -> Iterator[Volume]:
    return (volume[start : start + BLOCK_VOXELS] for start in range(0, volume.size, BLOCK_VOXELS))


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Choose cases, write each one's image and truth, and the private tables.

    The same card and data give the same bytes. Raises InfrastructureError for raw data that is absent or unreadable,
    for too few subjects, for masks on another grid than their image, and when no chosen case has any target.
    """
    subjects: list[SourceSegmentation] = get_reader(card.staging.reader)(raw, card)
    files = label_files(card)
    if len(card.inputs) != 1:
        raise ConfigError([f"{card.id}: inputs: segmentation stages exactly one image per case"])
    options = validate(card.staging.sampling.options, SegmentationSampling, card.id, "staging.sampling.options")
    chosen, passed_over = draw_cases(
        card, subjects, lambda of, rest: _choose(of, rest, options), lambda found: found[0]
    )
    voxels: dict[str, dict[str, int]] = {}

    def stage_case(case: str, subject: SourceSegmentation) -> StagedCase:
        truth = make_truth(subject, files)
        voxels[case] = truth.voxels(files)
        return _staged(card.inputs[0].file, subject, truth, files)

    entries = stage_cases(
        public,
        private,
        card,
        "segmentation-split/1",
        assign_case_ids(card, chosen),
        stage_case,
        asked=card.staging.sampling.count,
        order=options.order,
        require=options.require,
        passed_over=passed_over,
    )
    rows = [(entry.id, name, count) for entry in entries for name, count in voxels[entry.id].items()]
    if not any(count for _, _, count in rows):
        raise InfrastructureError(
            f"The {len(entries)} cases chosen for {card.id} have none of its targets, so nothing could be scored.\n"
            "Check staging.options and targets of the card."
        )
    write_bytes(private / "ground_truth.csv", csv_bytes(["patient_id", "target", "voxels"], rows))
    return entries


# --- which cases ----------------------------------------------------------------------------------------------


def _choose(
    card: TaskCard, subjects: list[SourceSegmentation], options: SegmentationSampling
) -> tuple[list[SourceSegmentation], dict[str, str]]:
    """The card's number of subjects in its order, and those passed over, with the reason.

    Masks are read only where the card requires targets, block by block; images are not read.
    """
    sampling = card.staging.sampling
    if unknown := sorted(set(options.require) - {target.name for target in card.targets}):
        raise ConfigError([f"{card.id}: staging.sampling.options.require: '{unknown[0]}' is no target of the card"])
    # The next ones of a list would be the same in every fresh draw.
    order = options.order if sampling.besides is None else "shuffled"
    return choose_fit(card, _ordered(subjects, order, sampling.seed), lambda each: _unfit(each, options.require))


def _ordered(subjects: list[SourceSegmentation], order: str, seed: int) -> list[SourceSegmentation]:
    if order == "listed":
        return subjects
    if order == "shuffled":
        return shuffle_sources(subjects, seed)
    by_id = {subject.id: subject for subject in subjects}
    return [by_id[name] for name in sorted(by_id, key=_numbers_as_numbers if order == "numeric" else None)]


def _numbers_as_numbers(name: str) -> list[tuple[int, str]]:
    """Key that puts ``case_2`` before ``case_10``; equal numbers are ordered as text."""
    pieces = re.split(r"(\d+)", name)
    return [(int(piece), piece) if piece.isdecimal() else (-1, piece) for piece in pieces]


def _lacks_truth(subject: SourceSegmentation) -> str | None:
    """Reason to skip a subject without truth; None when it is complete.

    Raises MissingDataError for an image that is not there, and for truth that upstream is not known to lack.
    """
    for path in [*subject.files[1:], subject.image]:
        if not (reason := find_volume_problem(path)):
            continue
        if subject.may_lack_truth and path != subject.image:
            return f"{path.name} {reason}"
        raise MissingDataError(
            f"{path} {reason}; subject '{subject.id}' cannot be staged without it.\n"
            "Fetch the data again (`snakemake prepare`), a git repository with git-lfs installed, or correct "
            "staging.options of the card."
        )
    return None


def _unfit(subject: SourceSegmentation, targets: list[str]) -> str | None:
    """Reason that the subject lacks its truth; empty where one of the targets does not occur, None where it is fit."""
    if reason := _lacks_truth(subject):
        return reason
    masks = (map(_foreground, subject.parts[target]) for target in targets)
    return None if all(any(mask.any() for part in parts for mask in part) for parts in masks) else ""


# --- truth ----------------------------------------------------------------------------------------------------


def make_truth(subject: SourceSegmentation, files: tuple[LabelFile, ...]) -> MaskTruth:
    """The truth volumes of a subject: parts of a target are united, later targets overwrite earlier ones."""
    with open_source(subject.image) as image:
        # Further axes are channels, which a label map does not have.
        header = replace(image.header, shape=image.header.shape[:3], zooms=image.header.zooms[:3])
    overwritten = 0
    volumes: dict[str, Volume] = {}
    for file in files:
        volume = np.zeros(header.n_voxels, dtype=np.uint8 if max(file.values) < 256 else np.uint16)
        parts = [
            (part, value)
            for target, value in zip(file.targets, file.values, strict=True)
            for part in subject.parts[target.name]
        ]
        for path, of_one_file in itertools.groupby(parts, key=lambda each: each[0].path):
            overwritten += _paint(volume, path, list(of_one_file), header)
        volumes[file.name] = volume
    sources = {part.path for parts in subject.parts.values() for part in parts}
    return MaskTruth(volumes, header, overwritten, sum(_lies_elsewhere(path, header) for path in sources))


def _paint(volume: Volume, path: Path, parts: list[tuple[MaskPart, int]], header: VolumeHeader) -> int:
    """Set the voxels of a file's parts to each part's value, in this order, reading it once.

    Returns how many voxels another target had before.
    """
    overwritten = 0
    with open_source(path) as reader:
        if _squeezed(reader.header.shape) != header.shape:
            raise InfrastructureError(
                f"{path} has shape {reader.header.shape}, its image has {header.shape}.\n"
                "The data set is damaged or the card's patterns mix subjects; fetch it again."
            )
        for start, values in _nonzero(reader.blocks()):
            block = volume[start : start + values.size]
            for part, value in parts:
                mask = _mask(part, values)
                overwritten += int(np.count_nonzero(mask & (block != 0) & (block != value)))
                block[mask] = value
    return overwritten


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without trailing axes of length 1 beyond the third, which some tools write."""
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _foreground(part: MaskPart) -> Iterator[NDArray[np.bool_]]:
    with open_source(part.path) as reader:
        for _, values in _nonzero(reader.blocks()):
            yield _mask(part, values)


def _nonzero(blocks: Iterator[Volume]) -> Iterator[tuple[int, Volume]]:
    """First voxel and values of each block that is not empty."""
    start = 0
    for block in blocks:
        if block.any():
            yield start, block
        start += block.size


def _mask(part: MaskPart, values: Volume) -> NDArray[np.bool_]:
    """Mask of the part's voxels in a block of its file."""
    if part.values is None:
        return values > 0.5
    return np.isin(np.rint(values) if values.dtype.kind == "f" else values, part.values)


def _lies_elsewhere(path: Path, header: VolumeHeader) -> bool:
    with open_source(path) as reader:
        return affine_offset(reader.header.affine, header.affine, header.shape) > TOLERANCE_VOXELS


# --- files ----------------------------------------------------------------------------------------------------


def _staged(image: str, subject: SourceSegmentation, truth: MaskTruth, files: tuple[LabelFile, ...]) -> StagedCase:
    """A case; its origin: upstream files with hashes, and what was odd (voxels of two targets, another affine)."""
    header = replace(truth.header, slope=1.0, inter=0.0)
    held_out: dict[str, Content] = {}
    for file in files:
        volume = truth.volumes[file.name]
        held_out[file.name] = functools.partial(write_volume, blocks=_blocks(volume), dtype=volume.dtype, header=header)
    origin = {
        "subject": subject.id,
        "files": {_short(path, subject.image): sha256_file(path) for path in subject.files},
        "overwritten_voxels": truth.overwritten,
        "other_affine": truth.other_affine,
    }
    given = {image: functools.partial(copy_volume, subject.image)}
    return StagedCase(given, held_out, origin, describe_geometry(truth.header))


def _short(path: Path, image: Path) -> str:
    """The path from the image's folder, or one above it."""
    for folder in (image.parent, image.parent.parent):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.name
