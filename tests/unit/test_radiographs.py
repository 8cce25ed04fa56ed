"""Images of any depth as 8-bit pictures: plain, 16-bit PNG, DICOM in several transfer syntaxes, and damaged ones."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_file
from automedbench.datasets.forms.dicom import picture_and_size
from automedbench_rehearsal.making.scans import radiograph

VALUES = np.array([[100, 300, 500], [700, 900, 1100]], dtype=np.uint16)
# By hand: (value - 100) / 1000 · 255, rounded.
TONES = [[0, 51, 102], [153, 204, 255]]


def shown(path: Path) -> list[list[int]]:
    picture, _ = picture_and_size(path)
    tones: list[list[int]] = np.asarray(Image.open(io.BytesIO(picture.read()))).tolist()
    return tones


def test_eight_bits_are_taken_as_they_are(tmp_path: Path) -> None:
    Image.new("RGB", (5, 4), (9, 8, 7)).save(tmp_path / "a.png")
    picture, size = picture_and_size(tmp_path / "a.png")
    assert (picture.read(), size) == ((tmp_path / "a.png").read_bytes(), (5, 4))


def test_sixteen_bits(tmp_path: Path) -> None:
    """The lowest value becomes black and the highest white, whatever the depth."""
    Image.fromarray(VALUES).save(tmp_path / "a.png")
    assert picture_and_size(tmp_path / "a.png")[1] == (3, 2)
    assert shown(tmp_path / "a.png") == TONES


def test_digest_is_the_file_s(tmp_path: Path) -> None:
    """What a receipt says about the file, although the picture is made of it."""
    Image.fromarray(VALUES).save(tmp_path / "a.png")
    picture, _ = picture_and_size(tmp_path / "a.png")
    assert picture.sha256 == sha256_file(tmp_path / "a.png")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "JPEG 2000"])
@pytest.mark.parametrize("inverted", [False, True], ids=["MONOCHROME2", "MONOCHROME1"])
@pytest.mark.parametrize("name", ["a.dicom", "a.dcm", "A.DCM"])
def test_dicom(tmp_path: Path, name: str, inverted: bool, packed: bool) -> None:
    """Bright is bright, however it is stored."""
    large = np.kron(VALUES, np.ones((16, 16), dtype=np.uint16))
    (tmp_path / name).write_bytes(radiograph(large, 1, bits=12, inverted=inverted, packed=packed))
    assert picture_and_size(tmp_path / name)[1] == (48, 32)
    assert shown(tmp_path / name) == np.kron(np.array(TONES), np.ones((16, 16), dtype=int)).tolist()


@pytest.mark.parametrize("name", ["a.png", "a.dicom"])
def test_unreadable(tmp_path: Path, name: str) -> None:
    """Named when the header is read."""
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(InfrastructureError, match=rf"{name}: is n(o|ot a readable) "):
        picture_and_size(tmp_path / name)


def test_pixels_cut_off(tmp_path: Path) -> None:
    """Named when the picture is read: headers alone are read before."""
    whole = radiograph(np.kron(VALUES, np.ones((16, 16), dtype=np.uint16)), 1, bits=12, packed=True)
    (tmp_path / "a.dicom").write_bytes(whole[:-60])
    picture, size = picture_and_size(tmp_path / "a.dicom")
    assert size == (48, 32)
    with pytest.raises(InfrastructureError, match=r"a\.dicom: "):
        picture.read()
