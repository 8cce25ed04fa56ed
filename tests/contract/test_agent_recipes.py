"""Every recipe in config/agents can be used as it stands: its entry, its pins, its settings, its line in the docs."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from automedbench.agent.command.program import AgentProgram
from automedbench.campaign.agents import AgentsFile
from automedbench.campaign.recipes import NODE, PINS, home_files, load_recipe, recipe_names

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (ROOT / "config/agents").glob("*.yaml"))
REGISTRY = re.compile(r"https?://|registry\.|pypi\.|npmjs", re.IGNORECASE)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_all_are_found() -> None:
    assert recipe_names() == NAMES
    assert len(NAMES) == 8


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_is_an_agent_of_this_layer(name: str) -> None:
    recipe = load_recipe(name)
    (agent,) = AgentsFile.model_validate({"agents": recipe.agents}).agents.values()
    assert list(recipe.agents) == [name]
    assert (agent.provider, agent.layer, agent.protocol) == ("command", name, recipe.protocol)
    assert agent.command is None  # the recipe's own


@pytest.mark.parametrize("name", NAMES)
def test_the_block_can_be_copied_as_it_stands(name: str) -> None:
    text = Path(f"config/agents/{name}.yaml").read_text()
    block = re.search(r"^agents:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert block is not None
    pasted = yaml.safe_load("agents:\n  other: {provider: scripted, script: x}\n" + block[1])
    assert name in AgentsFile.model_validate(pasted).agents
    assert block[1].count("\n") <= 10


@pytest.mark.parametrize("name", NAMES)
def test_all_versions_are_pinned_and_no_registry_is_named(name: str) -> None:
    recipe = load_recipe(name)
    assert re.fullmatch(r"\d+(\.\d+)+", recipe.version(name))
    for path in recipe.pins(name):
        text = path.read_text()
        assert not REGISTRY.search(text), path
        if path.suffix == ".txt":
            assert all(re.fullmatch(r"[A-Za-z0-9._-]+(\[[a-z0-9,-]+\])?==[^ =]+", line) for line in text.splitlines())


@pytest.mark.parametrize("name", sorted(path.parent.name for path in (ROOT / PINS).glob("*/package.json")))
def test_a_lock_holds_what_is_wanted_with_its_hash(name: str) -> None:
    wanted = json.loads((PINS / name / "package.json").read_text())["dependencies"]
    packages = json.loads((PINS / name / "package-lock.json").read_text())["packages"]
    assert {package: packages[f"node_modules/{package}"]["version"] for package in wanted} == wanted
    assert all(each["integrity"].startswith("sha512-") for key, each in packages.items() if key)


def test_pinned_lists_come_from_what_is_asked_for() -> None:
    asked = {path.stem for path in PINS.glob("*.in")}
    assert {path.stem for path in PINS.glob("*.txt")} == asked
    assert asked == {NODE.stem} | {name for name in NAMES if load_recipe(name).registry == "pip"}


@pytest.mark.parametrize("name", NAMES)
def test_settings_can_be_read_once_they_are_filled_in(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (agent,) = AgentsFile.model_validate({"agents": recipe.agents}).agents.values()
    program = AgentProgram.create(agent, "http://127.0.0.1:20001", "sk-bridge-0")
    program.install(tmp_path, "Do it.")
    read = {".json": json.loads, ".toml": tomllib.loads, ".yml": yaml.safe_load, ".py": ast.parse}
    for place in home_files(name):
        text = (tmp_path / "home" / place).read_text()
        read.get(Path(place).suffix, str)(text)
        assert not re.search(r"\{(url|token|model|home|workspace|brief)\}", text)
    assert not re.search(r"\{[a-z]+\}", " ".join([*program.command, *program.environment.values()]))


@pytest.mark.parametrize("name", ["claude-code", "opencode"])
def test_a_limit_of_replies_is_told_to_the_program(name: str) -> None:
    """Without one in the entry the program keeps its own; a variable of the entry has the last word."""
    recipe = load_recipe(name)
    (entry,) = recipe.agents.values()
    variable, told = recipe.reply_tokens_env, []
    for more in ({}, {"max_tokens": 9000}, {"max_tokens": 9000, "env": {variable: "10"}}):
        (agent,) = AgentsFile.model_validate({"agents": {name: entry | more}}).agents.values()
        told.append(AgentProgram.create(agent, "http://127.0.0.1:20001", "sk-bridge-0").environment.get(str(variable)))
    assert told == [None, "9000", "10"]


def test_the_table_of_programs_names_what_is_pinned() -> None:
    page = Path("docs/command-line-agents.md").read_text()
    for name in NAMES:
        recipe = load_recipe(name)
        assert f"\n| `{name}` | {recipe.version(name)} | {recipe.protocol} |" in page


@pytest.mark.parametrize("page", ["README.md", "docs/models.md", "docs/serving.md"])
def test_printed_entries_can_be_copied(page: str) -> None:
    """Each block of whole entries on these pages is an agents file; others show single keys."""
    found = re.findall(r"```yaml\n(agents:\n.+?)```", Path(page).read_text(), re.DOTALL)
    blocks = [block for block in found if block.count("    model:") == block.count("    provider:")]
    assert blocks
    for block in blocks:
        AgentsFile.model_validate(yaml.safe_load(block))
