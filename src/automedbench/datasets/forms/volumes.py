"""Volumes of data sets: what readers return, how their files are opened and loaded, and NIfTI written again.

NIfTI is read as a stream, MetaImage and other ITK formats through SimpleITK. ITK speaks LPS (x to the left, y to the
back), NIfTI RAS: the affine is converted, no voxel moved (MetaImage documentation, tag TransformMatrix; NIfTI-1
standard, method 3). A volume that is loaded as a whole is turned and flipped to its closest canonical orientation
(RAS+: x to the right, y to the front, z upwards), never resampled.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import atomic_path
from automedbench.base.untrusted.nifti import BLOCK_VOXELS, VolumeHeader, VolumeReader, open_trusted
from automedbench.datasets.forms.problems import incomplete, last_line, unreadable

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


def find_volume_problem(path: Path) -> str | None:
    """Reason that a file is not a volume: absent, a Git LFS pointer, or too small and of unknown format; else None."""
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
        import SimpleITK

        self._path, self._itk = path, cast(Any, SimpleITK)
        try:
            file = self._itk.ImageFileReader()
            file.SetFileName(str(path))
            file.ReadImageInformation()
        except RuntimeError as error:
            raise unreadable(self._path, f"cannot be read: {last_line(error)}") from error
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
            raise unreadable(self._path, f"cannot be read: {last_line(error)}") from error
        for start in range(0, values.size, n_voxels):  # (z, y, x) in C order: x is the fastest
            yield values[start : start + n_voxels]

    def _header(self, file: Any) -> VolumeHeader:
        spacing = np.array(file.GetSpacing(), dtype=np.float64)
        lps = np.eye(4)
        lps[:3, :3] = np.array(file.GetDirection()).reshape(3, 3) * spacing
        lps[:3, 3] = file.GetOrigin()
        return VolumeHeader(
            shape=tuple(int(size) for size in file.GetSize()),
            dtype=self._dtype(file.GetPixelID()),
            affine=LPS_TO_RAS @ lps,
            zooms=tuple(float(size) for size in spacing),
            slope=1.0,
            inter=0.0,
            offset=0,
            codes=(1, 1),
        )

    def _dtype(self, kind: int) -> np.dtype[Any]:
        found: np.dtype[Any] = self._itk.GetArrayViewFromImage(self._itk.Image([1, 1, 1], kind)).dtype
        if found.kind not in "iuf":
            raise unreadable(self._path, f"stores {found}, not plain numbers")
        return found


SourceReader = VolumeReader | _ItkReader
"""An open volume of a data set."""


@dataclass(frozen=True)
class SourceVolume:
    """One subject: the volume to be predicted and, in paired data, the other one and the mask that come with it."""

    id: str
    target: Path
    input: Path | None = None
    mask: Path | None = None

    @property
    def files(self) -> dict[str, Path]:
        """The files that there are, by role."""
        named = {"target": self.target, "input": self.input, "mask": self.mask}
        return {role: path for role, path in named.items() if path is not None}


@dataclass(frozen=True, eq=False)
class Volume:
    """Values (x, y, z, …) and the affine from voxel numbers to millimetres (RAS)."""

    values: NDArray[Any]
    affine: NDArray[np.float64]

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance of neighbouring voxels along each axis, in mm."""
        return tuple(float(size) for size in np.linalg.norm(self.affine[:3, :3], axis=0))


def load_volume(path: Path, *, turned: bool = True) -> Volume:
    """One volume, ``turned`` to the canonical orientation, integers as stored, anything else as float32.

    Raises InfrastructureError when it cannot be read, has no three axes or no usable geometry.
    """
    with open_source(path) as reader:
        shape = reader.header.shape
        if len(shape) != 3 or min(shape) < 2:
            raise unreadable(path, f"has shape {shape}, not three axes")
        volume = Volume(_compact(_whole(reader)), reader.header.affine)
    if not np.isfinite(volume.affine).all() or abs(np.linalg.det(volume.affine[:3, :3])) < 1e-9:
        raise unreadable(path, "has no usable geometry")
    return canonical(volume) if turned else volume


def canonical(volume: Volume) -> Volume:
    """The same volume with its axes turned and flipped to the closest RAS+ orientation."""
    import nibabel

    orientations: Any = nibabel.orientations
    found = orientations.io_orientation(volume.affine)
    values = orientations.apply_orientation(volume.values, found)
    return Volume(values, volume.affine @ orientations.inv_ornt_aff(found, volume.values.shape))


def same_grid(first: Volume, second: Volume, tolerance: float = 1e-3) -> bool:
    """Equal shapes and affines that differ nowhere by more than ``tolerance``."""
    return first.values.shape == second.values.shape and bool(np.abs(first.affine - second.affine).max() <= tolerance)


def _whole(reader: SourceReader) -> NDArray[Any]:
    """All values, (x, y, z)."""
    size, start = math.prod(reader.header.shape), 0
    values: NDArray[Any] = np.empty(0)
    for block in reader.blocks():
        values = values if start else np.empty(size, block.dtype)
        values[start : start + block.size] = block
        start += block.size
    return values.reshape(reader.header.shape, order="F")


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Integers in the smallest of uint8, int16 and int32 that holds them; the rest as float32."""
    if values.dtype.kind not in "iu" or values.size == 0:
        return values.astype(np.float32)
    lowest, highest = int(values.min()), int(values.max())
    for dtype in (np.uint8, np.int16, np.int32):
        if np.iinfo(dtype).min <= lowest and highest <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values.astype(np.float32)


ID: Final = "{id}"
_FIELD = re.compile(r"\{(\w+)\}")
_LEVEL = 4  # of compression: half the time of gzip's own choice, files of a CT 2 % larger


@dataclass(frozen=True)
class MaskPart:
    """Voxels of one upstream file: those with one of the label ``values``, or the foreground of a mask when None."""

    path: Path
    values: tuple[int, ...] | None = None


@dataclass(frozen=True)
class SourceSegmentation:
    """One subject: its image, and of which upstream voxels each target of the card is made (parts are united)."""

    id: str
    image: Path
    parts: Mapping[str, tuple[MaskPart, ...]]
    may_lack_truth: bool = False
    """Upstream is known to lack the truth of some subjects: they are passed over instead of being an error."""

    @property
    def files(self) -> list[Path]:
        """Every upstream file of the subject, the image first, each once."""
        return list(dict.fromkeys([self.image, *(part.path for parts in self.parts.values() for part in parts)]))


@dataclass(frozen=True)
class PatternMatch:
    """A file that fits a pattern, and what stands for the pattern's ``{names}`` in it."""

    path: Path
    names: Mapping[str, str]


def find_files(raw: Path, pattern: str, where: str) -> dict[str, list[PatternMatch]]:
    """Files below ``raw`` that fit ``pattern``, by id and sorted by id, those of one id by path.

    ``{id}`` and any other ``{name}`` stand for one name or a part of one, the same wherever they occur.
    Hidden files (macOS leaves ``._`` copies in archives) are no subjects. Raises ConfigError, naming the card's key
    ``where``, for a pattern without ``{id}`` and MissingDataError when nothing fits.
    """
    if ID not in pattern:
        raise ConfigError([f"{where}: '{pattern}' needs {ID}, the subject's name"])
    shape = re.compile(_as_expression(pattern))
    found: dict[str, list[PatternMatch]] = {}
    for path in sorted(raw.glob(_FIELD.sub("*", pattern))):
        match = shape.fullmatch(path.relative_to(raw).as_posix())
        if match and path.is_file():
            found.setdefault(match["id"], []).append(PatternMatch(path, match.groupdict()))
    if not found:
        raise incomplete(f"No file fits {raw / pattern}", where)
    return dict(sorted(found.items()))


def find_subjects(raw: Path, pattern: str, where: str) -> dict[str, Path]:
    """The same with the first file of each id."""
    return {subject: files[0].path for subject, files in find_files(raw, pattern, where).items()}


def _as_expression(pattern: str) -> str:
    pieces = _FIELD.split(pattern)  # text and names in turn
    expression, seen = re.escape(pieces[0]), set[str]()
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        expression += (f"(?P={name})" if name in seen else f"(?P<{name}>[^/.][^/]*)") + re.escape(text)
        seen.add(name)
    return expression


def upstream_file(raw: Path, pattern: str, **names: str) -> Path:
    """The file that ``pattern`` names for these names; raises MissingDataError when it does not exist."""
    path = raw / fill_pattern(pattern, names)
    if not path.is_file():
        raise incomplete(f"{path} does not exist, but other files of its subject do")
    return path


def fill_pattern(pattern: str, names: Mapping[str, str]) -> str:
    """The pattern with names in their places."""
    for key, value in names.items():
        pattern = pattern.replace("{" + key + "}", value)
    return pattern


# --- writing --------------------------------------------------------------------------------------------------


def write_volume(path: Path, blocks: Iterable[NDArray[Any]], dtype: Any, header: VolumeHeader) -> None:
    """Write a ``.nii.gz`` from values in file order, placed in space as ``header`` is.

    The same input gives the same bytes: no name, no time. Nothing but shape, type, scaling and geometry is carried
    over: no free text, no intent, no extension.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    with (
        atomic_path(path) as temporary,
        open(temporary, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=raw, mtime=0) as stream,
    ):
        stream.write(_header_bytes(kind, header))
        for block in blocks:
            stream.write(np.ascontiguousarray(block, dtype=kind).data)


def copy_volume(source: Path, destination: Path) -> VolumeHeader:
    """Write a data set's volume again as NIfTI without its texts.

    Stored numbers, scaling and geometry stay as they are; the affine of other formats becomes RAS.
    """
    with open_source(source) as reader:
        write_volume(destination, reader.blocks(stored=True), reader.header.dtype, reader.header)
        return reader.header


def _header_bytes(dtype: np.dtype[Any], header: VolumeHeader) -> bytes:
    import nibabel

    header_class: Any = nibabel.Nifti1Header
    fields = header_class(endianness="<")
    try:
        fields.set_data_shape(header.shape)
        fields.set_data_dtype(dtype)
        fields.set_qform(header.affine, header.codes[0])
        fields.set_sform(header.affine, header.codes[1])
        fields.set_zooms(header.zooms)  # last: set_qform puts its own there
        fields.set_xyzt_units("mm")
    except (nibabel.spatialimages.HeaderDataError, ValueError, np.linalg.LinAlgError) as error:
        raise InfrastructureError(
            f"A volume of shape {header.shape} cannot be written as NIfTI-1: {error}.\nStage a smaller volume."
        ) from error
    fields["vox_offset"] = 352
    fields["scl_slope"], fields["scl_inter"] = header.slope, header.inter
    fields["magic"] = b"n+1"
    return bytes(fields.binaryblock) + bytes(4)
