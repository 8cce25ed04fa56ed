"""Grey images in folders: PNG, JPEG or TIFF files chosen by patterns, one image per file.

Options of the card (``staging.options``): ``images`` are patterns below the raw data, ``identity`` says what tells two
images apart, ``subject`` finds the patient in a path, ``offset`` is added to the stored values, ``window`` maps them to
0…1, ``size`` resizes.
"""

from __future__ import annotations

import functools
import re
import warnings
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from pydantic import Field, field_validator

from automedbench.cards import TaskCard
from automedbench.datasets.degradation_2d import bicubic
from automedbench.datasets.slices import SourceSlice
from automedbench.errors import InfrastructureError, MissingDataError
from automedbench.records import Model
from automedbench.yamlfile import validate

MAX_PIXELS = 50_000_000
# Pillow's modes that hold grey values beyond 8 bits; all others are brought to 8-bit grey.
_DEEP = frozenset({"I", "F", "I;16", "I;16B", "I;16L"})


class Options(Model):
    """Which files are images, and what their values mean."""

    images: list[str] = Field(min_length=1, description="patterns of image files below the raw folder")
    identity: Literal["name", "path"] = Field(
        "name", description="an image's id: its file name, or its path below the raw folder; both without suffix"
    )
    subject: str | None = Field(None, description="regular expression whose first group is the patient in the id")
    offset: float = Field(0.0, description="added to every stored value, for example -32768 to get HU")
    window: tuple[float, float] | None = Field(
        None, description="values (after the offset) that become 0 and 1, clipped; null keeps them as they are"
    )
    size: tuple[int, int] | None = Field(None, description="height and width to resize to, bicubic; null: as it is")

    @field_validator("subject")
    @classmethod
    def _has_a_group(cls, subject: str | None) -> str | None:
        if subject is not None and re.compile(subject).groups < 1:
            raise ValueError("must have a group that holds the patient")
        return subject

    @field_validator("window")
    @classmethod
    def _rises(cls, window: tuple[float, float] | None) -> tuple[float, float] | None:
        if window is not None and window[1] <= window[0]:
            raise ValueError("must be two rising numbers")
        return window


def read(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """All images that the patterns take, sorted by path; their pixels are read later.

    Raises MissingDataError when there is none, InfrastructureError for a name without patient or two images of one id.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    names = sorted({path.relative_to(raw).as_posix() for each in options.images for path in raw.glob(each)})
    if not names:
        raise MissingDataError(
            f"{raw} holds no image that matches {', '.join(options.images)}.\n"
            "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
        )
    found = [_slice(raw, name, options) for name in names]
    _require_unique(found)
    return found


def read_grey(path: Path, options: Options) -> NDArray[np.float32]:
    """One image as float32 (height, width): offset added, window applied, resized, in this order.

    Raises InfrastructureError for files that are not readable images, hold several frames or too many pixels.
    """
    values = _stored(path) + options.offset
    if options.window is not None:
        low, high = options.window
        values = np.clip((values - low) / (high - low), 0, 1)
    if options.size is not None and values.shape != options.size:
        values = bicubic(values, options.size)
        values = values if options.window is None else np.clip(values, 0, 1)
    return values.astype(np.float32)


def _slice(raw: Path, name: str, options: Options) -> SourceSlice:
    bare = PurePosixPath(name).with_suffix("")
    identity = bare.name if options.identity == "name" else str(bare)
    path = raw / name
    return SourceSlice(identity, _subject(identity, options), path, functools.partial(read_grey, path, options))


def _subject(identity: str, options: Options) -> str:
    if options.subject is None:
        return identity
    match = re.search(options.subject, identity)
    if match is None:
        raise InfrastructureError(
            f"{identity}: staging.options.subject '{options.subject}' finds no patient in this name.\n"
            "Correct the pattern in the card, or remove the file."
        )
    return match.group(1)


def _require_unique(found: list[SourceSlice]) -> None:
    paths: dict[str, Path] = {}
    for item in found:
        if paths.setdefault(item.id, item.path) != item.path:
            raise InfrastructureError(
                f"{paths[item.id]} and {item.path} have one name, so they would be one case.\n"
                "Narrow staging.options.images in the card, or set identity: path."
            )


def _stored(path: Path) -> NDArray[np.float64]:
    try:
        # Beyond a size Pillow only warns; the limit below is the one that counts.
        with warnings.catch_warnings(), Image.open(path) as image:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            if image.width * image.height > MAX_PIXELS or getattr(image, "n_frames", 1) > 1:
                raise ValueError(f"{image.width}×{image.height} pixels or several frames")
            grey = image if image.mode in _DEEP else image.convert("L")
            return np.array(grey, dtype=np.float64)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InfrastructureError(
            f"{path} is not a readable grey image: {error}.\nDelete it and fetch the data again (`snakemake prepare`)."
        ) from error
