"""Show the campaign's progress: runs scored, at work, interrupted and why, money spent, and the next command.

`automedbench` without a command prints this. It reads files only, and can be used while the campaign runs.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.agent.budget.ledger import CampaignLedger, LedgerTotals
from automedbench.agent.durable.attempts import list_attempts
from automedbench.base.endpoint.pacer import list_outages
from automedbench.base.errors import AutoMedBenchError
from automedbench.base.files import read_record
from automedbench.base.plaintable import counted
from automedbench.base.records import RunId, ScoreRecord
from automedbench.campaign.load import Campaign
from automedbench.commands._campaign import add_campaign_options, describe_options, find_other_results, select_campaign
from automedbench.commands._output import show
from automedbench.judge.evidence import neutralise
from automedbench.planning.forecast import spent_line
from automedbench.planning.heads import find_holder
from automedbench.planning.load import DEFAULT, is_configured

State = Literal["scored", "at work", "finished, not scored", "interrupted", "not begun"]
STATES: tuple[State, ...] = ("scored", "at work", "finished, not scored", "interrupted", "not begun")
MAX_RUNS = 5
WIDTH = 150


@dataclass(frozen=True)
class RunState:
    """Progress of a run; ``why``: the end of the last attempt of an interrupted one."""

    state: State
    why: str = ""
    failed: bool = False
    """It is scored, and has no complete final submission."""
    disqualified: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign."""
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print it; raises ConfigError when the campaign is wrong."""
    campaign = select_campaign(options)
    found = {run: read_state(Path(campaign.config.results, "runs", run.path)) for run in campaign.runs}
    totals = CampaignLedger(Path(campaign.config.results, "ledger")).totals()
    staged = sum(Path(campaign.config.data.manifests, f"{task}.json").is_file() for task in campaign.tasks)
    command = next_command(options, found, staged == len(campaign.tasks))
    page, same = Path(campaign.config.results, "leaderboard/index.html"), describe_options(options)
    other = None if same else find_other_results(Path(campaign.config.results))
    lines = [
        *status_lines(campaign, found, totals, staged),
        *([f"Page: {page}"] if page.is_file() else []),
        *([f"Another campaign is in {other}: automedbench --results {other}"] if other else []),
        f"Next: {command}",
    ]
    show(options, as_json(found, totals, command), lines)


def read_state(folder: Path) -> RunState:
    """Read the progress of the run in ``folder``; an unreadable record counts as missing."""
    try:
        score = read_record(folder / "score.json", ScoreRecord)
        return RunState("scored", failed=score.failed, disqualified=score.disqualified)
    except AutoMedBenchError:
        pass
    if find_holder(folder / "lease.json"):
        return RunState("at work")
    attempts = list_attempts(folder)
    if not attempts:
        return RunState("not begun")
    if attempts[-1].sealed:
        return RunState("finished, not scored")
    try:
        failures = attempts[-1].failures()
    except AutoMedBenchError:
        failures = []
    return RunState("interrupted", failures[-1].message.partition("\n")[0] if failures else "its process was killed")


def status_lines(
    campaign: Campaign, found: Mapping[RunId, RunState], totals: LedgerTotals, staged: int
) -> Iterator[str]:
    """Counts, reasons of interrupted runs, what was spent."""
    counts = Counter(each.state for each in found.values())
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    n_agents = len({run.agent for run in found})
    yield (
        f"{campaign.config.results}: {counted(len(found), 'run')} of {counted(n_agents, 'agent')} on "
        f"{counted(len(campaign.tasks), 'task')}: {states}."
    )
    marks = {
        "without a complete submission": sum(each.failed and not each.disqualified for each in found.values()),
        "disqualified": sum(each.disqualified for each in found.values()),
    }
    if marks := {name: count for name, count in marks.items() if count}:
        yield f"Of the scored ones {' and '.join(f'{count} {name}' for name, count in marks.items())}."
    if counts["at work"]:
        for outage in list_outages(Path(campaign.config.results, "endpoints")):
            yield f"Waiting: {outage}."
    if staged < len(campaign.tasks):
        yield f"Data: {staged} of {counted(len(campaign.tasks), 'task')} staged."
    stopped = [(run, each) for run, each in found.items() if each.state == "interrupted"]
    for run, each in stopped[:MAX_RUNS]:
        yield f"  {run.path}: {neutralise(each.why)[:WIDTH]}"
    if len(stopped) > MAX_RUNS:
        yield f"  … and {len(stopped) - MAX_RUNS} more"
    if totals.runs:
        yield spent_line(totals.all)


def next_command(options: argparse.Namespace, found: Mapping[RunId, RunState], staged: bool) -> str:
    """Next command for the campaign that the options name."""
    named = describe_options(options)
    same = "" if named in ("", f"--configfile {DEFAULT}") else f" {named}"
    left = [each.state for each in found.values() if each.state != "scored"]
    if not left:
        return f"automedbench verify --all{same} (checks each score back to its raw data)"
    if same and not is_configured(options):
        return f"{_unfinished(left, len(found), staged, ' --configfile FILE')}; FILE: this campaign's configuration"
    return _unfinished(left, len(found), staged, same)


def _unfinished(left: Sequence[str], planned: int, staged: bool, same: str) -> str:
    """Next command where runs are ``left``, by their states; ``same``: options for the campaign."""
    if not staged:
        return f"snakemake prepare{same} (fetches and stages data), then snakemake{same}"
    if all(state == "at work" for state in left):
        return f"wait; snakemake partial{same} shows what is finished"
    begun = len(left) < planned
    partial = f"; snakemake partial{same} shows what is finished" if begun else ""
    return f"snakemake{same} ({'goes on; what is finished is not repeated' if begun else 'begins'}){partial}"


def as_json(found: Mapping[RunId, RunState], totals: LedgerTotals, command: str) -> dict[str, Any]:
    """Everything for a program; money as decimal strings."""
    counts = Counter(each.state for each in found.values())
    return {
        "runs": {run.path: vars(each) for run, each in found.items()},
        "counts": {state: counts[state] for state in STATES},
        "spent_usd": str(totals.all.spent),
        "reserved_usd": str(totals.all.reserved),
        "next": command,
    }
