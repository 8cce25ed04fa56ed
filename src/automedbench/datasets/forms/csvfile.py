"""CSV tables of data sets, gzipped or not, and JSON files: bounded, with every error naming the file."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import Any

from automedbench.base.errors import InvalidSubmission
from automedbench.base.untrusted import parse_json, read_bounded
from automedbench.base.untrusted.table import COLUMNS, UNREADABLE, Bounds, read_table
from automedbench.datasets.forms.problems import missing, unexpected, unreadable

MAX_BYTES = 2_000_000_000
TAB_SUFFIXES = (".tab", ".tsv")
BOUNDS = Bounds(rows=5_000_000, columns=1_000, cell_chars=1_000_000)


def csv_rows(path: Path, columns: list[str], what: str) -> list[tuple[str, ...]]:
    """The columns of every row, trimmed; names of columns are compared in lower case.

    ``.gz`` is unpacked; cells of ``.tab`` and ``.tsv`` are separated by tabs.

    Raises MissingDataError when the table (``what`` it is) is absent, InfrastructureError when it cannot be read or
    lacks a column.
    """
    data = _read(path, what)
    try:
        data = unpacked(data) if path.suffix == ".gz" else data
        data = _with_commas(data) if path.suffix.lower() in TAB_SUFFIXES else data
        return read_table(data, BOUNDS).select(*(column.strip().lower() for column in columns))
    except InvalidSubmission as error:
        raise (unexpected if error.code == COLUMNS else unreadable)(path, str(error)) from error


def json_object(path: Path, what: str) -> dict[str, Any]:
    """A file that holds one JSON object; errors as ``csv_rows``."""
    try:
        value = parse_json(_read(path, what).removeprefix(b"\xef\xbb\xbf"))
    except InvalidSubmission as error:
        raise unreadable(path, str(error)) from error
    if not isinstance(value, dict):
        raise unexpected(path, "is not a JSON object")
    return value


def _read(path: Path, what: str) -> bytes:
    try:
        data = read_bounded(path, MAX_BYTES)
    except InvalidSubmission as error:
        raise unreadable(path, str(error)) from error
    if data is None:
        raise missing(path, what)
    return data


def unpacked(data: bytes) -> bytes:
    """What a gzip file holds; raises InvalidSubmission for a damaged one and for one that becomes too large."""
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidSubmission(UNREADABLE, f"is a damaged gzip file ({error})") from error
    if len(content) > MAX_BYTES:
        raise InvalidSubmission(UNREADABLE, f"holds more than {MAX_BYTES} bytes")
    return content


def _with_commas(data: bytes) -> bytes:
    """A table separated by tabs as one separated by commas; text that is no such table is left to the parser."""
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter="\t", strict=True))
    except (UnicodeDecodeError, csv.Error):
        return data
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue().encode()
