"""Footnotes that a reader needs before comparing numbers: notes of single rows, and lines below a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from automedbench.leaderboard.entries import Method
from automedbench.leaderboard.formats import confidence_level
from automedbench.leaderboard.tables.table import Row
from automedbench.statistics import MIN_REPEATS


def notes(row: Row) -> list[str]:
    """What a reader must know before comparing this row."""
    found = []
    if row.n_disqualified:
        found.append(f"{row.n_disqualified} disqualified")
    if row.n_scored and not row.sufficient:
        found.append(f"insufficient for inference ({_times(row.min_repeats, 'repeat')})")
    if row.provisional:
        found.append("provisional")
    if row.mixed:
        found.append(f"mixed {row.mixed}")
    return found


def how_pooled(method: Method) -> str:
    """One sentence about what the scores are and how they are pooled."""
    means = "tasks of tiers of repeats" if method.pooling == "tasks" else "all runs"
    return f"Overall = (Agentic + Task) / 2, ×100, lite and standard tiers; means over {means}."


def how_sure(rows: Sequence[Row], method: Method) -> list[str]:
    """What brackets and letters mean, where there are any."""
    lines = []
    if any(row.overall_low is not None for row in rows):
        lines.append(
            f"In brackets: {confidence_level(method.confidence)} bootstrap intervals ({method.resamples} resamples)."
        )
    if any(row.tie for row in rows):
        lines.append("Agents that share a letter cannot be told apart (paired test, Holm-corrected).")
    if any(row.n_scored and not row.sufficient for row in rows):
        lines.append(f"Insufficient for inference: fewer than {MIN_REPEATS} repeats of a cell; no interval, no test.")
    return lines


def conditions(rows: Iterable[Row]) -> list[str]:
    """Who judged and what isolated the runs; nothing when none is scored."""
    found = [row for row in rows if row.n_scored]
    if not found:
        return []
    return [f"Sandbox: {_classes(row.sandbox for row in found)}. Judge: {_classes(row.judge for row in found)}."]


def footnotes(rows: Sequence[Row], method: Method) -> list[str]:
    """How the numbers came about."""
    lines = [how_pooled(method), *how_sure(rows, method), *conditions(rows)]
    if any(0 < row.n_priced < row.n_scored for row in rows):
        lines.append("* mean over the runs with a known price.")
    if any(row.provisional for row in rows):
        lines.append("Provisional: not every planned run is scored.")
    return lines


def _times(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _classes(joined: Iterable[str]) -> str:
    return ", ".join(sorted({name for names in joined for name in names.split(" + ") if name}))
