"""Questions about pictures, made up: pictures that give answers away, and tables as the hub has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from automedbench_rehearsal.making import pictures
from automedbench_rehearsal.making.files import parquet

TELLTALE = "TELLTALE"
"""Stands in everything upstream that gives answers away: captions, explanations, names of folders, EXIF."""
PICTURE_SIZE = (28, 36)
"""Height and width in pixels."""


def jpeg(*words: object, **options: Any) -> bytes:
    """A picture that depends on the words alone, with EXIF that tells something; ``options`` as ``pictures.jpeg``."""
    return pictures.jpeg(PICTURE_SIZE, *words, about=TELLTALE, **options)


def cell(*words: object, name: str | None = None, mode: str = "RGB") -> dict[str, Any]:
    """A picture as a cell of a table on the hub."""
    return {"bytes": jpeg(*words, mode=mode), "path": name}


def hub_table(rows: Sequence[Mapping[str, Any]], images: Sequence[str], lists: Sequence[str] = ()) -> bytes:
    """A Parquet file as the hub makes it: columns of texts, of lists of texts, and of pictures, each with nulls."""
    import polars

    picture = polars.Struct({"bytes": polars.Binary, "path": polars.String})
    kinds = dict.fromkeys(rows[0], polars.String()) | dict.fromkeys(lists, polars.List(polars.String))
    return parquet(rows, kinds | dict.fromkeys(images, picture))
