"""Command-line agents: list their recipes, pin a version, build a layer, check that a program works in the sandbox.

A check starts the program in a sealed container, with a scripted server on this machine as its model, and says what
was seen; it asks no provider and costs nothing. Exit code 0: it asked, ran its code and left its file; 3: it did not.
That it asked is noted beside the images: silence of the same program in a run is then its own.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from automedbench.agent.command.program import check_note
from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.agent.plan import RunPlan
from automedbench.agent.run import run_agent
from automedbench.base.cards import Limits, load_card
from automedbench.base.errors import AutoMedBenchError, ConfigError
from automedbench.base.files import read_record, write_text
from automedbench.base.plaintable import table
from automedbench.base.records import CaseEntry, Conversation, RunId
from automedbench.campaign.agents import Agent, AgentsFile, load_agents
from automedbench.campaign.config import PROMPTS, SandboxConfig
from automedbench.campaign.recipes import load_recipe, recipe_names
from automedbench.commands._output import add_json, show
from automedbench.planning.rehearsal import scripted_model
from automedbench.sandbox.container.image import record_beside
from automedbench.sandbox.container.layer import build_layer, find_layer, layer_path, layer_record, pin_program

FAILED = 3
_UNPAID = {"endpoint_file": None, "api_key_env": None, "api_key_rotation": False, "pricing": None, "rate": None}
"""What a check changes in an agent's entry, beside its endpoint and key."""
HEAD = ("agent", "version", "protocol", "layer")
IMAGES = (Path("images/research.sif"), Path("images/light.sif"))
CARD = Path("config/tasks/detection/bccd-det-task.yaml")
"""The task whose brief the program gets; its data are not needed."""
CODE = "echo checked > agents_outputs.txt; cat agents_outputs.txt"
FILE = "agents_outputs.txt"
IN_TEXT = f"run.py\n```python\nopen('{FILE}', 'w').write('checked')\n```\n"
"""The same for a program without tools, which edits files and runs ``run.py``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench agents``."""
    parser.add_argument("action", nargs="?", choices=["list", "pin", "build", "check"], default="list")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="recipes: config/agents/NAME.yaml; pin: NAME VERSION; check: also agents of --agents",
    )
    parser.add_argument(
        "--agents",
        type=Path,
        default=Path("config/agents.yaml"),
        help="agents file; its entry is what is checked under a name",
    )
    parser.add_argument(
        "--image",
        type=Path,
        default=next(filter(Path.is_file, IMAGES), IMAGES[-1]),
        help="container image that the program runs in (research.sif, or light.sif without it); layers lie beside it",
    )
    parser.add_argument("--anew", action="store_true", help="build a layer that is there already")
    add_json(parser)


def main(options: argparse.Namespace) -> None:
    """Do it; raises ConfigError for an unknown recipe, MissingDataError for what is not built."""
    if options.action == "list":
        rows = [_row(name, options.image.parent) for name in options.names or recipe_names()]
        show(options, [dict(zip(HEAD, row, strict=True)) for row in rows], table([HEAD, *rows]))
        return
    if options.action == "pin":
        if len(options.names) != 2:
            raise ConfigError(["agents pin: give a name and a version, as in `automedbench agents pin codex 0.171.0`"])
        name, version = options.names
        pin_program(name, version, options.image.parent)
        next_step = f"{name} is pinned to {version}. Next: automedbench agents build {name}, then agents check {name}"
        show(options, {"agent": name, "version": version}, [next_step])
        return
    if not options.names:
        raise ConfigError([f"agents {options.action}: name one of {', '.join(recipe_names())}"])
    if options.action == "build":
        built = {
            name: build_layer(name, load_recipe(name), options.image.parent, options.image, anew=options.anew)
            for name in options.names
        }
        lines = [
            f"{name} {layer.version}: {layer_path(options.image.parent, name)}, {layer.bytes / 2**20:.0f} MiB"
            for name, layer in built.items()
        ]
        show(options, built, lines)
        return
    agents = {name: find_program(name, options.agents) for name in options.names}
    checks = {name: _check_agent(name, agent, options.image) for name, agent in agents.items()}
    found = {name: {"works": works, "seen": lines} for name, (works, lines) in checks.items()}
    show(options, found, [line for _, lines in checks.values() for line in lines])
    if not all(works for works, _ in checks.values()):
        sys.exit(FAILED)


def _row(name: str, folder: Path) -> tuple[str, ...]:
    recipe, found = load_recipe(name), layer_record(layer_path(folder, name))
    if found is None:
        state = "not built"
    elif found.layer != recipe.layer_digest(name):
        state = "built from other pins"
    else:
        state = f"{found.bytes / 2**20:.0f} MiB" + (f", Python {found.python}" if found.python else "")
    return name, recipe.version(name), recipe.protocol, state


# --- check -----------------------------------------------------------------------------------------------------


def find_program(name: str, file: Path) -> Agent:
    """The command agent of this name in an agents ``file``, else that of a recipe; ConfigError for an unknown name."""
    entry = load_agents(file).get(name) if file.is_file() else None
    if entry is not None and entry.provider == "command":
        return entry
    (example,) = load_recipe(name).agents.values()
    example = {"base_url": "http://127.0.0.1", "api_key_env": "NONE"} | example | {"model": "checked"}
    return AgentsFile.model_validate({"agents": {name: example}}).agents[name]


def _check_agent(name: str, program: Agent, image: Path) -> tuple[bool, list[str]]:
    """Let the program do one thing in its container; whether that was all, and what was seen."""
    recipe = load_recipe(program.layer) if program.layer else None
    title = f"{name} {recipe.version(program.layer or name) if recipe else 'without a layer'}"
    has_tools = recipe is None or recipe.tools
    with tempfile.TemporaryDirectory(prefix="agent-check-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        key = f"check-{secrets.token_hex(8)}"
        write_text(folder / "key", key)
        with scripted_model(_script_turns(has_tools), [key]) as server:
            agent = program.model_copy(update=_UNPAID | {"base_url": server.url, "api_key_file": str(folder / "key")})
            plan = _plan_check(name, agent, image, folder)
            try:
                record = run_agent(plan, say=lambda _: None)
            except AutoMedBenchError as error:
                return False, [f"{title}: failed", f"  {error}"]
            requests = [f"{exchange.path} {exchange.status}" for exchange in server.exchanges]
            if any(exchange.status == 200 for exchange in server.exchanges):
                write_text(check_note(agent, image.parent, record.enforced), f"{title}, {record.ended_at}\n")
        talk = read_record(plan.folder / "conversation.json", Conversation)
    ending = record.detail.partition(";")[0]
    calls = [f"{call.language}, exit code {call.exit_code}: {call.code[:60]!r}" for call in talk.calls[1:]]
    files = sorted(talk.workspace_files)
    good = bool(requests) and FILE in files and record.outcome == "submitted" and (bool(calls) or not has_tools)
    rows = [("requests", requests), ("code calls", calls), ("files", files)]
    output = f"  it said: {' '.join((talk.calls[0].stdout + talk.calls[0].stderr).split())[-600:]}"
    return good, [
        f"{title}: {'works' if good else 'does not work as it should'}, {ending}",
        *(f"  {what} ({len(seen)}): {', '.join(dict.fromkeys(seen)) or 'none'}" for what, seen in rows),
        *([] if good else [output]),
    ]


def _script_turns(has_tools: bool) -> list[ScriptedTurn]:
    """Scripted turns of its model: one call, or one file for a program without tools."""
    if not has_tools:
        return [ScriptedTurn(content=IN_TEXT)] * 9  # it may show its model replies of its own making as examples
    steps = [
        {"tool": "execute_code", "language": "bash", "code": CODE},
        {"tool": "submit_results", "summary": "Done."},
    ]
    return [ScriptedTurn.model_validate({"content": "Now.", "calls": [step]}) for step in steps]


def _plan_check(name: str, agent: Agent, image: Path, folder: Path) -> RunPlan:
    """A run of one invented case."""
    image = image.with_name(f"{agent.image}.sif") if agent.image else image
    card, holds = load_card(CARD), record_beside(image)
    case = CaseEntry(id="case-1", inputs={}, private={})
    (folder / "public" / card.id / case.id).mkdir(parents=True)
    return RunPlan(
        run=RunId(agent=name, task=card.id, tier="standard", repeat=1),
        card=card,
        manifest=card.manifest("none", [case], made_up=True),
        agent=agent,
        limits=Limits(time_limit_s=300),
        sandbox=SandboxConfig(backend="apptainer", network="sealed", gpu=0),
        public=folder / "public",
        folder=folder / "run",
        prompts=Path(PROMPTS),
        image=image,
        holds=holds,
        layer=find_layer(image.parent, agent.layer, holds) if agent.layer else None,
        results=folder / "results",
    )
