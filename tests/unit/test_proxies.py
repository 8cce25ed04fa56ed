"""Proxies on the way to an endpoint: those of the environment, and never for loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ChatMessage, EndpointError, Reply
from automedbench.base.endpoint.client import Attempt
from automedbench.base.endpoint.http import describe_proxy, is_loopback
from automedbench.base.errors import ConfigError
from automedbench.campaign.agents import Agent
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

HELLO = [ChatMessage("user", "hello")]
FAR = "endpoint.example"
"""A name that only the proxy knows."""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@dataclass
class Proxy:
    """What a proxy was asked for: request lines and headers."""

    port: int
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def proxy(server_port: int, refuse: bytes = b"") -> Iterator[Proxy]:
    """A real forward proxy: CONNECT opens a tunnel, ``POST http://…`` is passed on; every name leads to one server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Proxy(listener.getsockname()[1])

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(client: socket.socket) -> None:
            with client:
                head = client.recv(65536)
                found.asked.append(head.split(b"\r\n\r\n")[0].decode())
                if refuse:
                    client.sendall(refuse)
                    return
                with socket.create_connection(("127.0.0.1", server_port)) as upstream:
                    if head.startswith(b"CONNECT "):
                        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    else:
                        method, url, rest = head.split(b" ", 2)
                        upstream.sendall(b" ".join([method, urlsplit(url).path, rest]))
                    back = threading.Thread(target=pipe, args=(upstream, client), daemon=True)
                    back.start()
                    pipe(client, upstream)
                    back.join(timeout=30)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=30)


def pipe(source: socket.socket, target: socket.socket) -> None:
    """Everything from one to the other, its end as well."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@dataclass
class Asked:
    """One request with everything around it."""

    reply: Reply | None = None
    error: Exception | None = None
    attempts: list[Attempt] = field(default_factory=list)


def ask(url: str) -> Asked:
    agent = Agent(provider="openai", model="m", base_url=url, api_key_env="K")
    asked = Asked()
    try:
        with EndpointModel(agent, ["sk-key"], on_attempt=asked.attempts.append, sleep=lambda _s: None) as model:
            asked.reply = model.reply(HELLO, [], 60)
    except Exception as error:
        asked.error = error
    return asked


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(answers=[Answer(body=completion())]) as running:
        yield running


def port_of(server: ScriptedServer) -> int:
    return urlsplit(server.url).port or 0


def test_tls_goes_through_a_tunnel(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy sees a host name and nothing else: no key, no conversation."""
    with proxy(port_of(server)) as found:
        monkeypatch.setenv("https_proxy", found.url)
        asked = ask(f"https://{FAR}/v1")
    assert isinstance(asked.error, EndpointError)  # the server behind it speaks no TLS
    assert found.asked[0].startswith(f"CONNECT {FAR}:443 HTTP/1.1")
    assert "sk-key" not in "".join(found.asked)


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_the_environments_proxy(name: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(port_of(server)) as found:
        monkeypatch.setenv(name, found.url)
        assert ask(f"http://{FAR}/v1").reply is not None
        (head,) = found.asked
    assert head.startswith(f"POST http://{FAR}/v1/chat/completions HTTP/1.1")
    assert server.headers[0]["authorization"] == "Bearer sk-key"


def test_no_proxy_is_honoured(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(port_of(server)) as found:
        monkeypatch.setenv("http_proxy", found.url)
        monkeypatch.setenv("no_proxy", "endpoint.invalid")
        assert ask("http://endpoint.invalid/v1").reply is None
        assert found.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_never(host: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(port_of(server)) as found:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, found.url)
        assert ask(server.url.replace("127.0.0.1", host)).reply is not None
        assert found.asked == []


REFUSALS = {
    "login": b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "forbidden": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "nothing": b"\r\n",
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_tunnel_that_is_refused_is_the_networks_fault(refusal: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(9, refuse=refusal) as found:
        monkeypatch.setenv("https_proxy", found.url.replace("//", "//user:word@"))
        asked = ask(f"https://{FAR}/v1")
    assert [attempt.kind for attempt in asked.attempts] == ["network"] * 12
    assert f"through the proxy {found.url}" in str(asked.error)
    assert "word" not in str(asked.error) + str(asked.attempts)


def test_a_login_page_of_the_proxy_without_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(9, refuse=REFUSALS["login"]) as found:
        monkeypatch.setenv("http_proxy", found.url)
        asked = ask(f"http://{FAR}/v1")
    assert [attempt.kind for attempt in asked.attempts] == ["network"] * 12


def test_a_proxy_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    asked = ask(f"https://{FAR}/v1")
    assert [attempt.kind for attempt in asked.attempts] == ["network"] * 12
    assert "through the proxy http://127.0.0.1:9" in str(asked.error)


@pytest.mark.parametrize("url", ["gopher://proxy.example", "socks5://proxy.example:1080"])
def test_a_proxy_of_a_kind_that_cannot_be_used(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", url.replace("//", "//user:word@"))
    error = ask(f"https://{FAR}/v1").error
    assert isinstance(error, ConfigError)
    assert "ALL_PROXY" in str(error) and "word" not in str(error)


LOOPBACK = {
    "http://127.0.0.1:1/v1": True,
    "http://127.8.8.8/v1": True,
    "http://[::1]:8000/v1": True,
    "http://localhost/v1": True,
    "http://localhost.example/v1": False,
    "http://10.0.0.1/v1": False,
    "https://host.example/127.0.0.1": False,
}


@pytest.mark.parametrize(("url", "expected"), LOOPBACK.items())
def test_what_loopback_is(url: str, expected: bool) -> None:
    assert is_loopback(url) == expected


def test_the_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_proxy("https://host.example/v1") == ""
    monkeypatch.setenv("https_proxy", "http://user:word@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "near.example")
    assert describe_proxy("https://host.example/v1") == " through the proxy http://proxy.example:3128"
    assert describe_proxy("https://near.example/v1") == ""
    assert describe_proxy("http://host.example/v1") == ""
