"""Pictures as readers return them: what one is called upstream, and how its encoded bytes are read when needed.

A picture may be a file, a cell of a table, a row of an array or a slice of a DICOM file; staging does not care.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes


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
            raise unreadable(self.name, str(error.strerror or error)) from error

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


def picture_of_array(name: str, pixels: Callable[[], NDArray[Any]]) -> Picture:
    """A picture of pixels, shape (height, width) or (height, width, 3), uint8; encoded as PNG when it is read."""

    def encoded() -> bytes:
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(pixels()).save(buffer, "PNG", compress_level=3)
        return buffer.getvalue()

    return Picture(name, encoded)


def tone_mapped(pixels: NDArray[Any], *, inverted: bool = False) -> NDArray[Any]:
    """Grey values of any range and depth, shape (height, width), as uint8: the lowest becomes 0, the highest 255.

    ``inverted``: low values are bright (DICOM's MONOCHROME1). A picture of one value becomes black.
    """
    import numpy as np

    values = pixels.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    scaled = np.zeros_like(values) if high <= low else (values - low) / (high - low)
    return np.rint((1.0 - scaled if inverted and high > low else scaled) * 255.0).astype(np.uint8)


def why_unreadable(error: Exception) -> str:
    """What Pillow says of a picture, without the Python object that it could not identify."""
    return "its format is not known" if "cannot identify image file" in str(error) else str(error)


def unreadable(name: str, why: str) -> InfrastructureError:
    """The error of a picture that cannot be read, with what to do."""
    return InfrastructureError(
        f"{name} is not a readable image: {why}.\nDelete it and fetch the data again (`snakemake prepare`)."
    )
