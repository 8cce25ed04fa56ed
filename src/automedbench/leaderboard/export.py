"""Tables as files: one content as CSV, parquet and JSON, written atomically.

Scores stay in [0, 1]. Money is exact: a decimal in CSV and parquet, a decimal string in JSON. Unknown is empty or null.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from pydantic import Field

from automedbench.files import atomic_path, write_record, write_text
from automedbench.leaderboard.tables import Pooling
from automedbench.records import Model

DIGITS = 6
"""Decimals of a float in files: far below what any difference between agents could mean."""


class TableFile(Model):
    """A table as JSON."""

    schema_: Literal["automedbench/table/1"] = Field("automedbench/table/1", alias="schema")
    name: str
    pooling: Pooling
    columns: list[str]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Table:
    """A named table: rows are instances of one dataclass, ``omit`` names fields that this table does not need."""

    name: str
    row_type: type
    rows: Sequence[Any]
    omit: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, type]:
        """Column → type (str, int, float, bool or Decimal); every column may hold null."""
        hints = get_type_hints(self.row_type)
        names = [field.name for field in fields(self.row_type) if field.name not in self.omit]
        return {name: _base_type(hints[name]) for name in names}

    def values(self, name: str) -> list[Any]:
        """One column, floats rounded."""
        return [_rounded(getattr(row, name)) for row in self.rows]


def export_table(table: Table, folder: Path, pooling: Pooling) -> list[Path]:
    """Write ``<name>.csv``, ``.parquet`` and ``.json`` into ``folder``; returns the three paths."""
    writers: dict[str, Callable[[Path], None]] = {
        "csv": lambda path: write_text(path, to_csv(table)),
        "parquet": lambda path: write_parquet(path, table),
        "json": lambda path: write_record(path, to_record(table, pooling)),
    }
    paths = [folder / f"{table.name}.{suffix}" for suffix in writers]
    for path, write in zip(paths, writers.values(), strict=True):
        write(path)
    return paths


def to_csv(table: Table) -> str:
    """RFC 4180 text with a header; text that a spreadsheet would take for a formula gets a leading apostrophe."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    columns = [[_csv_cell(value) for value in table.values(name)] for name in table.columns]
    writer.writerows(zip(*columns, strict=True))
    return stream.getvalue()


def to_record(table: Table, pooling: Pooling) -> TableFile:
    """The table as a JSON record."""
    names = list(table.columns)
    columns = [[_json_cell(value) for value in table.values(name)] for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return TableFile(name=table.name, pooling=pooling, columns=names, rows=rows)


def write_parquet(path: Path, table: Table) -> None:
    """Write the table with typed columns: money as decimal(18, 6)."""
    import polars

    types: dict[type, Any] = {
        str: polars.String,
        int: polars.Int64,
        float: polars.Float64,
        bool: polars.Boolean,
        Decimal: polars.Decimal(18, 6),
    }
    series = [polars.Series(name, table.values(name), types[kind]) for name, kind in table.columns.items()]
    with atomic_path(path) as temporary:
        polars.DataFrame(series).write_parquet(temporary)


def _base_type(hint: Any) -> type:
    """``float | None`` → ``float``."""
    kinds: list[type] = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    return kinds[0]


def _rounded(value: Any) -> Any:
    return round(value, DIGITS) if isinstance(value, float) else value


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _csv_text(value) if isinstance(value, str) else value


def _csv_text(text: str) -> str:
    """No formula, and no lone carriage return: the csv module would not quote it."""
    guarded = f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    return guarded.replace("\r\n", "\n").replace("\r", "\n")


def _json_cell(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value
