"""The board, ``index.html``: one HTML file that opens from disk, loads nothing and runs only what it was built with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from automedbench.base.records import HEADLINE_TIERS, TIERS, ScoreRecord
from automedbench.leaderboard import definitions
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.charts import vega_bundle
from automedbench.leaderboard.entries import in_tiers, scored
from automedbench.leaderboard.page.board_data import page_data, page_runs
from automedbench.leaderboard.page.html import content_policy, embed, safe_source, script, style, write_html
from automedbench.leaderboard.tables.conditions import unequal_coverage, what_differs

SCRIPTS = (
    *("common.js", "board-state.js", "board-charts.js", "board-why.js", "board-ranking.js", "board-profiles.js"),
    *("board-tasks.js", "board-compare.js", "board-errors.js", "board-runs.js", "board.js"),
)


def write_board(path: Path, board: Board) -> None:
    """Write ``index.html``; the same board gives the same bytes."""
    write_html(path, "board.html", page_context(board))


def page_context(board: Board) -> dict[str, Any]:
    """What the template needs."""
    sheet, program, vega = style("common.css", "board.css"), script(*SCRIPTS), vega_bundle()
    found = scored(board.entries)
    planned = {entry.run.tier for entry in board.entries}
    return {
        "policy": content_policy([sheet], [vega, program]),
        "style": safe_source(sheet),
        "vega": safe_source(vega),
        "script": safe_source(program),
        "data": embed(page_data(board)),
        "runs": embed(page_runs(board.tables.runs), exclude_none=True),
        "sections": definitions.SECTIONS,
        "pooling_text": definitions.POOLINGS[board.pooling],
        "interval_text": definitions.interval_text(board.confidence, board.resamples),
        "heuristic": _heuristic(found),
        "n_scored": len(found),
        "n_planned": len(board.entries),
        "unreadable": board.unreadable,
        "differs": what_differs(found),
        "unequal_coverage": unequal_coverage(in_tiers(board.entries, HEADLINE_TIERS)),
        "tracks": {track: definitions.track_text(track) for track in board.tracks},
        "stages": definitions.STAGES,
        "tiers": {tier: definitions.TIERS[tier] for tier in TIERS if tier in planned},
        "rules": definitions.RULES,
        "backends": {name: definitions.BACKENDS[name] for name in sorted({s.enforced.backend for s in found})},
        "networks": {name: definitions.NETWORKS[name] for name in sorted({s.enforced.network for s in found})},
        "cards": [board.cards[task] for task in board.tasks if task in board.cards],
    }


def _heuristic(scores: Sequence[ScoreRecord]) -> Literal["all", "some", ""]:
    """How many runs were judged by rules instead of a model."""
    n = sum(score.recipe.judge_kind == "heuristic" for score in scores)
    if not n:
        return ""
    return "all" if n == len(scores) else "some"
