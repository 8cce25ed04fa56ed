"""Every task of the benchmark: its data, how one gets access, what is ready; `tasks show ID`: one of them in full.

`ready` is the furthest that the data has come: staged, fetched, an own copy (datasets.<name>.path), to be downloaded
without being asked, variables with credentials that are to be set, or steps to be taken by hand (`tasks show ID`).
`made up`: a fixture lies where the data should; delete its folder below data.raw. `open`: facts and questions that
wait for an answer. In a narrow terminal the table is wrapped, tracks become headings, and `access` is left out; what is
written to a file or pipe is whole, one line per task.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.plaintable import GAP, counted, table
from automedbench.base.records import TIERS, Tier
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.load import Campaign
from automedbench.planning.command_line import add_campaign_options, campaign_of
from automedbench.planning.task_list import TaskRow, card_lines, list_tasks, open_lines, staged_cases

REPLY_TOKENS = 8192
"""Length of a reply that the brief speaks of; each agent has its own."""
FEW = 3
"""Cases named where a card takes all that there are."""
HEAD = ("track", "task", "access", "ready", "cases", "GB", "open")
HEADS = dict(zip(HEAD, HEAD, strict=True))
RIGHT = ("cases", "GB", "open")
FORMS = ((HEAD, False), (HEAD, True), (HEAD[1:], True), (("task", *HEAD[3:]), True))
"""Columns of the table, and whether `ready` is wrapped: the first form that fits into the terminal is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: one card, or a slice of the list; which campaign's folders are looked at."""
    below = parser.add_subparsers(metavar="show")
    show = below.add_parser("show", help="one card with its brief", description="One card with the brief of a tier.")
    show.add_argument("task", metavar="ID", help="the task's id")
    show.add_argument("--tier", choices=TIERS, default="lite", help="of the brief (lite)")
    add_campaign_options(show)
    parser.add_argument("--track", help="only tasks of this track")
    parser.add_argument(
        "--open-questions", action="store_true", help="open questions: proposals, unknown facts, unpublished numbers"
    )
    parser.set_defaults(task=None)
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print list, questions or card; raises ConfigError for an unknown task or track, or a wrong campaign."""
    campaign = campaign_of(options)
    if options.task is not None:
        print("\n".join(_shown(campaign, options.task, options.tier)))
        return
    cards = _of_track(campaign.cards, options.track)
    if options.open_questions:
        print("\n".join(open_lines(cards)) or "No question is open.")
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(_listed([row for row in list_tasks(campaign, os.environ) if row.id in cards], width)))


def _of_track(cards: dict[str, TaskCard], track: str | None) -> dict[str, TaskCard]:
    tracks = sorted({card.track for card in cards.values()})
    if track is not None and track not in tracks:
        raise ConfigError([f"--track: no task is of '{track}'{suggestion(track, tracks)}"])
    return {name: card for name, card in cards.items() if track in (None, card.track)}


def _listed(rows: list[TaskRow], width: int | None = None) -> list[str]:
    """The table and what it adds up to, for a terminal of ``width`` columns; None: nothing is wrapped or left out."""
    lines: list[str] = []
    for columns, wrapped in FORMS:
        lines = _table(rows, columns, width if wrapped else None)
        if width is None or max(map(len, lines)) <= width:
            break
    staged = sum(row.state == "staged" for row in rows)
    total = sum({row.dataset: row.download_gb or 0.0 for row in rows}.values())
    told = (
        f"{counted(len(rows), 'task')}, {staged} staged; downloads of {total:,.0f} GB where sizes are known. "
        "`automedbench tasks show ID` tells how to get one."
    )
    return [*lines, "", *([told] if width is None else textwrap.wrap(told, width))]


def _table(rows: list[TaskRow], columns: Sequence[str], width: int | None) -> list[str]:
    """A line for each task, and more where ``ready`` is wrapped to ``width``; tracks without a column are headings."""
    cells = [_cells(row) for row in rows]
    room = None
    if width is not None:
        others = sum(max(len(each[name]) for each in [HEADS, *cells]) for name in columns if name != "ready")
        room = width - others - len(GAP) * (len(columns) - 1) - (0 if "track" in columns else len(GAP))
    lines, tracks = [list(columns)], [""]
    for each in cells:
        wrapped = _wrapped(each["ready"], room)
        for place, ready in enumerate(wrapped):
            shown = {**(each if place == 0 else dict.fromkeys(HEAD, "")), "ready": ready}
            lines.append([shown[name] for name in columns])
            tracks.append(each["track"])
    right = {columns.index(name) for name in RIGHT}
    told = table(lines, right=right)
    if "track" in columns:
        return told
    headed: list[str] = []
    for track, before, line in zip(tracks, ["", *tracks], told, strict=False):
        headed += [track] if track != before else []
        headed.append(f"{GAP}{line}")
    return headed


def _cells(row: TaskRow) -> dict[str, str]:
    return {
        "track": row.track,
        "task": row.id,
        "access": row.access,
        "ready": row.ready,
        "cases": "all" if row.cases is None else str(row.cases),
        "GB": "" if row.download_gb is None else f"{row.download_gb:g}",
        "open": str(row.n_open),
    }


def _wrapped(text: str, room: int | None) -> list[str]:
    """The text in lines of ``room`` characters, names of variables whole."""
    if room is None:
        return [text]
    longest = max(map(len, text.split()))
    return textwrap.wrap(text, max(room, longest), break_long_words=False, break_on_hyphens=False)


def _shown(campaign: Campaign, task: str, tier: Tier) -> list[str]:
    cards = campaign.cards
    if task not in cards:
        raise ConfigError([f"no task '{task}'{suggestion(task, list(cards))}"])
    return [*card_lines(cards[task]), "", *_brief(campaign, cards[task], tier)]


def _brief(campaign: Campaign, card: TaskCard, tier: Tier) -> list[str]:
    """The brief as a model of the campaign gets it; cases are named as staging names them, or has."""
    from automedbench.agent.plan import Setting, folders_beside, write_brief
    from automedbench.datasets.sampling import case_ids

    if tier not in card.tiers:
        return [f"The task has no tier {tier}: {', '.join(card.tiers)}."]
    sandbox = campaign.config.sandbox
    staged = staged_cases(campaign, card)
    public = Path(campaign.config.data.public, card.id)
    setting = Setting(
        data_dir="/data/public",
        workspace_dir="/workspace",
        network=sandbox.network,
        gpu=sandbox.gpu,
        limits=card.limits.model_copy(update=campaign.config.limits),
        max_warnings=sandbox.max_warnings,
        reply_tokens=REPLY_TOKENS,
        hosts=tuple(sandbox.egress.allow),
        hub=sandbox.egress.hub is not None,
        beside=None if staged is None else folders_beside(public, staged),
    )
    cases = staged or case_ids(card.staging.case_prefix, card.staging.sampling.count or FEW)
    brief = write_brief(Path("config/prompts"), card, tier, cases, setting)
    return [f"--- the brief of tier {tier} ---", "", brief.system, "", "--- first message ---", "", brief.kickoff]
