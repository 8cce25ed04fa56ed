"""What the rules are told: options, names, and versions that change exactly when a step must be repeated."""

from __future__ import annotations

import copy
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from automedbench.base.errors import ConfigError
from automedbench.planning.wiring import Wiring
from automedbench.tracks import detection

ROOT = Path(__file__).resolve().parents[2]
CARD: dict[str, Any] = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
TASK = SimpleNamespace(task="bccd-det-task", agent="one", tier="lite", repeat="1", dataset="bccd")


class Place:
    """A working directory as the workflow has it: configuration, one card, two agents, rubrics."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "cards").mkdir()
        (folder / "config").mkdir()
        (folder / "config/rubrics").symlink_to(ROOT / "config/rubrics")
        (folder / "envs").mkdir()
        (folder / "envs/scorer.txt").write_text("numpy==1\n")
        (folder / "script.yaml").write_text("- content: x\n")
        agent = {"provider": "scripted", "script": "script.yaml", "trusted": True}
        (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": {"one": agent, "two": agent}}))
        self.card()
        self.config: dict[str, Any] = {
            "agents_file": "agents.yaml",
            "cards": ["cards"],
            "matrix": {"agents": ["one", "two"], "tasks": ["bccd-det-task"], "tiers": ["lite"], "repeats": 2},
            "data": {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")},
            "sandbox": {"backend": "local", "network": "open"},
        }

    def card(self, **changes: Any) -> None:
        (self.folder / "cards/bccd-det-task.yaml").write_text(yaml.safe_dump(copy.deepcopy(CARD) | changes))

    def wiring(self, **changes: Any) -> Wiring:
        return Wiring(self.config | changes, ["config/config.yaml"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


def versions(wiring: Wiring) -> dict[str, str]:
    """Version of every rule that has one."""
    return {
        "fetch_dataset": wiring.source_version(TASK),
        "stage_task": wiring.staging_version(TASK),
        "run_agent": wiring.run_version(TASK),
        "score_metrics": wiring.scoring_version(TASK),
        "audit_run": wiring.policy_version,
        "score_judge": wiring.judge_version(TASK),
    }


def options_of(text: str) -> dict[str, str]:
    """``--name value`` pairs of a shell text; flags have an empty value."""
    words, found = shlex.split(text), {}
    for number, word in enumerate(words):
        if word.startswith("--"):
            following = words[number + 1 : number + 2]
            found[word[2:]] = following[0] if following and not following[0].startswith("--") else ""
    return found


# --- nothing there --------------------------------------------------------------------------------------------


def test_no_configuration() -> None:
    """No traceback: the required keys, one line each."""
    with pytest.raises(ConfigError, match="matrix: is required"):
        Wiring({}, [])


def test_names_that_match_nothing() -> None:
    """An empty list of agents must not become a pattern that matches everything."""
    assert re.fullmatch(Wiring.one_of([]), "") is None
    assert re.fullmatch(Wiring.one_of(["a.b"]), "aXb") is None
    assert re.fullmatch(Wiring.one_of(["a.b", "a"]), "a.b")


# --- names and files ------------------------------------------------------------------------------------------


def test_files_of_all_runs(place: Place) -> None:
    wiring = place.wiring()
    assert wiring.run_files(f"{wiring.run}/score.json") == [
        f"results/runs/{agent}/bccd-det-task/lite/r{repeat}/score.json" for agent in ("one", "two") for repeat in (1, 2)
    ]


def test_images_only_where_containers_are_used(place: Place) -> None:
    assert place.wiring().images == []
    isolated = place.wiring(sandbox={"backend": "apptainer"}, containers={"folder": "/big/images"})
    assert isolated.images == ["/big/images/agent.sif", "/big/images/scorer.sif"]
    assert options_of(isolated.run_options)["image"] == "/big/images/agent.sif"
    assert options_of(isolated.collect_options)["image"] == "/big/images/scorer.sif"


def test_only_tasks_with_runs_are_staged(place: Place) -> None:
    assert place.wiring().manifests("m/{task}.json") == ["m/bccd-det-task.json"]


def test_a_rehearsal_passes_over_data_that_cannot_be_made_up(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A card of one's own needs nothing beside it: what has no stand-in is told and left out."""
    own = copy.deepcopy(CARD) | {"id": "own-det-task"}
    own["dataset"] |= {"name": "own_data"}
    (place.folder / "cards/own-det-task.yaml").write_text(yaml.safe_dump(own))
    assert place.wiring(fixtures=True).manifests("m/{task}.json") == ["m/bccd-det-task.json"]
    assert capsys.readouterr().err == "Not rehearsed, as there is no made-up data for it: own-det-task\n"


# --- options --------------------------------------------------------------------------------------------------


def test_paths_with_spaces_and_braces_survive(place: Place) -> None:
    """Snakemake formats a shell command: braces must be doubled, words quoted."""
    data = place.config["data"] | {"private": "my data/{x}"}
    text = place.wiring(data=data).staging_options.format()
    assert options_of(text) == {"public": "data/public", "private": "my data/{x}"}


def test_isolation_is_an_option_of_the_run(place: Place) -> None:
    options = options_of(place.wiring().run_options)
    assert {"sandbox": "local", "network": "open", "max-warnings": "1"}.items() <= options.items()
    assert "no-gpu" in options
    assert "image" not in options


def test_limits_are_options_only_where_they_are_set(place: Place) -> None:
    assert "time-limit" not in options_of(place.wiring().run_options)
    options = options_of(place.wiring(limits={"time_limit_s": 60, "max_turns": None}).run_options)
    assert (options["time-limit"], options["max-turns"]) == ("60", "none")


def test_own_copy_of_a_data_set(place: Place) -> None:
    assert place.wiring().path_option(TASK) == ""
    assert place.wiring(datasets={"bccd": {"path": "a b"}}).path_option(TASK) == "--path 'a b'"


def test_only_a_rehearsal_stages_made_up_data(place: Place) -> None:
    """A part of the user's own data set is a part of the real one."""
    assert place.wiring().excerpt_option(TASK) == ""
    part = place.wiring(datasets={"bccd": {"path": "a b", "excerpt": True}})
    assert part.excerpt_option(TASK) == "--excerpt"
    assert place.wiring(fixtures=True).excerpt_option(TASK) == "--excerpt --fixtures"


def test_private_data_goes_to_scorer_and_staging_only(place: Place) -> None:
    """No other step is even told where it is."""
    wiring = place.wiring()
    texts = {name: str(getattr(wiring, name)) for name in dir(Wiring) if name.endswith("_options")}
    assert {name for name, text in texts.items() if "--private" in text} == {"scorer_options", "staging_options"}


# --- versions -------------------------------------------------------------------------------------------------


def _raise_track(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(detection, "TRACK", replace(detection.TRACK, version=2))
    return {}


def _change(**card: Any) -> Any:
    def change(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        place.card(**card)
        return {}

    return change


def _configure(**config: Any) -> Any:
    return lambda place, monkeypatch: config


def _write(name: str, text: str) -> Any:
    def change(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        (place.folder / name).write_text(text)
        return {}

    return change


SAMPLING = CARD["staging"] | {"sampling": CARD["staging"]["sampling"] | {"seed": 43}}
SOURCE = CARD["dataset"] | {"sources": [CARD["dataset"]["sources"][0] | {"revision": "main"}]}


@pytest.mark.parametrize(
    ("change", "repeated"),
    [
        pytest.param(_change(), set(), id="nothing"),
        pytest.param(_change(description="other words", title="x"), set(), id="words of a card"),
        pytest.param(_change(limits={"time_limit_s": 60}), set(), id="limits of a card"),
        pytest.param(_configure(limits={"time_limit_s": 60}), set(), id="limits of the configuration"),
        pytest.param(_configure(pooling="runs"), set(), id="pooling"),
        pytest.param(_configure(results="elsewhere"), set(), id="place of results"),
        pytest.param(_raise_track, {"score_metrics"}, id="track VERSION"),
        pytest.param(_change(medals=[]), {"score_metrics"}, id="medals"),
        pytest.param(
            _change(metric={"name": "map50", "settings": {"iou_threshold": 0.75}}),
            {"score_metrics"},
            id="metric settings",
        ),
        pytest.param(_change(version=2), {"stage_task", "run_agent", "score_metrics"}, id="card version"),
        pytest.param(_change(staging=SAMPLING), {"stage_task"}, id="sampling"),
        pytest.param(_change(dataset=SOURCE), {"fetch_dataset"}, id="source"),
        pytest.param(_configure(datasets={"bccd": {"path": "own"}}), {"fetch_dataset"}, id="own copy"),
        pytest.param(_write("script.yaml", "- content: y\n"), {"run_agent"}, id="an agent's script"),
        pytest.param(
            _configure(sandbox={"backend": "local", "network": "open", "max_warnings": 2}),
            {"audit_run"},
            id="policy setting",
        ),
    ],
)
def test_a_change_repeats_exactly_what_it_touches(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: Any, repeated: set[str]
) -> None:
    before = versions(place.wiring())
    after = versions(place.wiring(**change(place, monkeypatch)))
    assert {rule for rule in before if before[rule] != after[rule]} == repeated


def test_rubric_version_repeats_the_judge(place: Place, tmp_path: Path) -> None:
    before = versions(place.wiring())
    rubrics = tmp_path / "config/rubrics"
    rubrics.unlink()
    rubrics.mkdir()
    for path in (ROOT / "config/rubrics").iterdir():
        text = path.read_text()
        number = re.search(r"^version: (\d+)$", text, re.MULTILINE)
        assert number is not None
        (rubrics / path.name).write_text(text.replace(number[0], f"version: {int(number[1]) + 1}", 1))
    after = versions(place.wiring())
    assert {rule for rule in before if before[rule] != after[rule]} == {"score_judge"}


def test_scorer_pins_count_where_the_scorer_is_a_container(place: Place) -> None:
    settings: list[dict[str, Any]] = [{"sandbox": {"backend": "apptainer"}}, {}]
    isolated, local = (place.wiring(**setting).scoring_version(TASK) for setting in settings)
    (place.folder / "envs/scorer.txt").write_text("numpy==2\n")
    isolated_after, local_after = (place.wiring(**setting).scoring_version(TASK) for setting in settings)
    assert isolated != isolated_after
    assert local == local_after


# --- cards are checked by their tracks ------------------------------------------------------------------------


def test_wrong_metric_settings_name_the_file(place: Place) -> None:
    place.card(metric={"name": "map50", "settings": {"iou_treshold": 0.5, "max_detections": 0}})
    with pytest.raises(ConfigError) as caught:
        place.wiring()
    assert sorted(caught.value.problems) == [
        "cards/bccd-det-task.yaml: metric.settings.iou_treshold: unknown key (did you mean 'iou_threshold'?)",
        "cards/bccd-det-task.yaml: metric.settings.max_detections: input should be greater than or equal to 1 (got 0)",
    ]


def test_a_track_without_a_module_is_told(place: Place) -> None:
    """Its card must not be planned and then fail in the middle."""
    place.card(track="detecting")
    with pytest.raises(ConfigError, match=r"^cards/bccd-det-task\.yaml: unknown track 'detecting' \(did you mean 'det"):
        place.wiring()


# --- what only some tasks need --------------------------------------------------------------------------------


def test_a_task_scored_by_a_judge_needs_one(place: Place) -> None:
    """Found out before anything runs, by the name of the task."""
    place.card(
        track="vqa", metric={"name": "answer_score", "settings": {"scoring": "judge", "judge_model": "m"}}, medals=[]
    )
    with pytest.raises(ConfigError, match=r"answer_judge: is missing, but 'bccd-det-task' is scored by one"):
        place.wiring()


def test_resources_reach_the_scorer_and_the_preflight(place: Place) -> None:
    wiring = place.wiring(resources={"wordnet": "word net"})
    assert " --resource 'wordnet=word net'" in wiring.scorer_options
    assert " --resource 'wordnet=word net'" in wiring.preflight_options
    assert wiring.preflights == []
