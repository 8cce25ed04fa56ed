"""Opening volumes of data sets: NIfTI as a stream, MetaImage and other ITK formats through SimpleITK.

ITK speaks LPS (x to the left, y to the back), NIfTI RAS: the affine is converted, no axis is turned and no voxel moved
(MetaImage documentation, tag TransformMatrix; NIfTI-1 standard, method 3).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.untrusted.nifti import BLOCK_VOXELS, VolumeHeader, open_trusted
from automedbench.datasets.forms.problems import unreadable

__all__ = ["SourceReader", "open_source", "why_no_volume"]

NIFTI_SUFFIXES = (".nii.gz", ".nii")
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
SMALLEST: Final = 10_000
"""Bytes below which a file is looked at more closely: the reference takes no smaller one for a volume."""
_POINTER = b"version https://git-lfs"
_STARTS = (
    b"\x1f\x8b",
    b"\x5c\x01\x00\x00",
    b"\x00\x00\x01\x5c",
    b"\x1c\x02\x00\x00",
    b"\x00\x00\x02\x1c",
    b"ObjectType",
)
"""Gzip, NIfTI-1 and NIfTI-2 (their header's size, both byte orders), MetaImage."""


class SourceReader(Protocol):
    """An open volume of a data set."""

    @property
    def header(self) -> VolumeHeader:
        """Shape, type and geometry."""

    def blocks(self, n_voxels: int = BLOCK_VOXELS, *, stored: bool = False) -> Iterator[NDArray[Any]]:
        """Values in file order (x fastest) as 1-D arrays of at most ``n_voxels``; with ``stored`` never scaled."""


def why_no_volume(path: Path) -> str | None:
    """Why a file cannot be a volume: absent, a Git LFS pointer, or too small and of no known format; else None."""
    try:
        size = path.stat().st_size
        if size >= SMALLEST:
            return None
        with open(path, "rb") as stream:
            start = stream.read(len(_POINTER))
    except OSError:
        return "does not exist" if not path.exists() else "cannot be read"
    if start == _POINTER:
        return "is a Git LFS pointer, not the volume"
    if not start.startswith(_STARTS):
        return f"is no volume ({size} bytes, starts with {start[:16]!r})"
    return None


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[SourceReader]:
    """Open ``.nii``, ``.nii.gz`` or a format that SimpleITK reads; raises InfrastructureError for any fault."""
    if not path.name.endswith(NIFTI_SUFFIXES):
        yield _ItkReader(path)
        return
    try:
        with open_trusted(path) as reader:
            yield reader
    except InfrastructureError as error:
        found = str(error).splitlines()[0]
        if not found.startswith(f"{path} "):
            raise
        raise unreadable(path, found.removeprefix(f"{path} ").rstrip(".")) from error


class _ItkReader:
    """A volume that SimpleITK reads; its header first, its data (all at once) when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._itk = _simple_itk(path)
        try:
            file = self._itk.ImageFileReader()
            file.SetFileName(str(path))
            file.ReadImageInformation()
        except RuntimeError as error:
            raise unreadable(self._path, f"cannot be read: {_last_line(error)}") from error
        if file.GetDimension() != 3 or file.GetNumberOfComponents() != 1:
            raise unreadable(
                self._path, f"has {file.GetDimension()} axes and {file.GetNumberOfComponents()} values a voxel"
            )
        self.header = self._header(file)

    def blocks(self, n_voxels: int = BLOCK_VOXELS, *, stored: bool = False) -> Iterator[NDArray[Any]]:
        """Values in file order; nothing is scaled in these formats."""
        try:
            values = self._itk.GetArrayFromImage(self._itk.ReadImage(str(self._path))).reshape(-1)
        except RuntimeError as error:
            raise unreadable(self._path, f"cannot be read: {_last_line(error)}") from error
        for start in range(0, values.size, n_voxels):  # (z, y, x) in C order: x is the fastest
            yield values[start : start + n_voxels]

    def _header(self, file: Any) -> VolumeHeader:
        spacing = np.array(file.GetSpacing(), dtype=np.float64)
        lps = np.eye(4)
        lps[:3, :3] = np.array(file.GetDirection()).reshape(3, 3) * spacing
        lps[:3, 3] = file.GetOrigin()
        kind = self._itk.GetPixelIDValueAsString(file.GetPixelID())
        return VolumeHeader(
            shape=tuple(int(size) for size in file.GetSize()),
            dtype=self._dtype(kind),
            affine=LPS_TO_RAS @ lps,
            zooms=tuple(float(size) for size in spacing),
            slope=1.0,
            inter=0.0,
            offset=0,
            codes=(1, 1),
        )

    def _dtype(self, kind: str) -> np.dtype[Any]:
        known = {
            **{f"{bits}-bit signed integer": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
            **{f"{bits}-bit unsigned integer": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
            "32-bit float": "f4",
            "64-bit float": "f8",
        }
        if kind not in known:
            raise unreadable(self._path, f"stores {kind}, not plain numbers")
        return np.dtype(known[kind])


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[-1]


def _simple_itk(path: Path) -> Any:
    try:
        import SimpleITK
    except ImportError as error:
        raise MissingDataError(
            f"{path}: reading this format needs SimpleITK, which is not installed.\n"
            "Install the pinned environment again (`make`), or convert the data to .nii.gz."
        ) from error
    return SimpleITK
