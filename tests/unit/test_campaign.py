"""Campaigns: the matrix, and everything that must stop one before it starts, all at once."""

from __future__ import annotations

import copy
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from automedbench.base.errors import ConfigError
from automedbench.base.records import RunId
from automedbench.campaign.agents import Agent, AgentsFile
from automedbench.campaign.config import HubToken, Matrix, Selection
from automedbench.campaign.load import Campaign, build_campaign_record, expand_matrix, load_campaign, write_campaign
from automedbench.planning.load import COMMAND_LINE, name_files

ROOT = Path(__file__).resolve().parents[2]
CARD: dict[str, Any] = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
OPENAI = {"provider": "openai", "model": "m", "base_url": "https://example.invalid/v1", "api_key_env": "KEY"}
SCRIPTED = {"provider": "scripted", "script": "script.yaml", "trusted": True}


class Place:
    """A folder with agents and cards, and the configuration that uses them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agents_file = folder / "agents.yaml"
        self.cards = folder / "cards"
        self.cards.mkdir()
        self.agents(one=SCRIPTED, two=SCRIPTED)
        self.card("first-task")
        self.card("second-task")

    def agents(self, **agents: dict[str, Any]) -> None:
        self.agents_file.write_text(yaml.safe_dump({"agents": agents}))

    def card(self, name: str, **changes: Any) -> Path:
        path = self.cards / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**CARD, "id": name, **changes}))
        return path

    def config(self, **changes: Any) -> dict[str, Any]:
        data = {name: str(self.folder / name) for name in ("raw", "public", "private", "manifests")}
        return {
            "agents_file": str(self.agents_file),
            "cards": [str(self.cards)],
            "matrix": {"agents": ["one", "two"], "tasks": ["first-task"], "tiers": ["lite"], "repeats": 1},
            "data": data,
            "results": str(self.folder / "results"),
            "sandbox": {"backend": "apptainer"},
            **changes,
        }

    def matrix(self, **changes: Any) -> dict[str, Any]:
        return self.config(matrix={**self.config()["matrix"], **changes})

    def problems(self, config: dict[str, Any]) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_campaign(config)
        return [problem.replace(f"{self.folder}/", "") for problem in caught.value.problems]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def paths_of(campaign: Campaign) -> list[str]:
    return [run.path for run in campaign.runs]


# --- nothing there --------------------------------------------------------------------------------------------


def test_empty_configuration_lists_what_is_required() -> None:
    with pytest.raises(ConfigError) as caught:
        load_campaign({})
    assert {"config: matrix: is required", "config: data: is required"} <= set(caught.value.problems)


def test_no_agents_file(place: Place) -> None:
    """Only the file is reported, not each agent as unknown."""
    place.agents_file.unlink()
    assert place.problems(place.config()) == ["agents.yaml: file does not exist"]


def test_no_card_folder(place: Place) -> None:
    found = place.problems(place.config(cards=[str(place.folder / "crads")]))
    assert "crads: card folder does not exist" in found


def test_empty_matrix(place: Place) -> None:
    assert place.problems(place.matrix(agents=[]))[0].startswith("config: matrix.agents: list should have at least 1")


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"only": {"tiers": ["pro"]}}, id="only"),
        pytest.param({"exclude": [{}]}, id="exclude"),
    ],
)
def test_nothing_left_to_run(place: Place, config: dict[str, Any]) -> None:
    """A campaign without a run is a mistake in the selection, not a success."""
    whole = place.matrix(**config) if "exclude" in config else place.config(**config)
    assert place.problems(whole) == ["config: only: no run is left of the matrix; check 'only' and 'matrix.exclude'"]


# --- names ----------------------------------------------------------------------------------------------------


def test_unknown_names_with_the_nearest_known_one(place: Place) -> None:
    config = place.matrix(agents=["onee"], tasks=["frist-task", "zzz"], include=[], exclude=[{"agents": ["tow"]}])
    config["only"] = {"tasks": ["second-tsak"]}
    assert sorted(place.problems(config)) == [
        "config: matrix.agents: unknown agent 'onee' (did you mean 'one'?)",
        "config: matrix.exclude: unknown agent 'tow' (did you mean 'two'?)",
        "config: matrix.tasks: unknown task 'frist-task' (did you mean 'first-task'?)",
        "config: matrix.tasks: unknown task 'zzz'",
        "config: only.tasks: unknown task 'second-tsak' (did you mean 'second-task'?)",
    ]


def test_unknown_names_in_include(place: Place) -> None:
    run = {"agent": "onee", "task": "firsttask", "tier": "pro", "repeat": 1}
    assert sorted(place.problems(place.matrix(include=[run]))) == [
        "config: matrix.include: unknown agent 'onee' (did you mean 'one'?)",
        "config: matrix.include: unknown task 'firsttask' (did you mean 'first-task'?)",
    ]


def test_unknown_tier(place: Place) -> None:
    """Exactly one line: the list is not also called too short."""
    assert place.problems(place.matrix(tiers=["light"])) == [
        "config: matrix.tiers.0: input should be 'lite', 'standard' or 'pro' (got 'light')"
    ]


def test_tier_that_a_task_does_not_have(place: Place) -> None:
    place.card("first-task", tiers=["lite"])
    assert place.problems(place.matrix(tiers=["lite", "pro"])) == [
        "config: matrix.tiers: task 'first-task' has no tier 'pro'"
    ]


def test_task_that_says_why_it_is_not_lite(place: Place) -> None:
    """Three lines: what is asked for, why it cannot be had, what can."""
    place.card("first-task", tiers=["standard"], briefs={"no_lite": "No public model\nwas found."})
    assert place.problems(place.matrix(tiers=["lite", "standard"])) == [
        "config: matrix.tiers: task 'first-task' has no tier 'lite'.\nNo public model was found.\n"
        "Ask for standard; matrix.exclude: [{tasks: [first-task], tiers: [lite]}]"
    ]
    place.card("first-task", tiers=["lite"], briefs={})
    assert any("briefs.lite_model: is required" in line for line in place.problems(place.matrix(tiers=["lite"])))


def test_misspelt_keys(place: Place) -> None:
    config = place.matrix(taks=["first-task"]) | {"poolng": "runs"}
    assert sorted(place.problems(config)) == [
        "config: matrix.taks: unknown key (did you mean 'tasks'?)",
        "config: poolng: unknown key (did you mean 'pooling'?)",
    ]


def test_unknown_limit(place: Place) -> None:
    (problem,) = place.problems(place.config(limits={"max_turn": 3}))
    assert problem.startswith("config: limits: unknown limit 'max_turn' (did you mean 'max_turns'?)")


# --- everything at once ---------------------------------------------------------------------------------------


def test_problems_of_all_files_come_together(place: Place) -> None:
    """Wrong agents do not hide wrong cards; what the configuration names is read once it is valid itself."""
    place.agents(one=SCRIPTED, two={"provider": "scripted"})
    card = place.card("first-task", version=0, titel="x", medals=3)
    found = place.problems(place.config())
    assert len([problem for problem in found if problem.startswith(f"cards/{card.name}: ")]) == 3
    assert any(problem.startswith("agents.yaml: agents.two: ") for problem in found)
    assert len(found) == 4
    (problem,) = place.problems(place.config(results=3))
    assert problem.startswith("config: results: ")


def test_a_broken_card_is_not_also_an_unknown_task(place: Place) -> None:
    place.card("first-task", version=0)
    (problem,) = place.problems(place.config())
    assert problem.startswith("cards/first-task.yaml: version: ")


def test_two_cards_with_one_id(place: Place) -> None:
    (place.cards / "more").mkdir()
    (place.cards / "first-task.yaml").rename(place.cards / "more/first-task.yaml")
    place.card("first-task")
    (problem,) = place.problems(place.config())
    assert problem == "cards/more/first-task.yaml: id: 'first-task' is also the id of " + str(
        place.cards / "first-task.yaml"
    ).replace(f"{place.folder}/", "")


# --- what must never start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"private": "public/private"}, "config: data.private: lies below data.public", id="private below public"
        ),
        pytest.param({"private": "public"}, "config: data.private: lies below data.public", id="the same folder"),
        pytest.param(
            {"private": "public/../public/x"}, "config: data.private: lies below data.public", id="through '..'"
        ),
        pytest.param(
            {"private": "results/private"}, "config: data.private: lies below results", id="private below results"
        ),
        pytest.param(
            {"public": "private/public"}, "config: data.public: lies below data.private", id="public below private"
        ),
    ],
)
def test_private_data_has_its_own_place(place: Place, changes: dict[str, str], expected: str) -> None:
    data = place.config()["data"] | {name: str(place.folder / value) for name, value in changes.items()}
    (problem,) = place.problems(place.config(data=data))
    assert problem.startswith(expected)


@pytest.mark.parametrize("name", ["public", "public/results", "public/../public/x"])
def test_results_hold_answers(place: Place, name: str) -> None:
    """Cases with their answers stand in the run's folder: agents are shown what lies below public."""
    (problem,) = place.problems(place.config(results=str(place.folder / name)))
    assert problem.startswith("config: results: lies below data.public")


def test_private_data_behind_a_link(place: Place) -> None:
    """A link does not make private data look as if it lay elsewhere."""
    (place.folder / "public").mkdir()
    (place.folder / "link").symlink_to("public")
    data = place.config()["data"] | {"private": str(place.folder / "link/private")}
    (problem,) = place.problems(place.config(data=data))
    assert problem.startswith("config: data.private: lies below data.public")


def test_a_model_never_runs_in_the_local_sandbox(place: Place) -> None:
    place.agents(one=SCRIPTED, two=OPENAI)
    assert place.problems(place.config(sandbox={"backend": "local"})) == [
        "config: sandbox.backend: 'local' isolates nothing and agent 'two' is not trusted; use 'apptainer'"
    ]


def test_an_untrusted_script_never_runs_in_the_local_sandbox(place: Place) -> None:
    place.agents(one=SCRIPTED, two=SCRIPTED | {"trusted": False})
    (problem,) = place.problems(place.config(sandbox={"backend": "local"}))
    assert "agent 'two' is not trusted" in problem


def test_only_agents_that_run_are_refused(place: Place) -> None:
    """The slice counts, not the whole file."""
    place.agents(one=SCRIPTED, two=OPENAI)
    config = place.config(sandbox={"backend": "local"}, only={"agents": ["one"]})
    assert paths_of(load_campaign(config)) == ["one/first-task/lite/r1"]


JUDGE = {"model": "j", "base_url": "https://judge.invalid/v1", "api_key_env": "JUDGE_KEY"}


def judged(place: Place, judges: dict[str, Any], **judge: Any) -> dict[str, Any]:
    """A campaign judged by a panel of these models."""
    path = place.folder / "judges.yaml"
    path.write_text(yaml.safe_dump({"judges": judges}))
    return place.config(judges_file=str(path), judge={"kind": "llm", **judge})


def test_who_may_read_data_without_open_access(place: Place) -> None:
    """Not every user; folders that lie open are closed when the campaign is written down."""
    place.card("first-task", dataset=CARD["dataset"] | {"access": "registration"})
    (problem,) = place.problems(place.config(share="all"))
    assert problem == "config: share: 'first-task' uses data without open access; use 'private' or 'group'"
    names = ("raw", "public", "private", "manifests", "results")
    for share, mode in (("group", 0o750), ("private", 0o700)):
        for name in names:
            (place.folder / name).mkdir(exist_ok=True)
            (place.folder / name).chmod(0o777)
        write_campaign(load_campaign(place.config(share=share)))
        assert {stat.S_IMODE((place.folder / name).stat().st_mode) for name in names} == {mode}, share
    place.card("first-task")
    (place.folder / "results").chmod(0o755)
    write_campaign(load_campaign(place.config(share="all")))
    assert stat.S_IMODE((place.folder / "results").stat().st_mode) == 0o755


def test_panel(place: Place) -> None:
    """Its members in the order of the configuration; the heuristic judge needs no file at all."""
    campaign = load_campaign(judged(place, {"a": JUDGE, "b": JUDGE | {"model": "k"}}, panel=["b", "a"]))
    assert {name: judge.model for name, judge in campaign.judges.items()} == {"b": "k", "a": "j"}
    assert list(campaign.judges) == ["b", "a"]
    assert load_campaign(place.config(judges_file="nowhere.yaml")).judges == {}


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        pytest.param({}, "judge: judge kind 'llm' needs 'panel'", id="no panel"),
        pytest.param({"panel": ["a", "a"]}, "names a judge twice; use 'repeats'", id="twice"),
        pytest.param(
            {"panel": ["aa"]}, "config: judge.panel: no judge 'aa' in judges.yaml (did you mean 'a'?)", id="unknown"
        ),
        pytest.param({"panel": ["a"], "repeats": 0}, "judge.repeats", id="never"),
        pytest.param({"kind": "heuristic", "panel": ["a"]}, "add kind: llm", id="kind forgotten"),
        pytest.param({"kind": "heuristic", "repeats": 2}, "add kind: llm", id="rules repeated"),
    ],
)
def test_wrong_panel(place: Place, judge: dict[str, Any], words: str) -> None:
    (problem,) = place.problems(judged(place, {"a": JUDGE}, **judge))
    assert words in problem


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        pytest.param({"api_key_env": None}, "one of 'api_key_env' and 'api_key_file'", id="no key"),
        pytest.param({"api_key_file": "keys"}, "one of 'api_key_env' and 'api_key_file'", id="two keys"),
        pytest.param({"gateway": "x"}, "was removed: set HTTPS_PROXY", id="gateway"),
        pytest.param({"extra_body": {"messages": []}}, "must not contain 'messages'", id="reserved"),
        pytest.param({"temprature": 0}, "temprature", id="typing error"),
    ],
)
def test_wrong_judge(place: Place, entry: dict[str, Any], words: str) -> None:
    (problem,) = place.problems(judged(place, {"a": JUDGE | entry}, panel=["a"]))
    assert problem.startswith("judges.yaml: ")
    assert words in problem


def test_credentialed_data_needs_an_approved_judge(place: Place) -> None:
    """Transcripts about it would leave the machine."""
    dataset = CARD["dataset"] | {"access": "credentialed"}
    place.card("first-task", dataset=dataset)
    place.agents(one=SCRIPTED | {"approved_for": ["credentialed"]}, two=SCRIPTED | {"approved_for": ["credentialed"]})
    approved = JUDGE | {"approved_for": ["credentialed"]}
    (problem,) = place.problems(judged(place, {"a": JUDGE, "b": approved}, panel=["a", "b"]))
    assert problem.startswith("judges.yaml: judges.a.approved_for: 'first-task' uses credentialed data")
    assert load_campaign(judged(place, {"b": approved}, panel=["b"])).judges["b"].model == "j"


def test_judge_digest_is_of_its_behaviour(place: Place) -> None:
    """Keys, prices and approvals change no answer; model, window and form do."""
    digests = [
        load_campaign(judged(place, {"a": JUDGE | change}, panel=["a"])).judges["a"].digest()
        for change in (
            {},
            {"api_key_env": "OTHER", "approved_for": ["credentialed"], "request_timeout_s": 5},
            {"model": "k"},
            {"context_tokens": 9000},
            {"structured": "text"},
        )
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_credentialed_data_needs_an_approved_agent(place: Place) -> None:
    dataset = CARD["dataset"] | {"access": "credentialed"}
    place.card("first-task", dataset=dataset)
    place.agents(one=SCRIPTED | {"approved_for": ["credentialed"]}, two=OPENAI)
    (problem,) = place.problems(place.config())
    assert problem.startswith("agents.yaml: agents.two.approved_for: 'first-task' uses credentialed data")
    assert paths_of(load_campaign(place.config(only={"agents": ["one"]}))) == ["one/first-task/lite/r1"]


def test_a_program_needs_an_endpoint_of_its_protocol(place: Place) -> None:
    """Claude Code speaks Messages (its recipe); nothing is planned for it on an endpoint that speaks chat."""
    claude = OPENAI | {"provider": "command", "layer": "claude-code"}
    place.agents(one=SCRIPTED, two=claude)
    (problem,) = place.problems(place.config())
    assert problem.startswith("agents.yaml: agents.two.protocol: the program speaks 'messages', the endpoint 'chat'")
    assert "'protocol: messages'" in problem and "LiteLLM" in problem and problem.endswith("docs/serving.md.")
    place.agents(one=SCRIPTED, two=claude | {"protocol": "messages"})
    assert len(load_campaign(place.config()).runs) == 2


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        pytest.param({}, "provider: is required", id="nothing"),
        pytest.param({"provider": "scripted"}, "a scripted agent needs 'script'", id="scripted without script"),
        pytest.param(OPENAI | {"model": ""}, "an openai agent needs 'model'", id="openai without model"),
        pytest.param(OPENAI | {"trusted": True}, "an agent with a model can't be trusted", id="a trusted model"),
        pytest.param(OPENAI | {"api_key_env": "sk-123"}, "api_key_env: string should match", id="a key, not a name"),
        pytest.param(OPENAI | {"api_key": "x"}, "api_key: unknown key (did you mean 'api_key_env'?)", id="key in file"),
        pytest.param(
            OPENAI | {"pricing": {"input": 2.5, "output": "1", "as_of": "x", "source": "x"}},
            "pricing.input: input should be a valid string",
            id="price as a float",
        ),
    ],
)
def test_refused_agents(place: Place, agent: dict[str, Any], expected: str) -> None:
    place.agents(one=SCRIPTED, two=agent)
    (problem,) = place.problems(place.config())
    assert problem.startswith("agents.yaml: agents.two")
    assert expected in problem


# --- the matrix -----------------------------------------------------------------------------------------------


def test_product_in_the_order_of_the_matrix() -> None:
    """By hand: agents, then tasks, then tiers, then repeats."""
    matrix = Matrix(agents=["b", "a"], tasks=["t"], tiers=("standard", "lite"), repeats=2)
    assert [run.path for run in expand_matrix(matrix, Selection())] == [
        "b/t/standard/r1",
        "b/t/standard/r2",
        "b/t/lite/r1",
        "b/t/lite/r2",
        "a/t/standard/r1",
        "a/t/standard/r2",
        "a/t/lite/r1",
        "a/t/lite/r2",
    ]


@pytest.mark.parametrize(
    ("changes", "only", "expected"),
    [
        pytest.param({}, {}, ["a/t/lite/r1", "a/u/lite/r1", "b/t/lite/r1", "b/u/lite/r1"], id="all"),
        pytest.param(
            {"exclude": [{"agents": ["a"], "tasks": ["t"]}]},
            {},
            ["a/u/lite/r1", "b/t/lite/r1", "b/u/lite/r1"],
            id="exclude: both must match",
        ),
        pytest.param({"exclude": [{"agents": ["a"]}, {"tasks": ["u"]}]}, {}, ["b/t/lite/r1"], id="exclude: any rule"),
        pytest.param({"exclude": [{"repeats": [2]}]}, {"agents": ["a"], "tasks": ["t"]}, ["a/t/lite/r1"], id="only"),
        pytest.param(
            {"exclude": [{}], "include": [{"agent": "a", "task": "t", "tier": "pro", "repeat": 7}]},
            {},
            ["a/t/pro/r7"],
            id="include outside the product, after exclude",
        ),
        pytest.param(
            {"include": [{"agent": "a", "task": "t", "tier": "lite", "repeat": 1}]},
            {"agents": ["a"], "tasks": ["t"]},
            ["a/t/lite/r1"],
            id="include twice is once",
        ),
        pytest.param(
            {"include": [{"agent": "a", "task": "t", "tier": "pro", "repeat": 1}]},
            {"tiers": ["lite"], "agents": ["b"]},
            ["b/t/lite/r1", "b/u/lite/r1"],
            id="only also cuts what is included",
        ),
    ],
)
def test_selection(changes: dict[str, Any], only: dict[str, Any], expected: list[str]) -> None:
    base = {"agents": ["a", "b"], "tasks": ["t", "u"], "tiers": ["lite"], "repeats": 1}
    runs = expand_matrix(Matrix.model_validate(base | changes), Selection.model_validate(only))
    assert [run.path for run in runs] == expected


def test_runs_are_real_identities() -> None:
    """They are made without validation for speed; they must equal validated ones."""
    (run,) = expand_matrix(Matrix(agents=["a"], tasks=["t"], tiers=("lite",), repeats=1), Selection())
    assert run == RunId(agent="a", task="t", tier="lite", repeat=1)


def test_only_tasks_with_a_run_are_staged(place: Place) -> None:
    config = place.matrix(tasks=["first-task", "second-task"]) | {"only": {"tasks": ["second-task"]}}
    campaign = load_campaign(config)
    assert campaign.tasks == ["second-task"]
    assert campaign.datasets == ["bccd"]


# --- identity of an agent -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"model": "other"}, id="model"),
        pytest.param({"temperature": None}, id="temperature not sent"),
        pytest.param({"native_tools": False}, id="tools as text"),
        pytest.param({"extra_body": {"top_k": 1}}, id="extra body"),
    ],
)
def test_behaviour_changes_the_identity(change: dict[str, Any]) -> None:
    assert Agent.model_validate(OPENAI).digest() != Agent.model_validate(OPENAI | change).digest()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"pricing": {"input": "1", "output": "2", "as_of": "2026-01-01", "source": "x"}}, id="price"),
        pytest.param({"approved_for": ["credentialed"]}, id="approval"),
        pytest.param({"request_timeout_s": 5}, id="patience"),
    ],
)
def test_what_the_agent_never_sees_does_not(change: dict[str, Any]) -> None:
    assert Agent.model_validate(OPENAI).digest() == Agent.model_validate(OPENAI | change).digest()


def test_a_script_counts_by_its_content_not_by_its_place(tmp_path: Path) -> None:
    digests = []
    for name, text in (("a.yaml", "- content: x"), ("b.yaml", "- content: x"), ("c.yaml", "- content: y")):
        (tmp_path / name).write_text(text)
        digests.append(Agent.model_validate(SCRIPTED | {"script": str(tmp_path / name)}).digest())
    assert digests[0] == digests[1] != digests[2]


def test_agent_names_are_names_of_folders_and_of_no_script() -> None:
    for name in ("", "a/b", "..", ".hidden", "x" * 81, "constructor"):  # the last one breaks tables of a script
        with pytest.raises(ValueError, match="agents"):
            AgentsFile.model_validate({"agents": {name: SCRIPTED}})


# --- which file is to blame -----------------------------------------------------------------------------------


def test_problems_name_the_file_that_holds_the_key(tmp_path: Path) -> None:
    """Snakemake merges files and command line; the last writer of a key is the one to change."""
    base, site = tmp_path / "base.yaml", tmp_path / "site.yaml"
    base.write_text("results: 3\nmatrix: {tiers: [lite, x], repeats: 0}\n")
    site.write_text("matrix: {tiers: [lite, y]}\n")
    merged = {"results": 3, "matrix": {"tiers": ["lite", "y"], "repeats": 0, "tasks": 5}}
    problems = [
        "config: results: wrong",
        "config: matrix.tiers.1: wrong",
        "config: matrix.repeats: wrong",
        "config: matrix.tasks: from the command line",
        "config: data: is required",
        "other.yaml: key: not from the configuration",
    ]
    assert name_files(problems, merged, [str(site), str(base)]) == [
        f"{base}: results: wrong",
        f"{site}: matrix.tiers.1: wrong",
        f"{base}: matrix.repeats: wrong",
        f"{COMMAND_LINE}: matrix.tasks: from the command line",
        f"{site}: data: is required",
        "other.yaml: key: not from the configuration",
    ]


def test_unreadable_files_blame_nobody(tmp_path: Path) -> None:
    """The reason of a problem is told even where its file cannot be found."""
    assert name_files(["config: a: wrong"], {"a": 1}, []) == [f"{COMMAND_LINE}: a: wrong"]
    assert name_files(["config: b: is required"], {"a": 1}, [str(tmp_path / "no.yaml")]) == [
        f"{tmp_path / 'no.yaml'}: b: is required"
    ]


def test_shipped_configuration_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's file alone would do: it names every place."""
    monkeypatch.chdir(ROOT)
    for name in ("config/config.yaml", "demo/config.yaml"):
        config = yaml.safe_load((ROOT / name).read_text())
        campaign = load_campaign(copy.deepcopy(config))
        assert campaign.tasks == config["matrix"]["tasks"]


# --- every task -----------------------------------------------------------------------------------------------


def test_all_tasks_are_those_of_the_cards_in_the_tiers_of_the_headline(place: Place) -> None:
    """Also what the matrix does not name, such as a user's own; a demonstration is no task of a benchmark."""
    place.card("third-task", tiers=["lite"])
    place.card("shown-task", demo=True)
    place.card("shown-too-task", demo=True)
    campaign = load_campaign(place.matrix(agents=["one"], tasks=["first-task", "shown-task"], tiers=["lite", "pro"]))
    assert [run.path for run in campaign.all_tasks] == [
        "one/first-task/lite/r1",
        "one/first-task/standard/r1",
        "one/second-task/lite/r1",
        "one/second-task/standard/r1",
        "one/third-task/lite/r1",
    ]
    assert "one/shown-task/lite/r1" in paths_of(campaign)


@pytest.mark.parametrize("name", ["config/config.yaml", "demo/config.yaml"])
def test_all_tasks_of_the_shipped_campaigns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's 48, twice, less two without a lite tier, for each agent."""
    monkeypatch.chdir(ROOT)
    config = yaml.safe_load(Path(name).read_text())
    config["matrix"]["repeats"] = 1
    campaign = load_campaign(config)
    n_agents = len(config["matrix"]["agents"])
    assert len(campaign.all_tasks) == (48 * 2 - 2) * n_agents
    assert len({run.task for run in campaign.all_tasks}) == 48


@pytest.mark.parametrize("given", [{}, {"api_key_env": "HF_TOKEN", "api_key_file": "/x"}, {"api_key_env": "hf_ab-cd"}])
def test_a_token_for_gated_models_is_named_in_one_place(given: dict[str, str]) -> None:
    """And never written into the configuration itself."""
    with pytest.raises(ValueError, match=r"a token needs one of|pattern"):
        HubToken.model_validate({"models": ["google/*"], **given})


# --- treatments -------------------------------------------------------------------------------------------------


def test_variants_have_the_runs_of_their_base(place: Place) -> None:
    """After it in the matrix, included and left out with it, and of another identity; the base stays what it was."""
    included = {"agent": "one", "task": "second-task", "tier": "lite", "repeat": 1}
    config = place.matrix(repeats=2, include=[included], exclude=[{"agents": ["one"], "repeats": [2]}])
    plain = load_campaign(config)
    treated = load_campaign(config | {"treatments": {"slow": {"agents": ["one"], "limits": {"time_limit_s": 7200}}}})
    assert paths_of(treated) == [
        "one/first-task/lite/r1",
        "one+slow/first-task/lite/r1",
        "two/first-task/lite/r1",
        "two/first-task/lite/r2",
        "one/second-task/lite/r1",
        "one+slow/second-task/lite/r1",
    ]
    digests = [treated.digest(agent, "first-task") for agent in ("one", "one+slow")]
    assert digests[0] == plain.digest("one", "first-task") != digests[1]
    record, card = build_campaign_record(treated), treated.cards["first-task"]
    paid = treated.agents["one+slow"].model_copy(update={"provider": "openai"})
    assert record.limits(card, paid).time_limit_s == 7200
    assert record.limits(card, treated.agents["one"]).time_limit_s == card.limits.time_limit_s
    assert treated.agents["one+slow"].settings["treatment"] == {"limits": {"time_limit_s": 7200}}


@pytest.mark.parametrize(
    ("treatment", "problem"),
    [
        ({"agents": ["on"], "wording": 2}, "config: treatments.t.agents: unknown agent 'on' (did you mean 'one'?)"),
        ({"agents": ["one+t"], "wording": 2}, "would differ twice"),
        (
            {"agents": ["one"], "wording": 2, "text": "x"},
            "exactly one of skills, mcp, text, wording, limits; here: 'text' and",
        ),
        ({"agents": ["one"]}, "exactly one of skills, mcp, text, wording, limits; here: none"),
        ({"agents": ["one"], "limits": {"max_turns": 9, "mem_gb": 9}}, "exactly one limit, here are 2"),
        ({"agents": ["one"], "limits": {"max_turn": 9}}, "unknown limit 'max_turn'"),
    ],
)
def test_a_treatment_is_one_difference_of_an_agent(place: Place, treatment: dict[str, Any], problem: str) -> None:
    (found,) = place.problems(place.config(treatments={"t": treatment}))
    assert problem in found


def test_skills_are_a_folder_apart_from_data_and_results(place: Place) -> None:
    """Not there, empty, data itself, and a folder that holds it."""
    (place.folder / "empty").mkdir()
    (place.folder / "private/task").mkdir(parents=True)
    (place.folder / "private/task/answer.txt").write_text("yes")
    wrong = {"none": "is not a folder with files", "empty": "is not a folder with files"}
    wrong |= dict.fromkeys(("private/task", "private", "."), "lies among data or results, or holds them")
    for name, why in wrong.items():
        treatment = {"agents": ["one"], "skills": str(place.folder / name)}
        (found,) = place.problems(place.config(treatments={"t": treatment}))
        assert found.startswith("config: treatments.t.skills: ") and found.endswith(why)


def test_servers_are_for_programs_that_take_them(place: Place) -> None:
    folder, takes = place.folder / "mcp", "agent 'one' takes no MCP servers; choose a command agent whose recipe"
    folder.mkdir()
    config = place.config(treatments={"t": {"agents": ["one"], "mcp": str(folder)}})
    wrong = ("[]", '{"mcpServers": {}}', '{"mcpServers": {"a": {"url": "http://a"}}}')
    for text in (*wrong, '{"mcpServers": {"a": {"command": "a"}}}'):
        (folder / "mcp.json").write_text(text)
        *file, agent = place.problems(config)
        assert agent.startswith(f"config: treatments.t.mcp: {takes}")
        assert [each.endswith("has no mcp.json with {mcpServers: {<name>: {command: …}}}") for each in file] == (
            [True] if text in wrong else []
        )


def test_the_agents_file_holds_no_variants(place: Place) -> None:
    place.agents(one=SCRIPTED | {"treatment": {"wording": 2}}, two=SCRIPTED)
    assert "agents.one.treatment: belongs in the campaign's configuration" in place.problems(place.config())[0]
