"""OpenAI Responses, towards an endpoint and towards a program.

Nothing is stored at the provider (``store: false``): the items of an answer go back as they came, reasoning with its
encrypted content included; only ids and arguments that had to be repaired differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.protocols import chat, common, shapes
from automedbench.agent.protocols.common import ApiCall, Body, ProgramRequest, RequestRefused, as_text, list_objects
from automedbench.agent.protocols.shapes import listed, part
from automedbench.base.endpoint.faults import make_reply_fault, stream_fault
from automedbench.base.endpoint.replies import EventStream
from automedbench.base.endpoint.usage import responses_usage
from automedbench.base.files import sha256_bytes
from automedbench.campaign.agents import Agent

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that are calls, and where their arguments stand; the input of a program's own tools may be plain text."""
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})

# --- a request to an endpoint ---------------------------------------------------------------------------------


def make_request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Body:
    """See ``Protocol.make_request``."""
    turns = common.write_calls_as_text(messages, native=agent.native_tools)
    body: Body = {
        "model": agent.model,
        "input": [item for message in turns for item in _items(message, agent.echo_reasoning)],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if agent.max_tokens is not None:
        body["max_output_tokens"] = agent.max_tokens
    if system := common.join_system(messages):
        body["instructions"] = system
    if tools and agent.native_tools:
        body["tools"] = [{"type": "function", **common.declare_tool(tool), "strict": False} for tool in tools]
    if agent.temperature is not None:
        body["temperature"] = agent.temperature
    if agent.reasoning.mode == "effort":
        body["reasoning"] = {"effort": agent.reasoning.effort, "summary": "auto"}
    elif agent.reasoning.mode == "field":
        body["reasoning"] = {"summary": "auto"}
    if agent.prompt_cache == "auto":
        # The provider finds its cache by this name: one for all requests that begin alike.
        start = "\n".join(message.content for message in messages[:2])
        body["prompt_cache_key"] = sha256_bytes(start.encode())[:32]
    return common.merge_fields(body, agent.extra_body)


def _items(message: ChatMessage, echo: bool) -> Iterator[Body]:
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.call_id, "output": message.content}
    elif message.role == "user":
        yield {"role": "user", "content": message.content}
    elif message.role == "assistant":
        items = list(
            common.echo_parts(
                message,
                message.opaque.get("items"),
                text={"role": "assistant", "content": message.content},
                is_call=lambda item: item.get("type") == "function_call",
                call_part=_function_call,
                keep=lambda item: echo or item.get("type") != "reasoning",
            )
        )
        # Reasoning alone is refused: what it was for must follow it.
        yield from items if any(item.get("type") != "reasoning" for item in items) else []


def _function_call(call: ToolCall, item: Body) -> Body:
    return {"type": "function_call", **item, "call_id": call.id, "name": call.name, "arguments": call.arguments}


# --- an answer of an endpoint ---------------------------------------------------------------------------------

_CUT = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def assemble_stream(stream: EventStream) -> Body:
    """See ``Protocol.assemble_stream``."""
    items: dict[Any, Any] = {}
    for event in stream.events:
        kind = event.get("type")
        if kind == "error" or (kind is None and event.get("error")):
            raise stream_fault(event.get("error") or event, None)
        if kind == "response.output_item.done":
            items[event.get("output_index")] = event.get("item")
        elif kind in _ENDS and isinstance(event.get("response"), dict):
            # Some servers send the items on their way only.
            body: Body = event["response"]
            return body if body.get("output") else body | {"output": list(items.values())}
    raise stream_fault(None, None)


def parse_reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Protocol.parse_reply``."""
    usage = responses_usage(body.get("usage"))
    items = common.require_content(body, "output", usage)
    if body.get("status") == "failed":
        raise make_reply_fault(body, usage)
    calls = tuple(_call(item) for item in items if item.get("type") in _CALLS)
    texts = [part for item in items if item.get("type") == "message" for part in list_objects(item.get("content"))]
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    reply = Reply(
        content="".join(as_text(part.get("text")) or as_text(part.get("refusal")) for part in texts),
        calls=calls,
        finish_reason=_CUT.get(str(reason), "tool_calls" if calls else "stop"),
        opaque={"items": items},
        reasoning="\n\n".join(filter(None, map(_thought, items))),
        model=str(body.get("model") or ""),
    )
    return common.complete_reply(reply, body, usage, sent)


def mark_cut(reply: Reply, limit: int | None) -> Reply:
    """The reply as a cut one where it used its whole limit: llama.cpp and transformers report ``completed`` then."""
    if reply.usage.estimated or reply.usage.completion != limit:
        return reply
    ended = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return replace(reply, finish_reason="length", body={**(reply.body or {}), **ended})


def _call(item: Mapping[str, Any]) -> ToolCall:
    return common.tool_call(item.get("call_id"), item.get("name"), item.get(_CALLS[item["type"]]))


def _thought(item: Mapping[str, Any]) -> str:
    if item.get("type") != "reasoning":
        return ""
    parts = [*list_objects(item.get("summary")), *list_objects(item.get("content"))]
    return "\n\n".join(filter(None, (as_text(part.get("text")) for part in parts)))


# --- a request of a program -----------------------------------------------------------------------------------

_TEXT = part("text refusal", annotations=shapes.empty, logprobs=shapes.empty)
_CONTENT = shapes.parts(
    **dict.fromkeys(("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"), _TEXT),
    input_image=part("image_url! detail", image_url=shapes.data_url),
    input_file=part("file_data! filename detail", file_data=shapes.data_url),
    input_audio=part("input_audio!", input_audio=shapes.encoded(shapes.fields("data format"), "format", "audio/")),
)
_CALL = "id call_id namespace status"
_OUTPUT = part("id call_id status", output=_CONTENT)
_ITEMS = {
    "message": part("id status phase", role=shapes.among(*common.ROLES), content=_CONTENT),
    "function_call": part(_CALL, name=shapes.name, arguments=shapes.own),
    "custom_tool_call": part(_CALL, name=shapes.name, input=shapes.own),
    "function_call_output": _OUTPUT,
    "custom_tool_call_output": _OUTPUT,
    "reasoning": part("id encrypted_content status", summary=_CONTENT, content=_CONTENT),
    "compaction": part("id encrypted_content"),
}
_OPAQUE = frozenset({"reasoning", "compaction"})
"""Items that only the provider reads; they say everything themselves where nothing is stored."""
_TOOLS = {
    "function": part("description strict defer_loading", name=shapes.name, parameters=shapes.schema),
    "custom": part("description defer_loading", name=shapes.name, format=part("syntax definition")),
}
_NAMESPACE = part("description", name=shapes.name, tools=shapes.tools(**_TOOLS))
_CHOSEN = dict.fromkeys(("function", "custom", "namespace"), part(name=shapes.name))
_SOME = part("mode", tools=shapes.tools(**_CHOSEN))
_FORMATS = shapes.among("text", "json_object", "json_schema")
_INCLUDED = ("reasoning.encrypted_content", "message.output_text.logprobs")
_REQUEST = shapes.fields(
    "parallel_tool_calls truncation top_p prompt_cache_key",
    input=listed(shapes.kinds(_ITEMS, default="message")),
    instructions=shapes.text,
    tools=shapes.tools(**_TOOLS, namespace=_NAMESPACE),
    tool_choice=shapes.either(shapes.among("auto", "none", "required"), shapes.tools(**_CHOSEN, allowed_tools=_SOME)),
    text=shapes.fields("verbosity", format=part("name description strict", type=_FORMATS, schema=shapes.schema)),
    reasoning=shapes.fields("effort summary generate_summary context"),
    include=lambda names: [name for name in names if name in _INCLUDED] if isinstance(names, list) else shapes.LEFT_OUT,
    previous_response_id=shapes.stored,
    conversation=shapes.stored,
    prompt=shapes.stored,
    background=shapes.hosted,
)


def parse_request(call: ApiCall, data: bytes) -> ProgramRequest:
    """See ``Protocol.parse_request``."""
    body = common.parse_body(data)
    if isinstance(body.get("input"), str):
        body["input"] = [{"type": "message", "role": "user", "content": body["input"]}]
    common.require_objects(body.get("input"), "input")
    sent = shapes.without_null(_REQUEST(body))
    items = sent["input"]
    # Without its encrypted content a piece of reasoning is only a name of something that is kept at the provider.
    kept = [item for item in items if item.get("type") not in _OPAQUE or item.get("encrypted_content")]
    system = [ChatMessage("system", sent["instructions"])] if "instructions" in sent else []
    return ProgramRequest(
        protocol="responses",
        fields=sent | {"input": kept},
        chat=(*system, *_to_log(items)),
        model=str(body.get("model") or ""),
        max_tokens=common.parse_length(body.get("max_output_tokens")),
        stream=body.get("stream") is True,
    )


def _to_log(items: list[Body]) -> list[ChatMessage]:
    """Messages of the log: the parts of one reply stand together there, reasoning left out."""
    found: list[ChatMessage] = []
    texts: list[str] = []
    calls: list[ToolCall] = []

    def close() -> None:
        if texts or calls:
            found.append(ChatMessage("assistant", "".join(texts), tuple(calls)))
            texts.clear()
            calls.clear()

    for item in items:
        kind = item.get("type", "message")
        if kind in _CALLS:
            calls.append(_call(item))
        elif kind == "message" and common.parse_role(item) == "assistant":
            if calls:
                close()
            texts.append(common.render_text(item.get("content"), ""))
        elif kind == "message" or kind in _RESULTS:
            close()
            found.append(_item_to_log(item))
    close()
    return found


def _item_to_log(item: Mapping[str, Any]) -> ChatMessage:
    if item.get("type") in _RESULTS:
        failed = True if item.get("status") in ("incomplete", "failed") else None
        output, call_id = common.render_text(item.get("output")), str(item.get("call_id") or "")
        return ChatMessage("tool", output, call_id=call_id, failed=failed)
    return ChatMessage(common.parse_role(item), common.render_text(item.get("content")))


def upstream_body(agent: Agent, request: ProgramRequest) -> Body:
    """See ``Protocol.upstream_body``."""
    settings = common.drop_fields(make_request(agent, (), ()), ("input", "include", "prompt_cache_key"))
    common.limit_reply(request, settings, "max_output_tokens")
    return dict(request.fields) | settings


# --- an answer to a program -----------------------------------------------------------------------------------

KEEP_ALIVE = b": waiting\n\n"
_Event = tuple[str, Body]


def stream_answer(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """See ``Protocol.stream_answer``; events are numbered from 0."""
    for number, (name, fields) in enumerate(_events(whole)):
        yield common.sse_event({"type": name, "sequence_number": number} | fields, name)


def _events(whole: Mapping[str, Any]) -> Iterator[_Event]:
    status = whole.get("status") or "completed"
    begun = dict(whole) | {"status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(whole.get("output") or []):
        place = {"item_id": item.get("id", ""), "output_index": index}
        yield "response.output_item.added", {"output_index": index, "item": _empty_item(item)}
        for name, fields in _item_events(item):
            yield name, place | fields
        yield "response.output_item.done", {"output_index": index, "item": item}
    end = status if status in ("completed", "incomplete", "failed") else "completed"
    yield f"response.{end}", {"response": dict(whole)}


def _empty_item(item: Mapping[str, Any]) -> Body:
    """An item as it begins."""
    empty: Body = {"content": [], "summary": [], "arguments": "", "input": ""}
    begun = {name: empty.get(name, value) if value is not None else None for name, value in item.items()}
    begun.pop("encrypted_content", None)
    return begun | ({"status": "in_progress"} if "status" in item else {})


def _item_events(item: Mapping[str, Any]) -> Iterator[_Event]:
    """Events between an item's begin and its end."""
    kind = item.get("type")
    if kind == "message":
        for index, part in enumerate(item.get("content") or []):
            yield from _part_events(part, {"content_index": index}, "content_part", part.get("type", "output_text"))
    elif kind == "reasoning":
        for index, part in enumerate(item.get("summary") or []):
            yield from _part_events(part, {"summary_index": index}, "reasoning_summary_part", "reasoning_summary_text")
        for index, part in enumerate(item.get("content") or []):
            yield from _part_events(part, {"content_index": index}, "content_part", "reasoning_text")
    elif kind in _CALLS:
        name = "function_call_arguments" if kind == "function_call" else "custom_tool_call_input"
        text = item.get(_CALLS[kind], "")
        yield f"response.{name}.delta", {"delta": text}
        yield f"response.{name}.done", {_CALLS[kind]: text, "name": item.get("name", "")}


def _part_events(part: Mapping[str, Any], place: Body, part_name: str, text_name: str) -> Iterator[_Event]:
    key = "refusal" if part.get("type") == "refusal" else "text"
    text = part.get(key, "")
    more: Body = {"logprobs": []} if text_name == "output_text" else {}
    yield f"response.{part_name}.added", place | {"part": dict(part) | {key: ""}}
    yield f"response.{text_name}.delta", place | {"delta": text} | more
    yield f"response.{text_name}.done", place | {key: text} | more
    yield f"response.{part_name}.done", place | {"part": dict(part)}


def error_event(refused: RequestRefused) -> bytes:
    """A refusal in a stream that has begun."""
    error = {"code": refused.code or refused.kind, "message": str(refused)}
    response = {"id": "resp_failed", "object": "response", "status": "failed", "error": error, "output": []}
    event = {"type": "response.failed", "sequence_number": 0, "response": response}
    return common.sse_event(event, "response.failed")


error_body = chat.error_body
