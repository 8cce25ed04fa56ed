"""A model behind a real endpoint: the work of the script, with tokens, costs and a key that stays outside."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest
import yaml
from canaries import exposures
from conftest import Project, give_to_stranger
from demo_scores import DEMO_SCORES, shown_scores

from automedbench.agent.models.scripted import load_turns
from automedbench_rehearsal.model_server.server import ScriptedServer

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(900)]

RUN = "served/bccd-det-task/lite/r1"
SCRIPT = "demo/agents/detection/careful.yaml"
PRICING = {"input": "10", "output": "100", "as_of": "2026-01-01", "source": "made up"}


def campaign(project: Project, url: str) -> tuple[str, ...]:
    """Options of a campaign with one agent behind ``url``, next to the scripted ``silent``."""
    folder = project.path / "build" / "served"
    folder.mkdir(parents=True, exist_ok=True)
    agents = yaml.safe_load((project.path / "demo/agents.yaml").read_text())
    agents["agents"]["served"] = {
        "provider": "openai",
        "model": "served-model",
        "base_url": url,
        "api_key_env": "SERVED_KEY",
        "pricing": PRICING,
    }
    (folder / "agents.yaml").write_text(yaml.safe_dump(agents))
    config = {
        "agents_file": "build/served/agents.yaml",
        "matrix": {"agents": ["served", "silent"]},
        "results": "served",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    give_to_stranger(project, project.path / "build")
    return ("--configfile", "demo/config.yaml", "demo/apptainer.yaml", "build/served/config.yaml", "--")


@pytest.fixture
def options(container_stranger: Project) -> Iterator[tuple[Project, ScriptedServer, tuple[str, ...]]]:
    project = container_stranger
    with ScriptedServer(project.path / SCRIPT, usage=(3, 2)) as server:
        yield project, server, campaign(project, server.url)


def test_without_the_key_only_this_agent_fails(options: tuple[Project, ScriptedServer, tuple[str, ...]]) -> None:
    """What is finished stands on the page of a call that failed."""
    project, server, files = options
    done = project.snakemake(*files, "all")
    assert done.returncode != 0
    assert "SERVED_KEY" in done.stdout
    assert "Traceback" not in done.stdout
    assert (project.path / "served/runs/silent/bccd-det-task/lite/r1/score.json").is_file()
    assert server.requests == []
    shown = (project.path / "served/leaderboard/runs.csv").read_text()
    assert "silent" in shown and "served" not in shown


def test_served_model_earns_what_the_script_earns(options: tuple[Project, ScriptedServer, tuple[str, ...]]) -> None:
    project, server, files = options
    key = f"sk-{secrets.token_hex(16)}"
    done = project.snakemake(*files, "all", SERVED_KEY=key)
    assert done.returncode == 0, done.stdout[-4000:]
    assert shown_scores(project.path / "served")["served"] == pytest.approx(DEMO_SCORES["careful"], abs=0.06)
    totals = json.loads((project.path / "served/runs" / RUN / "run.json").read_text())["totals"]
    turns = len(server.requests)
    assert turns == totals["turns"] == len(load_turns(project.path / SCRIPT))
    # By hand: 3 prompt and 2 completion tokens a turn at 10 and 100 USD per million.
    assert (totals["tokens"]["prompt"], totals["tokens"]["completion"]) == (3 * turns, 2 * turns)
    assert float(totals["cost_usd"]) == pytest.approx(turns * (3 * 10 + 2 * 100) / 1e6)
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {key}"}
    files_of_the_run = [path for path in (project.path / "served").rglob("*") if path.is_file()]
    assert len(files_of_the_run) > 50
    assert exposures(key, project.path / "served") == []
