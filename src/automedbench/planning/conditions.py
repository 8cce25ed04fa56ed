"""Conditions that a campaign requests of its runs, in the fields of their scores: the leaderboard compares the two.

Independent of Snakemake: finds what was made elsewhere, by hand, or by a plan that missed something.
"""

from __future__ import annotations

import functools
from pathlib import Path

from automedbench.base.files import hash_json, read_record
from automedbench.base.records import Manifest, RunId
from automedbench.campaign.config import RUBRICS, JudgeConfig
from automedbench.campaign.load import Campaign
from automedbench.judge.rubric import load_rubric
from automedbench.judge.rules import HEURISTIC
from automedbench.leaderboard.conditions import draw_name
from automedbench.planning.versions import image_version
from automedbench.sandbox.evidence.policy import POLICY_VERSION
from automedbench.scoring.run import SCORE_VERSION
from automedbench.tracks import get_track, settings_that_count, track_settings

RUN_CONDITIONS: frozenset[str] = frozenset({"preset", "sandbox", "agent", "image", "task version", "cases", "draw"})
"""Conditions that only a new run of the agent changes."""


def requested_conditions(campaign: Campaign, run: RunId) -> dict[str, object]:
    """Conditions that the run must have; those that are not known here are left out."""
    return _agent_conditions(campaign, run.agent, run.task) | _task_conditions(campaign, run.task)


@functools.cache
def _agent_conditions(campaign: Campaign, agent: str, task: str) -> dict[str, object]:
    if agent not in campaign.agents or task not in campaign.cards:
        return {}
    conditions: dict[str, object] = {"agent": campaign.digest(agent, task)}
    if campaign.config.sandbox.backend == "apptainer":
        conditions["image"] = image_version(campaign, campaign.flavour(agent))
    return conditions


@functools.cache
def _task_conditions(campaign: Campaign, task: str) -> dict[str, object]:
    settings, card = campaign.config, campaign.cards.get(task)
    conditions: dict[str, object] = {
        "preset": settings.preset,
        "sandbox": settings.sandbox.isolation,
        "judge": f"{settings.judge.kind} ({_judge_name(settings.judge)})",
        "audit policy": POLICY_VERSION,
        "score version": SCORE_VERSION,
        "effects": settings.effects,
        "draw": draw_name(settings.cases.draw),
    }
    if card is not None:
        conditions["task version"] = f"{task}.{card.version}"
        conditions["track version"] = f"{card.track}.{get_track(card.track).version}"
        conditions["metric settings"] = hash_json(
            settings_that_count(card.track, track_settings(card).model_dump(mode="json"))
        )
        conditions["rubric version"] = load_rubric(Path(RUBRICS), card.track).version
    manifest = Path(settings.data.manifests, f"{task}.json")
    if manifest.is_file():
        conditions["cases"] = read_record(manifest, Manifest).cases_sha256
    return conditions


def _judge_name(judge: JudgeConfig) -> str:
    """Name of the judge in records."""
    if judge.kind == "heuristic":
        return HEURISTIC
    from automedbench.judge.panel import panel_id

    return panel_id(judge.panel, judge.repeats)
