"""``automedbench tasks``: what is ready, what is missing, one card in full, what nobody has settled."""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from automedbench.agent.durable.attempts import AttemptFolder, create_attempt
from automedbench.agent.plan import compose_brief
from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import ConfigError
from automedbench.base.files import write_record
from automedbench.base.records import FIXTURE_OF, CaseEntry, Manifest, Receipt, now
from automedbench.campaign.load import build_campaign_record
from automedbench.commands import main
from automedbench.commands._campaign import select_campaign
from automedbench.commands.tasks import open_facts, write_card
from automedbench.steps.run_agent import plan_of_run

ROOT = Path(__file__).resolve().parents[2]
BCCD: dict[str, Any] = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
KAGGLE = {"kind": "kaggle", "where": "a/b", "credentials": ["KAGGLE_USERNAME", "KAGGLE_KEY"]}
MANUAL = {"kind": "manual", "where": "https://example.org"}
QUESTION = "The public checkpoint for the lite tier is not named by any source."
URL = {"kind": "url", "where": "https://example.org/a.zip"}


def card(name: str, *sources: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """BCCD under another name, with other sources."""
    unsettled = {"provenance": {"medals": "proposal", "limits": "reference"}, "open_questions": [QUESTION]}
    made = copy.deepcopy(BCCD) | {"id": name} | unsettled | changes
    made["dataset"] |= {"name": name, "sources": list(sources), "download_gb": 1.5}
    return made


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAGGLE_USERNAME", raising=False)
    monkeypatch.setenv("KAGGLE_KEY", "k")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/prompts").symlink_to(ROOT / "config/prompts")
    (tmp_path / "cards").mkdir()
    (tmp_path / "script.yaml").write_text("- content: x\n")
    cards = [
        card("free-task", URL),
        card("keys-task", KAGGLE, MANUAL),
        card("both-task", {**URL, "also": [KAGGLE]}),
        card("hand-task", MANUAL),
        card("own-task", MANUAL),
        card("fetched-task", MANUAL),
        card("staged-task", MANUAL),
        card("older-task", URL, version=2),
    ]
    for each in cards:
        (tmp_path / f"cards/{each['id']}.yaml").write_text(yaml.safe_dump(each))
    agents = {"agents": {"one": {"provider": "scripted", "script": "script.yaml", "trusted": True}}}
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump(agents))
    config = {
        "agents_file": "agents.yaml",
        "cards": ["cards"],
        "matrix": {"agents": ["one"], "tasks": ["free-task"], "tiers": ["lite"], "repeats": 1},
        "data": {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")},
        "datasets": {"own-task": {"path": "mine"}},
        "sandbox": {"backend": "local", "network": "open"},
    }
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "data/raw/fetched-task").mkdir(parents=True)
    (tmp_path / "data/raw/fetched-task/receipt.json").write_text("{}")
    for name in ("staged-task", "older-task"):
        cases = [CaseEntry(id=f"bccd_{number:04d}", inputs={}, private={}) for number in range(1, 8)]
        manifest = Manifest(
            task=name, task_version=1, track="detection", dataset=name, sampling="all of it", cases=cases
        )
        write_record(tmp_path / f"data/manifests/{name}.json", manifest)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(["tasks", *words])
    return capsys.readouterr().out


def test_states(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every way that data can be had; a manifest of another version of the card is none."""
    lines = told(capsys).splitlines()
    assert lines[0].split() == ["track", "task", "access", "ready", "cases", "GB", "open"]
    found = {line.split()[1]: " ".join(line.split()[3:]) for line in lines[1:9]}
    assert found == {  # open: the medals are a proposal, and a question; where the limits come from is known
        "both-task": "set KAGGLE_USERNAME all 1.5 2",
        "fetched-task": "fetched all 1.5 2",
        "free-task": "download all 1.5 2",
        "hand-task": "by hand all 1.5 2",
        "keys-task": "set KAGGLE_USERNAME all 1.5 2",
        "older-task": "download all 1.5 2",
        "own-task": "own copy all 1.5 2",
        "staged-task": "staged 7 1.5 2",
    }
    assert lines[-1].startswith("8 tasks, 1 staged; downloads of 12 GB")


@pytest.mark.parametrize(("folder", "state"), [("cards", "own copy"), ("absent", "by hand")])
def test_a_card_that_names_a_folder(place: Path, capsys: pytest.CaptureFixture[str], folder: str, state: str) -> None:
    (place / "cards/free-task.yaml").write_text(yaml.safe_dump(card("free-task", {"kind": "path", "where": folder})))
    (line,) = (line for line in told(capsys).splitlines() if "free-task" in line)
    assert state in line


def test_credentials_that_are_set(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAGGLE_USERNAME", "u")
    states = {cells[1]: cells[3] for line in told(capsys).splitlines() if len(cells := line.split()) > 3}
    assert (states["keys-task"], states["both-task"]) == ("download", "download")


def test_made_up_data_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fixture's receipt where the data should be; in a rehearsal it is what it should be."""
    made_up = Receipt(
        dataset="x", source=f"{FIXTURE_OF}url x", revision=None, licence="", attribution="", fetched_at=now(), files={}
    )
    for folder in ("raw", "raw-fixtures"):
        write_record(place / f"data/{folder}/free-task/receipt.json", made_up)
    states = {line.split()[1]: line for line in told(capsys).splitlines()[1:9]}
    assert "made up" in states["free-task"]
    assert not any("made up" in line for name, line in states.items() if name != "free-task")
    config = yaml.safe_load((place / "config/config.yaml").read_text())
    (place / "config/config.yaml").write_text(yaml.safe_dump(config | {"fixtures": True}))
    assert "made up" not in told(capsys)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, ["task", "ready", "cases", "GB", "open"]),
        (100, ["task", "access", "ready", "cases", "GB", "open"]),
        (None, ["track", "task", "access", "ready", "cases", "GB", "open"]),
    ],
)
def test_the_table_fits_into_the_terminal(
    root: Path,
    place: Path,
    width: int | None,
    columns: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All 48 shipped tasks without any credentials. No width: a pipe, one whole line per task whatever the window."""
    config = yaml.safe_load((place / "config/config.yaml").read_text()) | {"cards": [str(root / "config/tasks")]}
    config["matrix"]["tasks"] = ["bccd-det-task"]
    (place / "config/config.yaml").write_text(yaml.safe_dump(config))
    cards = {card.id: card for card in map(load_card, sorted((root / "config/tasks").rglob("*.yaml")))}
    for name in {name for card in cards.values() for source in card.dataset.sources for name in source.credentials}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", str(width or 40))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None, raising=False)
    lines = told(capsys).splitlines()
    assert lines[0].split() == columns
    assert width is None or max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert [name for name in cards if words.count(name) != 1] == []
    assert {"PHYSIONET_USERNAME,", "PHYSIONET_PASSWORD", "SYNAPSE_AUTH_TOKEN"} <= set(words)  # never cut
    tracks = {card.track for card in cards.values()}
    if "track" in columns:
        assert len(lines) == 1 + len(cards) + 2
        assert {line.split()[0] for line in lines[1:-2]} == tracks
    else:
        assert {line.strip() for line in lines if line[:1] not in ("", " ") and len(line.split()) == 1} == tracks
    last = {line.split()[0 if "track" not in columns else 1]: line.split()[-1] for line in lines if "-task" in line}
    for name, card in cards.items():
        assert last[name] == str(len(open_facts(card)) + len(card.open_questions))


def test_one_card(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "show", "keys-task") == (place / "cards/keys-task.yaml").read_text()


def test_the_brief_is_the_one_of_a_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Byte for byte what the step writes as brief.md, for the campaign's agent and cases; before staging, its names."""
    record = build_campaign_record(select_campaign(argparse.Namespace(configfile=[], config=[])))
    for tier in ("lite", "standard", "pro"):
        plan = plan_of_run(record, Path("results/runs/one/staged-task", tier, "r1"))
        attempt = AttemptFolder(place / tier, 1)
        brief = compose_brief(plan)
        create_attempt(attempt, brief.markdown, brief.given)
        shown = told(capsys, "show", "staged-task", "--brief", "--tier", tier)
        assert shown.encode() == (attempt.path / "brief.md").read_bytes()
        assert sorted(path.name for path in attempt.workspace.iterdir()) == ["requirements.txt"] * (tier == "lite")
    assert "bccd_0007" in shown and "bccd_0003" in told(capsys, "show", "free-task", "--brief")
    with pytest.raises(ConfigError, match="unknown agent 'two'"):
        told(capsys, "show", "staged-task", "--brief", "--agent", "two")


def test_a_download_that_tasks_share_counts_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = card("twin-task", URL)
    twin["dataset"]["name"] = "free-task"
    (place / "cards/twin-task.yaml").write_text(yaml.safe_dump(twin))
    assert told(capsys).splitlines()[-1].startswith("9 tasks, 1 staged; downloads of 12 GB")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["show", "fre-task"], r"no task 'fre-task'.*free-task"),
        (["show", "fre"], r"no task 'fre'.*free-task"),
        (["--track", "detecton"], r"--track: no task is of 'detecton'.*detection"),
        (["--track", "xyz"], r"--track: no task is of 'xyz'; tracks: detection"),
        (["new", "free-task", "--like", "own-task", "--data", "cards"], r"'free-task' is the id of cards/free-task"),
        (["new", "my-task", "--like", "own-task", "--data", "none"], r"--data: there is no folder none"),
    ],
)
def test_unknown_names(place: Path, words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        main(["tasks", *words])


def test_every_provenance_stands_for_something() -> None:
    """Its dotted keys are keys of the card."""
    for path in sorted((ROOT / "config/tasks").rglob("*.yaml")):
        shown: TaskCard = load_card(path)
        for key in shown.provenance:
            value: Any = shown.model_dump(mode="json")
            for part in key.split("."):
                value = value[int(part)] if isinstance(value, list) else value[part]


def test_every_card_becomes_one_for_own_data(tmp_path: Path) -> None:
    """It is valid, fetches from the folder alone, and says nothing of the other task's origin; none is written over."""
    for path in (ROOT / "config/tasks").glob("*/*.yaml"):
        file = write_card(yaml.safe_load(path.read_text()), f"own-{path.stem}", "/data/own", tmp_path)
        card = load_card(file)
        assert [(source.kind, source.where) for source in card.dataset.sources] == [("path", "/data/own")]
        assert (card.references, card.open_questions, card.provenance) == ([], [], {})
        assert card.dataset.access == "registration"  # no pictures of own patients on pages
        assert (card.dataset.sources[0].files, card.dataset.layout) == ([], "")  # the folder holds no such files
    with pytest.raises(ConfigError, match="exists: nothing was written"):
        write_card(BCCD, "own-bccd-det-task", "/data/own", tmp_path)


def test_own_data_in_the_form_of_another_task(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its patterns are kept where each finds a file; else all files are taken, and what else to edit is said."""
    like = card("like-task", URL | {"files": ["images/*.png"]})
    (place / "cards/like-task.yaml").write_text(yaml.safe_dump(like))
    (place / "own/images").mkdir(parents=True)
    (place / "own/images/a.png").write_text("")
    assert "`staging`" not in told(capsys, "new", "my-task", "--like", "like-task", "--data", "own", "--out", "mine")
    assert load_card(Path("mine/my-task.yaml")).dataset.sources[0].files == ["images/*.png"]
    (place / "own/images/a.png").rename(place / "own/a.png")
    said = told(capsys, "new", "other-task", "--like", "like-task", "--data", "own", "--out", "mine")
    assert said.endswith("own is laid out otherwise than like-task: edit `staging` as well.\n")
