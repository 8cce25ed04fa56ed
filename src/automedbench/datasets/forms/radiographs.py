"""Images of detection data sets as 8-bit pictures of their own size: PNG or JPEG, 16-bit PNG, DICOM."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from automedbench.base.files import sha256_file
from automedbench.datasets.forms.dicom import UnreadableDicom, by_gdcm, read_header
from automedbench.datasets.forms.pictures import Picture, picture_file, tone_mapped, why_unreadable
from automedbench.datasets.forms.problems import unreadable

DICOM_SUFFIXES = (".dicom", ".dcm")
_DEEP_MODES = ("I", "I;16", "I;16B", "F")  # Pillow's modes of more than 8 bits


@dataclass(frozen=True)
class ConvertedPicture(Picture):
    """A picture that is made of a file with more than 8 bits; its digest is the one of that file."""

    path: Path

    @property
    def sha256(self) -> str:
        """Digest of the file upstream."""
        return sha256_file(self.path)


def picture_and_size(path: Path) -> tuple[Picture, tuple[int, int]]:
    """The picture of a file, and its width and height in pixels; only the header is read.

    An 8-bit file is taken as it is. More than 8 bits a channel, and DICOM, become 8-bit grey when the picture is read:
    the lowest value black, the highest white, and MONOCHROME1 inverted first (PS3.3 C.7.6.3.1.2), so that bone is
    always bright. Raises InfrastructureError naming a file that cannot be read.
    """
    if path.suffix.lower() in DICOM_SUFFIXES:
        height, width = _dicom_shape(path)
        return _converted(path, _dicom_pixels), (width, height)
    mode, size = _opened(path)
    if mode in _DEEP_MODES:
        return _converted(path, _deep_pixels), size
    return picture_file(path), size


def _converted(path: Path, pixels: Callable[[Path], NDArray[Any]]) -> Picture:
    def encoded() -> bytes:
        from PIL import Image

        buffer = io.BytesIO()
        # A PGM: staging encodes it again, so that compressing it here would be for nothing.
        Image.fromarray(tone_mapped(pixels(path))).save(buffer, "PPM")
        return buffer.getvalue()

    return ConvertedPicture(str(path), encoded, path)


def _opened(path: Path) -> tuple[str, tuple[int, int]]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.mode, image.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise unreadable(path, f"is not a readable image: {why_unreadable(error)}") from error


def _deep_pixels(path: Path) -> NDArray[Any]:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise unreadable(path, f"is not a readable image: {why_unreadable(error)}") from error


def _dicom_shape(path: Path) -> tuple[int, int]:
    try:
        return read_header(path).shape
    except UnreadableDicom as error:
        raise unreadable(path, str(error)) from error


def _dicom_pixels(path: Path) -> NDArray[Any]:
    """Grey values, shape (height, width): GDCM decompresses, and turns MONOCHROME1 into MONOCHROME2."""
    try:
        return by_gdcm(path)
    except UnreadableDicom as error:
        raise unreadable(path, str(error)) from error
