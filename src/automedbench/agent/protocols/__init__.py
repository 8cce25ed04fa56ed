"""Protocols of model APIs: one module each, towards endpoints (our own loop) and towards programs (the bridge)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from typing import Protocol as Structural
from urllib.parse import quote, unquote

from automedbench.agent.models.model import ChatMessage, Reply, ToolSpec
from automedbench.agent.protocols import chat, gemini, messages, responses
from automedbench.agent.protocols.common import ApiCall, Body, ProgramRequest, RequestRefused
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.replies import EventStream, is_stream, read_events, read_json
from automedbench.campaign.agents import Agent


class Protocol(Structural):
    """The functions of a protocol's module: first those towards an endpoint, then those towards a program."""

    KEEP_ALIVE: bytes
    """By which a client of a stream sees that its connection lives, and no more."""

    def make_request(self, agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Body:
        """The JSON of a request for a whole answer; the agent's ``extra_body`` has the last word."""

    def assemble_stream(self, stream: EventStream) -> Body:
        """The whole answer of which the events of a stream are parts; raises FaultyReply for an error or a cut."""

    def parse_reply(self, body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
        """The reply in a whole answer; raises FaultyReply. ``sent`` is there to estimate usage that is not reported."""

    def parse_request(self, call: ApiCall, data: bytes) -> ProgramRequest:
        """Check a request. Raises RequestRefused, with the rule of a finding where it would make the provider go out:
        tools that it runs, content behind an address or a stored name.
        """

    def upstream_body(self, agent: Agent, request: ProgramRequest) -> Body:
        """The body for the endpoint of a program's request: what the agent's entry says has the last word."""

    def stream_answer(self, request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
        """A whole answer as the events of a stream."""

    def error_body(self, refused: RequestRefused) -> Body:
        """The error object."""

    def error_event(self, refused: RequestRefused) -> bytes:
        """The event of an error in a stream that has begun."""


PROTOCOLS: Mapping[ProtocolName, Protocol] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}

# --- towards an endpoint --------------------------------------------------------------------------------------

_STREAMED: Mapping[ProtocolName, Body] = {
    "chat": {"stream": True, "stream_options": {"include_usage": True}},
    "responses": {"stream": True},
    "messages": {"stream": True},
    "gemini": {},
}
"""Fields that ask for the same answer as a stream; for Gemini's models the path does."""


def endpoint_path(agent: Agent) -> str:
    """The path that requests are posted to, below the API's root (see ``api_root``)."""
    if agent.protocol == "gemini":
        name = agent.model if "/" in agent.model else f"models/{agent.model}"
        return f"/{quote(name)}:{'streamGenerateContent?alt=sse' if agent.stream else 'generateContent'}"
    return "/chat/completions" if agent.protocol == "chat" else f"/{agent.protocol}"


def whole_or_stream(agent: Agent, body: Body) -> Body:
    """The request for an answer whole or as a stream, as the agent's entry says."""
    return body | _STREAMED[agent.protocol] if agent.stream else body


def read_reply(protocol: ProtocolName, data: bytes, sent: Sequence[ChatMessage]) -> Reply:
    """The reply in a body with status 200, whole or streamed, with that body; raises FaultyReply."""
    module = PROTOCOLS[protocol]
    body = module.assemble_stream(read_events(data)) if is_stream(data) else read_json(data)
    return replace(module.parse_reply(body, sent), body=body)


# --- towards a program ----------------------------------------------------------------------------------------

PATHS = (
    "/v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens, /v1/models, "
    "/v1beta/models/<model>:generateContent, :streamGenerateContent?alt=sse, :countTokens"
)
_POSTS: Mapping[str, ApiCall] = {
    "/chat/completions": ApiCall("chat"),
    "/responses": ApiCall("responses"),
    "/messages": ApiCall("messages"),
    "/messages/count_tokens": ApiCall("messages", "count"),
}
_GEMINI = re.compile(r"/v1(?:beta|alpha)?/models/([^:?]{1,200}):(generateContent|streamGenerateContent|countTokens)")
_MODELS = re.compile(r"(?:/(v1|v1beta))?/models(?:/([^?]{1,200}))?")


def find_call(method: str, target: str) -> ApiCall | None:
    """The API call that a request line names; None where there is none. Of the query only Gemini's ``alt`` counts."""
    path, _, query = target.partition("?")
    if method == "POST":
        if (gemini := _GEMINI.fullmatch(path)) is None:
            return _POSTS.get(path.removeprefix("/v1"))
        stream = gemini[2] == "streamGenerateContent"
        if stream and "alt=sse" not in query.split("&"):
            return None
        return ApiCall("gemini", "count" if gemini[2] == "countTokens" else "reply", unquote(gemini[1]), stream)
    listed = _MODELS.fullmatch(path)
    if listed is None:
        return None
    protocol: ProtocolName = "gemini" if listed[1] == "v1beta" else "chat"
    return ApiCall(protocol, "model" if listed[2] else "models", unquote(listed[2] or ""))


def whole_answer(request: ProgramRequest, reply: Reply) -> Body:
    """The endpoint's answer for the program: as it came, under the model's name that the program used."""
    body = dict(reply.body or {})
    if request.protocol == "gemini":
        return body | {"modelVersion": request.model}
    return body | {"model": request.model or body.get("model", "")}


def list_models(call: ApiCall, agent: Agent) -> Body:
    """The agent's model as the only one there is, or one by the name that was asked for; OpenAI's and Anthropic's
    programs find in the same answer what they look for.
    """
    name = call.model or agent.model
    if call.protocol == "gemini":
        model: Body = {
            "name": f"models/{name}",
            "displayName": name,
            "inputTokenLimit": agent.context_tokens,
            "outputTokenLimit": agent.max_tokens or agent.context_tokens,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }
        return model if call.action == "model" else {"models": [model]}
    model = {"id": name, "object": "model", "created": 0, "owned_by": "agent"}
    model |= {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    if call.action == "model":
        return model
    return {"object": "list", "data": [model], "has_more": False, "first_id": name, "last_id": name}


def count_tokens(request: ProgramRequest) -> Body:
    """An estimate of the request's tokens by its length (docs/specification.md, 8.5): no endpoint is asked."""
    tokens = len(json.dumps(request.fields, ensure_ascii=False)) // 4
    return {"totalTokens" if request.protocol == "gemini" else "input_tokens": tokens}
