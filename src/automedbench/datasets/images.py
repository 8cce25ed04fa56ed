"""Pictures as agents get them: pixels without metadata, the same bytes every time."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from automedbench.datasets.jpeg import without_metadata
from automedbench.datasets.pictures import Picture, unreadable, why_unreadable

if TYPE_CHECKING:
    from PIL import Image

_GREY = frozenset({"1", "L", "LA"})
_EIGHT_BIT = _GREY | {"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}
_ORIENTATION = 0x0112  # EXIF tag; 1 or absent: stored as shown


def rgb_png(picture: Picture) -> bytes:
    """A picture as 8-bit RGB PNG, pixels only.

    Raises InfrastructureError for what cannot be read and for more than 8 bits a channel, which would lose data.
    """
    return _encoded(_decoded(picture, picture.read(), upright=False).convert("RGB"), "PNG", compress_level=3)


def rgb_jpeg(picture: Picture, *, anew: bool = False) -> bytes:
    """A picture as 8-bit RGB JPEG without metadata.

    A colour JPEG keeps its compressed pixels bit for bit, unless ``anew``. Everything else is encoded at quality 95
    without chroma subsampling; grey becomes three equal channels, and a picture that EXIF says to turn is turned
    first. Raises InfrastructureError as ``rgb_png``.
    """
    data = picture.read()
    pixels = _decoded(picture, data, upright=True).convert("RGB")
    stripped = without_metadata(data) if not anew and _is_plain_jpeg(data, modes={"RGB"}) else None
    if stripped is not None and _same_pixels(stripped, pixels):
        return stripped
    return _encoded(pixels, "JPEG", quality=95, subsampling=0)


def small_jpeg(picture: Picture, quality: int) -> bytes:
    """A picture as 8-bit JPEG, grey where it is, without metadata. Raises InfrastructureError as ``rgb_png``."""
    pixels = _decoded(picture, picture.read(), upright=True)
    return _encoded(_grey_or_rgb(pixels), "JPEG", quality=quality)


def radiograph(picture: Picture) -> tuple[str, bytes]:
    """Suffix and bytes of a picture without metadata: JPEG pixels untouched, everything else as PNG.

    A JPEG keeps its compressed pixels, because radiographs are large and grey; other formats, and a JPEG that EXIF says
    to turn, become an 8-bit PNG, grey where they are grey. Raises InfrastructureError as ``rgb_png``.
    """
    data = picture.read()
    pixels = _decoded(picture, data, upright=True)
    stripped = without_metadata(data) if _is_plain_jpeg(data, modes=_EIGHT_BIT) else None
    if stripped is not None:
        return ".jpg", stripped
    return ".png", _encoded(_grey_or_rgb(pixels), "PNG", compress_level=3)


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height in pixels of an encoded picture of ours."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.size


def _decoded(picture: Picture, data: bytes, *, upright: bool) -> Image.Image:
    """The picture with all its pixels, so that damage shows."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.mode not in _EIGHT_BIT:
                raise ValueError(f"has mode {image.mode}, more than 8 bits a channel")
            image.load()
            return ImageOps.exif_transpose(image) if upright else image.copy()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise unreadable(picture.name, why_unreadable(error)) from error


def _grey_or_rgb(pixels: Image.Image) -> Image.Image:
    return pixels.convert("L" if pixels.mode in _GREY else "RGB")


def _encoded(pixels: Image.Image, form: str, **options: int) -> bytes:
    """A fresh image, encoded: Pillow carries profiles, comments, EXIF and resolution over to what it saves."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.frombytes(pixels.mode, pixels.size, pixels.tobytes()).save(buffer, form, **options)
    return buffer.getvalue()


def _is_plain_jpeg(data: bytes, modes: frozenset[str] | set[str]) -> bool:
    """A JPEG of one of the modes that is stored as it is shown."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.format == "JPEG" and image.mode in modes and image.getexif().get(_ORIENTATION, 1) == 1


def _same_pixels(data: bytes, pixels: Image.Image) -> bool:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.mode == "RGB" and image.size == pixels.size and image.tobytes() == pixels.tobytes()
    except (OSError, ValueError, SyntaxError):
        return False
