"""Schemas: JSON Schemas of cards, configuration and records: ``python tools/make_schemas.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from automedbench.base.files import to_json, write_text
from automedbench.commands._documents import DOCUMENTS


def schema_texts() -> dict[str, str]:
    """File name → text of its JSON Schema (draft 2020-12)."""
    return {
        f"{name}.json": to_json(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(by_alias=True)}
        )
        for name, model in DOCUMENTS.items()
    }


def write_schemas(folder: Path) -> None:
    """Write every schema into ``folder`` and remove files of models that are gone."""
    texts = schema_texts()
    for name, text in texts.items():
        write_text(folder / name, text)
    for path in folder.glob("*.json"):
        if path.name not in texts:
            path.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/make_schemas.py FOLDER")
    write_schemas(Path(sys.argv[1]))
