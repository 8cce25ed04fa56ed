"""The pictures of a study as the agent gets them: JPEG pixels untouched, everything else as PNG, no metadata."""

from __future__ import annotations

import io
from pathlib import Path

from automedbench.datasets.jpeg import without_metadata
from automedbench.errors import InfrastructureError

_GREY = frozenset({"1", "L", "LA"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})
_ORIENTATION = 0x0112  # EXIF tag; 1 or absent: stored as shown


def clean_picture(path: Path) -> tuple[str, bytes]:
    """Suffix and bytes of an image file without metadata, the same for the same file.

    A JPEG keeps its compressed pixels, because radiographs are large and grey; other formats, and a JPEG that EXIF says
    to turn, become an 8-bit PNG, grey where they are grey. Raises InfrastructureError for files that cannot be read
    and for more than 8 bits a channel, which would lose data.
    """
    from PIL import Image, ImageOps

    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data)) as image:
            if image.mode not in _GREY | _COLOUR:
                raise ValueError(f"has mode {image.mode}, more than 8 bits a channel")
            as_stored = image.format == "JPEG" and image.getexif().get(_ORIENTATION, 1) == 1
            upright = ImageOps.exif_transpose(image)  # decodes all of it, so that damage shows
            pixels = upright.convert("L" if upright.mode in _GREY else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InfrastructureError(
            f"{path} is not a readable image: {error}.\nDelete it and fetch the data again (`snakemake prepare`)."
        ) from error
    stripped = without_metadata(data) if as_stored else None
    if stripped is not None:
        return ".jpg", stripped
    # A fresh image: Pillow carries colour profiles, EXIF and resolution over to what it saves.
    clean = Image.frombytes(pixels.mode, pixels.size, pixels.tobytes())
    buffer = io.BytesIO()
    clean.save(buffer, "PNG", compress_level=3)
    return ".png", buffer.getvalue()
