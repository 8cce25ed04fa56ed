"""Segmentation's toy: four subjects of 12 × 10 × 8 voxels with three box-shaped structures each."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.records import Manifest
from automedbench.tracks.segmentation.settings import label_files
from toys import Hostile, copied, files, holding, no_files

ROOT = Path(__file__).resolve().parents[2]
SHAPE = (12, 10, 8)
AFFINE = np.array([[-1.5, 0, 0, 20], [0, 1.5, 0, -30], [0, 0, 3.0, 5], [0, 0, 0, 1]])
STRUCTURES = ("liver", "spleen", "aorta")
MAX_BYTES = 4_000_000
CEILING = 1.0
HALF: float | None = None
RESOURCES: dict[str, Path] = {}


def _card() -> TaskCard:
    """The multi-organ card with three of its structures."""
    value = load_card(ROOT / "config/tasks/segmentation/tsg-multiorgan-seg-task.yaml").model_dump()
    value["targets"] = [{"id": number, "name": name} for number, name in enumerate(STRUCTURES, start=1)]
    value["staging"]["sampling"] |= {"count": 4, "options": {}}
    value["outputs"][0] |= {"max_bytes": MAX_BYTES}
    return TaskCard.model_validate(value)


CARD: TaskCard = _card()


def mask_card(**settings: Any) -> TaskCard:
    """The same as a pair of masks, organ and lesion, whose mean Dice is over the cases with a lesion."""
    value = CARD.model_dump()
    value["targets"] = [{"id": 1, "name": "organ"}, {"id": 1, "name": "lesion"}]
    value["outputs"] = [value["outputs"][0] | {"path": f"{{case}}/{name}.nii.gz"} for name in ("organ", "lesion")]
    files = {"organ": "organ.nii.gz", "lesion": "lesion.nii.gz"}
    value["metric"]["settings"] = {"files": files, "positive_only": ["lesion"], **settings}
    value["medals"] = []
    return TaskCard.model_validate(value)


def nifti(array: Any, affine: Any = AFFINE, version: int = 1, **header: Any) -> bytes:
    """A volume as nibabel writes it; ``header`` sets fields of the header."""
    values = np.asarray(array)
    image: Any = (nib.Nifti1Image if version == 1 else nib.Nifti2Image)(values, affine, dtype=values.dtype)
    for key, value in header.items():
        image.header[key] = value
    return gzip.compress(image.to_bytes(), 6, mtime=0)


def make_raw(raw: Path) -> None:
    """Four subjects as the data set has them: a CT, one mask per structure (also an empty one), and the table."""
    for number in range(4):
        folder = raw / f"s{11 * number:04d}"
        (folder / "segmentations").mkdir(parents=True)
        scan = np.add.outer(np.arange(12) * 40, np.arange(10) * 7)[..., None] + np.arange(8) - 1000 + number
        (folder / "ct.nii.gz").write_bytes(nifti(scan.astype(np.int16), descrip=b"acquired at a named place"))
        for structure, mask in _masks(number).items():
            (folder / f"segmentations/{structure}.nii.gz").write_bytes(nifti(mask))
    rows = "".join(f"s{11 * number:04d};50;m;A;x;{'test' if number else 'train'}\n" for number in range(4))
    (raw / "meta.csv").write_text("image_id;age;gender;institute;study_type;split\n" + rows)


def _masks(number: int) -> dict[str, Any]:
    masks = {name: np.zeros(SHAPE, np.uint8) for name in (*STRUCTURES, "not_a_target")}
    masks["liver"][1:7, 1 : 6 + number, 1:6] = 1
    masks["spleen"][8:11, 2:8, 2 : 4 + number] = 1
    if number:
        masks["aorta"][7, 4, :] = 1
    return masks


def perfect(
    manifest: Manifest, public: Path, private: Path, cases: list[str], card: TaskCard = CARD
) -> dict[str, bytes]:
    """The truth itself."""
    files = label_files(card)
    return {file.path(case): (private / case / file.name).read_bytes() for case in cases for file in files}


# --- bad files: id, content, code -----------------------------------------------------------------------------

GOOD = np.zeros(SHAPE, np.uint8)
GOOD[2:6, 2:6, 2:6] = 1
RIGHT = nifti(GOOD)
PLAIN = gzip.decompress(RIGHT)


def with_field(offset: int, layout: str, *values: Any) -> bytes:
    """The right volume with header bytes replaced."""
    data = bytearray(PLAIN)
    struct.pack_into(layout, data, offset, *values)
    return gzip.compress(bytes(data), mtime=0)


def changed(value: float, dtype: Any = np.float32) -> bytes:
    """The right volume but for one voxel."""
    array = GOOD.astype(dtype)
    array[0, 0, 0] = value
    return nifti(array)


def _bomb() -> bytes:
    """A right header of the right shape before 300 MB of zeros, which are 0.3 MB compressed: here cut to the limit."""
    return gzip.compress(PLAIN + bytes(60_000_000), mtime=0)


def _flipped_bit() -> bytes:
    return RIGHT[:-6] + bytes([RIGHT[-6] ^ 1]) + RIGHT[-5:]


COMPLEX = nib.Nifti1Image(GOOD.astype(np.complex64), AFFINE).to_bytes()
RGB = np.zeros(SHAPE, dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])

# (id, content, code): the file cannot be read to its end, the case is not completed.
LOST: list[tuple[str, bytes, str]] = [
    ("empty file", b"", "not_gzip"),
    ("zero bytes", bytes(5000), "not_gzip"),
    ("text", b"no lesion found\n", "not_gzip"),
    ("not compressed", PLAIN, "not_gzip"),
    ("a zip archive", b"PK\x03\x04" + bytes(100), "not_gzip"),
    ("gzip magic alone", b"\x1f\x8b", "truncated"),
    ("half of the file", RIGHT[: len(RIGHT) // 2], "truncated"),
    ("last four bytes missing", RIGHT[:-4], "truncated"),
    ("one voxel short", gzip.compress(PLAIN[:-1]), "truncated"),
    ("header only", gzip.compress(PLAIN[:348]), "truncated"),
    ("compressed text", gzip.compress(b"no lesion found\n"), "truncated"),
    ("compressed zeros", gzip.compress(bytes(5000)), "bad_header"),
    ("garbage inside", RIGHT[:60] + b"\xff" * 40 + RIGHT[100:], "corrupt"),
    ("unknown compression method", b"\x1f\x8b\x07" + RIGHT[3:], "corrupt"),
    ("a million empty gzip members", RIGHT + gzip.compress(b"") * 120_000, "corrupt"),
    ("one bit of the checksum wrong", _flipped_bit(), "bad_crc"),
    ("garbage behind", RIGHT + b"something more", "trailing_data"),
    ("a second volume behind", RIGHT + RIGHT, "trailing_data"),
    ("more voxels than the header says", gzip.compress(PLAIN + bytes(1)), "trailing_data"),
    ("60 MB of zeros behind", _bomb(), "trailing_data"),
    ("pair of files announced", with_field(344, "4s", b"ni1\0"), "bad_header"),
    ("magic is missing", with_field(344, "4s", bytes(4)), "bad_header"),
    ("no dimension", with_field(40, "<8h", 0, *SHAPE, 1, 1, 1, 1), "bad_header"),
    ("200 dimensions", with_field(40, "<8h", 200, *SHAPE, 1, 1, 1, 1), "bad_header"),
    ("negative side", with_field(40, "<8h", 3, -12, 10, 8, 1, 1, 1, 1), "bad_header"),
    ("side of length 0", with_field(40, "<8h", 3, 0, 10, 8, 1, 1, 1, 1), "bad_header"),
    ("unknown type", with_field(70, "<h", 9999), "bad_header"),
    ("data inside the header", with_field(108, "<f", 100.0), "bad_header"),
    ("data at no place", with_field(108, "<f", float("nan")), "bad_header"),
    ("infinite intercept", with_field(112, "<2f", 1.0, float("inf")), "bad_header"),
    ("2 GB of extensions", with_field(108, "<f", 2e9), "extension_too_large"),
    ("header claims 27 TB", with_field(40, "<8h", 3, 30_000, 30_000, 30_000, 1, 1, 1, 1), "shape_mismatch"),
    ("seven huge dimensions", with_field(40, "<8h", 7, *[32_767] * 7), "shape_mismatch"),
    ("a hundred time points of nothing", nifti(np.zeros((*SHAPE, 100), np.uint8)), "shape_mismatch"),
    ("complex numbers", gzip.compress(COMPLEX), "unsupported_dtype"),
    ("colours", nifti(RGB), "unsupported_dtype"),
]
# Completed, but invalid: scored, or 0 for the wrong shape.
INVALID: list[tuple[str, bytes, str]] = [
    ("axes permuted", nifti(GOOD.transpose(2, 1, 0)), "shape_mismatch"),
    ("4-D with one time point", nifti(GOOD[..., None]), "shape_mismatch"),
    ("4-D with two time points", nifti(np.stack([GOOD, GOOD], axis=-1)), "shape_mismatch"),
    ("2-D", nifti(GOOD[:, :, 2]), "shape_mismatch"),
    ("one slice missing", nifti(GOOD[:, :, 1:]), "shape_mismatch"),
    ("NaN", changed(np.nan), "unexpected_label"),
    ("infinity", changed(-np.inf), "unexpected_label"),
    ("only NaN", nifti(np.full(SHAPE, np.nan, np.float32)), "unexpected_label"),
    ("as large as double precision gets", changed(1e308, np.float64), "unexpected_label"),
    ("probabilities", changed(0.4), "non_integer"),
    ("scaled to fractions", nifti(GOOD, scl_slope=0.3, scl_inter=0.0), "non_integer"),
    (
        "scaled beyond all numbers",
        nifti(GOOD.astype(np.float64) * 1e300, scl_slope=1e30, scl_inter=0.0),
        "unexpected_label",
    ),
    ("negative label", changed(-1, np.int16), "unexpected_label"),
    ("label beyond the task's", changed(4, np.uint8), "unexpected_label"),
    ("mask of 0 and 255", nifti(GOOD * 255), "unexpected_label"),
    ("label of 64 bits", changed(2**63, np.uint64), "unexpected_label"),
]
ACCEPTED: list[tuple[str, bytes, str | None]] = [
    ("all background", nifti(np.zeros(SHAPE, np.uint8)), None),
    ("float labels", nifti(GOOD.astype(np.float64)), None),
    ("64-bit integers", nifti(GOOD.astype(np.int64)), None),
    ("big-endian", nifti(GOOD.astype(">i2")), None),
    ("NIfTI-2", nifti(GOOD, version=2), None),
    ("cut into gzip members", gzip.compress(PLAIN[:500]) + gzip.compress(PLAIN[500:]), None),
    ("zeros behind the gzip data", RIGHT + bytes(600), None),
    ("flipped, with an affine that says so", nifti(GOOD[::-1], np.diag([-1, 1, 1, 1]) @ AFFINE), "affine_mismatch"),
    ("another voxel size", nifti(GOOD, np.diag([2, 2, 2, 1])), "affine_mismatch"),
    ("singular affine", with_field(280, "<12f", *[0.0] * 12), "affine_mismatch"),
    ("no affine at all", nifti(GOOD, None), "affine_mismatch"),
    ("affine of NaN", with_field(280, "<12f", *[float("nan")] * 12), "affine_mismatch"),
]


PATH = "{case}/dseg.nii.gz"
HOSTILE: list[Hostile] = [
    *files(PATH, "malformed", LOST, INVALID),
    *files(PATH, "valid", ACCEPTED),
    Hostile("the scan handed back", copied(PATH, "ct.nii.gz"), "malformed", "unexpected_label"),
    *no_files(PATH, RIGHT, larger_than_the_card_allows=holding(RIGHT + bytes(MAX_BYTES))),
]
