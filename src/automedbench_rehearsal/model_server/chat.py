"""OpenAI chat completions, with the fields by which Gemini and DeepSeek tell thinking in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from automedbench_rehearsal.model_server.program import turn_in
from automedbench_rehearsal.model_server.wire import (
    Asked,
    Call,
    Earlier,
    Proof,
    Said,
    Tool,
    ToolKind,
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

_RUNS = re.compile(r"It is run with `python3 ([\w.-]+\.py)` after each of your edits")
"""How our recipe for Aider says what becomes of an edit (config/agents/aider)."""


def completion(
    content: Any = "hi", *, finish: str = "stop", usage: Any = "given", model: str = "served-model", **message: Any
) -> dict[str, Any]:
    """A well-formed completion; ``usage='given'`` is 3 prompt and 2 completion tokens, None leaves it out."""
    said = {"role": "assistant", "content": content} | message
    body: dict[str, Any] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "service_tier": "default",
        "choices": [{"index": 0, "finish_reason": finish, "message": said}],
    }
    if usage is not None:
        body["usage"] = Chat().counted(Usage(3, 2)) if usage == "given" else usage
    return body


class Chat(Wire):
    """``/v1/chat/completions``"""

    name = "chat"
    items_key = "choices"
    usage_totals = ("prompt_tokens", "completion_tokens", "total_tokens")
    lost = "The `reasoning_content` and thought_signature of message {position} must be passed back to the API."
    changed = "Thought signature or `reasoning_content` of message {position} is not valid."

    def read(self, request: Mapping[str, Any], path: str) -> Asked:
        messages = [dict(message) for message in request["messages"]]
        earlier, begin = [], 0
        for position, message in enumerate(messages):
            if message.get("role") == "assistant":
                earlier.append(_earlier(position, message))
            elif message.get("role") == "user":
                begin = len(earlier)
        form = request.get("response_format") or {}
        text = json.dumps(request["messages"])
        runs = None if request.get("tools") else _RUNS.search(text)
        return Asked(
            model=str(request.get("model") or ""),
            opening=[message.get("content") for message in messages[:2] if message.get("role") != "assistant"],
            earlier=marked(earlier, begin),
            tools=[_tool(tool) for tool in request.get("tools") or ()],
            stream=bool(request.get("stream")),
            limit=request.get("max_completion_tokens") or request.get("max_tokens"),
            form=(form.get("json_schema") or {}).get("schema"),
            parallel=request.get("parallel_tool_calls") is not False,
            characters=len(text),
            runs=runs[1] if runs else "",
        )

    def missing(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        if request.get("tools") == []:
            return (
                "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."
            )
        if request.get("max_tokens") is not None and request.get("max_completion_tokens") is not None:
            return "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        return ""

    def whole(self, said: Said, asked: Asked) -> dict[str, Any]:
        message: dict[str, Any] = {"content": said.text or None}
        if said.thought:
            message["reasoning_content"] = said.thought
        if said.calls:
            message["tool_calls"] = [_call(call) for call in said.calls]
            if said.thought:
                signed = {"google": {"thought_signature": signature_of(said.turn)}}
                message["tool_calls"][0]["extra_content"] = signed
        finish = "tool_calls" if said.calls else "stop"
        content = message.pop("content")
        return completion(content, finish=finish, usage=self.counted(said.usage), model=asked.model, **message)

    def counted(self, usage: Usage) -> dict[str, Any]:
        found: dict[str, Any] = {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.output,
            "total_tokens": usage.prompt + usage.output,
        }
        if usage.cache_read or usage.cache_write:
            cached = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
            found["prompt_tokens_details"] = cached
        if usage.reasoning:
            found["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
        return found

    def events(self, body: Any, request: Mapping[str, Any]) -> list[bytes]:
        wanted = request.get("stream_options")
        with_usage = isinstance(wanted, dict) and bool(wanted.get("include_usage"))
        head = {key: body[key] for key in ("id", "created", "model") if key in body}
        head |= {"object": "chat.completion.chunk"} | ({"usage": None} if with_usage else {})
        chunks: list[dict[str, Any]] = []
        for choice in body["choices"]:
            for delta in _deltas(choice["message"]):
                chunks.append({"choices": [{"index": choice["index"], "delta": delta, "finish_reason": None}]})
            last = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
            chunks.append({"choices": [last]})
        if not chunks:
            raise ValueError("no choice to stream")
        if with_usage:
            chunks.append({"choices": [], "usage": body.get("usage")})
        return [*(event(head | chunk) for chunk in chunks), event("[DONE]")]

    def error(self, status: int, message: str, kind: str = "", code: str | None = None) -> dict[str, Any]:
        return error_body(message, kind or "invalid_request_error", code)

    def failure(self, body: Any, number: int) -> bytes:
        return event(self.error(500, "The server had an error while processing your request", "server_error"))

    def limits(self, seconds: float) -> dict[str, str]:
        return openai_limits(seconds)

    def calls(self, body: Any) -> list[dict[str, Any]]:
        return _message(body).get("tool_calls") or []

    def arguments_object(self, body: Any) -> None:
        for call in self.calls(body):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])

    def content_parts(self, body: Any) -> None:
        content = _message(body).get("content")
        parts = [{"type": "text", "text": part} for part in (content[:3], content[3:])] if content else []
        _message(body)["content"] = parts

    def legacy(self, body: Any) -> None:
        calls = _message(body).pop("tool_calls", None)
        if calls:
            _message(body)["function_call"] = calls[0]["function"]
            body["choices"][0]["finish_reason"] = "function_call"

    def cut(self, body: Any) -> None:
        message = _message(body)
        body["choices"][0]["finish_reason"] = "length"
        functions = [call["function"] for call in self.calls(body)]
        if functions:
            functions[-1]["arguments"] = functions[-1]["arguments"][: len(functions[-1]["arguments"]) // 2]
        elif message.get("content"):
            message["content"] = message["content"][: len(message["content"]) // 2]

    def filtered(self, body: Any) -> None:
        body["choices"][0]["finish_reason"] = "content_filter"
        _message(body).update(content="", tool_calls=None)

    def hosted(self, body: Any) -> None:
        cited = {"url": "https://example.org/page", "title": "A page", "start_index": 0, "end_index": 1}
        _message(body)["annotations"] = [{"type": "url_citation", "url_citation": cited}]


def _message(body: Any) -> Any:
    return body["choices"][0]["message"]


def _tool(tool: Any) -> Tool:
    function = tool.get("function") or {}
    kind: ToolKind = "function" if tool.get("type") in (None, "function") else "hosted"
    return Tool(str(function.get("name") or tool.get("type")), function.get("parameters") or {}, kind)


def _earlier(position: int, message: Mapping[str, Any]) -> Earlier:
    calls = message.get("tool_calls") or []
    signed = (calls[0].get("extra_content") or {}).get("google") or {} if calls else {}
    signature, thought = signed.get("thought_signature"), message.get("reasoning_content")
    proofs = (Proof(str(signature), str(thought)),) if signature and thought else ()
    turn = turn_in([call.get("id") for call in calls])
    return Earlier(position, turn, bool(calls), text_of(message.get("content") or ""), proofs)


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": to_json(call.arguments)}}


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": part} for part in pieces(message.get("reasoning_content") or "")]
    content = message.get("content")
    deltas += [{"content": part} for part in pieces(content)] if isinstance(content, str) else []
    deltas += [{"annotations": message["annotations"]}] if message.get("annotations") else []
    for index, call in enumerate(message.get("tool_calls") or ()):
        start = {"index": index} | {key: value for key, value in call.items() if key != "function"}
        deltas.append({"tool_calls": [start | {"function": {"name": call["function"]["name"], "arguments": ""}}]})
        parts = _argument_pieces(call["function"])
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in parts]
    if function := message.get("function_call"):
        deltas.append({"function_call": {"name": function["name"], "arguments": ""}})
        deltas += [{"function_call": {"arguments": part}} for part in _argument_pieces(function)]
    return deltas


def _argument_pieces(function: Mapping[str, Any]) -> list[str]:
    arguments = function["arguments"]
    return pieces(arguments if isinstance(arguments, str) else json.dumps(arguments))
