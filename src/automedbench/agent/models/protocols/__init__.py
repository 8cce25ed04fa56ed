"""Wire formats of model endpoints: one module for each protocol, towards the endpoint.

Each module has the functions of ``Wire``; an agent's ``protocol`` names the one that its endpoint speaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote

from automedbench.agent.models.model import ChatMessage, Reply, ToolSpec
from automedbench.agent.models.protocols import chat, gemini, messages, responses
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.replies import is_stream, read_events, read_json
from automedbench.campaign.agents import Agent


class Wire(Protocol):
    """One protocol; the modules here have these functions."""

    def request(self, agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The JSON of a request for a whole answer; the agent's ``extra_body`` has the last word."""
        ...

    def assemble(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The whole answer that a stream's objects tell; raises FaultyReply for an error or an early end."""
        ...

    def reply(self, body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
        """What a whole answer says; raises FaultyReply. ``sent`` is there to estimate usage that is not told."""
        ...


WIRES: Mapping[ProtocolName, Wire] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}
_STREAMED: Mapping[ProtocolName, dict[str, Any]] = {
    "chat": {"stream": True, "stream_options": {"include_usage": True}},
    "responses": {"stream": True},
    "messages": {"stream": True},
    "gemini": {},
}
"""What asks for the same answer as a stream; for Gemini's models the path does."""


def path_of(agent: Agent) -> str:
    """Where a request is posted to, below the API's root (see ``api_root``)."""
    if agent.protocol == "gemini":
        name = agent.model if "/" in agent.model else f"models/{agent.model}"
        return f"/{quote(name)}:{'streamGenerateContent?alt=sse' if agent.stream else 'generateContent'}"
    return "/chat/completions" if agent.protocol == "chat" else f"/{agent.protocol}"


def as_asked(agent: Agent, body: dict[str, Any]) -> dict[str, Any]:
    """The request for an answer whole or as a stream, as the agent's entry says."""
    return body | _STREAMED[agent.protocol] if agent.stream else body


def read_reply(protocol: ProtocolName, data: bytes, sent: Sequence[ChatMessage]) -> Reply:
    """The reply in a body with status 200, whole or streamed, with that body; raises FaultyReply."""
    wire = WIRES[protocol]
    body = wire.assemble(read_events(data)) if is_stream(data) else read_json(data)
    return replace(wire.reply(body, sent), body=body)
