"""JSON Schemas, models, shipped files and documentation say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
import yaml
from make_schemas import DOCUMENTS, schema_texts, write_schemas

from automedbench.agent.models.scripted import load_script
from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.campaign.agents import AgentsFile, load_agents
from automedbench.campaign.config import CampaignConfig

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "config/schemas"
CARDS = sorted((ROOT / "config/tasks").rglob("*.yaml"))
CONFIGS = [ROOT / "config/config.yaml", ROOT / "demo/config.yaml"]
AGENTS = [ROOT / "config/agents.yaml", ROOT / "demo/agents.yaml"]


def schema(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    return data


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- schemas --------------------------------------------------------------------------------------------------


def test_files_equal_the_models() -> None:
    """``make schemas`` was run: no file is missing, left over or different."""
    found = {path.name: path.read_text() for path in SCHEMAS.iterdir()}
    assert found == schema_texts()


def test_writing_removes_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "old-record.json").write_text("{}")
    (tmp_path / "README.md").write_text("stays")
    write_schemas(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*schema_texts(), "README.md"}


def test_usage_is_a_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/make_schemas.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode != 0
    assert "usage" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_is_valid_and_strict(name: str) -> None:
    """Draft 2020-12, and unknown keys are refused at every level."""
    data = schema(name)
    jsonschema.Draft202012Validator.check_schema(data)
    objects = [data, *data.get("$defs", {}).values()]
    assert all(item.get("additionalProperties") is False for item in objects if "properties" in item)


WRITTEN_BY_HAND = ("task-card", "checkpoints", "config", "agents", "judges", "preset")


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in WRITTEN_BY_HAND])
def test_records_name_themselves(name: str) -> None:
    assert schema(name)["properties"]["schema"]["const"].startswith(f"automedbench/{name}/")


# --- shipped files --------------------------------------------------------------------------------------------


def test_there_are_cards() -> None:
    assert CARDS


@pytest.mark.parametrize("path", CARDS, ids=named)
def test_shipped_card(path: Path) -> None:
    """By the model and by the schema that an editor uses."""
    load_card(path)
    jsonschema.validate(yaml.safe_load(path.read_text()), schema("task-card"))
    assert path.parent.name == load_card(path).track


@pytest.mark.parametrize("path", CONFIGS, ids=named)
def test_shipped_configuration(path: Path) -> None:
    data = yaml.safe_load(path.read_text())
    CampaignConfig.model_validate(data)
    jsonschema.validate(data, schema("config"))


@pytest.mark.parametrize("path", AGENTS, ids=named)
def test_shipped_agents(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their scripts exist and load, for every track and task that has a card."""
    monkeypatch.chdir(ROOT)
    jsonschema.validate(yaml.safe_load(path.read_text()), schema("agents"))
    cards = [load_card(card) for card in find_cards(["config/tasks", "demo/tasks"])]
    assert cards
    for agent in load_agents(path).values():
        for script in {agent.for_task(card).script for card in cards} - {None}:
            load_script(Path(str(script)))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("config", {}, id="config: empty"),
        pytest.param("config", {"matrix": {"agents": ["a"], "taks": ["t"]}}, id="config: misspelt"),
        pytest.param("agents", {"agents": {"a": {"provider": "other"}}}, id="agents: provider"),
        pytest.param("task-card", {"id": "x"}, id="card: nearly empty"),
    ],
)
def test_schema_refuses_what_the_model_refuses(name: str, data: dict[str, Any]) -> None:
    """The control of the tests above."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema(name))
    with pytest.raises(pydantic.ValidationError):
        DOCUMENTS[name].model_validate(data)


# --- the manual -----------------------------------------------------------------------------------------------


def keys_of(data: dict[str, Any], prefix: str = "") -> set[str]:
    """Dotted keys of nested mappings."""
    found = set()
    for key, value in data.items():
        found |= {prefix + key} | (keys_of(value, f"{prefix}{key}.") if isinstance(value, dict) else set())
    return found


def model_keys(model: type[pydantic.BaseModel], prefix: str = "") -> set[str]:
    """Dotted keys of nested models."""
    found = set()
    for name, field in model.model_fields.items():
        found.add(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
            found |= model_keys(field.annotation, f"{prefix}{name}.")
    return found


def test_config_file_is_the_manual() -> None:
    """config/config.yaml shows every key that there is; ``only`` and ``limits`` name some of theirs in comments."""
    text = (ROOT / "config/config.yaml").read_text()
    known = model_keys(CampaignConfig) - {f"only.{name}" for name in ("agents", "tasks", "tiers", "repeats")}
    assert known == {key for key in keys_of(yaml.safe_load(text)) if not key.startswith("limits.")}
    for name in TaskCard.model_fields["limits"].annotation.model_fields:  # type: ignore[union-attr]
        assert name in text


@pytest.mark.parametrize("model", [CampaignConfig, AgentsFile.model_fields["agents"].annotation.__args__[1]])  # type: ignore[union-attr]
def test_every_key_is_described_in_the_readme(model: type[pydantic.BaseModel]) -> None:
    text = (ROOT / "config/README.md").read_text()
    keys = {name for name, field in model.model_fields.items() if not field.exclude}
    missing = {name for name in keys if f"`{name}" not in text and f"`.{name}" not in text}
    assert missing == set()


def test_every_line_of_the_config_file_is_explained() -> None:
    """A key is commented on its line, or heads a block whose keys are."""
    lines = (ROOT / "config/config.yaml").read_text().splitlines()
    bare = [line for line in lines if line.strip() and not line.lstrip().startswith("#") and "#" not in line]
    assert [line for line in bare if not line.rstrip().endswith(":")] == []
