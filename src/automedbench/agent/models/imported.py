"""Import of a transcript that was not made here: a run folder that judge, scorer and reader can use.

Forms: a list of chat-completions messages (JSON, or one message per line), or an object with such a list under
``messages`` and, as the public benchmark's ``conversation.json`` has it, ``system_prompt`` and ``code_executions``
(docs/specification.md, 8.9). Nothing of it is proven: it is marked ``provider: imported``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import automedbench
from automedbench.agent.command.bridge import Refused, read_request
from automedbench.agent.command.loop import outcome_of, program_of, shortened
from automedbench.agent.log import RunLog
from automedbench.agent.models.chat import ChatMessage
from automedbench.agent.workspace import has_plot, listed_files, read_plan, take_snapshot
from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.files import sha256_bytes, write_record, write_text
from automedbench.base.records import CodeCall, Conversation, Enforced, Manifest, Message, RunId, RunRecord, Totals, now

SUBMIT = "submit_results"


@dataclass(frozen=True)
class Transcript:
    """A foreign conversation: messages with their turns, and executed code where the file lists it."""

    messages: tuple[tuple[int, ChatMessage], ...]
    executions: tuple[Mapping[str, Any], ...]
    model: str
    sha256: str

    @property
    def turns(self) -> int:
        """Number of replies."""
        return max((turn for turn, _ in self.messages), default=0)

    @property
    def summary(self) -> str | None:
        """What the agent said when it submitted; None when it did not."""
        for _, message in reversed(self.messages):
            for call in message.calls:
                if call.name == SUBMIT:
                    return call.arguments[:500]
        return None


def import_transcript(
    path: Path, run: RunId, card: TaskCard, manifest: Manifest, folder: Path, workspace: Path | None = None
) -> RunRecord:
    """Write a run folder from a foreign transcript; raises ConfigError for a file that is none, or a folder that is."""
    if folder.exists():
        raise ConfigError([f"{folder}: exists already; an import makes a new folder"])
    transcript = read_transcript(path)
    log = folder / "log"
    with RunLog(log) as lines:
        lines.event("imported", source_sha256=transcript.sha256, messages=len(transcript.messages))
        for turn, message in transcript.messages:
            lines.message(turn, message)
    place = folder / "workspace"
    if workspace is None:
        place.mkdir()
    else:
        shutil.copytree(workspace, place, symlinks=True)
    conversation = Conversation(
        run=run,
        n_cases=len(manifest.cases),
        messages=[
            Message(turn=turn, role=message.role, content=message.content) for turn, message in transcript.messages
        ],
        calls=_calls(transcript),
        plan=read_plan(place),
        has_plot=has_plot(place),
        workspace_files=listed_files(take_snapshot(place)),
    )
    brief = "\n\n".join(message.content for turn, message in transcript.messages if turn == 0)
    write_text(folder / "brief.md", brief)
    write_record(folder / "conversation.json", conversation)
    record = _record(transcript, run, card, manifest, brief, conversation)
    write_record(folder / "run.json", record)
    return record


def read_transcript(path: Path) -> Transcript:
    """Read a file in one of the forms; raises ConfigError."""
    data = path.read_bytes()
    value = _parse(path, data)
    executions = value.get("code_executions") or []
    messages = value["messages"]
    if isinstance(value.get("system_prompt"), str) and not any(_role(message) == "system" for message in messages):
        messages = [{"role": "system", "content": value["system_prompt"]}, *messages]
    try:
        chat = read_request(json.dumps({"messages": messages}).encode()).chat
    except Refused as refused:
        raise ConfigError([f"{path}: {refused}"]) from None
    turn, numbered = 0, []
    for message in chat:
        turn += message.role == "assistant"
        numbered.append((turn, message))
    return Transcript(
        messages=tuple(numbered),
        executions=tuple(entry for entry in executions if isinstance(entry, dict)),
        model=str(value.get("model") or "unknown"),
        sha256=sha256_bytes(data),
    )


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    """The file as an object with ``messages``."""
    try:
        text = data.decode("utf-8-sig")
        try:
            value = json.loads(text)
        except ValueError:
            value = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{path}: neither JSON nor one JSON object per line: {str(error)[:120]}"]) from None
    if isinstance(value, dict) and "role" in value:
        value = [value]
    found = value if isinstance(value, dict) else {"messages": value}
    if not isinstance(found.get("messages"), list) or not found["messages"]:
        raise ConfigError([f"{path}: holds no list of messages"])
    return found


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _calls(transcript: Transcript) -> list[CodeCall]:
    """Executed code: as the file lists it, else as calls and their results show it."""
    if transcript.executions:
        return [_listed(number, entry) for number, entry in enumerate(transcript.executions, start=1)]
    results = {message.call_id: message.content for _, message in transcript.messages if message.role == "tool"}
    calls: list[CodeCall] = []
    for turn, message in transcript.messages:
        for call in message.calls:
            program = program_of(call)
            if program is not None:
                output, exit_code = outcome_of(results.get(call.id, ""))
                calls.append(_call(turn, len(calls) + 1, program.language, program.code, exit_code, output, 0.0))
    return calls


def _listed(number: int, entry: Mapping[str, Any]) -> CodeCall:
    exit_code, turn, elapsed = entry.get("exit_code"), entry.get("turn"), entry.get("exec_time_s")
    return _call(
        turn if isinstance(turn, int) and turn > 0 else 0,
        number,
        "bash" if entry.get("language") == "bash" else "python",
        str(entry.get("code") or ""),
        exit_code if isinstance(exit_code, int) else None,
        str(entry.get("stdout_preview") or ""),
        float(elapsed) if isinstance(elapsed, (int, float)) and elapsed >= 0 else 0.0,
    )


def _call(
    turn: int, number: int, language: Any, code: str, exit_code: int | None, output: str, elapsed_s: float
) -> CodeCall:
    return CodeCall(
        turn=turn,
        call=number,
        language=language,
        code=code,
        status="ok" if exit_code in (0, None) else "error",
        exit_code=exit_code,
        elapsed_s=elapsed_s,
        stdout=shortened(output),
        stderr="",
        stage="S1",
    )


def _record(
    transcript: Transcript, run: RunId, card: TaskCard, manifest: Manifest, brief: str, conversation: Conversation
) -> RunRecord:
    submitted = transcript.summary is not None
    moment = now()
    return RunRecord(
        run=run,
        attempt=1,
        outcome="submitted" if submitted else "stopped",
        detail=f"imported transcript of {transcript.turns} turns; nothing of it was seen by this harness",
        submitted=submitted,
        summary=transcript.summary,
        provider="imported",
        model=transcript.model,
        agent_digest=transcript.sha256,
        task_version=card.version,
        brief_sha256=sha256_bytes(brief.encode()),
        cases_sha256=manifest.cases_sha256,
        limits={},
        enforced=Enforced(backend="local", network="open"),
        totals=Totals(
            turns=transcript.turns,
            n_exec=len(conversation.calls),
            n_exec_failed=sum(call.status != "ok" for call in conversation.calls),
        ),
        started_at=moment,
        ended_at=moment,
        code_version=automedbench.__version__,
    )
