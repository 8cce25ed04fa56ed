"""Reading NIfTI streams: equal to nibabel where a file is sound, a stable code where it is not."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from toys.segmentation import AFFINE, LOST, PLAIN, RIGHT, nifti

from automedbench.errors import InfrastructureError, InvalidSubmission
from automedbench.untrusted.nifti import BLOCK_VOXELS, open_trusted, open_volume, read_trusted

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


# (id, file): every stored type, byte order, version, number of axes, with and without scaling.
SOUND: list[Any] = [
    *[pytest.param(nifti(RAMP.astype(kind)), id=kind) for kind in ("u1", "i1", "<i2", ">i2", "<u2", "<i4", ">u4")],
    *[pytest.param(nifti(RAMP.astype(kind)), id=kind) for kind in ("<i8", ">u8", "<f4", ">f4", "<f8", ">f8")],
    pytest.param(nifti(RAMP.astype("<i2"), version=2), id="NIfTI-2"),
    pytest.param(nifti(RAMP.astype(">f4"), version=2), id="NIfTI-2, big-endian"),
    pytest.param(nifti(RAMP.astype("<i2"), scl_slope=0.5, scl_inter=-3.0), id="scaled"),
    pytest.param(nifti(RAMP.astype("<i2"), scl_slope=0.0, scl_inter=7.0), id="slope 0 means unscaled"),
    pytest.param(nifti(RAMP.astype("u1")[..., 0]), id="2-D"),
    pytest.param(nifti(np.stack([RAMP, RAMP + 60], axis=-1).astype("u1")), id="4-D"),
    pytest.param(nifti(np.zeros((70, 80, 90), "u1")), id="more than one block"),
    pytest.param(gzip.compress(PLAIN[:400]) + gzip.compress(PLAIN[400:]), id="two gzip members"),
    pytest.param(RIGHT + bytes(1000), id="padded with zeros"),
]


_NIFTI_2 = {(540).to_bytes(4, "little"), (540).to_bytes(4, "big")}


@pytest.mark.parametrize("data", SOUND)
@pytest.mark.parametrize("backend", ["isal", "zlib"])
def test_equal_to_nibabel(data: bytes, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shape, type, affine, spacing and every value; values in file order."""
    if backend == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
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


UNREADABLE = [each for each in LOST if each[2] != "shape_mismatch"]


@pytest.mark.parametrize("backend", ["isal", "zlib"])
@pytest.mark.parametrize(("data", "code"), [pytest.param(data, code, id=name) for name, data, code in UNREADABLE])
def test_damaged(data: bytes, code: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of damage has its code, whichever library inflates."""
    if backend == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
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
