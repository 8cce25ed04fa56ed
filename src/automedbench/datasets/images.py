"""Pictures as agents get them: pixels without metadata, the same bytes every time."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.datasets.jpeg import without_metadata
from automedbench.errors import InfrastructureError

if TYPE_CHECKING:
    from PIL import Image

_EIGHT_BIT = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})
_ORIENTATION = 0x0112  # EXIF tag; 1 or absent: stored as shown


def rgb_png(path: Path) -> bytes:
    """An image file as 8-bit RGB PNG, pixels only.

    Raises InfrastructureError for files that cannot be read and for more than 8 bits a channel, which would lose data.
    """
    buffer = io.BytesIO()
    _rgb(path).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def rgb_jpeg(path: Path) -> bytes:
    """An image file as 8-bit RGB JPEG without metadata.

    A colour JPEG keeps its compressed pixels bit for bit. Everything else is encoded at quality 95 without chroma
    subsampling; grey becomes three equal channels, and a picture that EXIF says to turn is turned first.
    Raises InfrastructureError as ``rgb_png``.
    """
    from PIL import Image

    pixels = _rgb(path)
    data = path.read_bytes()
    with Image.open(io.BytesIO(data)) as image:
        as_stored = image.format == "JPEG" and image.mode == "RGB" and image.getexif().get(_ORIENTATION, 1) == 1
    stripped = without_metadata(data) if as_stored else None
    if stripped is not None and _same_pixels(stripped, pixels):
        return stripped
    buffer = io.BytesIO()
    _rgb(path, upright=True).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height in pixels of an encoded picture of ours."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.size


def _rgb(path: Path, *, upright: bool = False) -> Image.Image:
    """The decoded pixels as a fresh image: Pillow carries profiles, EXIF and resolution over to what it saves."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            if image.mode not in _EIGHT_BIT:
                raise ValueError(f"has mode {image.mode}, more than 8 bits a channel")
            pixels = (ImageOps.exif_transpose(image) if upright else image).convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise InfrastructureError(
            f"{path} is not a readable image: {error}.\nDelete it and fetch the data again (`snakemake prepare`)."
        ) from error
    return Image.frombytes("RGB", pixels.size, pixels.tobytes())


def _same_pixels(data: bytes, pixels: Image.Image) -> bool:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.mode == "RGB" and image.size == pixels.size and image.tobytes() == pixels.tobytes()
    except (OSError, ValueError, SyntaxError):
        return False
