"""Leaderboard of a campaign: tables, charts and pages."""

from __future__ import annotations

import sys
from pathlib import Path

from automedbench.campaign.config import RUBRICS
from automedbench.campaign.load import CampaignRecord
from automedbench.leaderboard import build
from automedbench.leaderboard.formats import print_ranking
from automedbench.statistics.samples import Method

SHOWN = 10
"""Scores counted as missing that are named; the page names all of them."""


def build_leaderboard(campaign: CampaignRecord, *, partial: bool = False) -> None:
    """Write ``<results>/leaderboard/`` from every planned run's score; ``partial``: from those that there are.

    Prints the ranking, what was counted as missing (on standard error), and where the page is. Raises
    InfrastructureError when a planned run has no score, unless ``partial``.
    """
    settings, results = campaign.settings, campaign.results
    board = build.build_leaderboard(
        results,
        results / "plan.json",
        settings.cards,
        Path(RUBRICS),
        results / "leaderboard",
        Method(settings.pooling, settings.leaderboard.confidence, settings.leaderboard.resamples),
        partial=partial,
    )
    print_ranking(board.tables["overall"], board.method)
    for path, reason in list(board.unreadable.items())[:SHOWN]:
        print(f"Counted as missing: {path}: {reason}", file=sys.stderr)
    if (more := len(board.unreadable) - SHOWN) > 0:
        print(f"Counted as missing: {more} more; the page names all of them.", file=sys.stderr)
    print(f"Page: {results / 'leaderboard' / 'index.html'}")
