"""What every chat model takes and gives: messages, tools, replies, token usage, and the ways a request can fail."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from automedbench.errors import InfrastructureError

Role = Literal["system", "user", "assistant", "tool"]
_SURROGATES = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class ToolCall:
    """A call as the model wrote it; ``arguments`` is JSON text that may be broken."""

    id: str
    name: str
    arguments: str
    recovered: bool = False


@dataclass(frozen=True)
class ChatMessage:
    """One message; ``opaque`` holds the provider's reasoning fields, echoed back unchanged and shown to nobody."""

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    opaque: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is offered to the model; ``parameters`` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more requests; ``reasoning`` is part of ``completion``, ``cached`` of ``prompt``."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )

    @property
    def total(self) -> int:
        """Prompt plus completion."""
        return self.prompt + self.completion


@dataclass(frozen=True)
class Attempt:
    """One HTTP attempt of a request, for the log; ``wait_s`` is the pause before the next one."""

    kind: str
    status: int | None
    wait_s: float
    body: str
    elapsed_s: float


@dataclass(frozen=True)
class Reply:
    """A model's reply. ``spent`` counts failed attempts too; ``usage`` is that of the reply alone."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = Usage()
    spent: Usage = Usage()
    opaque: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    api_s: float = 0.0
    retry_s: float = 0.0
    reported_cost: float | None = None


class ChatModel(Protocol):
    """A model that answers a conversation."""

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """The next assistant message.

        Raises ContextOverflow, ProviderRefusal, ReplyTimeout or EndpointError, each with what it spent.
        """
        ...


class RequestFailed(Exception):
    """A request that gave no reply, with what it cost: tokens, and seconds lost to provider errors."""

    def __init__(self, message: str, spent: Usage = Usage(), retry_s: float = 0.0) -> None:
        self.spent = spent
        self.retry_s = retry_s
        super().__init__(message)


class ContextOverflow(RequestFailed):
    """The conversation does not fit the model's window."""


class ProviderRefusal(RequestFailed):
    """The provider's content policy refused the request twice."""


class ReplyTimeout(RequestFailed):
    """The time of the run was over before the model answered."""


class EndpointError(RequestFailed, InfrastructureError):
    """The endpoint is down, misconfigured or refuses the key; no agent is blamed."""


def clean_text(text: str) -> str:
    """``text`` without lone surrogates, which no UTF-8 file or request can hold."""
    return _SURROGATES.sub("\ufffd", text)


def estimate_tokens(messages: Sequence[ChatMessage]) -> int:
    """Tokens of a conversation by length: characters / 4 (harness specification, section 6)."""
    characters = sum(
        len(message.content) + sum(len(call.name) + len(call.arguments) for call in message.calls)
        for message in messages
    )
    return characters // 4
