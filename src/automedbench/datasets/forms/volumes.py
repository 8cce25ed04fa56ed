"""Volumes of data sets: what readers of segmentations return, and NIfTI files written the same way every time."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import atomic_path
from automedbench.base.untrusted.nifti import VolumeHeader
from automedbench.datasets.forms.volume_files import open_source

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
class Found:
    """A file that fits a pattern, and what stands for the pattern's ``{names}`` in it."""

    path: Path
    names: Mapping[str, str]


def find_files(raw: Path, pattern: str, where: str) -> dict[str, list[Found]]:
    """Files below ``raw`` that fit ``pattern``, by id and sorted by id, those of one id by path.

    ``{id}`` and any other ``{name}`` stand for one name or a part of one, the same wherever they occur.
    Hidden files (macOS leaves ``._`` copies in archives) are no subjects. Raises ConfigError, naming the card's key
    ``where``, for a pattern without ``{id}`` and MissingDataError when nothing fits.
    """
    if ID not in pattern:
        raise ConfigError([f"{where}: '{pattern}' needs {ID}, the subject's name"])
    shape = re.compile(_as_expression(pattern))
    found: dict[str, list[Found]] = {}
    for path in sorted(raw.glob(_FIELD.sub("*", pattern))):
        match = shape.fullmatch(path.relative_to(raw).as_posix())
        if match and path.is_file():
            found.setdefault(match["id"], []).append(Found(path, match.groupdict()))
    if not found:
        raise MissingDataError(
            f"No file fits {raw / pattern}.\n"
            "The raw data is incomplete or has another layout: fetch it again (`snakemake prepare`) or correct the "
            f"card's {where}."
        )
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
    """The file that ``pattern`` names for these names; raises MissingDataError when it is not there."""
    path = raw / filled(pattern, names)
    if not path.is_file():
        raise MissingDataError(
            f"{path} does not exist, but other files of its subject do.\n"
            "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
        )
    return path


def filled(pattern: str, names: Mapping[str, str]) -> str:
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
