"""Questions in made-up data: common parts of the question sets."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from automedbench_rehearsal.making.files import parquet, scene

TELLTALE = "TELLTALE"
"""Stands in everything upstream that gives answers away: captions, explanations, names of folders, EXIF."""
PICTURE_SIZE = (28, 36)
"""Height and width in pixels."""


def jpeg(*words: object, mode: str = "RGB", **options: Any) -> bytes:
    """A picture that depends on the words alone, with EXIF that tells something; ``options`` are Pillow's."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x010E] = TELLTALE
    buffer = io.BytesIO()
    pixels = scene(PICTURE_SIZE, *words, colours=3)
    Image.fromarray(pixels).convert(mode).save(buffer, "JPEG", quality=90, exif=exif, **options)
    return buffer.getvalue()


def cell(*words: object, name: str | None = None, mode: str = "RGB") -> dict[str, Any]:
    """A picture as a cell of a table on the hub."""
    return {"bytes": jpeg(*words, mode=mode), "path": name}


def hub_table(rows: Sequence[Mapping[str, Any]], pictures: Sequence[str], lists: Sequence[str] = ()) -> bytes:
    """A Parquet file as the hub makes it: columns of texts, of lists of texts, and of pictures, each with nulls."""
    import polars

    picture = polars.Struct({"bytes": polars.Binary, "path": polars.String})
    kinds = dict.fromkeys(rows[0], polars.String()) | dict.fromkeys(lists, polars.List(polars.String))
    return parquet(rows, kinds | dict.fromkeys(pictures, picture))


def json_list(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A JSON list of objects."""
    return json.dumps(list(rows), ensure_ascii=False, indent=1).encode()


def json_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """One JSON object per line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
