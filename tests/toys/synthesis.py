"""Synthesis' toy: four CTs of 64 × 64 × 32 voxels, each a body with a spine that leans its own way."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from numpy.typing import NDArray

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.records import Manifest
from automedbench.tracks.common.cases import case_output
from toys import Hostile, at, holding, no_files

ROOT = Path(__file__).resolve().parents[2]
_SHIPPED = load_card(ROOT / "config/tasks/synthesis/totalsegmentator-ctsr-task.yaml")
MAX_BYTES = 4_000_000
CARD: TaskCard = _SHIPPED.model_copy(
    update={
        "outputs": [_SHIPPED.outputs[0].model_copy(update={"max_bytes": MAX_BYTES})],
        "staging": _SHIPPED.staging.model_copy(
            update={"sampling": _SHIPPED.staging.sampling.model_copy(update={"count": None})}
        ),
    }
)
SHAPE = (64, 64, 32)
CEILING = 1.0
HALF: float | None = None
RESOURCES: dict[str, Path] = {}
Array = NDArray[Any]


def body(number: int) -> Array:
    """A CT in HU: air, an elliptic body with texture, and a bone that moves with the slice."""
    x, y, z = np.meshgrid(*(np.arange(size) for size in SHAPE), indexing="ij")
    values = np.full(SHAPE, -1000.0)
    inside = ((x - 32) / 26) ** 2 + ((y - 32) / 20) ** 2 < 1
    values[inside] = (40 + 60 * np.sin(0.9 * z + 0.3 * x + number))[inside]
    values[(x - 32 - (number - 1.5) * np.sin(0.4 * z)) ** 2 + (y - 22) ** 2 < 30] = 700 + 50 * number
    return np.asarray(np.rint(values), dtype=np.int16)


def make_raw(raw: Path) -> None:
    """Subjects in TotalSegmentator's layout; the first is stored from left to right and head to feet, and turned."""
    for number in range(4):
        folder = raw / f"s{number + 17:04d}"
        folder.mkdir()
        affine = np.diag([1.5, 1.5, 1.5, 1.0])
        affine[:3, 3] = [-40, -50 + number, 100]
        values = body(number)
        if number == 0:
            values, affine = values[::-1, :, ::-1], affine @ np.diag([-1.0, 1.0, -1.0, 1.0])
        image = nibabel.Nifti1Image(values, affine)
        image.header["descrip"] = b"subject of the toy"
        nibabel.save(image, folder / "ct.nii.gz")


def perfect(
    manifest: Manifest, public: Path, private: Path, cases: list[str], card: TaskCard = CARD
) -> dict[str, bytes]:
    """The truth itself."""
    path = case_output(card, "nii.gz").path
    return {path.replace("{case}", case): (private / case / "truth.nii.gz").read_bytes() for case in cases}


# --- bad files: a volume on the case's grid, changed ------------------------------------------------------------

Image = Any
Change = Callable[[Image], bytes]


def given(manifest: Manifest, public: Path, case: str) -> Image:
    """The case's input: right in everything, and not sharp."""
    return nibabel.load(public / case / "ct.nii.gz")


def packed(image: Image) -> bytes:
    """Bytes of a .nii.gz."""
    return gzip.compress(image.to_bytes(), 1, mtime=0)


def with_values(change: Callable[[Array], Array], dtype: Any = np.float32) -> Change:
    """The input with other values."""

    def make(image: Image) -> bytes:
        values = np.asarray(change(np.asarray(image.dataobj)), dtype=dtype)
        return packed(nibabel.Nifti1Image(values, image.affine, dtype=dtype))

    return make


def with_affine(change: Callable[[Array], Array]) -> Change:
    """The input plus some HU with another affine."""
    return lambda image: packed(nibabel.Nifti1Image(np.asarray(image.dataobj) + 3, change(image.affine)))


def with_header(**fields: Any) -> Change:
    """The input plus some HU; header fields overwritten, data as it was."""

    def make(image: Image) -> bytes:
        raw = nibabel.Nifti1Image(np.asarray(image.dataobj) + 3, image.affine)
        data = bytearray(raw.to_bytes())
        header = nibabel.Nifti1Header(bytes(data[:348]), check=False)
        for name, value in fields.items():
            header[name] = value
        data[:348] = header.binaryblock
        return gzip.compress(bytes(data), 1, mtime=0)

    return make


def with_bytes(change: Callable[[bytes], bytes]) -> Change:
    """A right file whose compressed bytes are changed."""
    right = with_values(lambda values: values + 3)
    return lambda image: change(right(image))


def with_plain(change: Callable[[bytes], bytes]) -> Change:
    """A right file whose bytes are changed before they are compressed."""
    return with_bytes(lambda data: gzip.compress(change(gzip.decompress(data)), 1, mtime=0))


def content(data: bytes) -> Change:
    """Something else altogether."""
    return lambda image: data


def poked(value: float) -> Change:
    """One voxel of the input has this value."""

    def poke(values: Array) -> Array:
        values = values + 3
        values[5, 6, 7] = value
        return values

    return with_values(poke)


def bomb(image: Image) -> bytes:
    """The header of the right volume before 2 GB of zeros, in 2 MB."""
    head = gzip.decompress(packed(image))[:352]
    return gzip.compress(head, 9, mtime=0) + gzip.compress(bytes(2**26), 9, mtime=0) * 32


def moved(axis: int, by: float) -> Callable[[Array], Array]:
    """The origin shifted along one axis."""

    def shift(affine: Array) -> Array:
        affine = affine.copy()
        affine[axis, 3] += by
        return affine

    return shift


# Scores 0 and is not completed: the file cannot be read to its end.
UNREADABLE: list[tuple[str, Change, str]] = [
    ("empty file", content(b""), "not_gzip"),
    ("zeros", content(bytes(4096)), "not_gzip"),
    ("text", content(b"no CT today\n"), "not_gzip"),
    ("NIfTI without gzip", with_bytes(gzip.decompress), "not_gzip"),
    ("gzip of nothing", content(gzip.compress(b"", mtime=0)), "truncated"),
    ("gzip of text", content(gzip.compress(b"CT" * 400, mtime=0)), "bad_header"),
    ("half of the file", with_bytes(lambda data: data[: len(data) // 2]), "truncated"),
    ("checksum is missing", with_bytes(lambda data: data[:-8]), "truncated"),
    ("checksum is wrong", with_bytes(lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]), "bad_crc"),
    ("something behind", with_bytes(lambda data: data + b"something more"), "trailing_data"),
    ("one voxel short", with_plain(lambda data: data[:-4]), "truncated"),
    ("one voxel too many", with_plain(lambda data: data + bytes(4)), "trailing_data"),
    ("wrong magic", with_header(magic=b"ni1"), "bad_header"),
    ("wrong header size", with_plain(lambda data: b"\x5d\x01\x00\x00" + data[4:]), "bad_header"),
    ("no dimensions", with_header(dim=[0, 1, 1, 1, 1, 1, 1, 1]), "bad_header"),
    ("negative dimension", with_header(dim=[3, 64, -64, 32, 1, 1, 1, 1]), "bad_header"),
    ("27 TB by its header", with_header(dim=[3, 30000, 30000, 30000, 1, 1, 1, 1]), "wrong_shape"),
    ("data before the header's end", with_header(vox_offset=10), "bad_header"),
    ("data behind 1 GB of extensions", with_header(vox_offset=2**30), "extension_too_large"),
    ("complex numbers", with_values(lambda values: values, np.complex64), "unsupported_dtype"),
    ("colours", with_header(datatype=128, bitpix=24), "unsupported_dtype"),
    ("2 GB of zeros behind a right header", bomb, "trailing_data"),
]
# Can be read, is completed, and scores 0.
UNSCORABLE: list[tuple[str, Change, str]] = [
    ("a NaN", poked(np.nan), "not_finite"),
    ("an infinity", poked(np.inf), "not_finite"),
    ("minus infinity", poked(-np.inf), "not_finite"),
    ("beyond float32", with_values(lambda values: values.astype(np.float64) * 1e300, np.float64), "not_finite"),
    ("scaled to infinity", with_header(scl_slope=1e38), "not_finite"),
    ("four axes, the last of length 1", with_values(lambda values: values[..., None]), "not_3d"),
    ("two axes", with_values(lambda values: values[:, :, 0]), "not_3d"),
    ("a slice too few", with_values(lambda values: values[:, :, :-1]), "wrong_shape"),
    ("axes swapped", with_values(lambda values: values.transpose(2, 0, 1)), "wrong_shape"),
    ("resolution of the low slices", with_values(lambda values: values[:, :, ::4]), "wrong_shape"),
]
# Scored voxel by voxel, but invalid.
INVALID: list[tuple[str, Change, str]] = [
    ("flipped affine", with_affine(lambda affine: affine @ np.diag([-1.0, 1.0, 1.0, 1.0])), "affine_mismatch"),
    ("identity for an affine", with_affine(lambda affine: np.eye(4)), "affine_mismatch"),
    ("another voxel size", with_affine(lambda affine: affine * [[1], [1], [2], [1]]), "affine_mismatch"),
    ("origin off by 1/100 mm", with_affine(moved(2, 0.01)), "affine_mismatch"),
    ("affine with NaN", with_header(srow_x=[np.nan, 0, 0, 0]), "affine_mismatch"),
    ("constant", with_values(lambda values: values * 0 - 1024), "constant_volume"),
]
# Valid; with a remark or without.
VALID: list[tuple[str, Change, str | None]] = [
    ("the input itself", with_values(lambda values: values), "copy_of_input"),
    ("the input, rounded", with_values(np.rint, np.int16), "copy_of_input"),
    ("values far beyond HU", poked(30000.0), "hu_range"),
    ("values of 1e30", poked(1e30), "hu_range"),
    ("int32", with_values(lambda values: values + 3, np.int32), None),
    ("float64", with_values(lambda values: values + 3, np.float64), None),
    ("origin off by a rounding", with_affine(moved(0, 1e-5)), None),
    ("free text in the header", with_header(descrip=b"\xff\xfe" * 40), None),
]


PATH = "{case}/sct.nii.gz"


def _write(outputs: Path, case: str, manifest: Manifest, public: Path, *, change: Change) -> None:
    at(PATH, holding(change(given(manifest, public, case))))(outputs, case, manifest, public)


def _cases(status: Any, changes: list[tuple[str, Change, Any]]) -> list[Hostile]:
    return [Hostile(name, functools.partial(_write, change=change), status, code) for name, change, code in changes]


HOSTILE: list[Hostile] = [
    *_cases("malformed", UNREADABLE + UNSCORABLE + INVALID),
    *_cases("valid", VALID),
    *no_files(PATH, b"", larger_than_the_card_allows=holding(np.random.default_rng(0).bytes(MAX_BYTES + 1))),
]
