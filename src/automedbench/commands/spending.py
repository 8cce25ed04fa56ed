"""What the campaign has spent and reserved, per agent and task, from its ledger.

Requests that failed are in it when the provider reported their tokens; judges are not.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from automedbench.agent.budget.ledger import CampaignLedger, LedgerTotals, Position
from automedbench.base.errors import MissingDataError
from automedbench.base.plaintable import table
from automedbench.campaign.agents import as_money
from automedbench.planning.forecast import spent_line, usd_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: where the results are."""
    parser.add_argument("--results", type=Path, default=Path("results"), help="the campaign's results folder")
    parser.add_argument("--json", action="store_true", help="exact numbers for a program, one object per run")


def main(options: argparse.Namespace) -> None:
    """Print the table; raises MissingDataError when there is no such folder."""
    if not options.results.is_dir():
        raise MissingDataError(f"{options.results} is no folder.\nGive the campaign's results folder with --results.")
    totals = CampaignLedger(options.results / "ledger").totals()
    print(as_json(totals) if options.json else "\n".join(spending_lines(totals)))


def spending_lines(totals: LedgerTotals) -> list[str]:
    """The ledger's sums as a table, a sum line, and what is wrong with the ledger."""
    rows = [_row(name, position) for name, position in totals.by_agent_and_task().items()]
    if not rows:
        return ["Nothing was spent or reserved yet."]
    head = ("agent/task", "USD spent", "reserved", "in doubt", "tokens", "requests")
    sums = [_row("all", totals.all)] if len(rows) > 1 else []
    damages = [f"The ledger is damaged: {problem}." for problem in totals.problems]
    return [*table([head, *rows, *sums], right=range(1, 6)), spent_line(totals.all), *damages]


def as_json(totals: LedgerTotals) -> str:
    """Per run: decimal strings and counts."""
    runs = {
        run: {
            "spent_usd": as_money(position.spent),
            "reserved_usd": as_money(position.reserved),
            "doubtful_usd": as_money(position.doubtful),
            "tokens": position.tokens,
            "requests": position.requests,
            "unpriced_requests": position.unpriced,
        }
        for run, position in totals.runs.items()
    }
    return json.dumps({"runs": runs, "problems": totals.problems}, indent=2, sort_keys=True)


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
