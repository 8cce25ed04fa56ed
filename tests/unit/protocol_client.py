"""A small client of each protocol: where it asks, and how its conversation goes on after a reply."""

from __future__ import annotations

from typing import Any

HISTORY = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}
"""Key of a request that holds the conversation."""


def path_of(protocol: str, stream: bool = False) -> str:
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return {
        "chat": "/v1/chat/completions",
        "responses": "/v1/responses",
        "messages": "/v1/messages",
        "gemini": f"/v1beta/models/mine:{method}",
    }[protocol]


def echo_of(protocol: str, body: Any) -> list[Any]:
    """What of a reply goes back unchanged."""
    if protocol == "chat":
        return [body["choices"][0]["message"]]
    if protocol == "gemini":
        return list(body["candidates"][0]["content"]["parts"])
    return list(body["output" if protocol == "responses" else "content"])


def answered(protocol: str, echo: list[Any]) -> list[Any]:
    """The messages that follow a reply: the reply as it came, and the results of its calls."""
    if protocol == "chat":
        calls = echo[0].get("tool_calls", [])
        return [*echo, *({"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls)]
    if protocol == "responses":
        ids = [item["call_id"] for item in echo if item["type"] == "function_call"]
        return [*echo, *({"type": "function_call_output", "call_id": name, "output": "ok"} for name in ids)]
    if protocol == "messages":
        ids = [block["id"] for block in echo if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": name, "content": "ok"} for name in ids]
        return [{"role": "assistant", "content": echo}, {"role": "user", "content": results}]
    calls = [part["functionCall"] for part in echo if "functionCall" in part]
    known = [{key: call[key] for key in ("id", "name") if key in call} for call in calls]
    parts = [{"functionResponse": call | {"response": {"output": "ok"}}} for call in known]
    return [{"role": "model", "parts": echo}, {"role": "user", "parts": parts}]
