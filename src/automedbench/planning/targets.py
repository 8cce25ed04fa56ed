"""Targets: the files that a campaign asks for, and names as patterns of wildcards."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from automedbench.base.records import RunId
from automedbench.campaign.load import Campaign
from automedbench.leaderboard.tables.columns import TABLES
from automedbench.planning import inputs
from automedbench.planning.rehearsal import can_be_made_up

TABLE_FORMATS = ("csv", "parquet", "json")


def one_of(names: Iterable[str]) -> str:
    """Regular expression that matches exactly these names; of no names, nothing."""
    return "|".join(sorted(map(re.escape, names))) or "(?!)"


def of_runs(pattern: str, runs: Iterable[RunId]) -> list[str]:
    """``pattern`` with its wildcards filled in for every run."""
    return [_fill(pattern, run) for run in runs]


def manifests(campaign: Campaign, pattern: str) -> list[str]:
    """``pattern`` filled in for every task of the campaign; in a rehearsal, for every task whose data has a fixture."""
    tasks = campaign.tasks
    if campaign.config.fixtures:
        known = {task: can_be_made_up(card.dataset.name) for task, card in campaign.cards.items()}
        if without := [task for task, there in known.items() if not there]:
            print(f"Not rehearsed, as there is no made-up data for it: {', '.join(without)}", file=sys.stderr)
        tasks = [task for task, there in known.items() if there]
    return [pattern.replace("{task}", task) for task in tasks]


def preflights(campaign: Campaign) -> list[str]:
    """Records of every preflight that the campaign needs."""
    return [record for task in campaign.tasks for record in inputs.preflights(campaign, task)]


def leaderboard_tables(campaign: Campaign) -> list[str]:
    """Every table of the leaderboard."""
    folder = f"{campaign.config.results}/leaderboard"
    tables = [f"{folder}/{table}.{suffix}" for table in TABLES for suffix in TABLE_FORMATS]
    return [*tables, f"{folder}/leaderboard.json"]


def scored(campaign: Campaign, score: str) -> list[RunId]:
    """Runs whose file of the pattern ``score`` is there."""
    return [run for run in campaign.runs if Path(_fill(score, run)).exists()]


def lost_files(campaign: Campaign, page: str, score: str, patterns: Iterable[str]) -> list[str]:
    """Files that are not there although something made of them is.

    Snakemake does not look for files between a finished result and its sources: a deleted judge.json, a run whose
    folder was moved away, or scores that a provisional leaderboard lacks would go unnoticed. Asking for them by name
    makes them again, and what depends on them.
    """
    runs = {run: _fill(score, run) for run in campaign.runs}
    done = {run for run, path in runs.items() if Path(path).exists()}
    unscored = [path for run, path in runs.items() if run not in done] if Path(page).exists() else []
    files = [_fill(pattern, run) for run in runs if run in done for pattern in patterns]
    return [*unscored, *[file for file in files if not Path(file).exists()]]


def _fill(pattern: str, run: RunId) -> str:
    return (
        pattern.replace("{agent}", run.agent)
        .replace("{task}", run.task)
        .replace("{tier}", run.tier)
        .replace("{repeat}", str(run.repeat))
    )
