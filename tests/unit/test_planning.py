"""What the rules are told: settings, names, and versions that change exactly when a step must be repeated."""

from __future__ import annotations

import argparse
import copy
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.campaign.load import Campaign, build_campaign_record, campaign_file, is_written, write_campaign
from automedbench.campaign.record import read_campaign
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.planning import targets, versions
from automedbench.planning.conditions import requested_conditions
from automedbench.planning.load import format_options, parse_keys, plan, require_writable
from automedbench.steps.command_line import run_log
from automedbench.tracks import detection

ROOT = Path(__file__).resolve().parents[2]
CARD: dict[str, Any] = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
TASK = "bccd-det-task"


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

    def plan(self, **changes: Any) -> Campaign:
        return plan(self.config | changes, ["config/config.yaml"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


def versions_of(campaign: Campaign) -> dict[str, str]:
    """Version of every rule that has one."""
    return {
        "fetch_dataset": versions.source_version(campaign, "bccd"),
        "stage_task": versions.staging_version(campaign, TASK),
        "run_agent": versions.run_version(campaign, "one", TASK),
        "score_metrics": versions.grading_version(campaign, TASK),
        "audit_run": versions.policy_version(campaign),
        "score_judge": versions.judge_version(campaign, "detection"),
    }


# --- nothing there --------------------------------------------------------------------------------------------


def test_no_configuration() -> None:
    """No traceback: the required keys, one line each."""
    with pytest.raises(ConfigError, match="matrix: is required"):
        plan({}, [])


def test_names_that_match_nothing() -> None:
    """An empty list of agents must not become a pattern that matches everything."""
    assert re.fullmatch(targets.match_any([]), "") is None
    assert re.fullmatch(targets.match_any(["a.b"]), "aXb") is None
    assert re.fullmatch(targets.match_any(["a.b", "a"]), "a.b")


def test_results_where_no_folder_can_be_made(tmp_path: Path) -> None:
    """Also for root: below a file is no folder."""
    require_writable(str(tmp_path / "new" / "results"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"results: .*/file cannot be written by this user"):
        require_writable(str(tmp_path / "file" / "results"))


def test_no_campaign_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where no other campaign can be named instead
    with pytest.raises(MissingDataError, match="no campaign was planned there") as caught:
        read_campaign(tmp_path / "results" / "campaign.json")
    assert "python scripts/plan_campaign.py" in str(caught.value).splitlines()[1]


# --- names and files ------------------------------------------------------------------------------------------


def test_files_of_all_runs(place: Place) -> None:
    assert targets.fill_pattern("r/{agent}/{task}/{tier}/r{repeat}/score.json", place.plan().runs) == [
        f"r/{agent}/bccd-det-task/lite/r{repeat}/score.json" for agent in ("one", "two") for repeat in (1, 2)
    ]


def test_images_only_where_containers_are_used(place: Place) -> None:
    assert place.plan().images == []
    isolated = place.plan(sandbox={"backend": "apptainer"}, containers={"folder": "/big/images"})
    assert isolated.images == ["research", "scorer"]
    assert targets.images(isolated, ["research", "scorer"]) == ["/big/images/research.json", "/big/images/scorer.json"]
    assert build_campaign_record(isolated).scorer_image == Path("/big/images/scorer.sif")


def test_another_recipe_of_its_image_repeats_an_agents_runs_and_no_others(place: Place) -> None:
    """The second agent names a flavour of its own; comments and the other flavour change nothing for it."""
    agents = yaml.safe_load((place.folder / "agents.yaml").read_text())
    agents["agents"]["two"] = agents["agents"]["two"] | {"image": "own"}
    (place.folder / "agents.yaml").write_text(yaml.safe_dump(agents))
    (place.folder / "containers").mkdir()
    for name in ("research", "own", "scorer"):
        (place.folder / f"containers/{name}.def").write_text("%post\n    true\n")
        (place.folder / f"envs/{name}.txt").write_text("numpy==1\n")

    def found() -> tuple[str, str]:
        versions.image_version.cache_clear()
        campaign = place.plan(sandbox={"backend": "apptainer"})
        assert campaign.images == ["research", "own", "scorer"]
        return versions.run_version(campaign, "one", TASK), versions.run_version(campaign, "two", TASK)

    first = found()
    (place.folder / "containers/own.def").write_text("# why\n%post\n    true\n")
    assert found() == first
    (place.folder / "envs/own.txt").write_text("numpy==2\n")
    assert found()[0] == first[0]
    assert found()[1] != first[1]
    (place.folder / "containers/own.def").unlink()
    with pytest.raises(ConfigError, match=r"agents\.two\.image: there is no containers/own\.def"):
        place.plan(sandbox={"backend": "apptainer"})


def test_what_isolates_a_run_repeats_it(place: Place) -> None:
    """Backend, network and whether all came from the cache; not what else the sandbox may be told."""
    (place.folder / "containers").mkdir()
    (place.folder / "containers/research.def").write_text("%post\n    true\n")
    (place.folder / "envs/research.txt").write_text("numpy==1\n")

    def version(**sandbox: Any) -> str:
        return versions.run_version(place.plan(sandbox=sandbox), "one", TASK)

    cache = {"cache": "cache", "offline": True}
    kinds: list[dict[str, Any]] = [
        {"backend": "local"},
        {"network": "proxied"},
        {"network": "proxied", "egress": cache},
        {"network": "sealed"},
        {"network": "sealed", "egress": cache},
        {"network": "open"},
    ]
    assert len({version(**kind) for kind in kinds}) == len(kinds)
    assert version(backend="local", network="sealed") == version(backend="local"), "it has the host's network"
    assert version(network="open", egress=cache) == version(network="open"), "nothing answers but the network"
    assert version(gpu=1, decoy=False, egress={"allow": ["example.org"]}) == version()


def test_only_tasks_with_runs_are_staged(place: Place) -> None:
    assert targets.manifests(place.plan(), "m/{task}.json") == ["m/bccd-det-task.json"]


def test_a_rehearsal_passes_over_data_that_cannot_be_made_up(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A card of one's own needs nothing beside it: what has no stand-in is told and left out."""
    own = copy.deepcopy(CARD) | {"id": "own-det-task"}
    own["dataset"] |= {"name": "own_data"}
    (place.folder / "cards/own-det-task.yaml").write_text(yaml.safe_dump(own))
    assert targets.manifests(place.plan(fixtures=True), "m/{task}.json") == ["m/bccd-det-task.json"]
    assert capsys.readouterr().err == "Not rehearsed, because there is no made-up data for it: own-det-task\n"


def test_lost_files(place: Place) -> None:
    """What a scored run lacks, and scores that a leaderboard lacks; nothing of a campaign that has neither."""
    campaign, (score, judge) = place.plan(), ("{agent}/r{repeat}/score.json", "{agent}/r{repeat}/judge.json")
    assert targets.list_lost_files(campaign, "index.html", score, [judge]) == []
    (place.folder / "one/r1").mkdir(parents=True)
    (place.folder / "one/r1/score.json").touch()
    assert targets.list_lost_files(campaign, "index.html", score, [judge]) == ["one/r1/judge.json"]
    (place.folder / "index.html").touch()
    lost = targets.list_lost_files(campaign, "index.html", score, [judge])
    assert lost == ["one/r2/score.json", "two/r1/score.json", "two/r2/score.json", "one/r1/judge.json"]


# --- the record of the settings -------------------------------------------------------------------------------


def test_record_holds_what_the_configuration_says(place: Place) -> None:
    """Read back it is the same; a rehearsal's folders are set apart once, not again by every reader."""
    campaign = place.plan(fixtures=True, limits={"time_limit_s": 60, "max_turns": None})
    write_campaign(campaign)
    record = read_campaign(campaign_file(campaign))
    assert (campaign_file(campaign), record.settings) == ("results-fixtures/campaign.json", campaign.config)
    assert record.settings.data.raw == "data/raw-fixtures"
    assert record.cards == {"bccd-det-task": "cards/bccd-det-task.yaml"}
    assert record.datasets == {"bccd": "cards/bccd-det-task.yaml"}
    limits = record.limits(record.card("bccd-det-task"), next(iter(campaign.agents.values())))
    assert (limits.time_limit_s, limits.max_turns) == (60, None)
    assert str(place.folder) not in Path(campaign_file(campaign)).read_text()


def test_a_fresh_draw_has_folders_of_its_own(place: Place) -> None:
    """All but the downloads; staged anew where the published draw keeps its version, and asked of every run."""
    published, fresh = place.plan(), place.plan(cases={"draw": 7})
    assert fresh.config.results == "results-draw7"
    assert fresh.config.data.model_dump() == {
        "raw": "data/raw", "public": "data/public-draw7", "private": "data/private-draw7",
        "manifests": "data/manifests-draw7",
    }  # fmt: skip
    assert place.plan(cases={"draw": 7}, fixtures=True).config.data.private == "data/private-fixtures-draw7"
    versions_of = [
        versions.staging_version(campaign, TASK) for campaign in (published, fresh, place.plan(cases={"draw": 8}))
    ]
    assert len(set(versions_of)) == 3 and place.plan(cases={"draw": None}).config == published.config
    assert [requested_conditions(campaign, campaign.runs[0])["draw"] for campaign in (published, fresh)] == [
        "published",
        "fresh (seed 7)",
    ]


def test_record_is_written_when_it_says_something_else(place: Place) -> None:
    campaign = place.plan()
    assert not is_written(campaign)
    write_campaign(campaign)
    before = Path(campaign_file(campaign)).stat()
    write_campaign(campaign)
    now = Path(campaign_file(campaign)).stat()
    assert (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    changed = place.plan(limits={"max_turns": 3})
    assert not is_written(changed)
    write_campaign(changed)
    assert read_campaign(campaign_file(changed)).settings.limits == {"max_turns": 3}


def test_files_of_a_run_that_is_looked_at_again(place: Place) -> None:
    """What is not beside it is read from the run's own folder; there, a run is its own home."""
    record = build_campaign_record(place.plan())
    home, again = Path("results/runs/one/t/lite/r1"), Path("results/again/rescore/one/t/lite/r1")
    files = record.run_files(again)
    again.mkdir(parents=True)
    (again / "judge.json").touch()
    assert (files.run.path, files.home, files.again) == ("one/t/lite/r1", home, "rescore")
    assert [files.file(name) for name in ("judge.json", "run.json")] == [again / "judge.json", home / "run.json"]
    assert files.out("score.json") == again / "score.json"
    assert not record.run_files(home).again
    assert str(run_log("score_metrics", files)) == "logs/rescore_metrics/one/t-lite-r1.log"
    assert str(run_log("score_metrics", record.run_files(home))) == "logs/score_metrics/one/t-lite-r1.log"
    assert not record.run_files(Path("elsewhere/one/t/lite/r1")).again


@pytest.mark.parametrize("folder", ["", "r1", "results/runs/one/t/lite/x", "results/runs/one/t/easy/r1"])
def test_no_folder_of_a_run(place: Place, folder: str) -> None:
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        build_campaign_record(place.plan()).run_files(Path(folder))


def test_configuration_as_options(place: Place) -> None:
    """What Snakemake was told, as options that mean the same campaign; one argument of a shell each."""
    (place.folder / "own.yaml").write_text(yaml.safe_dump(place.config))
    limits = {"max_turns": 7, "max_cost_usd": None}
    keys = {"limits": limits, "pooling": "runs", "results": "my results", "fixtures": False, "release": None}
    words = format_options([place.folder / "own.yaml", "config/config.yaml"], keys)
    parser = argparse.ArgumentParser()
    add_campaign_options(parser)
    config = select_campaign(parser.parse_args(shlex.split(words))).config
    assert (config.limits, config.pooling, config.results) == (limits, "runs", "my results")
    assert words.startswith("--configfile own.yaml --config ")
    assert format_options(["config/config.yaml"], {}) == "--configfile config/config.yaml"
    assert format_options(["config/config.yaml"], {"results": "mine"}) == "--config results=mine"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param("null", None, id="null"),
        pytest.param("~", None, id="null, short"),
        pytest.param("'null'", "null", id="quoted: text"),
        pytest.param('{"image": "light", "base": null}', {"image": "light", "base": None}, id="as make gives it"),
        pytest.param(
            "{gpu: 2, image: true, share: [1.5, yes]}", {"gpu": 2, "image": True, "share": [1.5, True]}, id="in"
        ),
        pytest.param("{version: '2'}", {"version": "2"}, id="quoted number"),
        pytest.param("2026-11-27", "2026-11-27", id="a date names a folder"),
        pytest.param("1e3", 1000.0, id="as Python writes numbers"),
        pytest.param("{broken: [", "{broken: [", id="no YAML"),
    ],
)
def test_values_given_on_the_command_line(text: str, value: object) -> None:
    """What YAML 1.1 says of each scalar, so that a key means the same as in a file."""
    assert parse_keys([f"key={text}"]) == {"key": value}


# --- data sets of one's own -----------------------------------------------------------------------------------


def test_own_copy_of_a_data_set(place: Place) -> None:
    assert targets.place(place.plan(), "bccd") == ""
    assert targets.place(place.plan(datasets={"bccd": {"path": "a b"}}), "bccd") == "a b"


def test_a_part_of_a_data_set_is_staged_whole(place: Place) -> None:
    assert targets.excerpt(place.plan(), TASK) == ""
    assert targets.excerpt(place.plan(datasets={"bccd": {"path": "a b", "excerpt": True}}), TASK) == "excerpt"
    assert targets.excerpt(place.plan(fixtures=True), TASK) == "excerpt"


# --- versions -------------------------------------------------------------------------------------------------


def _raise_track(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(detection, "TRACK", replace(detection.TRACK, version=99))
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
    before = versions_of(place.plan())
    after = versions_of(place.plan(**change(place, monkeypatch)))
    assert {rule for rule in before if before[rule] != after[rule]} == repeated


def test_rubric_version_repeats_the_judge(place: Place, tmp_path: Path) -> None:
    before = versions_of(place.plan())
    rubrics = tmp_path / "config/rubrics"
    rubrics.unlink()
    rubrics.mkdir()
    for path in (ROOT / "config/rubrics").iterdir():
        text = path.read_text()
        number = re.search(r"^version: (\d+)$", text, re.MULTILINE)
        assert number is not None
        (rubrics / path.name).write_text(text.replace(number[0], f"version: {int(number[1]) + 1}", 1))
    after = versions_of(place.plan())
    assert {rule for rule in before if before[rule] != after[rule]} == {"score_judge"}


def test_scorer_pins_count_where_the_scorer_is_a_container(place: Place) -> None:
    (place.folder / "containers").mkdir()
    for name in ("research", "scorer"):
        (place.folder / f"containers/{name}.def").write_text("%post\n    true\n")
    settings: list[dict[str, Any]] = [{"sandbox": {"backend": "apptainer"}}, {}]
    isolated, local = (versions.scoring_version(place.plan(**setting), TASK) for setting in settings)
    (place.folder / "envs/scorer.txt").write_text("numpy==2\n")
    isolated_after, local_after = (versions.scoring_version(place.plan(**setting), TASK) for setting in settings)
    assert isolated != isolated_after
    assert local == local_after


# --- cards are checked by their tracks ------------------------------------------------------------------------


def test_wrong_metric_settings_name_the_file(place: Place) -> None:
    place.card(metric={"name": "map50", "settings": {"iou_treshold": 0.5, "max_detections": 0}})
    with pytest.raises(ConfigError) as caught:
        place.plan()
    assert sorted(caught.value.problems) == [
        "cards/bccd-det-task.yaml: metric.settings.iou_treshold: unknown key (did you mean 'iou_threshold'?)",
        "cards/bccd-det-task.yaml: metric.settings.max_detections: input should be greater than or equal to 1 (got 0)",
    ]


def test_a_track_without_a_module_is_told(place: Place) -> None:
    """Its card must not be planned and then fail in the middle."""
    place.card(track="detecting")
    with pytest.raises(ConfigError, match=r"^cards/bccd-det-task\.yaml: unknown track 'detecting' \(did you mean 'det"):
        place.plan()


# --- what only some tasks need --------------------------------------------------------------------------------


def test_a_task_scored_by_a_judge_needs_one(place: Place) -> None:
    """Found out before anything runs, by the name of the task."""
    place.card(
        track="vqa", metric={"name": "answer_score", "settings": {"scoring": "judge", "judge_model": "m"}}, medals=[]
    )
    with pytest.raises(ConfigError, match=r"answer_judge: is missing, but 'bccd-det-task' is scored by one"):
        place.plan()


def test_preflights_of_tracks_that_need_one(place: Place) -> None:
    assert targets.all_preflights(place.plan(resources={"wordnet": "word net"})) == []
    assert build_campaign_record(place.plan(resources={"wordnet": "word net"})).resources == {
        "wordnet": Path("word net")
    }
