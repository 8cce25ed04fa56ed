"""Pictures as agents get them: pixels without metadata, the same bytes every time."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from automedbench.datasets.forms.jpeg import take_apart
from automedbench.datasets.forms.pictures import Picture, unreadable, why_unreadable

if TYPE_CHECKING:
    from PIL import Image

_GREY = frozenset({"1", "L", "LA"})
_EIGHT_BIT = _GREY | {"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}
_ORIENTATION = 0x0112  # EXIF tag; 1 or absent: stored as shown


def rgb_png(picture: Picture) -> bytes:
    """A picture as 8-bit RGB PNG, pixels only.

    Raises InfrastructureError for what cannot be read and for more than 8 bits a channel, which would lose data.
    """
    return _encoded(_decoded(picture, picture.read(), upright=False).image, "RGB", "PNG", compress_level=3)


def rgb_jpeg(picture: Picture, *, anew: bool = False) -> bytes:
    """A picture as 8-bit RGB JPEG without metadata.

    A colour JPEG keeps its compressed pixels bit for bit, unless ``anew``. Everything else is encoded at quality 95
    without chroma subsampling; grey becomes three equal channels, and a picture that EXIF says to turn is turned
    first. Raises InfrastructureError as ``rgb_png``.
    """
    data = picture.read()
    found = _decoded(picture, data, upright=True)
    stripped = _stripped(data, found) if not anew and found.mode == "RGB" else None
    if stripped is not None:
        return stripped
    return _encoded(found.image, "RGB", "JPEG", quality=95, subsampling=0)


def small_jpeg(picture: Picture, quality: int) -> bytes:
    """A picture as 8-bit JPEG, grey where it is, without metadata. Raises InfrastructureError as ``rgb_png``."""
    found = _decoded(picture, picture.read(), upright=True)
    return _encoded(found.image, found.grey_or_rgb, "JPEG", quality=quality)


def radiograph(picture: Picture) -> tuple[str, bytes]:
    """Suffix and bytes of a picture without metadata: JPEG pixels untouched, everything else as PNG.

    A JPEG keeps its compressed pixels, because radiographs are large and grey; other formats, and a JPEG that EXIF says
    to turn, become an 8-bit PNG, grey where they are grey. Raises InfrastructureError as ``rgb_png``.
    """
    data = picture.read()
    found = _decoded(picture, data, upright=True)
    stripped = _stripped(data, found)
    if stripped is not None:
        return ".jpg", stripped
    return ".png", _encoded(found.image, found.grey_or_rgb, "PNG", compress_level=3)


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height in pixels of an encoded picture of ours."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.size


@dataclass(frozen=True)
class _Decoded:
    """A picture with all its pixels."""

    image: Image.Image
    is_plain_jpeg: bool
    """A JPEG that is stored as it is shown."""

    @property
    def mode(self) -> str:
        """Pillow's name of its channels."""
        return self.image.mode

    @property
    def grey_or_rgb(self) -> str:
        """The mode to encode it in."""
        return "L" if self.mode in _GREY else "RGB"


def _decoded(picture: Picture, data: bytes, *, upright: bool) -> _Decoded:
    """The picture, read to its end, so that damage shows; turned as EXIF says where ``upright``."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.mode not in _EIGHT_BIT:
                raise ValueError(f"has mode {image.mode}, more than 8 bits a channel")
            image.load()
            if not upright:
                return _Decoded(image, False)
            plain = image.format == "JPEG" and image.getexif().get(_ORIENTATION, 1) == 1
            ImageOps.exif_transpose(image, in_place=True)
            return _Decoded(image, plain)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise unreadable(picture.name, why_unreadable(error)) from error


def _encoded(image: Image.Image, mode: str, form: str, **options: int) -> bytes:
    """Its pixels alone, encoded: Pillow would carry profiles, comments, EXIF and resolution over to what it saves."""
    pixels = image.copy() if image.mode == mode else image.convert(mode)
    pixels.info = {}
    buffer = io.BytesIO()
    pixels.save(buffer, form, **options)
    return buffer.getvalue()


def _stripped(data: bytes, found: _Decoded) -> bytes | None:
    """A plain JPEG without metadata if its pixels stay the same; decoded again only where that is not certain."""
    jpeg = take_apart(data) if found.is_plain_jpeg else None
    if jpeg is None:
        return None
    stripped = jpeg.without_metadata()
    return stripped if jpeg.metadata_is_apart or _same_pixels(stripped, found.image) else None


def _same_pixels(data: bytes, pixels: Image.Image) -> bool:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.mode == pixels.mode and image.size == pixels.size and image.tobytes() == pixels.tobytes()
    except (OSError, ValueError, SyntaxError):
        return False
