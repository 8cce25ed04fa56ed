"""OpenAI Responses: a reply as a list of items, told by events that are numbered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any

from automedbench_rehearsal.model_server.program import running_in, turn_in
from automedbench_rehearsal.model_server.wire import (
    Asked,
    Call,
    Earlier,
    Proof,
    Said,
    Tool,
    Usage,
    Wire,
    error_body,
    event,
    marked,
    openai_limits,
    pieces,
    signature_of,
    text_of,
    to_json,
)

_RESPONSE = re.compile(r"resp_(\d+)_(\w+)")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


class Responses(Wire):
    """``/v1/responses``"""

    name = "responses"
    items_key = "output"
    id_key = "call_id"
    lost = "Item of type 'function_call' at input[{position}] was provided without its required 'reasoning' item."
    changed = "The encrypted content of input[{position}] could not be verified."

    def read(self, request: Mapping[str, Any], path: str) -> Asked:
        items = request["input"]
        items = [{"role": "user", "content": items}] if isinstance(items, str) else [dict(item) for item in items]
        before = _RESPONSE.fullmatch(str(request.get("previous_response_id")))
        earlier, begin = _earlier(items)
        if before:
            earlier.insert(0, Earlier(-1, int(before[1])))
            begin += 1
        spoken = [text_of(item.get("content") or "") for item in items if item.get("role") in ("user", "developer")]
        form = (request.get("text") or {}).get("format") or {}
        return Asked(
            model=str(request.get("model") or ""),
            # Notices of our loop come and go; they begin with a tag.
            opening=[request.get("instructions"), *[text for text in spoken if not text.startswith("[")][:2]],
            earlier=marked(earlier, begin),
            tools=[tool for entry in request.get("tools") or () for tool in _tools(entry)],
            stream=bool(request.get("stream")),
            limit=request.get("max_output_tokens"),
            form=form.get("schema"),
            parallel=request.get("parallel_tool_calls") is not False,
            characters=len(json.dumps([request.get("instructions"), items])),
            sessions=running_in(_last_results(items)),
            conversation=before[2] if before else "",
        )

    def missing(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        limit = request.get("max_output_tokens")
        if isinstance(limit, int) and limit < 16:
            return f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {limit}."
        return ""

    def whole(self, said: Said, asked: Asked) -> dict[str, Any]:
        items: list[dict[str, Any]] = []
        if said.thought:
            summary = [{"type": "summary_text", "text": said.thought}]
            signed = signature_of(said.turn)
            items.append(
                {"type": "reasoning", "id": f"rs_{said.turn}", "summary": summary, "encrypted_content": signed}
            )
        if said.text:
            part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
            message = {"type": "message", "id": f"msg_{said.turn}", "status": "completed", "role": "assistant"}
            items.append(message | {"content": [part]})
        items += [_call(call) for call in said.calls]
        return {
            "id": f"resp_{said.turn}_{said.conversation}",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": asked.model,
            "output": items,
            "parallel_tool_calls": asked.parallel,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": self.counted(said.usage),
        }

    def counted(self, usage: Usage) -> dict[str, Any]:
        return {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.prompt + usage.output,
        }

    def events(self, body: Any, request: Mapping[str, Any]) -> list[bytes]:
        begun = body | {"status": "in_progress", "output": [], "usage": None}
        told: list[tuple[str, dict[str, Any]]] = [
            ("created", {"response": begun}),
            ("in_progress", {"response": begun}),
        ]
        for index, item in enumerate(body["output"]):
            told += [(name, {"output_index": index} | data) for name, data in _item_events(item)]
        told.append((body["status"], {"response": body}))
        numbered = zip(count(), told, strict=False)
        return [
            event({"type": f"response.{name}", "sequence_number": number} | data, f"response.{name}")
            for number, (name, data) in numbered
        ]

    def error(self, status: int, message: str, kind: str = "", code: str | None = None) -> dict[str, Any]:
        if code == "context_length_exceeded":
            message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        elif message.startswith("The encrypted content"):
            code = "invalid_encrypted_content"
        return error_body(message, kind or "invalid_request_error", code)

    def failure(self, body: Any, number: int) -> bytes:
        told = {"code": "server_error", "message": "The server had an error processing your request."}
        failed = body | {"status": "failed", "error": told, "output": [], "usage": None}
        return event({"type": "response.failed", "sequence_number": number, "response": failed}, "response.failed")

    def limits(self, seconds: float) -> dict[str, str]:
        return openai_limits(seconds)

    def calls(self, body: Any) -> list[dict[str, Any]]:
        return [item for item in body["output"] if item["type"] in _CALLS]

    def arguments_object(self, body: Any) -> None:
        for call in self.calls(body):
            call["arguments"] = json.loads(call["arguments"])

    def cut(self, body: Any) -> None:
        body.update(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
        last = body["output"][-1] if body["output"] else {}
        last["status"] = "incomplete"
        if "arguments" in last:
            last["arguments"] = last["arguments"][: len(last["arguments"]) // 2]
        elif last.get("content"):
            part = last["content"][0]
            part["text"] = part["text"][: len(part["text"]) // 2]

    def filtered(self, body: Any) -> None:
        body.update(status="incomplete", incomplete_details={"reason": "content_filter"}, output=[])

    def hosted(self, body: Any) -> None:
        action = {"type": "search", "query": "a page", "queries": ["a page"]}
        place = sum(item["type"] == "reasoning" for item in body["output"])
        use = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
        body["output"].insert(place, use)


def _tools(entry: Any) -> Iterator[Tool]:
    kind = str(entry.get("type"))
    if kind == "namespace":
        for inner in entry.get("tools") or ():
            yield from _tools(inner)
    elif kind in ("function", "custom"):
        yield Tool(str(entry["name"]), entry.get("parameters") or {}, kind)  # type: ignore[arg-type]
    else:
        yield Tool(kind, kind="local_shell" if kind == "local_shell" else "hosted")


def _earlier(items: list[dict[str, Any]]) -> tuple[list[Earlier], int]:
    """Earlier replies, and how many of them came before the last message of the user.

    Results may stand between calls of one reply; the ids of the calls hold it together.
    """
    found: list[Earlier] = []
    begin, open_reply = 0, False
    for position, item in enumerate(items):
        kind = item.get("type") or "message"
        if kind.endswith("_output") or item.get("role") not in (None, "assistant"):
            open_reply = False
            begin = len(found) if item.get("role") == "user" else begin
            continue
        turn = turn_in([item.get("call_id")])
        proof = (Proof(str(item.get("encrypted_content")), _summary(item)),) if kind == "reasoning" else ()
        one = Earlier(position, turn, kind in _CALLS, text_of(item.get("content") or ""), proof)
        if found and (open_reply or (turn and turn == found[-1].turn)):
            last = found.pop()
            turn, called = max(last.turn, turn), last.called or one.called
            one = Earlier(last.position, turn, called, last.text + one.text, last.proofs + proof)
        found.append(one)
        open_reply = True
    return found, begin


def _last_results(items: Sequence[Mapping[str, Any]]) -> str:
    """What the results at the end of a request say."""
    results = takewhile(lambda item: str(item.get("type")).endswith("_output"), reversed(items))
    return "\n".join(json.dumps(item.get("output")) for item in results)


def _summary(item: Mapping[str, Any]) -> str | None:
    return text_of(item["summary"]) if item.get("summary") else None


def _call(call: Call) -> dict[str, Any]:
    ids = {"id": f"fc_{call.id.partition('_')[2]}", "call_id": call.id, "status": "completed"}
    if call.kind == "local_shell":
        return {"type": "local_shell_call"} | ids | {"action": dict(call.arguments)}
    return {"type": "function_call"} | ids | {"name": call.name, "arguments": to_json(call.arguments)}


def _item_events(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a stream tells of one item: its begin, its parts, its end."""
    name = {"item_id": item["id"]}
    kind = item["type"]
    empty: Any = {"message": {"content": []}, "reasoning": {"summary": []}, "function_call": {"arguments": ""}}.get(
        kind, {}
    )
    yield "output_item.added", {"item": dict(item) | empty | ({"status": "in_progress"} if "status" in item else {})}
    if kind == "message":
        for index, part in enumerate(item["content"]):
            yield from _text_events(name | {"content_index": index}, part)
    elif kind == "reasoning":
        for index, part in enumerate(item["summary"]):
            place = name | {"summary_index": index}
            yield "reasoning_summary_part.added", place | {"part": part | {"text": ""}}
            for piece in pieces(part["text"]):
                yield "reasoning_summary_text.delta", place | {"delta": piece}
            yield "reasoning_summary_text.done", place | {"text": part["text"]}
            yield "reasoning_summary_part.done", place | {"part": part}
    elif kind == "function_call":
        arguments = item["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        for piece in pieces(text):
            yield "function_call_arguments.delta", name | {"delta": piece}
        yield "function_call_arguments.done", name | {"name": item["name"], "arguments": text}
    elif kind == "web_search_call":
        for stage in ("in_progress", "searching", "completed"):
            yield f"web_search_call.{stage}", name
    yield "output_item.done", {"item": dict(item)}


def _text_events(place: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "content_part.added", {**place, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "output_text.delta", {**place, "delta": piece, "logprobs": []}
    yield "output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "content_part.done", {**place, "part": dict(part)}
