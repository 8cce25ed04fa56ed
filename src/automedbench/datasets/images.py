"""Pictures as agents get them: re-encoded without metadata, the same bytes every time."""

from __future__ import annotations

import io
from pathlib import Path

from automedbench.errors import InfrastructureError

_EIGHT_BIT = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})


def rgb_png(path: Path) -> bytes:
    """An image file as 8-bit RGB PNG, pixels only.

    Raises InfrastructureError for files that cannot be read and for more than 8 bits a channel, which would lose data.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode not in _EIGHT_BIT:
                raise ValueError(f"has mode {image.mode}, more than 8 bits a channel")
            pixels = image.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise InfrastructureError(
            f"{path} is not a readable image: {error}.\nDelete it and fetch the data again (`snakemake prepare`)."
        ) from error
    # A fresh image: Pillow carries colour profiles, EXIF and resolution over to what it saves.
    clean = Image.frombytes("RGB", pixels.size, pixels.tobytes())
    buffer = io.BytesIO()
    clean.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
