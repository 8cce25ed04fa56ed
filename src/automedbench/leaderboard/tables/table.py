"""Table: rows as a pandas frame that has the columns of ``columns.TABLES``; null is None in every column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pandas as pd

from automedbench.leaderboard.tables.columns import COLUMNS, TABLES

Row = Any
"""A row of a table: its columns are attributes."""


class Table(Sequence[Row]):
    """A table by its name; ``rows``: a frame, or dictionaries, that hold at least its columns."""

    def __init__(self, name: str, rows: pd.DataFrame | Iterable[Mapping[str, Any]] = ()) -> None:
        self.name = name
        self.kinds = {column: COLUMNS[column].kind for column in TABLES[name].columns}
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows), dtype=object)
        values = {name: _known(kind, frame[name]) if len(frame) else [] for name, kind in self.kinds.items()}
        self.frame = pd.DataFrame(values, dtype=object)

    @cached_property
    def _rows(self) -> list[Row]:
        return list(self.frame.itertuples(index=False, name="Row"))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.frame)

    def __getitem__(self, place: Any) -> Any:
        """A row, or several, in the order of the table."""
        return self._rows[place]

    def values(self, shown: Mapping[type, Callable[[Any], Any]]) -> dict[str, list[Any]]:
        """Column → its values; those of a type in ``shown`` are passed through its function, None stays None."""
        return {
            name: [None if value is None else shown[kind](value) for value in self.frame[name]]
            if kind in shown
            else list(self.frame[name])
            for name, kind in self.kinds.items()
        }


def _known(kind: type, values: Iterable[Any]) -> list[Any]:
    """Values of Python, whole numbers as such, and None for NaN."""
    known = [None if value is None or value != value else value for value in values]
    return [None if value is None else int(value) for value in known] if kind is int else known
