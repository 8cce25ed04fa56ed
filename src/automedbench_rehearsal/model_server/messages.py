"""Anthropic Messages: blocks of text, thinking with signature and tool use; tokens of the cache beside the input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from automedbench_rehearsal.model_server.program import turn_in
from automedbench_rehearsal.model_server.wire import (
    Asked,
    Earlier,
    Proof,
    Said,
    Tool,
    ToolKind,
    Usage,
    Wire,
    event,
    marked,
    pieces,
    signature_of,
    text_of,
)

_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_THINKING = ("thinking", "redacted_thinking")
_BILLING = "x-anthropic-billing-header"
"""A line of Claude Code's system prompt that differs from request to request."""


class Messages(Wire):
    """``/v1/messages``"""

    name = "messages"
    items_key = "content"
    prefix = "toolu"
    lost = (
        "messages.{position}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When "
        "`thinking` is enabled, a final `assistant` message must start with a thinking block."
    )
    changed = "messages.{position}.content.0: Invalid `signature` in `thinking` block"

    def read(self, request: Mapping[str, Any], path: str) -> Asked:
        messages = [dict(message) for message in request["messages"]]
        earlier, begin = [], 0
        for position, message in enumerate(messages):
            if message["role"] == "assistant":
                earlier.append(_earlier(position, _blocks(message)))
            elif not any(block.get("type") == "tool_result" for block in _blocks(message)):
                begin = len(earlier)
        system = [line for line in text_of(request.get("system") or "").splitlines() if not line.startswith(_BILLING)]
        form = request.get("output_format") or (request.get("output_config") or {}).get("format") or {}
        return Asked(
            model=str(request.get("model") or ""),
            opening=["\n".join(system), text_of(_blocks(messages[0])[:1])],
            earlier=marked(earlier, begin),
            tools=[_tool(tool) for tool in request.get("tools") or ()],
            stream=bool(request.get("stream")),
            limit=request.get("max_tokens"),
            form=form.get("schema"),
            parallel=not (request.get("tool_choice") or {}).get("disable_parallel_tool_use"),
            characters=len(json.dumps([request.get("system"), messages])),
        )

    def missing(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        if "anthropic-version" not in headers:
            return "anthropic-version: header is required"
        return "" if isinstance(request.get("max_tokens"), int) else "max_tokens: Field required"

    def whole(self, said: Said, asked: Asked) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        if said.thought:
            blocks.append({"type": "thinking", "thinking": said.thought, "signature": signature_of(said.turn)})
        if said.text:
            blocks.append({"type": "text", "text": said.text})
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)} for call in said.calls
        ]
        return {
            "id": f"msg_{said.turn}_{said.conversation}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": blocks,
            "stop_reason": "tool_use" if said.calls else "end_turn",
            "stop_sequence": None,
            "usage": self.counted(said.usage),
        }

    def counted(self, usage: Usage) -> dict[str, Any]:
        found: dict[str, Any] = {
            "input_tokens": usage.input,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_write - usage.cache_write_1h,
                "ephemeral_1h_input_tokens": usage.cache_write_1h,
            },
            "output_tokens": usage.output,
            "service_tier": "standard",
        }
        return found | ({"output_tokens_details": {"thinking_tokens": usage.reasoning}} if usage.reasoning else {})

    def events(self, body: Any, request: Mapping[str, Any]) -> list[bytes]:
        blocks, usage = list(body["content"]), body.get("usage")
        start = body | {"content": [], "stop_reason": None}
        if isinstance(usage, dict):
            start |= {"usage": usage | {"output_tokens": 1}}
        found = [_event("message_start", message=start), _event("ping")]
        for index, block in enumerate(blocks):
            empty, deltas = _pieces(block)
            found.append(_event("content_block_start", index=index, content_block=empty))
            found += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
            found.append(_event("content_block_stop", index=index))
        ended = {"stop_reason": body["stop_reason"], "stop_sequence": None}
        kept = {key: value for key, value in (usage or {}).items() if key not in ("cache_creation", "service_tier")}
        found.append(_event("message_delta", delta=ended, **({"usage": kept} if kept else {})))
        return [*found, _event("message_stop")]

    def error(self, status: int, message: str, kind: str = "", code: str | None = None) -> dict[str, Any]:
        own = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        if code == "context_length_exceeded":
            message = "prompt is too long: 250000 tokens > 200000 maximum"
        elif code == "content_filter":
            message = "Output blocked by content filtering policy"
        return {"type": "error", "error": {"type": own, "message": message}, "request_id": "req_scripted"}

    def failure(self, body: Any, number: int) -> bytes:
        return event(self.error(529, "Overloaded"), "error")

    def limits(self, seconds: float) -> dict[str, str]:
        ends = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = {"retry-after": f"{seconds:g}"}
        for kind, limit, left in (
            ("requests", 50, 0),
            ("tokens", 480_000, 430_000),
            ("input-tokens", 400_000, 380_000),
            ("output-tokens", 80_000, 50_000),
        ):
            names = {"limit": str(limit), "remaining": str(left), "reset": ends}
            found |= {f"anthropic-ratelimit-{kind}-{name}": value for name, value in names.items()}
        return found

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        made = {"type": "model", "created_at": "2026-01-01T00:00:00Z"}
        entries = [{"id": name, "display_name": name} | made for name in names]
        return {"data": entries, "has_more": False, "first_id": names[0] if names else None}

    def calls(self, body: Any) -> list[dict[str, Any]]:
        return [block for block in body["content"] if block["type"] == "tool_use"]

    def cut(self, body: Any) -> None:
        body["stop_reason"] = "max_tokens"
        last = body["content"][-1]
        if last["type"] == "text":
            last["text"] = last["text"][: len(last["text"]) // 2]
        elif last["type"] == "tool_use":
            # A call that was cut comes with what could be read of its arguments.
            last["input"] = {}

    def filtered(self, body: Any) -> None:
        body.update(content=[], stop_reason="refusal")

    def hosted(self, body: Any) -> None:
        found: dict[str, Any] = {"type": "web_search_result", "url": "https://example.org/page", "title": "A page"}
        found |= {"encrypted_content": "RW5jcnlwdGVk", "page_age": None}
        use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a page"}}
        result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]}
        place = sum(block["type"] in _THINKING for block in body["content"])
        body["content"][place:place] = [use, result]
        body["usage"]["server_tool_use"] = {"web_search_requests": 1, "web_fetch_requests": 0}


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else [dict(block) for block in content]


def _tool(tool: Any) -> Tool:
    kind: ToolKind = "function" if tool.get("type") in (None, "custom") else "hosted"
    return Tool(str(tool["name"]), tool.get("input_schema") or {}, kind)


def _earlier(position: int, blocks: list[dict[str, Any]]) -> Earlier:
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    proofs = [
        Proof(str(block.get("signature") or block.get("data")), str(block.get("thinking")))
        for block in blocks
        if block["type"] in _THINKING
    ]
    return Earlier(position, turn_in(uses), bool(uses), text_of(blocks), tuple(proofs))


def _event(name: str, **data: Any) -> bytes:
    return event({"type": name} | data, name)


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and what is added to it."""
    kind = block["type"]
    if kind == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in pieces(block["text"])]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in pieces(block["thinking"])]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if kind in ("tool_use", "server_tool_use"):
        parts = ["", *pieces(json.dumps(block["input"], ensure_ascii=False))]
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        return dict(block) | {"input": {}}, deltas
    return dict(block), []
