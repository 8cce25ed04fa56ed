"""Recipes of command-line agents: ``config/agents/<name>.yaml``, settings for their HOME, pins in ``envs/agents``.

A recipe says what a program's layer is built from, how the program is started, and holds an entry to copy. The layer
itself is ``automedbench.sandbox.container.layer``'s.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from automedbench.base.cards import Name
from automedbench.base.errors import ConfigError
from automedbench.base.files import hash_json, sha256_file
from automedbench.base.masking import MASK
from automedbench.base.records import Model
from automedbench.base.yamlfile import load_yaml, suggestion, validate

RECIPES, PINS = Path("config/agents"), Path("envs/agents")
NODE = PINS / "node.txt"
"""The pinned Node that runs npm, and programs that are JavaScript."""

LAYER_DIR = "/opt/agent"
"""Where a layer is seen in a run's container; its programs are in ``bin`` there."""

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Variables = dict[Variable, str]
_SECRET = re.compile(r"(?:^|[_-])(?:KEYS?|TOKEN|SECRET|PASSWORD|AUTHORIZATION)$", re.IGNORECASE)


def refuse_secrets(variables: Mapping[str, str]) -> None:
    """Raises ValueError for a variable that holds a key by its name; ``{token}`` is worth nothing elsewhere."""
    for name, value in variables.items():
        if _SECRET.search(name) and value not in ("", "{token}"):
            raise ValueError(f"'env.{name}' looks like an API key, which must not be in a file: use {{token}}")


def mask_secrets(value: Any, name: str = "") -> Any:
    """A JSON value with every text masked whose name is that of a key."""
    if isinstance(value, dict):
        return {key: mask_secrets(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [mask_secrets(inner, name) for inner in value]
    return MASK if isinstance(value, str) and _SECRET.search(name) else value


def fill_words(text: str, values: Mapping[str, str]) -> str:
    """The text with the words that stand in braces filled in; other braces stay."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


class AgentRecipe(Model):
    """``config/agents/<name>.yaml``."""

    about: str = Field(description="the program and who makes it, in one line")
    protocol: Literal["chat", "responses", "messages", "gemini"] = Field(description="what it speaks to its model")
    registry: Literal["npm", "pip"]
    package: str = Field(description="the package that is the program; its version is the program's")
    python: str | None = Field(
        None, pattern=r"^(==)?3\.\d+$", description="pip: the oldest Python that it runs on; with ==, the only one"
    )
    programs: dict[str, str] = Field(
        min_length=1, description="name in bin → npm: its file in the layer, as a pattern | pip: module:function"
    )
    command: list[str] = Field(min_length=1, description="words of the program, which reads the brief from its input")
    env: Variables = Field(default_factory=dict, description="variables of the program")
    reply_tokens_env: str | None = Field(
        None, description="variable that limits a reply, set where the agent's entry has max_tokens"
    )
    skills: str | None = Field(None, description="folder below HOME in which the program looks for skills")
    mcp: list[str] = Field(
        default_factory=list, description="words at the end of the command with MCP servers; {mcp} is their file"
    )
    tools: bool = Field(True, description="false: its model has no tools, and the program reads files out of its text")
    agents: dict[Name, dict[str, Any]] = Field(description="the entry to copy, as below 'agents' in the agents file")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        refuse_secrets(self.env)
        if self.python and self.registry != "pip":
            raise ValueError("'python' is for programs from pip")
        return self

    def digest(self, name: str) -> str:
        """Identity of the program: its recipe, pins and settings. The entry to copy and comments don't count."""
        own = self.model_dump(mode="json", exclude={"about", "agents", "tools", "skills", "mcp"})
        files = {path.as_posix(): sha256_file(path) for path in [*self.pins(name), *home_files(name).values()]}
        return hash_json([own, files])

    def layer_digest(self, name: str) -> str:
        """Identity of the layer alone: what is installed in it, on which kind of machine."""
        own = [self.registry, self.package, self.python, self.programs, platform.machine()]
        return hash_json([own, [sha256_file(path) for path in self.pins(name)]])

    def version(self, name: str) -> str:
        if self.registry == "pip":
            lines = (PINS / f"{name}.txt").read_text("utf-8").split()
            return dict(line.partition("==")[::2] for line in lines).get(self.package, "")
        return str(json.loads((PINS / name / "package.json").read_bytes())["dependencies"][self.package])

    def pins(self, name: str) -> list[Path]:
        """The pinned lists that the layer is built from."""
        if self.registry == "pip":
            return [PINS / f"{name}.txt"]
        return [NODE, PINS / name / "package.json", PINS / name / "package-lock.json"]


def recipe_names() -> list[str]:
    """Names of all recipes, in order."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str) -> AgentRecipe:
    """Read a recipe; raises ConfigError when there is none of this name, or it is wrong or without its pinned lists."""
    path, known = RECIPES / f"{name}.yaml", recipe_names()
    if name not in known:
        raise ConfigError([f"{path}: there is no such recipe{suggestion(name, known)}; there are: {', '.join(known)}"])
    recipe = validate(load_yaml(path), AgentRecipe, str(path))
    if missing := [str(pins) for pins in recipe.pins(name) if not pins.is_file()]:
        raise ConfigError([f"{path}: its pinned list {missing[0]} does not exist"])
    return recipe


def protocol_mismatch(program: str, endpoint: str) -> str:
    """Error for a program and endpoint of different protocols, with the remedy; empty where both agree."""
    if program == endpoint:
        return ""
    return (
        f"the program speaks '{program}', the endpoint '{endpoint}', and requests are passed on unchanged.\n"
        f"Set 'protocol: {program}' and the 'base_url' of a server that speaks it: the model's server itself (vLLM "
        "speaks Responses and Messages) or a gateway in front of it (LiteLLM proxy, OpenRouter): docs/serving.md."
    )


def home_files(name: str) -> dict[str, Path]:
    """Settings that a program finds in its HOME: path there → file of the recipe."""
    folder = RECIPES / name
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path for path in files}
