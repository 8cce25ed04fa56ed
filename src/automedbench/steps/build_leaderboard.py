"""Leaderboard of a campaign: tables, charts and pages."""

from __future__ import annotations

import sys
from pathlib import Path

from automedbench.campaign.config import RUBRICS
from automedbench.campaign.record import CampaignRecord
from automedbench.leaderboard import build
from automedbench.leaderboard.formats import print_ranking

SHOWN = 10
"""Scores counted as missing that are named; the page names all of them."""


def build_leaderboard(campaign: CampaignRecord, *, partial: bool = False) -> build.Built:
    """Write ``<results>/leaderboard/`` from every planned run's score; ``partial``: from those that there are.

    Raises InfrastructureError when a planned run has no score, unless ``partial``.
    """
    settings, results = campaign.settings, campaign.results
    return build.build_leaderboard(
        results,
        results / "plan.json",
        settings.cards,
        Path(RUBRICS),
        results / "leaderboard",
        pooling=settings.pooling,
        confidence=settings.leaderboard.confidence,
        resamples=settings.leaderboard.resamples,
        partial=partial,
    )


def print_built(built: build.Built) -> None:
    """The ranking, what was counted as missing (on standard error), and where the page is."""
    print_ranking(built.ranking, built.method)
    for path, reason in list(built.unreadable.items())[:SHOWN]:
        print(f"Counted as missing: {path}: {reason}", file=sys.stderr)
    if (more := len(built.unreadable) - SHOWN) > 0:
        print(f"Counted as missing: {more} more; the page names all of them.", file=sys.stderr)
    print(f"Page: {built.page}")
