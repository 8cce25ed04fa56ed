"""The brief: everything an agent is told before its first turn, from small blocks in one order for all tracks.

Blocks are ``config/prompts/*.md`` (Jinja, every placeholder must be filled); the track's own part is
``config/prompts/tracks/<track>.md``, or ``_default.md`` there where the card alone says everything. Texts of a card are
inserted as they are, never read as templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.cards import Limits, TaskCard
from automedbench.errors import ConfigError
from automedbench.files import sha256_bytes
from automedbench.records import Tier

LISTED_CASES = 50
"""Up to this many cases are named in the brief (harness specification, section 9)."""

OPENING = ("role", "sandbox", "task", "data", "outputs", "environment")
CLOSING = ("submission", "important")
STAGES = ("s1", "s2", "s3", "s4", "s5")


@dataclass(frozen=True)
class Setting:
    """What the run enforces and offers; the brief states nothing else. Paths are as the agent's code sees them."""

    data_dir: str
    workspace_dir: str
    network: str
    gpu: bool
    limits: Limits
    max_warnings: int
    reply_tokens: int
    native_tools: bool = True


@dataclass(frozen=True)
class Brief:
    """The texts an agent is given."""

    system: str
    kickoff: str
    execute_description: str

    @property
    def markdown(self) -> str:
        """All of it in one document, for ``brief.md``."""
        return (
            f"{self.system}\n\n---\n\n# First message\n\n{self.kickoff}\n\n"
            f"---\n\n# Description of execute_code\n\n{self.execute_description}\n"
        )

    @property
    def sha256(self) -> str:
        """Digest of the whole text; part of the run's identity."""
        return sha256_bytes(self.markdown.encode())


def write_brief(prompts: Path, card: TaskCard, tier: Tier, cases: Sequence[str], setting: Setting) -> Brief:
    """Render the brief of one task in one tier; raises ConfigError when a block is missing or a placeholder empty."""
    blocks = _Blocks(prompts, _variables(card, tier, cases, setting))
    blocks.variables["track_fragment"] = blocks.render(_track_block(prompts, card.track))
    hints = card.briefs.hints.get(tier, {})
    parts = [blocks.render(f"{name}.md") for name in OPENING]
    parts.append("# The five stages")
    for stage in STAGES:
        parts.append(blocks.render(f"{stage}_{tier}.md" if stage == "s1" else f"{stage}.md"))
        if stage in hints:
            parts.append(f"*Hint:* {hints[stage].strip()}")
    parts += [blocks.render(f"{name}.md") for name in CLOSING]
    return Brief("\n\n".join(parts), blocks.render("kickoff.md"), blocks.render("execute_code.md"))


def _track_block(prompts: Path, track: str) -> str:
    own = f"tracks/{track}.md"
    return own if (prompts / own).is_file() else "tracks/_default.md"


class _Blocks:
    """Template files of one folder with their variables."""

    def __init__(self, folder: Path, variables: dict[str, Any]) -> None:
        import jinja2

        self._folder = folder
        self.variables = variables
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {"number": _number, "capitalize_first": _capitalise}

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
    }


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")
