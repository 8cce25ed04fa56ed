"""OpenAI Responses, as a program speaks them to the bridge: without memory at the provider (``store: false``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from automedbench.agent.command.protocols import chat, common
from automedbench.agent.command.protocols.common import Call, ProgramRequest, Refused
from automedbench.agent.models.model import ChatMessage, Role, ToolCall
from automedbench.campaign.agents import Agent

KEEP_ALIVE = b": waiting\n\n"

_PASSED = (
    *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "include"),
    *("truncation", "top_p", "prompt_cache_key"),
)
_REFUSED = {
    **dict.fromkeys(("previous_response_id", "conversation", "prompt"), "net.remote_content"),
    "background": "net.provider_tool",
}
_INCLUDED = ("reasoning.encrypted_content", "message.output_text.logprobs")
_OWN_TOOLS = frozenset({"function", "custom", "namespace"})
_TEXTS = frozenset({"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text", "input_audio"})
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
_OPAQUE = frozenset({"reasoning", "compaction"})
"""Items that only the provider reads; they say everything themselves where nothing is stored."""
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


def read(call: Call, data: bytes) -> ProgramRequest:
    """Check the body of a request; raises Refused."""
    body = common.parse_body(data)
    items = body.get("input")
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    items = [_checked(item) for item in common.list_of(items, "input")]
    common.refuse_fields(body, _REFUSED)
    # Without its encrypted content a piece of reasoning is only a name of something that is kept at the provider.
    kept = [item for item in items if item.get("type") not in _OPAQUE or item.get("encrypted_content")]
    fields = common.passed_on(body, _PASSED) | {"input": kept}
    if "include" in fields:
        asked = common.parts_of(fields["include"], "include")
        fields["include"] = [name for name in _INCLUDED if name in asked]
    chat = _as_chat(items)
    if not isinstance(body.get("instructions"), (str, type(None))):
        raise common.invalid("'instructions' must be text")
    if body.get("instructions") is not None:
        chat.insert(0, ChatMessage("system", body["instructions"]))
    return ProgramRequest(
        protocol="responses",
        fields=fields,
        chat=tuple(chat),
        model=str(body.get("model") or ""),
        max_tokens=common.length_of(body.get("max_output_tokens")),
        stream=body.get("stream") is True,
    )


def refuse_outside(fields: Mapping[str, Any]) -> None:
    """Raises Refused for tools that the provider runs, and content behind an address or a name."""
    tools, choice = fields.get("tools", []), fields.get("tool_choice", "auto")
    _refuse_tools(tools if isinstance(tools, list) else [tools])
    if not isinstance(choice, str) and common.kind_of(choice) not in (*_OWN_TOOLS, "allowed_tools"):
        common.refuse_tool(choice)
    for item in fields["input"]:
        kind = item.get("type", "message")
        if kind == "message":
            _refuse_parts(item.get("content"))
        elif kind in _RESULTS:
            _refuse_parts(item.get("output"))
        elif kind == "item_reference":
            common.refuse_part(item)
        elif kind not in _CALLS and kind not in _OPAQUE:
            common.refuse_tool(item)


def _refuse_tools(tools: list[Any]) -> None:
    for tool in tools:
        if common.type_of(tool) not in _OWN_TOOLS or not tool.get("name"):
            common.refuse_tool(tool)
        if tool["type"] == "namespace":
            _refuse_tools(common.list_of(tool.get("tools"), "tools"))


def _refuse_parts(content: Any) -> None:
    for part in common.parts_of(content):
        kind = common.type_of(part)
        if isinstance(part, str) or (kind in _TEXTS and not {"image_url", "file_url", "file_id"} & set(part)):
            continue
        place = {"input_image": "image_url", "input_file": "file_data"}.get(kind)
        if place is None or part.get("file_id") or part.get("file_url"):
            common.refuse_part(part)
        if not common.is_data(part.get(place)):  # some endpoints fetch an address in file_data as well
            common.refuse_part(part)


def upstream(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """See ``Spoken.upstream``."""
    settings = common.settings_of(agent, ("input", "include", "prompt_cache_key"))
    settings["max_output_tokens"] = min(request.max_tokens or agent.max_tokens, settings["max_output_tokens"])
    return dict(request.fields) | settings


def stream(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """The same reply as server-sent events, numbered from 0."""
    for number, (name, fields) in enumerate(_events(whole)):
        yield common.event({"type": name, "sequence_number": number} | fields, name)


_Event = tuple[str, dict[str, Any]]


def _events(whole: Mapping[str, Any]) -> Iterator[_Event]:
    status = whole.get("status") or "completed"
    begun = dict(whole) | {"status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(whole.get("output") or []):
        place = {"item_id": item.get("id", ""), "output_index": index}
        yield "response.output_item.added", {"output_index": index, "item": _emptied(item)}
        for name, fields in _of_item(item):
            yield name, place | fields
        yield "response.output_item.done", {"output_index": index, "item": item}
    end = status if status in ("completed", "incomplete", "failed") else "completed"
    yield f"response.{end}", {"response": dict(whole)}


def _emptied(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as it begins."""
    empty: dict[str, Any] = {"content": [], "summary": [], "arguments": "", "input": ""}
    begun = {name: empty.get(name, value) if value is not None else None for name, value in item.items()}
    begun.pop("encrypted_content", None)
    return begun | ({"status": "in_progress"} if "status" in item else {})


def _of_item(item: Mapping[str, Any]) -> Iterator[_Event]:
    """Events between an item's begin and its end."""
    kind = item.get("type")
    if kind == "message":
        for index, part in enumerate(item.get("content") or []):
            yield from _of_part(part, {"content_index": index}, "content_part", part.get("type", "output_text"))
    elif kind == "reasoning":
        for index, part in enumerate(item.get("summary") or []):
            yield from _of_part(part, {"summary_index": index}, "reasoning_summary_part", "reasoning_summary_text")
        for index, part in enumerate(item.get("content") or []):
            yield from _of_part(part, {"content_index": index}, "content_part", "reasoning_text")
    elif kind in _CALLS:
        name = "function_call_arguments" if kind == "function_call" else "custom_tool_call_input"
        text = item.get(_CALLS[kind], "")
        yield f"response.{name}.delta", {"delta": text}
        yield f"response.{name}.done", {_CALLS[kind]: text, "name": item.get("name", "")}


def _of_part(part: Mapping[str, Any], place: dict[str, Any], what: str, text_name: str) -> Iterator[_Event]:
    key = "refusal" if part.get("type") == "refusal" else "text"
    text = part.get(key, "")
    more: dict[str, Any] = {"logprobs": []} if text_name == "output_text" else {}
    yield f"response.{what}.added", place | {"part": dict(part) | {key: ""}}
    yield f"response.{text_name}.delta", place | {"delta": text} | more
    yield f"response.{text_name}.done", place | {key: text} | more
    yield f"response.{what}.done", place | {"part": dict(part)}


def failed(refused: Refused) -> bytes:
    """A refusal in a stream that has begun."""
    told = {"code": refused.code or refused.kind, "message": str(refused)}
    response = {"id": "resp_failed", "object": "response", "status": "failed", "error": told, "output": []}
    return common.event({"type": "response.failed", "sequence_number": 0, "response": response}, "response.failed")


def _checked(item: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(item.get("type", ""), str):
        raise common.invalid("the 'type' of an item must be text")
    if item.get("type", "message") == "message":
        common.role_of(item, _ROLES)
        common.parts_of(item.get("content"))
    elif item.get("type") in _RESULTS:
        common.parts_of(item.get("output"), "output")
    return item


def _as_chat(items: list[dict[str, Any]]) -> list[ChatMessage]:
    """Messages of the log: what a reply consisted of stands together there, reasoning left out."""
    chat: list[ChatMessage] = []
    texts: list[str] = []
    calls: list[ToolCall] = []

    def close() -> None:
        if texts or calls:
            chat.append(ChatMessage("assistant", "".join(texts), tuple(calls)))
            texts.clear()
            calls.clear()

    for item in items:
        kind = item.get("type", "message")
        if kind in _CALLS:
            arguments = item.get(_CALLS[kind])
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(ToolCall(str(item.get("call_id") or ""), str(item.get("name") or ""), text))
        elif kind == "message" and item["role"] == "assistant":
            if calls:
                close()
            texts.append(common.text_of(item.get("content"), ""))
        elif kind == "message" or kind in _RESULTS:
            close()
            chat.append(_told(item))
    close()
    return chat


def _told(item: Mapping[str, Any]) -> ChatMessage:
    if item.get("type") in _RESULTS:
        failed = True if item.get("status") in ("incomplete", "failed") else None
        return ChatMessage(
            "tool", common.text_of(item.get("output")), call_id=str(item.get("call_id") or ""), failed=failed
        )
    return ChatMessage(_ROLES[item["role"]], common.text_of(item.get("content")))


answer, error = common.answer, chat.error
