"""Pictures as readers return them and as agents get them: pixels without metadata, the same bytes every time.

A picture may be a file, a cell of a table, a row of an array or a slice of a DICOM file; staging does not care. JPEG
files are taken apart into segments, so that metadata can be left out without touching the compressed pixels (ITU-T
T.81 annex B: markers and segments; T.871: JFIF; the Adobe segment says how colours are coded).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray

from automedbench.base.files import sha256_bytes
from automedbench.datasets.forms.problems import unreadable

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Picture:
    """One picture upstream. ``name`` is its path as messages tell it; within a file the place follows ``#``."""

    name: str
    load: Callable[[], bytes] = field(compare=False, repr=False)

    @property
    def short(self) -> str:
        """File and its folder: upstream, whole folders of images may all be called the same."""
        return "/".join(self.name.split("/")[-2:])

    def read(self) -> bytes:
        """The encoded picture; raises InfrastructureError when it cannot be read."""
        try:
            return self.load()
        except OSError as error:
            raise unreadable(self.name, f"is not a readable image: {error.strerror or error}") from error

    def held(self) -> Self:
        """The same picture with its encoded bytes in memory, for callers that need them more than once."""
        data = self.read()
        return dataclasses.replace(self, load=lambda: data)

    @property
    def sha256(self) -> str:
        """Digest of the encoded picture as it is upstream."""
        return sha256_bytes(self.read())


def picture_file(path: Path) -> Picture:
    """A picture that is a file of its own."""
    return Picture(str(path), path.read_bytes)


def load_array_picture(name: str, pixels: Callable[[], NDArray[Any]]) -> Picture:
    """A picture of pixels, shape (height, width) or (height, width, 3), uint8; encoded as PNG when it is read."""
    return Picture(name, lambda: encode_array(pixels(), "PNG", compress_level=3))


def encode_array(pixels: NDArray[Any], form: str, **options: int) -> bytes:
    """Encode pixels, shape (height, width) or (height, width, 3), uint8, in a form that Pillow knows."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def tone_mapped(pixels: NDArray[Any]) -> NDArray[Any]:
    """Grey values of any range and depth, shape (height, width), as uint8: the lowest becomes 0, the highest 255.

    A picture of one value becomes black.
    """
    import numpy as np

    values = pixels.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    scaled = np.zeros_like(values) if high <= low else (values - low) / (high - low)
    return np.rint(scaled * 255.0).astype(np.uint8)


@contextlib.contextmanager
def open_image(source: Path | bytes, name: Path | str) -> Iterator[Image.Image]:
    """An image while it is open; raises InfrastructureError for what Pillow cannot read, also in the block."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        # Pillow's own message shows the Python object.
        why = "its format is not known" if "cannot identify image file" in str(error) else str(error)
        raise unreadable(name, f"is not a readable image: {why}") from error


_GREY = frozenset({"1", "L", "LA"})
_EIGHT_BIT = _GREY | {"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}
_ORIENTATION = 0x0112  # EXIF tag; 1 or absent: stored as shown


def rgb_png(picture: Picture) -> bytes:
    """A picture as 8-bit RGB PNG, pixels only.

    Raises InfrastructureError for what cannot be read and for more than 8 bits a channel, which would lose data.
    """
    return _encoded(_decoded(picture, picture.read(), upright=False)[0], "RGB", "PNG", compress_level=3)


def rgb_jpeg(picture: Picture, *, anew: bool = False) -> bytes:
    """A picture as 8-bit RGB JPEG without metadata.

    A colour JPEG keeps its compressed pixels bit for bit, unless ``anew``. Everything else is encoded at quality 95
    without chroma subsampling; grey becomes three equal channels, and a picture that EXIF says to turn is turned
    first. Raises InfrastructureError as ``rgb_png``.
    """
    data = picture.read()
    image, is_plain_jpeg = _decoded(picture, data, upright=True)
    stripped = _stripped(data, image) if is_plain_jpeg and not anew and image.mode == "RGB" else None
    if stripped is not None:
        return stripped
    return _encoded(image, "RGB", "JPEG", quality=95, subsampling=0)


def small_jpeg(picture: Picture, quality: int) -> bytes:
    """A picture as 8-bit JPEG, grey where it is, without metadata. Raises InfrastructureError as ``rgb_png``."""
    image, _ = _decoded(picture, picture.read(), upright=True)
    return _encoded(image, _grey_or_rgb(image), "JPEG", quality=quality)


def radiograph(picture: Picture) -> tuple[str, bytes]:
    """Suffix and bytes of a picture without metadata: JPEG pixels untouched, everything else as PNG.

    A JPEG keeps its compressed pixels, because radiographs are large and grey; other formats, and a JPEG that EXIF says
    to turn, become an 8-bit PNG, grey where they are grey. Raises InfrastructureError as ``rgb_png``.
    """
    data = picture.read()
    image, is_plain_jpeg = _decoded(picture, data, upright=True)
    stripped = _stripped(data, image) if is_plain_jpeg else None
    if stripped is not None:
        return ".jpg", stripped
    return ".png", _encoded(image, _grey_or_rgb(image), "PNG", compress_level=3)


def picture_size(data: bytes) -> tuple[int, int]:
    """Width and height in pixels of an encoded picture of ours."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.size


def _grey_or_rgb(image: Image.Image) -> str:
    """The mode to encode a picture in."""
    return "L" if image.mode in _GREY else "RGB"


def _decoded(picture: Picture, data: bytes, *, upright: bool) -> tuple[Image.Image, bool]:
    """The picture, read to its end, so that damage shows; turned as EXIF says where ``upright``.

    And whether it is a JPEG that is stored as it is shown.
    """
    from PIL import ImageOps

    with open_image(data, picture.name) as image:
        if image.mode not in _EIGHT_BIT:
            raise ValueError(f"has mode {image.mode}, more than 8 bits a channel")
        image.load()
        if not upright:
            return image, False
        plain = image.format == "JPEG" and image.getexif().get(_ORIENTATION, 1) == 1
        ImageOps.exif_transpose(image, in_place=True)
        return image, plain


def _encoded(image: Image.Image, mode: str, form: str, **options: int) -> bytes:
    """Its pixels alone, encoded: Pillow would carry profiles, comments, EXIF and resolution over to what it saves."""
    pixels = image.copy() if image.mode == mode else image.convert(mode)
    pixels.info = {}
    buffer = io.BytesIO()
    pixels.save(buffer, form, **options)
    return buffer.getvalue()


def _stripped(data: bytes, image: Image.Image) -> bytes | None:
    """A plain JPEG without metadata, if its pixels stay the same."""
    jpeg = take_apart(data)
    if jpeg is None:
        return None
    stripped = jpeg.without_metadata()
    return stripped if _same_pixels(stripped, image) else None


def _same_pixels(data: bytes, pixels: Image.Image) -> bool:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.mode == pixels.mode and image.size == pixels.size and image.tobytes() == pixels.tobytes()
    except (OSError, ValueError, SyntaxError):
        return False


_START, _END, _SCAN, _COMMENT = 0xD8, 0xD9, 0xDA, 0xFE
_TABLES = 0xDB
_FRAMES = frozenset([*range(0xC0, 0xD0)]) - {0xC4, 0xC8, 0xCC}
# Frames, tables of both codings, scans, tables of quantisation, the interval between restarts.
_NEEDED = _FRAMES | {0xC4, 0xCC, _SCAN, _TABLES, 0xDD}
_JFIF, _ADOBE = 0xE0, 0xEE
_STANDALONE = frozenset([0x01, *range(0xD0, 0xD8)])
# A marker in the pixels of a scan: not a stuffed zero, none of the standalone ones, no fill byte.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
# Version 1.01, pixels without a size, no thumbnail.
_PLAIN_JFIF = b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"


@dataclass(frozen=True)
class Jpeg:
    """A JPEG taken apart: (marker, what follows it, the two bytes of length included) up to the end of the picture."""

    segments: tuple[tuple[int, bytes], ...]

    def without_metadata(self) -> bytes:
        """The same picture with no segment but those that decoding needs, and nothing behind its end."""
        kept = [part for marker, body in self.segments if (part := _kept(marker, body)) is not None]
        return b"".join([bytes([0xFF, _START]), *kept, bytes([0xFF, _END])])

    def compression(self) -> bytes:
        """Compression parameters: quantisation tables, coding, chroma sampling; without content and size."""
        found = [(marker, body) for marker, body in self.segments if marker == _TABLES or marker in _FRAMES]
        # Of a frame: its depth and its components, without height and width (T.81, B.2.2).
        parts = [(marker, body[2:] if marker == _TABLES else body[2:3] + body[7:]) for marker, body in found]
        return b"".join(bytes([marker]) + part for marker, part in parts)


def take_apart(data: bytes) -> Jpeg | None:
    """The segments of a file; None when it is not a JPEG that can be taken apart."""
    try:
        return Jpeg(tuple(_segments(data)))
    except (IndexError, ValueError):
        return None


def compression(data: bytes) -> bytes | None:
    """``Jpeg.compression`` of a file; None when it is not a JPEG that can be taken apart."""
    jpeg = take_apart(data)
    return None if jpeg is None else jpeg.compression()


def _kept(marker: int, body: bytes) -> bytes | None:
    """One segment as it is written out; ``body`` follows the marker, its two bytes of length included."""
    if marker == _JFIF and body[2:7] == _PLAIN_JFIF[:5]:
        return _segment(marker, _PLAIN_JFIF)
    if marker == _ADOBE and body[2:7] == b"Adobe" and len(body) >= 14:
        return _segment(marker, b"Adobe\0\x64\0\0\0\0" + body[13:14])  # only how colours are coded
    return bytes([0xFF, marker]) + body if marker in _NEEDED or marker in _STANDALONE else None


def _segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2, "big") + payload


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(marker, what follows it) up to the end of the picture; the pixels belong to the start of their scan.

    Raises ValueError or IndexError where the file breaks off or is none.
    """
    if data[:2] != bytes([0xFF, _START]):
        raise ValueError("no start of image")
    place = 2
    while True:
        if data[place] != 0xFF:
            raise ValueError("no marker where one is expected")
        while data[place] == 0xFF:  # any number of fill bytes
            place += 1
        marker = data[place]
        place += 1
        if marker == 0:
            raise ValueError("a stuffed zero outside of a scan, of which decoders make different things")
        if marker == _END:
            return
        end = place if marker in _STANDALONE else place + int.from_bytes(data[place : place + 2], "big")
        if marker == _SCAN:
            end = _end_of_scan(data, end)
        if end > len(data) or (marker not in _STANDALONE and end < place + 2):
            raise ValueError("a segment is longer than the file")
        yield marker, data[place:end]
        place = end


def _end_of_scan(data: bytes, place: int) -> int:
    """Position of the next marker other than a stuffed zero or a restart; raises ValueError without one."""
    found = _MARKER.search(data, place)
    if found is None:
        raise ValueError("a scan does not end")
    return found.start()
