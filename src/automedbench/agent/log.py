"""The log of an attempt: append-only, outside the workspace, flushed after every line, and unbreakable by its content.

``events.jsonl`` holds one JSON object per event, ``transcript.jsonl`` every message unabridged, ``exec/`` the code
calls and their output. Text of an agent is escaped to plain ASCII JSON; values of keys are masked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from automedbench.agent.chat import ChatMessage, clean_text
from automedbench.errors import InfrastructureError
from automedbench.records import now

MASK = "[masked]"
SHORTEST_SECRET = 6


class Masker:
    """Replaces known secret values in text. The second line of defence: the first is that no key gets near."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({value for value in secrets if len(value) >= SHORTEST_SECRET}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return clean_text(text)

    def value(self, value: Any) -> Any:
        """A JSON-able value with every text in it masked."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self(str(key)): self.value(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(inner) for inner in value]
        return value


class RunLog:
    """Writer of one attempt's log; a context manager. Raises InfrastructureError when the disk is full."""

    def __init__(self, folder: Path, mask: Masker | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.exec_folder = folder / "exec"
        self.mask = mask or Masker()
        self._clock = clock
        self._started = clock()
        self._sequence = 0
        try:
            self.exec_folder.mkdir(parents=True, exist_ok=True)
            self._events = open(folder / "events.jsonl", "a", encoding="ascii")  # noqa: SIM115 - open for the run
            self._transcript = open(folder / "transcript.jsonl", "a", encoding="ascii")  # noqa: SIM115
        except OSError as error:
            raise _unwritable(folder, error) from error

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._events, self._transcript):
            try:
                stream.close()
            except OSError as failure:
                if error is None:
                    raise _unwritable(self.folder, failure) from failure

    def event(self, kind: str, turn: int | None = None, /, **fields: Any) -> None:
        """Append one event; ``t_s`` is seconds since the log was opened."""
        self._sequence += 1
        head = {
            "seq": self._sequence,
            "ts": now().isoformat(),
            "t_s": round(self._clock() - self._started, 3),
            "type": kind,
            "turn": turn,
        }
        self._write(self._events, head | fields)

    def message(self, turn: int, message: ChatMessage) -> None:
        """Append one message as sent or received, with everything the provider gave."""
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls]
        self._write(
            self._transcript,
            {
                "turn": turn,
                "role": message.role,
                "content": message.content,
                "tool_calls": calls,
                "tool_call_id": message.call_id,
                "opaque": dict(message.opaque),
            },
        )

    def _write(self, stream: Any, value: dict[str, Any]) -> None:
        try:
            stream.write(json.dumps(self.mask.value(value), sort_keys=True, default=str) + "\n")
            stream.flush()
        except OSError as error:
            raise _unwritable(self.folder, error) from error


def _unwritable(folder: Path, error: OSError) -> InfrastructureError:
    return InfrastructureError(
        f"Cannot write the log {folder}: {error.strerror or error}.\nFree space, then run the same command again."
    )
