"""Versions: what must repeat a step is in the version of its rule; a changed one repeats exactly the steps it touches.

Limits and places are in none, so that raising a limit half-way never repeats what is paid for.
"""

from __future__ import annotations

import functools
from pathlib import Path

from automedbench.base.checkpoints import load_checkpoints
from automedbench.base.code import code_digest
from automedbench.base.files import hash_json
from automedbench.campaign.config import RUBRICS, SandboxConfig
from automedbench.campaign.load import Campaign
from automedbench.judge.prompt import PROMPT_VERSION
from automedbench.judge.rubric import load_rubric
from automedbench.judge.rules import HEURISTIC
from automedbench.planning import targets
from automedbench.sandbox.container.image import recipe_digest
from automedbench.sandbox.evidence.policy import POLICY_VERSION
from automedbench.scoring.codes import CODES_VERSION
from automedbench.scoring.effect import EFFECT_VERSION
from automedbench.scoring.run import SCORE_VERSION
from automedbench.tracks import get_track

USUAL = SandboxConfig().isolation


def source_version(campaign: Campaign, dataset: str) -> str:
    """Identity of where raw data comes from: the card's sources, the user's own copy, or a rehearsal's stand-in."""
    card = next(card for card in campaign.cards.values() if card.dataset.name == dataset)
    return hash_json([card.dataset.model_dump(mode="json", include={"sources"}), targets.place(campaign, dataset)])


@functools.cache
def staging_version(campaign: Campaign, task: str) -> str:
    """Identity of a task's staged data."""
    card = campaign.cards[task]
    # Some tracks prepare references that their metric is measured against.
    staged = {name: card.metric.settings.get(name) for name in get_track(card.track).staged_settings}
    parts = card.model_dump(mode="json", include={"id", "version", "staging", "inputs", "outputs", "targets"})
    draw = campaign.config.cases.draw
    return hash_json([parts, staged] if draw is None else [parts, staged, draw])


@functools.cache
def run_version(campaign: Campaign, agent: str, task: str) -> str:
    """Identity of an agent's work: its behaviour, the task's version, its image, the network."""
    version = f"{campaign.digest(agent, task)}-v{campaign.cards[task].version}"
    if not campaign.images:
        return version
    image, isolation = image_version(campaign, campaign.flavour(agent)), campaign.config.sandbox.isolation
    # Runs under the usual one, finished before it was a part of this, are not paid for again.
    return f"{version}-{image}" if isolation == USUAL else f"{version}-{image}-{isolation}"


@functools.cache
def image_version(campaign: Campaign, image: str) -> str:
    """Identity of what an image holds beside its base."""
    settings = campaign.config
    return recipe_digest(Path(settings.definition(image)), Path(settings.requirements(image)))


@functools.cache
def scoring_version(campaign: Campaign, task: str) -> str:
    """Identity of how a task is checked and scored."""
    card, track = campaign.cards[task], get_track(campaign.cards[task].track)
    settings = card.model_dump(mode="json", include={"version", "targets", "outputs", "metric", "medals"})
    image = image_version(campaign, "scorer") if campaign.images else None
    resources = campaign.config.resources if track.preflight is not None else None
    return hash_json([settings, track.version, image, resources])


def grading_version(campaign: Campaign, task: str) -> str:
    """Identity of how a task's submissions are scored and the effect of the case on them is measured."""
    return f"{scoring_version(campaign, task)}-effect{EFFECT_VERSION}"


@functools.cache
def preflight_version(campaign: Campaign, task: str) -> str:
    """Identity of what a task's scorer needs and of where it is."""
    return hash_json([scoring_version(campaign, task), campaign.config.resources])


def cache_version(campaign: Campaign) -> str:
    """Identity of what the cache is filled with."""
    egress, tasks = campaign.config.sandbox.egress, set(targets.lite_tasks(campaign))
    known = load_checkpoints().values() if tasks else ()
    sources = [each.model_dump(mode="json", include={"source"}) for each in known if tasks & set(each.tasks)]
    return hash_json([sources, egress.models, egress.packages, egress.cache])


@functools.cache
def answer_judge_version(campaign: Campaign, task: str) -> str:
    """Identity of the answer judge and of the answers that it judges."""
    judge = campaign.config.answer_judge
    return hash_json([judge.model_dump(mode="json") if judge else None, scoring_version(campaign, task)])


@functools.cache
def judge_version(campaign: Campaign, track: str) -> str:
    """Identity of judge and rubric."""
    panel = [judge.digest() for judge in campaign.judges.values()]
    version = hash_json([panel, campaign.config.judge.repeats, PROMPT_VERSION])[:12]
    rubric = load_rubric(Path(RUBRICS), track).version
    return f"{version if panel else HEURISTIC}-rubric{rubric}-{campaign.config.effects}"


def policy_version(campaign: Campaign) -> str:
    """Identity of the audit's rules."""
    return f"policy{POLICY_VERSION}-{campaign.config.sandbox.max_warnings}"


def score_version(campaign: Campaign) -> str:
    """Identity of how a run's numbers are put together and its error codes found."""
    return f"score{SCORE_VERSION}-codes{CODES_VERSION}-{campaign.config.effects}"


def plan_version(campaign: Campaign) -> str:
    """Identity of the plan: which runs, and what the leaderboard says about their agents."""
    agents = {name: campaign.agents[name] for name in campaign.takes_part}
    shown = {name: [agent.provider, agent.model] for name, agent in sorted(agents.items())}
    return hash_json([shown, [run.path for run in campaign.runs], campaign.config.judge.kind, campaign.config.preset])


def present_code_version() -> str:
    """Identity of all code and rubrics, for what is made again to see what they would say now."""
    return code_digest(Path(RUBRICS))
