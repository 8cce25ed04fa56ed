"""Reading NIfTI streams: equal to nibabel where a file is sound, a stable code where it is not."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from toys.segmentation import AFFINE, GOOD, LOST, PLAIN, RIGHT, nifti

from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.untrusted.nifti import BLOCK_VOXELS, VolumeHeader, open_trusted, open_volume

LIMIT = 10_000_000
SHAPE = (5, 4, 3)
RAMP = np.arange(60).reshape(SHAPE)
NIBABEL: Any = nib


def read(data: bytes, folder: Path, **options: Any) -> Any:
    """Header and concatenated blocks of a file with this content."""
    path = folder / "volume.nii.gz"
    path.write_bytes(data)
    with open_volume(path, max_bytes=LIMIT) as reader:
        return reader.header, np.concatenate(list(reader.blocks(**options)))


def with_codes(data: bytes, qform: int, sform: int) -> bytes:
    """The same volume with other codes of its two transforms, which nibabel would put right as it writes."""
    plain = bytearray(gzip.decompress(data))
    order = "<" if plain[0] else ">"
    place, kind = (252, "2h") if struct.unpack_from(f"{order}i", plain)[0] == 348 else (344, "2i")
    struct.pack_into(order + kind, plain, place, qform, sform)
    return gzip.compress(bytes(plain), 6, mtime=0)


# (id, file): every stored type, byte order, version, number of axes, with and without scaling.
SOUND: list[Any] = [
    *[pytest.param(nifti(RAMP.astype(kind)), id=kind) for kind in ("u1", "i1", "<i2", ">i2", "<u2", "<i4", ">u4")],
    *[pytest.param(nifti(RAMP.astype(kind)), id=kind) for kind in ("<i8", ">u8", "<f4", ">f4", "<f8", ">f8")],
    pytest.param(nifti(RAMP.astype("<i2"), version=2), id="NIfTI-2"),
    pytest.param(nifti(RAMP.astype(">f4"), version=2), id="NIfTI-2, big-endian"),
    pytest.param(nifti(RAMP.astype("<i2"), scl_slope=0.5, scl_inter=-3.0), id="scaled"),
    pytest.param(nifti(RAMP.astype("<i2"), scl_slope=0.0, scl_inter=7.0), id="slope 0 means unscaled"),
    pytest.param(nifti(RAMP.astype("<i2"), scl_slope=float("nan"), scl_inter=7.0), id="no slope means unscaled"),
    pytest.param(with_codes(nifti(RAMP.astype("<i2")), 1, 0), id="qform alone"),
    pytest.param(with_codes(nifti(RAMP.astype(">i2"), version=2), 1, 0), id="NIfTI-2, qform alone"),
    pytest.param(with_codes(nifti(RAMP.astype("<i2")), 0, 0), id="no affine: of shape and spacing"),
    pytest.param(with_codes(nifti(RAMP.astype("<i2")), 1, 1), id="qform and sform"),
    pytest.param(nifti(RAMP.astype("u1")[..., 0]), id="2-D"),
    pytest.param(nifti(np.stack([RAMP, RAMP + 60], axis=-1).astype("u1")), id="4-D"),
    pytest.param(nifti(np.zeros((70, 80, 90), "u1")), id="more than one block"),
    pytest.param(gzip.compress(PLAIN[:400]) + gzip.compress(PLAIN[400:]), id="two gzip members"),
    pytest.param(RIGHT + bytes(1000), id="padded with zeros"),
]


_NIFTI_2 = {(540).to_bytes(4, "little"), (540).to_bytes(4, "big")}


@pytest.mark.parametrize("data", SOUND)
def test_equal_to_nibabel(data: bytes, tmp_path: Path) -> None:
    """Shape, type, affine, spacing and every value; values in file order."""
    plain = gzip.decompress(data)
    kind = NIBABEL.Nifti2Image if plain[:4] in _NIFTI_2 else NIBABEL.Nifti1Image
    image = kind.from_bytes(plain)
    header, values = read(data, tmp_path)
    assert header.shape == image.shape
    assert header.dtype == image.get_data_dtype()
    np.testing.assert_array_equal(header.affine, image.affine)
    np.testing.assert_allclose(header.zooms, image.header.get_zooms())
    np.testing.assert_array_equal(values, np.asanyarray(image.dataobj).ravel("F"))
    assert values.dtype.isnative


def test_usual_headers_need_no_nibabel(tmp_path: Path) -> None:
    """Its start costs more than scoring a case: headers with an sform and a usual type are read without it."""
    code = (
        "import pathlib, sys\n"
        "from automedbench.base.untrusted.nifti import open_volume\n"
        "with open_volume(pathlib.Path(sys.argv[1]), max_bytes=10**6) as reader:\n"
        "    list(reader.blocks())\n"
        "print('nibabel' in sys.modules)"
    )
    told = []
    for number, data in enumerate((RIGHT, nifti(RAMP.astype(">f4"), version=2), with_codes(RIGHT, 1, 0))):
        path = tmp_path / f"{number}.nii.gz"
        path.write_bytes(data)
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        told.append(done.stdout.strip())
    assert told == ["False", "False", "True"]  # the last is the control: without an sform it is asked


def test_blocks_and_slices(tmp_path: Path) -> None:
    """Blocks have the asked length but for the last; slices are (x, y) per z; stored values are not scaled."""
    path = tmp_path / "volume.nii.gz"
    path.write_bytes(nifti(RAMP.astype("<i2"), scl_slope=2.0, scl_inter=1.0))
    with open_volume(path, max_bytes=LIMIT) as reader:
        assert [block.size for block in reader.blocks(25)] == [25, 25, 10]
    with open_volume(path, max_bytes=LIMIT) as reader:
        np.testing.assert_array_equal(np.stack(list(reader.slices()), axis=-1), RAMP * 2.0 + 1)
    with open_volume(path, max_bytes=LIMIT) as reader:
        assert reader.header.scaled
        np.testing.assert_array_equal(next(iter(reader.blocks(60, stored=True))), RAMP.ravel("F"))
    assert BLOCK_VOXELS == 2**18


def test_slices_of_4d(tmp_path: Path) -> None:
    """Length-1 axes beyond the third do no harm, others are refused."""
    path = tmp_path / "volume.nii.gz"
    path.write_bytes(nifti(RAMP.astype("u1")[..., None]))
    with open_volume(path, max_bytes=LIMIT) as reader:
        assert len(list(reader.slices())) == 3
    path.write_bytes(nifti(np.zeros((2, 2, 2, 2), "u1")))
    with open_volume(path, max_bytes=LIMIT) as reader, pytest.raises(InvalidSubmission) as caught:
        list(reader.slices())
    assert caught.value.code == "not_3d"


def test_a_volume_is_read_once(tmp_path: Path) -> None:
    """A second pass would start in the middle of nowhere."""
    path = tmp_path / "volume.nii.gz"
    path.write_bytes(RIGHT)
    with open_volume(path, max_bytes=LIMIT) as reader:
        list(reader.blocks())
        with pytest.raises(ValueError, match="only once"):
            list(reader.blocks())


def with_extensions(content: bytes, *, flag: int = 1, order: str = "<", version: int = 1) -> bytes:
    """A volume with these bytes between its header and its data."""
    image_class = NIBABEL.Nifti1Image if version == 1 else NIBABEL.Nifti2Image
    values = RAMP.astype(f"{order}i2")
    data = image_class(values, AFFINE, header=image_class.header_class(endianness=order), dtype=values.dtype).to_bytes()
    size, place, layout = (348, 108, "f") if version == 1 else (540, 168, "q")
    head = bytearray(data[:size] + bytes([flag, 0, 0, 0]) + content)
    struct.pack_into(f"{order}{layout}", head, place, size + 4 + len(content))
    return gzip.compress(bytes(head) + data[size + 4 :], mtime=0)


def extension(size: int, code: int = 6, content: bytes = bytes(8), order: str = "<") -> bytes:
    """One header extension: its size as stated, its code, its content."""
    return struct.pack(f"{order}2i", size, code) + content


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_extensions(extension(16)), id="one"),
        pytest.param(with_extensions(extension(16) * 1000), id="a thousand"),
        pytest.param(with_extensions(extension(32, 4, b"a" * 24) + extension(16)), id="two sizes"),
        pytest.param(with_extensions(extension(16, order=">"), order=">"), id="big-endian"),
        pytest.param(with_extensions(extension(16, order=">"), order=">", version=2), id="NIfTI-2, big-endian"),
        pytest.param(with_extensions(extension(16) + bytes(8)), id="padding behind"),
        pytest.param(with_extensions(b"", flag=1), id="announced, but there is none"),
        pytest.param(with_extensions(extension(0), flag=0), id="not announced: nobody looks"),
    ],
)
def test_extensions(data: bytes, tmp_path: Path) -> None:
    """What the format allows is skipped, as nibabel does."""
    path = tmp_path / "extended.nii.gz"
    path.write_bytes(data)
    expected = np.asanyarray(NIBABEL.load(path).dataobj)
    np.testing.assert_array_equal(read(data, tmp_path)[1], expected.ravel("F"))
    np.testing.assert_array_equal(expected, RAMP)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(extension(0), id="no size"),
        pytest.param(extension(5), id="smaller than its own header"),
        pytest.param(extension(-16), id="negative"),
        pytest.param(extension(2**31 - 16), id="2 GB"),
        pytest.param(extension(32), id="reaches into the data"),
        pytest.param(extension(24, 6, bytes(16)) + bytes(8), id="no multiple of 16"),
        pytest.param(extension(16) + extension(0), id="second one without size"),
        pytest.param(extension(16, order=">"), id="other byte order than the header"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_broken_extensions(content: bytes, version: int, tmp_path: Path) -> None:
    """Sizes that lead nowhere: nibabel raises errors (or warns), so it is no volume that anybody could open."""
    data = with_extensions(content, version=version)
    with pytest.raises(InvalidSubmission) as caught:
        read(data, tmp_path)
    assert caught.value.code == "bad_header"
    path = tmp_path / "extended.nii.gz"
    path.write_bytes(data)
    with pytest.raises((ValueError, UserWarning, NIBABEL.spatialimages.HeaderDataError)):
        NIBABEL.load(path)


def with_gzip_header(flags: int, *fields: bytes, method: int = 8, checksum: bool = False) -> bytes:
    """The right volume behind a gzip header (RFC 1952) with these fields, with its checksum if asked for."""
    header = b"\x1f\x8b" + bytes([method, flags]) + bytes(6) + b"".join(fields)
    if checksum:
        header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    return header + RIGHT[10:]


EXTRA = (65_000).to_bytes(2, "little") + b"\xff" * 65_000


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(with_gzip_header(0), None, id="plain"),
        pytest.param(with_gzip_header(1), None, id="said to be text"),
        pytest.param(with_gzip_header(0x04, bytes(2)), None, id="empty extra field"),
        pytest.param(with_gzip_header(0x18, b"\0", b"\0"), None, id="empty name and comment"),
        pytest.param(with_gzip_header(0x02, checksum=True), None, id="header checksum"),
        pytest.param(with_gzip_header(0x02, b"\0\0"), "bad_crc", id="wrong header checksum"),
        pytest.param(with_gzip_header(0, method=7), "corrupt", id="unknown method"),
        pytest.param(with_gzip_header(0x08, b"n" * 100)[:100], "truncated", id="ends in the name"),
        pytest.param(with_gzip_header(0x04, EXTRA)[:5_000], "truncated", id="ends in the extra field"),
        pytest.param(RIGHT[:9], "truncated", id="ends in the header"),
    ],
)
def test_gzip_headers(data: bytes, code: str | None, tmp_path: Path) -> None:
    if code is None:
        assert read(data, tmp_path)[1].size == np.prod(GOOD.shape)
        return
    with pytest.raises(InvalidSubmission) as caught:
        read(data, tmp_path)
    assert caught.value.code == code


def test_many_gzip_members(tmp_path: Path) -> None:
    """bgzip and pigz write such files."""
    plain = gzip.decompress(nifti(np.zeros((100, 100, 20), np.int16)))
    members = [gzip.compress(plain[start : start + 256], 1) for start in range(0, len(plain), 256)]
    assert len(members) > 1500
    assert read(b"".join(members), tmp_path)[1].size == 100 * 100 * 20


UNREADABLE = [each for each in LOST if each[2] != "shape_mismatch"]


@pytest.mark.parametrize(("data", "code"), [pytest.param(data, code, id=name) for name, data, code in UNREADABLE])
def test_damaged(data: bytes, code: str, tmp_path: Path) -> None:
    """Every kind of damage has its code."""
    with pytest.raises(InvalidSubmission) as caught:
        read(data, tmp_path)
    assert caught.value.code == code
    assert str(caught.value).startswith(("is ", "has ", "holds ", "ends ", "says ", "stores "))


def test_every_cut(tmp_path: Path) -> None:
    """Cut anywhere, a file is never taken for whole."""
    for length in range(2, len(RIGHT)):
        with pytest.raises(InvalidSubmission):
            read(RIGHT[:length], tmp_path)


def test_places_that_are_no_files(tmp_path: Path) -> None:
    """Links are not followed, pipes not waited for, and the compressed size is limited before anything is read."""
    (tmp_path / "right").write_bytes(RIGHT)
    (tmp_path / "link").symlink_to(tmp_path / "right")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    codes = {}
    for name in ("link", "folder", "pipe", "absent"):
        with pytest.raises(InvalidSubmission) as caught, open_volume(tmp_path / name, max_bytes=LIMIT):
            pass
        codes[name] = caught.value.code
    assert codes == {"link": "not_a_file", "folder": "not_a_file", "pipe": "not_a_file", "absent": "not_found"}
    with pytest.raises(InvalidSubmission) as caught, open_volume(tmp_path / "right", max_bytes=len(RIGHT) - 1):
        pass
    assert caught.value.code == "too_large"


def test_a_lying_header_costs_nothing(tmp_path: Path) -> None:
    """The header of a 27 TB volume is read; its data is asked for block by block and ends at once."""
    data = next(data for name, data, _ in LOST if name == "header claims 27 TB")
    path = tmp_path / "volume.nii.gz"
    path.write_bytes(data)
    with open_volume(path, max_bytes=LIMIT) as reader:
        assert reader.header.n_voxels == 30_000**3
        with pytest.raises(InvalidSubmission) as caught:
            next(iter(reader.blocks()))
    assert caught.value.code == "truncated"


def read_trusted(path: Path) -> tuple[VolumeHeader, Any]:
    with open_trusted(path) as reader:
        values = np.concatenate(list(reader.blocks()))
        return reader.header, values.reshape(reader.header.shape, order="F")


def test_trusted(tmp_path: Path) -> None:
    """Our own files: links and plain .nii are fine, faults are the machine's and name the file."""
    plain = tmp_path / "plain.nii"
    plain.write_bytes(PLAIN)
    (tmp_path / "link.nii.gz").symlink_to(plain)
    header, values = read_trusted(tmp_path / "link.nii.gz")
    assert header.shape == values.shape
    np.testing.assert_array_equal(header.affine, AFFINE)
    assert values[2, 2, 2] == 1
    plain.write_bytes(PLAIN[:-1])
    for path in (plain, tmp_path / "absent.nii.gz"):
        with pytest.raises(InfrastructureError, match=path.name):
            read_trusted(path)


def test_reading_two_at_once(tmp_path: Path) -> None:
    """A fault of the agent's file inside a block that reads ours stays the agent's."""
    (tmp_path / "ours").write_bytes(RIGHT)
    (tmp_path / "theirs").write_bytes(RIGHT[:-1])
    with (
        pytest.raises(InvalidSubmission),
        open_trusted(tmp_path / "ours"),
        open_volume(tmp_path / "theirs", max_bytes=LIMIT) as reader,
    ):
        list(reader.blocks())
