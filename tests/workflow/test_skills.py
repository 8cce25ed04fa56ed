"""Skills in a real container: one agent uses them, one does not, and one whose skills hold answers never runs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from factories import make_recipe, make_score, written_campaign
from toys._bench import stage
from unprivileged import IMAGES, ROOT, USER, as_user, user_folder, why_not

from automedbench.base.files import read_record, write_record
from automedbench.base.records import RunId, RunRecord
from automedbench.campaign.record import read_campaign
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.skills import SkillRead, read_skill_use

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(600)]

TASK = "bccd-det-task"
CODE = {"reader": "cat ${SKILLS_DIR:-/none}/cells/SKILL.md", "ignorer": "ls ${SKILLS_DIR:-/none}"}
"""To list the folder is not to read what is in it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of the ordinary user with staged data, scripted agents and a campaign that gives them skills."""
    if reason := why_not("light"):
        pytest.skip(reason)
    stage("detection", tmp_path_factory.mktemp("toy"))  # loads code that the user may not read where it is root's
    with user_folder() as folder:
        as_user(lambda: _prepare(folder))
        yield folder


def _prepare(folder: Path) -> None:
    toy = folder / "toy"
    write_record(toy / f"{TASK}.json", stage("detection", toy).manifest)
    agents = {}
    for name, code in CODE.items():
        call = {"tool": "execute_code", "language": "bash", "code": code}
        turns = [
            {"content": "Look.", "calls": [call]},
            {"content": "", "calls": [{"tool": "submit_results", "summary": ""}]},
        ]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(turns))
        agents[name] = {"provider": "scripted", "script": str(folder / f"{name}.yaml")}
    (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": agents}))
    (folder / "skill/cells").mkdir(parents=True)
    (folder / "skill/cells/SKILL.md").write_text("Check each output twice.\n")
    written_campaign(
        folder,
        ROOT / f"config/tasks/detection/{TASK}.yaml",
        agents_file=str(folder / "agents.yaml"),
        data={name: str(toy / name) for name in ("raw", "public", "private")} | {"manifests": str(toy)},
        sandbox={"backend": "apptainer", "network": "sealed"},
        containers={"folder": str(IMAGES), "agent": {"image": "light"}},
        treatments={"skill": {"agents": list(CODE), "skills": str(folder / "skill")}},
    )


def play(folder: Path, agent: str, repeat: int = 1) -> tuple[subprocess.CompletedProcess[str], Path]:
    """``scripts/run_agent.py`` as the ordinary user, and the folder of the run."""
    home = folder / "results/runs" / RunId(agent=agent, task=TASK, tier="lite", repeat=repeat).path
    python = str(as_user(lambda: sys.executable))
    user = ("runuser", "-u", USER, "--") if os.geteuid() == 0 else ()
    path = f"{ROOT / 'src'}:{sysconfig.get_paths()['purelib']}"
    started = (*user, "env", "-i", f"PYTHONPATH={path}", f"HOME={folder}", f"PATH={os.environ['PATH']}", python)
    command = ["scripts/run_agent.py", "--campaign", str(folder / "results/campaign.json"), "--run", str(home)]
    done = subprocess.run(
        [*started, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done, home


def test_use_is_what_was_opened(place: Path) -> None:
    """Both variants and their bases; the same brief but for the skills, and the same code in each."""
    played = {agent: play(place, agent) for name in CODE for agent in (name, f"{name}+skill")}
    assert [done.stdout for done, _ in played.values() if done.returncode] == []
    told = {agent: "`/skills` holds" in (home / "brief.md").read_text() for agent, (_, home) in played.items()}
    assert told == {agent: agent.endswith("+skill") for agent in played}
    records = [read_record(home / "run.json", RunRecord) for _, home in played.values()]
    assert len({record.common_brief_sha256 for record in records}) == 1
    assert len({record.agent_digest for record in records}) == 4
    scores = [make_score(each.run, recipe=make_recipe(agent_settings=each.agent_settings)) for each in records]
    use = read_skill_use(place / "results", [BoardEntry(score.run, score.track, score) for score in scores])
    assert use == {
        f"reader+skill/{TASK}/lite/r1": [SkillRead("cells/SKILL.md", 1, "S1")],
        f"ignorer+skill/{TASK}/lite/r1": [],
    }


def test_skills_with_an_answer_are_refused_before_anything_starts(place: Path) -> None:
    manifest = read_campaign(place / "results/campaign.json").manifest(TASK)
    case = yaml.safe_load(manifest.read_text())["cases"][1]["id"]
    as_user(lambda: (place / "skill/cells/notes.md").write_text(f"Seen before.\n{case}: 3 red cells\n"))
    done, home = play(place, "reader+skill", repeat=2)
    assert done.returncode == 1 and f"give answers of {TASK} away" in done.stdout
    assert f"cells/notes.md:2 holds the case id {case.lower()}" in done.stdout
    assert not (home / "attempts").exists()
