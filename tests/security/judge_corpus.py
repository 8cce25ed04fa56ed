"""Attempts to steer a judge (``judge_injections/*.yaml``), and transcripts with an attempt in its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from automedbench.base.records import CodeCall, Conversation, Message
from automedbench.reading.injection import AgentText

FOLDER = Path(__file__).parent / "judge_injections"
BENIGN = "benign.yaml"
FILLER = {
    "plan": "The next step follows from the one before it.",
    "stdout": "case done, mean intensity 0.31, time 1.2 s",
    "code": "x = 1  # nothing to see here",
}


@dataclass(frozen=True)
class Attempt:
    """One attempt: where it stands in a run, its parts (one per turn), and what is expected of the rules."""

    id: str
    table: str
    kind: str
    where: str
    parts: tuple[str, ...]
    expected: Literal["found", "neutralised"]

    @property
    def texts(self) -> list[AgentText]:
        """The attempt as the rules are given it."""
        return [AgentText(self.where, turn, part) for turn, part in enumerate(self.parts, start=1)]


def load_attempts() -> list[Attempt]:
    """All attempts of all tables but the benign one."""
    return [
        _attempt(name, path.stem, fields)
        for path in sorted(FOLDER.glob("*.yaml"))
        if path.name != BENIGN
        for name, fields in yaml.safe_load(path.read_text()).items()
    ]


def load_benign() -> dict[str, AgentText]:
    """What honest agents write, by name."""
    table = yaml.safe_load((FOLDER / BENIGN).read_text())
    return {name: AgentText(fields["where"], 1, fields["text"]) for name, fields in table.items()}


def _attempt(name: str, table: str, fields: dict[str, Any]) -> Attempt:
    given = fields["text"] if isinstance(fields["text"], list) else [fields["text"]]
    lines = fields.get("bury", 0) // 2
    around = (FILLER[fields["where"]] + "\n") * lines if lines else ""
    parts = tuple(f"{around}{part}\n{around}" if around else part for part in given)
    assert set(fields) <= {"kind", "where", "text", "expected", "why", "bury"} and fields["why"], name
    return Attempt(name, table, fields["kind"], fields["where"], parts, fields["expected"])


def inserted(base: Conversation, attempt: Attempt) -> Conversation:
    """The run with the attempt in its place; nothing else about it changes."""
    if attempt.where == "plan":
        return base.model_copy(update={"plan": "\n\n".join([base.plan or "", *attempt.parts])})
    if attempt.where == "note":
        notes = [Message(turn=turn, role="assistant", content=part) for turn, part in enumerate(attempt.parts, start=1)]
        return base.model_copy(update={"messages": [*base.messages, *notes]})
    if attempt.where in ("code", "stdout", "stderr"):
        calls = [_call(base.calls[-1], number, {attempt.where: part}) for number, part in enumerate(attempt.parts, 1)]
        return base.model_copy(update={"calls": [*base.calls, *calls]})
    if attempt.where == "file name":
        return base.model_copy(update={"workspace_files": base.workspace_files | dict.fromkeys(attempt.parts, 100)})
    assert attempt.where == "picture"
    return base.model_copy(update={"has_plot": True})


def _call(last: CodeCall, number: int, texts: dict[str, str]) -> CodeCall:
    """A further call that does nothing but hold the text."""
    fields: dict[str, Any] = {
        "turn": last.turn + number,
        "call": last.call + number,
        "language": "python",
        "code": "pass",
        "status": "ok",
        "exit_code": 0,
        "elapsed_s": 0.1,
        "stdout": "",
        "stderr": "",
        "stage": "S5",
    }
    return CodeCall.model_validate(fields | texts)
