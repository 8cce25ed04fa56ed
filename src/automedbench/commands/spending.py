"""Report spent and reserved money per agent and task, from the campaign's ledger, and GPU hours.

Requests that failed are in it when the provider reported their tokens; judges are not.
"""

from __future__ import annotations

import argparse
import functools
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from automedbench.agent.budget.ledger import CampaignLedger, LedgerTotals, Position
from automedbench.agent.budget.used import read_use
from automedbench.base.plaintable import table
from automedbench.base.records import Used
from automedbench.campaign.prices import format_money
from automedbench.commands._campaign import add_campaign_options, find_results
from automedbench.commands._output import show
from automedbench.planning.forecast import spent_line, usd_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: where the results are."""
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print the table; raises MissingDataError when there is no such folder."""
    results = find_results(options)
    gpus = read_use(results, gpus=1)
    books = CampaignLedger(results / "ledger").totals()
    totals = replace(books, runs=dict.fromkeys(sorted({*books.runs, *gpus}), Position()) | books.runs)
    show(options, as_json(totals, gpus), spending_lines(totals, gpus))


def spending_lines(totals: LedgerTotals, gpus: Mapping[str, Used]) -> list[str]:
    """The ledger's sums as a table, a sum line, and what is wrong with the ledger; GPU hours where there are some."""
    if not totals.runs:
        return ["Nothing was spent or reserved yet."]
    held: dict[str, Used] = {}
    for run, used in gpus.items():
        name = "/".join(run.split("/")[:2])
        held[name] = held[name] + used if name in held else used
    everything = functools.reduce(operator.add, held.values()) if held else None
    rows = [(*_row(name, position), *_hours(held.get(name))) for name, position in totals.by_agent_and_task().items()]
    head = ("agent/task", "USD spent", "reserved", "in doubt", "tokens", "requests", "GPU hours", "computing")
    sums = [(*_row("all", totals.all), *_hours(everything))] if len(rows) > 1 else []
    damages = [f"The ledger is damaged: {problem}." for problem in totals.problems]
    away = f"Of this, {usd_text(totals.moved.spent)} USD by attempts whose folders were moved away or removed."
    moved = [away] if totals.moved.requests else []
    width = len(head) if held else len(head) - 2
    lines = table([line[:width] for line in (head, *rows, *sums)], right=range(1, width))
    return [*lines, spent_line(totals.all), *_idle_lines(everything), *moved, *damages]


def _idle_lines(used: Used | None) -> list[str]:
    """How long GPUs were held for each second in which they computed, and the longest time in which one did not."""
    lines = []
    if used is not None and used.gpu_held_s and used.gpu_busy_s:
        lines.append(f"GPUs were held {used.gpu_held_s / used.gpu_busy_s:.2f} times as long as they computed.")
    if used is not None and used.gpu_idle_s is not None:
        lines.append(f"The longest time in which a GPU did not compute: {used.gpu_idle_s / 60:.1f} minutes.")
    return lines


def _hours(used: Used | None) -> tuple[str, str]:
    """GPU hours held, and of these computing, as far as the cards' driver tells."""
    seconds = (used.gpu_held_s, used.gpu_busy_s) if used else (0.0, 0.0)
    held, busy = ("unknown" if each is None else f"{each / 3600:,.2f}" for each in seconds)
    return held, busy


def as_json(totals: LedgerTotals, gpus: Mapping[str, Used]) -> dict[str, Any]:
    """Per run: decimal strings and counts, and seconds of GPUs; null: none held, or not known."""
    runs = {
        run: {
            "spent_usd": format_money(position.spent),
            "reserved_usd": format_money(position.reserved),
            "doubtful_usd": format_money(position.doubtful),
            "tokens": position.tokens,
            "requests": position.requests,
            "unpriced_requests": position.unpriced,
            "gpu_held_s": gpus.get(run, Used()).gpu_held_s,
            "gpu_busy_s": gpus.get(run, Used()).gpu_busy_s,
            "gpu_idle_s": gpus.get(run, Used()).gpu_idle_s,
        }
        for run, position in totals.runs.items()
    }
    return {"runs": runs, "problems": totals.problems}


def _row(name: str, position: Position) -> tuple[str, ...]:
    unknown = position.requests > 0 and position.unpriced == position.requests
    return (
        name,
        "unknown" if unknown else usd_text(position.spent) + " + unknown" * bool(position.unpriced),
        usd_text(position.reserved),
        usd_text(position.doubtful),
        f"{position.tokens:,}",
        f"{position.requests:,}",
    )
