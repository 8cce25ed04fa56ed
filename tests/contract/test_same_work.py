"""The same work, the same score: one session of the demo as each program's traffic is judged as in our own loop.

The session runs once, in our loop. What it printed and wrote is then told by each program in its own form (tools and
results as in ``recorded_traffic.json``); judge, stages of calls and files written must come out the same. S4 and S5
rest on the workspace at the end, which is the same by construction.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from traffic_reader import Reader, reading

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall
from automedbench.agent.models.scripted import Script, ScriptedTurn
from automedbench.agent.plan import RunPlan, make_contract
from automedbench.agent.run import run_agent
from automedbench.agent.workspace import has_plot, list_files, read_plan, take_snapshot
from automedbench.base.cards import Limits, load_card
from automedbench.base.files import read_record
from automedbench.base.records import CodeCall, Conversation, JudgeRecord, Manifest, RunId
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.judge import judge_run, load_rubric
from automedbench.judge.rules import HeuristicJudge
from automedbench.sandbox.boxes import LocalSandbox
from automedbench.sandbox.container.process import CodeResult
from automedbench.tracks.detection import TRACK as detection
from automedbench_rehearsal.model_server.program import Program, told
from automedbench_rehearsal.model_server.wire import Tool


@dataclass
class Session:
    """A session of our own loop, and after each call what it gave and a copy of the workspace."""

    turns: list[ScriptedTurn]
    conversation: Conversation
    results: list[CodeResult]
    copies: list[Path]
    plan: RunPlan


class Recording(LocalSandbox):
    """The local sandbox; keeps what each call gave and left."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(**options)
        self.folder = folder
        self.results: list[CodeResult] = []
        self.copies: list[Path] = []

    def run_code(self, *arguments: Any, **options: Any) -> CodeResult:
        result = super().run_code(*arguments, **options)
        self.results.append(result)
        self.copies.append(self.folder / f"{len(self.results)}")
        shutil.copytree(self.workspace_dir, self.copies[-1], symlinks=True)
        return result


@pytest.fixture(scope="module", params=["careful", "crasher"])
def session(request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("session")
    card = load_card(root / "config/tasks/detection/bccd-det-task.yaml")
    public = folder / "public"
    cases = detection.stage(card, root / "demo/data/bccd", public / card.id, folder / "private")
    script = root / f"demo/agents/detection/{request.param}.yaml"
    plan = RunPlan(
        run=RunId(agent="own", task=card.id, tier="lite", repeat=1),
        card=card,
        manifest=Manifest(
            task=card.id, task_version=card.version, track=card.track, dataset="bccd", sampling="test", cases=cases
        ),
        agent=Agent(provider="scripted", model="scripted", script=str(script), trusted=True),
        limits=Limits(),
        sandbox=SandboxConfig(backend="local"),
        public=public,
        folder=folder / "r1",
        prompts=root / "config/prompts",
    )
    recording: list[Recording] = []

    @contextmanager
    def open_sandbox(plan: RunPlan, attempt: Any, *_: object) -> Iterator[Recording]:
        with Recording(folder / "copies", public=public / card.id, workspace=attempt.workspace) as sandbox:
            recording.append(sandbox)
            yield sandbox

    run_agent(plan, wait_s=0, say=lambda _text: None, open_sandbox=open_sandbox)
    return Session(
        turns=list(Script.model_validate({"turns": yaml.safe_load(script.read_text())}).turns),
        conversation=read_record(folder / "r1/conversation.json", Conversation),
        results=recording[0].results,
        copies=recording[0].copies,
        plan=plan,
    )


def text_tool(name: str, key: str, kind: str = "string") -> Tool:
    return Tool(name, {"properties": {key: {"type": kind}}, "required": [key]})


PROGRAMS = {
    "claude-code": Program("shell", text_tool("Bash", "command")),
    "codex": Program("shell", text_tool("exec_command", "cmd")),
    "codex-shell": Program("shell", text_tool("shell", "command", "array")),
    "gemini-cli": Program("shell", text_tool("run_shell_command", "command")),
    "opencode": Program("shell", text_tool("bash", "command")),
    "mini-swe-agent": Program("shell", text_tool("bash", "command"), echo_ends=True),
    "mini-swe-agent-text": Program("text", echo_ends=True, fence="mswea_bash_command", parallel=False),
    "inspect": Program("shell", text_tool("bash", "command"), submit=text_tool("submit", "answer")),
    "openhands": Program("shell", text_tool("execute_bash", "command")),
}
GIVEN = "requirements.txt"
"""Lies in the workspace before the first call."""
TELL_NO_CODES = ("opencode", "inspect")


def reported(program: str, result: CodeResult) -> tuple[str, bool | None]:
    """A result as the program tells it, and whether the protocol says that it failed."""
    both, code = result.stdout + result.stderr, result.exit_code
    match program:
        case "claude-code":
            shown = both.strip() or ("" if code else "(Bash completed with no output)")
            return (f"Exit code {code}\n{shown}" if code else shown), bool(code)
        case "codex":
            head = f"Chunk ID: 9c7502\nWall time: 0.1 seconds\nProcess exited with code {code}\n"
            return f"{head}Original token count: 4\nOutput:\n{both}", None
        case "codex-shell":
            return f"Exit code: {code}\nWall time: 0.1 seconds\nOutput:\n{both}", None
        case "gemini-cli":
            tail = (f"Exit Code: {code}\n" if code else "") + "Process Group PGID: 949\n</untrusted_context>"
            return f"<untrusted_context>\nOutput: {both.strip() or '(empty)'}\n{tail}", None
        case "opencode":
            return both or "(no output)", None
        case "inspect":
            return (f"{result.stderr}\n" if result.stderr else "") + result.stdout, None
        case "mini-swe-agent":
            return json.dumps({"returncode": code, "output": both}, indent=2), None
        case "mini-swe-agent-text":
            return f"<returncode>{code}</returncode>\n<output>\n{both}</output>", None
    return f"{both}\n[The command completed with exit code {code}.]\n[Current working directory: /workspace]", None


def drive(name: str, session: Session, reader: Reader, *, traced: bool) -> list[CodeCall]:
    """The session as the program's traffic: every turn a reply, every result what our sandbox gave."""
    program, messages = PROGRAMS[name], [ChatMessage("system", f"You are {name}."), ChatMessage("user", "Begin.")]
    done, number = 0, 0
    while done < len(session.results):
        number += 1
        text, made = told(session.turns, number, program, "call")
        calls = tuple(ToolCall(call.id, call.name, json.dumps(call.arguments)) for call in made)
        reader.exchange(messages, Reply(text, calls), tools=program.manner == "shell")
        messages = [*messages, ChatMessage("assistant", text, calls)]
        for call in calls or (None,):
            result = session.results[done]
            shutil.copytree(session.copies[done], reader.workspace, symlinks=True, dirs_exist_ok=True)
            if traced and call is not None:
                code = next(iter(json.loads(call.arguments).values()))
                reader.ran(done + 10, f"/bin/bash -c {code}"[:2000], result.exit_code)
            done += 1
            content, failed = reported(name, result)
            role = "user" if call is None else "tool"
            messages.append(ChatMessage(role, content, call_id=None if call is None else call.id, failed=failed))
    reader.exchange(messages, Reply("All is done."), tools=program.manner == "shell")
    return reader.end()


def judged(session: Session, conversation: Conversation, root: Path) -> JudgeRecord:
    rubric = load_rubric(root / "config/rubrics", session.plan.card.track)
    return judge_run(conversation, rubric, session.plan.run.tier, HeuristicJudge())


def verdicts(record: JudgeRecord) -> dict[str, float]:
    return {criterion.id: criterion.verdict for criterion in record.criteria}


def written(calls: Sequence[CodeCall]) -> list[str]:
    return sorted(path for call in calls for path in call.new_files)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_session_gives_the_same_scores(name: str, session: Session, root: Path, tmp_path: Path) -> None:
    own = session.conversation
    contract = make_contract(session.plan.card, [case.id for case in session.plan.manifest.cases])
    with reading(tmp_path / "program", contract) as reader:
        shutil.copy2(session.copies[0] / GIVEN, reader.workspace)
        reader.traffic.snapshot = take_snapshot(reader.workspace)
        calls = drive(name, session, reader, traced=name in TELL_NO_CODES)
        snapshot = take_snapshot(reader.workspace)
        conversation = Conversation(
            run=own.run,
            n_cases=own.n_cases,
            gpu=own.gpu,
            messages=reader.dialogue.records(),
            calls=calls,
            plan=read_plan(reader.workspace),
            has_plot=has_plot(reader.workspace),
            workspace_files={path: size for path, size in list_files(snapshot).items() if path != GIVEN},
        )
    # Claude Code says that a call did not fail, but no code.
    assert [(call.status, call.exit_code or 0) for call in calls[1:]] == [
        (call.status, call.exit_code) for call in own.calls
    ]
    ours, theirs = judged(session, own, root), judged(session, conversation, root)
    assert verdicts(theirs) == verdicts(ours)
    assert theirs.stages == ours.stages
    assert written(calls) == written(own.calls)
    assert conversation.workspace_files == own.workspace_files
