"""Targets: the files that a campaign asks for, names as patterns of wildcards, and inputs that some steps have.

Such inputs are verdicts, preflights and decisions.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from automedbench.base.checkpoints import load_checkpoints
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record
from automedbench.base.records import Manifest, Receipt, RunId
from automedbench.campaign.load import Campaign
from automedbench.leaderboard.tables.columns import OCCASIONAL, TABLES
from automedbench.planning.rehearsal import has_stand_in
from automedbench.tracks import get_track, judges_answers

CHECKED_FILES = 50
"""Staged files of a task that planning checks; the run itself checks all."""


def match_any(names: Iterable[str]) -> str:
    """Regular expression that matches exactly these names; of no names, nothing."""
    return "|".join(sorted(map(re.escape, names))) or "(?!)"


def fill_pattern(pattern: str, runs: Iterable[RunId]) -> list[str]:
    """``pattern`` with its wildcards filled in for every run."""
    return [_fill(pattern, run) for run in runs]


def manifests(campaign: Campaign, pattern: str) -> list[str]:
    """``pattern`` filled in for every task of the campaign; in a rehearsal, for every task whose data has a fixture."""
    tasks = campaign.tasks
    if campaign.config.fixtures:
        known = {task: has_stand_in(card.dataset.name) for task, card in campaign.cards.items()}
        if without := [task for task, there in known.items() if not there]:
            print(f"Not rehearsed, because there is no made-up data for it: {', '.join(without)}", file=sys.stderr)
        tasks = [task for task, there in known.items() if there]
    return [pattern.replace("{task}", task) for task in tasks]


def images(campaign: Campaign, names: Iterable[str]) -> list[str]:
    """Records of images, which lie beside them; none for the local sandbox."""
    return [f"{campaign.config.containers.folder}/{name}.json" for name in names if name in campaign.images]


def all_preflights(campaign: Campaign) -> list[str]:
    """Records of every preflight that the campaign needs."""
    return [record for task in campaign.tasks for record in preflights(campaign, task)]


def lite_tasks(campaign: Campaign) -> list[str]:
    """Tasks with a run in the lite tier that a public checkpoint is known for."""
    lite = dict.fromkeys(run.task for run in campaign.runs if run.tier == "lite")
    known = {task for checkpoint in load_checkpoints().values() for task in checkpoint.tasks} if lite else set()
    return [task for task in lite if task in known]


def list_cache_records(campaign: Campaign, record: str) -> list[str]:
    """Record of the filled cache, where there is one and something to put into it; a rehearsal needs none."""
    egress, rehearsed = campaign.config.sandbox.egress, campaign.config.fixtures
    wanted = [*egress.models, *egress.packages, *lite_tasks(campaign)]
    used = egress.cache is not None and campaign.config.sandbox.has_egress and not rehearsed
    return [record] if used and wanted else []


def leaderboard_tables(campaign: Campaign) -> list[str]:
    """Every table of the leaderboard."""
    folder = f"{campaign.config.results}/leaderboard"
    tables = [
        f"{folder}/{table}.{suffix}" for table in TABLES if table not in OCCASIONAL for suffix in ("csv", "parquet")
    ]
    return [*tables, f"{folder}/leaderboard.json"]


def list_scored_runs(campaign: Campaign, score: str) -> list[RunId]:
    """Runs whose file of the pattern ``score`` exists."""
    return [run for run in campaign.runs if Path(_fill(score, run)).exists()]


def list_lost_files(campaign: Campaign, page: str, score: str, patterns: Iterable[str]) -> list[str]:
    """Missing files of which something was made.

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
    return pattern.format(agent=run.agent, task=run.task, tier=run.tier, repeat=run.repeat)


def answer_verdicts(campaign: Campaign, task: str, run: str) -> list[str]:
    """The answer judge's verdicts on the run in folder ``run``, for tasks whose card asks for one."""
    return [f"{run}/answer_judge.json"] if _judges_answers(campaign, task) else []


def preflights(campaign: Campaign, task: str) -> list[str]:
    """Record of a task's preflight, for tracks that have one."""
    needed = get_track(campaign.cards[task].track).preflight is not None
    return [f"{campaign.config.results}/preflight/{task}.json"] if needed else []


def decision(run: str) -> list[str]:
    """An operator's decision on a run's findings, where there is one: the audit is repeated when it changes."""
    path = Path(run, "decision.yaml")
    return [str(path)] if path.is_file() else []


def place(campaign: Campaign, dataset: str) -> str:
    """Source of a data set other than its card's: the user's own copy, or a rehearsal's stand-in."""
    own = campaign.config.datasets.get(dataset)
    return own.path if own else "made up" if campaign.config.fixtures else ""


def excerpt(campaign: Campaign, task: str) -> str:
    """Mark of a task of whose data set there is a part only, which is then staged whole; else empty."""
    own = campaign.config.datasets.get(campaign.cards[task].dataset.name)
    return "excerpt" if campaign.config.fixtures or (own and own.excerpt) else ""


def receipt(campaign: Campaign, task: str) -> str:
    """Receipt of the data set of a task."""
    return f"{campaign.config.data.raw}/{campaign.cards[task].dataset.name}/receipt.json"


@functools.cache
def is_staged_data_missing(campaign: Campaign, task: str, checked_files: int | None = CHECKED_FILES) -> bool:
    """True when a task has a manifest, but not its staged files: file systems purge what is old, each file by itself.

    ``checked_files``: number of files, spread over all of them; None: all.
    """
    data = campaign.config.data
    try:
        staged = read_record(Path(data.manifests, f"{task}.json"), Manifest)
    except InfrastructureError:
        return False
    sides = staged.files("inputs", Path(data.public, task)) | staged.files("private", Path(data.private, task))
    return _is_any_missing(list(sides), checked_files)


@functools.cache
def is_raw_data_missing(campaign: Campaign, task: str) -> bool:
    """True when a task has a receipt, but not all of its raw data."""
    path = Path(receipt(campaign, task))
    try:
        known = read_record(path, Receipt)
    except InfrastructureError:
        return False
    return _is_any_missing([path.parent / name for name in known.files], None)


def _is_any_missing(files: Sequence[Path], checked_files: int | None) -> bool:
    step = 1 if checked_files is None else max(1, len(files) // checked_files)
    return any(_is_missing(path) for path in [*files[::step], *files[-1:]])


def _is_missing(path: Path) -> bool:
    """True for a path that does not exist; one that this user may not read exists."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


@functools.cache
def _judges_answers(campaign: Campaign, task: str) -> bool:
    return judges_answers(campaign.cards[task])
