"""Gemini generateContent, towards an endpoint and towards a program.

The model's turns go back as the parts that came, thought signatures included; only ids and arguments that had to be
repaired differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.protocols import common, shapes
from automedbench.agent.protocols.common import ApiCall, Body, ProgramRequest, RequestRefused, as_text, list_objects
from automedbench.agent.protocols.shapes import Rule, fields, listed
from automedbench.base.endpoint.faults import NO_USAGE, Fault, FaultyReply, make_reply_fault, stream_fault
from automedbench.base.endpoint.replies import EventStream
from automedbench.base.endpoint.usage import gemini_usage, merge_usage, service_tier
from automedbench.base.files import parse_json_object
from automedbench.campaign.agents import Agent

# --- a request to an endpoint ---------------------------------------------------------------------------------


def make_request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Body:
    """See ``Protocol.make_request``."""
    settings: Body = {} if agent.max_tokens is None else {"maxOutputTokens": agent.max_tokens}
    if agent.temperature is not None:
        settings["temperature"] = agent.temperature
    if agent.reasoning.mode != "none":
        settings["thinkingConfig"] = {"includeThoughts": True, **_thinking(agent)}
    turns = common.write_calls_as_text(messages, native=agent.native_tools)
    body: Body = {"contents": _contents(turns, agent.echo_reasoning), "generationConfig": settings}
    if system := common.join_system(messages):
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if tools and agent.native_tools:
        body["tools"] = [
            {"functionDeclarations": [common.declare_tool(tool, "parametersJsonSchema") for tool in tools]}
        ]
    return common.merge_fields(body, agent.extra_body)


def _thinking(agent: Agent) -> Body:
    if agent.reasoning.mode == "budget":
        return {"thinkingBudget": agent.reasoning.budget_tokens}
    return {"thinkingLevel": agent.reasoning.effort} if agent.reasoning.mode == "effort" else {}


def _contents(messages: Sequence[ChatMessage], echo: bool) -> list[Body]:
    """Turns of alternating roles: the results of all calls of a turn stand in one, notices behind them."""
    turns: list[Body] = []
    calls: dict[str | None, ToolCall] = {}
    with_id: set[str | None] = set()
    for message in messages:
        if message.role == "assistant":
            parts = list(_model_parts(message, echo))
            calls |= {call.id: call for call in message.calls}
            with_id |= {part["functionCall"].get("id") for part in parts if "functionCall" in part}
            common.add_turn(turns, "model", "parts", parts)
        elif message.role == "tool":
            result = _result(message, calls.get(message.call_id), message.call_id in with_id)
            common.add_turn(turns, "user", "parts", [result])
        elif message.role == "user":
            common.add_turn(turns, "user", "parts", [{"text": message.content}])
    return turns


def _model_parts(message: ChatMessage, echo: bool) -> Iterator[Body]:
    return common.echo_parts(
        message,
        message.opaque.get("parts"),
        text={"text": message.content},
        is_call=lambda part: isinstance(part.get("functionCall"), dict),
        call_part=_call_part,
        # An empty text is refused, unless it is there for its signature.
        keep=lambda part: part != {"text": ""} and (echo or not part.get("thought")),
    )


def _call_part(call: ToolCall, part: Body) -> Body:
    """The part of a call as it came; what had to be repaired is ours."""
    came = part.get("functionCall", {"id": call.id})
    ours: Body = {"name": call.name}
    if "id" in came:
        ours["id"] = call.id
    if not isinstance(came.get("args", {}), dict) or call.arguments != _call(came).arguments:
        ours["args"] = common.parse_arguments(call)
    return part | {"functionCall": came | ours}


def _result(message: ChatMessage, call: ToolCall | None, with_id: bool) -> Body:
    value = parse_json_object(message.content)
    response = value if value is not None else {"error" if message.failed else "output": message.content}
    named = {"id": message.call_id} if with_id else {}
    return {"functionResponse": {**named, "name": call.name if call else "", "response": response}}


# --- an answer of an endpoint ---------------------------------------------------------------------------------

_FILTERED = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT"}
)


def assemble_stream(stream: EventStream) -> Body:
    """See ``Protocol.assemble_stream``."""
    body: Body = {}
    candidate: Body = {}
    parts: list[Body] = []
    usage = merge_usage(event.get("usageMetadata") for event in stream.events)
    for event in stream.events:
        if event.get("error"):
            raise stream_fault(event["error"], gemini_usage(usage), service_tier({"usageMetadata": usage}))
        body |= event
        for found in list_objects(event.get("candidates"))[:1]:
            candidate |= found
            for part in _parts(found):
                _append(parts, part)
    body |= {"usageMetadata": usage} if usage else {}
    if candidate.get("finishReason") is None and not _block_reason(body):
        raise stream_fault(None, gemini_usage(usage), service_tier(body))
    if candidate:
        body["candidates"] = [candidate | {"content": {"role": "model", "parts": parts}}]
    return body


def _append(parts: list[Body], part: Body) -> None:
    """Add a part of a stream; plain text joins plain text of the same kind, a part with a signature stays alone."""
    kind = {name: value for name, value in part.items() if name != "text"}
    if parts and "text" in part and "text" in parts[-1] and kind in ({}, {"thought": True}):
        last = parts[-1]
        if {name: value for name, value in last.items() if name != "text"} == kind:
            parts[-1] = part | {"text": as_text(last["text"]) + as_text(part["text"])}
            return
    parts.append(part)


def parse_reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Protocol.parse_reply``."""
    usage = gemini_usage(body.get("usageMetadata"))
    candidate = next(iter(list_objects(body.get("candidates"))), None)
    if candidate is None and (why := _block_reason(body)):
        raise FaultyReply(Fault("content_policy", 200, f"blockReason {why}"), usage or NO_USAGE, service_tier(body))
    if candidate is None or body.get("error"):
        raise make_reply_fault(body, usage)
    parts = _parts(candidate)
    calls = tuple(_call(part["functionCall"]) for part in parts if isinstance(part.get("functionCall"), dict))
    reason = candidate.get("finishReason")
    ended = "length" if reason == "MAX_TOKENS" else "content_filter" if reason in _FILTERED else None
    reply = Reply(
        content="".join(as_text(part.get("text")) for part in parts if not part.get("thought")),
        calls=calls,
        finish_reason=ended or ("tool_calls" if calls else "stop"),
        opaque={"parts": parts},
        reasoning="".join(as_text(part.get("text")) for part in parts if part.get("thought")),
        model=str(body.get("modelVersion") or ""),
    )
    return common.complete_reply(reply, body, usage, sent)


def _parts(candidate: Mapping[str, Any]) -> list[Body]:
    content = candidate.get("content")
    return list_objects(content.get("parts")) if isinstance(content, dict) else []


def _block_reason(body: Mapping[str, Any]) -> str:
    feedback = body.get("promptFeedback")
    return as_text(feedback.get("blockReason")) if isinstance(feedback, dict) else ""


def _call(value: Mapping[str, Any]) -> ToolCall:
    return common.tool_call(value.get("id"), value.get("name"), value.get("args"))


# --- a request of a program -----------------------------------------------------------------------------------

_CAMEL = re.compile(r"(?<!^)_([a-z])")


def _to_camel(value: Any) -> Any:
    """An object with its own names as the protocol writes them; it takes names with underscores as well."""
    if not isinstance(value, dict):
        return value
    return {_CAMEL.sub(lambda match: match[1].upper(), key): inner for key, inner in value.items()}


def _camel(names: str = "", /, **rules: Rule) -> Rule:
    shape = fields(names, **rules)
    return lambda value: shape(_to_camel(value))


def _union(refuse: Callable[[Any], NoReturn], names: str = "", /, **rules: Rule) -> Rule:
    """An object whose fields are its kinds: one that is not known is refused."""
    known, shape = {*names.split(), *rules}, fields(names, **rules)

    def select(value: Any) -> Any:
        value = _to_camel(value)
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                refuse({key: value[key]})
        return shape(value)

    return select


_DATA: Mapping[str, Rule] = {"inlineData": shapes.encoded(_camel("mimeType data displayName"), "mimeType")}
_RESULT = _camel(
    "id name willContinue scheduling", response=shapes.own, parts=listed(_union(shapes.refuse_part, **_DATA))
)
_PART = _union(
    shapes.refuse_part,
    "text thought thoughtSignature",
    **_DATA,
    functionCall=_camel("id", name=shapes.name, args=shapes.own),
    functionResponse=_RESULT,
    videoMetadata=_camel("startOffset endOffset fps"),
    mediaResolution=shapes.either(shapes.scalar, _camel("level numTokens")),
    partMetadata=shapes.own,
)
_CONTENT = _camel(
    role=shapes.among("user", "model", "function", "system"),
    parts=lambda value: listed(_PART)([value] if isinstance(value, dict) else value),
)
_FUNCTION = _camel(
    "description behavior",
    name=shapes.name,
    **dict.fromkeys(("parameters", "parametersJsonSchema", "response", "responseJsonSchema"), shapes.schema),
)
_CALLING = _camel("mode streamFunctionCallArguments", allowedFunctionNames=listed(shapes.name))
_CONFIG = _camel(
    "temperature topP topK maxOutputTokens responseMimeType seed presencePenalty frequencyPenalty responseLogprobs "
    "logprobs mediaResolution",
    candidateCount=shapes.among(1),
    stopSequences=listed(shapes.text),
    responseModalities=listed(shapes.among("TEXT")),
    thinkingConfig=_camel("includeThoughts thinkingLevel", thinkingBudget=shapes.whole),
    **dict.fromkeys(("responseSchema", "responseJsonSchema", "_responseJsonSchema"), shapes.schema),
)
_REQUEST = fields(
    contents=listed(_CONTENT),
    systemInstruction=_CONTENT,
    tools=listed(_union(shapes.refuse_tool, functionDeclarations=listed(_FUNCTION))),
    toolConfig=_camel(functionCallingConfig=_CALLING, retrievalConfig=shapes.hosted),
    safetySettings=listed(_camel("category threshold method")),
    generationConfig=_CONFIG,
    cachedContent=shapes.stored,
    mcpServers=shapes.hosted,
)


def parse_request(call: ApiCall, data: bytes) -> ProgramRequest:
    """See ``Protocol.parse_request``."""
    body = _to_camel(common.parse_body(data))
    if isinstance(body.get("generateContentRequest"), dict):  # countTokens may hold a whole request
        body = _to_camel(body["generateContentRequest"])
    common.require_objects(body.get("contents"), "contents")
    sent: Body = {"generationConfig": {}} | shapes.without_null(_REQUEST(body))
    return ProgramRequest(
        protocol="gemini",
        fields=sent,
        chat=tuple(_to_log(sent)),
        model=call.model,
        max_tokens=common.parse_length(sent["generationConfig"].get("maxOutputTokens")),
        stream=call.stream,
    )


def _to_log(fields: Mapping[str, Any]) -> Iterator[ChatMessage]:
    """Messages of the log: results of functions are messages of their own there, thoughts left out."""
    if "systemInstruction" in fields:
        yield ChatMessage("system", _text(fields["systemInstruction"].get("parts") or []))
    for content in fields["contents"]:
        parts = content.get("parts") or []
        results = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
        calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        for result in results:
            response = result.get("response")
            failed = True if isinstance(response, dict) and response.get("error") else None
            call_id = str(result.get("id") or result.get("name") or "")
            yield ChatMessage("tool", _output(response), call_id=call_id, failed=failed)
        text = _text(parts, "" if content.get("role") == "model" else "\n")
        if text or calls or not results:
            yield ChatMessage("assistant" if content.get("role") == "model" else "user", text, tuple(map(_call, calls)))


def _output(response: Any) -> str:
    """Output or error of a function as text; all of it as JSON where it has another form."""
    for name in ("output", "error"):
        if isinstance(response, dict) and isinstance(response.get(name), str):
            return str(response[name])
    return json.dumps(response)


def _text(parts: list[Body], between: str = "\n") -> str:
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought")]
    return between.join([*texts, *("[inlineData]" for part in parts if "inlineData" in part)])


def upstream_body(agent: Agent, request: ProgramRequest) -> Body:
    """See ``Protocol.upstream_body``."""
    settings = common.drop_fields(make_request(agent, (), ()), ("contents",))
    common.limit_reply(request, settings["generationConfig"], "maxOutputTokens")
    config = request.fields["generationConfig"] | settings["generationConfig"]
    return dict(request.fields) | settings | {"generationConfig": config}


# --- an answer to a program -----------------------------------------------------------------------------------

KEEP_ALIVE = b"\n"
"""An empty line: the SDKs take nothing else between events."""


def stream_answer(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """See ``Protocol.stream_answer``: a part in each chunk, the last one with end and usage."""
    candidates = whole.get("candidates") or []
    if not candidates:
        yield common.sse_event(dict(whole))
        return
    head = {name: value for name, value in whole.items() if name not in ("candidates", "usageMetadata")}
    content = candidates[0].get("content") or {}
    parts = content.get("parts") or []
    for part in parts[:-1]:
        chunk = {"index": 0, "content": dict(content) | {"parts": [part]}}
        yield common.sse_event(head | {"candidates": [chunk]})
    last = dict(candidates[0]) | ({"content": dict(content) | {"parts": parts[-1:]}} if content else {})
    yield common.sse_event(dict(whole) | {"candidates": [last]})


_STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def error_body(refused: RequestRefused) -> Body:
    """The error object of Google's APIs."""
    state = _STATES.get(refused.status, "INVALID_ARGUMENT" if refused.status < 500 else "INTERNAL")
    message = common.error_text(refused, "The input token count exceeds the maximum number of tokens allowed: ")
    return {"error": {"code": refused.status, "message": message, "status": state}}


def error_event(refused: RequestRefused) -> bytes:
    """The same in a stream that has begun."""
    return common.sse_event(error_body(refused))
