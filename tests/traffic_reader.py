"""A reader of a program's traffic with all its parts, and a sandbox that tells what its container ran."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from automedbench.agent.budget.limits import Budget
from automedbench.agent.command.traffic import Traffic
from automedbench.agent.durable.attempts import Journal
from automedbench.agent.log import Dialogue, Masker, RunLog
from automedbench.agent.models.model import ChatMessage, Reply
from automedbench.agent.toolbox import Contract, Toolbox
from automedbench.base.cards import Limits
from automedbench.base.records import CodeCall, Process
from automedbench.sandbox.evidence.policy import Strikes
from automedbench.sandbox.evidence.trace import TracedProgram


class TracedSandbox:
    """What the reader asks of a sandbox: its container ran what it is told."""

    def __init__(self, workspace_dir: str) -> None:
        self.workspace_dir = workspace_dir
        self.inside: list[TracedProgram] = []
        self.opened: list[Process] = []

    def drain_processes(self) -> list[Process]:
        taken, self.opened = self.opened, []
        return taken

    def programs(self) -> list[TracedProgram]:
        taken, self.inside = self.inside, []
        return taken


class Reader:
    """Reads exchanges; ``ran`` adds a process of the container."""

    def __init__(self, folder: Path, log: RunLog, journal: Journal, contract: Contract, inside: str) -> None:
        self.log = log
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.sandbox = TracedSandbox(inside)
        toolbox = Toolbox(
            sandbox=self.sandbox,  # type: ignore[arg-type]
            workspace=self.workspace,
            log=log,
            journal=journal,
            budget=Budget(Limits(), None),
            contract=contract,
            strikes=Strikes(1),
        )
        self.dialogue = Dialogue("our system", "our kickoff", log, 100_000)
        self.traffic = Traffic(self.dialogue, toolbox)
        self.turn = 0

    def exchange(self, messages: Sequence[ChatMessage], reply: Reply, *, tools: bool = True) -> None:
        self.traffic.record_request(messages, tools=tools)
        self.turn += 1
        self.traffic.record_reply(reply, self.turn)

    def ran(self, pid: int, line: str, code: int | None, *, parent: int = 1) -> None:
        self.sandbox.inside.append(TracedProgram(pid, parent, line, time.monotonic(), code, False))

    def end(self) -> list[CodeCall]:
        """The command itself, then what it reported."""
        whole = CodeCall(
            turn=0,
            call=1,
            language="bash",
            code="exec prog\n",
            status="ok",
            exit_code=0,
            elapsed_s=1,
            stdout="",
            stderr="",
            stage="S1",
        )
        return [self.traffic.whole_command(whole), *self.traffic.calls]

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.log.folder / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["type"] == kind]


@contextmanager
def reading(folder: Path, contract: Contract, inside: str = "/workspace") -> Iterator[Reader]:
    """A reader with its log in ``folder``; ``inside`` is the workspace as the program sees it."""
    folder.mkdir(exist_ok=True)
    with RunLog(folder / "log", Masker([])) as log, Journal(folder / "log/journal.jsonl", log) as journal:
        yield Reader(folder, log, journal, contract, inside)
