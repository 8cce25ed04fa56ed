"""One run: an agent does a task once. What was interrupted continues where it stopped."""

from __future__ import annotations

import functools
from pathlib import Path

from automedbench.agent import run as agent_run
from automedbench.agent.plan import RunPlan
from automedbench.base.cards import find_cards, load_card
from automedbench.base.checkpoints import load_checkpoints
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import Manifest, RunId, RunRecord
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.agents import Agent, load_campaign_agents
from automedbench.campaign.config import PROMPTS, CampaignConfig
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.container.image import record_beside
from automedbench.sandbox.container.layer import find_layer
from automedbench.steps.invalid_count import count_invalid

LEAKS_SHOWN = 5


def run_agent(campaign: CampaignRecord, run: Path) -> RunRecord:
    """Fill the folder of a run: brief, attempts, workspace, log, conversation and ``run.json``.

    Raises ConfigError when the run must not start and InfrastructureError when the machine or the endpoint fails.
    """
    plan = plan_of_run(campaign, run)
    refuse_answers(campaign, plan)
    check = functools.partial(
        count_invalid,
        campaign.card_path(plan.card.id),
        campaign.manifest(plan.card.id),
        plan.run,
        backend=plan.sandbox.backend,
        image=campaign.scorer_image,
    )
    return agent_run.run_agent(plan, count_invalid=check)


def refuse_answers(campaign: CampaignRecord, plan: RunPlan) -> None:
    """Raise ConfigError when what the agent is given has answers of the task, MissingDataError when it is gone."""
    if plan.skills is None:
        return
    if not plan.skills.is_dir():
        raise MissingDataError(f"{plan.skills} is not a folder.\nCheck the treatments of the configuration.")
    from automedbench.datasets.leaks import StagedTask
    from automedbench.datasets.leaks.skills import find_answers

    card, data = plan.card, campaign.settings.data
    raw, public, private = Path(data.raw) / card.dataset.name, Path(data.public) / card.id, Path(data.private) / card.id
    plan.manifest.require("private", private)
    found = list(find_answers(plan.skills, StagedTask(card, raw, public, private, plan.manifest.cases)))
    if found:
        shown = [f"{plan.skills}: {each}" for each in found[:LEAKS_SHOWN]]
        rest = [f"and {more} more places"] if (more := len(found) - LEAKS_SHOWN) > 0 else []
        raise ConfigError(
            [f"agents.{plan.run.agent}: the folder of its treatment gives answers of {card.id} away", *shown, *rest]
        )


def plan_of_run(campaign: CampaignRecord, folder: Path) -> RunPlan:
    """Plan of the run in ``folder``; raises ConfigError for an unknown name, MissingDataError without a layer."""
    return plan_with_manifest(campaign, campaign.run_files(folder).run, folder)


def plan_with_manifest(campaign: CampaignRecord, run: RunId, folder: Path, manifest: Manifest | None = None) -> RunPlan:
    """``plan_of_run``, on the cases of ``manifest`` where they are not staged: its brief is the one that a run gets.

    Such a plan starts nothing, so the agent's layer need not be built.
    """
    settings, card = campaign.settings, campaign.card(run.task)
    agent, has_egress = _find_agent(settings, run.agent), settings.sandbox.has_egress
    file = settings.image(settings.flavour(agent.image))
    image = Path(file) if file else None
    holds = record_beside(image) if image else None
    return RunPlan(
        run=run,
        card=card,
        manifest=manifest or read_record(campaign.manifest(run.task), Manifest),
        agent=agent.for_task(card),
        limits=campaign.limits(card, agent),
        sandbox=settings.sandbox,
        public=Path(settings.data.public),
        folder=folder,
        prompts=Path(PROMPTS),
        image=image,
        holds=holds,
        layer=find_layer(image.parent, agent.layer, holds) if image and agent.layer and not manifest else None,
        results=campaign.results,
        scratch=settings.scratch,
        draw=settings.cases.draw,
        effects=settings.effects,
        preset=settings.preset,
        budget=settings.budget,
        raw=Path(settings.data.raw) if has_egress else None,
        cards=tuple(load_card(path) for path in find_cards(settings.cards)) if has_egress else (),
        models=tuple(url for each in load_checkpoints().values() for url in each.urls) if has_egress else (),
    )


def _find_agent(settings: CampaignConfig, name: str) -> Agent:
    agents = load_campaign_agents(settings)
    if name not in agents:
        raise ConfigError([f"{settings.agents_file}: agents: unknown agent '{name}'{suggestion(name, list(agents))}"])
    return agents[name]
