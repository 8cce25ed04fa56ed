"""Picture of an agent, decoded, made small and written anew: nothing of the file is left but its pixels.

Called in the import role only: no text, profile or byte after the end of a picture reaches another process of ours.
"""

from __future__ import annotations

import io
import struct
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 40_000_000
SIDES = (1280, 960, 640, 320)
"""Longest side of a small picture; the next smaller one is taken when it is still too large."""
MAX_SENT_BYTES = 1_000_000
HEADER = 24
"""Bytes of a PNG file that say what it is and how large."""


def looks_like_png(head: bytes) -> bool:
    """The first 24 bytes are those of a PNG image of a bounded size; nothing is decoded."""
    if len(head) < HEADER or head[:8] != b"\x89PNG\r\n\x1a\n" or head[12:16] != b"IHDR":
        return False
    width, height = struct.unpack(">II", head[16:24])
    return bool(0 < width * height <= MAX_PIXELS)


def small_picture(data: bytes | None) -> bytes | None:
    """The picture as a PNG of at most 1 280 pixels a side and about a megabyte; None when it does not decode."""
    image = None if data is None else _decode(data)
    if image is None:
        return None
    sent = b""
    for side in SIDES:
        copy = image.copy()
        copy.thumbnail((side, side))
        stream = io.BytesIO()
        copy.save(stream, format="PNG", optimize=False)
        sent = stream.getvalue()
        if len(sent) <= MAX_SENT_BYTES:
            break
    return sent


def _decode(data: bytes) -> Image.Image | None:
    """Pixels on white; None for what is no PNG, or a very large one."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
                if image.width * image.height > MAX_PIXELS:
                    return None
                pixels = image.convert("RGBA")
        white = Image.new("RGBA", pixels.size, "white")
        white.alpha_composite(pixels)
        return white.convert("RGB")
    except Exception:
        # Pillow raises a dozen types on broken files, and none of them is our fault.
        return None
