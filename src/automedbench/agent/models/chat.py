"""Chat models, what each takes and gives: messages, tools, replies, token usage, and the ways a request can fail.

The one that costs is an OpenAI-compatible endpoint: its conversation as a request, the answer as a reply.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, Self

from automedbench.base.endpoint.client import Attempt, Client, EndpointHealth, GivenUp, Target
from automedbench.base.endpoint.completion import NO_USAGE, Fault, FaultyReply, clean_text, read_completion
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ToolCall:
    """A call as the model wrote it; ``arguments`` is JSON text that may be broken."""

    id: str
    name: str
    arguments: str
    recovered: bool = False


@dataclass(frozen=True)
class ChatMessage:
    """One message; ``opaque`` holds the provider's reasoning fields, echoed back unchanged and shown nowhere."""

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
class Reply:
    """A model's reply. ``spent`` counts failed attempts too; ``usage`` is that of the reply alone."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Tokens = NO_USAGE
    spent: Tokens = NO_USAGE
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

    def __init__(self, message: str, spent: Tokens = NO_USAGE, retry_s: float = 0.0) -> None:
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
    """The endpoint is down, misconfigured or refuses the key; no agent is blamed. ``kind`` is the fault's class."""

    def __init__(self, message: str, spent: Tokens = NO_USAGE, retry_s: float = 0.0, kind: str = "") -> None:
        super().__init__(message, spent, retry_s)
        self.kind = kind


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


OPAQUE = ("reasoning_details", "reasoning_content", "reasoning")
"""Fields of an assistant message that providers want echoed back unchanged."""


def request_body(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON of one request; the agent's ``extra_body`` has the last word."""
    body: dict[str, Any] = {"model": agent.model}
    if agent.native_tools:
        body["messages"] = [native_message(message, agent.echo_reasoning) for message in messages]
        body["tools"] = [_tool(tool) for tool in tools]
        body["tool_choice"] = "auto"
    else:
        body["messages"] = _merged([_plain(message, agent.echo_reasoning) for message in messages])
    if "max_completion_tokens" not in agent.extra_body:
        body["max_tokens"] = agent.max_tokens
    if agent.temperature is not None:
        body["temperature"] = agent.temperature
    if agent.reasoning.mode == "field":
        body["reasoning"] = {"enabled": True}
    elif agent.reasoning.mode == "effort":
        body["reasoning_effort"] = agent.reasoning.effort
    return body | agent.extra_body


def parse_reply(data: bytes, sent: Sequence[ChatMessage]) -> Reply:
    """The reply in a body with status 200; raises FaultyReply. Unknown fields are ignored, missing usage estimated."""
    found = read_completion(data)
    content, calls = found.text, native_calls(found.message.get("tool_calls"))
    usage = found.usage
    if usage is None:
        answer = ChatMessage("assistant", content, calls)
        usage = Tokens(prompt=estimate_tokens(sent), completion=estimate_tokens([answer]), estimated=True)
    if found.finish_reason == "content_filter":
        raise FaultyReply(Fault("content_policy", 200, f"finish_reason content_filter; {content[:200]}"), usage)
    return Reply(
        content=content,
        calls=calls,
        finish_reason=found.finish_reason,
        usage=usage,
        opaque={name: found.message[name] for name in OPAQUE if found.message.get(name)},
        model=found.model,
        reported_cost=found.reported_cost,
    )


def native_calls(value: Any) -> tuple[ToolCall, ...]:
    """The ``tool_calls`` of a message; what is none is left out."""
    calls = []
    for item in value if isinstance(value, list) else []:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        # Some servers send the object itself instead of its text.
        text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
        calls.append(ToolCall(str(item.get("id") or ""), str(function.get("name") or ""), clean_text(text)))
    return tuple(calls)


def native_message(message: ChatMessage, echo: bool) -> dict[str, Any]:
    """A message in the protocol's words; ``echo`` keeps the provider's reasoning fields."""
    # Some servers refuse empty text; beside calls the protocol allows null.
    result: dict[str, Any] = {"role": message.role, "content": message.content or (None if message.calls else "")}
    if message.call_id is not None:
        result["tool_call_id"] = message.call_id
    if message.calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return result | (dict(message.opaque) if echo else {})


def _plain(message: ChatMessage, echo: bool) -> dict[str, Any]:
    """A message for a model without tools: its calls stand in its text, results come as user messages."""
    if message.role == "tool":
        return {"role": "user", "content": f"[RESULT] {message.content}"}
    return {"role": message.role, "content": message.content} | (dict(message.opaque) if echo else {})


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring user messages as one: many chat templates demand that roles alternate."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] == "user":
            merged[-1] = {"role": "user", "content": f"{merged[-1]['content']}\n\n{message['content']}"}
        else:
            merged.append(message)
    return merged


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


class OpenAIModel:
    """A chat model behind an OpenAI-compatible endpoint; a context manager that closes its connections."""

    def __init__(
        self,
        agent: Agent,
        keys: Sequence[str],
        *,
        on_attempt: Callable[[Attempt], None] = lambda _attempt: None,
        health: EndpointHealth | None = None,
        asker: str = "",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._agent = agent
        target = target_of(agent, keys)
        self._client = Client(
            replace(target, asker=asker or target.asker),
            on_attempt=on_attempt,
            health=health,
            sleep=sleep,
            clock=clock,
            jitter=jitter,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """See ``ChatModel.reply``; transient faults are repeated as the error policy says."""
        return self.complete(request_body(self._agent, messages, tools), messages, timeout_s)

    def complete(self, body: dict[str, Any], messages: Sequence[ChatMessage], timeout_s: float) -> Reply:
        """The reply to a whole request body; ``messages`` are what it says, to estimate tokens that are not told.

        Raises RequestFailed (see its kinds) when there is none.
        """
        try:
            found = self._client.ask(body, lambda data: parse_reply(data, messages), timeout_s)
        except GivenUp as failure:
            raise _as_failure(failure) from None
        reply = found.value
        return replace(reply, spent=found.spent + reply.usage, api_s=found.elapsed_s, retry_s=found.retry_s)


def target_of(agent: Agent, keys: Sequence[str]) -> Target:
    """Where the agent's requests go."""
    return Target(
        base_url=agent.address,
        model=agent.model,
        keys=tuple(keys),
        key_name=agent.api_key_env or agent.api_key_file or "",
        rotate=agent.api_key_rotation,
        gateway=agent.gateway_url,
        timeout_s=agent.request_timeout_s,
    )


def _as_failure(failure: GivenUp) -> RequestFailed:
    kind, spent, retry_s = failure.fault.kind, failure.spent, failure.retry_s
    if kind == "context_overflow":
        return ContextOverflow(failure.shown, spent, retry_s)
    if kind == "content_policy":
        return ProviderRefusal(failure.shown, spent, retry_s)
    if failure.run_over:
        return ReplyTimeout("the run's time was used up while waiting for the reply", spent, retry_s)
    return EndpointError(str(failure), spent, retry_s, kind)
