"""Installation and start of a command-line agent's program in the container.

Its command, variables and settings are the entry's, else those of its layer's recipe. Its HOME lies on the container's
private ``/tmp``: what a program keeps for itself is no file of the workspace.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import hash_json, write_text
from automedbench.base.records import Enforced
from automedbench.campaign.agents import Agent
from automedbench.campaign.recipes import LAYER_DIR, AgentRecipe, fill_words, home_files, load_recipe
from automedbench.sandbox.places import DATA_DIR, SERVICES_DIR, SKILLS_DIR, WORKSPACE

BRIEF, FOLDER, SETTINGS = "brief.md", "agent", "home"
HOME = "/tmp/home"
MAX_FOLDER = 16 * 1024 * 1024
"""Bytes of a ``command_folder``, which is copied and hashed for each run."""


@dataclass(frozen=True)
class AgentProgram:
    """The program of one run. ``values`` are the words that stand in braces."""

    agent: Agent
    recipe: AgentRecipe | None
    values: Mapping[str, str]

    @classmethod
    def create(cls, agent: Agent, url: str, token: str) -> AgentProgram:
        """The program of an agent whose model answers at ``url``; raises ConfigError for an unknown layer."""
        values = {
            "brief": f"{SERVICES_DIR}/{BRIEF}",
            "folder": f"{SERVICES_DIR}/{FOLDER}",
            "home": HOME,
            "layer": LAYER_DIR,
            "model": agent.model,
            "url": url,
            "token": token,
            "workspace": WORKSPACE,
            "data": DATA_DIR,
            "mcp": f"{SKILLS_DIR}/mcp.json",
        }
        return cls(agent, load_recipe(agent.layer) if agent.layer else None, values)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the program, the limit of a reply among them; the entry's win over the recipe's."""
        recipe, longest = self.recipe, self.agent.max_tokens
        limit = {recipe.reply_tokens_env: str(longest)} if recipe and recipe.reply_tokens_env and longest else {}
        given = (recipe.env if recipe else {}) | limit | self.agent.env
        return {name: fill_words(value, self.values) for name, value in given.items()}

    @property
    def command(self) -> list[str]:
        words = self.agent.command or (self.recipe.command if self.recipe else [])
        servers = self.recipe.mcp if self.recipe and self.agent.difference.mcp else []
        return [fill_words(word, self.values) for word in (*words, *servers)]

    @property
    def start(self) -> str:
        """The Bash code that starts it: HOME of its own, its settings there, the brief as its input."""
        place = self.recipe.skills if self.recipe and self.agent.difference.skills else None
        skills = f"mkdir -p $(dirname {HOME}/{place}) && ln -s {SKILLS_DIR} {HOME}/{place}\n" if place else ""
        path = f'export PATH={LAYER_DIR}/bin:"$PATH"\n' if self.recipe else ""
        return (
            f"export HOME={HOME} XDG_CACHE_HOME={HOME}/.cache\n{path}"
            f"cp -R {SERVICES_DIR}/{SETTINGS} {HOME} && chmod -R u+w {HOME}\n"
            f"{skills}"
            f"exec {shlex.join(self.command)} < {SERVICES_DIR}/{BRIEF}\n"
        )

    def install(self, services: Path, brief: str) -> None:
        """Put brief, settings and a small program's folder into the folder that becomes ``/run/services``.

        Raises MissingDataError for a folder that is not there, ConfigError for one that is too large.
        """
        write_text(services / BRIEF, brief)
        (services / SETTINGS).mkdir(exist_ok=True)
        for place, source in (home_files(self.agent.layer) if self.agent.layer else {}).items():
            target = services / SETTINGS / place
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text(target, fill_words(source.read_text("utf-8"), self.values))
        if self.agent.command_folder is not None:
            _copy(Path(self.agent.command_folder), services / FOLDER)


def check_note(agent: Agent, images: Path, enforced: Enforced) -> Path:
    """File beside the images that is there once a check saw this very program ask its model in this very image."""
    digest = hash_json([agent.program_digest(), enforced.image_sha256, enforced.layer_sha256])
    return images / "checks" / f"{digest[:16]}.txt"


def _copy(source: Path, target: Path) -> None:
    if not source.is_dir():
        raise MissingDataError(f"command_folder: {source} is not a folder.\nCheck the agent's entry.")
    size = sum(path.lstat().st_size for path in source.rglob("*"))
    if size > MAX_FOLDER:
        raise ConfigError(
            [
                f"command_folder: {source} holds {size:,} bytes, at most {MAX_FOLDER:,} are copied for each run.\n"
                "Give larger programs a layer of their own: docs/command-line-agents.md."
            ]
        )
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
