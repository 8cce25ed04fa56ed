"""Tables of data sets in CSV, JSON, XLSX and Parquet, and files in JSON and XML: bounded, every error naming the file.

Cells with pictures (Parquet: ``struct<bytes, path>`` or binary) become ``Picture``: their bytes stay in the file until
they are read, so that a table of many gigabytes takes no more memory than its texts.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pydantic import Field

from automedbench.base.errors import ConfigError, InfrastructureError, InvalidSubmission
from automedbench.base.files import parse_json_object
from automedbench.base.records import Model
from automedbench.base.untrusted import read_bounded
from automedbench.base.untrusted.table import COLUMNS, UNREADABLE, Bounds, read_table
from automedbench.datasets.forms.pictures import Picture
from automedbench.datasets.forms.problems import missing, read_text, unexpected, unreadable
from automedbench.datasets.patterns import is_pattern

MAX_BYTES = 2_000_000_000
TAB_SUFFIXES = (".tab", ".tsv")
BOUNDS = Bounds(rows=5_000_000, columns=1_000, cell_chars=1_000_000)


def csv_rows(path: Path, columns: list[str], what: str) -> list[tuple[str, ...]]:
    """The columns of every row, trimmed; names of columns are compared in lower case.

    ``.gz`` is unpacked; cells of ``.tab`` and ``.tsv`` are separated by tabs.

    Raises MissingDataError when the table (``what`` it is) is absent, InfrastructureError when it cannot be read or
    lacks a column.
    """
    try:
        data = read_bounded(path, MAX_BYTES)
        if data is None:
            raise missing(path, what)
        data = decompress(data) if path.suffix == ".gz" else data
        table = read_table(data, BOUNDS, "\t" if path.suffix.lower() in TAB_SUFFIXES else ",")
        return table.select(*(column.strip().lower() for column in columns))
    except InvalidSubmission as error:
        raise (unexpected if error.code == COLUMNS else unreadable)(path, str(error)) from error


def json_object(path: Path, what: str) -> dict[str, Any]:
    """A file that holds one JSON object; raises as ``read_text``, and InfrastructureError for anything else."""
    found = parse_json_object(read_text(path, what, MAX_BYTES))
    if found is None:
        raise unexpected(path, "is not a JSON object")
    return found


def decompress(data: bytes) -> bytes:
    """Decompress a gzip file; raises InvalidSubmission for a damaged one and for one that becomes too large."""
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidSubmission(UNREADABLE, f"is a damaged gzip file ({error})") from error
    if len(content) > MAX_BYTES:
        raise InvalidSubmission(UNREADABLE, f"holds more than {MAX_BYTES} bytes")
    return content


MAX_XML_BYTES = 4_000_000


def parse_xml(path: Path, what: str) -> ElementTree.Element:
    """Root of one XML file (``what`` it is, for messages); a document type, and with it any entity, is refused.

    Raises MissingDataError when absent and InfrastructureError when too large or not well-formed.
    """
    try:
        size = path.stat().st_size
        if size > MAX_XML_BYTES:
            raise unreadable(path, f"has {size} bytes, more than the limit of {MAX_XML_BYTES}")
        return ElementTree.fromstring(path.read_bytes(), ElementTree.XMLParser(target=_NoDocumentType()))
    except FileNotFoundError as error:
        raise missing(path, what) from error
    except (ElementTree.ParseError, ValueError, LookupError, OSError, RecursionError) as error:
        raise unreadable(path, f"is not a readable {what}: {error}") from error


class _NoDocumentType(ElementTree.TreeBuilder):
    """Builds the tree, but stops at a DOCTYPE, the only way to define entities."""

    def doctype(self, name: str, public_id: str | None, system: str | None) -> None:
        raise ValueError(f"declares a document type '{name}', which is not allowed")


Row = dict[str, Any]
MAX_CELL_CHARS = 1_000_000


def table_rows(path: Path, what: str, delimiter: str = ",") -> list[Row]:
    """Every row, column → value: of .csv (None for an empty cell), .tsv, .xlsx (the first sheet), .jsonl and .json.

    JSON is a list of objects, or an object of them. ``what`` the table is, is for messages. Raises MissingDataError
    when it is absent and InfrastructureError when it cannot be read.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise unreadable(path, f"has more than {MAX_BYTES} bytes")
        if path.suffix == ".xlsx":
            return _sheet_rows(path)
        text = path.read_text("utf-8-sig")
        if path.suffix in (".csv", *TAB_SUFFIXES):
            return _csv(text, "\t" if path.suffix in TAB_SUFFIXES else delimiter)
        value = _lines(text) if path.suffix == ".jsonl" else json.loads(text)
    except FileNotFoundError as error:
        raise missing(path, what) from error
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise unreadable(path, f"is not a readable {what}: {error}") from error
    rows = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise unreadable(path, "is not a list of objects")
    return rows


def _lines(text: str) -> list[Any]:
    """JSON Lines; other line separators of Unicode may stand inside strings."""
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _csv(text: str, delimiter: str) -> list[Row]:
    """Rows with every value as text; an empty cell is None."""
    before = csv.field_size_limit(MAX_CELL_CHARS)  # of the whole process
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows = list(reader)
    finally:
        csv.field_size_limit(before)
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"the row that ends in line {reader.line_num} and its header differ in length")
        row.update({name: None for name, value in row.items() if not value})
    return rows


def _sheet_rows(path: Path) -> list[Row]:
    import zipfile

    import openpyxl

    try:
        with open(path, "rb") as stream:
            sheet = openpyxl.load_workbook(stream, read_only=True, data_only=True).worksheets[0]
            header, *rows = list(sheet.iter_rows(values_only=True)) or [()]
    except (zipfile.BadZipFile, KeyError, IndexError) as error:
        raise ValueError(f"no workbook ({error})") from error
    names = ["" if name is None else str(name).strip() for name in header]
    return [dict(zip(names, row, strict=False)) for row in rows]


class SubjectTable(Model):
    """A table with a row (JSON: an object) per subject; its columns are found by name."""

    file: str = Field(description=".csv, .tsv, .json (a list of objects) or .xlsx (the first sheet)")
    id: str = Field(description="column with the subjects' names")
    where: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="column → value that a subject's row must have; 1, '1' and 1.0 are equal"
    )
    split: str | None = Field(None, description="column that staging.sampling.split is compared with")
    delimiter: str = Field(",", min_length=1, max_length=1, description="of .csv")


def list_subjects(raw: Path, table: SubjectTable, split: str | None, where: str) -> list[str]:
    """Names of the subjects that the table has for this split and these values, in its order, each once.

    ``where`` is the card's key, for messages. Raises ConfigError when a split is asked for that no column tells,
    MissingDataError for an absent table, InfrastructureError for one that is damaged, lacks a column or has no rows.
    """
    wanted = {column: _plain(value) for column, value in table.where.items()}
    if split is not None:
        if table.split is None:
            raise ConfigError([f"{where}.split: staging.sampling.split is '{split}', so the column must be named"])
        wanted[table.split] = split
    path = raw / table.file
    rows = table_rows(path, "table of subjects", table.delimiter)
    for column in (table.id, *wanted):
        if rows and not any(column in row for row in rows):
            raise InfrastructureError(
                f"{path} has no column '{column}'; it has {', '.join(sorted(map(str, rows[0]))[:12])}.\n"
                f"Correct {where} of the card, or fetch the data again (`snakemake prepare`)."
            )
    found = [
        _plain(row.get(table.id))
        for row in rows
        if all(_plain(row.get(column)) == value for column, value in wanted.items())
    ]
    names = list(dict.fromkeys(name for name in found if name))
    if not names:
        conditions = ", ".join(f"{column} = {value}" for column, value in wanted.items()) or "a name"
        raise InfrastructureError(
            f"{path} lists no subject with {conditions}.\nCheck {where} and staging.sampling.split of the card."
        )
    return names


def _plain(value: Any) -> str:
    """A cell as text, the same for 1, 1.0 and '1'; empty for nothing."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = "" if value is None else str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    return text.removesuffix(".0") if text.removesuffix(".0").isdigit() else text


BLOCK_ROWS = 32
_ONE_READER = threading.Lock()


@dataclass(frozen=True)
class RowPosition:
    """Position of a row: its file, its number there, and its number over all files (both 0-based)."""

    path: Path
    name: str
    number: int
    row: int

    def unreadable(self, why: str) -> InfrastructureError:
        """The error of this row."""
        return unreadable(self.path, f"row {self.number} {why}")


def read_tables(raw: Path, patterns: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[RowPosition, Row]]:
    """Every row of the files that the patterns below ``raw`` match: in the patterns' order, then by name.

    Of Parquet only ``columns`` are read, as far as they exist. Raises MissingDataError for a pattern that matches
    nothing, and InfrastructureError for a file that cannot be read.
    """
    row = 0
    for path in (path for pattern in patterns for path in _matching(raw, pattern)):
        name = path.relative_to(raw).as_posix()
        parquet = path.suffix == ".parquet"
        rows = _parquet(path, columns) if parquet else table_rows(path, "list of questions")
        for number, values in enumerate(rows):
            yield RowPosition(path, name, number, row), values
            row += 1


def _matching(raw: Path, pattern: str) -> list[Path]:
    if not is_pattern(pattern):
        return [raw / pattern]
    found = sorted(path for path in raw.glob(pattern) if path.is_file() and not path.name.startswith("._"))
    if not found:
        raise missing(raw / pattern, "list of questions")
    return found


# --- Parquet --------------------------------------------------------------------------------------------------


def _parquet(path: Path, columns: Sequence[str]) -> list[Row]:
    import polars

    try:
        table = polars.scan_parquet(path)
        schema = table.collect_schema()
        wanted = [name for name in columns if name in schema]
        pictures = tuple(name for name in wanted if _holds_pictures(schema[name]))
        plain = [name for name in wanted if name not in pictures]
        there = [_content(name, schema[name]).is_not_null().fill_null(False).alias(name) for name in pictures]
        rows = table.select(*plain, *there).collect(engine="streaming").to_dicts()
    except polars.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise unreadable(path, f"is not a readable Parquet file: {reason}") from error
    for number, row in enumerate(rows):
        for name in pictures:
            row[name] = _cell_picture(path, number, pictures, name) if row[name] else None
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


def _cell_picture(path: Path, number: int, columns: tuple[str, ...], column: str) -> Picture:
    """The picture in a cell that is not empty; ``columns`` are all that hold pictures.

    One cell takes as long as all of its row group, which is decompressed for it. So ``BLOCK_ROWS`` rows are read at a
    time and few such blocks kept: a reader in the order of the rows has nearly all cells at hand.
    """
    block, place = divmod(number, BLOCK_ROWS)

    def load() -> bytes:
        with _ONE_READER:
            rows = _contents(path, columns, block * BLOCK_ROWS)
        content = rows[place][columns.index(column)] if place < len(rows) else None
        if content is None:
            raise OSError(f"row {number} changed after the table was read")
        return content

    return Picture(f"{path}#{number}/{column}", load)


@functools.lru_cache(maxsize=2)
def _contents(path: Path, columns: tuple[str, ...], first: int) -> list[tuple[bytes | None, ...]]:
    """Bytes of the columns' cells in ``BLOCK_ROWS`` rows, fewer at the file's end; raises OSError for what fails."""
    import polars

    try:
        table = polars.scan_parquet(path)
        schema = table.collect_schema()
        wanted = [_content(name, schema[name]).alias(name) for name in columns]
        return table.slice(first, BLOCK_ROWS).select(wanted).collect().rows()
    except (polars.exceptions.PolarsError, KeyError) as error:
        raise OSError(f"row {first} and the next {BLOCK_ROWS - 1} cannot be read from the Parquet file") from error
