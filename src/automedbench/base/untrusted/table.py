"""Tables in CSV that an agent (or a data set) made: bounded before and while they are parsed, every cell a text.

Cells are never interpreted: ``0007`` keeps its zeros, and a formula is a text like any other.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from automedbench.base.errors import InvalidSubmission
from automedbench.base.untrusted import shown

_BOM = b"\xef\xbb\xbf"
UNREADABLE = "csv_unreadable"
COLUMNS = "csv_columns"


@dataclass(frozen=True)
class Bounds:
    """Limits of a table; the module ``csv`` itself ends at 131 072 characters in a cell."""

    rows: int = 100_000
    columns: int = 100
    cell_chars: int = 10_000


@dataclass(frozen=True)
class Table:
    """Column names, trimmed and in lower case, and the rows below them; blank lines are left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def select(self, *names: str) -> list[tuple[str, ...]]:
        """The named columns of every row, cells trimmed; a row that ends early has empty cells there.

        Raises InvalidSubmission (``csv_columns``) when a column is absent or there twice.
        """
        places = [self._place(name) for name in names]
        return [tuple(row[place].strip() if place < len(row) else "" for place in places) for row in self.rows]

    def _place(self, name: str) -> int:
        found = [place for place, column in enumerate(self.columns) if column == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidSubmission(COLUMNS, f"has the column {name} {len(found)} times; one is needed")
        hint = "; columns are separated by commas" if len(self.columns) == 1 else ""
        listed = ", ".join(shown(column, 20) for column in self.columns[:4]) + (", …" if len(self.columns) > 4 else "")
        raise InvalidSubmission(COLUMNS, f"lacks the column {name} (has {listed}){hint}")


def read_table(data: bytes, bounds: Bounds = Bounds(), delimiter: str = ",") -> Table:
    """The table in ``data``: UTF-8 with or without byte order mark, the first line names the columns.

    Raises InvalidSubmission (``csv_unreadable``) for other text and for tables above the bounds.
    """
    rows: list[tuple[str, ...]] = []
    text = io.StringIO(_decode(data), newline="")
    reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append(_check_row(tuple(cells), reader.line_num, bounds))
            if len(rows) > bounds.rows + 1:
                raise InvalidSubmission(UNREADABLE, f"has more than {bounds.rows} rows")
    except csv.Error as error:
        raise InvalidSubmission(UNREADABLE, f"is not CSV: {error} (line {reader.line_num})") from error
    if not rows:
        raise InvalidSubmission(UNREADABLE, "is empty; the first line must name the columns")
    return Table(tuple(name.strip().lower() for name in rows[0]), tuple(rows[1:]))


def _decode(data: bytes) -> str:
    if b"\0" in data:
        raise InvalidSubmission(UNREADABLE, f"holds a NUL (byte {data.index(0)}); write plain UTF-8")
    try:
        return data.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSubmission(UNREADABLE, f"is not UTF-8 (byte {error.start})") from error


def _check_row(cells: tuple[str, ...], line: int, bounds: Bounds) -> tuple[str, ...]:
    if len(cells) > bounds.columns:
        raise InvalidSubmission(UNREADABLE, f"has {len(cells)} columns in line {line}, more than {bounds.columns}")
    longest = max(map(len, cells))
    if longest > bounds.cell_chars:
        raise InvalidSubmission(
            UNREADABLE, f"has a cell of {longest} characters in line {line}, more than {bounds.cell_chars}"
        )
    return cells
