"""The bridge: the protocol over a real UNIX socket, and clients that mean it no good."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automedbench.agent.command import bridge as bridge_module
from automedbench.agent.command.bridge import LONGEST_SOCKET, PORTS, SOCKET, Bridge
from automedbench.agent.command.program import BRIEF, FOLDER
from automedbench.agent.log import Masker
from automedbench.agent.models.model import Reply
from automedbench.agent.protocols import PROTOCOLS
from automedbench.agent.protocols.common import MAX_DEPTH, ApiCall, ProgramRequest, RequestRefused
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.campaign.agents import Agent

AGENT = {
    "provider": "command",
    "model": "real-model",
    "base_url": "http://127.0.0.1:9/v1",
    "api_key_env": "NO_SUCH_KEY",
    "command": ["prog", "{brief}", "--model", "{model}", "{workspace}/x y", "{folder}", "{data}"],
    "max_tokens": 1000,
}
HELLO: dict[str, Any] = {"model": "other", "messages": [{"role": "user", "content": "hi"}]}


def agent(**changes: Any) -> Agent:
    return Agent.model_validate(AGENT | changes)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's name has few bytes."""
    with tempfile.TemporaryDirectory(prefix="b-") as place:
        yield Path(place)


class Connection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path, timeout_s: float = 20) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(
    folder: Path, token: str, body: Any = HELLO, path: str = "/v1/chat/completions", method: str = "POST"
) -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"}
    with contextlib.closing(Connection(folder / SOCKET)) as connection:
        with contextlib.suppress(BrokenPipeError):  # the answer may come before the whole body has gone out
            connection.request(method, path, data if method == "POST" else None, headers)
        response = connection.getresponse()
        return response.status, response.read()


def error(answer: tuple[int, bytes]) -> tuple[int, str | None]:
    return answer[0], json.loads(answer[1])["error"]["code"]


def chat_request(body: Any) -> ProgramRequest:
    """A body of chat completions, read."""
    return PROTOCOLS["chat"].parse_request(
        ApiCall("chat"), body if isinstance(body, bytes) else json.dumps(body).encode()
    )


def upstream_body(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    return PROTOCOLS["chat"].upstream_body(agent, request)


def told(content: str | None = "hello", finish: str = "stop", **message: Any) -> Reply:
    """A reply with its body, as a model behind a chat endpoint gives it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content} | message, "finish_reason": finish}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return Reply(content or "", body={"id": "chatcmpl-1", "created": 1, "choices": [choice], "usage": usage})


def says(content: str | None = "hello", **more: Any) -> Callable[[ProgramRequest], Reply]:
    return lambda _request: told(content, **more)


CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}


def test_the_folder_holds_socket_brief_and_program(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    (program / "__pycache__").mkdir(parents=True)
    (program / "main.py").write_text("print()")
    (program / "__pycache__/x.pyc").write_text("")
    with Bridge(agent(command_folder=str(program)), folder, brief="Do it.") as bridge:
        assert (folder / BRIEF).read_text() == "Do it."
        assert sorted(path.name for path in (folder / FOLDER).rglob("*")) == ["main.py"]
        assert stat.S_ISSOCK((folder / SOCKET).stat().st_mode)
        ((port, name),) = bridge.services.ports.items()
        assert port in PORTS and name == SOCKET
        offered = bridge.services.environment
        assert offered["OPENAI_BASE_URL"] == f"http://127.0.0.1:{port}/v1"
        assert (
            offered["AMB_URL"]
            == offered["ANTHROPIC_BASE_URL"]
            == offered["GOOGLE_GEMINI_BASE_URL"]
            == f"http://127.0.0.1:{port}"
        )
        for name in ("OPENAI", "ANTHROPIC", "GEMINI"):
            assert (offered[f"{name}_API_KEY"], offered[f"{name}_MODEL"]) == (bridge.token, "real-model")
        # The runtime's --env is one word with commas between variables.
        assert not any("," in value for value in offered.values())
        line = bridge.program.start.splitlines()[-1]
    words = "prog /run/services/brief.md --model real-model '/workspace/x y' /run/services/agent /data/public"
    assert line == f"exec {words} < /run/services/brief.md"
    assert not (folder / SOCKET).exists()


def test_a_missing_program_is_said_before_the_run(folder: Path) -> None:
    with (
        pytest.raises(MissingDataError, match="command_folder"),
        Bridge(agent(command_folder="/no/such"), folder, brief=""),
    ):
        pass


def test_a_long_path_is_refused_with_the_remedy(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * LONGEST_SOCKET)
    deep.mkdir()
    with pytest.raises(InfrastructureError, match="TMPDIR"), Bridge(agent(), deep, brief=""):
        pass


def test_a_reply_in_one_piece(folder: Path) -> None:
    with (
        Bridge(agent(), folder, brief="") as bridge,
        bridge.serving(says(None, tool_calls=[CALL], finish="tool_calls")),
    ):
        status, data = ask(folder, bridge.token)
    body = json.loads(data)
    assert (status, body["model"]) == (200, "other")  # as the program calls it
    choice = body["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert choice["message"]["tool_calls"] == [CALL]
    assert body["usage"]["prompt_tokens"] == 7 and body["usage"]["total_tokens"] == 10


def test_openais_own_client_understands_it(folder: Path) -> None:
    """The SDK over the socket, with and without streaming."""
    httpx2, openai = pytest.importorskip("httpx2"), pytest.importorskip("openai")
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says("well", tool_calls=[CALL])):
        http_client = httpx2.Client(transport=httpx2.HTTPTransport(uds=str(folder / SOCKET)))
        with openai.OpenAI(base_url="http://bridge/v1", api_key=bridge.token, http_client=http_client) as client:
            whole = client.chat.completions.create(**HELLO)
            parts = list(client.chat.completions.create(**HELLO, stream=True))
            models = [model.id for model in client.models.list()]
    assert (whole.choices[0].message.content, whole.choices[0].message.tool_calls[0].id) == ("well", "c1")
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "well"
    assert models == ["real-model"]


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/chat/completions", "POST", 200),
        ("/v1/models", "GET", 200),
        ("/models", "GET", 200),
        ("/v1/completions", "POST", 404),
        ("/v1/embeddings", "POST", 404),
        ("/v1/chat/completions/", "POST", 404),
        ("/v1/../v1/chat/completions", "POST", 404),
        ("/v1/chat/completions?api-version=1", "POST", 200),
        ("//v1/chat/completions", "POST", 200),  # the base class makes one slash of it
        ("http://example.org/v1/chat/completions", "POST", 404),
        ("/", "GET", 200),
        ("/", "HEAD", 200),
        ("/v1beta/models", "GET", 200),
        ("/v1beta/models/x", "GET", 200),
        ("/v1/models/x", "GET", 200),
        ("/run/services/brief.md", "GET", 404),
        ("/v1/chat/completions", "GET", 404),
        ("/v1/models", "DELETE", 501),
        ("/v1/chat/completions", "PUT", 501),
        ("example.org:443", "CONNECT", 501),
    ],
)
def test_few_paths_and_no_other(folder: Path, path: str, method: str, expected: int) -> None:
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        status, data = ask(folder, bridge.token, path=path, method=method)
    assert status == expected
    assert expected == 200 or method == "HEAD" or "error" in json.loads(data)


def test_keys_are_masked_in_all_that_goes_in(folder: Path) -> None:
    key = "sk-outside-0123456789"

    def reflects(request: ProgramRequest) -> Reply:
        if request.max_tokens:
            raise RequestRefused(400, "invalid_request_error", None, f"bad key {key}")
        call = CALL | {"function": {"name": "bash", "arguments": json.dumps({"command": f"echo {key}"})}}
        return told(f"your key is {key}", tool_calls=[call], reasoning=[key])

    with Bridge(agent(), folder, brief="", mask=Masker([key]).value) as bridge, bridge.serving(reflects):
        for more in ({}, {"stream": True}, {"max_tokens": 5}):
            _, data = ask(folder, bridge.token, HELLO | more)
            assert b"[masked]" in data and key.encode() not in data, more


def test_requests_that_wait_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "MAX_BODIES", 50)
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        assert ask(folder, bridge.token)[0] == 503
        assert ask(folder, bridge.token, b"{}")[0] == 400


@pytest.mark.parametrize("token", ["", "wrong", "sk-bridge-", "Bearer"])
def test_only_its_own_token_counts(folder: Path, token: str) -> None:
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        assert error(ask(folder, token)) == (401, "invalid_api_key")
        assert error(ask(folder, bridge.token[:-1])) == (401, "invalid_api_key")


def test_before_and_after_the_command_nothing_is_answered(folder: Path) -> None:
    with Bridge(agent(), folder, brief="") as bridge:
        assert ask(folder, bridge.token)[0] == 503
        with bridge.serving(says()):
            assert ask(folder, bridge.token)[0] == 200
        assert ask(folder, bridge.token)[0] == 503


def test_a_refusal_is_an_error_object(folder: Path) -> None:
    def refuse(_request: ProgramRequest) -> Reply:
        raise RequestRefused(429, "insufficient_quota", "insufficient_quota", "all used up")

    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(refuse):
        status, data = ask(folder, bridge.token)
    assert (status, json.loads(data)["error"]["type"]) == (429, "insufficient_quota")


# --- what a request may hold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="torn"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"messages": []}', id="no message"),
        pytest.param(b'{"messages": "hi"}', id="messages is text"),
        pytest.param(b'{"messages": [1]}', id="message is a number"),
        pytest.param(b'{"messages": [{"role": "root", "content": ""}]}', id="unknown role"),
        pytest.param(b'{"messages": [{"role": "user", "content": 3}]}', id="content is a number"),
        pytest.param(b'{"messages": [{"role": "user", "content": "x"}], "n": 5}', id="five choices"),
        pytest.param(b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="100 000 levels"),
        pytest.param(
            b'{"messages": [{"role": "user", "content": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}]}", id="64 levels"
        ),
        pytest.param(json.dumps({"messages": HELLO["messages"] * 10_001}).encode(), id="10 001 messages"),
        pytest.param(
            b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"1" * 5000 + b"}", id="long number"
        ),
    ],
)
def test_nonsense_is_a_bad_request(folder: Path, body: bytes) -> None:
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        assert ask(folder, bridge.token, body)[0] == 400
        assert ask(folder, bridge.token)[0] == 200  # and it still answers


def test_what_the_endpoint_gets_is_the_agents_request() -> None:
    """Model, sampling and extra_body are the agent's; conversation and tools are the program's; the rest stays here."""
    asked = HELLO | {
        "messages": [{"role": "developer", "content": [{"type": "text", "text": "x", "image_url": "x"}], "x": 1}],
        "temperature": 2.0,
        "max_tokens": 5000,
        "tools": [{"type": "function", "function": {"name": "bash"}}],
        "tool_choice": "required",
        "user": "tracked",
        "store": True,
        "stream": True,
        "top_p": 0.5,
    }
    body = upstream_body(agent(extra_body={"top_p": 0.9, "routing": "x"}), chat_request(asked))
    assert body == {
        "model": "real-model",
        "messages": [{"role": "developer", "content": [{"type": "text", "text": "x"}]}],
        "max_tokens": 1000,
        "temperature": 0.0,
        "tools": [{"type": "function", "function": {"name": "bash"}}],
        "tool_choice": "required",
        "top_p": 0.9,
        "routing": "x",
    }


@pytest.mark.parametrize(
    ("asked", "sent"),
    [({"max_tokens": 10}, 10), ({"max_completion_tokens": 20}, 20), ({}, 1000), ({"max_tokens": -1}, 1000)],
)
def test_the_program_may_ask_for_less(asked: dict[str, Any], sent: int) -> None:
    assert upstream_body(agent(), chat_request(HELLO | asked))["max_tokens"] == sent


@pytest.mark.parametrize("asked", [{}, {"max_tokens": 32_000}, {"max_completion_tokens": 32_000}])
def test_without_a_limit_in_the_entry_the_programs_own_holds(asked: dict[str, Any]) -> None:
    """Under the name that the program used: reasoning models refuse the older one."""
    sent = upstream_body(agent(max_tokens=None), chat_request(HELLO | asked))
    assert {name: value for name, value in sent.items() if name.startswith("max_")} == asked


def test_lone_surrogates_do_not_get_through() -> None:
    request = chat_request(b'{"messages": [{"role": "user", "content": "a\\ud800b"}]}')
    assert request.chat[0].content == "a\ufffdb"
    json.dumps(upstream_body(agent(), request), ensure_ascii=False).encode()


# --- hostile clients --------------------------------------------------------------------------------------------


def raw(folder: Path, data: bytes) -> bytes:
    """Send bytes as they are; what comes back until the other side closes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(folder / SOCKET))
        received = b""
        try:
            connection.sendall(data)
            while block := connection.recv(65536):
                received += block
        except (BrokenPipeError, ConnectionResetError):
            pass  # it hung up on what it would not read
        return received


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"Content-Length: 99999999999\r\n", b"413", id="99 GB"),
        pytest.param(b"Content-Length: 1000000000000000\r\n", b"411", id="a length of 16 digits"),
        pytest.param(b"Content-Length: -1\r\n", b"411", id="negative length"),
        pytest.param("Content-Length: ²\r\n".encode("latin-1"), b"411", id="superscript length"),
        pytest.param(b"", b"411", id="no length"),
        pytest.param(b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", b"411", id="chunked and length"),
        pytest.param(b"X: " + b"y" * 70_000 + b"\r\n", b"431", id="a header of 70 000 bytes"),
        pytest.param(b"".join(b"X%d: y\r\n" % number for number in range(200)), b"431", id="200 headers"),
    ],
)
def test_odd_heads(folder: Path, head: bytes, status: bytes) -> None:
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        start = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {bridge.token}\r\n".encode()
        answer = raw(folder, start + head + b"\r\n")
        assert answer.split()[1] == status
        assert b"Connection: close" in answer
        assert ask(folder, bridge.token)[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x16\x03\x01" + os.urandom(200) + b"\r\n\r\n", id="TLS"),
        pytest.param(b"GET " + b"/" * 100_000, id="endless request line"),
        pytest.param(b"\0" * 1000 + b"\r\n\r\n", id="zeros"),
        pytest.param(b"POST /v1/chat/completions HTTP/9.9\r\n\r\n", id="unknown version"),
    ],
)
def test_what_is_no_http(folder: Path, data: bytes) -> None:
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        assert b"200 OK" not in raw(folder, data)
        assert ask(folder, bridge.token)[0] == 200


def test_a_second_request_cannot_hide_in_a_body_that_was_refused(folder: Path) -> None:
    """Request smuggling: what was not read is not taken for a request."""
    seen: list[ProgramRequest] = []

    def note(request: ProgramRequest) -> Reply:
        seen.append(request)
        return told("hi")

    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(note):
        inner = json.dumps(HELLO).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {bridge.token}\r\n".encode()
        hidden = head + b"Content-Length: %d\r\n\r\n" % len(inner) + inner
        answer = raw(folder, b"POST /elsewhere HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden)
    assert answer.count(b"HTTP/1.1 ") == 1 and seen == []


def test_a_slow_body_does_not_hold_the_bridge(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "BODY_S", 0.5)
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {bridge.token}\r\nContent-Length: 900\r\n\r\n"
        )
        with socket.socket(socket.AF_UNIX) as slow:
            slow.settimeout(20)
            slow.connect(str(folder / SOCKET))
            slow.sendall(head.encode())
            assert ask(folder, bridge.token)[0] == 200
            time.sleep(0.6)
            slow.sendall(b"x")
            assert slow.recv(100).split()[1] == b"408"


def test_connections_are_bounded_and_become_free_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "MAX_CONNECTIONS", 4)
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(says()):
        held = []
        for _ in range(12):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(folder / SOCKET))
            held.append(connection)
        time.sleep(0.3)
        for connection in held:
            connection.close()
        deadline = time.monotonic() + 20
        while True:
            try:
                assert ask(folder, bridge.token)[0] == 200
                break
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_one_request_at_a_time(folder: Path) -> None:
    """Programs may ask in parallel; the run's turns have an order."""
    active, most = 0, 0
    guard = threading.Lock()

    def slowly(_request: ProgramRequest) -> Reply:
        nonlocal active, most
        with guard:
            active += 1
            most = max(most, active)
        time.sleep(0.05)
        with guard:
            active -= 1
        return told("hi")

    answers: list[int] = []
    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(slowly):
        threads = [threading.Thread(target=lambda: answers.append(ask(folder, bridge.token)[0])) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [200] * 6 and most == 1


def test_a_reply_that_nobody_waited_for_is_not_paid_twice(folder: Path) -> None:
    """A client that gives up and asks the same again gets the reply that was on its way."""
    asked: list[ProgramRequest] = []
    go = threading.Event()

    def answer(request: ProgramRequest) -> Reply:
        asked.append(request)
        go.wait(10)
        return told(f"reply {len(asked)}")

    with Bridge(agent(), folder, brief="") as bridge, bridge.serving(answer):
        body = json.dumps(HELLO).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {bridge.token}\r\n"
        with socket.socket(socket.AF_UNIX) as impatient:
            impatient.connect(str(folder / SOCKET))
            impatient.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            while not asked:
                time.sleep(0.01)
        go.set()
        first = json.loads(ask(folder, bridge.token, body)[1])
        second = json.loads(ask(folder, bridge.token, body)[1])
    assert first["choices"][0]["message"]["content"] == "reply 1"
    assert second["choices"][0]["message"]["content"] == "reply 2"
    assert len(asked) == 2
