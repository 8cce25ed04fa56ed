"""The ranking as a table in a terminal or a log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from automedbench.leaderboard.entries import Method
from automedbench.leaderboard.footnotes import footnotes, notes
from automedbench.leaderboard.formats import UNKNOWN, count, duration, money, number, percent, share, span
from automedbench.leaderboard.tables.table import Row

_LOG_WIDTH = 140
_COLUMNS = {
    # Column → below how many characters it is left out; all of them are on the page and in the tables.
    **dict.fromkeys(("#", "Agent", "Overall", "Interval", "Tie"), 0),
    **dict.fromkeys(("Agentic", "Task"), 60),
    **dict.fromkeys(("S1", "S2", "S3", "S4", "S5"), 140),
    "Failed": 75,
    **dict.fromkeys(("Turns", "Time"), 120),
    "Tokens": 100,
    "Cost": 100,
    "Runs": 0,
    "Notes": 0,
}


def print_ranking(rows: Sequence[Row], method: Method, stream: TextIO | None = None) -> None:
    """Print one line per agent (scores ×100); marks are explained below the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = stream or sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else _LOG_WIDTH, highlight=False)
    cells = [ranking_cells(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = [name for name in shown_columns(console.width) if name == "Agent" or any(row[name] for row in cells)]
    for column in columns:
        is_text = column in ("Agent", "Notes")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in cells:
        table.add_row(*(Text(row[column]) for column in columns))
    console.print(table)
    for line in footnotes(rows, method):
        console.print(Text(line))


def shown_columns(width: int) -> list[str]:
    """Columns that fit into so many characters; notes are wrapped."""
    return [name for name, needed in _COLUMNS.items() if width >= needed]


def ranking_cells(row: Row) -> dict[str, str]:
    """Column → cell of one line; an empty column is left out."""
    stages = (row.s1, row.s2, row.s3, row.s4, row.s5)
    return {
        "#": UNKNOWN if row.rank is None else str(row.rank),
        "Agent": row.agent,
        "Overall": percent(row.overall),
        "Interval": span(row.overall_low, row.overall_high),
        "Tie": row.tie or "",
        "Agentic": percent(row.agentic),
        "Task": percent(row.task_score),
        **dict(zip(("S1", "S2", "S3", "S4", "S5"), map(percent, stages), strict=True)),
        "Failed": share(row.failure_rate),
        "Turns": number(row.mean_turns),
        "Time": duration(row.mean_wall_s),
        "Tokens": count(row.mean_tokens),
        "Cost": money(row.mean_cost_usd) + ("*" if 0 < row.n_priced < row.n_scored else ""),
        "Runs": f"{row.n_scored}/{row.n_planned}",
        "Notes": ", ".join(notes(row)),
    }
