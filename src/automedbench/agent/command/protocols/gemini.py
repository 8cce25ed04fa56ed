"""Gemini generateContent, as a program speaks it to the bridge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from automedbench.agent.command.protocols import common
from automedbench.agent.command.protocols.common import Call, ProgramRequest, Refused
from automedbench.agent.models.model import ChatMessage, Reply, ToolCall
from automedbench.campaign.agents import Agent

KEEP_ALIVE = b"\n"
"""An empty line: the SDKs take nothing else between events, and it may stand before a JSON array as well."""

_PASSED = ("contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig")
_REFUSED = {"cachedContent": "net.remote_content", "mcpServers": "net.provider_tool"}
_OF_PART = frozenset(
    {
        *("text", "thought", "thoughtSignature", "inlineData", "functionCall", "functionResponse"),
        *("videoMetadata", "mediaResolution", "partMetadata"),
    }
)
_CAMEL = re.compile(r"_([a-z])")


def read(call: Call, data: bytes) -> ProgramRequest:
    """Check the body of a request; raises Refused."""
    body = _camel(common.parse_body(data))
    if isinstance(body.get("generateContentRequest"), dict):  # countTokens may hold a whole request
        body = _camel(body["generateContentRequest"])
    contents = [_content(content) for content in common.list_of(body.get("contents"), "contents")]
    common.refuse_fields(body, _REFUSED)
    fields = common.passed_on(body, _PASSED) | {"contents": contents}
    config = fields["generationConfig"] = _camel(_object(body.get("generationConfig"), "generationConfig"))
    if config.get("candidateCount") not in (None, 1):
        raise common.invalid("'candidateCount' must be 1")
    if "systemInstruction" in fields:
        fields["systemInstruction"] = _content(_object(fields["systemInstruction"], "systemInstruction"))
    return ProgramRequest(
        protocol="gemini",
        fields=fields,
        chat=tuple(_as_chat(fields)),
        model=call.model,
        max_tokens=common.length_of(config.get("maxOutputTokens")),
        stream=bool(call.stream),
        form=call.stream,
    )


def refuse_outside(fields: Mapping[str, Any]) -> None:
    """Raises Refused for tools that the provider runs, and content behind an address or a name."""
    tools = fields.get("tools", [])
    for tool in tools if isinstance(tools, list) else [tools]:
        if not isinstance(tool, dict) or set(_camel(tool)) - {"functionDeclarations"}:
            common.refuse_tool(tool)
    if isinstance(fields.get("toolConfig"), dict) and _camel(fields["toolConfig"]).get("retrievalConfig"):
        common.refuse_tool({"name": "retrievalConfig"})
    for content in (fields.get("systemInstruction", {}), *fields["contents"]):
        _refuse_parts(content.get("parts"))


def _refuse_parts(parts: Any) -> None:
    for part in parts or []:
        if not isinstance(part, dict) or set(part) - _OF_PART:
            if isinstance(part, dict) and set(part) & {"executableCode", "codeExecutionResult", "toolCall"}:
                common.refuse_tool({"name": "codeExecution"})
            common.refuse_part(part)
        data, response = part.get("inlineData"), part.get("functionResponse")
        if data is not None and (not isinstance(data, dict) or set(_camel(data)) - {"mimeType", "data", "displayName"}):
            common.refuse_part(part)
        inner = response.get("parts") if isinstance(response, dict) else None
        # The protocol takes one object where a list belongs.
        inner = inner if isinstance(inner, list) else [inner] if inner else []
        _refuse_parts([_camel(each) if isinstance(each, dict) else each for each in inner])


def upstream(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """See ``Spoken.upstream``."""
    settings = common.settings_of(agent, ("contents",))
    config = request.fields["generationConfig"] | settings["generationConfig"]
    config["maxOutputTokens"] = min(request.max_tokens or agent.max_tokens, config["maxOutputTokens"])
    return dict(request.fields) | settings | {"generationConfig": config}


def answer(request: ProgramRequest, reply: Reply) -> dict[str, Any]:
    """The endpoint's answer as the program gets it: as it came, under the model's name that the program used."""
    return dict(reply.body or {}) | {"modelVersion": request.model}


def stream(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """The same reply in chunks: a part each, the last one with end and usage; one JSON array where no SSE is asked."""
    chunks = list(_chunks(whole))
    if request.form == "array":
        yield b"[" + b",\r\n".join(json.dumps(chunk).encode() for chunk in chunks) + b"]"
        return
    for chunk in chunks:
        yield common.event(chunk)


def _chunks(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    candidates = whole.get("candidates") or []
    if not candidates:
        yield dict(whole)
        return
    head = {name: value for name, value in whole.items() if name not in ("candidates", "usageMetadata")}
    content = candidates[0].get("content") or {}
    parts = content.get("parts") or []
    for part in parts[:-1]:
        yield head | {"candidates": [{"index": 0, "content": dict(content) | {"parts": [part]}}]}
    last = dict(candidates[0]) | ({"content": dict(content) | {"parts": parts[-1:]}} if content else {})
    yield dict(whole) | {"candidates": [last]}


_STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def error(refused: Refused) -> dict[str, Any]:
    """The error object of Google's APIs; a conversation that is too long is known by its words."""
    state = _STATES.get(refused.status, "INVALID_ARGUMENT" if refused.status < 500 else "INTERNAL")
    too_long = "The input token count exceeds the maximum number of tokens allowed: "
    words = f"{too_long if refused.code == 'context_length_exceeded' else ''}{refused}"
    return {"error": {"code": refused.status, "message": words, "status": state}}


def failed(refused: Refused) -> bytes:
    """The same in a stream that has begun."""
    return common.event(error(refused))


def _camel(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object with its own names as the protocol writes them; it takes names with underscores as well."""
    return {_CAMEL.sub(lambda match: match[1].upper(), name): inner for name, inner in value.items()}


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, (dict, type(None))):
        raise common.invalid(f"'{name}' must be an object")
    return value or {}


def _content(content: dict[str, Any]) -> dict[str, Any]:
    """A content with the parts' names as the protocol writes them."""
    parts = content.get("parts")
    if isinstance(parts, dict):
        parts = [parts]
    if content.get("role") not in [None, "user", "model", "function", "system"]:
        raise common.invalid("each content needs a 'role' out of user, model")
    return content | {"parts": [_camel(part) for part in common.list_of(parts, "parts")] if parts else []}


def _as_chat(fields: Mapping[str, Any]) -> Iterator[ChatMessage]:
    """Messages of the log: results of functions are messages of their own there, thoughts left out."""
    if "systemInstruction" in fields:
        yield ChatMessage("system", _text(fields["systemInstruction"]["parts"]))
    for content in fields["contents"]:
        parts = content["parts"]
        answers = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
        calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        for told in answers:
            response = told.get("response")
            failed = True if isinstance(response, dict) and response.get("error") else None
            call_id = str(told.get("id") or told.get("name") or "")
            yield ChatMessage("tool", _said(response), call_id=call_id, failed=failed)
        text = _text(parts, "" if content.get("role") == "model" else "\n")
        if text or calls or not answers:
            yield ChatMessage("assistant" if content.get("role") == "model" else "user", text, tuple(map(_call, calls)))


def _call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        str(call.get("id") or ""), str(call.get("name") or ""), json.dumps(call.get("args") or {}, ensure_ascii=False)
    )


def _said(response: Any) -> str:
    """Output or error of a function as text; all of it as JSON where it has another form."""
    for name in ("output", "error"):
        if isinstance(response, dict) and isinstance(response.get(name), str):
            return str(response[name])
    return json.dumps(response)


def _text(parts: list[dict[str, Any]], between: str = "\n") -> str:
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought")]
    return between.join([*texts, *("[inlineData]" for part in parts if "inlineData" in part)])
