"""Tables as files: one content as CSV, parquet and JSON, written atomically.

Scores stay in [0, 1]. Money is exact: a decimal in CSV and parquet, a decimal string in JSON. Unknown is empty or null.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from pydantic import Field

from automedbench.base.files import atomic_path, write_text
from automedbench.base.records import Model
from automedbench.leaderboard.entries import Pooling

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

    @cached_property
    def columns(self) -> dict[str, type]:
        """Column → type (str, int, float, bool or Decimal); every column may hold null."""
        hints = get_type_hints(self.row_type)
        names = [field.name for field in fields(self.row_type) if field.name not in self.omit]
        return {name: _base_type(hints[name]) for name in names}

    @cached_property
    def values(self) -> dict[str, list[Any]]:
        """Column → its values in the order of the rows, floats rounded."""
        return {
            name: [_rounded(getattr(row, name)) for row in self.rows]
            if kind is float
            else [getattr(row, name) for row in self.rows]
            for name, kind in self.columns.items()
        }


def export_table(table: Table, folder: Path, pooling: Pooling) -> list[Path]:
    """Write ``<name>.csv``, ``.parquet`` and ``.json`` into ``folder``; returns the three paths."""
    writers: dict[str, Callable[[Path], None]] = {
        "csv": lambda path: write_text(path, to_csv(table)),
        "parquet": lambda path: write_parquet(path, table),
        "json": lambda path: write_text(path, to_json_lines(to_record(table, pooling))),
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
    cells: dict[type, Callable[[Any], str]] = {str: _csv_text, bool: _csv_flag}
    columns = [
        [None if value is None else cells[kind](value) for value in table.values[name]]
        if kind in cells
        else table.values[name]
        for name, kind in table.columns.items()
    ]
    writer.writerows(zip(*columns, strict=True))
    return stream.getvalue()


def json_rows(table: Table) -> list[list[Any]]:
    """The rows as lists in the order of the columns; money as decimal strings."""
    columns = [
        [None if value is None else str(value) for value in table.values[name]]
        if kind is Decimal
        else table.values[name]
        for name, kind in table.columns.items()
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def to_record(table: Table, pooling: Pooling) -> TableFile:
    """The table as a JSON record."""
    names = list(table.columns)
    rows = [dict(zip(names, row, strict=True)) for row in json_rows(table)]
    # Cells are plain values: validating half a million of them would say nothing.
    return TableFile.model_construct(name=table.name, pooling=pooling, columns=names, rows=rows)


def to_json_lines(record: TableFile) -> str:
    """One JSON object, a row to a line: large tables stay small, and two of them can be compared line by line."""
    head = record.model_dump(mode="json", by_alias=True, exclude={"rows"})
    rows = ",\n".join(plain_json(row) for row in record.rows)
    return f'{plain_json(head)[:-1]}, "rows": [\n{rows}\n]}}\n'


def plain_json(value: Any) -> str:
    """JSON on one line with sorted keys; lone surrogates as question marks, which readers take."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace").decode("utf-8")


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
    series = [polars.Series(name, table.values[name], types[kind]) for name, kind in table.columns.items()]
    with atomic_path(path) as temporary:
        polars.DataFrame(series).write_parquet(temporary)


def _base_type(hint: Any) -> type:
    """``float | None`` → ``float``."""
    kinds: list[type] = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    return kinds[0]


def _rounded(value: Any) -> Any:
    return round(value, DIGITS) if isinstance(value, float) else value


def _csv_flag(value: bool) -> str:
    return "true" if value else "false"


def _csv_text(text: str) -> str:
    """No formula, and no lone carriage return: the csv module would not quote it."""
    guarded = f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    return guarded.replace("\r\n", "\n").replace("\r", "\n")
