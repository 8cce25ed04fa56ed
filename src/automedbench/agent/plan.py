"""Plan of one run: what defines it, what must never start, and what follows from it: brief, contract, identity.

The brief is all text that an agent is given before its first turn, from small blocks in one order for all tracks:
``config/prompts/*.md`` (Jinja, every placeholder must be filled); the track's own part is
``config/prompts/tracks/<track>.md``, or ``_default.md`` there where the card alone says everything. Texts of a card are
inserted as they are, never read as templates.

What a tier gives away lies in ``config/prompts/hints``: ``lite/<route>/`` holds hints for S1 to S3 with code that loads
the given model, and its pinned ``requirements.txt``, which is put into the workspace; ``standard/<track>/`` holds hints
for S1 and S3; pro has none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automedbench.agent.budget.limits import NOTICE_AT
from automedbench.agent.durable.attempts import Identity
from automedbench.agent.faults import PlantedFault
from automedbench.agent.loop import MAX_LENGTH_STOPS
from automedbench.agent.toolbox import Contract
from automedbench.agent.tools import MAX_CALLS
from automedbench.base.cards import Limits, TaskCard
from automedbench.base.effects import NO_EFFECT
from automedbench.base.errors import ConfigError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import EffectRule, Manifest, RunId, Tier
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import BudgetConfig, SandboxConfig
from automedbench.sandbox.container.image import ImageRecord
from automedbench.sandbox.container.layer import Layer
from automedbench.sandbox.container.streams import HEAD_BYTES, TAIL_BYTES
from automedbench.sandbox.egress.rules import NO_INDEX, EgressSettings, PackageIndex, build_settings
from automedbench.sandbox.places import DATA_DIR, SKILLS_DIR, WORKSPACE

if TYPE_CHECKING:
    import jinja2


@dataclass(frozen=True)
class RunPlan:
    """Everything that defines one run. ``public`` is the folder of all staged tasks, ``folder`` the run's own.

    ``draw`` is the seed of the fresh draw that its cases are; None: the published one.
    ``results`` is the campaign's folder with what its runs share: the ledger of costs and the state of endpoints.
    ``cards`` are those of all tasks, whose data sets' homes are refused in the network class proxied, and ``models``
    the URLs of checkpoints, which are not; ``raw`` is the folder of all raw data, whose receipts tell what must not
    come in through it. ``holds`` is the record of ``image``, ``layer`` a command-line agent's program. ``scratch`` is
    the folder of this node in which workspaces lie, ``preset`` the campaign's named setting. ``effects``: whether
    outputs on which their case has no effect earn less.
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
    holds: ImageRecord | None = None
    layer: Layer | None = None
    results: Path | None = None
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    cards: tuple[TaskCard, ...] = ()
    models: tuple[str, ...] = ()
    raw: Path | None = None
    scratch: str | None = None
    draw: int | None = None
    preset: str = "default"
    effects: EffectRule = "counted"

    @property
    def skills(self) -> Path | None:
        """Folder of skills or MCP servers that the agent is given."""
        return Path(folder) if (folder := self.agent.difference.folder) else None

    @property
    def fault(self) -> PlantedFault | None:
        """What goes wrong in it on purpose."""
        name = self.agent.difference.fault
        return PlantedFault(name, self.card, self.manifest) if name else None


def refuse_unsafe(plan: RunPlan) -> None:
    """Raise ConfigError for what must never start, and when card and staged data differ."""
    name = f"agents.{plan.run.agent}"
    problems = []
    if plan.sandbox.backend == "local" and (why := plan.agent.needs_isolation):
        problems.append(f"{name}: {why}, and the sandbox 'local' isolates nothing; use 'apptainer'")
    if plan.card.dataset.access == "credentialed" and "credentialed" not in plan.agent.approved_for:
        problems.append(f"{name}.approved_for: '{plan.card.id}' uses credentialed data; see the card")
    if (plan.manifest.task, plan.manifest.task_version) != (plan.card.id, plan.card.version):
        staged = f"{plan.manifest.task} version {plan.manifest.task_version}"
        problems.append(
            f"manifest: is of {staged}, the card of {plan.card.id} version {plan.card.version}; stage the task again"
        )
    if plan.limits.max_cost_usd is not None and plan.agent.pricing is None:
        problems.append(f"{name}.pricing: is missing, so limits.max_cost_usd cannot be kept; max_total_tokens can")
    if plan.run.tier not in plan.card.tiers:
        problems.append(f"{plan.card.id}: has no tier '{plan.run.tier}'")
    if problems:
        raise ConfigError(problems)


def make_egress_settings(
    plan: RunPlan, *, index: PackageIndex = NO_INDEX, hashes: Iterable[str] = ()
) -> EgressSettings:
    """Build the egress settings of the run in the network class proxied."""
    return build_settings(
        plan.card,
        plan.cards,
        plan.sandbox.egress,
        index=index,
        hashes=hashes,
        models=plan.models,
        sealed=plan.sandbox.from_cache,
    )


def compose_brief(plan: RunPlan) -> Brief:
    """The brief of a run; raises ConfigError when a block is missing or a placeholder empty."""
    card, tier, command = plan.card, plan.run.tier, plan.agent.provider == "command"
    blocks = _Blocks(plan.prompts, _variables(plan), plan.agent.difference.wording or 1)
    own_track = (plan.prompts / f"tracks/{card.track}.md").is_file()
    blocks.variables["track_fragment"] = blocks.render(f"tracks/{card.track if own_track else '_default'}.md")
    hints = _hints(blocks, plan.prompts, card, tier)
    replaced = FOR_COMMANDS if command else {}
    parts = [blocks.render(f"{replaced.get(name, name)}.md") for name in OPENING]
    parts.append("# The five stages")
    for stage in STAGES:
        parts.append(blocks.render(f"{stage}_{tier}.md" if stage == "s1" else f"{stage}.md"))
        parts += [f"### Hint for {stage.upper()}\n\n{hints[stage]}"] if stage in hints else []
    parts += [blocks.render(f"{replaced.get(name, name)}.md") for name in CLOSING]
    if plan.agent.difference.skills and not plan.agent.finds_skills:
        parts.append(blocks.render("skills.md"))
    if plan.agent.difference.text:
        parts.append(plan.agent.difference.text.strip())
    if plan.fault and plan.fault.block:
        parts.append(blocks.render(plan.fault.block))
    tool = "" if command else blocks.render("execute_code.md")
    pins = list_requirements(plan.prompts, card) if tier == "lite" else ""
    return Brief("\n\n".join(parts), blocks.render("kickoff.md"), tool, pins)


def compose_common_brief(plan: RunPlan) -> Brief:
    """The brief as every agent of our loop would have got it, one with a model and the usual settings.

    Without it briefs could not be compared between agents, whose own settings stand in theirs.
    """
    usual = Agent(provider="scripted", script="-")
    limits = plan.limits.model_copy(update={"max_total_tokens": None, "max_cost_usd": None})
    return compose_brief(replace(plan, agent=usual, limits=limits, holds=None))


def _list_extra_folders(public: Path, cases: list[str]) -> frozenset[str] | None:
    """Folders of a staged task that hold files and are no cases; None where nothing is staged."""
    if not public.is_dir():
        return None
    known = set(cases)
    others = [path for path in public.iterdir() if path.name not in known]
    return frozenset(path.name for path in others if path.is_dir() and any(each.is_file() for each in path.rglob("*")))


def make_contract(card: TaskCard, case_ids: list[str]) -> Contract:
    """The expected files of a task, with the case that each belongs to."""
    per_case = [output.path for output in card.outputs if "{case}" in output.path]
    case_of = {path.replace("{case}", case): case for case in case_ids for path in per_case}
    expected = {path: output for path, output in card.expected_outputs(case_ids).items() if not output.optional}
    return Contract(expected, case_of, len(case_ids))


def plan_identity(plan: RunPlan, brief: Brief) -> Identity:
    """Identity that attempts at this run have."""
    return Identity(
        run=plan.run,
        agent_digest=plan.agent.digest(),
        task_version=plan.card.version,
        brief_sha256=brief.sha256,
        cases_sha256=plan.manifest.cases_sha256,
        limits=plan.limits.model_dump(),
    )


def planned_fields(plan: RunPlan) -> dict[str, Any]:
    """Fields of ``run.json`` that follow from the plan alone, beside its identity."""
    return {
        "provider": plan.agent.provider,
        "model": plan.agent.model or plan.agent.provider,
        "origin": plan.agent.origin,
        "agent_settings": plan.agent.settings,
        "preset": plan.preset,
        "image_recipe": plan.holds.recipe if plan.holds else None,
        "image_flavour": plan.holds.flavour if plan.holds else None,
        "common_brief_sha256": compose_common_brief(plan).sha256,
        "draw": plan.draw,
    }


LISTED_CASES = 50
"""Up to this many cases are named in the brief (docs/specification.md, 8.7)."""

OPENING = ("role", "tools", "sandbox", "task", "data", "outputs", "environment", "limits")
CLOSING = ("submission", "important")
FOR_COMMANDS = {"tools": "tools_command", "submission": "submission_command"}
"""Blocks that a command-line agent, which has tools of its own, gets instead."""
STAGES = ("s1", "s2", "s3", "s4", "s5")
HINTED = {"lite": ("s1", "s2", "s3"), "standard": ("s1", "s3"), "pro": ()}
"""Stages for which a tier has hints."""
REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True)
class Brief:
    """The texts an agent is given; no description of our tool for one that brings its own.

    ``requirements``: pinned packages of the given method, for ``requirements.txt`` in the workspace; lite only.
    """

    system: str
    kickoff: str
    execute_description: str
    requirements: str = ""

    @property
    def markdown(self) -> str:
        """All of it in one document, for ``brief.md``."""
        text = f"{self.system}\n\n---\n\n# First message\n\n{self.kickoff}\n"
        if self.execute_description:
            text += f"\n---\n\n# Description of execute_code\n\n{self.execute_description}\n"
        if self.requirements:
            text += f"\n---\n\n# {REQUIREMENTS} in the workspace\n\n```text\n{self.requirements}```\n"
        return text

    @property
    def given(self) -> dict[str, str]:
        """Files that lie in the workspace from the start: name → text."""
        return {REQUIREMENTS: self.requirements} if self.requirements else {}

    @property
    def sha256(self) -> str:
        """Digest of the whole text; part of the run's identity."""
        return sha256_bytes(self.markdown.encode())


def list_requirements(prompts: Path, card: TaskCard) -> str:
    """Pins of the given method's packages; empty for a card without route, ConfigError when the file is missing."""
    if card.briefs.route is None:
        return ""
    path = prompts / "hints/lite" / card.briefs.route / REQUIREMENTS
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read; the card of {card.id} names this route"]) from error


def _hints(blocks: _Blocks, prompts: Path, card: TaskCard, tier: Tier) -> Mapping[str, str]:
    """Stage → hint of the tier, of the card or its route in lite, of the track in standard.

    A route has all of its stages; a track of its own may have no hints.
    """
    if tier == "lite" and card.briefs.hints:
        return card.briefs.hints
    route = card.briefs.route
    folders = {"lite": f"hints/lite/{route}" if route else None, "standard": f"hints/standard/{card.track}"}
    folder = folders.get(tier)
    if folder is None or (tier != "lite" and not (prompts / folder).is_dir()):
        return {}
    return {stage: blocks.render(f"{folder}/{stage.upper()}.md") for stage in HINTED[tier]}


class _Blocks:
    """Template files of one folder with their variables."""

    def __init__(self, folder: Path, variables: dict[str, Any], wording: int) -> None:
        self._folder = folder
        self.variables = variables
        self._environment = _environment(folder, wording)

    def render(self, name: str) -> str:
        """One block without blank lines at its ends or twice in a row."""
        import jinja2

        try:
            text = self._environment.get_template(name).render(self.variables)
        except jinja2.TemplateNotFound as error:
            raise ConfigError([f"{self._folder / name}: file does not exist; the brief needs it"]) from error
        except jinja2.TemplateError as error:
            raise ConfigError([f"{self._folder / name}: {error}"]) from error
        return re.sub(r"\n{3,}", "\n\n", text.strip())


@functools.cache
def _environment(folder: Path, wording: int) -> jinja2.Environment:
    """Strict templates of one folder; compiled once, and again when a file changes.

    Of a further wording those in ``wording<n>`` come first; what is not worded anew is as in the first.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder / f"wording{wording}", folder]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": _number, "capitalize_first": lambda text: text[:1].upper() + text[1:].rstrip(".")}
    return environment


def _variables(plan: RunPlan) -> dict[str, Any]:
    """What the blocks name: limits and resources of the run, with paths as the agent's code sees them.

    The local sandbox has host paths, which differ per attempt: it shows their variables. ``hosts`` and ``hub`` count in
    the network class proxied only: what its proxy lets through, and whether a model hub is behind its mirror;
    ``stored``: what the configuration put into the cache that mirror and index answer from.
    """
    sandbox, egress, cases = plan.sandbox, plan.sandbox.egress, plan.manifest.case_ids
    local = sandbox.backend == "local"
    workspace = "$WORKSPACE" if local else WORKSPACE
    return {
        "card": plan.card,
        "tier": plan.run.tier,
        "cases": cases,
        "n_cases": len(cases),
        "listed_cases": LISTED_CASES,
        "example_case": cases[0],
        "data_dir": "$DATA_DIR" if local else DATA_DIR,
        "workspace_dir": workspace,
        "outputs_dir": f"{workspace}/agents_outputs",
        "skills_dir": "$SKILLS_DIR" if local else SKILLS_DIR,
        "network": "open" if local else "sealed_cache" if sandbox.from_cache else sandbox.network,
        "gpu": sandbox.gpu > 0,
        "gpu_lease_s": sandbox.gpu_lease_s if sandbox.gpu_share > 1 and not local else None,
        "limits": plan.limits,
        "effects": plan.effects,
        "max_warnings": sandbox.max_warnings,
        "reply_tokens": plan.agent.max_tokens or plan.agent.context_tokens,
        "native_tools": plan.agent.native_tools,
        "command": plan.agent.provider == "command",
        "wait": sandbox.wait,
        "hosts": make_egress_settings(plan).reachable,
        "hub": egress.hub is not None,
        "open_tls": egress.open_tls,
        "gated": [name for token in egress.tokens for name in token.models],
        "upload_total_mb": egress.upload_total_mb,
        "offline": egress.offline,
        "stored": [*egress.models, *egress.packages],
        "beside": _list_extra_folders(plan.public / plan.card.id, cases),
        "holds": plan.holds,
        "clients": _proxy_clients(plan.holds),
        **_CONSTANTS,
    }


def _proxy_clients(holds: ImageRecord | None) -> list[str]:
    """Programs and packages of an image that take the proxy from their environment; of an unknown one Python's own."""
    packages, tools = (holds.packages, holds.tools) if holds else ({}, ())
    return [
        *("pip", "urllib"),
        *(name for name in ("requests", "httpx", "huggingface-hub") if name in packages),
        *(name for name in ("curl", "wget", "git") if name in tools),
    ]


_CONSTANTS = {
    "head_kib": HEAD_BYTES // 1024,
    "tail_kib": TAIL_BYTES // 1024,
    "limit_s4": f"{NO_EFFECT['S4']:g}",
    "max_calls": MAX_CALLS,
    "max_cut_replies": MAX_LENGTH_STOPS,
    "upload_mib": EgressSettings.upload_bytes // 1024**2,
    "notice_marks": ", ".join(f"{100 * mark:g} %" for mark in sorted(NOTICE_AT)),
}
"""Numbers of the harness itself that the blocks name."""


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
