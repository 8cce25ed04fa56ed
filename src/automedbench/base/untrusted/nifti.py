"""Single-file NIfTI volumes (``.nii.gz``; NIfTI-1 and NIfTI-2, both byte orders), read as a stream.

Only the header is read at first. Compare its shape with the expected one before asking for data: then neither a lying
header nor a decompression bomb can make the reader allocate or inflate more than the expected volume. After the last
voxel the end of the file and gzip's checksum are demanded, which nibabel and SimpleITK do not do.

Header fields mean what nibabel's header classes say; they are used, with their start of 0.2 s, only where a header has
no sform, an unusual type or a scaling that makes no sense. Data never passes through nibabel.

Gzip data is inflated by ``isal``: the same bytes as zlib, 2–5 times as fast. Several members in a row are one file, as
the gzip format has it (``pigz`` and ``bgzip`` write such files); padding with zeros behind the last one is allowed,
anything else is not.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from isal import igzip, isal_zlib
from numpy.typing import NDArray

from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.untrusted import Failure, open_regular

MAGIC: Final = b"\x1f\x8b"
_INFLATE_ERROR: Any = isal_zlib.error

Array = NDArray[Any]

BLOCK_VOXELS: Final = 2**18
"""Voxels per block: small enough that a block and its temporaries stay in the processor's cache."""
MAX_EXTENSION_BYTES: Final = 1024 * 1024
SURPLUS_BYTES: Final = 2 * MAX_EXTENSION_BYTES
"""Compressed bytes beyond twice those of the voxels: extensions, names, padding."""
_NIFTI1_BYTES, _NIFTI2_BYTES = 348, 540
_MAGIC = {_NIFTI1_BYTES: (344, b"n+1\0"), _NIFTI2_BYTES: (4, b"n+2\0\r\n\x1a\n")}
_FLAG_BYTES, _EXTENSION_UNIT = 4, 16
_TYPES: Final = {
    code: np.dtype(kind)
    for code, kind in (
        *((2, "u1"), (4, "i2"), (8, "i4"), (16, "f4"), (64, "f8")),
        *((256, "i1"), (512, "u2"), (768, "u4"), (1024, "i8"), (1280, "u8")),
    )
}
"""Data types by their codes (nifti1.h)."""


def _fields(size: int, integer: str, real: str, code: str, places: Sequence[int]) -> np.dtype[Any]:
    """Fields of a header of ``size`` bytes at their places (nifti1.h, nifti2.h), in NumPy's byte order."""
    kinds = [f"(8,){integer}", "i2", f"(8,){real}", "f4" if size == _NIFTI1_BYTES else "i8", real, real, code, code]
    names = ["dim", "datatype", "pixdim", "vox_offset", "scl_slope", "scl_inter", "qform_code", "sform_code", "srow"]
    layout = {"names": names, "formats": [*kinds, f"(3,4){real}"], "offsets": list(places), "itemsize": size}
    return np.dtype(layout)  # type: ignore[call-overload, no-any-return]


_FIELDS: Final = {
    _NIFTI1_BYTES: _fields(_NIFTI1_BYTES, "i2", "f4", "i2", (40, 70, 76, 108, 112, 116, 252, 254, 280)),
    _NIFTI2_BYTES: _fields(_NIFTI2_BYTES, "i8", "f8", "i4", (16, 12, 104, 168, 176, 184, 344, 348, 400)),
}


@dataclass(frozen=True, eq=False)
class VolumeHeader:
    """Header of a volume.

    ``shape`` is as stored (x varies fastest in the file). ``affine`` (4×4, mm) is the sform, else the qform, else made
    of shape and ``zooms`` (voxel sizes), as nibabel chooses; ``codes`` are qform_code and sform_code. Values are
    stored × ``slope`` + ``inter``. ``offset`` is the byte at which data begins.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    affine: NDArray[np.float64]
    zooms: tuple[float, ...]
    slope: float
    inter: float
    offset: int
    codes: tuple[int, int]

    @property
    def n_voxels(self) -> int:
        """Number of voxels that the header promises."""
        return math.prod(self.shape)

    @property
    def scaled(self) -> bool:
        """True when stored numbers are not the values themselves."""
        return (self.slope, self.inter) != (1.0, 0.0)


class VolumeReader:
    """The data of one open volume, once, front to back; made by :func:`open_volume` or :func:`open_trusted`."""

    def __init__(self, stream: IO[bytes], header: VolumeHeader, fail: Failure) -> None:
        self.header = header
        self._stream, self._fail = stream, fail
        self._started = False

    def blocks(self, n_voxels: int = BLOCK_VOXELS, *, stored: bool = False) -> Iterator[Array]:
        """Values in file order as 1-D arrays of at most ``n_voxels``, in native byte order.

        They have the stored type, or float64 when the header scales them; with ``stored`` they are never scaled. A
        damaged file fails with ``truncated``, ``corrupt``, ``bad_crc`` or ``trailing_data``: not before it is
        exhausted is a volume known to be whole.
        """
        yield from self._runs(self.header.n_voxels, n_voxels, scaled=self.header.scaled and not stored)

    def slices(self) -> Iterator[Array]:
        """One array (x, y) per z of a volume whose axes beyond the third have length 1; fails as ``blocks`` does."""
        x, y, z = (*self.header.shape, 1, 1, 1)[:3]
        if x * y * z != self.header.n_voxels:
            raise self._fail("not_3d", f"has shape {self.header.shape}, not three dimensions")
        for values in self._runs(x * y * z, x * y, scaled=self.header.scaled):
            yield values.reshape((x, y), order="F")

    def _runs(self, total: int, run: int, *, scaled: bool) -> Iterator[Array]:
        if self._started:
            raise ValueError("a volume can be read only once")
        self._started = True
        self._read(self.header.offset - self._stream.tell())
        for start in range(0, total, run):
            yield self._values(min(run, total - start), scaled)
        if _read(self._stream, 1, self._fail):
            raise self._fail("trailing_data", f"holds more data than its shape {self.header.shape} needs")

    def _values(self, count: int, scaled: bool) -> Array:
        header = self.header
        stored = np.frombuffer(self._read(count * header.dtype.itemsize), dtype=header.dtype)
        if not scaled:
            return stored.astype(header.dtype.newbyteorder("="), copy=False)
        with np.errstate(all="ignore"):  # what overflows becomes infinite and is judged as such
            return stored.astype(np.float64) * header.slope + header.inter

    def _read(self, n_bytes: int) -> bytes:
        return _read_exactly(self._stream, n_bytes, self._fail)


@contextlib.contextmanager
def open_volume(path: Path, *, max_bytes: int) -> Iterator[VolumeReader]:
    """Open a ``.nii.gz`` that an agent made and read its header.

    Raises InvalidSubmission: ``not_found``, ``not_a_file`` (link, FIFO, folder, …), ``too_large`` (compressed size),
    ``not_gzip``, ``truncated``, ``corrupt``, ``bad_crc``, ``bad_header``, ``extension_too_large``,
    ``unsupported_dtype`` (complex, RGB, more than 64 bits).
    """
    with open_regular(path) as raw:
        if (size := os.fstat(raw.fileno()).st_size) > max_bytes:
            raise InvalidSubmission("too_large", f"has {size} bytes, more than the limit of {max_bytes}")
        yield _reader(raw, plain=False, fail=InvalidSubmission)


@contextlib.contextmanager
def open_trusted(path: Path) -> Iterator[VolumeReader]:
    """Open a volume of our own or of a data set (``.nii.gz`` or ``.nii``); raises InfrastructureError for any fault."""

    def fail(code: str, message: str) -> Exception:
        return InfrastructureError(
            f"{path} {message}.\nStage the task again (rule stage_task); delete the file first if it is damaged."
        )

    with open_regular(path, fail, trusted=True) as raw:
        yield _reader(raw, plain=True, fail=fail)


def _reader(raw: IO[bytes], *, plain: bool, fail: Failure) -> VolumeReader:
    magic = raw.read(len(MAGIC))
    raw.seek(0)
    if magic != MAGIC and not plain:
        raise fail("not_gzip", f"is not a gzip file (starts with {magic!r})" if magic else "is empty")
    stream: IO[bytes] = igzip.open(raw) if magic == MAGIC else raw  # type: ignore[no-untyped-call]
    header, order = _header(stream, fail)
    if not plain:
        if os.fstat(raw.fileno()).st_size > 2 * header.n_voxels * header.dtype.itemsize + SURPLUS_BYTES:
            raise fail("corrupt", "is compressed to more than its content")  # empty members cost time and say nothing
        _check_extensions(stream, header.offset, order, fail)
    return VolumeReader(stream, header, fail)


def _header(stream: IO[bytes], fail: Failure) -> tuple[VolumeHeader, str]:
    """The header and its byte order, ``<`` or ``>``."""
    block = _read_exactly(stream, _NIFTI1_BYTES, fail)
    size, order = _size_and_order(block, fail)
    block += _read_exactly(stream, size - len(block), fail)
    start, magic = _MAGIC[size]
    if block[start : start + len(magic)] != magic:
        raise fail("bad_header", f"has no magic string {magic!r}: it is not a single-file NIfTI volume")
    return _interpret(block, order, fail), order


def _check_extensions(stream: IO[bytes], offset: int, order: str, fail: Failure) -> None:
    """Demand sizes of header extensions that lead from one to the next and end before the data.

    Their content is not read, but with other sizes nibabel cannot open the file.
    """
    flags = _read_exactly(stream, _FLAG_BYTES, fail)
    left = offset - stream.tell()
    while flags[0] and left >= _EXTENSION_UNIT:
        size = int.from_bytes(_read_exactly(stream, 4, fail), "little" if order == "<" else "big", signed=True)
        if size < _EXTENSION_UNIT or size % _EXTENSION_UNIT or size > left:
            raise fail("bad_header", f"has an extension of {size} bytes (a multiple of 16 up to {left} would fit)")
        _read_exactly(stream, size - 4, fail)
        left -= size


def _size_and_order(block: bytes, fail: Failure) -> tuple[int, str]:
    """Header size (its first field) in the byte order in which it makes sense, ``<`` or ``>``."""
    orders = {int.from_bytes(block[:4], "little"): "<", int.from_bytes(block[:4], "big"): ">"}
    found = [(size, order) for size, order in orders.items() if size in _MAGIC]
    if not found:
        raise fail("bad_header", f"is not a NIfTI volume (starts with {block[:4]!r})")
    return found[0]


def _interpret(block: bytes, order: str, fail: Failure) -> VolumeHeader:
    raw: Any = np.frombuffer(block, _FIELDS[len(block)].newbyteorder(order))[0]  # type: ignore[arg-type]
    slope, inter = float(raw["scl_slope"]), float(raw["scl_inter"])
    if slope == 0 or not math.isfinite(slope):
        slope, inter = 1.0, 0.0
    dtype = _TYPES.get(int(raw["datatype"]))
    if dtype is not None and raw["sform_code"] != 0 and math.isfinite(inter):
        with np.errstate(all="ignore"):
            affine = np.vstack([raw["srow"], [0, 0, 0, 1]]).astype(np.float64)
    else:
        affine, dtype = _read_with_nibabel(block, order, fail)
    shape = _shape(raw["dim"].tolist(), fail)
    return VolumeHeader(
        shape=shape,
        dtype=dtype.newbyteorder(order),  # type: ignore[arg-type]
        affine=affine,
        zooms=tuple(abs(float(size)) for size in raw["pixdim"][1 : len(shape) + 1]),
        slope=slope,
        inter=inter,
        offset=_offset(float(raw["vox_offset"]), len(block) + 4, fail),
        codes=(int(raw["qform_code"]), int(raw["sform_code"])),
    )


def _read_with_nibabel(block: bytes, order: str, fail: Failure) -> tuple[NDArray[np.float64], np.dtype[Any]]:
    """Affine and stored type of any header; fails for one that makes no sense."""
    import nibabel

    header_class: Any = nibabel.Nifti1Header if len(block) == _NIFTI1_BYTES else nibabel.Nifti2Header
    raw = header_class(block, endianness=order, check=False)
    try:
        with np.errstate(all="ignore"):
            raw.get_slope_inter()
            affine = np.array(raw.get_best_affine(), dtype=np.float64)
        dtype = np.dtype(raw.get_data_dtype())
    except (nibabel.spatialimages.HeaderDataError, ArithmeticError, LookupError, ValueError) as error:
        raise fail("bad_header", f"has a header that makes no sense: {str(error)[:120]}") from error
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise fail("unsupported_dtype", f"stores {dtype.name}; use an integer or float type of at most 64 bits")
    return affine, dtype


def _shape(dim: list[int], fail: Failure) -> tuple[int, ...]:
    shape = tuple(dim[1 : dim[0] + 1])
    if not 1 <= dim[0] <= 7 or any(size < 1 for size in shape):
        raise fail("bad_header", f"has dimensions {dim}")
    return shape


def _offset(stated: float, least: int, fail: Failure) -> int:
    """Where data begins: behind the header, its four flag bytes and, if there are any, the extensions."""
    if not math.isfinite(stated) or stated != int(stated) or stated < least:
        raise fail("bad_header", f"says that its data begins at byte {stated:g}, before byte {least}")
    if stated > least + MAX_EXTENSION_BYTES:
        raise fail("extension_too_large", f"has {stated - least:g} bytes of extensions (limit {MAX_EXTENSION_BYTES})")
    return int(stated)


def _read_exactly(stream: IO[bytes], n_bytes: int, fail: Failure) -> bytes:
    data = _read(stream, n_bytes, fail)
    if len(data) < n_bytes:
        raise fail("truncated", "holds fewer bytes than its header promises")
    return data


def _read(stream: IO[bytes], n_bytes: int, fail: Failure) -> bytes:
    """Up to ``n_bytes``, fewer only at the end of the data."""
    try:
        return stream.read(n_bytes)
    except EOFError as error:
        raise fail("truncated", "is damaged: the compressed data ends too early") from error
    except (gzip.BadGzipFile, _INFLATE_ERROR) as error:
        text = str(error)
        if text.startswith("Not a gzipped file"):
            raise fail("trailing_data", "is damaged: something lies behind the compressed data") from error
        is_checksum = text.startswith(("CRC check", "Incorrect length", "Corrupted gzip header"))
        code = "bad_crc" if is_checksum else "corrupt"
        raise fail(code, f"is damaged: its compressed data cannot be inflated ({text[:80]})") from error
