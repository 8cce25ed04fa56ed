"""Four protocols towards an endpoint: golden requests, replies and streams, and the loop against a demanding server.

What goes wrong on the way there is in test_endpoint_model.py, recorded answers are in
tests/contract/test_recorded_answers.py.

The forms are those of the public references, written down by hand: Anthropic Messages (API reference, pages on
extended thinking, streaming, prompt caching), OpenAI Responses (API reference, guides on reasoning and streaming),
Gemini (API reference of generateContent, page on thought signatures), OpenAI chat completions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_fakes import ALL_OUTPUTS, Bench, Clock, FakeSandbox
from run_fakes import KEY_NAME, make_plan, start
from test_resume import DIED, in_child

from automedbench.agent.durable.attempts import Journal, Line
from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.models.scripted import CodeStep, ScriptedTurn, SubmitStep
from automedbench.agent.protocols import PROTOCOLS, read_reply
from automedbench.agent.protocols.responses import mark_cut
from automedbench.agent.run import RunPlan
from automedbench.base.cards import Limits
from automedbench.base.endpoint.address import ProtocolName, api_root
from automedbench.base.endpoint.faults import FaultyReply
from automedbench.base.records import RunRecord, Tokens
from automedbench.campaign.agents import Agent
from automedbench_rehearsal.model_server.faults import FaultPlan, ServerFault
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion, usage_rule

KEY = "sk-canary-0123456789"
NAMES: tuple[ProtocolName, ...] = ("chat", "responses", "messages", "gemini")
NEW: tuple[ProtocolName, ...] = ("responses", "messages", "gemini")
SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
TOOL = ToolSpec("run", "Runs code.", SCHEMA)


def agent(protocol: ProtocolName, url: str = "http://x/v1", **options: Any) -> Agent:
    given = {"provider": "openai", "model": "m", "base_url": url, "api_key_env": "K", "max_tokens": 100}
    return Agent.model_validate(given | {"protocol": protocol} | options)


def request(protocol: ProtocolName, messages: Sequence[ChatMessage], **options: Any) -> dict[str, Any]:
    return PROTOCOLS[protocol].make_request(agent(protocol, **options), messages, [TOOL])


def parse(protocol: ProtocolName, body: Any) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_reply(protocol, data, [ChatMessage("user", "hello")])


def sse(*events: Any) -> bytes:
    """Events with their names, as the providers send them; texts are sent as they are."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        lines.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "".join(lines).encode()


# --- golden answers ------------------------------------------------------------------------------------------------

THINKING = {"type": "thinking", "thinking": "Two calls.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        THINKING,
        REDACTED,
        {"type": "text", "text": "I run both."},
        {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"code": "é"}},
        {"type": "tool_use", "id": "toolu_2", "name": "run", "input": {"code": "b"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 7,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5},
        "output_tokens": 50,
        "service_tier": "batch",
    },
}
# The same message as a stream: counts of message_delta are running sums.
MESSAGE_STREAM = sse(
    {"type": "message_start", "message": MESSAGE | {"content": [], "usage": MESSAGE["usage"] | {"output_tokens": 1}}},  # type: ignore[operator]
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Two "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "calls."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": REDACTED},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "I run"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": " both."}},
    {"type": "content_block_stop", "index": 2},
    *(
        event
        for index, name, pieces in ((3, "toolu_1", ["", '{"code": ', '"é"}']), (4, "toolu_2", ['{"code": "b"}']))
        for event in (
            {
                "type": "content_block_start",
                "index": index,
                "content_block": {"type": "tool_use", "id": name, "name": "run", "input": {}},
            },
            *(
                {
                    "type": "content_block_delta",
                    "index": index,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
                for piece in pieces
            ),
            {"type": "content_block_stop", "index": index},
        )
    ),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 50},
    },
    {"type": "message_stop"},
)

ITEMS: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Two calls."}],
        "encrypted_content": "ZW5j",
    },
    {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I run both.", "annotations": [], "logprobs": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "run",
        "arguments": '{"code":"é"}',
        "status": "completed",
    },
    {
        "type": "function_call",
        "id": "fc_2",
        "call_id": "call_2",
        "name": "run",
        "arguments": '{"code":"b"}',
        "status": "completed",
    },
]
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-x",
    "output": ITEMS,
    "service_tier": "flex",
    "usage": {
        "input_tokens": 127,
        "input_tokens_details": {"cached_tokens": 100},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 30},
        "total_tokens": 177,
    },
}
RESPONSE_STREAM = sse(
    {"type": "response.created", "sequence_number": 0, "response": RESPONSE | {"output": [], "usage": None}},
    *(
        {"type": "response.output_item.done", "sequence_number": 1 + index, "output_index": index, "item": item}
        for index, item in enumerate(ITEMS)
    ),
    {"type": "response.output_text.delta", "delta": "I run both."},
    {"type": "response.completed", "sequence_number": 9, "response": RESPONSE},
)

PARTS = [
    {"text": "Two calls.", "thought": True},
    {"text": "I run both."},
    {"functionCall": {"name": "run", "args": {"code": "é"}}, "thoughtSignature": "c2ln"},
    {"functionCall": {"name": "run", "args": {"code": "b"}}},
]
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": PARTS}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {
        "promptTokenCount": 127,
        "cachedContentTokenCount": 100,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "totalTokenCount": 177,
    },
    "modelVersion": "gemini-x",
    "responseId": "r1",
}


def chunk(*parts: Any, **more: Any) -> dict[str, Any]:
    finish = {"finishReason": more.pop("finish")} if "finish" in more else {}
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0} | finish], **more}


GEMINI_STREAM = sse(
    chunk({"text": "Two ", "thought": True}, usageMetadata={"promptTokenCount": 127}, modelVersion="gemini-x"),
    chunk({"text": "calls.", "thought": True}, modelVersion="gemini-x"),
    chunk({"text": "I run"}),
    chunk({"text": " both."}, PARTS[2]),
    chunk(PARTS[3], finish="STOP", usageMetadata=GEMINI["usageMetadata"], responseId="r1"),
)

CALLS = [
    {
        "id": "call_1",
        "type": "function",
        "function": {"name": "run", "arguments": '{"code":"é"}'},
        "extra_content": {"google": {"thought_signature": "c2ln"}},
    },
    {"id": "call_2", "type": "function", "function": {"name": "run", "arguments": '{"code":"b"}'}},
]
CHAT = {
    "id": "chatcmpl-1",
    "model": "chat-x",
    "service_tier": "priority",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "I run both.",
                "reasoning_content": "Two calls.",
                "tool_calls": CALLS,
            },
        }
    ],
    "usage": {
        "prompt_tokens": 127,
        "completion_tokens": 50,
        "total_tokens": 177,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 30},
    },
}


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "model": "chat-x", "service_tier": "priority", "usage": None}
    return head | {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


CHAT_STREAM = sse(
    delta(role="assistant", content=""),
    delta(reasoning_content="Two "),
    delta(reasoning_content="calls."),
    delta(content="I run"),
    delta(content=" both."),
    delta(tool_calls=[{"index": 0, **CALLS[0], "function": {"name": "run", "arguments": ""}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '{"code"'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": ':"é"}'}}]),
    delta(tool_calls=[{"index": 1, **CALLS[1]}]),
    delta("tool_calls"),
    delta() | {"choices": [], "usage": CHAT["usage"]},
    "[DONE]",
)

GOLDEN: dict[ProtocolName, tuple[Any, bytes]] = {
    "chat": (CHAT, CHAT_STREAM),
    "responses": (RESPONSE, RESPONSE_STREAM),
    "messages": (MESSAGE, MESSAGE_STREAM),
    "gemini": (GEMINI, GEMINI_STREAM),
}
SERVED = {"chat": "priority", "responses": "flex", "messages": "batch", "gemini": ""}
MODELS = {"chat": "chat-x", "responses": "gpt-x", "messages": "claude-x", "gemini": "gemini-x"}
# 7 + 20 + 100 = 127 tokens were read; of Anthropic's 50 no part is told as thinking. 20 + 30 = 50 for Gemini.
USAGE = {protocol: Tokens(prompt=127, cached=100, completion=50, reasoning=30) for protocol in PROTOCOLS}
USAGE["messages"] = Tokens(prompt=127, cached=100, cache_write=20, cache_write_1h=5, completion=50)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("protocol", NAMES)
def test_a_reply_with_everything(protocol: ProtocolName, streamed: bool) -> None:
    reply = parse(protocol, GOLDEN[protocol][streamed])
    assert (reply.content, reply.reasoning, reply.finish_reason) == ("I run both.", "Two calls.", "tool_calls")
    assert [(call.name, json.loads(call.arguments)["code"]) for call in reply.calls] == [("run", "é"), ("run", "b")]
    assert (reply.usage, reply.service_tier, reply.model) == (USAGE[protocol], SERVED[protocol], MODELS[protocol])


@pytest.mark.parametrize("protocol", NAMES)
def test_a_stream_is_the_same_reply(protocol: ProtocolName) -> None:
    whole, stream = (parse(protocol, body) for body in GOLDEN[protocol])
    assert (stream.opaque, stream.calls) == (whole.opaque, whole.calls)
    assert whole.body == GOLDEN[protocol][0]


ENDS: dict[str, tuple[ProtocolName, dict[str, Any], str]] = {
    "messages cut": ("messages", MESSAGE | {"stop_reason": "max_tokens"}, "length"),
    "messages end": ("messages", MESSAGE | {"stop_reason": "end_turn"}, "stop"),
    "responses cut": (
        "responses",
        RESPONSE | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        "length",
    ),
    "responses text": ("responses", RESPONSE | {"output": ITEMS[:2]}, "stop"),
    "gemini cut": ("gemini", GEMINI | chunk({"text": "a"}, finish="MAX_TOKENS"), "length"),
    "gemini text": ("gemini", GEMINI | chunk({"text": "a"}, finish="STOP"), "stop"),
}


@pytest.mark.parametrize(("protocol", "body", "finish"), ENDS.values(), ids=ENDS.keys())
def test_how_a_reply_ended(protocol: ProtocolName, body: dict[str, Any], finish: str) -> None:
    assert parse(protocol, body).finish_reason == finish


def test_a_completed_response_of_all_its_tokens_is_a_cut_one() -> None:
    """llama.cpp and transformers report the status ``completed``; programs read it in the answer's body."""
    whole = parse("responses", RESPONSE)
    cut = mark_cut(whole, whole.usage.completion)
    assert (cut.finish_reason, (cut.body or {})["status"]) == ("length", "incomplete")
    assert [mark_cut(whole, limit) for limit in (None, whole.usage.completion + 1)] == [whole, whole]


def native(arguments: Any, **extra: Any) -> dict[str, Any]:
    return completion(None, tool_calls=[{"id": "1", "function": {"name": "run", "arguments": arguments}} | extra])


ODDITIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "call": (native('{"a": 1}'), {"calls": (ToolCall("1", "run", '{"a": 1}'),)}),
    "arguments as object": (native({"a": 1}), {"calls": (ToolCall("1", "run", '{"a": 1}'),)}),
    "arguments missing": (native(None), {"calls": (ToolCall("1", "run", "{}"),)}),
    "calls of a wrong type": (completion("x", tool_calls="none"), {"calls": (), "content": "x"}),
    "call without function": (completion("x", tool_calls=[{"id": "1"}, 5]), {"calls": ()}),
    "content null": (completion(None), {"content": ""}),
    "content in parts": (completion([{"type": "text", "text": "a"}, {"text": "b"}, "c"]), {"content": "ab"}),
    "lone surrogate": (completion("a\ud800"), {"content": "a\ufffd"}),
    "reasoning": (completion("x", reasoning_content="hm"), {"opaque": {"reasoning_content": "hm"}}),
    "cut": (completion("x", finish="length"), {"finish_reason": "length"}),
    # "hello" has 5 characters, the reply "xxxx" 4; characters / 4 (docs/specification.md, 8.5).
    "usage null": (completion("xxxx", usage=None), {"usage": Tokens(prompt=1, completion=1, estimated=True)}),
    "usage of a wrong type": (completion("xxxx", usage=7), {"usage": Tokens(prompt=1, completion=1, estimated=True)}),
    "usage with null counts": (
        completion("xxxx", usage={"prompt_tokens": None}),
        {"usage": Tokens(prompt=1, completion=1, estimated=True)},
    ),
    "cost that is none": (completion(usage={"cost": float("nan")}), {"reported_cost": None}),
    "cost as text": (completion(usage={"cost": "0.1"}), {"reported_cost": None}),
    "details": (
        completion(
            usage={
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
                "cost": 0.25,
            }
        ),
        {"usage": Tokens(prompt=9, cached=4, completion=5, reasoning=2), "reported_cost": 0.25},
    ),
}


@pytest.mark.parametrize(("body", "expected"), ODDITIES.values(), ids=ODDITIES.keys())
def test_oddities_of_chat(body: dict[str, Any], expected: dict[str, Any]) -> None:
    reply = parse("chat", body)
    assert {name: getattr(reply, name) for name in expected} == expected


def test_the_older_function_call_is_a_call() -> None:
    message = {"role": "assistant", "content": None, "function_call": {"name": "run", "arguments": '{"code": "a"}'}}
    body = CHAT | {"choices": [{"index": 0, "finish_reason": "function_call", "message": message}]}
    assert parse("chat", body).calls == (ToolCall("", "run", '{"code": "a"}'),)


# --- golden requests -----------------------------------------------------------------------------------------------


def conversation(protocol: ProtocolName) -> list[ChatMessage]:
    """A reply with two calls, echoed as the loop does, their results, and a notice."""
    reply = parse(protocol, GOLDEN[protocol][0])
    ids = ["call_1", "call_2"] if protocol != "messages" else ["toolu_1", "toolu_2"]
    calls = tuple(
        ToolCall(name, call.name, call.arguments, opaque=call.opaque)
        for name, call in zip(ids, reply.calls, strict=True)
    )
    return [
        ChatMessage("system", "you are"),
        ChatMessage("user", "hello"),
        ChatMessage("assistant", reply.content, calls, opaque=reply.opaque, reasoning=reply.reasoning),
        ChatMessage("tool", '{"status": "ok"}', call_id=ids[0]),
        ChatMessage("tool", "plain", call_id=ids[1], failed=True),
        ChatMessage("user", "[BUDGET] 50%"),
    ]


MARK = {"cache_control": {"type": "ephemeral"}}
NOTICE = {"type": "text", "text": "[BUDGET] 50%"}
REQUESTS: dict[ProtocolName, dict[str, Any]] = {
    "chat": {
        "model": "m",
        "max_tokens": 100,
        "temperature": 0.0,
        "tools": [{"type": "function", "function": {"name": "run", "description": "Runs code.", "parameters": SCHEMA}}],
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "you are"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "I run both.", "tool_calls": CALLS, "reasoning_content": "Two calls."},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"status": "ok"}'},
            {"role": "tool", "tool_call_id": "call_2", "content": "plain"},
            {"role": "user", "content": "[BUDGET] 50%"},
        ],
    },
    "messages": {
        "model": "m",
        "max_tokens": 100,
        "temperature": 0.0,
        "system": [{"type": "text", "text": "you are"} | MARK],
        "tools": [{"name": "run", "description": "Runs code.", "input_schema": SCHEMA} | MARK],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"} | MARK]},
            {"role": "assistant", "content": MESSAGE["content"]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"status": "ok"}'},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "plain", "is_error": True},
                    NOTICE | MARK,
                ],
            },
        ],
    },
    "responses": {
        "model": "m",
        "max_output_tokens": 100,
        "temperature": 0.0,
        "instructions": "you are",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {"type": "function", "name": "run", "description": "Runs code.", "parameters": SCHEMA, "strict": False}
        ],
        "input": [
            {"role": "user", "content": "hello"},
            *ITEMS,
            {"type": "function_call_output", "call_id": "call_1", "output": '{"status": "ok"}'},
            {"type": "function_call_output", "call_id": "call_2", "output": "plain"},
            {"role": "user", "content": "[BUDGET] 50%"},
        ],
    },
    "gemini": {
        "generationConfig": {"maxOutputTokens": 100, "temperature": 0.0},
        "systemInstruction": {"parts": [{"text": "you are"}]},
        "tools": [
            {"functionDeclarations": [{"name": "run", "description": "Runs code.", "parametersJsonSchema": SCHEMA}]}
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "hello"}]},
            {"role": "model", "parts": PARTS},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "run", "response": {"status": "ok"}}},
                    {"functionResponse": {"name": "run", "response": {"error": "plain"}}},
                    {"text": "[BUDGET] 50%"},
                ],
            },
        ],
    },
}


@pytest.mark.parametrize("protocol", NAMES)
def test_the_whole_request(protocol: ProtocolName) -> None:
    """What came goes back as it came: thinking with signatures, encrypted reasoning, signed parts, in their order."""
    sent = request(protocol, conversation(protocol))
    if protocol == "responses":
        # One name for all requests that begin alike: 32 digits of a hash.
        assert len(sent.pop("prompt_cache_key")) == 32
    assert sent == REQUESTS[protocol]


OPTIONS: dict[str, tuple[ProtocolName, dict[str, Any], dict[str, Any]]] = {
    "messages budget": (
        "messages",
        {"reasoning": {"mode": "budget", "budget_tokens": 50}},
        {"thinking": {"type": "enabled", "budget_tokens": 50}, "temperature": None},
    ),
    "messages effort": (
        "messages",
        {"reasoning": {"mode": "effort", "effort": "low"}},
        {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "low"},
            "temperature": None,
        },
    ),
    "responses effort": (
        "responses",
        {"reasoning": {"mode": "effort", "effort": "high"}, "temperature": None},
        {"reasoning": {"effort": "high", "summary": "auto"}, "temperature": None},
    ),
    "gemini budget, merged with extra_body": (
        "gemini",
        {
            "reasoning": {"mode": "budget", "budget_tokens": 50},
            "temperature": None,
            "extra_body": {"generationConfig": {"topK": 5}},
        },
        {
            "generationConfig": {
                "maxOutputTokens": 100,
                "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 50},
                "topK": 5,
            }
        },
    ),
    "gemini effort": (
        "gemini",
        {"reasoning": {"mode": "effort", "effort": "low"}, "temperature": None},
        {
            "generationConfig": {
                "maxOutputTokens": 100,
                "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
            }
        },
    ),
    "chat field": ("chat", {"reasoning": {"mode": "field"}}, {"reasoning": {"enabled": True}}),
    "chat effort": ("chat", {"reasoning": {"mode": "effort", "effort": "low"}}, {"reasoning_effort": "low"}),
    "chat temperature null": ("chat", {"temperature": None}, {"temperature": None}),
    "chat newer name of the limit": (
        "chat",
        {"extra_body": {"max_completion_tokens": 9}},
        {"max_completion_tokens": 9, "max_tokens": None},
    ),
    "chat no tools": ("chat", {"native_tools": False}, {"tools": None, "tool_choice": None}),
    "chat budget": (
        "chat",
        {"reasoning": {"mode": "budget", "budget_tokens": 50}},
        {"reasoning": {"max_tokens": 50}},
    ),
    "no cache": ("responses", {"prompt_cache": "off"}, {"prompt_cache_key": None}),
    "no tools": ("messages", {"native_tools": False}, {"tools": None}),
}


@pytest.mark.parametrize(("protocol", "options", "expected"), OPTIONS.values(), ids=OPTIONS.keys())
def test_settings(protocol: ProtocolName, options: dict[str, Any], expected: dict[str, Any]) -> None:
    sent = request(protocol, conversation(protocol), **options)
    assert {name: sent.get(name) for name in expected} == expected


REFUSED = {
    "budget without tokens": ("chat", {"reasoning": {"mode": "budget"}}),
    "tokens without budget": ("chat", {"reasoning": {"mode": "effort", "budget_tokens": 5}}),
    "budget of Responses": ("responses", {"reasoning": {"mode": "budget", "budget_tokens": 5}}),
    "budget above the reply": ("messages", {"reasoning": {"mode": "budget", "budget_tokens": 100}}),
    **{f"{name} by hand": ("chat", {"extra_body": {name: 1}}) for name in ("messages", "model", "stream", "tools")},
    "contents by hand": ("gemini", {"extra_body": {"contents": []}}),
}


@pytest.mark.parametrize(("protocol", "options"), REFUSED.values(), ids=REFUSED.keys())
def test_settings_that_are_refused(protocol: ProtocolName, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"budget|extra_body"):
        agent(protocol, **options)


def test_at_most_four_marks_and_none_without_cache() -> None:
    many = [*conversation("messages"), *conversation("messages")[2:], *conversation("messages")[2:]]
    assert json.dumps(request("messages", many)).count("cache_control") == 4
    assert "cache_control" not in json.dumps(request("messages", many, prompt_cache="off"))


def test_chat_marks_only_models_that_need_it() -> None:
    sent = request("chat", conversation("chat"), model="anthropic/claude-x")["messages"]
    assert [type(message["content"]) for message in sent] == [list, str, str, str, list, list]
    assert sent[0]["content"] == [{"type": "text", "text": "you are"} | MARK]
    assert "cache_control" not in json.dumps(request("chat", conversation("chat")))


@pytest.mark.parametrize("protocol", NAMES)
def test_reasoning_that_is_not_to_be_echoed(protocol: ProtocolName) -> None:
    for native in (True, False):
        sent = json.dumps(request(protocol, conversation(protocol), echo_reasoning=False, native_tools=native))
        assert not any(word in sent for word in ("Two calls", "ZW5j", "ZGF0YQ"))


def test_no_empty_text_beside_calls() -> None:
    """Some servers refuse an empty text block; the protocol allows null beside calls."""
    silent = ChatMessage("assistant", "", (ToolCall("i1", "run", "{}"),))
    assert request("chat", [silent])["messages"][0]["content"] is None


def test_models_without_tools_get_alternating_text() -> None:
    sent = request("chat", conversation("chat"), native_tools=False)["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[3]["content"] == '[RESULT] {"status": "ok"}\n\n[RESULT] plain\n\n[BUDGET] 50%'
    assert "tool_calls" not in sent[2]


@pytest.mark.parametrize("protocol", NEW)
def test_repaired_ids_and_arguments_replace_what_came(protocol: ProtocolName) -> None:
    messages = conversation(protocol)
    calls = (ToolCall("new", "run", '{"code": "mended"}'), messages[2].calls[1])
    messages[2:4] = [
        ChatMessage("assistant", messages[2].content, calls, opaque=messages[2].opaque),
        ChatMessage("tool", "x", call_id="new"),
    ]
    sent = json.dumps(request(protocol, messages))
    assert "mended" in sent and "\\u00e9" not in sent
    # Gemini tells an id only where the call came with one.
    assert sent.count('"new"') == (0 if protocol == "gemini" else 2)


@pytest.mark.parametrize("protocol", NEW)
def test_calls_written_as_text_stay_text(protocol: ProtocolName) -> None:
    said = ChatMessage("assistant", "<call>", (ToolCall("recovered_1", "run", "{}", recovered=True),))
    messages = [ChatMessage("user", "hello"), said, ChatMessage("tool", "done", call_id="recovered_1")]
    sent = json.dumps(request(protocol, messages))
    assert "[RESULT] done" in sent and "<call>" in sent
    assert not any(word in sent for word in ("tool_use", "function_call", "functionCall"))


# --- addresses -----------------------------------------------------------------------------------------------------

ROOTS: list[tuple[ProtocolName, str, str]] = [
    ("chat", "http://x", "http://x"),
    ("chat", "http://x/v1/", "http://x/v1"),
    ("responses", "https://x", "https://x/v1"),
    ("responses", "https://x/v1", "https://x/v1"),
    ("responses", "https://x/openai/deployments", "https://x/openai/deployments"),
    ("messages", "https://x", "https://x/v1"),
    ("messages", "https://x/v1/", "https://x/v1"),
    ("messages", "https://x/v1/a/anthropic", "https://x/v1/a/anthropic/v1"),
    ("gemini", "https://x", "https://x/v1beta"),
    ("gemini", "https://x/v1beta", "https://x/v1beta"),
    ("gemini", "https://x/v1", "https://x/v1"),
]


@pytest.mark.parametrize(("protocol", "base_url", "root"), ROOTS)
def test_base_urls(protocol: ProtocolName, base_url: str, root: str) -> None:
    assert api_root(base_url, protocol) == root


HEADERS = {
    "chat": {"authorization": f"Bearer {KEY}"},
    "responses": {"authorization": f"Bearer {KEY}"},
    "messages": {"x-api-key": KEY, "anthropic-version": "2023-06-01"},
    "gemini": {"x-goog-api-key": KEY},
}


@pytest.mark.parametrize("protocol", NAMES)
def test_credentials(protocol: ProtocolName) -> None:
    with ScriptedServer(answers=[Answer(body=GOLDEN[protocol][0])]) as server:
        reply = ask(protocol, server.url if protocol == "chat" else server.root)
        assert reply.content == "I run both." and reply.body is None
        shown = {name: text for name, text in server.headers[0].items() if KEY in text or name == "anthropic-version"}
    assert shown == HEADERS[protocol]


# --- faults --------------------------------------------------------------------------------------------------------


def ask(protocol: ProtocolName, url: str, **options: Any) -> Reply:
    with EndpointModel(agent(protocol, url, **options), [KEY], sleep=lambda _s: None) as model:
        return model.reply([ChatMessage("user", "hello")], [TOOL], 60)


def anthropic(kind: str, message: str = "") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


FAULTS: dict[str, tuple[ProtocolName, Any, str]] = {
    "refusal": ("messages", MESSAGE | {"stop_reason": "refusal"}, "content_policy"),
    "error in a 200": ("messages", anthropic("overloaded_error"), "server"),
    "prompt blocked": ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}, "content_policy"),
    "safety": ("gemini", GEMINI | chunk(finish="SAFETY"), "content_policy"),
    "no candidate": ("gemini", {"candidates": []}, "malformed"),
    "failed": ("responses", RESPONSE | {"status": "failed", "error": {"code": "server_error"}}, "server"),
    "failed by rate": (
        "responses",
        RESPONSE | {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": ""}},
        "rate_limit",
    ),
    "filtered": (
        "responses",
        RESPONSE | {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
        "content_policy",
    ),
    "stream with an error": (
        "messages",
        MESSAGE_STREAM[:900] + sse(anthropic("overloaded_error", "Overloaded")),
        "server",
    ),
    "stream of Google with an error": (
        "gemini",
        sse(chunk({"text": "a"}), {"error": {"code": 503, "status": "UNAVAILABLE", "message": ""}}),
        "server",
    ),
    "stream of Responses with an error": (
        "responses",
        sse(
            {"type": "response.failed", "response": RESPONSE | {"status": "failed", "error": {"code": "server_error"}}}
        ),
        "server",
    ),
}


@pytest.mark.parametrize(("protocol", "body", "kind"), FAULTS.values(), ids=FAULTS.keys())
def test_what_is_no_reply(protocol: ProtocolName, body: Any, kind: str) -> None:
    with pytest.raises(FaultyReply) as caught:
        parse(protocol, body)
    assert caught.value.fault.kind == kind


@pytest.mark.parametrize("protocol", NAMES)
def test_a_stream_that_ends_early_is_no_reply(protocol: ProtocolName) -> None:
    """Every beginning of a stream, cut at an event."""
    stream = GOLDEN[protocol][1]
    events = stream.split(b"\n\n")[:-1]
    # Chat is whole with its finish_reason; usage and the end mark are sent behind it.
    whole = len(events) - (2 if protocol == "chat" else 0)
    for count in range(1, whole):
        with pytest.raises(FaultyReply) as caught:
            parse(protocol, b"\n\n".join(events[:count]) + b"\n\n")
        assert caught.value.fault.kind == "network"
    assert parse(protocol, b"\n\n".join(events[:whole]) + b"\n\n").content == "I run both."


def test_what_a_cut_stream_had_cost_is_spent() -> None:
    """127 tokens were read and 1 written when message_start came; 177 with the second attempt."""
    cut = MESSAGE_STREAM.partition(b"event: ping")[0]
    with ScriptedServer(answers=[Answer(body=cut), Answer(body=MESSAGE)]) as server:
        reply = ask("messages", server.root, stream=True)
    assert [each.tokens.total for each in reply.spent] == [128, 177]
    assert reply.usage.total == 177


# --- the loop against a server that demands back what it gave ------------------------------------------------------


def code(*programs: str) -> ScriptedTurn:
    calls = [CodeStep(tool="execute_code", language="bash", code=program) for program in programs]
    return ScriptedTurn(content="Next.", calls=calls)


SCRIPT = [
    code("write plan/plan.md"),
    code("write a", "write b"),
    code("print c"),
    code(ALL_OUTPUTS),
    ScriptedTurn(calls=[SubmitStep(tool="submit_results", summary="done")]),
]


def play(folder: Path, protocol: ProtocolName, server: ScriptedServer, **options: Any) -> tuple[Bench, str]:
    settings = {"context_tokens": options.pop("context_tokens", 200_000), "limits": options.pop("limits", Limits())}
    url = server.url if protocol == "chat" else server.root
    model = EndpointModel(agent(protocol, url, **options), [KEY], sleep=lambda _s: None)
    with model, Bench(folder, model, **settings) as bench:  # type: ignore[arg-type]
        ending = bench.loop.run()
    return bench, ending.outcome


@pytest.mark.parametrize("protocol", NAMES)
def test_a_run_on_a_demanding_server(protocol: ProtocolName, tmp_path: Path) -> None:
    with ScriptedServer(SCRIPT, demand=True, usage=usage_rule, keys=[KEY]) as server:
        bench, outcome = play(tmp_path, protocol, server, limits=Limits(max_turns=8))
        assert outcome == "submitted"
        assert [exchange.status for exchange in server.exchanges] == [200] * 5
    used = [usage_rule(turn) for turn in range(1, 6)]
    tokens = bench.loop.totals().tokens
    assert (tokens.prompt, tokens.completion) == (sum(u.prompt for u in used), sum(u.output for u in used))
    assert (tokens.cached, tokens.reasoning) == (sum(u.cache_read for u in used), sum(u.reasoning for u in used))
    # Gemini does not tell what was written to its cache.
    assert tokens.cache_write == (0 if protocol == "gemini" else sum(u.cache_write for u in used))
    said = [message for message in bench.loop.dialogue.records() if message.role == "assistant"]
    assert said[0].reasoning == "What step 1 needs is thought over here."


TROUBLE = {
    2: [ServerFault(kind="rate_limit_headers"), ServerFault(kind="status_529")],
    3: [ServerFault(kind="stream_error"), ServerFault(kind="stream_cut")],
    4: [ServerFault(kind="context_400")],
}


@pytest.mark.parametrize("protocol", NAMES)
def test_trouble_on_the_way_of_streams(protocol: ProtocolName, tmp_path: Path) -> None:
    """Limits, overload, broken streams are waited out; what is too long is shortened, and still valid."""
    plan = FaultPlan(turns=TROUBLE)
    with ScriptedServer(SCRIPT, demand=True, faults=plan) as server:
        _, outcome = play(tmp_path, protocol, server, stream=True)
        assert outcome == "submitted"
        # A fault inside a stream has status 200 all the same.
        assert sum(exchange.status == 200 and not exchange.fault for exchange in server.exchanges) == 5
        assert {exchange.fault for exchange in server.exchanges} - {""} == {
            fault.kind for faults in TROUBLE.values() for fault in faults
        }


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_a_call_that_was_cut(protocol: ProtocolName, tmp_path: Path) -> None:
    """Gemini leaves such a call out. The others tell what there is of it, and it goes back in a valid form."""
    plan = FaultPlan(turns={3: [ServerFault(kind="length_cut")]})
    with ScriptedServer(SCRIPT, demand=True, faults=plan) as server:
        bench, outcome = play(tmp_path, protocol, server, stream=True)
        assert outcome == "submitted"
        assert {exchange.status for exchange in server.exchanges} == {200}
    told = [message.content for message in bench.loop.dialogue.records() if message.turn == 3]
    assert any("cut by its length limit" in content for content in told)


@pytest.mark.parametrize("protocol", NEW)
def test_a_shortened_conversation_is_valid(protocol: ProtocolName, tmp_path: Path) -> None:
    """A small window: outputs go first, then turns; pairs stay whole and the signed thoughts of what is left too."""
    script = [*[code("print " + "x" * 3000, "print y")] * 12, *SCRIPT[3:]]
    with ScriptedServer(script, demand=True) as server:
        _, outcome = play(tmp_path, protocol, server, context_tokens=6000, max_tokens=1000)
        assert outcome == "submitted"
        assert {exchange.status for exchange in server.exchanges} == {200}
        if protocol == "messages":
            for sent in server.requests:
                check_pairs(sent["messages"])
    events = (tmp_path / "log/events.jsonl").read_text()
    assert events.count('"compaction"') > 2 and "[SUMMARY]" in json.dumps(server.requests[-1])


def check_pairs(messages: list[dict[str, Any]]) -> None:
    """Roles alternate, and every tool_use has its result at the head of the next message."""
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    for said, answered in zip(messages[1::2], messages[2::2], strict=True):
        ids = [block["id"] for block in said["content"] if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in answered["content"][: len(ids)]]
        assert ids == results


REST = re.compile(r'(\\*"remaining_s\\*": )\d+')


@pytest.mark.parametrize(
    ("protocol", "stream"), [("chat", False), ("responses", True), ("messages", True), ("gemini", False)]
)
def test_a_run_that_died_goes_on_with_the_same_bytes(
    protocol: ProtocolName, stream: bool, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed behind the third reply: the next process asks what the undisturbed run asked, keys in the same order."""
    monkeypatch.setenv(KEY_NAME, KEY)
    plan = make_plan(tmp_path, root)
    # Other files are expected here: the first submission is refused.
    script = [*SCRIPT, SCRIPT[-1]]

    def play_whole(folder: Path) -> list[str]:
        with ScriptedServer(script, demand=True, usage=(300, 20)) as server:
            url = server.url if protocol == "chat" else server.root
            settings = plan.agent.model_dump() | {"protocol": protocol, "base_url": url, "stream": stream}
            here = replace(plan, folder=folder, agent=Agent.model_validate(settings))
            if folder.name == "died":
                assert in_child(lambda: die_behind_a_reply(here)) == DIED
            assert play_plan(here).outcome == "submitted"
            assert {exchange.status for exchange in server.exchanges} == {200}
            return [REST.sub(r"\1#", json.dumps(request)) for request in server.requests]

    whole, died = play_whole(tmp_path / "whole"), play_whole(tmp_path / "died")
    assert len(whole) == len(script)
    assert died == whole


def play_plan(plan: RunPlan) -> RunRecord:
    return start(
        plan,
        open_model=lambda plan, keys, *_: EndpointModel(plan.agent, keys, sleep=lambda _s: None),
        open_sandbox=lambda _plan, attempt, *_: FakeSandbox(attempt.workspace, Clock()),
    )


def die_behind_a_reply(plan: RunPlan) -> None:
    """The process ends when the third reply stands in the journal."""
    real, replies = Journal._append, 0

    def append(journal: Journal, line: Line) -> None:
        nonlocal replies
        real(journal, line)
        replies += line.kind == "reply" and line.type == "effect"
        if replies == 3:
            os._exit(DIED)

    Journal._append = append  # type: ignore[method-assign]
    play_plan(plan)
