"""Servers on loopback that stand for the internet: web servers, a TLS server, a model hub with its store."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import socket
import ssl
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Seen:
    """What a server was asked: method, target, headers in lower case, body."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class WebServer:
    """An HTTP server; ``answer`` maps a request to status, headers and body, which may come in pieces."""

    def __init__(
        self,
        answer: Callable[[Seen], tuple[int, dict[str, str], bytes | Iterable[bytes]]],
        context: ssl.SSLContext | None = None,
    ):
        self.seen: list[Seen] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen = Seen(self.command, self.path, headers, self.rfile.read(length))
                outer.seen.append(seen)
                status, more, body = answer(seen)
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                if "Content-Length" not in more and status not in (204, 304) and isinstance(body, bytes):
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    for piece in (body,) if isinstance(body, bytes) else body:
                        self.wfile.write(piece)

            do_GET = do_HEAD = do_POST = do_OPTIONS = do_PUT = handle_any

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.server.server_address[1]
        self.place = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.place}"

    def __enter__(self) -> WebServer:
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


def certificate(folder: Path, *names: str) -> ssl.SSLContext:
    """A server context with a fresh self-signed certificate, whose file is ``folder/ca.pem``."""
    key, crt = folder / "key.pem", folder / "ca.pem"
    called = "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", str(key), "-out", str(crt), "-days", "2", "-subj", f"/CN={names[0]}", "-addext", called),
    ]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    return context


@dataclass
class FakeHub:
    """A model hub in the answers' true form: small files from itself, large ones from a store, renamed models."""

    files: dict[str, bytes]
    large: set[str] = field(default_factory=set)
    model: str = "acme/tiny-model"
    renamed: str = "acme/old-name"
    store: str = ""

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a request to the hub."""
        path = urlsplit(seen.target).path
        if path.startswith(("/datasets", "/api/datasets")):
            return 200, {}, b"answers of the data set"
        if path.startswith(f"/{self.renamed}/"):
            return 307, {"Location": seen.target.replace(self.renamed, self.model)}, b"moved"
        if path.startswith(f"/api/models/{self.renamed}"):
            return 307, {"Location": seen.target.replace(self.renamed, self.model)}, b"moved"
        if path.startswith(f"/{self.model}/resolve/"):
            return self._file(unquote(path.split("/resolve/", 1)[1].split("/", 1)[1]), seen)
        if path.startswith(f"/api/resolve-cache/models/{self.model}/"):
            return self._content(unquote(path.split(f"{self.model}/", 1)[1].split("/", 1)[1]), seen)
        if path.startswith(f"/api/models/{self.model}"):
            return self._api(path.removeprefix(f"/api/models/{self.model}"), seen)
        return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"

    def serve_store(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a request to the store."""
        name = parse_qs(urlsplit(seen.target).query).get("name", [""])[0]
        if seen.method == "HEAD":
            return 403, {}, b""  # its addresses are signed for GET
        return _ranged(self.files[name], seen)

    def _file(self, name: str, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if name not in self.files:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}, b"Entry not found"
        if name not in self.large:
            return (
                307,
                {"Location": f"/api/resolve-cache/models/{self.model}/{COMMIT}/{name}", "X-Repo-Commit": COMMIT},
                b"",
            )
        digest = hashlib.sha256(self.files[name]).hexdigest()
        return (
            302,
            {
                "Location": f"{self.store}/blob?name={name}&signature=x",
                "X-Repo-Commit": COMMIT,
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(self.files[name])),
                "X-Xet-Hash": digest,
                "Link": f'<{self.store}/xet>; rel="xet-auth"',
                "Set-Cookie": "token=1",
            },
            b"Found. Redirecting",
        )

    def _content(self, name: str, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        status, headers, body = _ranged(self.files[name], seen)
        tag = hashlib.sha1(b"blob " + str(len(self.files[name])).encode() + b"\0" + self.files[name]).hexdigest()
        return status, {**headers, "ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}, body

    def _api(self, rest: str, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if rest.startswith(("/tree/", "/paths-info/")):
            entries = [self._entry(name) for name in sorted(self.files)]
            if rest.startswith("/paths-info/"):
                asked = parse_qs(seen.body.decode()).get("paths", [])
                asked = asked or json.loads(seen.body or b"{}").get("paths", [])
                entries = [entry for entry in entries if entry["path"] in asked]
            return 200, {"Content-Type": "application/json"}, json.dumps(entries).encode()
        info = {"id": self.model, "modelId": self.model, "sha": COMMIT, "private": False, "tags": [], "downloads": 1}
        info["siblings"] = [{"rfilename": name} for name in sorted(self.files)]
        return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()

    def _entry(self, name: str) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "path": name, "size": len(self.files[name]), "oid": "0" * 40}
        if name in self.large:
            digest = hashlib.sha256(self.files[name]).hexdigest()
            entry["lfs"] = {"oid": digest, "size": len(self.files[name]), "pointerSize": 134}
        return entry


@dataclass
class FileHost:
    """A host of files. What is in ``script`` for a path happens to its next requests, one after the other.

    ``cut N``: the connection ends after N bytes of the body · ``whole``: Range is ignored · a number: that status ·
    ``to URL``: redirected · ``slow``: the body comes in small pieces, with pauses · ``other``: another version.
    """

    files: dict[str, bytes]
    script: dict[str, list[str]] = field(default_factory=dict)
    tagged: bool = True
    more: dict[str, str] = field(default_factory=dict)
    """Headers of every answer."""

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes | Iterable[bytes]]:
        """Status, headers and body."""
        path = unquote(urlsplit(seen.target).path)
        steps = self.script.get(path, [])
        step, _, detail = (steps.pop(0) if steps else "").partition(" ")
        if step.isdecimal():
            return int(step), {"Retry-After": detail} if detail else {}, b"no"
        if step == "to":
            return 302, {"Location": detail}, b""
        if path not in self.files:
            return 404, {}, b"no such file"
        if step == "other":
            self.files[path] = detail.encode() * (len(self.files[path]) // len(detail))
        data = self.files[path]
        tag = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"'} if self.tagged else {}
        changed = self.tagged and seen.headers.get("if-range", tag["ETag"]) != tag["ETag"]
        if step == "whole" or changed:
            seen.headers.pop("range", None)
        status, headers, body = _ranged(data, seen)
        headers |= tag | self.more
        if step == "cut":
            return status, {**headers, "Connection": "close"}, body[: int(detail)]
        if step == "slow":
            return status, {**headers, "Connection": "close"}, _slowly(body)
        return status, headers, body


def _slowly(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), 64 * 1024):
        yield data[begin : begin + 64 * 1024]
        time.sleep(0.02)


def _ranged(data: bytes, seen: Seen) -> tuple[int, dict[str, str], bytes]:
    wanted = seen.headers.get("range", "")
    if not wanted.startswith("bytes="):
        return 200, {"Accept-Ranges": "bytes", "Content-Length": str(len(data))}, data
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    begin, end = int(first), int(last or len(data) - 1)
    if begin >= len(data):
        return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
    piece = data[begin : end + 1]
    return 206, {"Content-Range": f"bytes {begin}-{end}/{len(data)}", "Content-Length": str(len(piece))}, piece


@dataclass
class FakeIndex:
    """A package index with wheels of one module each: name → names that it requires."""

    packages: dict[str, list[str]]

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        files = {f"{name}-1.0-py3-none-any.whl": wheel(name, needs) for name, needs in self.packages.items()}
        name = seen.target.strip("/").rpartition("/")[2]
        if seen.target.startswith("/files/"):
            return (200, {}, files[name]) if name in files else (404, {}, b"")
        if name not in self.packages:
            return 404, {}, b"no such project"
        file = f"{name}-1.0-py3-none-any.whl"
        digest = hashlib.sha256(files[file]).hexdigest()
        page = f'<a class="x" href="/files/{file}#sha256={digest}" data-requires-python="&gt;=3">{file}</a>'
        return 200, {"Content-Type": "text/html"}, page.encode()


def wheel(name: str, needs: Iterable[str] = ()) -> bytes:
    """A package with one module, always the same bytes."""
    stream = io.BytesIO()
    info = f"{name}-1.0.dist-info"
    requires = "".join(f"Requires-Dist: {each}\n" for each in needs)
    files = {
        f"{name}.py": "VALUE = 41\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(stream, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return stream.getvalue()


@contextlib.contextmanager
def hub_with_store(hub: FakeHub) -> Iterator[tuple[WebServer, WebServer]]:
    """The hub and its store, on two ports; the store is called ``store.example``."""
    hub.store = "http://store.example"
    with WebServer(hub.serve_store) as store, WebServer(hub.answer) as front:
        yield front, store


def unix_request(path: Path, data: bytes, *, end: bool = False, timeout: float = 30) -> bytes:
    """All that a UNIX socket answers to some bytes; what comes after a reset is lost."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        client.connect(str(path))
        with contextlib.suppress(OSError):
            client.sendall(data)
            if end:
                client.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while block := client.recv(1 << 20):
                answer += block
        return answer


def client_hello(name: str | None) -> bytes:
    """The first bytes that a TLS client of Python's sends for a host."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()
