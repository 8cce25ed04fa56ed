"""Encoded pictures with the metadata that upstream leaves in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import picture, scene


def exif_of(description: str, orientation: int = 1) -> bytes:
    """An EXIF block with a text (ImageDescription) and how the picture is to be turned."""
    from PIL import Image

    tags = Image.Exif()
    tags[0x010E], tags[0x0112] = description, orientation
    return tags.tobytes()


def jpeg(height: int, width: int, *words: object, colours: int = 3, quality: int = 90, **options: Any) -> bytes:
    """A made-up photograph; options are Pillow's (``exif``, ``comment``, …)."""
    return picture(scene((height, width), *words, colours=colours), "JPEG", quality=quality, **options)


def coarse(size: int, block: int, *words: object) -> NDArray[np.uint8]:
    """A square colour picture of equal blocks: large by its pixels, small when it is compressed."""
    small = scene((size // block, size // block), *words, colours=3)
    return np.kron(small, np.ones((block, block, 1), np.uint8))
