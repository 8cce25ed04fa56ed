"""Tables of questions: JSON, JSON Lines, CSV and Parquet, alone or several files that continue each other.

Cells with pictures (Parquet: ``struct<bytes, path>`` or binary) become ``Picture``: their bytes stay in the file until
they are read, so that a table of many gigabytes takes no more memory than its texts.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.datasets.pictures import Picture
from automedbench.datasets.problems import missing, unreadable
from automedbench.errors import InfrastructureError

MAX_FILE_BYTES = 200_000_000
"""Of the formats that are read as a whole."""
MAX_CELL_CHARS = 1_000_000
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
    row = 0
    for path in (path for pattern in patterns for path in _matching(raw, pattern)):
        name = path.relative_to(raw).as_posix()
        for number, values in enumerate(_rows(path, columns)):
            yield Place(path, name, number, row), values
            row += 1


def _matching(raw: Path, pattern: str) -> list[Path]:
    if not any(sign in pattern for sign in "*?["):
        return [raw / pattern]
    found = sorted(path for path in raw.glob(pattern) if path.is_file() and not path.name.startswith("._"))
    if not found:
        raise missing(raw / pattern, "list of questions")
    return found


def _rows(path: Path, columns: Sequence[str]) -> list[Row]:
    try:
        if path.suffix == ".parquet":
            return _parquet(path, columns)
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


def _parquet(path: Path, columns: Sequence[str]) -> list[Row]:
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
            row[name] = _cell(path, number, name) if row[name] else None
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


def _cell(path: Path, number: int, column: str) -> Picture:
    def load() -> bytes:
        import polars

        try:
            table = polars.scan_parquet(path)
            content = _content(column, table.collect_schema()[column]).alias("content")
            found: bytes = table.slice(number, 1).select(content).collect().item()
        except polars.exceptions.PolarsError as error:
            raise OSError(f"row {number} cannot be read from the Parquet file") from error
        return found

    return Picture(f"{path}#{number}/{column}", load)
