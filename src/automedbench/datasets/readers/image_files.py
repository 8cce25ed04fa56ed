"""Grey images in folders: PNG, JPEG or TIFF files chosen by patterns, one image per file.

Options of the card (``staging.options``): ``images`` are patterns below the raw data, ``identity`` says what tells two
images apart, ``subject`` finds the patient in a path, ``exclude`` leaves files out, ``offset`` is added to the stored
values, ``window`` or ``percentiles`` map them to 0…1, ``size``, ``fit`` and ``fill`` bring them to one size.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.quiet import quiet
from automedbench.datasets.forms.slices import ImageFiles, SourceSlice, find_images, shaped

MAX_PIXELS = 50_000_000
# Pillow's modes that hold grey values beyond 8 bits; all others are brought to 8-bit grey.
_DEEP = frozenset({"I", "F", "I;16", "I;16B", "I;16L"})


class Options(ImageFiles):
    """Which files are images, and what their values mean."""

    offset: float = Field(0.0, description="added to every stored value, for example -32768 to get HU")


def read(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """All images that the patterns take, sorted by path; their pixels are read later.

    Raises MissingDataError when there is none, InfrastructureError for a name without patient or two images of one id.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    return [
        SourceSlice(found.id, found.subject, found.path, functools.partial(read_grey, found.path, options))
        for found in find_images(raw, options)
    ]


def read_grey(path: Path, options: Options) -> NDArray[np.float32]:
    """One image as float32 (height, width): offset added, mapped to the scale, brought to the size, in this order.

    Raises InfrastructureError for files that are not readable images, hold several frames or too many pixels.
    """
    return shaped(_stored(path) + options.offset, options)


def _stored(path: Path) -> NDArray[np.float64]:
    try:
        # Beyond a size Pillow only warns; the limit below is the one that counts.
        with quiet(), Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS or getattr(image, "n_frames", 1) > 1:
                raise ValueError(f"{image.width}×{image.height} pixels or several frames")
            grey = image if image.mode in _DEEP else image.convert("L")
            return np.array(grey, dtype=np.float64)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InfrastructureError(
            f"{path} is not a readable grey image: {error}.\nDelete it and fetch the data again (`snakemake prepare`)."
        ) from error
