"""OpenAI chat completions, towards an endpoint and towards a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.protocols import common, shapes
from automedbench.agent.protocols.common import ApiCall, Body, ProgramRequest, RequestRefused, as_text, list_objects
from automedbench.agent.protocols.shapes import cache_control, data_url, either, fields, listed, part
from automedbench.base.endpoint.faults import stream_fault
from automedbench.base.endpoint.replies import EventStream, parse_completion
from automedbench.base.endpoint.usage import chat_usage, service_tier
from automedbench.campaign.agents import Agent

OPAQUE = ("reasoning_details", "reasoning_content", "reasoning")
"""Fields of an assistant message that providers want echoed back unchanged."""
_CALL_FIELDS = frozenset({"id", "type", "index", "function"})
MARKED = 2
"""Messages at the end whose text is marked for the cache, where the model is one that needs marks."""

# --- a request to an endpoint ---------------------------------------------------------------------------------


def make_request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Body:
    """See ``Protocol.make_request``."""
    body: Body = {"model": agent.model}
    if agent.native_tools:
        body["messages"] = [_message(message, agent.echo_reasoning) for message in messages]
        if tools:  # an empty list is refused
            body["tools"] = [{"type": "function", "function": common.declare_tool(tool)} for tool in tools]
            body["tool_choice"] = "auto"
    else:
        turns = common.write_calls_as_text(messages, native=False)
        body["messages"] = _join_user_messages([_message(message, agent.echo_reasoning) for message in turns])
    if agent.prompt_cache == "auto" and "claude" in agent.model.lower():
        _mark(body["messages"])
    if agent.max_tokens is not None and "max_completion_tokens" not in agent.extra_body:
        body["max_tokens"] = agent.max_tokens
    if agent.temperature is not None:
        body["temperature"] = agent.temperature
    if agent.reasoning.mode == "field":
        body["reasoning"] = {"enabled": True}
    elif agent.reasoning.mode == "effort":
        body["reasoning_effort"] = agent.reasoning.effort
    elif agent.reasoning.mode == "budget":
        body["reasoning"] = {"max_tokens": agent.reasoning.budget_tokens}
    return common.merge_fields(body, agent.extra_body)


def _message(message: ChatMessage, echo: bool) -> Body:
    """A message in the protocol's words; ``echo`` keeps the provider's reasoning fields."""
    # Some servers refuse empty text; beside calls the protocol allows null.
    result: Body = {"role": message.role, "content": message.content or (None if message.calls else "")}
    if message.call_id is not None:
        result["tool_call_id"] = message.call_id
    if message.calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            | dict(call.opaque)
            for call in message.calls
        ]
    return result | ({name: message.opaque[name] for name in OPAQUE if name in message.opaque} if echo else {})


def _join_user_messages(messages: list[Body]) -> list[Body]:
    """Neighbouring user messages as one: many chat templates demand that roles alternate."""
    joined: list[Body] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = {"role": "user", "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _mark(messages: list[Body]) -> None:
    """Mark the system prompt and the last messages: a text becomes a part that says where the cache may end."""
    others = [message for message in messages[1:] if message["role"] != "assistant"]
    for message in [*messages[:1], *others[-MARKED:]]:
        if message["content"]:
            part = {"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}
            message["content"] = [part]


# --- an answer of an endpoint ---------------------------------------------------------------------------------


def assemble_stream(stream: EventStream) -> Body:
    """See ``Protocol.assemble_stream``; a stream that ends in ``[DONE]`` is whole, also without a finish reason."""
    body: Body = {}
    message: Body = {}
    calls: list[Body] = []
    finish = None
    for event in stream.events:
        body |= {name: value for name, value in event.items() if value is not None}
        if event.get("error"):
            raise stream_fault(event["error"], chat_usage(body.get("usage")), service_tier(body))
        for choice in list_objects(event.get("choices"))[:1]:
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta")
            for name, value in delta.items() if isinstance(delta, dict) else ():
                if name == "tool_calls":
                    for part in list_objects(value):
                        _grow_call(calls, part)
                else:
                    _grow(message, name, value)
    if finish is None and not (stream.done and (message or calls)):
        raise stream_fault(None, chat_usage(body.get("usage")), service_tier(body))
    if calls:
        message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    finish = finish or ("tool_calls" if calls else "stop")
    return body | {"choices": [{"index": 0, "finish_reason": finish, "message": message}]}


def _grow_call(calls: list[Body], part: Body) -> None:
    """Add a piece of a call: to the one with its index, unless it has an id of its own. Some servers send no index."""
    index, name = part.get("index"), part.get("id")
    call = next((each for each in reversed(calls) if each.get("index") == index), None)
    if call is None or (name and call.get("id") and name != call["id"]):
        call = {"index": index}
        calls.append(call)
    for key, value in part.items():
        if key == "function" and isinstance(value, dict):
            function = call.setdefault("function", {})
            for inner, text in value.items():
                _grow(function, inner, text)
        elif value not in (None, ""):
            call[key] = value


_WHOLE = frozenset({"role", "name"})


def _grow(grown: Body, name: str, value: Any) -> None:
    """Add a piece: texts and lists are continued, objects merged; items of a list with the same index are one."""
    before = grown.get(name)
    if value is None or (name in _WHOLE and not value):
        return
    if isinstance(value, str) and isinstance(before, str) and name not in _WHOLE:
        grown[name] = before + value
    elif isinstance(value, dict) and isinstance(before, dict):
        for inner, text in value.items():
            _grow(before, inner, text)
    elif isinstance(value, list):
        grown[name] = _extend_items(list_objects(before), value)
    else:
        grown[name] = dict(value) if isinstance(value, dict) else value


def _extend_items(items: list[Body], more: list[Any]) -> list[Body]:
    """A list of a stream with more of it: text of an item with the same index is continued."""
    for item in list_objects(more):
        last = items[-1] if items else {}
        if item.get("index") is None or any(item.get(name) != last.get(name) for name in ("index", "type")):
            items.append(dict(item))
            continue
        for name, value in item.items():
            if name in ("text", "summary", "data"):
                _grow(last, name, value)
            elif value is not None:
                last[name] = value
    return items


def parse_reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Protocol.parse_reply``; the older ``function_call`` is read as a call."""
    found = parse_completion(body)
    message = found.message
    reply = Reply(
        content=found.text,
        calls=_calls(message.get("tool_calls")) or _calls([{"function": message.get("function_call")}]),
        finish_reason=found.finish_reason,
        opaque={name: message[name] for name in OPAQUE if message.get(name)},
        reasoning=_reasoning(message),
        model=found.model,
        reported_cost=found.reported_cost,
    )
    return common.complete_reply(reply, body, found.usage, sent)


def _calls(value: Any) -> tuple[ToolCall, ...]:
    """The ``tool_calls`` of a message; what is none, as one without name and arguments, is left out."""
    calls = []
    for item in list_objects(value):
        function = item.get("function")
        if isinstance(function, dict) and (function.get("name") or function.get("arguments")):
            opaque = {name: value for name, value in item.items() if name not in _CALL_FIELDS}
            arguments = function.get("arguments")
            calls.append(common.tool_call(item.get("id"), function.get("name"), arguments, opaque=opaque))
    return tuple(calls)


def _reasoning(message: Mapping[str, Any]) -> str:
    """The model's thoughts, where they are given as text."""
    text = as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))
    details = list_objects(message.get("reasoning_details"))
    return text or "".join(as_text(item.get("text")) or as_text(item.get("summary")) for item in details)


# --- a request of a program -----------------------------------------------------------------------------------

_PLACE = fields("url! detail", url=data_url)
_CONTENT = shapes.parts(
    text=part("text!", cache_control=cache_control),
    refusal=part("refusal!"),
    thinking=part("thinking! closed", thinking=listed(part("text!"))),
    image_url=part("image_url!", image_url=either(data_url, _PLACE), cache_control=cache_control),
    document_url=part("document_url! document_name", document_url=data_url),
    file=part("file!", file=fields("file_data! filename format", file_data=data_url), cache_control=cache_control),
    input_audio=part("input_audio!", input_audio=shapes.encoded(fields("data format"), "format", "audio/")),
)
_CALLED = fields(name=shapes.name, arguments=shapes.own)
_CALL = part(
    "id index",
    type=shapes.among("function", "custom"),
    function=_CALLED,
    custom=fields(name=shapes.name, input=shapes.own),
    extra_content=fields(google=fields("thought_signature")),
)
_MESSAGE = fields(
    "tool_call_id refusal reasoning reasoning_content",
    name=shapes.name,
    role=shapes.among(*common.ROLES),
    content=_CONTENT,
    tool_calls=listed(_CALL),
    function_call=_CALLED,
    reasoning_details=listed(part("text summary data signature format id index")),
)
_GRAMMAR = part(grammar=fields("syntax definition"))
_FUNCTION = fields("name description parameters strict", name=shapes.name, parameters=shapes.schema)
_CUSTOM = fields("name description format", name=shapes.name, format=_GRAMMAR)
_NAMED = fields(name=shapes.name)
_CHOSEN = {"function": part("function!", function=_NAMED), "custom": part("custom!", custom=_NAMED)}
_SOME = part(allowed_tools=fields("mode", tools=shapes.tools(**_CHOSEN)))
_FORMAT = fields("name description strict", schema=shapes.schema)
_REQUEST = fields(
    "parallel_tool_calls seed top_p presence_penalty frequency_penalty",
    messages=listed(_MESSAGE),
    tools=shapes.tools(
        "function",
        function=part("function!", function=_FUNCTION, cache_control=cache_control),
        custom=part("custom!", custom=_CUSTOM),
    ),
    tool_choice=either(shapes.among("auto", "none", "required", "any"), shapes.tools(**_CHOSEN, allowed_tools=_SOME)),
    response_format=part(type=shapes.among("text", "json_object", "json_schema"), json_schema=_FORMAT),
    stop=listed(shapes.text),
    n=shapes.among(1),
    max_completion_tokens=shapes.length,
    max_tokens=shapes.length,
    web_search_options=shapes.hosted,
    plugins=shapes.hosted,
)
_LENGTHS = frozenset({"max_completion_tokens", "max_tokens"})


def parse_request(call: ApiCall, data: bytes) -> ProgramRequest:
    """See ``Protocol.parse_request``."""
    body = common.parse_body(data)
    common.require_objects(body.get("messages"), "messages")
    sent = shapes.without_null(_REQUEST(body))
    options = body.get("stream_options")
    return ProgramRequest(
        protocol="chat",
        fields=sent,
        chat=tuple(map(_to_log, sent["messages"])),
        model=str(body.get("model") or ""),
        max_tokens=min((sent[name] for name in _LENGTHS & sent.keys()), default=None),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _to_log(message: Mapping[str, Any]) -> ChatMessage:
    call_id = message.get("tool_call_id")
    return ChatMessage(
        role=common.parse_role(message),
        content=common.render_text(message.get("content")),
        calls=_calls(message.get("tool_calls")),
        call_id=call_id if isinstance(call_id, str) else None,
    )


def upstream_body(agent: Agent, request: ProgramRequest) -> Body:
    """See ``Protocol.upstream_body``."""
    settings = common.drop_fields(make_request(agent, (), ()), ("messages", "tools", "tool_choice"))
    if "max_tokens" in settings:
        common.limit_reply(request, settings, "max_tokens")
    replaced = _LENGTHS if _LENGTHS & set(settings) else ()
    return common.drop_fields(request.fields, replaced) | settings


# --- an answer to a program -----------------------------------------------------------------------------------

KEEP_ALIVE = b": waiting\n\n"


def stream_answer(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """See ``Protocol.stream_answer``: role, text, calls, end, usage where it was asked for."""
    head = {name: whole.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    message = dict(choice["message"])
    calls = [call | {"index": index} for index, call in enumerate(message.pop("tool_calls", None) or [])]
    text, role = message.pop("content", None), message.pop("role", "assistant")
    deltas: list[Body] = [{"role": role, "content": ""}]
    deltas += [{name: value} for name, value in message.items() if value is not None]
    deltas += [{"content": text}] if text else []
    deltas += [{"tool_calls": [call]} for call in calls]
    for delta in deltas:
        yield common.sse_event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    end = {"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}
    yield common.sse_event(head | {"choices": [end]})
    if request.include_usage:
        yield common.sse_event(head | {"choices": [], "usage": whole.get("usage")})
    yield b"data: [DONE]\n\n"


def error_body(refused: RequestRefused) -> Body:
    """The error object of OpenAI's APIs."""
    return {"error": {"message": str(refused), "type": refused.kind, "param": None, "code": refused.code}}


def error_event(refused: RequestRefused) -> bytes:
    """The same in a stream that has begun."""
    return common.sse_event(error_body(refused))
