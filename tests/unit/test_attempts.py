"""Attempts of a run from start to end: sealed, published, adopted after a crash, never lost, never paid twice."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import written_campaign
from harness_fakes import Clock, FakeModel, FakeSandbox, code, submit, text
from left_workspaces import left_in
from PIL import Image
from run_fakes import KEY, KEY_NAME, WORK, make_plan, numbers, start

from automedbench.agent.durable import attempts as attempts_module
from automedbench.agent.durable.attempts import FailureRecord, list_attempts
from automedbench.agent.models.model import ChatModel, EndpointError, Reply
from automedbench.agent.run import RunPlan, make_contract
from automedbench.base.cards import Limits, load_card
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import CaseEntry, Conversation, Enforced, Manifest, RunRecord, Tokens
from automedbench.campaign.config import SandboxConfig
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion


@pytest.fixture
def plan(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    monkeypatch.setenv(KEY_NAME, KEY)
    return make_plan(tmp_path, root)


# --- the usual run ---------------------------------------------------------------------------------------------


def test_files_of_a_run(plan: RunPlan) -> None:
    record = start(plan, *WORK, submit("two images"))
    folder = plan.folder
    assert (record.outcome, record.submitted, record.summary) == ("submitted", True, "two images")
    assert read_record(folder / "run.json", RunRecord) == record
    names = ("log", "outputs.tar", "workspace.tar")
    assert [os.readlink(folder / name) for name in names] == [f"attempts/0001/{name}" for name in names]
    assert sorted(path.name for path in folder.iterdir()) == [
        "attempts", "brief.md", "conversation.json", "log", "outputs.tar", "run.json", "workspace.tar",
    ]  # fmt: skip
    assert sorted(path.name for path in (folder / "attempts/0001").iterdir()) == [
        "brief.md", "conversation.json", "log", "outputs.tar", "published", "run.json", "workspace.tar",
    ]  # fmt: skip
    assert sorted(path.name for path in (folder / "log").iterdir()) == [
        "events.jsonl", "exec.tar", "journal.jsonl", "transcript.jsonl",
    ]  # fmt: skip
    assert "plan/plan.md" in left_in(folder)
    conversation = read_record(folder / "conversation.json", Conversation)
    assert conversation.plan == "{}"
    assert [call.stage for call in conversation.calls] == ["S1", "S3"]
    assert "requirements.txt" not in [path for call in conversation.calls for path in call.new_files]  # it was given
    assert set(conversation.workspace_files) == {
        "plan/plan.md", "agents_outputs/b_0001/prediction.json", "agents_outputs/b_0002/prediction.json",
    }  # fmt: skip
    assert [message.role for message in conversation.messages[:3]] == ["system", "user", "assistant"]


def test_the_brief_is_what_the_agent_was_given(plan: RunPlan) -> None:
    start(plan, submit())
    brief = (plan.folder / "brief.md").read_text()
    conversation = read_record(plan.folder / "conversation.json", Conversation)
    assert conversation.messages[0].content in brief
    assert conversation.messages[1].content in brief


def test_events_of_a_run(plan: RunPlan) -> None:
    start(plan, *WORK, submit(), submit())
    kinds = [json.loads(line)["type"] for line in (plan.folder / "log/events.jsonl").read_text().splitlines()]
    assert kinds == [
        "run_start", "api_request", "api_reply", "exec_start", "exec_end", "exec_start", "exec_end",
        "api_request", "api_reply", "submit", "run_end",
    ]  # fmt: skip


def test_keys_stand_in_no_file(plan: RunPlan) -> None:
    start(plan, text(f"my key is {KEY}"), code(f"write {KEY}"), submit(KEY), submit(KEY))
    for path in plan.folder.rglob("*"):
        if path.is_file() and path.suffix != ".tar":
            assert KEY not in path.read_text(), path


# --- crashes ---------------------------------------------------------------------------------------------------

CRASH = """
    import os, signal, sys
    sys.path.insert(0, sys.argv[1])
    import pickle
    import automedbench.agent.run as run
    from run_fakes import WORK, start
    from harness_fakes import submit
    run.publish = lambda attempt: os.kill(os.getpid(), signal.SIGKILL)
    start(pickle.loads(sys.stdin.buffer.read()), *WORK, submit("before the crash"))
"""


def crash_before_publishing(plan: RunPlan) -> None:
    import pickle

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASH), str(Path(__file__).parent)],
        input=pickle.dumps(plan),
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def no_model(*_: object) -> AbstractContextManager[ChatModel]:
    raise AssertionError("the model was asked")


def never_asked(*_: object) -> AbstractContextManager[ChatModel]:
    """A model for an attempt that needs none any more."""

    class Silent(FakeModel):
        def reply(self, *_: Any) -> Reply:
            raise AssertionError("the model was asked")

    return contextlib.nullcontext(Silent(submit()))


def test_killed_between_seal_and_publish_is_adopted(plan: RunPlan) -> None:
    crash_before_publishing(plan)
    assert not (plan.folder / "run.json").exists()
    record = start(plan, open_model=no_model)
    assert record.summary == "before the crash"
    assert numbers(plan) == [1]
    assert (plan.folder / "run.json").is_file()


def test_adoption_needs_no_key(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    crash_before_publishing(plan)
    monkeypatch.delenv("TEST_KEY")
    assert start(plan, open_model=no_model).attempt == 1


CHANGES: dict[str, Callable[[RunPlan], RunPlan]] = {
    "agent": lambda plan: replace(plan, agent=plan.agent.model_copy(update={"temperature": 1.0})),
    "limits": lambda plan: replace(plan, limits=Limits(max_turns=5)),
    "network": lambda plan: replace(plan, sandbox=SandboxConfig(network="open")),
    "task version": lambda plan: replace(
        plan,
        card=plan.card.model_copy(update={"version": 9}),
        manifest=plan.manifest.model_copy(update={"task_version": 9}),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_an_attempt_at_another_question_is_not_adopted(plan: RunPlan, change: Callable[[RunPlan], RunPlan]) -> None:
    crash_before_publishing(plan)
    assert start(change(plan), submit()).attempt == 2
    assert numbers(plan) == [1, 2]


def test_forced_rerun_makes_a_new_attempt_and_keeps_the_old(plan: RunPlan) -> None:
    start(plan, *WORK, submit("first"))
    (plan.folder / "submission.json").write_text("{}")  # the next step had taken the result
    for name in ("brief.md", "conversation.json", "run.json"):  # as Snakemake does before a rerun
        (plan.folder / name).unlink()
    record = start(plan, submit("second"))
    assert (record.attempt, record.summary) == (2, "second")
    (plan.folder / "submission.json").unlink()  # as if killed before the second was collected
    assert start(plan, open_model=no_model).summary == "second"
    assert os.readlink(plan.folder / "workspace.tar") == "attempts/0002/workspace.tar"
    assert list(left_in(plan.folder)) == ["requirements.txt"]  # lite's, given
    assert read_record(plan.folder / "attempts/0001/run.json", RunRecord).summary == "first"
    assert "plan/plan.md" in left_in(plan.folder / "attempts/0001")


def test_published_but_never_collected_is_not_paid_twice(plan: RunPlan) -> None:
    """The workflow may be killed after the publication and before it noted it; its restart deletes the outputs."""
    start(plan, *WORK, submit("first"))
    for name in ("brief.md", "conversation.json", "run.json"):
        (plan.folder / name).unlink()
    record = start(plan, submit("second"))
    assert (record.attempt, record.summary) == (1, "first")


def test_killed_while_publishing_is_published_again(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker comes last: a kill before it means that the next start publishes once more."""
    start(plan, submit("kept"))
    (plan.folder / "attempts/0001/published").unlink()
    (plan.folder / "log").unlink()
    assert start(plan, open_model=no_model).summary == "kept"
    assert (plan.folder / "log").is_symlink()


# --- failures of ours ------------------------------------------------------------------------------------------

FAILURES: dict[str, tuple[BaseException, type[BaseException], str]] = {
    "endpoint": (EndpointError("down", (Billed(Tokens(prompt=1_000_000)),)), InfrastructureError, "infrastructure"),
    "Ctrl-C or SIGTERM": (KeyboardInterrupt(), KeyboardInterrupt, "cancelled"),
    "disk": (OSError(errno.ENOSPC, "No space left on device"), OSError, "infrastructure"),
    "bug": (RuntimeError("oops"), RuntimeError, "bug"),
}


@pytest.mark.parametrize(("error", "raised", "kind"), FAILURES.values(), ids=FAILURES.keys())
def test_interrupted_attempt_goes_on_with_its_cost(
    plan: RunPlan, error: BaseException, raised: type[BaseException], kind: str
) -> None:
    first = Failing(code("write plan/plan.md"), error)
    with pytest.raises(raised):
        start(plan, open_model=lambda *_: contextlib.nullcontext(first))
    failure = read_record(plan.folder / "attempts/0001/failure-0001.json", FailureRecord)
    assert (failure.kind, failure.resumable, failure.totals.turns) == (kind, True, 1)
    assert failure.totals.cost_usd == ("1" if raised is InfrastructureError else "0")
    assert len(read_record(plan.folder / "attempts/0001/conversation.json", Conversation).calls) == 1
    assert not (plan.folder / "lease.json").exists()
    assert not (plan.folder / "run.json").exists()
    record = start(plan, submit(), submit())
    assert (record.attempt, record.resumes, record.totals.turns) == (1, 1, 3)
    assert record.totals.cost_usd == failure.totals.cost_usd


def test_the_container_stands_still_while_the_endpoint_is_waited_for(plan: RunPlan, tmp_path: Path) -> None:
    """A wait below a fifth of a second stops nothing."""
    pauses = [Answer(503, {}, headers={"Retry-After": seconds}) for seconds in ("0.3", "0.05")]
    with ScriptedServer(answers=[*pauses, Answer(body=completion())]) as server:
        agent = plan.agent.model_copy(update={"base_url": server.url})
        paid, sandbox = replace(plan, agent=agent, results=tmp_path), FakeSandbox(tmp_path, Clock())
        start(paid, open_model=None, open_sandbox=lambda *_: sandbox)
    assert sandbox.stills == [0.3]


class Failing(FakeModel):
    """Replies from a list that may hold any exception."""

    def reply(self, *arguments: Any) -> Reply:
        if isinstance(self.replies[0], BaseException):
            raise self.replies[0]
        return super().reply(*arguments)


def test_a_bug_that_comes_back_at_the_same_place_gives_the_attempt_up(plan: RunPlan) -> None:
    """It may have been chance, or mended since: once more it goes on; then a new attempt is made, the old one kept."""
    for _ in range(2):
        with pytest.raises(RuntimeError):
            start(plan, open_model=lambda *_: contextlib.nullcontext(Failing(RuntimeError("oops"))))
    assert numbers(plan) == [1]
    failures = list_attempts(plan.folder)[0].failures()
    assert [failure.resumable for failure in failures] == [True, False]
    assert start(plan, submit()).attempt == 2


def test_an_interrupted_attempt_at_another_question_does_not_go_on(plan: RunPlan) -> None:
    """Another question is what it is for a finished one."""
    with pytest.raises(EndpointError):
        start(plan, *WORK, EndpointError("down"))
    assert start(CHANGES["limits"](plan), submit()).attempt == 2


def test_an_attempt_in_another_image_does_not_go_on(plan: RunPlan) -> None:
    """What the agent found out about its environment may be wrong there."""

    class Isolated(FakeSandbox):
        enforced = Enforced(backend="apptainer", network="sealed", image_sha256="a" * 64)

    class Rebuilt(FakeSandbox):
        enforced = Enforced(backend="apptainer", network="sealed", image_sha256="b" * 64)

    with pytest.raises(EndpointError):
        start(
            plan,
            *WORK,
            EndpointError("down"),
            open_sandbox=lambda _plan, attempt, *_: Isolated(attempt.workspace, Clock()),
        )
    record = start(plan, submit(), open_sandbox=lambda _plan, attempt, *_: Rebuilt(attempt.workspace, Clock()))
    assert record.attempt == 2
    kept = list_attempts(plan.folder)[0].failures()
    assert [failure.error for failure in kept] == ["EndpointError", "JournalMismatch"]
    assert not kept[-1].resumable


def test_what_was_enforced_holds_for_the_whole_attempt(plan: RunPlan) -> None:
    class Watched(FakeSandbox):
        enforced = Enforced(backend="apptainer", network="sealed", decoy=True, seccomp=True, memory_bytes=5)

    class Unwatched(FakeSandbox):
        enforced = Enforced(backend="apptainer", network="sealed", decoy=False, seccomp=True, memory_bytes=7)

    with pytest.raises(EndpointError):
        start(plan, EndpointError("down"), open_sandbox=lambda _plan, attempt, *_: Watched(attempt.workspace, Clock()))
    record = start(plan, submit(), open_sandbox=lambda _plan, attempt, *_: Unwatched(attempt.workspace, Clock()))
    assert (record.attempt, record.resumes) == (1, 1)
    assert (record.enforced.decoy, record.enforced.seccomp, record.enforced.memory_bytes) == (False, True, 7)


def test_a_forced_rerun_that_was_interrupted_goes_on(plan: RunPlan) -> None:
    start(plan, *WORK, submit("first"))
    (plan.folder / "submission.json").write_text("{}")
    with pytest.raises(EndpointError):
        start(plan, *WORK, EndpointError("down"))
    assert start(plan, submit("second")).attempt == 2
    assert numbers(plan) == [1, 2]


def test_an_attempt_behind_a_finished_one_is_left_alone(plan: RunPlan) -> None:
    """The first attempt was interrupted, the question changed and was answered, and comes back as it was."""
    with pytest.raises(EndpointError):
        start(plan, EndpointError("down"))
    start(CHANGES["agent"](plan), submit())
    (plan.folder / "submission.json").write_text("{}")
    assert start(plan, submit()).attempt == 3


def test_missing_key_starts_nothing(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(InfrastructureError, match="TEST_KEY"):
        start(plan, submit())
    assert numbers(plan) == []


def test_full_disk_while_sealing(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _record: object) -> None:
        raise InfrastructureError(f"Cannot write {path}: No space left on device.")

    monkeypatch.setattr(attempts_module, "write_record", full)
    with pytest.raises(InfrastructureError, match=r"conversation\.json"):
        start(plan, submit("before the disk was full"))
    monkeypatch.undo()
    monkeypatch.setenv(KEY_NAME, KEY)
    record = start(plan, open_model=never_asked)
    assert (record.attempt, record.summary) == (1, "before the disk was full")


REFUSED: dict[str, tuple[Callable[[RunPlan], RunPlan], str]] = {
    "local sandbox, not trusted": (
        lambda plan: replace(plan, sandbox=SandboxConfig(backend="local")),
        "isolates nothing",
    ),
    "credentialed data": (
        lambda plan: replace(
            plan,
            card=plan.card.model_copy(
                update={"dataset": plan.card.dataset.model_copy(update={"access": "credentialed"})}
            ),
        ),
        "credentialed",
    ),
    "staged from another version": (
        lambda plan: replace(plan, manifest=plan.manifest.model_copy(update={"task_version": 7})),
        "stage the task again",
    ),
    "cost limit without price": (
        lambda plan: replace(
            plan, agent=plan.agent.model_copy(update={"pricing": None}), limits=Limits(max_cost_usd=1.0)
        ),
        "pricing",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_must_never_start(plan: RunPlan, change: Callable[[RunPlan], RunPlan], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start(change(plan), submit())
    assert not (plan.folder / "run.json").exists()


# --- what an agent may leave behind ----------------------------------------------------------------------------


def leave(workspace: Path, what: str, secret: Path) -> None:
    folder = workspace / "plan"
    if what == "folder link":
        (secret / "plan.md").write_text("private")
        folder.symlink_to(secret)
        return
    folder.mkdir()
    match what:
        case "link":
            (secret / "answers").write_text("private")
            (folder / "plan.md").symlink_to(secret / "answers")
        case "pipe":
            os.mkfifo(folder / "plan.md")
            os.mkfifo(folder / "plan.png")
        case "folder":
            (folder / "plan.md").mkdir()
        case "long":
            (folder / "plan.md").write_bytes(b"\xff" + b"x" * 200_000)
        case "picture":
            Image.new("RGB", (20, 10)).save(folder / "plan.png")
        case "text as picture":
            (folder / "plan.png").write_text("no picture")
        case "jpeg as picture":
            Image.new("RGB", (20, 10)).save(folder / "plan.png", format="JPEG")
        case "cut picture":
            Image.effect_noise((200, 200), 50).save(folder / "plan.png")
            data = (folder / "plan.png").read_bytes()
            (folder / "plan.png").write_bytes(data[: len(data) // 2])
        case "bomb":
            Image.new("1", (30_000, 30_000)).save(folder / "plan.png")


@pytest.mark.parametrize(
    ("what", "plan_text", "plot"),
    [
        ("link", None, False),
        ("folder link", None, False),
        ("pipe", None, False),
        ("folder", None, False),
        ("long", "\ufffd" + "x" * 65_535, False),
        ("picture", None, True),
        ("text as picture", None, False),
        ("jpeg as picture", None, False),
        ("cut picture", None, True),
        ("bomb", None, False),
    ],
)
def test_plan_and_plot_are_read_safely(
    plan: RunPlan, tmp_path: Path, what: str, plan_text: str | None, plot: bool
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()

    class Leaving(FakeSandbox):
        def __enter__(self) -> FakeSandbox:
            leave(self.workspace, what, secret)
            return self

    start(plan, submit(), open_sandbox=lambda _plan, attempt, *_: Leaving(attempt.workspace, Clock()))
    conversation = read_record(plan.folder / "conversation.json", Conversation)
    assert conversation.plan == plan_text
    assert conversation.has_plot == plot


def test_file_list_is_bounded_and_leaves_caches_out(plan: RunPlan) -> None:
    many = "write " + " ".join(f"files/{number:05d}" for number in range(2500))
    start(plan, code(many + "\nwrite .cache/x __pycache__/y env/lib/z sub/node_modules/w"), submit())
    files = read_record(plan.folder / "conversation.json", Conversation).workspace_files
    assert len(files) == 2000
    assert all(path.startswith("files/") for path in files)


def test_odd_file_names(plan: RunPlan) -> None:
    class Odd(FakeSandbox):
        def __enter__(self) -> FakeSandbox:
            (Path(os.fsdecode(os.fsencode(self.workspace) + b"/\xff\n"))).write_text("x")
            return self

    start(plan, submit(), open_sandbox=lambda _plan, attempt, *_: Odd(attempt.workspace, Clock()))
    assert list(read_record(plan.folder / "conversation.json", Conversation).workspace_files) == ["\ufffd\n"]


# --- small parts -----------------------------------------------------------------------------------------------


def test_contract_of_a_card(root: Path) -> None:
    card = load_card(root / "config/tasks/detection/bccd-det-task.yaml")
    contract = make_contract(card, ["b_0001", "b_0002"])
    assert list(contract.expected) == ["b_0001/prediction.json", "b_0002/prediction.json"]
    assert contract.count_cases(["agents_outputs/b_0002/prediction.json", "agents_outputs/b_0002/x", "b_0001"]) == 1
    whole = card.outputs[0].model_copy(update={"path": "answers.csv"})
    per_task = make_contract(card.model_copy(update={"outputs": [whole]}), ["b_0001", "b_0002"])
    assert per_task.count_cases(["agents_outputs/answers.csv"]) == 2


@pytest.fixture
def demo(root: Path, tmp_path: Path) -> Iterator[list[str]]:
    """Options of the script for the demo's data, staged as folders only: the agent below needs no images."""
    card = load_card(root / "config/tasks/detection/bccd-det-task.yaml")
    case = CaseEntry(id="bccd_0001", inputs={}, private={})
    manifest = Manifest(
        task=card.id, task_version=card.version, track=card.track, dataset="bccd", sampling="one", cases=[case]
    )
    (tmp_path / "data/public" / card.id / case.id).mkdir(parents=True)
    write_record(tmp_path / f"data/manifests/{card.id}.json", manifest)
    (tmp_path / "agent.yaml").write_text(
        "- calls:\n  - tool: execute_code\n    language: bash\n    code: |\n"
        '      mkdir -p "$WORKSPACE/agents_outputs/bccd_0001"; ls "$DATA_DIR"\n'
        "      echo '{\"boxes\": []}' > agents_outputs/bccd_0001/prediction.json\n"
        "  - {tool: submit_results, summary: empty}\n"
    )
    (tmp_path / "agents.yaml").write_text(
        f"agents: {{tiny: {{provider: scripted, script: {tmp_path}/agent.yaml, trusted: true}}}}"
    )
    limits = {"max_turns": 7, "exec_timeout_s": None, "time_limit_s": 100}
    campaign = written_campaign(
        tmp_path,
        root / "config/tasks/detection/bccd-det-task.yaml",
        agents_file=str(tmp_path / "agents.yaml"),
        limits=limits,
    )
    yield ["--campaign", str(campaign), "--run", str(run_folder(tmp_path))]
    shutil.rmtree(run_folder(tmp_path), ignore_errors=True)


def run_folder(folder: Path) -> Path:
    return folder / "results/runs/tiny/bccd-det-task/lite/r1"


def script(root: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts/run_agent.py"), *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_the_script_runs_a_scripted_agent(root: Path, tmp_path: Path, demo: list[str]) -> None:
    done = script(root, demo)
    assert done.returncode == 0, done.stderr
    assert "submitted (every expected file exists) in 1 turns" in done.stdout
    record = read_record(run_folder(tmp_path) / "run.json", RunRecord)
    assert (record.limits["max_turns"], record.limits["exec_timeout_s"], record.limits["disk_gb"]) == (7, None, 100)
    assert record.enforced.backend == "local"
    assert read_record(run_folder(tmp_path) / "conversation.json", Conversation).calls[0].stdout == "bccd_0001\n"
    assert str(tmp_path) not in (run_folder(tmp_path) / "brief.md").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--run", "runs/tinny/bccd-det-task/lite/r1"], "unknown agent 'tinny' (did you mean 'tiny'?)"),
        (["--run", "runs/tiny/bccd-det-tsk/lite/r1"], "unknown task 'bccd-det-tsk' in this campaign (did you mean"),
        (["--run", "lite/r1"], "'lite/r1' is not the folder of a run"),
        (["--campaign", "nowhere/campaign.json"], "nowhere/campaign.json does not exist: no campaign was planned"),
    ],
)
def test_wrong_options(root: Path, demo: list[str], change: list[str], message: str) -> None:
    done = script(root, [*demo, *change])
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
