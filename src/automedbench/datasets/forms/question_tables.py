"""Tables of questions: JSON, JSON Lines, CSV and Parquet, alone or several files that continue each other.

Cells with pictures (Parquet: ``struct<bytes, path>`` or binary) become ``Picture``: their bytes stay in the file until
they are read, so that a table of many gigabytes takes no more memory than its texts.
"""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.datasets.forms.pictures import Picture
from automedbench.datasets.forms.problems import missing, unreadable

MAX_FILE_BYTES = 200_000_000
"""Of the formats that are read as a whole."""
MAX_CELL_CHARS = 1_000_000
BLOCK_ROWS = 32
KEPT_BLOCKS = 2
Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a row stands: its file, its number there, and its number over all files (both 0-based)."""

    path: Path
    name: str
    number: int
    row: int

    def unreadable(self, why: str) -> InfrastructureError:
        """The error of this row."""
        return unreadable(self.path, f"row {self.number} {why}")


def read_tables(raw: Path, patterns: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Place, Row]]:
    """Every row of the files that the patterns below ``raw`` match: in the patterns' order, then by name.

    Of Parquet only ``columns`` are read, as far as they exist. Raises MissingDataError for a pattern that matches
    nothing, and InfrastructureError for a file that cannot be read.
    """
    row, cells = 0, _Cells()
    for path in (path for pattern in patterns for path in _matching(raw, pattern)):
        name = path.relative_to(raw).as_posix()
        for number, values in enumerate(_rows(path, columns, cells)):
            yield Place(path, name, number, row), values
            row += 1


def _matching(raw: Path, pattern: str) -> list[Path]:
    if not any(sign in pattern for sign in "*?["):
        return [raw / pattern]
    found = sorted(path for path in raw.glob(pattern) if path.is_file() and not path.name.startswith("._"))
    if not found:
        raise missing(raw / pattern, "list of questions")
    return found


def _rows(path: Path, columns: Sequence[str], cells: _Cells) -> list[Row]:
    try:
        if path.suffix == ".parquet":
            return _parquet(path, columns, cells)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise unreadable(path, f"has more than {MAX_FILE_BYTES} bytes")
        text = path.read_text("utf-8-sig" if path.suffix == ".csv" else "utf-8")
        value = _csv(text) if path.suffix == ".csv" else _json(text)
    except FileNotFoundError as error:
        raise missing(path, "list of questions") from error
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise unreadable(path, f"is not a readable list of questions: {error}") from error
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise unreadable(path, "is not a list of objects")
    return value


def _json(text: str) -> Any:
    """A JSON list, or JSON Lines; other line separators of Unicode may stand inside strings."""
    return json.loads(text) if text.lstrip()[:1] == "[" else list(map(json.loads, filter(str.strip, text.split("\n"))))


def _csv(text: str) -> list[Row]:
    """Rows with every value as text; an empty cell is None."""
    before = csv.field_size_limit(MAX_CELL_CHARS)  # of the whole process
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = list(reader)
    finally:
        csv.field_size_limit(before)
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"the row that ends in line {reader.line_num} and its header differ in length")
    return [{name: value or None for name, value in row.items()} for row in rows]


# --- Parquet --------------------------------------------------------------------------------------------------


def _parquet(path: Path, columns: Sequence[str], cells: _Cells) -> list[Row]:
    import polars

    try:
        table = polars.scan_parquet(path)
        schema = table.collect_schema()
        wanted = [name for name in columns if name in schema]
        pictures = [name for name in wanted if _holds_pictures(schema[name])]
        plain = [name for name in wanted if name not in pictures]
        there = [_content(name, schema[name]).is_not_null().fill_null(False).alias(name) for name in pictures]
        rows = table.select(*plain, *there).collect(engine="streaming").to_dicts()
    except polars.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise unreadable(path, f"is not a readable Parquet file: {reason}") from error
    for number, row in enumerate(rows):
        for name in pictures:
            row[name] = cells.picture(path, number, pictures, name) if row[name] else None
    return rows


def _holds_pictures(kind: Any) -> bool:
    import polars

    if isinstance(kind, polars.Struct):
        return any(field.name == "bytes" and field.dtype in (polars.Binary, polars.Null) for field in kind.fields)
    return bool(kind == polars.Binary)


def _content(name: str, kind: Any) -> Any:
    """The expression of a picture column's bytes."""
    import polars

    column = polars.col(name)
    return column.struct.field("bytes") if isinstance(kind, polars.Struct) else column


class _Cells:
    """Picture cells of Parquet files, read ``BLOCK_ROWS`` rows at a time, all columns of them.

    One cell takes as long as all of its row group, which is decompressed for it; so a reader in the order of the
    rows has nearly all of them at hand. Few blocks are kept, for all files together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[tuple[Path, int], list[tuple[bytes | None, ...]]] = {}

    def picture(self, path: Path, number: int, columns: Sequence[str], column: str) -> Picture:
        """The picture in a cell that is not empty; ``columns`` are all that hold pictures."""
        place = columns.index(column)

        def load() -> bytes:
            content = self._row(path, number, columns)[place]
            if content is None:
                raise OSError(f"row {number} changed after the table was read")
            return content

        return Picture(f"{path}#{number}/{column}", load)

    def _row(self, path: Path, number: int, columns: Sequence[str]) -> tuple[bytes | None, ...]:
        block, place = divmod(number, BLOCK_ROWS)
        with self._lock:
            rows = self._blocks.pop((path, block), None) or _contents(path, columns, block * BLOCK_ROWS)
            self._blocks[path, block] = rows  # the last used is the last to go
            while len(self._blocks) > KEPT_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
        if place >= len(rows):
            raise OSError(f"row {number} is not there any more")
        return rows[place]


def _contents(path: Path, columns: Sequence[str], first: int) -> list[tuple[bytes | None, ...]]:
    """Bytes of the columns' cells in ``BLOCK_ROWS`` rows, fewer at the file's end; raises OSError for what fails."""
    import polars

    try:
        table = polars.scan_parquet(path)
        schema = table.collect_schema()
        wanted = [_content(name, schema[name]).alias(name) for name in columns]
        return table.slice(first, BLOCK_ROWS).select(wanted).collect().rows()
    except (polars.exceptions.PolarsError, KeyError) as error:
        raise OSError(f"row {first} and the next {BLOCK_ROWS - 1} cannot be read from the Parquet file") from error
