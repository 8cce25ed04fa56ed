"""Inputs that some steps have and others do not: verdicts, preflights, decisions."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.campaign.config import LeaderboardConfig
from automedbench.campaign.load import Campaign
from automedbench.tracks import get_track, track_settings


def answer_verdicts(campaign: Campaign, task: str, run: str) -> list[str]:
    """The answer judge's verdicts on the run in folder ``run``, for tasks whose card asks for one."""
    return [f"{run}/answer_judge.json"] if _judges_answers(campaign, task) else []


def judges_answers(card: TaskCard) -> bool:
    """Whether a model says which open answers mean what the gold says."""
    return bool(track_settings(card).needs_answer_judge)


def cases_shown(shown: LeaderboardConfig, card: TaskCard) -> int:
    """Cases of a run that are shown with their answers; none where access to the data set forbids it."""
    allowed = shown.case_views == "all" or (shown.case_views == "public" and card.dataset.access == "public")
    return shown.cases_shown if allowed else 0


def preflights(campaign: Campaign, task: str) -> list[str]:
    """Record of a task's preflight, for tracks that have one; a rehearsal needs none."""
    needed = not campaign.config.fixtures and get_track(campaign.cards[task].track).preflight is not None
    return [f"{campaign.config.results}/preflight/{task}.json"] if needed else []


def decision(run: str) -> list[str]:
    """An operator's decision on a run's findings, where there is one: the audit is repeated when it changes."""
    path = Path(run, "decision.yaml")
    return [str(path)] if path.is_file() else []


def place(campaign: Campaign, dataset: str) -> str:
    """Where a data set is got other than from its card's sources: the user's own copy, or a rehearsal's stand-in."""
    own = campaign.config.datasets.get(dataset)
    return own.path if own else "made up" if campaign.config.fixtures else ""


def excerpt(campaign: Campaign, task: str) -> str:
    """Says so when there is only a part of a task's data set, which is then staged whole."""
    own = campaign.config.datasets.get(campaign.cards[task].dataset.name)
    return "excerpt" if campaign.config.fixtures or (own and own.excerpt) else ""


def receipt(campaign: Campaign, task: str) -> str:
    """Receipt of the data set of a task."""
    return f"{campaign.config.data.raw}/{campaign.cards[task].dataset.name}/receipt.json"


# Snakemake asks once per planned step; these are looked up once per task.


@functools.cache
def must_stage_again(campaign: Campaign, task: str) -> bool:
    """True when the staged cases are of another version of the task than its card."""
    try:
        staged = json.loads(Path(campaign.config.data.manifests, f"{task}.json").read_bytes())
    except (OSError, ValueError):
        return False
    return bool(staged.get("task_version") != campaign.cards[task].version)


@functools.cache
def _judges_answers(campaign: Campaign, task: str) -> bool:
    return judges_answers(campaign.cards[task])
