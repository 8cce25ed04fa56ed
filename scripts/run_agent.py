"""Let one agent do one task once: brief, loop, sandbox, result."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from automedbench.agent.run import RunPlan, run_agent
from automedbench.agents import Agent, load_agents
from automedbench.campaign import SandboxConfig
from automedbench.cards import Limits, TaskCard, load_card
from automedbench.console import run_script
from automedbench.errors import ConfigError
from automedbench.files import read_record
from automedbench.records import TIERS, Manifest, RunId
from automedbench.yamlfile import suggestion, validate

LIMITS = {
    "time_limit_s": ("--time-limit", float, "seconds of wall clock for the run"),
    "max_turns": ("--max-turns", int, "model replies"),
    "exec_timeout_s": ("--exec-timeout", float, "seconds of one code call"),
    "max_total_tokens": ("--max-tokens", int, "tokens of all requests together"),
    "max_cost_usd": ("--max-cost", float, "USD of all requests together"),
    "disk_gb": ("--disk-gb", float, "size of the workspace"),
}


def main(arguments: list[str]) -> None:
    """Read the options, call the package, say how it ended."""
    options = _parser().parse_args(arguments)
    card = load_card(options.card)
    record = run_agent(
        RunPlan(
            run=RunId(agent=options.agent, task=card.id, tier=options.tier, repeat=options.repeat),
            card=card,
            manifest=read_record(options.manifest, Manifest),
            agent=_find_agent(options.agents, options.agent).for_task(card),
            limits=_limits(card, vars(options)),
            sandbox=SandboxConfig(
                backend=options.sandbox,
                network=options.network,
                gpu=options.gpu,
                decoy=options.decoy,
                max_warnings=options.max_warnings,
            ),
            public=options.public,
            folder=options.run,
            prompts=options.prompts,
            image=options.image,
        )
    )
    print(f"{record.run.path}: {record.outcome} ({record.detail}) in {record.totals.turns} turns")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--card", type=Path, required=True, help="task card")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest of the staged task")
    parser.add_argument("--public", type=Path, required=True, help="folder of the staged public data of all tasks")
    parser.add_argument("--agents", type=Path, required=True, help="agents file")
    parser.add_argument("--agent", required=True, help="name of the agent in it")
    parser.add_argument("--tier", choices=TIERS, required=True)
    parser.add_argument("--repeat", type=int, required=True, help="number of the repeat, from 1")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--prompts", type=Path, default=Path("config/prompts"), help="blocks of the brief")
    parser.add_argument("--sandbox", choices=["apptainer", "local"], default="apptainer")
    parser.add_argument("--network", choices=["sealed", "open"], default="sealed")
    parser.add_argument("--image", type=Path, help="container image of the agent role")
    parser.add_argument("--gpu", action=flag, default=False)
    parser.add_argument("--decoy", action=flag, default=True, help="bind a watched decoy at /data/private")
    parser.add_argument("--max-warnings", type=int, default=1, help="sandbox warnings before the next disqualifies")
    for name, (option, kind, text) in LIMITS.items():
        parser.add_argument(option, dest=name, type=_or_none(kind), default="card", help=f"{text}; 'none': no limit")
    return parser


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


if __name__ == "__main__":
    run_script(main)
