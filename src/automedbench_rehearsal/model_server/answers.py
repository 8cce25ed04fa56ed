"""Answers of the test server: a turn of a script as a chat completion, whole or as a stream of events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from automedbench.agent.models.chat import Reply

PIECE = 400
"""Characters of text or arguments in one event of a stream."""


@dataclass(frozen=True)
class Answer:
    """One response: status, body (sent as JSON unless it is bytes), headers, and how the sending misbehaves."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: Literal["", "at_once", "body"] = ""
    """The connection ends before the first byte, or in the middle of the body."""
    delay_s: float = 0.0
    """Silence before the headers."""
    pause_s: float = 0.0
    """Silence in the middle of the body."""
    drip_s: float = 0.0
    """The body comes in small pieces over this time."""
    padding: int = 0
    """Blanks after the body, in bytes."""
    gzip: Literal["", "whole", "broken"] = ""
    """The body is compressed, or says so without being it."""

    @property
    def data(self) -> bytes:
        """The body as it is sent, before compression."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


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
        "service_tier": "test",
        "choices": [{"index": 0, "finish_reason": finish, "message": said}],
    }
    if usage is not None:
        body["usage"] = tokens(3, 2) if usage == "given" else usage
    return body


def tokens(prompt: int, answer: int) -> dict[str, int]:
    """The ``usage`` object of a completion."""
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """The body of a refusal, as most providers write it."""
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def spoken(reply: Reply, request: Mapping[str, Any], usage: tuple[int, int] | None = None) -> dict[str, Any]:
    """A scripted reply as the completion that answers ``request``.

    A request without tools gets the calls as text. ``usage`` fixes the tokens, else they are characters / 4.
    """
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    message: dict[str, Any] = {"content": reply.content or None}
    if calls and request.get("tools"):
        message["tool_calls"] = calls
    elif calls:
        message["content"] = "\n".join([reply.content, *map(_as_text, calls)]).strip()
    finish = "tool_calls" if "tool_calls" in message else "stop"
    said = len(message["content"] or "") + sum(len(json.dumps(call)) for call in message.get("tool_calls", []))
    counted = usage or (len(json.dumps(request.get("messages"))) // 4, said // 4)
    model = str(request.get("model") or reply.model)
    return completion(message.pop("content"), finish=finish, usage=tokens(*counted), model=model, **message)


def _as_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    written = {"name": function["name"], "arguments": json.loads(function["arguments"])}
    return f"<tool_call>{json.dumps(written, ensure_ascii=False)}</tool_call>"


def is_completion(body: Any) -> bool:
    """True when every choice of ``body`` has a message, so that it can be streamed."""
    choices = body.get("choices") if isinstance(body, dict) else None
    return bool(choices) and all(isinstance(choice.get("message"), dict) for choice in choices or ())


def events(body: Mapping[str, Any], with_usage: bool) -> list[bytes]:
    """The server-sent events of a completion, ``[DONE]`` last; text and arguments in pieces."""
    head = {key: body[key] for key in ("id", "created", "model") if key in body} | {"object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = []
    for choice in body["choices"]:
        for delta in _deltas(choice["message"]):
            chunks.append({"choices": [{"index": choice["index"], "delta": delta, "finish_reason": None}]})
        last = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks.append({"choices": [last]})
    if with_usage:
        chunks.append({"choices": [], "usage": body.get("usage")})
    lines = [json.dumps(head | chunk) for chunk in chunks]
    return [f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]]


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    content = message.get("content")
    deltas += [{"content": part} for part in _pieces(content)] if isinstance(content, str) else []
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        start = {"index": index, "id": call["id"], "type": "function"}
        deltas.append({"tool_calls": [start | {"function": {"name": function["name"], "arguments": ""}}]})
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in _pieces(text)]
    return deltas


def _pieces(text: str) -> Sequence[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
