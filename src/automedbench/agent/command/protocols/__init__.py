"""What programs speak to the bridge: one module for each protocol, and which path belongs to which."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from automedbench.agent.command.protocols import chat, gemini, messages, responses
from automedbench.agent.command.protocols.common import Call, ProgramRequest, Refused, counted
from automedbench.agent.models.model import Reply
from automedbench.base.endpoint.address import ProtocolName
from automedbench.campaign.agents import Agent


class Spoken(Protocol):
    """The surface of a protocol's module."""

    @property
    def KEEP_ALIVE(self) -> bytes:
        """What tells a client of a stream that its answer is still on its way, and no more."""

    def read(self, call: Call, data: bytes) -> ProgramRequest:
        """Check the body of a request; raises Refused."""

    def refuse_outside(self, fields: Mapping[str, Any]) -> None:
        """Raises Refused, with the rule of a finding, for what would make the provider go out."""

    def upstream(self, agent: Agent, request: ProgramRequest) -> dict[str, Any]:
        """The body that an endpoint of this protocol gets: what the agent's entry says has the last word."""

    def answer(self, request: ProgramRequest, reply: Reply) -> dict[str, Any]:
        """The whole answer as the program gets it, of a reply by an endpoint of this protocol."""

    def stream(self, request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
        """A whole answer as the events of a stream."""

    def error(self, refused: Refused) -> dict[str, Any]:
        """The error object."""

    def failed(self, refused: Refused) -> bytes:
        """The event of an error in a stream that has begun."""


SPOKEN: Mapping[ProtocolName, Spoken] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}

PATHS = (
    "/v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens, /v1/models, "
    "/v1beta/models/<model>:generateContent, :streamGenerateContent, :countTokens"
)
_POSTS: Mapping[str, Call] = {
    "/chat/completions": Call("chat"),
    "/responses": Call("responses"),
    "/messages": Call("messages"),
    "/messages/count_tokens": Call("messages", "count"),
}
_GEMINI = re.compile(r"/v1(?:beta|alpha)?/models/([^:?]{1,200}):(generateContent|streamGenerateContent|countTokens)")
_MODELS = re.compile(r"(?:/(v1|v1beta))?/models(?:/([^?]{1,200}))?")


def called(method: str, target: str) -> Call | None:
    """What a request line asks for; None where nothing is. Its query says no more than the form of Gemini's stream."""
    path, _, query = target.partition("?")
    if method == "POST":
        known = _POSTS.get(path.removeprefix("/v1"))
        found = _GEMINI.fullmatch(path)
        if known is not None or found is None:
            return known
        return _gemini(unquote(found[1]), found[2], "alt=sse" in query.split("&"))
    listed = _MODELS.fullmatch(path)
    if listed is None:
        return None
    protocol: ProtocolName = "gemini" if listed[1] == "v1beta" else "chat"
    return Call(protocol, "model" if listed[2] else "models", unquote(listed[2] or ""))


def _gemini(model: str, verb: str, sse: bool) -> Call:
    if verb == "streamGenerateContent":
        return Call("gemini", "reply", model, "sse" if sse else "array")
    return Call("gemini", "reply" if verb == "generateContent" else "count", model)


def models(call: Call, agent: Agent) -> dict[str, Any]:
    """The agent's model as the only one there is, or one by the name that was asked for; OpenAI's and Anthropic's
    programs find in the same answer what they look for.
    """
    name = call.model or agent.model
    if call.protocol == "gemini":
        model: dict[str, Any] = {
            "name": f"models/{name}",
            "displayName": name,
            "inputTokenLimit": agent.context_tokens,
            "outputTokenLimit": agent.max_tokens,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }
        return model if call.action == "model" else {"models": [model]}
    model = {"id": name, "object": "model", "created": 0, "owned_by": "agent"}
    model |= {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    if call.action == "model":
        return model
    return {"object": "list", "data": [model], "has_more": False, "first_id": name, "last_id": name}


def count(request: ProgramRequest) -> dict[str, Any]:
    """An estimate of the request's tokens in the words of its protocol."""
    return {"totalTokens" if request.protocol == "gemini" else "input_tokens": counted(request)}
