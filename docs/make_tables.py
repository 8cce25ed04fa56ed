"""Tables and columns of the leaderboard as a page: ``python docs/make_tables.py docs/tables.md``."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from automedbench.base.files import write_text
from automedbench.leaderboard.tables.columns import COLUMNS, TABLES

WIDTH = 120
INTRODUCTION = """\
# Tables and columns

Every table of `results/leaderboard/` as CSV, Parquet and in `leaderboard.json`. `python docs/make_tables.py
docs/tables.md` makes this page from the code. What the numbers mean: [Leaderboard](leaderboard.md), error codes
included; how intervals and ranks are made: [Statistics](statistics.md)."""


def render() -> str:
    """The page."""
    return "\n\n".join([INTRODUCTION, *_tables(), *_columns()]) + "\n"


def _tables() -> Iterator[str]:
    yield "## Tables"
    for name, table in TABLES.items():
        columns = ", ".join(f"`{column}`" for column in table.columns)
        yield f"### `{name}`\n\n{_wrapped(table.title)}\n\n{_wrapped(f'Columns: {columns}.')}"


def _columns() -> Iterator[str]:
    yield "## Columns\n\nA name means the same in every table."
    rows = (f"| `{name}` | {column.meaning.replace('|', '&#124;')} |" for name, column in COLUMNS.items())
    yield "\n".join(["| column | meaning |", "| --- | --- |", *rows])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), render())
