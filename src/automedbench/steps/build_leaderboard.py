"""Leaderboard of a campaign: tables, charts and pages."""

from __future__ import annotations

import functools
import io
import sys
from collections import Counter

from automedbench.base.console import collect_rarely
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_text
from automedbench.campaign.agents import load_campaign_agents
from automedbench.campaign.load import Campaign
from automedbench.campaign.record import CampaignRecord
from automedbench.leaderboard import build
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.formats import print_ranking
from automedbench.planning.conditions import RUN_CONDITIONS, requested_conditions

RANKING = "leaderboard/ranking.txt"
SHOWN = 10
"""Scores counted as missing that are named; the page names all of them."""


def build_leaderboard(campaign: CampaignRecord, *, partial: bool = False) -> None:
    """Write ``<results>/leaderboard/`` from every planned run's score; ``partial``: from those that there are.

    Prints the ranking, which stays in ``RANKING``, what was counted as missing (on standard error), and where the page
    is. Raises InfrastructureError when a planned run has no score, unless ``partial``, and, with everything written,
    when a run was not made or scored as the campaign asks now.
    """
    collect_rarely()
    settings, results = campaign.settings, campaign.results
    agents = load_campaign_agents(settings)
    board = build.build_leaderboard(
        results,
        campaign.card_folders,
        build.statistics_method(settings),
        partial=partial,
        requested=lambda cards: functools.partial(requested_conditions, Campaign(settings, cards, {}, agents, [])),
    )
    text = io.StringIO()
    print_ranking(board.tables["overall"], board.method, text)
    write_text(results / RANKING, text.getvalue())
    print(text.getvalue(), end="")
    for path, reason in list(board.unreadable.items())[:SHOWN]:
        print(f"Counted as missing: {path}: {reason}", file=sys.stderr)
    if (more := len(board.unreadable) - SHOWN) > 0:
        print(f"Counted as missing: {more} more; the page names all of them.", file=sys.stderr)
    print(f"Page: {results / 'leaderboard' / 'index.html'}")
    if board.outdated:
        raise InfrastructureError(_outdated(board))


def _outdated(board: Board) -> str:
    """Conditions that have changed, the number of runs affected, and the command to repeat them."""
    counts = Counter(name for names in board.outdated.values() for name in names)
    other = ", ".join(f"{name} ({n})" for name, n in counts.most_common())
    again = "`snakemake`; the folder of a run that it does not repeat, move away first"
    if not RUN_CONDITIONS & set(counts):
        again = "`snakemake --forcerun collect_submission`: no agent's run is repeated"
    return (
        f"{len(board.outdated)} of {len(board.entries)} runs were not made or scored as this campaign asks now.\n"
        f"Other than asked: {other}; first: {next(iter(board.outdated))}. Do not compare them.\n"
        f"Repeat them with the options of this call: {again}."
    )
