"""Slices of DICOM series in folders, taken at fixed places of the series that has the most images of its patient.

Options of the card (``staging.options``): ``images`` are patterns of the files, ``subject`` finds the patient in the
path of a file's folder (without it, PatientID counts), ``modality`` chooses among series, ``positions`` the slices;
``window`` or ``percentiles`` (of the slice), ``size``, ``fit`` and ``fill`` say what becomes of the values.

A folder holds one series or several. To list the patients, one header per folder is read; all headers of a series
only when its patient is chosen. Files that cannot be read are named in the split record and passed over while they
are at most a tenth of the series. Slices lie as stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.dicom import (
    DicomImage,
    Series,
    UnreadableDicom,
    passed_over,
    read_header,
    read_series,
    read_values,
    require_usable,
)
from automedbench.datasets.forms.slices import ImageFiles, SliceOrigin, SourceSlice, numbered, place, shaped, subject_of


class Options(ImageFiles):
    """Which files, which series, which slices."""

    images: list[str] = Field(["**/*.dcm"], min_length=1, description="patterns of DICOM files below the raw folder")
    modality: str = "CT"
    positions: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        [0.5], min_length=1, description="relative places in the series, from feet (0) to head (1) for axial slices"
    )


def read(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """A record per patient and position, sorted by patient; folders without an image of the modality are passed over.

    Raises MissingDataError when there is none, InfrastructureError for a folder without patient in its path.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    patients: dict[str, list[_Folder]] = {}
    for folder in _folders(raw, options):
        patients.setdefault(folder.subject, []).append(folder)
    if not patients:
        raise MissingDataError(
            f"{raw} holds no DICOM file of modality {options.modality} that matches {', '.join(options.images)}.\n"
            "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
        )
    found = []
    for subject, folders in sorted(patients.items()):
        largest = min(folders, key=lambda folder: (-len(folder.files), folder.path))
        for number, position in enumerate(options.positions, start=1):
            chosen = _Slice(largest, options, position)
            identity = numbered(subject, number, len(options.positions))
            found.append(SourceSlice(identity, subject, largest.path, chosen.pixels, origin=chosen.origin))
    return found


class _Folder:
    """The files of one folder, of which at least one is of the modality."""

    def __init__(self, path: Path, files: tuple[Path, ...], subject: str) -> None:
        self.path, self.files, self.subject = path, files, subject

    def series(self, modality: str) -> Series:
        """The largest series of the modality in it."""
        return read_series(self.files, modality)


class _Slice:
    """One slice of a folder's series, chosen when it is first asked for."""

    def __init__(self, folder: _Folder, options: Options, position: float) -> None:
        self._folder, self._options, self._position = folder, options, position
        self._origin: SliceOrigin | None = None

    def pixels(self) -> NDArray[np.float32]:
        """The slice as float32 (height, width), its values and size as the options say."""
        self._origin, values = self._read()
        return shaped(values, self._options)

    def origin(self) -> SliceOrigin:
        """Its file, and what was passed over in its series."""
        if self._origin is None:
            self._origin, _ = self._read()
        return self._origin

    def _read(self) -> tuple[SliceOrigin, NDArray[np.float32]]:
        """The slice at the position; if its pixels turn out damaged, the one at that position of what is left."""
        series = self._folder.series(self._options.modality)
        slices, broken = list(series.slices), dict(series.broken)
        while slices:
            image = slices[place(self._position, len(slices))]
            try:
                values = read_values(image)
            except UnreadableDicom as error:
                broken[image.path] = str(error)
                slices.remove(image)
                require_usable(broken, len(self._folder.files))
                continue
            remarks = [*(passed_over(path, why) for path, why in broken.items()), *series.remarks]
            return SliceOrigin(image.path, tuple(remarks)), values
        raise InfrastructureError(
            f"{self._folder.path} holds no slice that can be read.\nDelete it and fetch the data again "
            "(`snakemake prepare`)."
        )


def _folders(raw: Path, options: Options) -> list[_Folder]:
    files: dict[Path, set[Path]] = {}
    for pattern in options.images:
        for path in raw.glob(pattern):
            if not path.name.startswith(".") and path.is_file():
                files.setdefault(path.parent, set()).add(path)
    found = []
    for folder, paths in sorted(files.items()):
        ordered = tuple(sorted(paths))
        image = _first_of(ordered, options.modality)
        if image is None:
            continue
        name = folder.relative_to(raw).as_posix()
        subject = image.patient if options.subject is None else subject_of(name, options.subject)
        if subject not in options.exclude:
            found.append(_Folder(folder, ordered, subject))
    return found


def _first_of(paths: tuple[Path, ...], modality: str) -> DicomImage | None:
    """The first image of the modality; the others of a folder are looked at only until there is one."""
    for path in paths:
        try:
            image = read_header(path)
        except UnreadableDicom:
            continue
        if image.modality == modality and not image.localizer:
            return image
    return None
