"""The brief: everything an agent is told before its first turn, from small blocks in one order for all tracks.

Blocks are ``config/prompts/*.md`` (Jinja, every placeholder must be filled); the track's own part is
``config/prompts/tracks/<track>.md``, or ``_default.md`` there where the card alone says everything. Texts of a card are
inserted as they are, never read as templates.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automedbench.agent.budget.limits import NOTICE_AT
from automedbench.agent.calls import MAX_CALLS
from automedbench.agent.loop import MAX_LENGTH_STOPS
from automedbench.base.cards import Limits, TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import Tier
from automedbench.sandbox.container.capture import HEAD_BYTES, TAIL_BYTES
from automedbench.sandbox.egress.settings import EgressSettings

if TYPE_CHECKING:
    import jinja2

LISTED_CASES = 50
"""Up to this many cases are named in the brief (docs/specification.md, 8.7)."""

OPENING = ("role", "tools", "sandbox", "task", "data", "outputs", "environment", "limits")
CLOSING = ("submission", "important")
FOR_COMMANDS = {"tools": "tools_command", "submission": "submission_command"}
"""Blocks that a command-line agent, which has tools of its own, gets instead."""
STAGES = ("s1", "s2", "s3", "s4", "s5")


@dataclass(frozen=True)
class Setting:
    """What the run enforces and offers; the brief states nothing else. Paths are as the agent's code sees them.

    ``hosts`` and ``hub`` count in the network class proxied only: what its proxy lets through, and whether a model hub
    is behind its mirror. ``command``: the agent is a command-line program inside the container. ``beside``: folders
    with files beside the cases; None before the task is staged, when the card alone tells.
    """

    data_dir: str
    workspace_dir: str
    network: str
    gpu: bool
    limits: Limits
    max_warnings: int
    reply_tokens: int
    native_tools: bool = True
    command: bool = False
    hosts: tuple[str, ...] = ()
    hub: bool = False
    beside: frozenset[str] | None = None


@dataclass(frozen=True)
class Brief:
    """The texts an agent is given; no description of our tool for one that brings its own."""

    system: str
    kickoff: str
    execute_description: str

    @property
    def markdown(self) -> str:
        """All of it in one document, for ``brief.md``."""
        text = f"{self.system}\n\n---\n\n# First message\n\n{self.kickoff}\n"
        if not self.execute_description:
            return text
        return f"{text}\n---\n\n# Description of execute_code\n\n{self.execute_description}\n"

    @property
    def sha256(self) -> str:
        """Digest of the whole text; part of the run's identity."""
        return sha256_bytes(self.markdown.encode())


def write_brief(prompts: Path, card: TaskCard, tier: Tier, cases: Sequence[str], setting: Setting) -> Brief:
    """Render the brief of one task in one tier; raises ConfigError when a block is missing or a placeholder empty."""
    blocks = _Blocks(prompts, _variables(card, tier, cases, setting))
    blocks.variables["track_fragment"] = blocks.render(_track_block(prompts, card.track))
    hints = card.briefs.hints.get(tier, {})
    replaced = FOR_COMMANDS if setting.command else {}
    parts = [blocks.render(f"{replaced.get(name, name)}.md") for name in OPENING]
    parts.append("# The five stages")
    for stage in STAGES:
        parts.append(blocks.render(f"{stage}_{tier}.md" if stage == "s1" else f"{stage}.md"))
        if stage in hints:
            parts.append(f"*Hint:* {hints[stage].strip()}")
    parts += [blocks.render(f"{replaced.get(name, name)}.md") for name in CLOSING]
    tool = "" if setting.command else blocks.render("execute_code.md")
    return Brief("\n\n".join(parts), blocks.render("kickoff.md"), tool)


def _track_block(prompts: Path, track: str) -> str:
    own = f"tracks/{track}.md"
    return own if (prompts / own).is_file() else "tracks/_default.md"


class _Blocks:
    """Template files of one folder with their variables."""

    def __init__(self, folder: Path, variables: dict[str, Any]) -> None:
        self._folder = folder
        self.variables = variables
        self._environment = _environment(folder)

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
def _environment(folder: Path) -> jinja2.Environment:
    """Strict templates of one folder; compiled once, and again when a file changes."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": _number, "capitalize_first": _capitalise}
    return environment


def _variables(card: TaskCard, tier: Tier, cases: Sequence[str], setting: Setting) -> dict[str, Any]:
    return {
        "card": card,
        "tier": tier,
        "cases": list(cases),
        "n_cases": len(cases),
        "listed_cases": LISTED_CASES,
        "example_case": cases[0],
        "data_dir": setting.data_dir,
        "workspace_dir": setting.workspace_dir,
        "outputs_dir": f"{setting.workspace_dir}/agents_outputs",
        "network": setting.network,
        "gpu": setting.gpu,
        "limits": setting.limits,
        "max_warnings": setting.max_warnings,
        "reply_tokens": setting.reply_tokens,
        "native_tools": setting.native_tools,
        "command": setting.command,
        "hosts": list(setting.hosts),
        "hub": setting.hub,
        "beside": setting.beside,
    } | _CONSTANTS


_CONSTANTS = {
    "head_kib": HEAD_BYTES // 1024,
    "tail_kib": TAIL_BYTES // 1024,
    "max_calls": MAX_CALLS,
    "max_cut_replies": MAX_LENGTH_STOPS,
    "upload_mib": EgressSettings.upload_bytes // 1024**2,
    "notice_marks": ", ".join(f"{100 * mark:g} %" for mark in sorted(NOTICE_AT)),
}
"""Numbers of the harness itself that the blocks name."""


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")
