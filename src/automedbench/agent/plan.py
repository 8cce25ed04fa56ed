"""Plan of one run: what defines it, what must never start, and what follows from it: brief, contract, identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from automedbench.agent.brief import Brief, Setting, write_brief
from automedbench.agent.durable.attempts import Identity
from automedbench.agent.toolbox import Contract
from automedbench.base.cards import Limits, TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.records import Manifest, RunId
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import BudgetConfig, SandboxConfig
from automedbench.sandbox.egress.settings import settings_for

DATA_DIR, WORKSPACE = "/data/public", "/workspace"


@dataclass(frozen=True)
class RunPlan:
    """Everything that defines one run. ``public`` is the folder of all staged tasks, ``folder`` the run's own.

    ``results`` is the campaign's folder with what its runs share: the ledger of costs and the state of endpoints.
    ``cards`` are those of all tasks, whose data sets' homes are refused in the network class proxied; ``raw`` is the
    folder of all raw data, whose receipts tell what must not come in through it.
    """

    run: RunId
    card: TaskCard
    manifest: Manifest
    agent: Agent
    limits: Limits
    sandbox: SandboxConfig
    public: Path
    folder: Path
    prompts: Path
    image: Path | None = None
    results: Path | None = None
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    cards: tuple[TaskCard, ...] = ()
    raw: Path | None = None


def refuse_unsafe(plan: RunPlan) -> None:
    """Raise ConfigError for what must never start, and when card and staged data differ."""
    name = f"agents.{plan.run.agent}"
    problems = []
    if plan.sandbox.backend == "local" and not plan.agent.trusted:
        problems.append(f"{name}: is not trusted, and the sandbox 'local' isolates nothing; use 'apptainer'")
    if plan.card.dataset.access == "credentialed" and "credentialed" not in plan.agent.approved_for:
        problems.append(f"{name}.approved_for: '{plan.card.id}' uses credentialed data; see the card")
    if (plan.manifest.task, plan.manifest.task_version) != (plan.card.id, plan.card.version):
        staged = f"{plan.manifest.task} version {plan.manifest.task_version}"
        problems.append(
            f"manifest: is of {staged}, the card of {plan.card.id} version {plan.card.version}; stage the task again"
        )
    if plan.limits.max_cost_usd is not None and plan.agent.pricing is None:
        problems.append(f"{name}.pricing: is missing, so limits.max_cost_usd cannot be kept")
    if plan.budget.max_cost_usd is not None and plan.agent.paid and plan.agent.pricing is None:
        problems.append(f"{name}.pricing: is missing, so budget.max_cost_usd cannot be kept")
    if plan.budget.max_cost_usd is not None and plan.results is None:
        problems.append("results: is missing, so budget.max_cost_usd cannot be kept; its ledger lies there")
    if plan.run.tier not in plan.card.tiers:
        problems.append(f"{plan.card.id}: has no tier '{plan.run.tier}'")
    if problems:
        raise ConfigError(problems)


def brief_of(plan: RunPlan) -> Brief:
    """The brief of a run. The local sandbox has host paths, which differ per attempt: it shows their variables."""
    local = plan.sandbox.backend == "local"
    egress = plan.sandbox.egress
    setting = Setting(
        data_dir="$DATA_DIR" if local else DATA_DIR,
        workspace_dir="$WORKSPACE" if local else WORKSPACE,
        network="open" if local else plan.sandbox.network,
        gpu=plan.sandbox.gpu,
        limits=plan.limits,
        max_warnings=plan.sandbox.max_warnings,
        reply_tokens=plan.agent.max_tokens,
        native_tools=plan.agent.native_tools,
        command=plan.agent.provider == "command",
        hosts=settings_for(plan.card, plan.cards, allow=egress.allow, deny=egress.deny, hub=egress.hub).reachable,
        hub=egress.hub is not None,
        beside=folders_beside(plan.public / plan.card.id, plan.manifest.case_ids),
    )
    return write_brief(plan.prompts, plan.card, plan.run.tier, plan.manifest.case_ids, setting)


def folders_beside(public: Path, cases: list[str]) -> frozenset[str]:
    """Folders of a staged task that hold files and are no cases; none where nothing is staged."""
    known = set(cases)
    others = [path for path in public.iterdir() if path.name not in known] if public.is_dir() else []
    return frozenset(path.name for path in others if path.is_dir() and any(each.is_file() for each in path.rglob("*")))


def contract_of(card: TaskCard, case_ids: list[str]) -> Contract:
    """The expected files of a task, with the case that each belongs to."""
    per_case = [output.path for output in card.outputs if "{case}" in output.path]
    case_of = {path.replace("{case}", case): case for case in case_ids for path in per_case}
    expected = {path: output for path, output in card.expected_outputs(case_ids).items() if not output.optional}
    return Contract(expected, case_of, len(case_ids))


def identity_of_plan(plan: RunPlan, brief: Brief) -> Identity:
    """What an attempt must answer to be one at this run."""
    return Identity(
        run=plan.run,
        agent_digest=plan.agent.digest(),
        task_version=plan.card.version,
        brief_sha256=brief.sha256,
        cases_sha256=plan.manifest.cases_sha256,
        limits=plan.limits.model_dump(),
    )
