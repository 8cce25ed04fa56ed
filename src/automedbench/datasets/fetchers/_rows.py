"""Downloads that a table lists: one file for each of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from automedbench.base.cards import Download, Rows, Source
from automedbench.base.errors import ConfigError, InvalidSubmission, MissingDataError
from automedbench.base.untrusted import read_bounded, shown
from automedbench.base.untrusted.table import Table, read_table
from automedbench.datasets.download.access import describe
from automedbench.datasets.download.archives import safe_path
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.download.transfer import OtherContent
from automedbench.datasets.fetchers._web import numbered
from automedbench.datasets.forms.tables import BOUNDS, MAX_BYTES, unpacked

ItemOf = Callable[[Download], Item]


def filled(source: Source, collector: Collector, downloads: list[Download], item_of: ItemOf) -> Iterator[Download]:
    """Downloads with numbers and the cells of their tables filled in; ``item_of`` makes the item of a single file.

    What a row became keeps its ``rows``: its name is a name, with any characters. Tables are fetched for it,
    once per fetch. Raises MissingDataError for a table that cannot be read, lacks a column or a cell, or has no such
    row, OtherContent for cells that lead elsewhere, ConfigError for two files at one place.
    """
    for told in numbered(downloads):
        if told.rows is None:
            yield told
            continue
        places: dict[str, str] = {}
        for each in _by_rows(source, collector, told, told.rows, item_of):
            item = item_of(each)
            other = each.name if item.unpack else places.setdefault(item.place, each.name)
            if other != each.name:
                two = f"{shown(other, 60)} and {shown(each.name, 60)}"
                raise ConfigError([f"dataset.sources.downloads: {two} would be one file; give `to` a column"])
            yield each


def _by_rows(source: Source, collector: Collector, told: Download, rows: Rows, item_of: ItemOf) -> Iterator[Download]:
    """A download for each name that the rows give, in the order of the table."""
    call = f"{describe(source)}: {rows.table}"
    table = _table(source, collector, rows, item_of, call)
    own = told.columns()
    columns = list(dict.fromkeys([*own, *rows.where]))
    try:
        cells = table.select(*(column.strip().lower() for column in columns))
    except InvalidSubmission as error:
        raise MissingDataError(f"{call}: expected the columns {', '.join(columns)}; the table {error}") from error
    chosen = [
        row
        for row in (dict(zip(columns, cell, strict=True)) for cell in cells)
        if all(row[column] in texts for column, texts in rows.where.items())
    ]
    if not chosen:
        raise MissingDataError(f"{call}: expected rows{_conditions(rows)}, found {_found(cells, columns, rows)}")
    seen: set[str] = set()
    for row in chosen:
        empty = next((column for column in own if not row[column]), None)
        if empty is not None:
            raise MissingDataError(f"{call}: expected a text in column {empty} of every row, found an empty cell")
        name, to = told.name.format_map(row), told.to and told.to.format_map(row)
        if name not in seen:
            seen.add(name)
            _require_below(call, name, told.name, to)
            yield told.model_copy(update={"name": name, "to": to})


def _table(source: Source, collector: Collector, rows: Rows, item_of: ItemOf, call: str) -> Table:
    """The table of a source; it is downloaded as the card's own download of it, where there is one."""
    known = [each for each in source.downloads if each.name == rows.table and not each.rows and not each.numbers]
    item = item_of((known or [Download(name=rows.table)])[0].model_copy(update={"unpack": False}))
    try:
        data = read_bounded(collector.planned_by(item), MAX_BYTES) or b""
        return read_table(unpacked(data) if data[:2] == b"\x1f\x8b" else data, BOUNDS)
    except InvalidSubmission as error:
        raise MissingDataError(f"{call}: expected a table, .csv or .csv.gz; what was found {error}") from error


def _conditions(rows: Rows) -> str:
    """The rows' conditions in words."""
    told = (f"{column} is {' or '.join(shown(text, 40) for text in texts)}" for column, texts in rows.where.items())
    return " where " + " and ".join(told) if rows.where else ""


def _found(cells: list[tuple[str, ...]], columns: list[str], rows: Rows) -> str:
    """How many rows there are, and what the first column with a condition holds."""
    told = f"none among {len(cells)} rows"
    for column in list(rows.where)[:1]:
        texts = sorted({cell[columns.index(column)] for cell in cells})
        told += f", where {column} is {' or '.join(shown(text, 20) for text in texts[:3]) or 'nothing'}"
        told += " or another text" if len(texts) > 3 else ""
    return told


def _require_below(call: str, name: str, pattern: str, to: str | None) -> None:
    """Raise OtherContent when cells lead to another host or out of the folder."""
    elsewhere = _host(name) != _host(pattern) or safe_path(unquote(name)) is None
    if elsewhere or (to is not None and safe_path(to) != to) or not f"{name}{to}".isprintable():
        raise OtherContent(
            f"{call}: expected names below the source and the data set's folder, found {shown(name, 80)}.\n"
            "The source changed or is damaged; nothing was installed."
        )


def _host(name: str) -> str:
    """Scheme and host of a URL, empty for a path."""
    found = re.match(r"[a-z][a-z0-9+.-]*:/*[^/?#]*", name, re.IGNORECASE)
    return found[0] if found else ""
