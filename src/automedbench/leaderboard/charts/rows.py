"""Rows that charts for paper are drawn from: those of the board's tables as plain values, texts made harmless."""

from __future__ import annotations

from decimal import Decimal
from statistics import fmean
from typing import Any

from automedbench.error_codes.taxonomy import CODES
from automedbench.judge.fencing import neutralise
from automedbench.leaderboard import formats
from automedbench.leaderboard.board import ALL_TRACKS, HEADLINE, Board
from automedbench.leaderboard.tables.table import Table

Rows = list[dict[str, Any]]


def plain(table: Table) -> Rows:
    """Rows as dictionaries of JSON values; characters of names that would vanish or reorder are shown."""
    values = table.values({Decimal: float, str: neutralise})
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def ranking_rows(board: Board) -> Rows:
    """The headline ranking."""
    return [row for row in plain(board.tables["overall"]) if row["overall"] is not None]


def frontier_rows(board: Board) -> Rows:
    """The headline ranking with the mean cost of a run, where it is known and above zero."""
    rows = [row for row in ranking_rows(board) if row["mean_cost_usd"]]
    return [row | {"resource": row["mean_cost_usd"], "resource_said": _money(row)} for row in rows]


def rank_rows(board: Board) -> Rows:
    """Distribution of ranks over all tracks."""
    return [row for row in plain(board.tables["ranks"]) if row["track"] is None]


def stage_rows(board: Board) -> Rows:
    """Stages over all tracks, agents in the order of the ranking."""
    order = agents_in_order(board)
    rows = [row for row in plain(board.tables["stages"]) if row["track"] is None and row["mean"] is not None]
    return sorted(rows, key=lambda row: (order.index(row["agent"]), row["stage"]))


def radar_rows(board: Board) -> Rows:
    """Stages as axes, with the mean over agents."""
    rows = stage_rows(board)
    order = agents_in_order(board)
    stages = sorted({row["stage"] for row in rows})
    means = {stage: fmean(row["mean"] for row in rows if row["stage"] == stage) for stage in stages}
    return [
        {
            "agent": row["agent"],
            "position": order.index(row["agent"]),
            "axis": row["stage"],
            "value": row["mean"],
            "reference": means[row["stage"]],
        }
        for row in rows
    ]


def task_rows(board: Board) -> Rows:
    """Headline rows of every task with the card's title."""
    titles = {task: card.title for task, card in board.cards.items()}
    order = agents_in_order(board)
    if not any(row.n_scored for row in board.tables["tasks"]):
        return []
    rows = [row | {"title": titles.get(row["task"], row["task"])} for row in plain(board.tables["tasks"])]
    return sorted(rows, key=lambda row: (row["track"], row["title"], order.index(row["agent"])))


def agreement_rows(board: Board) -> Rows:
    """Agreement over all tracks: of the whole panel, and of pairs while a chart can hold them."""
    rows = [row for row in plain(board.tables["agreement"]) if row["track"] is None and row["value"] is not None]
    kept = rows if len(rows) <= _MOST_COEFFICIENTS else [row for row in rows if row["measure"] == "alpha"]
    return [row | {"who": _raters(row)} for row in kept]


def error_rows(board: Board) -> Rows:
    """Shares of error codes of whole runs over all tracks: agents, then all of them."""
    order = agents_in_order(board)
    found = plain(board.tables["errors"])
    rows = [row | {"name": _code(row)} for row in found if row["track"] is None and row["stage"] is None]
    if not any(row["n_with_code"] for row in rows):
        return []
    agents = [row for row in rows if row["agent"] is not None]
    everyone = [row | {"agent": "all agents"} for row in rows if row["agent"] is None]
    return [*sorted(agents, key=lambda row: (order.index(row["agent"]), row["code"])), *everyone]


def error_cost_rows(board: Board) -> Rows:
    """What a code costs within cells, all agents and tracks."""
    rows = plain(board.tables["error_costs"])
    kept = [row for row in rows if row["track"] is None and row["agent"] is None]
    return [row | {"name": _code(row)} for row in kept if row["within_difference"] is not None]


def agents_in_order(board: Board) -> list[str]:
    """All planned agents: as ranked in the headline, then the others; names as charts show them."""
    ranked = [row.agent for row in board.views.get(HEADLINE, {}).get(ALL_TRACKS, [])]
    return [neutralise(name) for name in dict.fromkeys([*ranked, *sorted(board.plan.agents)])]


_MOST_COEFFICIENTS = 24


def _code(row: dict[str, Any]) -> str:
    return f"{row['code']} {CODES[row['code']].title}"


def _raters(row: dict[str, Any]) -> str:
    if row["measure"] == "alpha":
        return f"Krippendorff's α, {row['raters']} judgements"
    return f"weighted κ, {row['first']} and {row['second']}"


def _money(row: dict[str, Any]) -> str:
    return formats.money(Decimal(str(row["mean_cost_usd"])))
