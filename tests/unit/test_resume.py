"""Whole runs whose process dies: the next start goes on, publishes the same result, and nobody works twice at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from factories import written_campaign
from harness_fakes import Clock, FakeModel, FakeSandbox, code, submit
from left_workspaces import left_in
from run_fakes import KEY, KEY_NAME, WORK, make_plan, numbers, start
from waiting import wait_for

from automedbench.agent import opening
from automedbench.agent import run as run_module
from automedbench.agent.budget.ledger import BudgetExhausted, CampaignLedger
from automedbench.agent.durable import attempts as attempts_module
from automedbench.agent.durable import workspaces as workspaces_module
from automedbench.agent.durable.attempts import (
    FailureRecord,
    Line,
    count_silent_attempts,
    is_resumable,
    list_attempts,
    read_start,
    record_failure,
)
from automedbench.agent.models.model import EndpointError, Reply
from automedbench.agent.run import RunPlan, run_agent
from automedbench.base import console
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import CaseEntry, Conversation, FileEntry, Manifest, Process, RunRecord, Tokens, Totals
from automedbench.campaign.config import BudgetConfig
from automedbench.commands._transcript import difference_from_log
from automedbench.sandbox.evidence.decoy import Decoy
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

DIED = 77


@pytest.fixture
def plan(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    monkeypatch.setenv(KEY_NAME, KEY)
    return make_plan(tmp_path, root)


class CountingModel:
    """Answers by the number of replies it is shown, and notes every request in a file that survives."""

    def __init__(self, asked: Path, *replies: Reply) -> None:
        self.asked, self.replies = asked, replies

    def reply(self, messages: Any, *_: Any) -> Reply:
        turn = sum(message.role == "assistant" for message in messages)
        with open(self.asked, "a") as stream:
            stream.write(f"{turn + 1}\n")
        return self.replies[min(turn, len(self.replies) - 1)]


class CountingSandbox(FakeSandbox):
    """Notes every call; each has a process."""

    fresh: list[str] = []  # noqa: RUF012 - never changed in place

    def drain_processes(self) -> list[Process]:
        fresh, self.fresh = self.fresh, []
        return [Process(command=line, parent=None, exit_code=None) for line in fresh]

    def run_code(self, language: str, code: str, **options: Any) -> Any:
        with open(self.workspace.parent / "executed", "a") as stream:
            stream.write(f"{options['call']}\n")
        self.fresh = [code]
        return super().run_code(language, code, **options)


REPLIES = (*WORK, code("fail"), submit("early"), code("write late"), submit("late"))


def play(plan: RunPlan, folder: Path) -> RunRecord:
    return start(
        replace(plan, folder=folder),
        open_model=lambda *_: contextlib.nullcontext(CountingModel(folder.parent / f"{folder.name}.asked", *REPLIES)),
        open_sandbox=lambda _plan, attempt, *_: CountingSandbox(attempt.workspace, Clock()),
    )


def in_child(work: Callable[[], object]) -> int:
    """Exit status of a child process that does this; it dies without running anything of ours when it says so."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def dying(patch: pytest.MonkeyPatch, place: Any, name: str, at: int, *, after: bool) -> None:
    """Let the process die at the ``at``-th call of a function: before or after its work."""
    real, count = getattr(place, name), 0

    def function(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == at and not after:
            os._exit(DIED)
        result = real(*arguments, **options)
        if count == at:
            os._exit(DIED)
        return result

    patch.setattr(place, name, function)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def compare(folder: Path, whole: Path, plan: RunPlan) -> None:
    """The same record and conversation, apart from stamps, durations and counts of interruptions."""
    stamped = {"started_at", "ended_at", "resumes", "attempt", "totals", "used"}
    one, other = (read_record(path / "run.json", RunRecord) for path in (folder, whole))
    assert one.model_dump(exclude=stamped) == other.model_dump(exclude=stamped)
    timed = {"wall_s", "api_s", "exec_s", "api_retry_s"}
    assert one.totals.model_dump(exclude=timed) == other.totals.model_dump(exclude=timed)
    said, expected = (read_record(path / "conversation.json", Conversation) for path in (folder, whole))
    assert [(m.turn, m.role) for m in said.messages] == [(m.turn, m.role) for m in expected.messages]
    assert (said.calls, said.gpu) == (expected.calls, False)
    assert [[each.command for each in call.processes or ()] for call in said.calls] == [
        [call.code] for call in said.calls
    ]
    assert said.workspace_files == expected.workspace_files
    assert lines(folder / "log/transcript.jsonl")[:3] == lines(whole / "log/transcript.jsonl")[:3]
    assert len(lines(folder / "log/transcript.jsonl")) == len(lines(whole / "log/transcript.jsonl"))
    # Another lab that checks the run finds its records and its log at one.
    assert difference_from_log(one, replace(plan, folder=folder), folder / "again") == ""


PLACES: dict[str, tuple[Any, str, bool]] = {
    "while files are written": (attempts_module, "write_record", False),
    "behind files that are written": (attempts_module, "write_record", True),
    "while the result is published": (attempts_module, "write_bytes", False),
    "before the links": (attempts_module, "_link", False),
    "before publication": (run_module, "publish", False),
    "before the seal": (run_module, "seal", False),
}
AWAY: dict[str, tuple[Any, str, bool]] = {
    "before an archive": (workspaces_module, "pack", False),
    "behind an archive": (workspaces_module, "pack", True),
    "before a folder is removed": (workspaces_module, "remove_tree", False),
    "behind a folder that is removed": (workspaces_module, "remove_tree", True),
}
ON_SCRATCH = {f"{name}, on scratch": AWAY[name] for name in AWAY}
"""Where a workspace lies on a disk of the node; the next start is on the same one."""


@pytest.mark.parametrize(
    ("place", "name", "after", "scratch"),
    [*((*each, False) for each in {**PLACES, **AWAY}.values()), *((*each, True) for each in ON_SCRATCH.values())],
    ids=[*PLACES, *AWAY, *ON_SCRATCH],
)
def test_died_anywhere(plan: RunPlan, tmp_path: Path, place: Any, name: str, after: bool, scratch: bool) -> None:
    """One death, one restart: one attempt, the same result, at most one request and one execution more."""
    plan = replace(plan, scratch=str(tmp_path / "scratch") if scratch else None)
    play(plan, tmp_path / "whole")
    n_asked, n_executed = len(lines(tmp_path / "whole.asked")), len(lines(tmp_path / "whole/attempts/0001/executed"))
    at = 0
    while True:
        at += 1
        folder = tmp_path / f"died{at}"

        def die(folder: Path = folder, at: int = at) -> None:
            patch = pytest.MonkeyPatch()
            dying(patch, place, name, at, after=after)
            play(plan, folder)

        if (status := in_child(die)) != DIED:
            assert status == 0
            break
        play(plan, folder)
        compare(folder, tmp_path / "whole", plan)
        assert left_in(folder) == left_in(tmp_path / "whole")
        attempt = (folder / "log").resolve().parent
        assert not any(os.path.lexists(attempt / loose) for loose in ("workspace", "log/exec"))
        assert len(lines(folder.parent / f"{folder.name}.asked")) - n_asked in (0, 1)
        executed = [*folder.glob("attempts/*/executed")]
        assert sum(len(lines(path)) for path in executed) - n_executed in (0, 1)
        began = [attempt for attempt in list_attempts(folder) if read_start(attempt)]
        assert len(began) == 1
        assert not (folder / "lease.json").exists()
    assert at > 1
    # Of one that died before the workspace had its link, an empty place is swept after an hour.
    assert [path for path in (tmp_path / "scratch").rglob("*") if path.is_file() and path.name != "attempt"] == []
    for owner in (tmp_path / "scratch").glob("*/attempt"):
        os.utime(owner, (0, 0))
    start(replace(plan, folder=tmp_path / "last"), submit(), submit())
    assert not scratch or list((tmp_path / "scratch").iterdir()) == []


# --- workspaces on a disk of the node ----------------------------------------------------------------------------


def test_an_interrupted_workspace_comes_home(plan: RunPlan, tmp_path: Path) -> None:
    """So the attempt goes on on another node; nothing is left on either."""
    here, there = (replace(plan, scratch=str(tmp_path / node)) for node in ("here", "there"))
    with pytest.raises(EndpointError):
        start(here, *WORK, EndpointError("down", ()))
    assert list((tmp_path / "here").iterdir()) == []
    assert "plan/plan.md" in left_in(plan.folder / "attempts/0001")
    record = start(there, code("write late"), submit(), submit())
    assert (record.attempt, record.resumes) == (1, 1)
    assert {"plan/plan.md", "late"} <= left_in(plan.folder).keys()
    # The given files and those of the first process are no news to the second.
    calls = read_record(plan.folder / "conversation.json", Conversation).calls
    assert calls[-1].new_files == ["late"]
    assert list((tmp_path / "there").iterdir()) == []


def test_a_workspace_on_a_lost_node(plan: RunPlan, tmp_path: Path) -> None:
    """Its attempt is kept with what it had cost, and a new one starts, which says why."""
    plan, scratch = replace(plan, scratch=str(tmp_path / "scratch")), tmp_path / "scratch"
    patch = pytest.MonkeyPatch()

    def die() -> None:
        dying(patch, run_module, "seal", 1, after=False)
        start(plan, *WORK, submit())

    assert in_child(die) == DIED
    scratch.rename(tmp_path / "of another node")
    said: list[str] = []
    model, sandbox = FakeModel(submit(), submit()), FakeSandbox
    record = run_agent(
        plan,
        wait_s=0,
        say=said.append,
        open_model=lambda *_: contextlib.nullcontext(model),
        open_sandbox=lambda _plan, attempt, *_: sandbox(attempt.workspace, Clock()),
    )
    assert (record.attempt, numbers(plan)) == (2, [1, 2])
    assert any("Attempt 1 cannot go on without" in text and str(scratch) in text for text in said)
    # Back on that node, the next agent removes what nobody needs any more.
    shutil.rmtree(scratch)
    (tmp_path / "of another node").rename(scratch)
    assert len(list(scratch.iterdir())) == 1
    start(replace(plan, folder=tmp_path / "r2"), submit(), submit())
    assert list(scratch.iterdir()) == []


def test_a_scratch_that_a_node_has_not(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_DISK", raising=False)
    with pytest.raises(InfrastructureError, match=r"'\$NODE_DISK/x' names a variable that is not set"):
        start(replace(plan, scratch="$NODE_DISK/x"), submit())
    with pytest.raises(InfrastructureError, match=r"/proc/none on .* cannot be used"):
        start(replace(plan, scratch="/proc/none"), submit())


def test_what_fails_behind_the_seal_does_not_fail_the_run(plan: RunPlan, capsys: pytest.CaptureFixture[str]) -> None:
    class Clinging(FakeSandbox):
        def __exit__(self, *_: object) -> None:
            raise InfrastructureError("a process was not reaped")

    record = start(
        plan, submit(), submit(), open_sandbox=lambda _plan, attempt, *_: Clinging(attempt.workspace, Clock())
    )
    assert (record.outcome, (plan.folder / "run.json").exists()) == ("submitted", True)
    assert "a process was not reaped" in capsys.readouterr().err


# --- a call that takes its driver with it ------------------------------------------------------------------------


class FatalSandbox(CountingSandbox):
    """``die`` ends the whole job, as a scheduler does for its memory; ``stop N`` tells the driver to end."""

    def run_code(self, language: str, code: str, **options: Any) -> Any:
        result = super().run_code(language, code, **options)
        if code == "die":
            os._exit(DIED)
        if code.startswith("stop") and len(lines(self.workspace.parent / "executed")) <= int(code[4:]):
            raise KeyboardInterrupt
        return result


def fatal(plan: RunPlan, call: str) -> RunRecord:
    """A run whose third call is ``call``, behind the two of WORK."""
    replies = (*WORK, code(call), submit("done"))
    return start(
        plan,
        open_model=lambda *_: contextlib.nullcontext(CountingModel(plan.folder.parent / "asked", *replies)),
        open_sandbox=lambda _plan, attempt, *_: FatalSandbox(attempt.workspace, Clock()),
    )


def test_the_third_death_in_the_same_call_is_the_agents(plan: RunPlan) -> None:
    """The fourth process does not execute it once more: the run is sealed with what there is, and nothing is asked."""
    for _ in range(3):
        assert in_child(lambda: fatal(plan, "die")) == DIED
    with pytest.MonkeyPatch.context() as patch:  # and if that one is killed before it has sealed, the next one does

        def die() -> None:
            dying(patch, run_module, "seal", 1, after=False)
            fatal(plan, "die")

        assert in_child(die) == DIED
    record = fatal(plan, "die")
    assert (record.outcome, record.attempt, record.resumes) == ("out_of_memory", 1, 4)
    assert record.detail == "call 3 ended its whole job 3 times, as one does whose memory runs out"
    assert (record.totals.turns, record.totals.n_exec, record.totals.n_exec_failed) == (2, 3, 1)
    assert lines(plan.folder / "attempts/0001/executed") == ["1", "2", "3", "3", "3"]
    assert lines(plan.folder.parent / "asked") == ["1", "2"]
    assert "plan/plan.md" in left_in(plan.folder)
    said = read_record(plan.folder / "conversation.json", Conversation)
    assert (said.calls[-1].status, said.messages[-1].role) == ("killed", "tool")


def test_a_driver_that_was_told_to_end_did_not_die_of_its_call(plan: RunPlan) -> None:
    """A preempted run goes on, however often the same call was interrupted."""
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            fatal(plan, "stop 7")
    record = fatal(plan, "stop 7")
    assert (record.outcome, record.resumes, record.totals.n_exec_failed) == ("submitted", 5, 0)


def test_programs_that_died_with_their_drivers(plan: RunPlan) -> None:
    """An attempt of a program is one call: those right before the newest count that left no word."""
    start(plan, *WORK, submit(), submit())
    (first,) = list_attempts(plan.folder)
    for number in (2, 3, 4, 5):
        shutil.copytree(first.path, first.path.with_name(f"{number:04d}"))
        (first.path.with_name(f"{number:04d}") / "run.json").unlink()
    dead = list_attempts(plan.folder)
    assert [count_silent_attempts(attempt) for attempt in dead] == [0, 0, 1, 2, 3]
    record_failure(dead[2], plan.run, KeyboardInterrupt(), Totals(), effects=1, resumable=False)
    assert count_silent_attempts(dead[-1]) == 1


# --- signals -----------------------------------------------------------------------------------------------------


def interrupted_when(plan: RunPlan, ready: Callable[[], object], number: int, work: Callable[[], object]) -> int:
    """Exit status of a script's process that gets a signal, and two more, once ``ready``."""
    pid = os.fork()
    if pid == 0:
        # A test runner in the background ignores it, and so would its children.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        try:
            console.run_script(lambda _arguments: work() and None)
        except SystemExit as end:
            os._exit(int(end.code or 0))
        os._exit(0)
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    began = time.monotonic()
    for _ in range(3):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(0.1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert time.monotonic() - began < 25  # Slurm's KillWait is 30 s
    return status


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
    ids=["TERM", "HUP", "INT"],
)
def test_a_signal_while_the_model_is_asked(plan: RunPlan, number: int, status: int) -> None:
    """What exists is sealed, the lease is free, and the next start asks this one request again."""
    call = {"id": "call_1_1", "type": "function", "function": {"name": "execute_code", "arguments": ""}}
    call["function"]["arguments"] = json.dumps({"language": "bash", "code": "write plan/plan.md"})  # type: ignore[index]
    done = {"id": "call_2_1", "type": "function", "function": {"name": "submit_results", "arguments": "{}"}}
    slow = Answer(body=completion(None, finish="tool_calls", tool_calls=[done]), delay_s=20)
    quick = replace(slow, delay_s=0)
    first = Answer(body=completion(None, finish="tool_calls", tool_calls=[call]))
    with ScriptedServer(answers=[first, slow, quick]) as server:
        plan = replace(plan, agent=plan.agent.model_copy(update={"base_url": server.url}), results=plan.folder.parent)

        def work() -> RunRecord:
            return run_agent(
                plan,
                open_sandbox=lambda _plan, attempt, *_: FakeSandbox(attempt.workspace, Clock()),
                say=lambda _: None,
            )

        assert interrupted_when(plan, lambda: len(server.requests) == 2, number, work) == status
        failure = read_record(plan.folder / "attempts/0001/failure-0001.json", FailureRecord)
        assert (failure.kind, failure.error, failure.resumable, failure.totals.turns) == (
            "cancelled",
            "Interrupted",
            True,
            1,
        )
        kept = read_record(plan.folder / "attempts/0001/conversation.json", Conversation)
        assert [call.code for call in kept.calls] == ["write plan/plan.md"]
        assert not (plan.folder / "lease.json").exists()
        record = work()
        assert (record.attempt, record.resumes, record.outcome) == (1, 1, "submitted")
        # By hand: two replies and a third (the first submission is refused), one of them asked twice.
        assert len(server.requests) == 4


# --- two starters ------------------------------------------------------------------------------------------------


@pytest.fixture
def options(root: Path, tmp_path: Path) -> list[str]:
    """Options of the script for a scripted agent in the local sandbox that works for a while."""
    card = "config/tasks/detection/bccd-det-task.yaml"
    case = CaseEntry(id="bccd_0001", inputs={}, private={})
    manifest = Manifest(
        task="bccd-det-task", task_version=1, track="detection", dataset="bccd", sampling="one", cases=[case]
    )
    (tmp_path / "data/public/bccd-det-task" / case.id).mkdir(parents=True)
    write_record(tmp_path / "data/manifests/bccd-det-task.json", manifest)
    (tmp_path / "agent.yaml").write_text(
        "- calls: [{tool: execute_code, language: bash, code: 'echo $$ >> once; sleep 2'}]\n"
        "- calls: [{tool: execute_code, language: bash, code: 'echo $$ >> twice'}]\n"
        "- calls: [{tool: submit_results}]\n- calls: [{tool: submit_results}]\n"
    )
    (tmp_path / "agents.yaml").write_text(
        f"agents: {{tiny: {{provider: scripted, script: {tmp_path}/agent.yaml, trusted: true}}}}"
    )
    campaign = written_campaign(tmp_path, root / card, agents_file=str(tmp_path / "agents.yaml"))
    return ["--campaign", str(campaign), "--run", str(run_folder(tmp_path))]


def run_folder(folder: Path) -> Path:
    return folder / "results/runs/tiny/bccd-det-task/lite/r1"


Driver = Callable[[], "subprocess.Popen[str]"]

LONG = "echo $$ >> once; [ $(wc -l < once) = 2 ] || sleep 12"
"""Lasts until its process is killed; the second time it is short."""


@pytest.fixture
def driver(root: Path, options: list[str]) -> Iterator[Driver]:
    """Starts ``scripts/run_agent.py`` as a process that does not outlive the test."""
    command = [sys.executable, str(root / "scripts/run_agent.py"), *options]
    with contextlib.ExitStack() as started:

        def start() -> subprocess.Popen[str]:
            process = started.enter_context(
                subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
            started.callback(process.kill)
            return process

        yield start


def test_two_starters_at_once(driver: Driver, tmp_path: Path) -> None:
    """Real processes: one works, the other waits and takes over the result."""
    both = [driver(), driver()]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("adopted instead of repeated" in text for text in said) == 1
    assert written(tmp_path) == {"once": 1, "twice": 1}
    assert [path.name for path in (run_folder(tmp_path) / "attempts").iterdir()] == ["0001"]


def test_a_suspended_driver_does_not_meet_its_successor(driver: Driver, tmp_path: Path) -> None:
    """Its lease was taken while it slept: it wakes up, records nothing more, and leaves the attempt to the other."""
    script = tmp_path / "agent.yaml"
    until_told = LONG.replace("sleep 12", "until [ -e enough ]; do sleep 0.1; done")
    script.write_text(script.read_text().replace("echo $$ >> once; sleep 2", until_told))
    first = driver()
    workspace = run_folder(tmp_path) / "attempts/0001/workspace"
    wait_for(lambda: (workspace / "once").exists())
    first.send_signal(signal.SIGSTOP)
    (run_folder(tmp_path) / "lease.json").unlink()  # as a starter on another node does after two minutes
    second = driver()
    wait_for(lambda: len(lines(workspace / "once")) == 2)
    (workspace / "enough").touch()
    first.send_signal(signal.SIGCONT)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "The lease" in said and "Traceback" not in said
    done, _ = second.communicate(timeout=60)
    assert second.returncode == 0, done
    assert written(tmp_path)["twice"] == 1
    record = read_record(run_folder(tmp_path) / "run.json", RunRecord)
    assert (record.attempt, record.totals.turns) == (1, 4)


def test_a_signal_for_the_whole_job_is_not_held_against_the_agent(driver: Driver, tmp_path: Path) -> None:
    """``scancel`` signals every process; the code's turn may come a moment before the driver's."""
    script = tmp_path / "agent.yaml"
    script.write_text(script.read_text().replace("echo $$ >> once; sleep 2", LONG))
    first = driver()
    workspace = run_folder(tmp_path) / "attempts/0001/workspace"
    wait_for(lambda: (workspace / "once").exists() and working_in(workspace))
    for pid in working_in(workspace):
        with contextlib.suppress(ProcessLookupError):  # a short-lived one of the shell's
            os.kill(pid, signal.SIGTERM)
    time.sleep(0.2)
    first.terminate()
    first.communicate(timeout=60)
    assert first.returncode == 143
    second = driver()
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0, said
    calls = read_record(run_folder(tmp_path) / "conversation.json", Conversation).calls
    assert [call.status for call in calls] == ["ok", "ok"]
    assert written(tmp_path)["once"] == 2


def written(folder: Path) -> dict[str, int]:
    """Lines of the two files that the agent of a finished run leaves."""
    left = left_in(run_folder(folder) / "attempts/0001")
    return {name: left[name].count(b"\n") for name in ("once", "twice")}


def working_in(folder: Path) -> list[int]:
    """Processes whose working directory is ``folder``."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path / "cwd") == str(folder) and b"supervisor" not in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def test_the_decoy_stays_the_same(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the code found there before the crash, the audit must know after it."""
    (plan.public / plan.card.id).mkdir(parents=True)
    cases = [case.model_copy(update={"private": {"boxes.json": FILE}}) for case in plan.manifest.cases]
    plan = replace(plan, manifest=plan.manifest.model_copy(update={"cases": cases}))
    found: list[bytes] = []

    def make_sandbox(*, workspace: Path, decoy: Decoy, **_: Any) -> FakeSandbox:
        found.append((decoy.folder / "b_0001/boxes.json").read_bytes())
        return FakeSandbox(workspace, Clock())

    monkeypatch.setattr(opening, "ApptainerSandbox", make_sandbox)
    with pytest.raises(EndpointError):
        start(plan, *WORK, EndpointError("down"), open_sandbox=opening.open_sandbox)
    start(plan, submit(), open_sandbox=opening.open_sandbox)
    assert len(found) == 2
    assert found[0] == found[1]
    events = map(json.loads, lines(plan.folder / "log/events.jsonl"))
    markers = [event["marker"] for event in events if event["type"] == "decoy"]
    assert len(markers) == 2
    assert len(set(markers)) == 1


FILE = FileEntry(sha256="0" * 64, bytes=1)


# --- what cannot go on, and money --------------------------------------------------------------------------------


def test_a_command_line_agent_does_not_go_on(plan: RunPlan) -> None:
    """Its program died with the driver."""
    with pytest.raises(EndpointError):
        start(plan, *WORK, EndpointError("down"))
    attempt = list_attempts(plan.folder)[0]
    begun = read_start(attempt)
    assert begun is not None
    assert is_resumable(attempt, begun.identity)
    path = attempt.journal
    first, rest = path.read_text().split("\n", 1)
    line = json.loads(first)
    line["value"]["resumable"] = False
    path.write_text(json.dumps(line) + "\n" + rest)
    assert not is_resumable(attempt, begun.identity)


def test_a_damaged_journal_is_kept_and_a_new_attempt_made(plan: RunPlan) -> None:
    with pytest.raises(EndpointError):
        start(plan, *WORK, EndpointError("down"))
    path = list_attempts(plan.folder)[0].journal
    text = path.read_text()
    path.write_text(text.replace("call 1 ", "call 9 "))
    assert start(plan, submit()).attempt == 2
    assert [failure.error for failure in list_attempts(plan.folder)[0].failures()] == [
        "EndpointError",
        "JournalMismatch",
    ]
    assert start(plan, submit()).attempt == 2


class Priced:
    """Spends 1 000 prompt tokens per request; fails or dies at one of them."""

    def __init__(self, *replies: Reply, at: int = 0, error: BaseException | None = None) -> None:
        self.replies, self.at, self.error, self.count = list(replies), at, error, 0

    def reply(self, messages: Any, *_: Any) -> Reply:
        self.count += 1
        if self.count == self.at and self.error is not None:
            raise self.error
        turn = sum(message.role == "assistant" for message in messages)
        usage = Tokens(prompt=1000)
        return replace(self.replies[turn], usage=usage, spent=(Billed(usage),))


def priced(plan: RunPlan, *replies: Reply, **options: Any) -> RunRecord:
    return start(plan, open_model=lambda *_: contextlib.nullcontext(Priced(*replies, **options)))


def test_a_reply_that_was_far_too_long_is_paid_once(plan: RunPlan) -> None:
    """It is in the journal: the same command goes on with it, to the next such reply."""
    usage = Tokens(prompt=10, completion=500)
    long = replace(code("write a"), usage=usage, spent=(Billed(usage),), asked_tokens=100)
    for turns in (1, 2):
        with pytest.raises(InfrastructureError, match="wrote 500 tokens"):
            start(plan, *([long] * 3))
        assert list_attempts(plan.folder)[0].failures()[-1].totals.turns == turns
    record = start(plan, submit(), submit())
    assert (record.attempt, record.totals.turns, record.totals.tokens.completion) == (1, 4, 1000)


def test_the_ledger_knows_every_request(plan: RunPlan, tmp_path: Path) -> None:
    """By hand: 0.001 USD per request; one before the outage, none for it (it charged 7 tokens), two after it."""
    plan = replace(plan, results=tmp_path / "results", budget=BudgetConfig(max_cost_usd="100"))
    ledger = CampaignLedger(tmp_path / "results/ledger", Decimal(100))
    with pytest.raises(EndpointError):
        priced(plan, *WORK, at=2, error=EndpointError("down", (Billed(Tokens(prompt=7)),)))
    between = ledger.totals().all
    assert (between.spent, between.reserved, between.doubtful) == (Decimal("0.001007"), 0, 0)
    record = priced(plan, *WORK, submit(), submit())
    after = ledger.totals().all
    assert record.totals.cost_usd == record.attempts_cost_usd == "0.002007"
    assert difference_from_log(record, plan, tmp_path / "again") == ""
    cheaper = record.model_copy(update={"totals": record.totals.model_copy(update={"cost_usd": "0.001"})})
    assert "cost_usd" in difference_from_log(cheaper, plan, tmp_path / "cheaper")
    assert (after.spent, after.reserved, after.doubtful) == (Decimal("0.002007"), 0, 0)
    assert list(ledger.totals().runs) == [plan.run.path]


def test_a_request_that_was_cut_off_is_in_doubt(plan: RunPlan, tmp_path: Path) -> None:
    """Nobody knows whether the provider charged for it: the budget counts the most that it can have cost."""
    plan = replace(plan, results=tmp_path / "results", budget=BudgetConfig(max_cost_usd="100"))
    with pytest.raises(KeyboardInterrupt):
        in_new_process(lambda: priced(plan, *WORK, at=2, error=KeyboardInterrupt()))
    position = CampaignLedger(tmp_path / "results/ledger", Decimal(100)).totals().all
    assert position.spent == Decimal("0.001")
    assert position.doubtful > 0
    assert position.reserved == 0


def in_new_process(work: Callable[[], object]) -> None:
    """The ledger asks whether a process lives, so that it must be another one that ends."""

    def quiet() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            work()
            os._exit(1)

    assert in_child(quiet) == 0
    raise KeyboardInterrupt


def test_no_attempt_without_budget(plan: RunPlan, tmp_path: Path) -> None:
    plan = replace(plan, results=tmp_path / "results", budget=BudgetConfig(max_cost_usd="0.0000001"))
    with pytest.raises(BudgetExhausted, match="budget"):
        priced(plan, *WORK)
    assert numbers(plan) == []


def test_a_budget_that_runs_out_leaves_an_attempt_that_goes_on(plan: RunPlan, tmp_path: Path) -> None:
    """Raised, it pays for the rest only."""
    small = BudgetConfig(max_cost_usd="0.032", expected_turns=1, expected_prompt_tokens=1)
    plan = replace(plan, results=tmp_path / "results", budget=small)
    with pytest.raises(BudgetExhausted):
        priced(plan, *([code("write a")] * 40))
    attempt = list_attempts(plan.folder)[0]
    turns = attempt.failures()[0].totals.turns
    assert turns >= 1
    raised = replace(plan, budget=BudgetConfig(max_cost_usd="1", expected_turns=1, expected_prompt_tokens=1))
    record = priced(raised, *([code("write a")] * turns), submit(), submit())
    assert (record.attempt, record.totals.turns) == (1, turns + 2)
    assert CampaignLedger(tmp_path / "results/ledger", None).totals().all.requests == turns + 2


def test_line_is_what_the_journal_holds(plan: RunPlan) -> None:
    """Every line of a real run's journal is one of the documented ones."""
    start(plan, *WORK, submit(), submit())
    journal = list_attempts(plan.folder)[0].journal
    kinds = [(line.type, line.kind) for line in map(Line.model_validate_json, journal.read_text().splitlines())]
    assert kinds[0] == ("effect", "start")
    assert kinds[-2:] == [("effect", "end"), ("effect", "processes")]
    assert {kind for _, kind in kinds} == {"start", "reply", "exec", "submit", "end", "processes"}
