"""Command line of one run: its options, and the plan that they make."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from automedbench.agent.plan import RunPlan
from automedbench.base.cards import Limits, TaskCard, find_cards, load_card
from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record
from automedbench.base.option_types import whole_number
from automedbench.base.records import TIERS, Manifest, RunId
from automedbench.base.yamlfile import suggestion, validate
from automedbench.campaign.agents import Agent, load_agents
from automedbench.campaign.config import BudgetConfig, EgressConfig, SandboxConfig
from automedbench.steps.invalid_count import count_invalid

LIMITS = {
    "time_limit_s": ("--time-limit", float, "seconds of wall clock for the run"),
    "max_turns": ("--max-turns", int, "model replies"),
    "exec_timeout_s": ("--exec-timeout", float, "seconds of one code call"),
    "max_total_tokens": ("--max-tokens", int, "tokens of all requests together"),
    "max_cost_usd": ("--max-cost", float, "USD of all requests together"),
    "disk_gb": ("--disk-gb", float, "size of the workspace"),
    "mem_gb": ("--mem-gb", float, "memory of one code call"),
    "max_processes": ("--max-processes", int, "processes and threads of one code call"),
}
EXPECTED = ("expected_turns", "expected_prompt_tokens", "expected_completion_tokens")


def read_plan(arguments: list[str], description: str | None) -> tuple[RunPlan, Callable[[Path], int | None]]:
    """The plan of a command line, and the check of a workspace's form; raises ConfigError for wrong values."""
    options = _parser(description).parse_args(arguments)
    card = load_card(options.card)
    plan = RunPlan(
        run=RunId(agent=options.agent, task=card.id, tier=options.tier, repeat=options.repeat),
        card=card,
        manifest=read_record(options.manifest, Manifest),
        agent=_find_agent(options.agents, options.agent).for_task(card),
        limits=_limits(card, vars(options)),
        sandbox=_sandbox(options),
        public=options.public,
        folder=options.run,
        prompts=options.prompts,
        image=options.image,
        results=options.results,
        budget=_budget(options),
        raw=options.raw,
        cards=tuple(load_card(path) for path in find_cards(options.cards)) if options.network == "proxied" else (),
    )
    check = functools.partial(
        count_invalid, options.card, options.manifest, plan.run, backend=options.sandbox, image=options.scorer_image
    )
    return plan, check


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--card", type=Path, required=True, help="task card")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest of the staged task")
    parser.add_argument("--public", type=Path, required=True, help="folder of the staged public data of all tasks")
    parser.add_argument("--raw", type=Path, help="folder of all raw data; proxied: none of its files may come in")
    parser.add_argument("--agents", type=Path, required=True, help="agents file")
    parser.add_argument("--agent", required=True, help="name of the agent in it")
    parser.add_argument("--tier", choices=TIERS, required=True)
    parser.add_argument("--repeat", type=whole_number(1), required=True, help="number of the repeat, from 1")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--prompts", type=Path, default=Path("config/prompts"), help="blocks of the brief")
    parser.add_argument("--sandbox", choices=["apptainer", "local"], default="apptainer")
    parser.add_argument("--network", choices=["sealed", "proxied", "open"], default="sealed")
    parser.add_argument("--egress-allow", nargs="*", metavar="HOST", help="proxied: hosts that may be reached")
    parser.add_argument("--egress-deny", nargs="*", metavar="HOST", default=[], help="proxied: hosts or URLs refused")
    parser.add_argument(
        "--hub", type=_or_none(str), default=EgressConfig().hub, help="proxied: model hub; 'none': none"
    )
    parser.add_argument(
        "--cards", nargs="*", default=[], help="folders of all cards, whose data sets' homes are refused"
    )
    parser.add_argument("--image", type=Path, help="container image of the agent role")
    parser.add_argument("--scorer-image", type=Path, help="container image in which a submission's form is checked")
    parser.add_argument("--gpu", action=flag, default=False)
    parser.add_argument("--decoy", action=flag, default=True, help="bind a watched decoy at /data/private")
    parser.add_argument("--max-warnings", type=int, default=1, help="sandbox warnings before the next disqualifies")
    parser.add_argument("--results", type=Path, help="folder of the campaign, for its ledger and state of endpoints")
    parser.add_argument("--budget", type=_or_none(str), help="USD for all runs of the campaign; 'none': no limit")
    for name in EXPECTED:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="for reservations of runs without a limit")
    for name, (option, kind, text) in LIMITS.items():
        parser.add_argument(option, dest=name, type=_or_none(kind), default="card", help=f"{text}; 'none': no limit")
    return parser


def _sandbox(options: argparse.Namespace) -> SandboxConfig:
    allow = {} if options.egress_allow is None else {"allow": options.egress_allow}
    return SandboxConfig(
        backend=options.sandbox,
        network=options.network,
        egress=EgressConfig(deny=options.egress_deny, hub=options.hub, **allow),
        gpu=options.gpu,
        decoy=options.decoy,
        max_warnings=options.max_warnings,
    )


def _budget(options: argparse.Namespace) -> BudgetConfig:
    given = {name: value for name in EXPECTED if (value := getattr(options, name)) is not None}
    return validate({"max_cost_usd": options.budget, **given}, BudgetConfig, "options", "budget")


def _or_none(kind: type) -> Any:
    def read(text: str) -> Any:
        return text if text == "card" else None if text == "none" else kind(text)

    read.__name__ = kind.__name__
    return read


def _limits(card: TaskCard, options: dict[str, Any]) -> Limits:
    """The card's limits with those that the command line replaces."""
    given = {name: options[name] for name in LIMITS if options[name] != "card"}
    return validate(card.limits.model_dump() | given, Limits, "options", "limits")


def _find_agent(path: Path, name: str) -> Agent:
    agents = load_agents(path)
    if name not in agents:
        raise ConfigError([f"{path}: agents: unknown agent '{name}'{suggestion(name, list(agents))}"])
    return agents[name]
