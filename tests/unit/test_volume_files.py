"""Opening volumes of data sets: MetaImage with its affine by hand, and files that are no volumes."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from toys.segmentation import nifti

from automedbench.base.errors import InfrastructureError
from automedbench.datasets.forms.volumes import SMALLEST, copy_volume, find_volume_problem, open_source

NIBABEL: Any = nibabel
VALUES = np.arange(12, dtype="<i2") - 5  # in file order, x fastest
HEADER = """ObjectType = Image
NDims = 3
BinaryData = True
BinaryDataByteOrderMSB = False
CompressedData = {compressed}
{size}TransformMatrix = 0 1 0 -1 0 0 0 0 1
Offset = 10 20 30
ElementSpacing = 2 3 4
DimSize = 2 3 2
{channels}ElementType = {kind}
ElementDataFile = LOCAL
"""
# In LPS the first axis runs along +y in steps of 2 mm, the second along -x in steps of 3, the third along +z in
# steps of 4, from (10, 20, 30). RAS turns the signs of x and y.
AFFINE = [[0, 3, 0, -10], [-2, 0, 0, -20], [0, 0, 4, 30], [0, 0, 0, 1]]


def metaimage(data: bytes, *, compressed: bool = False, kind: str = "MET_SHORT", channels: int = 1) -> bytes:
    """A MetaImage file written by hand (MetaIO documentation)."""
    packed = zlib.compress(data) if compressed else data
    head = HEADER.format(
        compressed=compressed,
        size=f"CompressedDataSize = {len(packed)}\n" if compressed else "",
        kind=kind,
        channels=f"ElementNumberOfChannels = {channels}\n" if channels > 1 else "",
    )
    return head.encode() + packed


@pytest.mark.parametrize("compressed", [False, True])
def test_metaimage(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "image.mha"
    path.write_bytes(metaimage(VALUES.tobytes(), compressed=compressed))
    with open_source(path) as reader:
        assert reader.header.shape == (2, 3, 2)
        assert reader.header.dtype == np.int16
        np.testing.assert_allclose(reader.header.affine, AFFINE, atol=1e-12)
        assert reader.header.zooms == (2, 3, 4)
        blocks = list(reader.blocks(5))
    assert [block.size for block in blocks] == [5, 5, 2]
    np.testing.assert_array_equal(np.concatenate(blocks), VALUES)


def test_metaimage_becomes_nifti(tmp_path: Path) -> None:
    """No voxel moves: nibabel reads the same numbers at the same indices, and the affine is the one by hand."""
    (tmp_path / "image.mha").write_bytes(metaimage(VALUES.tobytes()))
    copy_volume(tmp_path / "image.mha", tmp_path / "mri.nii.gz")
    image = NIBABEL.load(tmp_path / "mri.nii.gz")
    np.testing.assert_array_equal(np.asarray(image.dataobj), VALUES.reshape((2, 3, 2), order="F"))
    np.testing.assert_allclose(image.affine, AFFINE, atol=1e-5)
    assert image.header.get_zooms() == (2, 3, 4)
    assert (int(image.header["qform_code"]), int(image.header["sform_code"])) == (1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "cannot be read", id="empty"),
        pytest.param(b"<html>403</html>", "cannot be read", id="page"),
        pytest.param(metaimage(VALUES.tobytes(), channels=3), "3 values a voxel", id="colours"),
    ],
)
def test_bad_metaimage(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "image.mha"
    path.write_bytes(content)
    with pytest.raises(InfrastructureError, match=message) as caught, open_source(path) as reader:
        list(reader.blocks())
    assert "image.mha" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_half_a_metaimage(tmp_path: Path) -> None:
    """A header that promises more than is there."""
    path = tmp_path / "image.mha"
    path.write_bytes(metaimage(VALUES.tobytes(), compressed=True)[:-8])
    with open_source(path) as reader, pytest.raises(InfrastructureError, match="cannot be read"):
        list(reader.blocks())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(None, "does not exist", id="absent"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS", id="pointer"),
        pytest.param(b"", "0 bytes", id="empty"),
        pytest.param(b"<!DOCTYPE html>", "15 bytes", id="page"),
        pytest.param(nifti(np.zeros((2, 2, 2), np.uint8)), None, id="a small volume"),
        pytest.param(metaimage(VALUES.tobytes()), None, id="a small MetaImage"),
        pytest.param(bytes(SMALLEST), None, id="large: seen when it is read"),
    ],
)
def test_what_cannot_be_a_volume(content: bytes | None, reason: str | None, tmp_path: Path) -> None:
    path = tmp_path / "segmentation.nii.gz"
    if content is not None:
        path.write_bytes(content)
    found = find_volume_problem(path)
    assert found is None if reason is None else reason in (found or "")
