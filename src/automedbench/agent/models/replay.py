"""Replay: the replies of a recorded run once more, so that the real loop executes their code again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.agent.models.chat import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.campaign.agents import Agent

LAST_WORDS = "The recording ends here."


@dataclass(frozen=True)
class Recording:
    """The log of a run: its messages and events, one dictionary per line, in order."""

    messages: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]

    @property
    def turns(self) -> list[int]:
        """Numbers of the turns with a reply."""
        return [int(message["turn"]) for message in self.messages if message["role"] == "assistant"]

    def of_turn(self, turn: int, role: str) -> list[dict[str, Any]]:
        """Messages of one turn."""
        return [message for message in self.messages if message["turn"] == turn and message["role"] == role]

    def events_of(self, kind: str, turn: int | None = None) -> list[dict[str, Any]]:
        """Events of a kind, of one turn or all."""
        return [event for event in self.events if event["type"] == kind and turn in (None, event.get("turn"))]


class ReplayModel:
    """Answers with the recorded replies in order; afterwards with a text without a call. Costs nothing."""

    def __init__(self, recording: Recording) -> None:
        self._replies = [_as_reply(recording, message) for message in recording.messages if _is_reply(message)]
        self._next = 0

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """The next recorded reply; the conversation is not read."""
        self._next += 1
        if self._next > len(self._replies):
            return Reply(LAST_WORDS, model="replay")
        return self._replies[self._next - 1]


def load_replay(agent: Agent) -> ReplayModel:
    """The recorded replies of the run that ``transcript`` names; raises ConfigError or MissingDataError."""
    run = Path(agent.transcript or "")
    record = run / "run.json"
    if record.is_file() and json.loads(record.read_bytes()).get("provider") in ("command", "imported"):
        raise ConfigError(
            [f"transcript: {run} is of a program that ran its own tools; only runs of our loop can be replayed"]
        )
    return ReplayModel(read_recording(run / "log"))


def read_recording(log: Path) -> Recording:
    """The log of a run; a last line that a kill has torn is left out."""
    return Recording(tuple(_lines(log / "transcript.jsonl")), tuple(_lines(log / "events.jsonl")))


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MissingDataError(
            f"{path} cannot be read: {error.strerror}.\nName the folder of a run (with its log/)."
        ) from error
    found = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise ConfigError([f"{path}: line {number} is not JSON"]) from error
    return found


def _is_reply(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "assistant")


def _as_reply(recording: Recording, message: dict[str, Any]) -> Reply:
    """A recorded reply; how it ended (cut by its length or not) stands in the events."""
    told = recording.events_of("api_reply", message["turn"])
    calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in message["tool_calls"])
    default = "tool_calls" if calls else "stop"
    finish = str(told[-1].get("finish_reason") or default) if told else default
    return Reply(message["content"], calls, finish, opaque=message.get("opaque") or {}, model="replay")
