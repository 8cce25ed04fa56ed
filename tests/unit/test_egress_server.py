"""The egress process with real sockets: own web, TLS and hub servers on loopback stand for the internet."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from upstreams import FakeHub, Seen, WebServer, certificate, client_hello, hub_with_store, unix_request
from waiting import wait_for

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Finding
from automedbench.sandbox.egress import Egress, build_environment
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.exchange import (
    MAX_CALL,
    MAX_FINDINGS,
    EgressEntry,
    RefusalCount,
    RequestLog,
    Uploads,
    make_findings,
)
from automedbench.sandbox.egress.planted import CUT_BYTES
from automedbench.sandbox.egress.rules import EgressSettings, PackageIndex, Ruling, refuse_own_home
from automedbench.sandbox.egress.server import SO_PASSRIGHTS

SETTINGS = EgressSettings(
    allow=("code.example", "inside.example", "half.example"),
    deny_hosts=("data.example",),
    own_hosts=("data.example",),
    deny_urls=("code.example/labels",),
    own_urls=("code.example/labels", "huggingface.co/datasets/acme/labels"),
)
MIB = 1024 * 1024


@dataclass
class Net:
    """An egress process and what stands for the world behind it."""

    folder: Path
    web: WebServer
    egress: Egress
    bodies: dict[str, bytes] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    def proxy(self, data: bytes, **options: Any) -> bytes:
        """All that the proxy answers to some bytes."""
        return unix_request(self.folder / "sockets/proxy.sock", data, **options)

    def hub(self, data: bytes) -> bytes:
        """All that the mirror answers to some bytes."""
        return unix_request(self.folder / "sockets/hub.sock", data)

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log, when every request is over."""
        self.found += self.egress.drain(turn=1, call=1)
        return [json.loads(line) for line in (self.folder / "log/egress.jsonl").read_text().splitlines()]

    def drain(self, call: int = 1) -> list[Finding]:
        """Findings of a call."""
        found, self.found = [*self.found, *self.egress.drain(turn=1, call=call)], []
        return found


def get(path: str, host: str = "code.example") -> bytes:
    return f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def post(*head: str, body: bytes = b"") -> bytes:
    return "\r\n".join(["POST http://code.example/ HTTP/1.1", "Host: code.example", *head, "", ""]).encode() + body


def status(answer: bytes) -> int:
    """Status of the first answer; 0 when there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


def content(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


@contextlib.contextmanager
def net_with(
    settings: EgressSettings = SETTINGS, *, names: dict[str, list[str]] | None = None, fault: Any = None, **places: str
) -> Iterator[Net]:
    """An egress process whose ``code.example`` is a web server here."""
    bodies: dict[str, bytes] = {"/": b"welcome"}

    def answer(seen: Seen) -> tuple[int, dict[str, str], bytes]:
        path = seen.target.partition("?")[0]
        return (200, {"X-Test": "1"}, bodies[path]) if path in bodies else (404, {}, b"nothing here")

    # Short, because a UNIX socket's address is.
    folder = Path(tempfile.mkdtemp(prefix="amb-egress-"))
    try:
        (folder / "sockets").mkdir()
        with WebServer(answer) as web:
            upstreams = Upstreams(names or {}, {"code.example:80": web.place, **places})
            with Egress(
                settings, folder / "log/egress.jsonl", folder / "sockets", fault=fault, upstreams=upstreams
            ) as egress:
                egress.set_call(1, 1)
                yield Net(folder, web, egress, bodies)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def running() -> Iterator[Net]:
    with net_with() as made:
        yield made


@pytest.fixture
def net(running: Net) -> Net:
    """An egress process as if it had just started."""
    running.drain()
    running.egress.set_call(1, 1)
    os.truncate(running.folder / "log/egress.jsonl", 0)
    running.web.seen.clear()
    return running


# --- plain HTTP -----------------------------------------------------------------------------------------------------


def test_a_listed_host_answers(net: Net) -> None:
    answer = net.proxy(get("/"))
    assert (status(answer), content(answer)) == (200, b"welcome")
    assert b"x-test: 1" in answer.lower()
    line = net.log()[0]
    assert (line["verdict"], line["host"], line["port"], line["path"]) == ("allowed", "code.example", 80, "/")
    assert (line["status"], line["down"], line["turn"], line["call"]) == (200, 7, 1, 1)
    assert net.drain() == []


def test_what_the_upstream_sees_is_the_request_and_nothing_of_ours(net: Net) -> None:
    hops = ("Proxy-Authorization: Basic eDp5", "Proxy-Connection: keep-alive", "Connection: close, X-Hop", "X-Hop: 1")
    request = post(*hops, "Accept-Encoding: gzip", "X-Own: 2", "Content-Length: 4", body=b"body")
    net.proxy(request.replace(b"/ HTTP", b"/a?b=c HTTP", 1))
    seen = net.web.seen[0]
    assert (seen.method, seen.target, seen.body) == ("POST", "/a?b=c", b"body")
    assert seen.headers == {
        "host": "code.example",
        "accept-encoding": "identity",
        "connection": "close",
        "content-length": "4",
        "x-own": "2",
    }


def test_a_refusal_says_why_in_status_line_and_body(net: Net) -> None:
    """urllib and curl show the reason of a refused tunnel, and nothing else of it."""
    answer = net.proxy(b"CONNECT evil.org:443 HTTP/1.1\r\nHost: evil.org:443\r\n\r\n")
    first = answer.partition(b"\r\n")[0]
    assert first == b"HTTP/1.1 403 [egress] evil.org is not on the list of hosts that may be reached."
    assert content(answer).startswith(b"[egress] evil.org is not on the list")
    (finding,) = net.drain()
    assert (finding.rule, finding.severity, finding.source, finding.call) == ("net.refused", "notice", "egress", 1)
    assert "evil.org" in finding.evidence


def test_an_upstream_that_is_away_is_nobodys_fault(net: Net) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with net_with(**{"half.example:80": f"127.0.0.1:{port}"}) as other:
        assert status(other.proxy(get("/", "half.example"))) == 502
        assert other.log()[0]["reason"] == "unreachable"
        assert other.drain() == []


HOSTILE = {
    "two lengths": post("Content-Length: 3", "Content-Length: 4", body=b"abcd"),
    "length and chunks": post("Content-Length: 3", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "odd encoding": post("Transfer-Encoding: xchunked"),
    "two encodings": post("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "negative length": post("Content-Length: -1"),
    "plus length": post("Content-Length: +3", body=b"abc"),
    "two hosts": post("Host: data.example"),
    "space in name": post("Content-Length : 3", body=b"abc"),
    "null in value": post("A: b\0c"),
    "bare return": post("A: b\rX: c"),
    "huge header": post("A: " + "a" * 100_000),
    "many headers": post(*["A: b"] * 20_000),
    "websocket": post("Upgrade: websocket", "Connection: Upgrade"),
    "huge target": get("/" + "a" * 100_000),
    "no host": b"GET http://code.example/ HTTP/1.1\r\n\r\n",
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http 0.9": b"GET http://code.example/\r\n\r\n",
    "socks 5": b"\x05\x01\x00",
    "tls to the proxy": b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n\r\n",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_requests_reach_nobody(net: Net, data: bytes) -> None:
    answer = net.proxy(data, end=True)
    assert status(answer) in (0, 400, 403, 414, 431, 501)
    assert net.web.seen == []
    net.drain()
    assert net.log()[0]["verdict"] == "refused"
    # The process is as well as before.
    assert status(net.proxy(get("/"))) == 200


def test_what_follows_a_request_is_no_second_one(net: Net) -> None:
    """Pipelined or smuggled: one request per connection."""
    answer = net.proxy(get("/") + get("/second"))
    assert answer.count(b"HTTP/1.1 ") == 1
    assert [seen.target for seen in net.web.seen] == ["/"]


def test_a_body_that_looks_like_a_request_stays_a_body(net: Net) -> None:
    inner = b"GET /labels HTTP/1.1\r\nHost: code.example\r\n\r\n"
    chunk = f"{len(inner):x}\r\n".encode() + inner + b"\r\n0\r\n\r\n"
    net.proxy(post("Transfer-Encoding: chunked", body=chunk))
    assert [(seen.target, seen.body) for seen in net.web.seen] == [("/", inner)]


@pytest.mark.parametrize(("size", "expected"), [(MIB, 200), (MIB + 1, 403)])
def test_uploads_are_bounded(net: Net, size: int, expected: int) -> None:
    assert status(net.proxy(post(f"Content-Length: {size}", body=bytes(size)))) == expected
    assert len(net.web.seen) == (expected == 200)
    assert [(f.rule, f.severity, f.confidence) for f in net.drain()] == (
        [] if expected == 200 else [("net.upload", "warning", "high")]
    )


def test_expect_continue(net: Net) -> None:
    answer = net.proxy(post("Expect: 100-continue", "Content-Length: 2", body=b"ok"))
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert net.web.seen[0].body == b"ok"


# --- addresses ------------------------------------------------------------------------------------------------------


INNER = ["127.0.0.1"], ["10.0.0.8"], ["169.254.169.254"], ["::1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:10.0.0.1"]


def test_a_listed_name_with_an_inner_address_is_refused() -> None:
    """Whoever answers for a name must not choose a host of ours; one bad address among good ones is enough."""
    names = {f"n{number}.example": addresses for number, addresses in enumerate(INNER)}
    with net_with(replace(SETTINGS, allow=tuple(names)), names=names) as net:
        for name in names:
            assert status(net.proxy(get("/", name))) == 403
            assert status(net.proxy(f"CONNECT {name}:443 HTTP/1.0\r\n\r\n".encode())) == 403
        assert [line["reason"] for line in net.log()] == ["private"] * 2 * len(INNER)


# --- tunnels --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def tls_net(tmp_path: Path, settings: EgressSettings = SETTINGS) -> Iterator[tuple[Net, WebServer]]:
    context = certificate(tmp_path, "code.example", "data.example")
    with (
        WebServer(lambda seen: (200, {}, b"over tls " + seen.body[:10]), context) as server,
        net_with(settings, **{"code.example:443": server.place}) as net,
    ):
        yield net, server


def tunnel(net: Net, target: str = "code.example:443") -> tuple[socket.socket, bytes]:
    """A connection through the proxy, and the proxy's answer."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    client.connect(str(net.folder / "sockets/proxy.sock"))
    client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer and (block := client.recv(1)):
        answer += block
    return client, answer


def trusting(tmp_path: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


def read_all(stream: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(OSError):
        while block := stream.recv(1 << 16):
            data += block
    return data


def test_tls_goes_through_untouched(tmp_path: Path) -> None:
    """The certificate is the server's own: nobody looks inside."""
    with tls_net(tmp_path) as (net, server):
        client, answer = tunnel(net)
        assert status(answer) == 200
        with trusting(tmp_path).wrap_socket(client, server_hostname="code.example") as tls:
            tls.sendall(b"GET / HTTP/1.1\r\nHost: code.example\r\nConnection: close\r\n\r\n")
            assert content(read_all(tls)) == b"over tls "
        assert server.seen[0].headers["host"] == "code.example"
        assert net.drain() == []
        (line,) = net.log()
        assert (line["method"], line["host"], line["port"], line["reason"]) == (
            "CONNECT",
            "code.example",
            443,
            "listed",
        )
        assert line["up"] > 100
        assert line["down"] > 100


FIRST_BYTES = {
    "another name": (client_hello("data.example"), "refused"),
    "longer name": (client_hello("code.example.evil.org"), "refused"),
    "no name": (client_hello(None), "refused"),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", "refused"),
    "plain http": (get("/labels", "data.example"), "refused"),
    "empty record": (b"\x16\x03\x01\x00\x00" + client_hello("code.example"), "refused"),
    "many records": (b"\x16\x03\x01\x00\x01\x01" + client_hello("code.example"), "refused"),
    "long record": (b"\x16\x03\x01\xff\xff" + bytes(70_000), "refused"),
    "server hello": (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "refused"),
    "half a hello": (client_hello("code.example")[:40], "allowed"),
    "nothing": (b"", "allowed"),
}


def test_a_tunnel_must_lead_where_it_says() -> None:
    """Nothing of what the client says reaches the server."""
    received: list[bytes] = []
    found = {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        with net_with(**{"code.example:443": f"127.0.0.1:{server.getsockname()[1]}"}) as net:
            for name, (first, _) in FIRST_BYTES.items():
                client, answer = tunnel(net)
                connection, _ = server.accept()
                with client, connection:
                    assert status(answer) == 200
                    client.sendall(first)
                    client.shutdown(socket.SHUT_WR)
                    assert read_all(client) == b""
                    received.append(read_all(connection))
                found[name] = net.log()[-1]["verdict"]
    assert found == {name: verdict for name, (_, verdict) in FIRST_BYTES.items()}
    assert set(received) == {b""}


def test_a_hello_may_come_in_small_pieces(tmp_path: Path) -> None:
    hello = client_hello("code.example")
    with tls_net(tmp_path) as (net, _):
        client, _ = tunnel(net)
        with client:
            for place in range(0, len(hello), 50):
                client.sendall(hello[place : place + 50])
            assert client.recv(1) == b"\x16"  # the server's hello


def test_an_upload_through_a_tunnel_is_cut(tmp_path: Path) -> None:
    with tls_net(tmp_path) as (net, server):
        client, _ = tunnel(net)
        with (
            trusting(tmp_path).wrap_socket(client, server_hostname="code.example") as tls,
            contextlib.suppress(OSError),
        ):
            tls.sendall(b"POST / HTTP/1.1\r\nHost: code.example\r\nContent-Length: 8000000\r\n\r\n")
            for _ in range(80):
                tls.sendall(bytes(100_000))
        assert sum(len(seen.body) for seen in server.seen) <= MIB
        assert [(f.rule, f.severity) for f in net.drain()] == [("net.upload", "warning")]


def test_uploads_of_a_run_are_bounded_over_all_its_connections(tmp_path: Path) -> None:
    """Each tunnel and request stays below its own limit; heads count; one warning, and the rest is refused."""
    settings = dataclasses.replace(SETTINGS, upload_total_bytes=2 * MIB)
    part = 960_000
    with net_with(settings) as net:
        sizes = [status(net.proxy(post(f"Content-Length: {part}", body=bytes(part)))) for _ in range(4)]
        assert sizes == [200, 200, 403, 403]  # 1.92 MB of 2.10 MB, then too much
        assert [(f.rule, f.severity) for f in net.drain()] == [("net.upload", "warning"), ("net.refused", "notice")]
        assert status(net.proxy(get("/"))) == 403
        assert [(f.rule, f.severity) for f in net.drain(2)] == [("net.refused", "notice")]
        # A process that goes on with the run knows what went up before, and that it was told.
        log = net.folder / "log/egress.jsonl"
        again = Uploads(2 * MIB, RequestLog(log).sent_before)
        assert (again.sent >= 2 * part, again.is_over) == (True, True)
    assert again.refuse().ruling.severity == "notice"
    with net_with(dataclasses.replace(settings, upload_total_bytes=20_000)) as net:
        heads = [status(net.proxy(get(f"/?{'x' * 7_000}"))) for _ in range(3)]
        assert heads == [200, 200, 403]


def test_a_run_that_goes_on_keeps_what_its_downloads_earned(tmp_path: Path) -> None:
    """Acknowledgements of ten gigabytes are more than the run's uploads may be, and no upload."""
    log = tmp_path / "egress.jsonl"
    log.write_text(json.dumps({"up": 10 * MIB, "down": 10_000 * MIB}) + '\n{"up": 7, "do')
    before = RequestLog(log)
    assert not Uploads(8 * MIB, before.sent_before, before.received_before).is_over
    assert Uploads(8 * MIB, 109 * MIB, before.received_before).is_over


def test_uploads_through_tunnels_are_added_up(tmp_path: Path) -> None:
    with tls_net(tmp_path, dataclasses.replace(SETTINGS, upload_total_bytes=MIB)) as (net, server):
        for _ in range(4):
            client, _ = tunnel(net)
            with (
                contextlib.suppress(OSError),
                client,
                trusting(tmp_path).wrap_socket(client, server_hostname="code.example") as tls,
            ):
                tls.sendall(b"POST / HTTP/1.1\r\nHost: code.example\r\nContent-Length: 400000\r\n\r\n")
                tls.sendall(bytes(400_000))
                tls.recv(1000)
        assert sum(len(seen.body) for seen in server.seen) <= MIB
        assert [(f.rule, f.severity) for f in net.drain()] == [("net.upload", "warning"), ("net.refused", "notice")]


def test_a_tunnel_to_the_own_data_sets_home_is_a_warning(net: Net) -> None:
    for _ in range(3):
        assert status(net.proxy(b"CONNECT data.example:443 HTTP/1.0\r\n\r\n")) == 403
    (finding,) = net.drain()
    assert (finding.rule, finding.severity, finding.confidence, finding.blocked) == (
        "net.labels",
        "warning",
        "high",
        True,
    )
    assert finding.evidence == "own_home: data.example (3 times)"


def ask_and_leave(net: Net) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(net.folder / "sockets/proxy.sock"))
        client.sendall(get("/labels/x"))


def test_evidence_does_not_need_a_proxy_that_is_awake(net: Net) -> None:
    """Nor a client that waits: on a loaded machine the order to drain waits beside a connection that came before it."""
    process = net.egress._helper.process.pid
    os.kill(process, signal.SIGSTOP)
    try:
        ask_and_leave(net)
        waking = threading.Timer(0.3, os.kill, (process, signal.SIGCONT))
        waking.start()
        assert [finding.rule for finding in net.drain()] == ["net.labels"]
        waking.join()
    finally:
        os.kill(process, signal.SIGCONT)


# --- the label tripwire ---------------------------------------------------------------------------------------------


def chunked(seen: Seen, body: bytes) -> tuple[int, dict[str, str], bytes]:
    pieces = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in (body[:10], body[10:]))
    return 200, {"Transfer-Encoding": "chunked"}, pieces + b"0\r\n\r\n"


@pytest.mark.parametrize(("size", "severity"), [(100, "warning"), (200_000, "warning"), (2 * MIB, "disqualifying")])
def test_content_that_equals_a_label_file_is_cut(size: int, severity: str) -> None:
    """A file that is smaller than what is held back never arrives; of a larger one, all but the end does."""
    body = os.urandom(size - 1) + b"y"
    with net_with(replace(SETTINGS, hashes=(hashlib.sha256(body).hexdigest(),))) as net:
        net.bodies |= {"/innocent.bin": body, "/other.bin": body[:-1] + b"x"}
        assert content(net.proxy(get("/other.bin")))[-1:] == b"x"
        assert net.drain() == []
        got = content(net.proxy(get("/innocent.bin")))
        assert len(got) < size
        assert (got == b"") == (severity == "warning")
        (finding,) = net.drain()
        assert (finding.rule, finding.severity, finding.confidence) == ("net.labels", severity, "high")
        assert net.log()[-1]["sha256"] == hashlib.sha256(body).hexdigest()


def test_chunks_hide_nothing() -> None:
    body = os.urandom(1000)
    with (
        WebServer(lambda seen: chunked(seen, body)) as server,
        net_with(
            replace(SETTINGS, hashes=(hashlib.sha256(body).hexdigest(),)), **{"half.example:80": server.place}
        ) as net,
    ):
        assert body[:10] not in net.proxy(get("/", "half.example"))
        assert [finding.rule for finding in net.drain()] == ["net.labels"]


# --- the hub mirror -------------------------------------------------------------------------------------------------

LABELS = hashlib.sha256(b"labels").digest() * 20_000
FILES = {"config.json": b'{"a": 1}', "model.safetensors": bytes(range(256)) * 20_000, "sub/labels.bin": LABELS}


@contextlib.contextmanager
def hub_net(**change: Any) -> Iterator[tuple[Net, WebServer, WebServer]]:
    hub = FakeHub(dict(FILES), large={"model.safetensors", "sub/labels.bin"})
    with hub_with_store(hub) as (front, store):
        settings = replace(SETTINGS, hub=front.url, hashes=(hashlib.sha256(LABELS).hexdigest(),), **change)
        with net_with(settings, **{"store.example:80": store.place}) as net:
            yield net, front, store


def hub_get(path: str, *head: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1:8090", *head, "", ""]).encode()


def headers_of(answer: bytes) -> dict[str, str]:
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_models_come_through_with_the_hubs_headers() -> None:
    with hub_net() as (net, front, store):
        head = hub_get(
            "/acme/tiny-model/resolve/main/model.safetensors",
            "Authorization: Bearer hf_x",
            "Cookie: a=b",
            method="HEAD",
        )
        answer = net.hub(head)
        found = headers_of(answer)
        assert (status(answer), content(answer)) == (200, b"")
        assert found["x-repo-commit"] == "0123456789abcdef0123456789abcdef01234567"
        assert found["x-linked-etag"].strip('"') == hashlib.sha256(FILES["model.safetensors"]).hexdigest()
        assert found["content-length"] == found["x-linked-size"] == str(len(FILES["model.safetensors"]))
        # Neither the way to the store nor its own protocol nor cookies are for the inside.
        assert {"location", "x-xet-hash", "link", "set-cookie"}.isdisjoint(found)
        answer = net.hub(hub_get("/acme/old-name/resolve/main/model.safetensors", "Authorization: Bearer hf_x"))
        assert content(answer) == FILES["model.safetensors"]
        assert headers_of(answer)["x-repo-commit"] == found["x-repo-commit"]
        for server in (front, store):
            assert server.seen
            assert all({"authorization", "cookie"}.isdisjoint(seen.headers) for seen in server.seen)
        assert net.drain() == []


def test_a_part_of_a_label_file_is_refused_by_its_tag() -> None:
    """The hub says what all of a large file hashes to before any byte of it comes."""
    with hub_net() as (net, _, _):
        for head in ([], ["Range: bytes=0-99"]):
            answer = net.hub(hub_get("/acme/tiny-model/resolve/main/sub/labels.bin", *head))
            assert status(answer) == 403
            assert LABELS[:32] not in answer
        (finding,) = net.drain()
        assert (finding.rule, finding.severity) == ("net.labels", "warning")


def test_the_hubs_own_library_learns_why_it_is_refused() -> None:
    with hub_net() as (net, front, _):
        answer = net.hub(hub_get("/datasets/acme/labels/resolve/main/x"))
        assert status(answer) == 403
        assert headers_of(answer)["x-error-code"] == "GatedRepo"
        assert headers_of(answer)["x-error-message"].startswith("[egress] ")
        assert front.seen == []


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("/datasets/acme/labels/resolve/main/x", "own_home"),
        ("/datasets/acme/x/resolve/main/x", "hub_dataset"),
        ("/acme/%2e%2e/datasets/x", "hub_dataset"),
        ("http://10.0.0.1/x", "hub_path"),
        ("http://user:pw@store.example/x", "hub_path"),
        ("file:///etc/passwd", "hub_path"),
        ("http://data.example/x", "dataset_home"),
        ("http://inside.example/x", "private"),
    ],
)
def test_redirects_of_the_hub_obey_the_rules(location: str, reason: str) -> None:
    with (
        WebServer(lambda seen: (302, {"Location": location}, b"")) as front,
        net_with(replace(SETTINGS, hub=front.url), names={"inside.example": ["10.1.1.1"]}) as net,
    ):
        assert status(net.hub(hub_get("/acme/tiny-model/resolve/main/x"))) == 403
        assert net.log()[-1]["reason"] == reason
        assert len(front.seen) == 1


def test_a_circle_of_redirects_ends() -> None:
    with (
        WebServer(lambda seen: (302, {"Location": seen.target}, b"")) as front,
        net_with(replace(SETTINGS, hub=front.url)) as net,
    ):
        assert status(net.hub(hub_get("/acme/tiny-model/resolve/main/x"))) == 502
        assert len(front.seen) < 10


def test_further_pages_lead_to_the_mirror() -> None:
    def answer(seen: Seen) -> tuple[int, dict[str, str], bytes]:
        return (
            200,
            {"Link": f'<http://{seen.headers["host"]}/api/models/acme/x/tree/main?cursor=abc>; rel="next"'},
            b"[]",
        )

    with WebServer(answer) as front, net_with(replace(SETTINGS, hub=front.url)) as net:
        found = headers_of(net.hub(hub_get("/api/models/acme/x/tree/main")))
        assert found["link"] == '<http://127.0.0.1:8090/api/models/acme/x/tree/main?cursor=abc>; rel="next"'


# --- the host's own proxy -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def site_proxy() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy as sites have them on login nodes; it answers tunnels with an echo and remembers heads."""
    heads: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=attend, args=(client,), daemon=True).start()

        def attend(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(1)
                heads.append(head)
                if head.startswith(b"CONNECT"):
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    client.sendall(b"echo " + client.recv(4))
                else:
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nvia")

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://user:p%40ss@127.0.0.1:{server.getsockname()[1]}", heads
        server.shutdown(socket.SHUT_RDWR)


def test_the_hosts_own_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute nodes without direct internet."""
    with site_proxy() as (url, heads):
        for name in ("HTTPS_PROXY", "HTTP_PROXY"):
            monkeypatch.setenv(name, url)
        monkeypatch.setenv("NO_PROXY", "half.example")
        with net_with(names={"half.example": ["10.0.0.1"]}) as net:
            client, answer = tunnel(net, "inside.example:443")
            with client:
                assert status(answer) == 200
                client.sendall(client_hello("inside.example"))
                assert client.recv(100) == b"echo \x16\x03\x01" + client_hello("inside.example")[3:4]
            assert content(net.proxy(get("/x", "inside.example"))) == b"via"
            # NO_PROXY: asked directly, where the address rule holds.
            assert status(net.proxy(get("/x", "half.example"))) == 403
            assert status(net.proxy(b"CONNECT data.example:443 HTTP/1.0\r\n\r\n")) == 403
            assert "p@ss" not in (net.folder / "log/egress.jsonl").read_text()
        credentials = b"Basic dXNlcjpwQHNz"  # user:p@ss
        assert heads[0].startswith(b"CONNECT inside.example:443 HTTP/1.1\r\n")
        assert heads[1].startswith(b"GET http://inside.example:80/x HTTP/1.1\r\n")
        assert all(credentials in head for head in heads)
        assert len(heads) == 2


def test_the_operators_index_may_have_an_inner_address_and_its_own_port() -> None:
    with WebServer(lambda seen: (200, {}, b"<a href=x-1.whl>x</a>")) as server:
        index = PackageIndex(f"http://{server.place}/simple", ("127.0.0.1",), (server.place,))
        with net_with(replace(SETTINGS, index=index, allow=(*SETTINGS.allow, *index.hosts))) as net:
            assert status(net.proxy(get("/simple/x/", server.place))) == 200
            assert status(net.proxy(get("/", "127.0.0.1:1"))) == 403


# --- log and findings -----------------------------------------------------------------------------------------------


def test_the_log_cannot_be_flooded(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "egress.jsonl")
    for _ in range(MAX_CALL + 30):
        log.record(EgressEntry("proxy", 1, 1, host="evil.org"), Ruling(False, "not_listed", "no"))
    log.record(EgressEntry("proxy", 1, 1, host="data.example"), refuse_own_home("data.example", sure=True).ruling)
    findings = log.end_call(1, 1)
    assert [(f.rule, f.severity) for f in findings] == [("net.labels", "warning"), ("net.refused", "notice")]
    assert f"({MAX_CALL + 30} times)" in findings[1].evidence
    lines = (tmp_path / "egress.jsonl").read_text().splitlines()
    assert len(lines) == MAX_CALL + 1
    assert json.loads(lines[-1])["not_written"] == {"refused: not_listed": 30, "refused: own_home": 1}


def test_a_line_of_the_log_is_bounded_and_masked(net: Net) -> None:
    net.proxy(get("/" + "hf_abcdefghijklmnop/" + "a/" * 5000 + "?key=sk-1234567890abcdef"))
    net.proxy(f"CONNECT {'x.' * 2000}org:443 HTTP/1.0\r\n\r\n".encode())
    net.proxy(b"GET http://user:pass@code.example/ HTTP/1.1\r\nHost: code.example\r\n\r\n")
    text = (net.folder / "log/egress.jsonl").read_text()
    assert all(len(line) < 1000 for line in text.splitlines())
    assert all(word not in text for word in ("abcdefghijklmnop", "sk-1234", "pass"))
    assert len(text.splitlines()) == 3


def test_requests_belong_to_their_call(net: Net) -> None:
    net.proxy(get("/"))
    net.egress.set_call(2, 7)
    net.proxy(get("/"))
    assert [(line["turn"], line["call"]) for line in net.log()] == [(1, 1), (2, 7)]


def test_what_a_call_left_open_lives_on_and_stays_its_own(tmp_path: Path) -> None:
    """A background process may go on; what it does counts for the call that opened the connection."""
    with tls_net(tmp_path) as (net, _):
        client, _ = tunnel(net)
        net.egress.set_call(2, 2)
        with trusting(tmp_path).wrap_socket(client, server_hostname="code.example") as tls:
            tls.sendall(b"GET / HTTP/1.1\r\nHost: code.example\r\nConnection: close\r\n\r\n")
            assert content(read_all(tls)) == b"over tls "
        assert net.drain() == []
        (line,) = net.log()
        assert (line["turn"], line["call"], line["verdict"]) == (1, 1, "allowed")


def test_findings_are_few_and_the_worst_come_first() -> None:
    places = Counter({f"{letter}.example": 9 - number for number, letter in enumerate("abcde")})
    kinds = [RefusalCount(Ruling(False, "x", rule=f"net.r{number}"), 2, places) for number in range(9)]
    kinds.append(
        RefusalCount(Ruling(False, "x", rule="net.labels", severity="disqualifying", confidence="high"), 2, places)
    )
    findings = make_findings(kinds, 3, 4)
    assert len(findings) == MAX_FINDINGS
    assert (findings[0].rule, findings[0].severity, findings[0].blocked) == ("net.labels", "disqualifying", False)
    assert findings[-1].evidence == (
        "x: a.example, b.example, c.example and 2 more (2 times); 10 other refusals: see the log of requests"
    )
    assert [finding.id for finding in findings] == [f"{f.rule}-0004-{n}" for n, f in enumerate(findings, start=1)]


# --- the process ----------------------------------------------------------------------------------------------------


def process_of(egress: Egress) -> int:
    return egress._helper.process.pid


def test_the_process_has_no_keys_and_shows_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary-7d1f"
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "SLURM_JWT", "AWS_SECRET_ACCESS_KEY", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, canary)
    with net_with(replace(SETTINGS, hashes=("a" * 64,))) as net:
        process = Path("/proc") / str(process_of(net.egress))
        assert canary.encode() not in process.joinpath("environ").read_bytes()
        assert b"a" * 64 not in process.joinpath("cmdline").read_bytes()
        open_files = {os.readlink(entry) for entry in process.joinpath("fd").iterdir()}
        assert not [
            name
            for name in open_files
            if name.startswith("/")
            and "egress" not in name
            and name not in ("/dev/null",)
            and "/tmp/#" not in name
            and "(deleted)" not in name
        ]


def test_nothing_is_left() -> None:
    with net_with() as net:
        pid = process_of(net.egress)
        net.egress.close()
        assert list((net.folder / "sockets").iterdir()) == []
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(FileNotFoundError):
            net.proxy(get("/"))


def test_a_dead_proxy_is_the_machines_failure() -> None:
    with net_with() as net:
        os.kill(process_of(net.egress), signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="egress proxy of this run does not answer"):
            net.egress.set_call(1, 2)
        wait_for(lambda: refuses(net.folder / "sockets/proxy.sock"))


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="Cannot start the egress proxy"):
        Egress(SETTINGS, tmp_path / "e.jsonl", tmp_path / "none")


def test_the_process_ends_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    code = f"""
        import os, signal, sys
        from pathlib import Path
        from automedbench.sandbox.egress import Egress
        from automedbench.sandbox.egress.rules import EgressSettings
        egress = Egress(EgressSettings(allow=()), Path({str(tmp_path / "e.jsonl")!r}), Path({str(tmp_path / "s")!r}))
        print(egress._helper.process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    wait_for(lambda: not Path(f"/proc/{pid}/exe").exists() or ended(pid))
    assert list((tmp_path / "s").iterdir()) == []


def refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == errno.ECONNREFUSED


def ended(pid: int) -> bool:
    """A zombie, where nobody waits for orphans."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_hundred_clients_at_once(net: Net) -> None:
    net.bodies["/big"] = bytes(300_000)
    sizes: list[int] = []

    def ask() -> None:
        sizes.append(len(content(net.proxy(get("/big")))))

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sizes == [300_000] * 100


def test_no_descriptor_is_taken(net: Net) -> None:
    """One that waits to be read would keep a shared card open when its run's turn is over."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 1)
        except OSError:
            pytest.skip("the kernel is older than 6.16")
        client.connect(str(net.folder / "sockets/proxy.sock"))
        with pytest.raises(PermissionError):
            socket.send_fds(client, [b"GET"], [client.fileno()])


def test_too_many_clients_are_turned_away_and_the_rest_served(net: Net) -> None:
    idle = []
    for _ in range(400):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(net.folder / "sockets/proxy.sock"))
        client.settimeout(30)
        idle.append(client)
    assert idle[-1].recv(1) == b""  # turned away while the others wait
    for client in idle:
        client.close()
    net.drain()
    assert {line["reason"] for line in net.log() if "reason" in line} == {"busy", "empty"}
    assert status(net.proxy(get("/"))) == 200


def test_the_certificates_of_the_host_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites that inspect TLS: programs inside must trust what those outside trust."""
    (tmp_path / "site.pem").write_text("a certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "site.pem"))
    with net_with() as net:
        assert (net.folder / "sockets/ca.pem").read_text() == "a certificate"
        assert net.egress.services.environment["REQUESTS_CA_BUNDLE"] == "/run/services/ca.pem"
        sockets = net.folder / "sockets"
        net.egress.close()
        assert list(sockets.iterdir()) == []


def test_variables_inside() -> None:
    index = PackageIndex("http://index.example:3141/simple", ("index.example",), ("index.example:3141",))
    found = build_environment(replace(SETTINGS, hub="https://hub.example", index=index), ca=True)
    assert {found[name] for name in ("HTTP_PROXY", "https_proxy")} == {"http://127.0.0.1:3128"}
    assert found["NO_PROXY"] == "localhost,127.0.0.1"
    assert found["HF_ENDPOINT"] == "http://127.0.0.1:8090"
    assert (found["PIP_INDEX_URL"], found["PIP_TRUSTED_HOST"]) == (index.url, "index.example")
    assert found["REQUESTS_CA_BUNDLE"] == "/run/services/ca.pem"
    assert {"HF_ENDPOINT", "PIP_INDEX_URL", "SSL_CERT_FILE"}.isdisjoint(build_environment(SETTINGS))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    cache = (tmp_path / "file", 10**6)
    with pytest.raises(InfrastructureError, match=re.escape(str(tmp_path / "file"))):
        Egress(EgressSettings((), cached=True), tmp_path / "egress.jsonl", tmp_path, cache=cache)


# --- faults on purpose -----------------------------------------------------------------------------------------


def test_a_download_breaks_off_once_and_the_log_says_so() -> None:
    with net_with(fault="cut-download") as net:
        net.bodies["/weights"] = bytes(2 * CUT_BYTES)
        first, again = (net.proxy(get("/weights")) for _ in range(2))
        assert status(first) == 200 and 0 < len(content(first)) < 2 * CUT_BYTES
        assert len(content(again)) == 2 * CUT_BYTES
        assert [line["reason"] for line in net.log()] == ["planted", "listed"]
        assert net.drain() == []
