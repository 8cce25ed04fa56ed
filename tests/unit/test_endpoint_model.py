"""A model behind an endpoint over real HTTP: every way to fail in four protocols, waits, time, addresses, keys.

Classes of faults and how often each is tried: docs/specification.md, 8.5.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from automedbench.agent.faults import PUT_OFF
from automedbench.agent.log import Masker, RunLog
from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import (
    ChatMessage,
    ContextOverflow,
    EndpointError,
    ProviderRefusal,
    Reply,
    ReplyTimeout,
    RequestRejected,
)
from automedbench.agent.models.scripted import CodeStep, ScriptedTurn
from automedbench.agent.tools import tool_specs
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.client import SHORT_WAIT_S, Attempt, RequestGivenUp
from automedbench.base.endpoint.faults import parse_retry_after
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent
from automedbench_rehearsal.model_server.faults import FINAL, HARMLESS, TRANSIENT, FaultPlan, ServerFault
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

KEYS = [f"sk-canary-{number}-0123456789" for number in range(4)]
HELLO = [ChatMessage("system", "you are"), ChatMessage("user", "hello")]
TURNS = [ScriptedTurn(content="I compute", calls=[CodeStep(tool="execute_code", language="python", code="print(1)")])]
GOOD = Answer(body=completion())
PROTOCOLS: tuple[ProtocolName, ...] = ("chat", "responses", "messages", "gemini")


@dataclass
class Asked:
    """One request with everything around it."""

    reply: Reply | None = None
    error: Exception | None = None
    waits: list[float] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [attempt.kind for attempt in self.attempts]

    @property
    def keys(self) -> list[str]:
        return [headers["authorization"].removeprefix("Bearer ") for headers in self.headers]


def agent(url: str, **options: Any) -> Agent:
    source = {"api_key_file": "/keys"} if options.get("api_key_rotation") else {"api_key_env": "TEST_KEY"}
    return Agent.model_validate({"provider": "openai", "model": "m", "base_url": url} | source | options)


def ask(
    server: ScriptedServer | str,
    timeout_s: float = 600,
    requests: int = 1,
    jitter: Callable[[], float] = lambda: 1.0,
    slow: bool = False,
    **options: Any,
) -> Asked:
    asked = Asked()
    if isinstance(server, ScriptedServer):
        url = server.url if options.get("protocol", "chat") == "chat" else server.root
    else:
        url = server
    with EndpointModel(
        agent(url, **options),
        KEYS,
        on_attempt=asked.attempts.append,
        sleep=asked.waits.append,
        jitter=jitter,
        slow=slow,
    ) as model:
        try:
            for _ in range(requests):
                asked.reply = model.reply(HELLO, tool_specs("run"), timeout_s)
        except Exception as error:
            asked.error = error
    if isinstance(server, ScriptedServer):
        asked.headers = server.headers
    return asked


def with_answers(*answers: Answer, **options: Any) -> Asked:
    """These answers one after the other, the last one again and again."""
    with ScriptedServer(answers=answers) as server:
        return ask(server, **options)


def with_fault(kind: str, seconds: float | None = 0.5, **options: Any) -> Asked:
    """The first answer has the fault, the next is good."""
    plan = FaultPlan(requests={1: ServerFault(kind=kind, seconds=seconds)})
    with ScriptedServer(TURNS, faults=plan) as server:
        return ask(server, **options)


# --- what is sent ----------------------------------------------------------------------------------------------

OPERATORS = {
    "OPENAI_API_KEY": "sk-operators-own",
    "OPENAI_ADMIN_KEY": "sk-operators-admin",
    "OPENAI_ORG_ID": "operators-organisation",
    "OPENAI_PROJECT_ID": "operators-project",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_CUSTOM_HEADERS": "X-Mine: operators-header\nAuthorization: Bearer operators-other",
}


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_nothing_of_the_operators_openai_settings_is_sent(
    protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint is the entry's, and no header says more of this machine than HTTP needs."""
    for name, value in OPERATORS.items():
        monkeypatch.setenv(name, value)
    asked = with_answers(GOOD, protocol=protocol, stream=True, timeout_s=5)
    (headers, *_) = asked.headers
    assert headers.pop("authorization") == f"Bearer {KEYS[0]}"
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
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["messages", "False", "gemini", "False", "chat", "True"]


# --- classes (docs/specification.md, 8.5) -----------------------------------------------------------------

SENDING = ("too_large", "timeout", "body_timeout", "drip", "padding", "gzip", "redirect")
"""Faults that do not depend on the protocol: tried with one."""


def in_protocols(*kinds: str) -> list[Any]:
    """Each fault in each protocol."""
    return [
        pytest.param(kind, protocol, id=f"{protocol}-{kind}")
        for protocol in PROTOCOLS
        for kind in kinds
        if protocol == "chat" or kind not in SENDING
    ]


@pytest.mark.parametrize(("kind", "protocol"), in_protocols(*HARMLESS, "function_call", "hosted_tool", "limit_ignored"))
def test_harmless_oddities_are_read(kind: str, protocol: ProtocolName) -> None:
    asked = with_fault(kind, protocol=protocol)
    assert asked.reply is not None, asked.error
    assert asked.kinds == ["ok"]
    assert asked.reply.content == "I compute"
    assert [json.loads(call.arguments)["code"] for call in asked.reply.calls] == ["print(1)"]
    assert asked.reply.usage.total > 0
    assert asked.reply.usage.estimated == kind.startswith("usage")
    assert (asked.reply.usage.completion > 4000) == (kind == "limit_ignored")


CLASSES = {
    **{kind: "rate_limit" for kind in TRANSIENT if kind.startswith("rate_limit")},
    **{kind: "server" for kind in TRANSIENT if kind.startswith("status_")},
    **dict.fromkeys(("cut_at_once", "cut_body", "timeout", "body_timeout"), "network"),
    "error_in_200": "server",
    "stream_error": "server",
    "stream_cut": "network",
    "rate_limit_headers": "rate_limit",
    # "200 with non-JSON, non-object, no choices, choice without message"; the others are no completion either.
    **dict.fromkeys(("not_json", "empty_body", "not_object", "no_choices", "message_null"), "malformed"),
    **dict.fromkeys(("redirect", "broken_gzip", "too_large"), "malformed"),
}


@pytest.mark.parametrize(
    ("kind", "protocol"), in_protocols(*TRANSIENT, "rate_limit_headers", "stream_error", "stream_cut")
)
def test_transient_faults_are_repeated(kind: str, protocol: ProtocolName) -> None:
    silent = kind in ("timeout", "body_timeout")
    more = {"request_timeout_s": 1.0} if silent else {}
    asked = with_fault(kind, 30.0 if silent else 0.5, protocol=protocol, stream=kind.startswith("stream"), **more)
    assert asked.reply is not None, asked.error
    # One that took the whole time-out is followed by the plain request at once, and that by the next attempt.
    assert asked.kinds == [CLASSES[kind], "ok", *(["ok"] if silent else [])]
    # By hand: 2 s with a jitter of 1, or the half second that the server asks for (a date has whole seconds).
    expected = [] if silent else [0.5] if kind in ("rate_limit_seconds", "rate_limit_headers") else [2.0]
    assert asked.waits == pytest.approx(expected, abs=0.2) or kind == "rate_limit_date"
    assert asked.reply.retry_s >= sum(wait for wait in asked.waits if wait >= SHORT_WAIT_S)


FINAL_CLASSES: dict[str, tuple[type[Exception], list[str]]] = {
    **dict.fromkeys(("context_400", "context_413", "context_in_200"), (ContextOverflow, ["context_overflow"])),
    **dict.fromkeys(("filter_status", "filter_finish"), (ProviderRefusal, ["content_policy"] * 2)),
    # The server fails at this conversation alone: the plain request between the two is answered.
    **{f"status_{code}": (RequestRejected, ["bad_request", "ok", "bad_request"]) for code in (400, 404, 422)},
    **{f"status_{code}": (RequestRejected, ["auth", "ok", "auth"]) for code in (401, 402, 403)},
}


@pytest.mark.parametrize(("kind", "protocol"), in_protocols(*(kind for kind in FINAL if kind != "length_cut")))
def test_final_faults(kind: str, protocol: ProtocolName) -> None:
    plan = FaultPlan(turns={1: [ServerFault(kind=kind)] * 9})
    with ScriptedServer(TURNS, faults=plan) as server:
        asked = ask(server, protocol=protocol)
    assert (type(asked.error), asked.kinds) == FINAL_CLASSES[kind]
    assert sum(asked.waits) == 0


def test_two_faults_within_a_minute_are_not_the_requests_fault() -> None:
    """The second one finds the plain request spared, and is repeated like the first before anything is at fault."""
    asked = with_answers(status(402), GOOD, GOOD, status(402), GOOD, requests=2)
    assert asked.reply is not None, asked.error
    assert asked.kinds == ["auth", "ok", "ok", "auth", "ok"]


def test_a_policy_fault_that_passes_is_a_reply() -> None:
    assert with_answers(Answer(400, {"error": "content_filter"}), GOOD).reply is not None


def test_a_cut_reply_is_the_loops_affair() -> None:
    asked = with_fault("length_cut")
    assert asked.reply is not None
    assert asked.reply.finish_reason == "length"


# --- waits -----------------------------------------------------------------------------------------------------


def status(code: int, headers: dict[str, str] | None = None) -> Answer:
    return Answer(code, {"error": {"message": ""}}, headers or {})


# Waits by hand with a jitter of 1: 2, 4, 8, … s, capped at 60 (docs/specification.md, 8.5).
REPEATED: dict[str, tuple[list[Answer], list[float]]] = {
    "Retry-After": ([status(429, {"Retry-After": "7"}), GOOD], [7]),
    "huge Retry-After": ([status(429, {"Retry-After": "9999"}), GOOD], [300]),
    "server errors": ([status(code) for code in (500, 502, 503)] + [GOOD], [2, 4, 8]),
    # Four of the request's, two of the plain one, which is then answered; the request follows.
    "a longer outage": ([status(code) for code in (500, 502, 503, 504, 529, 408)] + [GOOD] * 2, [2, 4, 8, 2, 4]),
    "rate limit in a 200": ([Answer(body={"error": {"code": 429}}), GOOD], [2]),
    "text error in a 200": ([Answer(body={"error": "server_error"}), GOOD], [2]),
}


@pytest.mark.parametrize(("answers", "waits"), REPEATED.values(), ids=REPEATED.keys())
def test_waits(answers: list[Answer], waits: list[float]) -> None:
    asked = with_answers(*answers)
    assert asked.reply is not None and asked.reply.content == "hi"
    assert asked.waits == pytest.approx(waits, abs=0.2)
    assert asked.reply.retry_s >= sum(wait for wait in waits if wait >= SHORT_WAIT_S)
    assert len(asked.attempts) == len(answers)


def test_jitter_is_full() -> None:
    assert with_answers(status(500), status(500), GOOD, jitter=lambda: 0.25).waits == [0.5, 1.0]


EXHAUSTED = {"server": (status(503), 4 + 8), "malformed": (Answer(body=b"<html>"), 4 + 4)}
"""Attempts at the request, and at the plain one."""


@pytest.mark.parametrize(("answer", "attempts"), EXHAUSTED.values(), ids=EXHAUSTED.keys())
def test_attempts_are_bounded(answer: Answer, attempts: int) -> None:
    asked = with_answers(answer)
    assert isinstance(asked.error, EndpointError)
    assert isinstance(asked.error, InfrastructureError)
    assert len(asked.attempts) == len(asked.waits) + 2 == attempts
    assert len(str(asked.error).splitlines()) <= 3


def test_faults_of_two_kinds_share_the_bound() -> None:
    answers = [Answer(body=b"x"), status(500)] * 10
    assert len(with_answers(*answers).attempts) <= 4 + 8


def test_tokens_of_failed_attempts_count() -> None:
    paid = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 0}}
    reply = with_answers(Answer(body=paid), GOOD).reply
    assert reply is not None
    assert (reply.usage, reply.model) == (Tokens(prompt=3, completion=2), "served-model")
    assert reply.spent == (Billed(Tokens(prompt=100)), Billed(reply.usage))


NOON = 1767268800.0  # 2026-01-01 12:00:00 UTC, by `date -u -d '2026-01-01 12:00' +%s`


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", None),
        ("1.5", 1.5),
        ("0", None),
        ("-3", None),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", None),
        ("Thu, 01 Jan 2026 13:00:00 GMT", 300.0),
    ],
)
def test_retry_after(value: str | None, expected: float | None) -> None:
    assert parse_retry_after({} if value is None else {"retry-after": value}, NOON) == expected


# --- time ------------------------------------------------------------------------------------------------------


def test_what_timed_out_is_said() -> None:
    """No answer, and an answer that stops half way, are told apart; both are repeated."""
    silent = with_fault("timeout", 30.0, request_timeout_s=0.7).attempts[0]
    stuck = with_fault("body_timeout", 30.0, request_timeout_s=3.0).attempts[0]
    assert silent.body == "timeout: no answer within 0.7 s"
    assert stuck.body == "timeout: the reply came too slowly"


def test_a_drip_within_the_time_is_a_reply() -> None:
    assert with_fault("drip", 1.0).kinds == ["ok"]


def test_an_attempt_ends_in_time_however_slow_the_drip() -> None:
    """Every piece comes soon enough for a time-out per read; the whole must not take longer all the same."""
    asked = with_fault("drip", 20.0, request_timeout_s=2.0)
    assert asked.kinds == ["network", "ok", "ok"]
    assert asked.attempts[0].elapsed_s < 10


def test_a_slow_error_body_does_not_hold_up() -> None:
    answers = [Answer(503, {"error": "x" * 5000}, drip_s=60.0), Answer(body=completion())]
    with ScriptedServer(answers=answers) as server:
        asked = ask(server, request_timeout_s=1.0)
    assert asked.kinds == ["server", "ok"]
    assert asked.attempts[0].elapsed_s < 20


def test_a_huge_error_body_is_cut() -> None:
    answers = [Answer(503, b"x", padding=50 * 1024 * 1024), Answer(body=completion())]
    with ScriptedServer(answers=answers) as server:
        assert ask(server).kinds == ["server", "ok"]


def test_the_run_ends_first() -> None:
    asked = with_fault("body_timeout", 30.0, timeout_s=0.5)
    assert isinstance(asked.error, ReplyTimeout)
    assert asked.kinds == ["network"]


# --- addresses -------------------------------------------------------------------------------------------------


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxies")
def test_a_name_that_does_not_resolve() -> None:
    """RFC 6761: names below .invalid never do."""
    asked = ask("http://endpoint.invalid/v1")
    assert isinstance(asked.error, EndpointError)
    assert asked.kinds == ["network"] * 12
    assert "endpoint.invalid" in str(asked.error)


def test_tls_to_a_server_without() -> None:
    with ScriptedServer(TURNS) as server:
        asked = ask(server.url.replace("http:", "https:"))
    assert asked.kinds == ["network"] * 12
    assert "SSL" in asked.attempts[0].body


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/v1", "127.0.0.1/v1", "http:///v1"])
def test_no_url_of_an_endpoint(url: str) -> None:
    asked = ask(url)
    assert isinstance(asked.error, EndpointError)
    assert asked.kinds == ["bad_request"] * 2


@contextmanager
def raw_server(*answers: bytes) -> Iterator[str]:
    """A socket that says what it is told, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)
            listener.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join(timeout=30)


def test_what_is_no_http_at_all() -> None:
    with raw_server(b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 999 Odd\r\nContent-Length: 1\r\n\r\nx") as url:
        asked = ask(url)
    assert asked.kinds[:2] == ["network", "server"]


def test_redirects_are_not_followed() -> None:
    """The conversation and the key go to the configured endpoint only."""
    with ScriptedServer(answers=[Answer(body=completion())]) as other:
        away = Answer(307, b"", {"Location": f"{other.url}/chat/completions?user=secret"})
        with ScriptedServer(answers=[away]) as server:
            asked = ask(server)
        assert other.count() == 0
    assert asked.kinds == ["malformed"] * 8
    assert asked.attempts[0].body == f"redirect to {other.url}/chat/completions, which is not followed"
    assert "check base_url" in str(asked.error)


# --- keys ------------------------------------------------------------------------------------------------------


def test_keys_in_turn() -> None:
    """One per attempt; the key that works is kept."""
    plan = FaultPlan(requests={number: ServerFault(kind="rate_limit") for number in (1, 2, 3, 4, 5)})
    with ScriptedServer(TURNS, faults=plan) as server:
        asked = ask(server, requests=2, api_key_rotation=True)
    assert asked.keys == [KEYS[index] for index in (0, 1, 2, 3, 0, 1, 1)]
    assert [attempt.key for attempt in asked.attempts] == [0, 1, 2, 3, 0, 1, 1]


def test_without_rotation_the_first_key() -> None:
    plan = FaultPlan(requests={1: ServerFault(kind="status_503")})
    with ScriptedServer(TURNS, faults=plan) as server:
        assert ask(server).keys == [KEYS[0]] * 2


def test_a_dead_key_of_several() -> None:
    with ScriptedServer(TURNS, keys=KEYS[2:3]) as server:
        asked = ask(server, api_key_rotation=True)
    assert (asked.kinds, asked.waits) == (["auth", "auth", "ok"], [0, 0])
    with ScriptedServer(TURNS, keys=["sk-another"]) as server:
        asked = ask(server, api_key_rotation=True)
    assert asked.kinds == ["auth"] * 8
    assert "Check the key in /keys" in str(asked.error)


ECHOES = {
    "status": Answer(401, {"error": {"message": f"key {KEYS[0]} is wrong " + "x" * 500}}),
    "no JSON": Answer(body=f"<p>{KEYS[0]}".encode()),
    "error in a 200": Answer(body={"error": {"message": KEYS[0]}}),
    # 190 characters, then the key: what is cut off must not leave half of it.
    "at the cut": Answer(500, ("y" * 190 + KEYS[0]).encode()),
    "blanks before": Answer(body=b" " * 100_000 + KEYS[0].encode() + b" end"),
    "redirect": Answer(302, b"", {"Location": f"http://u:{KEYS[0]}@127.0.0.1/{KEYS[1]}"}),
    "filtered": Answer(body=completion(KEYS[1], finish="content_filter")),
}


@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES.keys())
def test_no_key_in_logs_and_messages(answer: Answer, tmp_path: Path) -> None:
    """Without the log's own masker, too: ten characters of a key would be too many."""
    with ScriptedServer(answers=[answer]) as server:
        asked = ask(server)
    with RunLog(tmp_path / "log", Masker()) as log:
        for attempt in asked.attempts:
            log.event("api_attempt", body=attempt.body, kind=attempt.kind)
    text = (tmp_path / "log/events.jsonl").read_text() + str(asked.error) + repr(asked.error)
    assert asked.attempts and "sk-canary" not in text and "0123456" not in text


def test_a_given_up_request_holds_no_key() -> None:
    assert "sk-" not in str(RequestGivenUp.__init__.__doc__) + str(ask("http://127.0.0.1:9/v1").error)


def test_a_slow_endpoint_puts_off_every_third_request() -> None:
    with ScriptedServer(answers=[GOOD]) as server:
        asked = ask(server, requests=4, slow=True)
    assert [(each.status, each.body) for each in asked.attempts if each.body] == [(429, PUT_OFF)]
    assert asked.waits == [20.0] and len(asked.headers) == 4
