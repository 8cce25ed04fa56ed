"""Table: rows as a pandas frame with the columns of ``columns.TABLES``, and one content as CSV and parquet.

Null is None in every column. In files scores stay in [0, 1], unknown is empty or null, and money is exact: a decimal in
CSV and parquet, a decimal string in JSON. They are written atomically.
"""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from automedbench.base.files import atomic_path, write_text
from automedbench.leaderboard.tables.columns import COLUMNS, TABLES

DIGITS = 6
"""Decimals of a float in files: far below what any difference between agents could mean."""
Row = Any
"""A row of a table: its columns are attributes."""


class BoardTable(Sequence[Row]):
    """A table by its name; ``rows``: a frame, or dictionaries, that hold at least its columns."""

    def __init__(self, name: str, rows: pd.DataFrame | Iterable[Mapping[str, Any]] = ()) -> None:
        self.name = name
        self.kinds = {column: COLUMNS[column].kind for column in TABLES[name].columns}
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows), dtype=object)
        values = {name: _normalise(kind, frame[name]) if len(frame) else [] for name, kind in self.kinds.items()}
        self.frame = pd.DataFrame(values, dtype=object)

    @functools.cached_property
    def _rows(self) -> list[Row]:
        return list(self.frame.itertuples(index=False, name="Row"))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.frame)

    def __getitem__(self, place: Any) -> Any:
        """A row, or several, in the order of the table."""
        return self._rows[place]

    def values(self, formats: Mapping[type, Callable[[Any], Any]], names: Iterable[str] = ()) -> dict[str, list[Any]]:
        """Column (all, or ``names``) → its values, passed through the function of their type if there is one."""
        return {name: _format(self.frame[name].tolist(), formats.get(self.kinds[name])) for name in names or self.kinds}

    @functools.cached_property
    def file_values(self) -> dict[str, list[Any]]:
        """The values of all columns as files have them: floats rounded."""
        return self.values({float: functools.partial(round, ndigits=DIGITS)})


def _format(values: list[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
    """Values that are passed through a function; None stays None."""
    return [None if value is None else convert(value) for value in values] if convert else values


def _normalise(kind: type, values: Iterable[Any]) -> list[Any]:
    """Values of Python, whole numbers as such, and None for NaN."""
    known = [None if value is None or value != value else value for value in values]
    return [None if value is None else int(value) for value in known] if kind is int else known


def export_table(table: BoardTable, folder: Path) -> None:
    """Write ``<name>.csv`` and ``.parquet`` into ``folder``."""
    write_text(folder / f"{table.name}.csv", to_csv(table))
    write_parquet(folder / f"{table.name}.parquet", table)


def to_csv(table: BoardTable) -> str:
    """RFC 4180 text with a header; text that a spreadsheet would take for a formula gets a leading apostrophe."""
    formats: dict[type, Callable[[Any], str]] = {str: _csv_text, bool: lambda flag: str(flag).lower()}
    columns = (_format(values, formats.get(table.kinds[name])) for name, values in table.file_values.items())
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.kinds, *zip(*columns, strict=True)])
    return text.getvalue()


def json_rows(table: BoardTable) -> list[list[Any]]:
    """The rows in the order of the columns; money is a decimal string in JSON."""
    return list(map(list, zip(*table.file_values.values(), strict=True)))


def plain_json(value: Any) -> str:
    """JSON on one line with sorted keys; lone surrogates as question marks, which readers take."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def write_parquet(path: Path, table: BoardTable) -> None:
    """Write the table with typed columns: money as decimal(18, 6)."""
    import polars

    types: dict[type, Any] = {str: polars.String, int: polars.Int64, float: polars.Float64, bool: polars.Boolean}
    types[Decimal] = polars.Decimal(18, 6)
    series = [polars.Series(name, values, types[table.kinds[name]]) for name, values in table.file_values.items()]
    with atomic_path(path) as temporary:
        polars.DataFrame(series).write_parquet(temporary)


def _csv_text(text: str) -> str:
    """Escape formulas and lone carriage returns, which the csv module would not quote."""
    guarded = f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    return guarded.replace("\r\n", "\n").replace("\r", "\n")
