"""Tables of subjects: which of them a task may take, and in which order upstream lists them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from pydantic import Field

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.records import Model

Row = dict[str, Any]


class SubjectTable(Model):
    """A table with a row (JSON: an object) per subject; its columns are found by name."""

    file: str = Field(description=".csv, .tsv, .json (a list of objects) or .xlsx (the first sheet)")
    id: str = Field(description="column with the subjects' names")
    where: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="column → value that a subject's row must have; 1, '1' and 1.0 are equal"
    )
    split: str | None = Field(None, description="column that staging.sampling.split is compared with")
    delimiter: str = Field(",", min_length=1, max_length=1, description="of .csv")


def listed(raw: Path, table: SubjectTable, split: str | None, where: str) -> list[str]:
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
    rows = _rows(path, table)
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
        told = ", ".join(f"{column} = {value}" for column, value in wanted.items()) or "a name"
        raise InfrastructureError(
            f"{path} lists no subject with {told}.\nCheck {where} and staging.sampling.split of the card."
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


def _rows(path: Path, table: SubjectTable) -> list[Row]:
    try:
        if path.suffix == ".json":
            return _json_rows(path)
        if path.suffix == ".xlsx":
            return _sheet_rows(path)
        delimiter = "\t" if path.suffix == ".tsv" else table.delimiter
        with open(path, encoding="utf-8-sig", newline="") as stream:
            return list(csv.DictReader(stream, delimiter=delimiter))
    except FileNotFoundError as error:
        raise MissingDataError(
            f"{path} (table of subjects) does not exist.\nFetch the data again (`snakemake prepare`)."
        ) from error
    except (OSError, ValueError, csv.Error) as error:  # bytes that are no text and broken JSON are ValueErrors
        raise InfrastructureError(f"{path} is not a readable table: {error}.\nFetch the data again.") from error


def _json_rows(path: Path) -> list[Row]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise ValueError("not a list of objects")
    return content


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
