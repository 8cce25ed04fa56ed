"""A model behind a chat endpoint on loopback: requests, replies, waits; all faults: test_endpoint_faults.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import (
    ChatMessage,
    ContextOverflow,
    EndpointError,
    ProviderRefusal,
    Reply,
    ToolCall,
)
from automedbench.agent.tools import tool_specs
from automedbench.base.endpoint.client import Attempt
from automedbench.base.endpoint.faults import retry_after
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

KEY = "sk-canary-0123456789"
HELLO = [ChatMessage("system", "you are"), ChatMessage("user", "hello")]
GOOD = Answer(body=completion())


@dataclass
class Asked:
    """One request with everything around it."""

    reply: Reply | None = None
    error: Exception | None = None
    waits: list[float] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def agent(url: str, **options: Any) -> Agent:
    return Agent(provider="openai", model="m", base_url=url, api_key_env="TEST_KEY", **options)


def ask(
    *answers: Answer,
    messages: Sequence[ChatMessage] = HELLO,
    timeout_s: float = 600,
    jitter: Callable[[], float] = lambda: 1.0,
    **options: Any,
) -> Asked:
    asked = Asked()
    with ScriptedServer(answers=answers) as server:
        model = EndpointModel(
            agent(server.url, **options),
            [KEY],
            on_attempt=asked.attempts.append,
            sleep=asked.waits.append,
            jitter=jitter,
        )
        with model:
            try:
                asked.reply = model.reply(messages, tool_specs("run"), timeout_s)
            except Exception as error:
                asked.error = error
        asked.requests, asked.headers = server.requests, server.headers
    return asked


def status(code: int, message: str = "", headers: dict[str, str] | None = None) -> Answer:
    return Answer(code, {"error": {"message": message}}, headers or {})


# --- good replies ----------------------------------------------------------------------------------------------


def test_good_reply() -> None:
    asked = ask(GOOD)
    assert asked.reply is not None
    assert (asked.reply.content, asked.reply.finish_reason, asked.reply.model) == ("hi", "stop", "served-model")
    assert asked.reply.usage == Tokens(prompt=3, completion=2)
    assert asked.reply.spent == (Billed(asked.reply.usage),)
    assert asked.waits == []
    assert [attempt.kind for attempt in asked.attempts] == ["ok"]


def test_the_request() -> None:
    asked = ask(GOOD, temperature=0.2, max_tokens=77, extra_body={"top_k": 5})
    body = asked.requests[0]
    assert (body["model"], body["max_tokens"], body["temperature"], body["top_k"]) == ("m", 77, 0.2, 5)
    assert body["messages"] == [{"role": "system", "content": "you are"}, {"role": "user", "content": "hello"}]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["execute_code", "wait", "submit_results"]
    assert body["tool_choice"] == "auto"


OPERATORS = {
    "OPENAI_API_KEY": "sk-operators-own",
    "OPENAI_ADMIN_KEY": "sk-operators-admin",
    "OPENAI_ORG_ID": "operators-organisation",
    "OPENAI_PROJECT_ID": "operators-project",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_CUSTOM_HEADERS": "X-Mine: operators-header\nAuthorization: Bearer operators-other",
}


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_nothing_of_the_operators_openai_settings_is_sent(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is the entry's, and no header says more of this machine than HTTP needs."""
    for name, value in OPERATORS.items():
        monkeypatch.setenv(name, value)
    asked = ask(GOOD, protocol=protocol, stream=True, timeout_s=5)
    (headers, *_) = asked.headers
    assert headers.pop("authorization") == f"Bearer {KEY}"
    assert headers.pop("user-agent") == "automedbench"
    assert headers.pop("x-stainless-raw-response") == "stream"  # how the library was called
    assert set(headers) == {"host", "accept", "accept-encoding", "connection", "content-length", "content-type"}
    assert "operators" not in str(asked.headers)


def test_the_library_is_imported_with_the_first_request_that_needs_it() -> None:
    program = """
import sys
from automedbench.base.endpoint.client import Client, RequestGivenUp, EndpointTarget
for protocol in ("messages", "gemini", "chat"):
    with Client(EndpointTarget("http://127.0.0.1:9", "m", ("k",), "KEY", protocol=protocol), max_attempts=1) as client:
        try:
            client.ask({}, bytes, 5, "/x")
        except RequestGivenUp:
            print(protocol, "openai" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["messages", "False", "gemini", "False", "chat", "True"]


BODIES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "temperature null is not sent": ({"temperature": None}, {}, ["temperature"]),
    "reasoning field": ({"reasoning": {"mode": "field"}}, {"reasoning": {"enabled": True}}, []),
    "reasoning effort": ({"reasoning": {"mode": "effort", "effort": "low"}}, {"reasoning_effort": "low"}, []),
    "newer name of the reply limit": (
        {"extra_body": {"max_completion_tokens": 9}},
        {"max_completion_tokens": 9},
        ["max_tokens"],
    ),
    "no tools": ({"native_tools": False}, {}, ["tools", "tool_choice"]),
}


@pytest.mark.parametrize(("options", "sent", "left_out"), BODIES.values(), ids=BODIES.keys())
def test_options_of_the_request(options: dict[str, Any], sent: dict[str, Any], left_out: list[str]) -> None:
    body = ask(GOOD, **options).requests[0]
    assert {name: body.get(name) for name in sent} == sent
    assert not set(left_out) & set(body)


CALL = ChatMessage(
    "assistant", "text", (ToolCall("i1", "execute_code", '{"a": 1}'),), opaque={"reasoning_content": "thought"}
)
RESULT = ChatMessage("tool", '{"status": "ok"}', call_id="i1")
NOTICE = ChatMessage("user", "[BUDGET] 50%")


def test_calls_and_reasoning_are_echoed() -> None:
    sent = ask(GOOD, messages=[*HELLO, CALL, RESULT]).requests[0]["messages"]
    assert sent[2]["tool_calls"] == [
        {"id": "i1", "type": "function", "function": {"name": "execute_code", "arguments": '{"a": 1}'}}
    ]
    assert sent[2]["reasoning_content"] == "thought"
    assert sent[3] == {"role": "tool", "tool_call_id": "i1", "content": '{"status": "ok"}'}


def test_reasoning_that_a_provider_refuses_is_not_echoed() -> None:
    for native_tools in (True, False):
        asked = ask(GOOD, messages=[*HELLO, CALL, RESULT], echo_reasoning=False, native_tools=native_tools)
        assert "thought" not in str(asked.requests)


def test_no_empty_text_beside_calls() -> None:
    """Some servers refuse an empty text block; the protocol allows null beside calls."""
    silent = ChatMessage("assistant", "", CALL.calls)
    assert ask(GOOD, messages=[*HELLO, silent, RESULT]).requests[0]["messages"][2]["content"] is None


@pytest.mark.parametrize("name", ["messages", "model", "stream", "tools"])
def test_extra_body_leaves_the_protocol_alone(name: str) -> None:
    with pytest.raises(ValueError, match=f"must not hold '{name}'"):
        agent("http://x", extra_body={name: 1})


def test_models_without_tools_get_alternating_text() -> None:
    sent = ask(GOOD, messages=[*HELLO, CALL, RESULT, NOTICE], native_tools=False).requests[0]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[3]["content"] == '[RESULT] {"status": "ok"}\n\n[BUDGET] 50%'
    assert "tool_calls" not in sent[2]


def native(arguments: Any, **extra: Any) -> dict[str, Any]:
    return completion(
        None, tool_calls=[{"id": "1", "function": {"name": "execute_code", "arguments": arguments}} | extra]
    )


REPLIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "call": (native('{"a": 1}'), {"calls": (ToolCall("1", "execute_code", '{"a": 1}'),)}),
    "arguments as object": (native({"a": 1}), {"calls": (ToolCall("1", "execute_code", '{"a": 1}'),)}),
    "arguments missing": (native(None), {"calls": (ToolCall("1", "execute_code", "{}"),)}),
    "calls of a wrong type": (completion("x", tool_calls="none"), {"calls": (), "content": "x"}),
    "call without function": (completion("x", tool_calls=[{"id": "1"}, 5]), {"calls": ()}),
    "content null": (completion(None), {"content": ""}),
    "content in parts": (completion([{"type": "text", "text": "a"}, {"text": "b"}, "c"]), {"content": "ab"}),
    "lone surrogate": (completion("a\ud800"), {"content": "a\ufffd"}),
    "reasoning": (completion("x", reasoning_content="hm"), {"opaque": {"reasoning_content": "hm"}}),
    "cut": (completion("x", finish="length"), {"finish_reason": "length"}),
    # "hello" + "you are" are 12 characters, the reply "xxxx" 4; characters / 4 (docs/specification.md, 8.5).
    "usage null": (completion("xxxx", usage=None), {"usage": Tokens(prompt=3, completion=1, estimated=True)}),
    "usage of a wrong type": (completion("xxxx", usage=7), {"usage": Tokens(prompt=3, completion=1, estimated=True)}),
    "usage with null counts": (
        completion("xxxx", usage={"prompt_tokens": None}),
        {"usage": Tokens(prompt=3, completion=1, estimated=True)},
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


@pytest.mark.parametrize(("body", "expected"), REPLIES.values(), ids=REPLIES.keys())
def test_reply_is_read(body: dict[str, Any], expected: dict[str, Any]) -> None:
    reply = ask(Answer(body=body)).reply
    assert {name: getattr(reply, name) for name in expected} == expected


# --- transient faults ------------------------------------------------------------------------------------------

# Waits by hand with a jitter of 1: 2, 4, 8, … s, capped at 60 (docs/specification.md, 8.5).
REPEATED: dict[str, tuple[list[Answer], list[float]]] = {
    "429": ([status(429), GOOD], [2]),
    "429 with Retry-After": ([status(429, headers={"Retry-After": "7"}), GOOD], [7]),
    "429 with a huge Retry-After": ([status(429, headers={"Retry-After": "9999"}), GOOD], [300]),
    "429 with Retry-After 0": ([status(429, headers={"Retry-After": "0"}), GOOD], [2]),
    "429 with nonsense": ([status(429, headers={"Retry-After": "soon"}), GOOD], [2]),
    "server errors": ([status(code) for code in (500, 502, 503, 504, 529, 408)] + [GOOD], [2, 4, 8, 16, 32, 60]),
    "conflict": ([status(409), GOOD], [2]),
    "rate limit in a 200": ([Answer(body={"error": {"code": 429}}), GOOD], [2]),
    "text error in a 200": ([Answer(body={"error": "server_error"}), GOOD], [2]),
}


@pytest.mark.parametrize(("answers", "waits"), REPEATED.values(), ids=REPEATED.keys())
def test_transient_faults_are_repeated(answers: list[Answer], waits: list[float]) -> None:
    asked = ask(*answers)
    assert asked.reply is not None and asked.reply.content == "hi"
    assert asked.waits == pytest.approx(waits, abs=0.2)
    assert asked.reply.retry_s >= sum(waits)
    assert len(asked.attempts) == len(answers)


def test_jitter_is_full() -> None:
    assert ask(status(500), status(500), GOOD, jitter=lambda: 0.25).waits == [0.5, 1.0]


EXHAUSTED = {"server": (status(503), 8), "malformed": (Answer(body=b"<html>"), 4)}


@pytest.mark.parametrize(("answer", "attempts"), EXHAUSTED.values(), ids=EXHAUSTED.keys())
def test_attempts_are_bounded(answer: Answer, attempts: int) -> None:
    asked = ask(answer)
    assert isinstance(asked.error, EndpointError)
    assert isinstance(asked.error, InfrastructureError)
    assert len(asked.requests) == attempts
    assert len(asked.waits) == attempts - 1
    assert len(str(asked.error).splitlines()) <= 3


def test_no_credit_is_no_rate_limit() -> None:
    """OpenAI says with 429 that the account is empty: waiting would not help."""
    asked = ask(Answer(429, {"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}))
    assert len(asked.requests) == 1
    assert "Check the key in" in str(asked.error)


def test_faults_of_two_kinds_share_the_bound() -> None:
    answers = [Answer(body=b"x"), status(500)] * 10
    assert len(ask(*answers).requests) <= 8


def test_tokens_of_failed_attempts_count() -> None:
    paid = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 0}}
    reply = ask(Answer(body=paid), GOOD).reply
    assert reply is not None
    assert reply.usage == Tokens(prompt=3, completion=2)
    assert reply.spent == (Billed(Tokens(prompt=100)), Billed(reply.usage))


# --- faults that repeating does not mend -----------------------------------------------------------------------

FINAL: dict[str, tuple[Answer, type[Exception], int]] = {
    "context of llama.cpp": (
        status(400, "request (9876 tokens) exceeds the available context size"),
        ContextOverflow,
        1,
    ),
    "context of llama.cpp, by type": (status(400, '{"type": "exceed_context_size_error"}'), ContextOverflow, 1),
    "policy 403": (status(403, "content policy violation"), ProviderRefusal, 2),
}


@pytest.mark.parametrize(("answer", "error", "requests"), FINAL.values(), ids=FINAL.keys())
def test_final_faults(answer: Answer, error: type[Exception], requests: int) -> None:
    asked = ask(answer)
    assert type(asked.error) is error
    assert len(asked.requests) == requests
    assert asked.waits == [0.0] * (requests - 1)


def test_a_policy_fault_that_passes_is_a_reply() -> None:
    assert ask(status(400, "content_filter"), GOOD).reply is not None


# --- Retry-After -----------------------------------------------------------------------------------------------

NOON = 1767268800.0  # 2026-01-01 12:00:00 UTC, by `date -u -d '2026-01-01 12:00' +%s`


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", None),
        ("1.5", 1.5),
        ("-3", None),
        ("inf", None),
        ("nan", None),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", None),
        ("Thu, 01 Jan 2026 13:00:00 GMT", 300.0),
    ],
)
def test_retry_after(value: str | None, expected: float | None) -> None:
    assert retry_after({} if value is None else {"retry-after": value}, NOON) == expected
