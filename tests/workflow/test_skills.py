"""Skills in a real container: one agent uses them, one does not, and one whose skills hold answers never runs.

Claude Code itself, from npm, with a scripted model: it offers skills and tools of MCP servers, and their use is seen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_recipe, make_score, written_campaign
from toys._bench import stage
from unprivileged import IMAGES, ROOT, USER, as_user, user_folder, why_not

from automedbench.base.files import read_record, write_record
from automedbench.base.records import HelpUse, RunId, RunRecord
from automedbench.campaign.record import read_campaign
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.skills import read_skill_use
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(600)]

TASK = "bccd-det-task"
CODE = {"reader": "cat ${SKILLS_DIR:-/none}/cells/SKILL.md", "ignorer": "ls ${SKILLS_DIR:-/none}"}
"""To list the folder is not to read what is in it."""
ABOUT = "How to count the cells of a smear"
SKILL = f"---\nname: cells\ndescription: {ABOUT}\n---\nCheck each output twice.\n"
IN_HOME = "/tmp/home/.claude/skills/cells/SKILL.md"
WAYS: dict[str, tuple[str, dict[str, str]] | None] = {
    "Skill": ("Skill", {"skill": "cells"}),
    "Read": ("Read", {"file_path": IN_HOME}),
    "Bash": ("Bash", {"command": f"cat {IN_HOME}", "description": "Read"}),
    "none": None,
}
"""The ways in which the model of Claude Code can open a skill, and one in which it leaves it alone."""
SERVERS = ROOT / "tests/cli_agent/mcp_server"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of the ordinary user with staged data, scripted agents and a campaign that gives them skills."""
    if reason := why_not("light"):
        pytest.skip(reason)
    stage("detection", tmp_path_factory.mktemp("toy"))  # loads code that the user may not read where it is root's
    with user_folder() as folder:
        as_user(lambda: _prepare(folder, _scripted(folder), IMAGES, {}))
        yield folder


def _scripted(folder: Path) -> dict[str, Any]:
    """Entries of the scripted agents, and the files with their turns."""
    agents = {}
    for name, code in CODE.items():
        call = {"tool": "execute_code", "language": "bash", "code": code}
        turns = [
            {"content": "Look.", "calls": [call]},
            {"content": "", "calls": [{"tool": "submit_results", "summary": ""}]},
        ]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(turns))
        agents[name] = {"provider": "scripted", "script": str(folder / f"{name}.yaml")}
    return agents


def _prepare(folder: Path, agents: dict[str, Any], images: Path, treatments: dict[str, Any]) -> None:
    toy = folder / "toy"
    write_record(toy / f"{TASK}.json", stage("detection", toy).manifest)
    (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": agents}))
    (folder / "skill/cells").mkdir(parents=True)
    (folder / "skill/cells/SKILL.md").write_text(SKILL)
    treatments = treatments | {"skill": {"agents": list(agents), "skills": str(folder / "skill")}}
    written_campaign(
        folder,
        ROOT / f"config/tasks/detection/{TASK}.yaml",
        agents_file=str(folder / "agents.yaml"),
        data={name: str(toy / name) for name in ("raw", "public", "private")} | {"manifests": str(toy)},
        sandbox={"backend": "apptainer", "network": "sealed"},
        containers={"folder": str(images), "agent": {"image": "light"}},
        treatments=treatments,
    )


def run_python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A script or module of the project as the ordinary user; both streams come back in ``stdout``."""
    python = str(as_user(lambda: sys.executable))
    user = ("runuser", "-u", USER, "--") if os.geteuid() == 0 else ()
    path = f"{ROOT / 'src'}:{sysconfig.get_paths()['purelib']}"
    kept = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "NODE_"))]
    own = ("PYTHONPATH=" + path, f"HOME={folder}", f"PATH={os.environ['PATH']}", "SCRIPTED_KEY=sk-scripted")
    return subprocess.run(
        [*user, "env", "-i", *own, *kept, python, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def play(folder: Path, agent: str, repeat: int = 1) -> tuple[subprocess.CompletedProcess[str], Path]:
    """``scripts/run_agent.py`` as the ordinary user, and the folder of the run."""
    home = folder / "results/runs" / RunId(agent=agent, task=TASK, tier="lite", repeat=repeat).path
    campaign = str(folder / "results/campaign.json")
    return run_python(folder, "scripts/run_agent.py", "--campaign", campaign, "--run", str(home)), home


def used(folder: Path, *homes: Path) -> dict[str, list[HelpUse]]:
    """What the runs in these folders used of their treatment."""
    records = [read_record(home / "run.json", RunRecord) for home in homes]
    scores = [make_score(each.run, recipe=make_recipe(agent_settings=each.agent_settings)) for each in records]
    return read_skill_use(folder / "results", [BoardEntry(score.run, score.track, score) for score in scores])


def test_use_is_what_was_opened(place: Path) -> None:
    """Both variants and their bases; the same brief but for the skills, and the same code in each."""
    played = {agent: play(place, agent) for name in CODE for agent in (name, f"{name}+skill")}
    assert [done.stdout for done, _ in played.values() if done.returncode] == []
    told = {agent: "`/skills` holds" in (home / "brief.md").read_text() for agent, (_, home) in played.items()}
    assert told == {agent: agent.endswith("+skill") for agent in played}
    records = [read_record(home / "run.json", RunRecord) for _, home in played.values()]
    assert len({record.common_brief_sha256 for record in records}) == 1
    assert len({record.agent_digest for record in records}) == 4
    assert used(place, *(home for _, home in played.values())) == {
        f"reader+skill/{TASK}/lite/r1": [HelpUse(file="cells/SKILL.md", call=1, stage="S1")],
        f"ignorer+skill/{TASK}/lite/r1": [],
    }


def test_skills_with_an_answer_are_refused_before_anything_starts(place: Path) -> None:
    manifest = read_campaign(place / "results/campaign.json").manifest(TASK)
    case = yaml.safe_load(manifest.read_text())["cases"][1]["id"]
    as_user(lambda: (place / "skill/cells/notes.md").write_text(f"Seen before.\n{case}: 3 red cells\n"))
    done, home = play(place, "reader+skill", repeat=2)
    assert done.returncode == 1 and f"gives answers of {TASK} away" in done.stdout
    assert f"cells/notes.md:2 holds the case id {case.lower()}" in done.stdout
    assert not (home / "attempts").exists()


# --- Claude Code ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ScriptedServer]]:
    """A campaign of Claude Code with its layer, and the server that is its model; each test says what that answers."""
    if reason := why_not("light"):
        pytest.skip(reason)
    stage("detection", tmp_path_factory.mktemp("toy"))
    with user_folder() as folder, ScriptedServer(answers=[reply(0, None)]) as server:
        entry = {"provider": "command", "layer": "claude-code", "protocol": "messages", "model": "scripted"}
        entry |= {"base_url": server.url, "api_key_env": "SCRIPTED_KEY"}
        servers = {"mcp": {"agents": ["claude-code"], "mcp": str(SERVERS)}}
        as_user(lambda: _prepare(folder, {"claude-code": entry}, folder / "images", servers))
        as_user(lambda: _link_images(folder / "images"))
        built = run_python(
            folder, "-m", "automedbench", "agents", "build", "claude-code", "--image", f"{folder}/images/light.sif"
        )
        assert built.returncode == 0, built.stdout[-3000:]
        yield folder, server


def _link_images(folder: Path) -> None:
    folder.mkdir()
    for file in IMAGES.iterdir():
        if file.name.startswith(("light.", "agent-claude-code.")):
            (folder / file.name).symlink_to(file)


def reply(number: int, call: tuple[str, dict[str, str]] | None) -> Answer:
    """A reply of the model: some text and a call of one of the program's tools, or text alone, at which it ends."""
    content: list[dict[str, Any]] = [{"type": "text", "text": "Now."}]
    if call:
        content.append({"type": "tool_use", "id": f"toolu_{number}_1", "name": call[0], "input": call[1]})
    body = {"content": content, "stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    body |= {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted"}
    return Answer(body=body | {"usage": {"input_tokens": 100, "output_tokens": 10}})


def ask(
    layered: tuple[Path, ScriptedServer], agent: str, repeat: int, *calls: tuple[str, dict[str, str]] | None
) -> tuple[str, Path]:
    """A run in which the model makes these calls one after the other: what its first request said, and its folder."""
    folder, server = layered
    first = len(server.requests)
    server._answers[:] = [reply(number, call) for number, call in enumerate([*filter(None, calls), None], start=1)]
    done, home = play(folder, agent, repeat)
    assert done.returncode == 0 and "submitted" in done.stdout, done.stdout[-3000:]
    return json.dumps({key: server.requests[first][key] for key in ("system", "messages", "tools")}), home


LIST = ("Bash", {"command": "ls", "description": "List files"})


@pytest.mark.long
def test_claude_code_is_offered_a_skill_and_each_way_to_open_it_counts(layered: tuple[Path, ScriptedServer]) -> None:
    """Call 1 is the program, call 2 lists files; the Skill tool is no code call, so 2 is the last one by then."""
    base, home = ask(layered, "claude-code", 1, LIST)
    asked, homes = {}, {}
    for repeat, (way, call) in enumerate(WAYS.items(), start=1):
        asked[way], homes[way] = ask(layered, "claude-code+skill", repeat, LIST, call, LIST)
        assert asked[way].replace(f"- cells: {ABOUT}\\n", "") == base and ABOUT in asked[way]
        assert (homes[way] / "brief.md").read_bytes() == (home / "brief.md").read_bytes()
    found = {way: used(layered[0], homes[way]).popitem()[1] for way in WAYS}
    assert {way: reads[0] if reads else None for way, reads in found.items()} == {
        "Skill": HelpUse(file="cells/SKILL.md", call=2, stage="S1"),
        "Read": HelpUse(file="cells/SKILL.md", call=3, stage="S1"),
        "Bash": HelpUse(file="cells/SKILL.md", call=3, stage="S1"),
        "none": None,
    }
    plain, treated = (read_record(each / "run.json", RunRecord) for each in (home, homes["none"]))
    assert plain.agent_settings == {key: value for key, value in treated.agent_settings.items() if key != "treatment"}
    assert plain.enforced == treated.enforced


@pytest.mark.long
def test_claude_code_is_offered_the_tools_of_a_server_and_calls_count(layered: tuple[Path, ScriptedServer]) -> None:
    """A server that only runs is not used; a call that fails does not count. Claude Code has tools searched first."""
    base, home = ask(layered, "claude-code", 2, LIST)
    search = ("ToolSearch", {"query": "select:mcp__cells__count"})
    asked, called = ask(
        layered, "claude-code+mcp", 1, LIST, search, ("mcp__cells__count", {}), ("mcp__cells__fail", {})
    )
    idle = ask(layered, "claude-code+mcp", 2, LIST)[1]
    assert asked.replace("mcp__cells__count\\nmcp__cells__fail\\n", "") == base != asked
    assert "7 cells" in json.dumps(layered[1].requests)
    assert (called / "brief.md").read_bytes() == (home / "brief.md").read_bytes()
    run = f"claude-code+mcp/{TASK}/lite/r"
    assert used(layered[0], called, idle) == {
        f"{run}1": [HelpUse(file="mcp__cells__count", call=2, stage="S1")],
        f"{run}2": [],
    }
