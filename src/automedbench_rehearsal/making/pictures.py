"""Pictures, made up, with the metadata that upstream leaves in them, and the questions and reports beside them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import generator, parquet


def scene(shape: tuple[int, ...], *words: object, colours: int = 1) -> NDArray[np.uint8]:
    """Smooth blobs on a dark ground: pixels of ``shape`` (height, width), or volume (x, y, z) with ``colours`` 1."""
    chance = generator("scene", shape, *words)
    grids = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    layers = []
    for _ in range(colours):
        values = np.zeros(shape)
        for _ in range(4):
            centre, width = chance.uniform(-0.6, 0.6, len(shape)), chance.uniform(0.15, 0.5)
            distance = sum((grid - place) ** 2 for grid, place in zip(grids, centre, strict=True))
            values += chance.uniform(0.3, 1.0) * np.exp(-distance / width**2)
        values += chance.normal(0, 0.02, shape)
        layers.append(np.clip(values / 2.2, 0, 1))
    pixels = np.rint(np.stack(layers, axis=-1) * 255).astype(np.uint8)
    return pixels[..., 0] if colours == 1 else pixels


def picture(pixels: NDArray[Any], form: str = "PNG", **options: Any) -> bytes:
    """An image file of uint8 pixels (height, width[, 3]), or uint16 (height, width) for PNG; options are Pillow's."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def jpeg(
    size: tuple[int, int], *words: object, colours: int = 3, mode: str = "", about: str = "", **options: Any
) -> bytes:
    """A made-up photograph of ``size`` (height, width) whose EXIF says what it is about.

    ``mode`` is one of Pillow's that it is converted to; options are Pillow's (``quality``, ``comment``, …).
    """
    from PIL import Image

    image = Image.fromarray(scene(size, *words, colours=colours))
    exif = Image.Exif()
    if about:
        exif[0x010E] = about
    buffer = io.BytesIO()
    (image.convert(mode) if mode else image).save(buffer, "JPEG", **{"quality": 90, "exif": exif, **options})
    return buffer.getvalue()


def coarse(size: int, block: int, *words: object) -> NDArray[np.uint8]:
    """A square colour picture of equal blocks: large by its pixels, small when it is compressed."""
    small = scene((size // block, size // block), *words, colours=3)
    return np.kron(small, np.ones((block, block, 1), np.uint8))


def deep(shape: tuple[int, int], bits: int, *words: object) -> NDArray[np.uint16]:
    """Grey pixels of ``shape`` (height, width) that use most of ``bits`` bits."""
    values = scene(shape, *words).astype(np.uint16) << (bits - 8)
    return np.asarray(values + generator("deep", *words).integers(0, 1 << (bits - 8), shape, dtype=np.uint16))


TELLTALE = "TELLTALE"
"""Stands in everything upstream that gives answers away: captions, explanations, names of folders, EXIF."""
PICTURE_SIZE = (28, 36)
"""Height and width in pixels."""


def telltale_jpeg(*words: object, **options: Any) -> bytes:
    """A picture that depends on the words alone, with EXIF that tells something; ``options`` as ``pictures.jpeg``."""
    return jpeg(PICTURE_SIZE, *words, about=TELLTALE, **options)


def cell(*words: object, name: str | None = None, mode: str = "RGB") -> dict[str, Any]:
    """A picture as a cell of a table on the hub."""
    return {"bytes": telltale_jpeg(*words, mode=mode), "path": name}


def hub_table(rows: Sequence[Mapping[str, Any]], images: Sequence[str], lists: Sequence[str] = ()) -> bytes:
    """A Parquet file as the hub makes it: columns of texts, of lists of texts, and of pictures, each with nulls."""
    import polars

    picture = polars.Struct({"bytes": polars.Binary, "path": polars.String})
    kinds = dict.fromkeys(rows[0], polars.String()) | dict.fromkeys(lists, polars.List(polars.String))
    return parquet(rows, kinds | dict.fromkeys(images, picture))


FINDINGS = (
    "The lungs are clear and the heart is of normal size.",
    "A small left pleural effusion is seen, with atelectasis above it.",
    "The heart is enlarged, and the vessels are congested.",
    "There is a patchy opacity in the right lower lung.",
    "A tube ends 4 cm above the carina; no pneumothorax.",
    "The lungs are hyperinflated and the diaphragm is flat.",
    "A nodule of 8 mm lies in the left upper lobe.",
    "The right hemidiaphragm is raised, without a consolidation.",
)
IMPRESSIONS = ("No acute disease.", "Small effusion.", "Mild congestion.", "Possible pneumonia.")


def findings(number: int) -> str:
    """Invented findings, different for each of the first hundred numbers."""
    return f"{FINDINGS[number % len(FINDINGS)]} Rib {1 + number // len(FINDINGS)} shows an old fracture."


def impression(number: int) -> str:
    """An invented impression."""
    return IMPRESSIONS[number % len(IMPRESSIONS)]


def chest_jpeg(*words: object, colours: int = 1) -> bytes:
    """A JPEG of 40×32 pixels that names a patient."""
    return jpeg((40, 32), *words, colours=colours, about=f"ImageDescription {words}", comment=b"PatientName Doe^Jane")
