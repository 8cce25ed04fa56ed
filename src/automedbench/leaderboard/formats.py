"""Formats of what people read: numbers, footnotes, the ranking as a table in a terminal or a log; unknown is a dash."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TextIO

from automedbench.base.plaintable import counted
from automedbench.leaderboard.tables.table import Row
from automedbench.statistics.intervals import MIN_REPEATS, method_text
from automedbench.statistics.samples import StatisticsMethod

UNKNOWN = "–"
NO_EFFECT = (
    "No effect of the case: outputs fit their own case no better than others; S3 of such a run is 0, S4 at most 0.3, "
    "and it wins no medal, unless effects are shown only."
)


def percent(value: float | None) -> str:
    """0.5321 → 53.2 (scores ×100)."""
    # Rounded as the page's script rounds: a tie goes up, so that 6.25 is 6.3 in both.
    # Plus 0: there is no -0.0.
    return UNKNOWN if value is None else str(Decimal(100 * value).quantize(Decimal("0.1"), ROUND_HALF_UP) + 0)


def money(value: Decimal | None) -> str:
    """Dollars with cents; below ten cents with four decimals."""
    if value is None:
        return UNKNOWN
    return f"${value:.2f}" if value >= Decimal("0.1") or value == 0 else f"${value:.4f}"


def span(low: float | None, high: float | None) -> str:
    """0.641, 0.689 → [64.1, 68.9] (scores ×100); nothing when there is no interval."""
    return "" if low is None or high is None else f"[{percent(low)}, {percent(high)}]"


def share(value: float | None) -> str:
    """0.125 → 13% (a tie goes up)."""
    return UNKNOWN if value is None else f"{Decimal(100 * value).quantize(Decimal('1'), ROUND_HALF_UP)}%"


QUANTITIES = {
    "overall": "Overall",
    "task": "Task",
    **{stage.lower(): stage for stage in ("S1", "S2", "S3", "S4", "S5")},
    "tokens": "Tokens",
    "cost_usd": "USD",
    "minutes": "Minutes",
}
"""Quantity of the table ``treatments`` → its title."""


def quantity(name: str, value: float | None, *, signed: bool = False) -> str:
    """A value of the table ``treatments``: scores ×100; with its sign, where it is a change."""
    if value is None:
        return UNKNOWN
    digits, shown = {"tokens": (0, value), "cost_usd": (4, value), "minutes": (1, value)}.get(name, (1, 100 * value))
    return f"{round(shown, digits) + 0.0:{'+' if signed else ''},.{digits}f}"


def change(row: Row, name: str) -> str:
    """+4.2 [1.0, 7.4]: a variant minus its base in the quantity ``name``, with the interval if there is one."""
    ends = f" [{quantity(name, row.low)}, {quantity(name, row.high)}]" if row.low is not None else ""
    return quantity(name, row.change, signed=True) + ends


def skill_use(row: Row) -> str:
    """Runs that used their skills or MCP servers, of those that tell; empty for a variant without."""
    return "" if row.n_traced is None else f"{row.n_used} of {row.n_traced}"


def notes(row: Row) -> list[str]:
    """Notes to read before comparing this row."""
    found = ["made-up data"] if row.made_up else []
    if row.n_disqualified:
        found.append(f"{row.n_disqualified} disqualified")
    if row.n_no_effect:
        found.append(f"{row.n_no_effect} without effect of the case")
    if row.n_contradicting:
        found.append(f"{counted(row.n_contradicting, 'medal')} with contradictions")
    if row.n_scored and not row.sufficient:
        found.append(f"insufficient for inference ({counted(row.min_repeats, 'repeat')})")
    if row.provisional:
        found.append("provisional")
    if row.other_tasks:
        found.append("other tasks")
    if row.other_judge:
        found.append("other judge")
    if row.mixed:
        found.append(f"mixed {row.mixed}")
    if row.outdated:
        found.append(f"outdated {row.outdated}")
    return found


def pooling_note(method: StatisticsMethod) -> str:
    """One sentence about what the scores are and how they are pooled."""
    means = "tasks of tiers of repeats" if method.pooling == "tasks" else "all runs"
    return f"Overall = (Agentic + Task) / 2, ×100, lite and standard tiers; means over {means}."


def uncertainty_notes(rows: Sequence[Row], method: StatisticsMethod) -> list[str]:
    """Notes on the meaning of brackets and letters, where there are any."""
    lines = []
    if any(row.overall_low is not None for row in rows):
        lines.append(f"In brackets: {method_text(method)}")
    if any(row.tie for row in rows):
        lines.append(
            "Agents that share a letter cannot be told apart on these tasks (simultaneous intervals of differences)."
        )
    if any(row.n_scored and not row.sufficient for row in rows):
        lines.append(f"Insufficient for inference: fewer than {MIN_REPEATS} repeats of a cell; no interval, no test.")
    return lines


def condition_notes(rows: Iterable[Row]) -> list[str]:
    """Notes on judges and sandboxes of the runs; empty when no run is scored."""
    found = [row for row in rows if row.n_scored]
    if not found:
        return []
    return [f"Sandbox: {_classes(row.sandbox for row in found)}. Judge: {_classes(row.judge for row in found)}."]


def footnotes(rows: Sequence[Row], method: StatisticsMethod) -> list[str]:
    """Footnotes on the method behind the numbers."""
    lines = [pooling_note(method), *uncertainty_notes(rows, method), *condition_notes(rows)]
    if any(0 < row.n_priced < row.n_scored for row in rows):
        lines.append("* mean over the runs with a known price.")
    if any(row.outdated for row in rows):
        lines.append("Outdated: some runs were not made or scored as the campaign asks now; the page names them.")
    if any(row.n_no_effect for row in rows):
        lines.append(NO_EFFECT)
    if any(row.n_contradicting for row in rows):
        lines.append("With contradictions: more than a tenth of the reports' statements contradict the references.")
    if any(row.made_up for row in rows):
        lines.append("Made-up data: a rehearsal, whose numbers mean nothing.")
    if any(row.provisional for row in rows):
        lines.append("Provisional: not every planned run is scored.")
    if any(row.other_tasks for row in rows):
        lines.append("Other tasks: planned on other tasks or tiers than most agents here, and so without a rank.")
    if any(row.other_judge for row in rows):
        lines.append("Other judge: not judged as the preset's published rows, and not to be compared with them.")
    return lines


def _classes(joined: Iterable[str]) -> str:
    return ", ".join(sorted({name for names in joined for name in names.split(" + ") if name}))


_LOG_WIDTH = 140


def print_ranking(rows: Sequence[Row], method: StatisticsMethod, stream: TextIO | None = None) -> None:
    """Print one line per agent (scores ×100); marks are explained below the table, all else is on the page."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = stream or sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else _LOG_WIDTH, highlight=False)
    cells = [ranking_cells(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = [
        name for name in (cells[0] if cells else ["Agent"]) if any(row[name] for row in cells) or name == "Agent"
    ]
    for column in columns:
        is_text = column in ("Agent", "Notes")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in cells:
        table.add_row(*(Text(row[column]) for column in columns))
    console.print(table)
    for line in footnotes(rows, method):
        console.print(Text(line))


def ranking_cells(row: Row) -> dict[str, str]:
    """Column → cell of one line; an empty column is left out."""
    return {
        "#": UNKNOWN if row.rank is None else str(row.rank),
        "Agent": row.agent,
        "Overall": percent(row.overall),
        "Interval": span(row.overall_low, row.overall_high),
        "Tie": row.tie or "",
        "Agentic": percent(row.agentic),
        "Task": percent(row.task_score),
        "Failed": share(row.failure_rate),
        "Cost": money(row.mean_cost_usd) + ("*" if 0 < row.n_priced < row.n_scored else ""),
        "Runs": f"{row.n_scored}/{row.n_planned}",
        "Notes": ", ".join(notes(row)),
    }
