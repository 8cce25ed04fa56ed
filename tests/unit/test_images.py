"""Pictures for agents: pixels kept, metadata gone, the same bytes every time."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from automedbench.base.errors import InfrastructureError
from automedbench.datasets.forms.dicom import picture_and_size
from automedbench.datasets.forms.pictures import (
    Picture,
    compression,
    load_array_picture,
    picture_file,
    picture_size,
    radiograph,
    rgb_jpeg,
    rgb_png,
    take_apart,
    tone_mapped,
)
from automedbench.datasets.leaks.headers import inspect_headers

SECRET = b"person1_virus_6 glioma"


def without_metadata(data: bytes) -> bytes | None:
    jpeg = take_apart(data)
    return None if jpeg is None else jpeg.without_metadata()


def picture(mode: str = "RGB", size: tuple[int, int] = (37, 21)) -> Image.Image:
    """Smooth colours with some noise."""
    y, x = np.mgrid[: size[1], : size[0]]
    noise = np.random.default_rng(5).integers(0, 40, (size[1], size[0], 3))
    pixels = np.stack([5 * x, 9 * y, 3 * (x + y)], axis=-1) % 200 + noise
    return Image.fromarray(pixels.astype(np.uint8), "RGB" if mode == "RGB" else None).convert(mode)


def exif(orientation: int = 1) -> bytes:
    """EXIF with a secret."""
    record = Image.Exif()
    record[0x010E] = SECRET.decode()
    record[0x0112] = orientation
    return record.tobytes()


def decoded(data: bytes) -> Any:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def write(path: Path, image: Image.Image, **options: Any) -> bytes:
    image.save(path, "JPEG", **options)
    return path.read_bytes()


JPEGS = [
    # id, options of the encoder
    ("plain", {}),
    ("comment", {"comment": SECRET}),
    ("EXIF", {"exif": exif()}),
    ("colour profile", {"icc_profile": SECRET}),
    ("resolution", {"dpi": (311, 313)}),
    ("progressive", {"progressive": True, "comment": SECRET}),
    ("restart markers", {"restart_marker_blocks": 1, "exif": exif()}),
    ("no subsampling", {"subsampling": 0, "quality": 100, "comment": SECRET}),
]


@pytest.mark.parametrize("options", [row[1] for row in JPEGS], ids=[row[0] for row in JPEGS])
def test_colour_jpeg_keeps_its_pixels(tmp_path: Path, options: dict[str, Any]) -> None:
    """Every decoded value is the same; nothing of the metadata is left, not even behind the end."""
    path = tmp_path / "a.jpg"
    data = write(path, picture(), **options)
    path.write_bytes(data + SECRET)
    clean = rgb_jpeg(picture_file(path))
    assert (decoded(clean) == decoded(data)).all()
    assert SECRET not in clean
    with Image.open(io.BytesIO(clean)) as image:
        assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density", "progressive", "progression"}
        assert image.info["jfif_density"] == (1, 1)
    assert len(clean) <= len(data)
    assert clean == rgb_jpeg(picture_file(path))


def named_rgb(app0: bytes) -> bytes:
    """A JPEG of red, green and blue that says so by the names of its components alone, with an APP0 segment."""
    buffer = io.BytesIO()
    picture().save(buffer, "JPEG", quality=98, keep_rgb=True)
    jpeg = take_apart(buffer.getvalue())
    assert jpeg is not None
    kept = [(0xE0, (len(app0) + 2).to_bytes(2, "big") + app0)]
    kept += [(marker, body) for marker, body in jpeg.segments if marker not in (0xE0, 0xEE)]
    return b"\xff\xd8" + b"".join(bytes([0xFF, marker]) + body for marker, body in kept) + b"\xff\xd9"


def test_a_segment_that_is_no_jfif_does_not_become_one(tmp_path: Path) -> None:
    """Too short to be one, decoders pass over it and go by the components' names (R, G, B); made whole, it would say
    YCbCr, and the colours would change."""
    data = named_rgb(b"JFIF\0\x01\x01")
    (tmp_path / "a.jpg").write_bytes(data)
    jpeg = take_apart(data)
    assert jpeg is not None
    assert np.abs(decoded(jpeg.without_metadata()).astype(int) - decoded(data)).mean() > 20
    clean = rgb_jpeg(picture_file(tmp_path / "a.jpg"))
    assert np.abs(decoded(clean).astype(int) - decoded(data)).mean() < 4


def test_metadata_between_scans_is_left_out(tmp_path: Path) -> None:
    """Both are decoded and compared; the result is the same as before the pixels."""
    plain = write(tmp_path / "a.jpg", picture())
    (tmp_path / "a.jpg").write_bytes(plain[:-2] + b"\xff\xfe\x00\x04ab" + plain[-2:])
    jpeg = take_apart((tmp_path / "a.jpg").read_bytes())
    assert jpeg is not None
    assert rgb_jpeg(picture_file(tmp_path / "a.jpg")) == without_metadata(plain)


def test_held_pictures_are_read_once(tmp_path: Path) -> None:
    """Whatever is made of them; the digest stays the one of the file upstream, also where the picture is converted."""
    reads: list[int] = []

    def load() -> bytes:
        reads.append(1)
        return write(tmp_path / "a.jpg", picture())

    held = Picture("a.jpg", load).held()
    assert (picture_size(rgb_png(held)), picture_size(rgb_jpeg(held)), len(held.sha256)) == ((37, 21), (37, 21), 64)
    assert len(reads) == 1
    Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20)).save(tmp_path / "deep.png")
    deep, _ = picture_and_size(tmp_path / "deep.png")
    assert deep.held().sha256 == deep.sha256 == picture_file(tmp_path / "deep.png").sha256


def test_metadata_is_gone_without_another_encoding(tmp_path: Path) -> None:
    """The same picture with and without metadata gives the same bytes."""
    write(tmp_path / "a.jpg", picture())
    write(tmp_path / "b.jpg", picture(), exif=exif(), comment=SECRET, icc_profile=SECRET, dpi=(100, 100))
    assert rgb_jpeg(picture_file(tmp_path / "a.jpg")) == rgb_jpeg(picture_file(tmp_path / "b.jpg"))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_jpegs_are_encoded_anew(tmp_path: Path, mode: str) -> None:
    """Grey becomes three equal channels; size stays; values change little at quality 95."""
    path = tmp_path / "a.jpg"
    data = write(path, picture(mode), quality=98, comment=SECRET)
    clean = rgb_jpeg(picture_file(path))
    with Image.open(io.BytesIO(clean)) as image:
        assert (image.mode, image.size, image.layers) == ("RGB", (37, 21), 3)
        assert [layer[1:3] for layer in image.layer] == [(1, 1)] * 3  # 4:4:4
    assert np.abs(decoded(clean).astype(int) - decoded(data)).mean() < 4
    assert mode != "L" or (np.ptp(decoded(clean), axis=2) == 0).all()
    assert SECRET not in clean


def test_png_becomes_jpeg(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    picture().save(path)
    assert picture_size(rgb_jpeg(picture_file(path))) == picture_size(rgb_png(picture_file(path))) == (37, 21)
    assert (decoded(rgb_png(picture_file(path))) == np.asarray(picture())).all()


def test_picture_that_is_stored_turned(tmp_path: Path) -> None:
    """EXIF orientation 6: to be shown a quarter to the right. Without EXIF that must be in the pixels."""
    path = tmp_path / "a.jpg"
    write(path, picture(), exif=exif(orientation=6), quality=98)
    clean = decoded(rgb_jpeg(picture_file(path)))
    assert clean.shape == (37, 21, 3)
    assert np.abs(clean.astype(int) - np.rot90(np.asarray(picture()), -1)).mean() < 10


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xd8", id="start only"),
        pytest.param(b"\xff\xd8\xff\xd9", id="nothing between"),
        pytest.param(b"\x89PNG\r\n\x1a\n", id="a PNG's beginning"),
        pytest.param(b"not an image", id="text"),
    ],
)
def test_unreadable(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(data)
    for convert in (rgb_jpeg, rgb_png):
        with pytest.raises(InfrastructureError, match="is not a readable image") as caught:
            convert(picture_file(path))
        assert " object at 0x" not in str(caught.value)


def test_sixteen_bits(tmp_path: Path) -> None:
    """Refused rather than cut to eight."""
    path = tmp_path / "a.png"
    Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20)).save(path)
    with pytest.raises(InfrastructureError, match="more than 8 bits"):
        rgb_jpeg(picture_file(path))


def test_files_that_break_off(tmp_path: Path) -> None:
    """Wherever a JPEG is cut, it is taken apart no further than it goes, and never read beyond its end."""
    data = write(tmp_path / "a.jpg", picture(), exif=exif(), comment=SECRET)
    whole = without_metadata(data)
    assert whole is not None
    assert {without_metadata(data[:length]) for length in range(len(data))} == {None}
    assert without_metadata(whole) == whole


def test_odd_segments(tmp_path: Path) -> None:
    """Fill bytes before a marker, a comment between scans, a length below two."""
    data = write(tmp_path / "a.jpg", picture())
    clean = without_metadata(data)
    assert clean == without_metadata(data[:2] + b"\xff\xff\xff\xfe\x00\x04ab" + data[2:])
    assert clean == without_metadata(data[:-2] + b"\xff\xfe\x00\x04ab" + data[-2:])
    assert without_metadata(data[:2] + b"\xff\xfe\x00\x01" + data[2:]) is None
    assert without_metadata(data[:2] + b"junk" + data[2:]) is None


HIDDEN = b"patient 4711: glioma"
ODD = {
    "stuffed zero": b"\xff\x00",  # decoders look for the next marker; a segment would swallow the tables behind it
    "number of lines": b"\xff\xdc" + (2 + len(HIDDEN)).to_bytes(2, "big") + HIDDEN,
}


@pytest.mark.parametrize("write_out", [lambda found: rgb_jpeg(found), lambda found: radiograph(found)[1]])
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_metadata_by_name(tmp_path: Path, odd: str, write_out: Callable[[Picture], bytes]) -> None:
    """Pixels stay, and nothing that decoding does not need is carried over, whatever its marker says."""
    data = write(tmp_path / "a.jpg", picture(), quality=80)
    (tmp_path / "a.jpg").write_bytes(data[:2] + ODD[odd] + data[2:])
    found = write_out(picture_file(tmp_path / "a.jpg"))
    assert HIDDEN[:7] not in found
    assert np.abs(decoded(found).astype(int) - decoded(data)).mean() < 1
    (tmp_path / "staged.jpg").write_bytes(data[:2] + ODD[odd] + data[2:])
    assert inspect_headers(tmp_path / "staged.jpg", "staged.jpg")[0]


def test_pictures_of_arrays(tmp_path: Path) -> None:
    """What is a row of an array upstream is encoded without loss, the same bytes every time."""
    pixels = np.asarray(picture())
    image = load_array_picture("test_x.h5#3", lambda: pixels)
    assert (decoded(rgb_png(image)) == pixels).all()
    assert image.sha256 == load_array_picture("test_x.h5#3", lambda: pixels).sha256
    assert load_array_picture("a/b/c.h5#1", lambda: pixels).short == "b/c.h5#1"


def test_tone_mapping() -> None:
    """Lowest value black, highest white, rounded to the nearest of 256 steps."""
    values = np.array([[-1000, 0, 1000]], np.int16)
    assert tone_mapped(values).tolist() == [[0, 128, 255]]  # 127.5 is rounded to even
    assert tone_mapped(np.full((1, 2), 40_000, np.uint16)).tolist() == [[0, 0]]
    assert tone_mapped(values).dtype == np.uint8


def test_encoded_anew(tmp_path: Path) -> None:
    """Asked for, a colour JPEG is not carried over: whatever it was compressed with, the result is compressed alike."""
    first, second = tmp_path / "a.jpg", tmp_path / "b.jpg"
    write(first, picture(), quality=70)
    write(second, picture("L"), quality=95)
    kept = {compression(rgb_jpeg(picture_file(path))) for path in (first, second)}
    anew = {compression(rgb_jpeg(picture_file(path), anew=True)) for path in (first, second)}
    assert (len(kept), len(anew)) == (2, 1)


def test_compression_says_how_not_what(tmp_path: Path) -> None:
    """Tables, coding and sampling; neither pixels nor size nor metadata."""
    path = tmp_path / "a.jpg"
    same = {compression(write(path, picture(size=size), quality=80, exif=exif())) for size in ((37, 21), (64, 8))}
    assert len(same) == 1
    others = [{"quality": 81}, {"quality": 80, "subsampling": 0}, {"quality": 80, "progressive": True}]
    found = [compression(write(path, picture(), **options)) for options in others]
    found.append(compression(write(path, picture("L"), quality=80)))
    assert len({*found, *same}) == 5
    assert compression(b"no JPEG") is None
