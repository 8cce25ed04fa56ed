"""Slices of MR measurements in HDF5 files as fastMRI stores them, one file per volume.

A file holds ``kspace``, complex (slices, rows, columns) or (slices, coils, rows, columns), perhaps images that were
reconstructed from it (``reconstruction_rss``), and attributes, among them ``patient_id``
(github.com/facebookresearch/fastMRI, fastmri/data/README.md). Options of the card (``staging.options``): ``images``,
``identity`` and ``exclude`` choose the files, ``dataset`` what is read, ``positions`` the slices; ``window`` or
``percentiles`` (of the slice), ``size``, ``fit`` and ``fill`` say what becomes of the magnitude.

From k-space, an image is the root of the sum over coils of the squared magnitudes of the centred inverse Fourier
transform. Only the slice that is needed is read.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.slices import ImageFile, ImageFiles, SourceSlice, find_images, numbered, place, shaped

KSPACE = "kspace"
MASK = "mask"
"""Data set of files that were sampled in part: no image of them is a reference."""


class Options(ImageFiles):
    """Which files, which of their data, which slices."""

    dataset: str = Field(KSPACE, description="kspace, or a data set of images (slices, rows, columns)")
    positions: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        [0.5], min_length=1, description="relative places in the stack of slices"
    )


def read(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """A record per file and position, sorted by path. The patient is the file's ``patient_id``, else its id.

    Raises MissingDataError when there is no file, InfrastructureError for one that is damaged or lacks the data set.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    found = []
    for each in find_images(raw, options):
        subject = _patient(each, options)
        for number, position in enumerate(options.positions, start=1):
            pixels = functools.partial(read_slice, each.path, options, position)
            found.append(SourceSlice(numbered(each.id, number, len(options.positions)), subject, each.path, pixels))
    return found


def read_slice(path: Path, options: Options, position: float) -> NDArray[np.float32]:
    """The magnitude of one slice as float32 (height, width), its values and size as the options say."""
    with _opened(path, options) as stored:
        values = np.asarray(stored[place(position, len(stored))])
    return shaped(magnitude(values) if options.dataset == KSPACE else np.abs(values), options)


def magnitude(kspace: NDArray[Any]) -> NDArray[np.float32]:
    """Image (rows, columns) of one slice's k-space, (rows, columns) or (coils, rows, columns)."""
    axes = (-2, -1)
    image = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace, axes=axes), norm="ortho"), axes=axes)
    coils = image.reshape(-1, *image.shape[-2:])
    return np.asarray(np.sqrt((np.abs(coils) ** 2).sum(axis=0)), dtype=np.float32)


def _patient(each: ImageFile, options: Options) -> str:
    if options.subject is not None:
        return each.subject
    with _opened(each.path, options) as stored:
        known = stored.parent.attrs.get("patient_id")
    if isinstance(known, bytes):
        known = known.decode("utf-8", "replace")
    return str(known) if known else each.id


class _opened:
    """The data set of a file, checked, while the block runs."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._options = path, options

    def __enter__(self) -> Any:
        import h5py

        name = self._options.dataset
        try:
            self._file: Any = h5py.File(self._path, "r")
        except OSError as error:
            raise _unusable(self._path, f"is no readable HDF5 file ({str(error)[:120]})") from error
        problem = self._problem(name)
        if problem is not None:
            self._file.close()
            raise _unusable(self._path, problem)
        return self._file[name]

    def _problem(self, name: str) -> str | None:
        if name not in self._file:
            return f"has no data set '{name}', only {', '.join(sorted(self._file)) or 'nothing'}"
        if MASK in self._file:
            return "was sampled in part (it has a data set 'mask'), so no image of it is a reference"
        shape = self._file[name].shape
        if len(shape) not in ((3, 4) if name == KSPACE else (3,)) or 0 in shape:
            return f"has '{name}' of shape {shape}"
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._file.close()
        if isinstance(error, OSError):
            raise _unusable(self._path, f"is damaged ({str(error)[:120]})") from error


def _unusable(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(
        f"{path} {why}.\nDelete it and fetch the data again (`snakemake prepare`), or name it in "
        "staging.options.exclude of the card."
    )
