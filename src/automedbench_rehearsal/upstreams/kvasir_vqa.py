"""Kvasir-VQA as on the Hugging Face hub: many rows per image, in one split.

Defects: a column (source) that names the finding, answers with several values and "none", an answer that is absent,
images with EXIF.
"""

from __future__ import annotations

from typing import Any

from automedbench_rehearsal.making.questions import TELLTALE, cell, hub_table
from automedbench_rehearsal.upstreams import Upstream

# image, question, answer
FILES: list[list[tuple[str, str, str | None]]] = [
    [
        ("a", "Are there any abnormalities in the image?", "polyp"),
        ("a", "How many polyps are in the image?", "1"),
        ("a", "What color is the abnormality?", "pink; red"),
        ("b", "Is there text?", "no"),
        ("b", "Are there any instruments in the image?", "none"),
    ],
    [
        ("c", "Where in the image is the instrument?", "center; lower-right"),
        ("d", "Have all polyps been removed?", "not relevant"),
        ("e", "Is this finding easy to detect?", "yes"),
        ("f", "What type of procedure is the image taken from?", None),
    ],
]


def upstream() -> Upstream:
    """Two files of the one split."""
    tables = [hub_table([_row(*facts) for facts in rows], ["image"]) for rows in FILES]
    files = {f"data/{number:05d}.parquet": table for number, table in enumerate(tables)}
    return Upstream(hubs={"SimulaMet-HOST/Kvasir-VQA": files | {"README.md": b"made up\n"}})


def _row(image: str, question: str, answer: str | None) -> dict[str, Any]:
    return {
        "image": cell("kvasir", image, name=f"{image}.jpg"),
        "source": f"polyps {TELLTALE}",
        "question": question,
        "answer": answer,
        "img_id": f"clb0{image}",
    }
