"""Stand-ins for the harness tests: a clock, a sandbox whose code is a few words, a model that replies from a list."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from automedbench.agent.budget.limits import Budget
from automedbench.agent.durable.attempts import Journal
from automedbench.agent.log import Dialogue, RunLog
from automedbench.agent.loop import AgentLoop
from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.toolbox import Contract, Toolbox
from automedbench.agent.tools import tool_specs
from automedbench.base.cards import Limits, OutputFile
from automedbench.base.endpoint.usage import Billed
from automedbench.base.files import to_json
from automedbench.base.records import Enforced, Finding, GpuUse, Process, Tokens
from automedbench.campaign.prices import Pricing
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.evidence.policy import Strikes

CASES = ["c1", "c2", "c3", "c4"]
OUTPUT = OutputFile(path="{case}/out.json", format="json", max_bytes=100, description="a file")


class Clock:
    """Seconds that only move when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def warning(rule: str, *, severity: str = "warning", confidence: str = "high", call: int = 1) -> Finding:
    return Finding(
        id=f"{rule}-{call}",
        rule=rule,
        source="tripwire",
        category="private_access",
        confidence=confidence,
        severity=severity,
        call=call,
        evidence="/data/private",
        blocked=severity == "warning",
    )


class FakeSandbox:
    """Code is one command per line: ``write PATH…``, ``sleep S``, ``fail``, ``kill``, ``open-decoy``, ``break``.

    ``print`` writes to stderr.
    """

    data_dir, workspace_dir = "/data/public", "/workspace"
    enforced = Enforced(backend="local", network="sealed")
    peak_memory = gpu_busy_s = gpu_idle_s = gpu_turns_s = None

    def __init__(self, workspace: Path, clock: Clock, seen: dict[str, list[Finding]] | None = None) -> None:
        self.workspace, self.clock = workspace, clock
        self.seen = seen or {}
        self.findings: list[Finding] = []
        self.ran: list[str] = []
        self.timeouts: list[float] = []
        self.gpu_uses: list[GpuUse] = []
        self.processes: list[list[Process]] = []
        self.stills: list[float] = []
        self.turn_s = self.wait_s = 0.0

    def __enter__(self) -> FakeSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def drain_findings(self) -> list[Finding]:
        drained, self.findings = self.findings, []
        return drained

    def take_turn(self) -> float:
        """Wait for a shared card, as long as ``turn_s`` says."""
        self.clock.now += self.turn_s
        return self.turn_s

    def drain_gpu_wait(self) -> float:
        """Waiting for a shared card within the call, as long as ``wait_s`` says."""
        self.clock.now += self.wait_s
        return self.wait_s

    def drain_gpu_use(self) -> GpuUse | None:
        return self.gpu_uses.pop(0) if self.gpu_uses else None

    def drain_processes(self) -> list[Process] | None:
        return self.processes.pop(0) if self.processes else None

    def selfcheck(self) -> str:
        return ""

    def passes_anew(self) -> bool:
        return False

    def end(self) -> None:
        return None

    def set_deadline(self, seconds: float | None) -> None:
        return None

    @contextlib.contextmanager
    def frozen(self, seconds: float) -> Iterator[None]:
        self.stills.append(seconds)
        yield

    def wait(self, seconds: float, process: int | None) -> str:
        self.clock.now += seconds
        return "time"

    def run_code(
        self, language: str, code: str, *, call: int, turn: int, log: Path, timeout_s: float, watch: object = None
    ) -> CodeResult:
        self.ran.append(code)
        self.timeouts.append(timeout_s)
        (log / f"{call:04d}.sh").write_text(code)
        self.findings += [finding.model_copy(update={"call": call}) for finding in self.seen.get(code, [])]
        status, exit_code, began, printed = "ok", 0, self.clock.now, ""
        for line in code.splitlines():
            command, *words = line.split()
            if command == "write":
                self._write(words)
            elif command == "sleep":
                self.clock.now += min(float(words[0]), timeout_s)
                if float(words[0]) >= timeout_s:
                    status, exit_code = "timeout", None
            elif command == "open-decoy":
                self.findings.append(warning("decoy.open", call=call))
            elif command in ("fail", "kill", "break"):
                status = {"fail": "error", "kill": "killed", "break": "harness_error"}[command]
                exit_code = {"fail": 1, "kill": 137}.get(command)
            elif command == "print":
                printed = " ".join(words)
        return CodeResult(
            status=status, exit_code=exit_code, stdout=f"ran {code}", stderr=printed, elapsed_s=self.clock.now - began
        )

    def _write(self, paths: list[str]) -> None:
        for path in paths:
            target = self.workspace / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("{}")


class FakeModel:
    """Replies from a list; an exception in it is raised, the last reply repeats. Remembers what it was sent."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.sent: list[list[ChatMessage]] = []

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        self.sent.append(list(messages))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


def text(content: str, finish: str = "stop") -> Reply:
    return Reply(content, finish_reason=finish)


def code(*programs: str, finish: str = "tool_calls", usage: Tokens = Tokens()) -> Reply:  # noqa: B008 - frozen
    calls = tuple(
        ToolCall(f"id{index}", "execute_code", to_json({"language": "bash", "code": program}))
        for index, program in enumerate(programs)
    )
    return Reply("", calls, finish, usage=usage, spent=(Billed(usage),))


def raw_call(name: str, arguments: str, finish: str = "tool_calls") -> Reply:
    return Reply("", (ToolCall("raw", name, arguments),), finish)


def submit(summary: str = "finished") -> Reply:
    return raw_call("submit_results", to_json({"summary": summary}))


ALL_OUTPUTS = "write " + " ".join(f"agents_outputs/{case}/out.json" for case in CASES)


def contract() -> Contract:
    expected = {f"{case}/out.json": OUTPUT for case in CASES}
    return Contract(expected, {path: path.split("/")[0] for path in expected}, len(CASES))


@dataclass
class Bench:
    """A loop with all its parts in a temporary folder."""

    folder: Path
    model: FakeModel
    limits: Limits = field(default_factory=Limits)
    pricing: Pricing | None = None
    max_warnings: int = 1
    context_tokens: int = 200_000
    seen: dict[str, list[Finding]] = field(default_factory=dict)
    """Findings of the sandbox, by code."""
    check: Callable[[], None] = lambda: None
    starts: bool = True

    def __post_init__(self) -> None:
        self.clock = Clock()
        workspace = self.folder / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        self.sandbox = FakeSandbox(workspace, self.clock, self.seen)
        self.log = RunLog(self.folder / "log", clock=self.clock)
        self.journal = Journal(self.folder / "log/journal.jsonl", self.log, self.check, self.clock)
        if self.starts:
            self.journal.effect("start", "", lambda: 0, TypeAdapter(int))
        self.toolbox = Toolbox(
            sandbox=self.sandbox,
            workspace=workspace,
            log=self.log,
            journal=self.journal,
            budget=Budget(self.limits, self.pricing, self.journal.clock),
            contract=contract(),
            strikes=Strikes(self.max_warnings),
            clock=self.clock,
        )
        self.loop = AgentLoop(
            self.model,
            Dialogue("system", "kickoff", self.log, self.context_tokens),
            self.toolbox,
            tool_specs("run code"),
        )

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.__exit__(None, None, None)
        self.log.__exit__(None, None, None)
