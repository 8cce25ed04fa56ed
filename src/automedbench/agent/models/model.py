"""Chat models, what each takes and gives: messages, tools, replies, token usage, and the ways a request can fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from automedbench.base.endpoint.faults import NO_USAGE
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import clean_text
from automedbench.base.records import Tokens

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ToolCall:
    """A call as the model wrote it; ``arguments`` is JSON text that may be broken."""

    id: str
    name: str
    arguments: str
    recovered: bool = False
    opaque: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the call that the provider wants echoed back unchanged."""


@dataclass(frozen=True)
class ChatMessage:
    """One message; ``opaque`` holds what the provider wants back unchanged, ``reasoning`` what a reader may see of it.

    ``failed`` is what the protocol itself says of a tool's result (``is_error`` and the like); None where it is silent.
    """

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    opaque: Mapping[str, Any] = field(default_factory=dict)
    failed: bool | None = None
    reasoning: str = ""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is offered to the model; ``parameters`` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """A model's reply. ``spent`` holds every billed request, failed attempts too; ``usage`` is of the reply alone."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Tokens = NO_USAGE
    spent: tuple[Billed, ...] = ()
    opaque: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    api_s: float = 0.0
    retry_s: float = 0.0
    reported_cost: float | None = None
    service_tier: str = ""
    """Service tier that the provider reports (batch, flex, priority, …): decides the price."""
    reasoning: str = ""
    """The model's thoughts as far as the provider shows them, as text."""
    asked_tokens: int | None = None
    """The most that the request asked for; None where it set no limit."""
    body: Mapping[str, Any] | None = None
    """The whole answer as it came, for a program that speaks the endpoint's protocol; None in our own loop."""


class ChatModel(Protocol):
    """A model that answers a conversation."""

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """The next assistant message.

        Raises ContextOverflow, ProviderRefusal, ReplyTimeout, RequestRejected or EndpointError, each with what it
        spent.
        """
        ...


class PreparedModel:
    """Answers each request with the next of its replies; costs nothing."""

    def __init__(self, replies: Iterator[Reply]) -> None:
        self._replies = replies

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """See ``ChatModel.reply``."""
        return next(self._replies)


class RequestFailed(Exception):
    """A request that gave no reply, with what it cost: billed requests, and seconds lost to provider errors."""

    def __init__(self, message: str, spent: tuple[Billed, ...] = (), retry_s: float = 0.0) -> None:
        self.spent = spent
        self.retry_s = retry_s
        super().__init__(message)


class ContextOverflow(RequestFailed):
    """The conversation does not fit the model's window."""


class ProviderRefusal(RequestFailed):
    """The provider's content policy refused the request twice."""


class ReplyTimeout(RequestFailed):
    """The time of the run was over before the model answered."""


class LimitReached(RequestFailed):
    """A request was not sent, because it may need more than a limit leaves."""


class CostLimit(LimitReached):
    """It may cost too much."""


class TokenLimit(LimitReached):
    """It may need too many tokens."""


class RequestRejected(RequestFailed):
    """The endpoint failed at this request and answered a plain one of the driver's: the request is at fault.

    ``status`` is what a client of the endpoint would see; 502 for a connection or a stream that was cut.
    """

    def __init__(self, message: str, spent: tuple[Billed, ...] = (), retry_s: float = 0.0, status: int = 502) -> None:
        super().__init__(message, spent, retry_s)
        self.status = status


class EndpointError(RequestFailed, InfrastructureError):
    """The endpoint is down, misconfigured or refuses the key; no agent is blamed."""


def distinct_calls(calls: Sequence[ToolCall], turn: int) -> tuple[ToolCall, ...]:
    """Calls with unique ids and clean text; a provider's empty or repeated id would make the transcript invalid."""
    seen: set[str] = set()
    result = []
    for index, call in enumerate(calls, start=1):
        name = call.id if call.id and call.id not in seen else f"call_{turn}_{index}"
        seen.add(name)
        result.append(replace(call, id=name, name=clean_text(call.name), arguments=clean_text(call.arguments)))
    return tuple(result)


def estimate_tokens(messages: Sequence[ChatMessage]) -> int:
    """Tokens of a conversation by length: characters / 4 (docs/specification.md, 8.5)."""
    characters = sum(
        len(message.content) + sum(len(call.name) + len(call.arguments) for call in message.calls)
        for message in messages
    )
    return characters // 4
