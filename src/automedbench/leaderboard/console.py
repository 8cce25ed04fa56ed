"""The ranking as a table in a terminal or a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from automedbench.leaderboard.formats import count, duration, money, number, percent
from automedbench.leaderboard.tables import Pooling, Row

_SCORES = ("#", "Agent", "Overall", "Agentic", "Task")
_STAGES = ("S1", "S2", "S3", "S4", "S5")
_USE = ("Failed", "Turns", "Time", "Tokens", "Cost", "Runs", "Notes")
_LOG_WIDTH = 140
_NARROW = 120
"""Below this many characters the stages are left out; they are on the page."""


def print_ranking(rows: Sequence[Row], pooling: Pooling, stream: TextIO | None = None) -> None:
    """Print one line per agent (scores ×100); marks are explained below the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = stream or sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else _LOG_WIDTH, highlight=False)
    left_out = _STAGES if console.width < _NARROW else ()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = [column for column in (*_SCORES, *_STAGES, *_USE) if column not in left_out]
    for column in columns:
        is_text = column in ("Agent", "Notes")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in rows:
        cells = ranking_cells(row)
        table.add_row(*(Text(cells[column]) for column in columns))
    console.print(table)
    for line in footnotes(rows, pooling):
        console.print(Text(line))


def ranking_cells(row: Row) -> dict[str, str]:
    """Column → cell of one line."""
    stages = (row.s1, row.s2, row.s3, row.s4, row.s5)
    scores = (row.overall, row.agentic, row.task_score)
    return {
        "#": "–" if row.rank is None else str(row.rank),
        "Agent": row.agent,
        **dict(zip(_SCORES[2:] + _STAGES, map(percent, scores + stages), strict=True)),
        "Failed": "–" if row.failure_rate is None else f"{100 * row.failure_rate:.0f}%",
        "Turns": number(row.mean_turns),
        "Time": duration(row.mean_wall_s),
        "Tokens": count(row.mean_tokens),
        "Cost": money(row.mean_cost_usd) + ("*" if 0 < row.n_priced < row.n_scored else ""),
        "Runs": f"{row.n_scored}/{row.n_planned}",
        "Notes": ", ".join(notes(row)),
    }


def notes(row: Row) -> list[str]:
    """What a reader must know before comparing this row."""
    found = []
    if row.n_disqualified:
        found.append(f"{row.n_disqualified} disqualified")
    if row.provisional:
        found.append("provisional")
    if row.mixed:
        found.append(f"mixed {row.mixed}")
    return found


def footnotes(rows: Sequence[Row], pooling: Pooling) -> list[str]:
    """How the numbers came about."""
    means = "tasks of tiers of repeats" if pooling == "tasks" else "all runs"
    lines = [f"Overall = (Agentic + Task) / 2, ×100, lite and standard tiers; means over {means}."]
    if any(row.n_scored for row in rows):
        lines.append(f"Sandbox: {_classes(row.sandbox for row in rows)}. Judge: {_classes(row.judge for row in rows)}.")
    if any(0 < row.n_priced < row.n_scored for row in rows):
        lines.append("* mean over the runs with a known price.")
    if any(row.provisional for row in rows):
        lines.append("Provisional: not every planned run is scored.")
    return lines


def _classes(joined: Iterable[str]) -> str:
    return ", ".join(sorted({name for names in joined for name in names.split(" + ") if name}))
