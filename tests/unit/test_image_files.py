"""Folders of grey images: which files, which patient, which values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from toys import with_options
from toys.enhancement import make_card

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.datasets.readers import slices

GREY = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20


card = functools.partial(with_options, make_card())


def save(path: Path, array: Any = GREY, mode: str | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def only(raw: Path, **options: Any) -> np.ndarray:
    """Pixels of the only image."""
    (found,) = slices.image_files(raw, card(**({"images": ["**/*.*"]} | options)))
    return found.pixels()


def test_other_values_than_the_window_is_for(tmp_path: Path) -> None:
    """16 bits would become white, shares of 1 black, signed ones half black; 8 bits in a 16-bit file are themselves."""
    deep = (GREY.astype(np.uint16) * 257, GREY.astype(np.uint16) * 16, GREY.astype(np.int32) - 100)
    for pixels in (*deep, (GREY / 255).astype(np.float32), np.where(GREY, GREY, np.nan).astype(np.float32)):
        path = save(tmp_path / f"deep.{'png' if pixels.dtype == np.uint16 else 'tif'}", pixels)
        with pytest.raises(InfrastructureError, match=r"deep.*the card's window is 0 to 255 \(8 bits\)"):
            only(tmp_path, window=(0, 255))
        path.unlink()
    save(tmp_path / "deep.png", GREY.astype(np.uint16))
    np.testing.assert_allclose(only(tmp_path, window=(0, 255)), GREY / 255, atol=1e-6)


# --- which files ----------------------------------------------------------------------------------------------


def test_patterns_take_files_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("images/3.png", "images/1.png", "images_002/images/2.png", "other/4.png", "images/notes.txt"):
        save(tmp_path / name) if name.endswith("png") else (tmp_path / name).write_text("x")
    found = slices.image_files(tmp_path, card(images=["images/*.png", "*/images/*.png", "images/[0-9]*"]))
    assert [item.id for item in found] == ["1", "3", "2"]
    assert found[0].path == tmp_path / "images/1.png"


def test_reading_the_list_opens_no_image(tmp_path: Path) -> None:
    """A data set of 100 000 images is listed, and only the chosen ones are decoded."""
    (tmp_path / "broken.png").write_bytes(b"no image")
    (found,) = slices.image_files(tmp_path, card(images=["*.png"]))
    with pytest.raises(InfrastructureError, match="not a readable image"):
        found.pixels()


def test_patients(tmp_path: Path) -> None:
    for name in ("00000001_000.png", "00000001_001.png", "00000002_000.png"):
        save(tmp_path / name)
    found = slices.image_files(tmp_path, card(images=["*.png"], subject=r"^(\d{8})_"))
    assert [(item.id, item.subject) for item in found] == [
        ("00000001_000", "00000001"),
        ("00000001_001", "00000001"),
        ("00000002_000", "00000002"),
    ]
    assert [item.subject for item in slices.image_files(tmp_path, card(images=["*.png"]))] == [
        item.id for item in found
    ]


def test_identity_by_path(tmp_path: Path) -> None:
    """Slices are numbered within the folder of a series, so that a name alone is not unique."""
    for name in ("000001_01_01/103.png", "000002_01_01/103.png"):
        save(tmp_path / name)
    options = {"images": ["*/*.png"], "subject": r"^(\d{6})_"}
    found = slices.image_files(tmp_path, card(identity="path", **options))
    assert [(item.id, item.subject) for item in found] == [
        ("000001_01_01/103", "000001"),
        ("000002_01_01/103", "000002"),
    ]
    with pytest.raises(InfrastructureError, match="identity: path"):
        slices.image_files(tmp_path, card(images=["*/*.png"]))


def test_a_name_without_patient(tmp_path: Path) -> None:
    save(tmp_path / "odd.png")
    with pytest.raises(InfrastructureError, match="finds no patient"):
        slices.image_files(tmp_path, card(images=["*.png"], subject=r"^(\d{8})_"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "images: is required", id="no patterns"),
        pytest.param({"images": []}, "images", id="empty patterns"),
        pytest.param({"images": ["*"], "subject": "("}, "regular expression", id="no pattern at all"),
        pytest.param({"images": ["*"], "window": [5, 5]}, "rising", id="empty window"),
        pytest.param({"images": ["*"], "identity": "uid"}, "identity", id="unknown identity"),
        pytest.param({"imags": ["*"]}, "did you mean 'images'", id="misspelt"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        slices.image_files(tmp_path, card(**options))


# --- which values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda raw: save(raw / "a.png"), id="PNG"),
        pytest.param(lambda raw: save(raw / "a.tif"), id="TIFF"),
        pytest.param(lambda raw: save(raw / "a.png", mode="RGBA"), id="grey stored as RGBA"),
        pytest.param(lambda raw: save(raw / "a.png", mode="P"), id="palette"),
        pytest.param(lambda raw: save(raw / "a.png", GREY.astype(np.uint16)), id="16-bit PNG"),
        pytest.param(lambda raw: save(raw / "a.tif", GREY.astype(np.float32)), id="float TIFF"),
        pytest.param(lambda raw: save(raw / "a.tif", GREY.astype(np.int32)), id="32-bit TIFF"),
    ],
)
def test_stored_values(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """The same numbers whatever the storage, as float32."""
    write(tmp_path)
    found = only(tmp_path)
    assert found.dtype == np.float32
    assert found.tolist() == GREY.tolist()


def test_jpeg_is_read(tmp_path: Path) -> None:
    """Lossy, so within a few grey values on a flat image."""
    save(tmp_path / "a.jpg", np.full((16, 16), 77, np.uint8))
    np.testing.assert_allclose(only(tmp_path), 77, atol=2)


def test_offset_and_window(tmp_path: Path) -> None:
    """DeepLesion: HU = stored - 32768; a window of -1000..1000 HU becomes 0..1: -2000 -> 0, -500 -> 0.25, 5000 -> 1."""
    save(tmp_path / "a.png", np.array([[30768, 32268, 32768, 37768]], np.uint16))
    assert only(tmp_path, offset=-32768).tolist() == [[-2000, -500, 0, 5000]]
    assert only(tmp_path, offset=-32768, window=[-1000, 1000]).tolist() == [[0, 0.25, 0.5, 1]]


def test_size(tmp_path: Path) -> None:
    """Height first. A constant stays constant; an image of the right size is untouched."""
    save(tmp_path / "a.png", np.full((40, 20), 51, np.uint8))
    found = only(tmp_path, window=[0, 255], size=[10, 30])
    assert found.shape == (10, 30)
    np.testing.assert_allclose(found, 0.2, atol=1e-6)
    assert only(tmp_path, size=[40, 20]).tolist() == [[51.0] * 20] * 40


def test_resizing_stays_in_the_window(tmp_path: Path) -> None:
    step = np.zeros((32, 32), np.uint8)
    step[:, 15:] = 255
    save(tmp_path / "a.png", step)
    found = only(tmp_path, window=[0, 255], size=[16, 16])
    assert (found.min(), found.max()) == (0, 1)
    assert only(tmp_path, size=[16, 16]).max() > 255


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + bytes(30)], ids=["empty", "cut", "zeros"])
def test_unreadable(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(InfrastructureError, match=r"a\.png: is not a readable image"):
        only(tmp_path)


def test_several_frames(tmp_path: Path) -> None:
    frames = [Image.fromarray(GREY), Image.fromarray(GREY)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    with pytest.raises(InfrastructureError, match="several frames"):
        only(tmp_path)


def test_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.png")
    monkeypatch.setattr(slices, "MAX_PIXELS", 11)
    with pytest.raises(InfrastructureError, match="4×3 pixels"):
        only(tmp_path)
