"""Replay: a recorded run executed again by the real loop, and the turn at which something else comes out."""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from left_workspaces import changing
from toys._bench import Bench, stage

from automedbench.agent.models.replay import TurnReport, compare_runs, first_divergence, load_replay
from automedbench.agent.plan import RunPlan
from automedbench.agent.run import run_agent
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.records import Conversation, Message, RunId
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.commands import replay
from automedbench.commands._check import DIFFERS

ROOT = Path(__file__).resolve().parents[2]

LOOK = "import os, time; print(len(os.listdir(os.environ['DATA_DIR'])), 'cases', time.time(), 's', os.getcwd())"
WRITE = """
import json, os
from pathlib import Path
for case in sorted(os.listdir(os.environ["DATA_DIR"])):
    path = Path("agents_outputs", case, "prediction.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"boxes": []}))
    print(case, path.stat().st_size)
"""
FIX = "from pathlib import Path; Path('agents_outputs/bccd_0001/prediction.json').write_text('{\"boxes\": []} ')"


def call(code: str) -> dict[str, Any]:
    return {"calls": [{"tool": "execute_code", "language": "python", "code": code}]}


TURNS = [
    call(LOOK),
    call("raise SystemExit(2)"),
    call(WRITE),
    call(FIX),
    {"content": "Nothing to call here."},
    {"calls": [{"tool": "submit_results", "summary": "done"}]},
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A staged toy with a finished run beside it."""
    bench = stage("detection", tmp_path_factory.mktemp("replayed"))
    shutil.copy(bench.folder / "manifest.json", bench.folder / f"{bench.card.id}.json")
    run_scripted(bench, TURNS, bench.folder / "run")
    return bench


def run_scripted(bench: Bench, turns: list[dict[str, Any]], folder: Path) -> None:
    script = folder.with_suffix(".yaml")
    script.write_text(yaml.safe_dump(turns))
    run_agent(
        RunPlan(
            run=RunId(agent="scripted", task=bench.card.id, tier="lite", repeat=1),
            card=bench.card,
            manifest=bench.manifest,
            agent=Agent(provider="scripted", script=str(script), trusted=True),
            limits=bench.card.limits,
            sandbox=SandboxConfig(backend="local", network="open"),
            public=bench.folder / "public",
            folder=folder,
            prompts=ROOT / "config/prompts",
        )
    )


@pytest.fixture
def recorded(original: Bench, tmp_path: Path) -> Path:
    """A copy of the run, to be tampered with."""
    shutil.copytree(original.folder / "run", tmp_path / "run", symlinks=True)
    return tmp_path / "run"


@pytest.fixture
def again(original: Bench, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """``automedbench replay``: exit code and what it printed."""

    settings = {
        "agents_file": str(ROOT / "demo/agents.yaml"),
        "cards": [str(ROOT / "config/tasks")],
        "matrix": {"agents": ["careful"], "tasks": [original.card.id], "tiers": ["lite"], "repeats": 1},
        "data": {name: str(original.folder / name) for name in ("raw", "public", "private")},
        "results": str(original.folder / "results"),
        "sandbox": {"backend": "local", "network": "open"},
    }
    settings["data"] |= {"manifests": str(original.folder)}
    campaign = original.folder / "config.yaml"
    campaign.write_text(yaml.safe_dump(settings))

    def run(folder: Path, *options: str) -> tuple[int, str]:
        parser = argparse.ArgumentParser()
        replay.add_arguments(parser)
        words = [str(folder), *options, "--configfile", str(campaign)]
        code = 0
        try:
            replay.main(parser.parse_args(words))
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, capsys.readouterr().out

    return run


Tamper = Callable[[Path, Path], None]


def rewrite(change: Callable[[list[dict[str, Any]]], None]) -> Tamper:
    """Change the recorded replies, in order."""

    def tamper(run: Path, public: Path) -> None:
        path = run / "log/journal.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change([line["value"]["reply"] for line in lines if (line["type"], line["kind"]) == ("effect", "reply")])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return tamper


def recode(turn: int, old: str, new: str) -> Tamper:
    """Change the code that a turn asked for; what it answered then stays."""

    def change(replies: list[dict[str, Any]]) -> None:
        call = replies[turn - 1]["calls"][0]
        arguments = json.loads(call["arguments"])
        assert old in arguments["code"]
        call["arguments"] = json.dumps(arguments | {"code": arguments["code"].replace(old, new)})

    return rewrite(change)


def answer(turn: int, **values: Any) -> Tamper:
    """Change what a recorded call answered."""

    def tamper(run: Path, public: Path) -> None:
        path = run / "conversation.json"
        conversation = json.loads(path.read_text())
        (said,) = [each for each in conversation["messages"] if (each["turn"], each["role"]) == (turn, "tool")]
        said["content"] = json.dumps(json.loads(said["content"]) | values)
        path.write_text(json.dumps(conversation))

    return tamper


def file(path: str, content: str | None) -> Tamper:
    """Change a file that the recorded run left; None removes it."""

    def tamper(run: Path, public: Path) -> None:
        with changing(run) as workspace:
            place = workspace / "agents_outputs" / path
            place.unlink() if content is None else place.write_text(content)

    return tamper


def test_the_same_code_does_the_same(recorded: Path, again: Callable[..., tuple[int, str]]) -> None:
    """Also where times and folders are printed, a call fails, a turn calls nothing."""
    before = {path: path.stat().st_mtime_ns for path in recorded.rglob("*")}
    code, shown = again(recorded)
    assert (code, shown.splitlines()[-1]) == (0, "scripted/bccd-det-task/lite/r1: 6 turns, all came out the same")
    assert shown.count("  same") == 6
    assert {path: path.stat().st_mtime_ns for path in recorded.rglob("*")} == before


@pytest.mark.parametrize(
    ("tamper", "turn", "reason"),
    [
        (recode(1, "'cases'", "'images'"), 1, "stdout differs"),
        (recode(2, "SystemExit(2)", "SystemExit(3)"), 2, "exit_code differs"),
        (recode(2, "raise SystemExit(2)", "pass"), 2, "status differs"),
        (recode(3, "prediction.json", "answer.json"), 3, "other files changed"),
        (recode(3, '"boxes": []', '"boxes": [1]'), 3, "stdout differs"),
        (recode(4, "[]} ", "[]}  "), 4, "content differs: agents_outputs/bccd_0001/prediction.json"),
        (answer(1, stdout="5 cases"), 1, "stdout differs"),
        (answer(3, status="timeout"), 3, "status differs"),
        (answer(6, missing_count=2), 6, "missing_count differs"),
        (file("bccd_0001/prediction.json", "{}"), 4, "content differs: agents_outputs/bccd_0001/prediction.json"),
        (file("bccd_0002/prediction.json", "{}"), 3, "content differs: agents_outputs/bccd_0002/prediction.json"),
        (file("bccd_0003/prediction.json", None), 3, "content differs: agents_outputs/bccd_0003/prediction.json"),
    ],
)
def test_what_differs_is_found_at_its_turn(
    recorded: Path, again: Callable[..., tuple[int, str]], tamper: Tamper, turn: int, reason: str
) -> None:
    tamper(recorded, recorded)
    code, shown = again(recorded)
    assert code == DIFFERS
    assert f"diverges at turn {turn}: {reason}" in shown
    assert all(f"turn {number:3d}  " in shown and "same" in shown.splitlines()[number - 1] for number in range(1, turn))


def test_the_difference_is_shown_and_short(recorded: Path, again: Callable[..., tuple[int, str]]) -> None:
    """Twelve lines of it at most, with what was and what is."""
    answer(3, stdout="\n".join(f"line {number}" for number in range(100)))(recorded, recorded)
    _, shown = again(recorded)
    assert "-line 0" in shown and "+bccd_0001" in shown and "more lines" in shown
    assert len(shown.splitlines()) <= 6 + 1 + 13


def test_a_replay_that_ends_early(recorded: Path, again: Callable[..., tuple[int, str]]) -> None:
    """An earlier submission leaves the later turns without a counterpart."""

    def earlier(replies: list[dict[str, Any]]) -> None:
        replies[3]["calls"] = replies[5]["calls"]

    rewrite(earlier)(recorded, recorded)
    code, shown = again(recorded)
    assert code == DIFFERS and "diverges at turn 4" in shown
    assert shown.count("the replay had ended before this turn") == 2


def test_the_replayed_run_can_be_kept(recorded: Path, again: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    assert again(recorded, "--into", str(tmp_path / "kept"))[0] == 0
    assert json.loads((tmp_path / "kept/run.json").read_text())["provider"] == "replay"
    with pytest.raises(ConfigError, match="exists already"):
        again(recorded, "--into", str(tmp_path / "kept"))


def test_what_ran_its_own_tools_cannot_be_replayed(recorded: Path, again: Callable[..., tuple[int, str]]) -> None:
    path = recorded / "attempts/0001/run.json"
    for place in {path.resolve(), (recorded / "run.json").resolve()}:
        place.write_text(json.dumps(json.loads(place.read_text()) | {"provider": "command"}))
    with pytest.raises(ConfigError, match="ran its own tools"):
        again(recorded)


ORIGINS: list[tuple[dict[str, str], str]] = [
    ({"provider": "openai"}, "openai"),
    ({"provider": "replay", "origin": "openai"}, "openai"),
    ({"provider": "replay", "origin": "replay"}, "unknown"),
    ({"provider": "replay"}, "unknown"),
    ({}, "unknown"),
]


def test_a_models_code_is_not_replayed_without_isolation(recorded: Path, again: Callable[..., tuple[int, str]]) -> None:
    """The local sandbox takes trusted scripts only, also the second and third time, also if the entry is trusted."""
    place = (recorded / "run.json").resolve()
    whole = json.loads(place.read_text())
    for told, origin in ORIGINS:
        place.write_text(json.dumps({key: whole[key] for key in whole.keys() - {"provider", "origin"}} | told))
        agent = Agent(provider="replay", transcript=str(recorded), trusted=True)
        assert (agent.origin, origin in agent.needs_isolation) == (origin, True), told
    place.write_text(json.dumps(whole | {"provider": "replay", "origin": "openai"}))
    with pytest.raises(ConfigError, match="code of the provider 'openai'"):
        again(recorded)


def test_a_replay_keeps_the_origin(recorded: Path, again: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    assert (again(recorded, "--into", str(once))[0], again(once, "--into", str(twice))[0]) == (0, 0)
    assert json.loads((twice / "run.json").read_text())["origin"] == "scripted"


def test_an_unknown_run_or_task_is_said(recorded: Path, again: Callable[..., tuple[int, str]]) -> None:
    with pytest.raises(ConfigError, match="nope: no finished run of that name below"):
        again(Path("nope"))
    with pytest.raises(ConfigError, match="no card"):
        again(recorded, "--config", f"cards=[{ROOT / 'demo/tasks'}]", "matrix={tasks: [demo-cxr-report-task]}")


def test_a_folder_without_a_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="folder of a run"):
        load_replay(Agent(provider="replay", transcript=str(tmp_path)))


def test_a_replay_agent_is_known_by_its_recording(recorded: Path, original: Bench) -> None:
    """The same recording elsewhere is the same agent; another one is not."""
    agent = Agent(provider="replay", transcript=str(recorded)).for_task(original.card)
    same = Agent(provider="replay", transcript=str(original.folder / "run"))
    assert agent.digest() == same.digest()
    with open(recorded / "log/transcript.jsonl", "a") as stream:
        stream.write("{}\n")
    assert agent.digest() != same.digest()


# --- comparing two logs -----------------------------------------------------------------------------------------


def said(*answers: str) -> Conversation:
    """One turn per answer of a call."""
    messages = [
        Message(turn=turn, role=role, content=content)
        for turn, text in enumerate(answers, start=1)
        for role, content in (("assistant", ""), ("tool", text))
    ]
    run = RunId(agent="a", task="t", tier="lite", repeat=1)
    return Conversation(
        run=run, n_cases=1, gpu=False, messages=messages, calls=[], plan=None, has_plot=False, workspace_files={}
    )


def result(output: str, **more: Any) -> str:
    return json.dumps({"status": "ok", "exit_code": 0, "stdout": output, "stderr": ""} | more)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("took 1.25 s", "took 17 s", True),
        ("real 0m1.204s", "real 3m0.9s", True),
        ("at 2026-01-02 10:11:12.5", "at 2027-12-31 00:00:00", True),
        ("2026-01-02T10:11:12Z", "2027-01-02T10:11:12+01:00", True),
        ("<object at 0x7f16e4d7bd50>", "<object at 0x55aa00ff1122>", True),
        ("/tmp/a1/workspace/x.py", "/workspace/x.py", True),
        ("elapsed: 3.2e-5", "elapsed: 9", True),
        ('{"runtime_s": 0.5}', '{"runtime_s": 7}', True),
        ("Dice 0.81", "Dice 0.82", False),
        ("4 cases", "5 cases", False),
        ("12 images", "13 images", False),
        ("class s 5", "class s 6", False),
        ("/a/x.py", "/a/y.py", False),
        ("a\nb", "a\nc", False),
        ("", "x", False),
    ],
)
def test_what_counts_as_the_same_output(before: str, after: str, same: bool) -> None:
    reports = compare_runs(said(result(before)), said(result(after)))
    assert [report.reason == "" for report in reports] == [same]


def test_elapsed_time_and_rest_do_not_count() -> None:
    runs = [said(result("x", elapsed_s=one, remaining_s=one)) for one in (1, 2)]
    assert compare_runs(*runs) == [TurnReport(1, 1)]


def test_no_recording_crashes_the_comparison() -> None:
    """Seeded nonsense in place of tool results."""
    rng = random.Random(4)
    values = ["", "null", "[1]", '"x"', "{", '{"stdout": {"a": 1}}', '{"status": null}', "\x00", "{}"]
    for _ in range(200):
        runs = [said(*rng.choices(values, k=rng.randint(0, 3))) for _side in range(2)]
        first_divergence(compare_runs(*runs))
