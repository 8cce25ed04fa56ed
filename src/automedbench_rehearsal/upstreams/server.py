"""A server on loopback that stands in for every host that data sets are fetched from.

``serve(upstream)`` answers what the real hosts answer for the files, hub data sets and git repositories of a fixture:
HTTP as in RFC 9110 (HEAD, Range, If-Range, ETag), the part of the hub's API that the fetcher reads, and git's "smart"
transport. Pinned revisions cannot equal the fixture's own: the hub part answers to any revision, and a repository has
one commit, ``HEAD``.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from automedbench.base.files import sha256_bytes, write_bytes
from automedbench_rehearsal.upstreams import Upstream, upstream_of

__all__ = ["Mirrors", "serve", "stand_in"]

HUB = "huggingface.co"
COMMIT = hashlib.sha1(b"fixture", usedforsecurity=False).hexdigest()
_BRANCH = "refs/heads/main"
_GIT_SERVICES = ("/info/refs", "/git-upload-pack")


class Mirrors(Mapping[str, str]):
    """Host → base URL that stands in for ``https://<host>``; there is one for every host that is asked for."""

    def __init__(self, base: str, hosts: list[str]):
        self.base = base
        self.hosts = hosts
        self.requests: list[str] = []
        """What was asked for so far: method and URL at the real host."""

    def __getitem__(self, host: str) -> str:
        return f"{self.base}/{host}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.hosts)

    def __len__(self) -> int:
        return len(self.hosts)


@contextlib.contextmanager
def serve(upstream: Upstream) -> Iterator[Mirrors]:
    """Offer a fixture on a free port of 127.0.0.1 until the block ends."""
    with tempfile.TemporaryDirectory(prefix="automedbench-upstream-") as folder:
        content = _Content(upstream, Path(folder))
        server = _UpstreamServer(("127.0.0.1", 0), _UpstreamHandler)
        mirrors = Mirrors(f"http://127.0.0.1:{server.server_address[1]}", content.hosts())
        server.content, server.requests = content, mirrors.requests
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield mirrors
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)


@contextlib.contextmanager
def stand_in(dataset: str) -> Iterator[tuple[Mirrors, Path | None]]:
    """A served fixture and, where the data is got by hand, a folder as a person makes it; both end with the block."""
    upstream = upstream_of(dataset)
    with serve(upstream) as mirrors, tempfile.TemporaryDirectory(prefix="automedbench-by-hand-") as folder:
        for name, data in upstream.by_hand.items():
            write_bytes(Path(folder, name), data)
        yield mirrors, Path(folder) if upstream.by_hand else None


# --- what is offered ------------------------------------------------------------------------------------------


@dataclass
class _Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class _UpstreamRequest:
    method: str
    url: str
    """At the real host, with its query."""
    headers: Mapping[str, str]
    body: bytes


def _key(url: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Host, path and query of a URL, so that two spellings of the same one are equal."""
    parts = urlsplit(url)
    return parts.netloc.lower(), unquote(parts.path), tuple(sorted(parse_qsl(parts.query, keep_blank_values=True)))


class _Content:
    """Answers to requests; repositories are made when they are first asked for."""

    def __init__(self, upstream: Upstream, folder: Path):
        self._upstream = upstream
        self._files = {_key(url): data for url, data in upstream.files.items()}
        self._repositories = {_key(url.removesuffix(".git"))[:2]: url for url in upstream.repositories}
        self._folder = folder
        self._lock = threading.Lock()

    def hosts(self) -> list[str]:
        urls = [*self._upstream.files, *self._upstream.repositories]
        return sorted({urlsplit(url).netloc for url in urls} | ({HUB} if self._upstream.hubs else set()))

    def answer(self, request: _UpstreamRequest) -> _Answer:
        key = _key(request.url)
        if key in self._files:
            return _piece(self._files[key], request)
        host, path, _ = key
        if host == HUB:
            return self._hub(path, request)
        for service in _GIT_SERVICES:
            known = self._repositories.get((host, path.removesuffix(service).removesuffix(".git")))
            if path.endswith(service) and known is not None:
                return _git_answer(self._repository(known), service, request)
        return _Answer(404, f"The fixture does not offer {request.url}\n".encode())

    # -- hub

    def _hub(self, path: str, request: _UpstreamRequest) -> _Answer:
        for name, files in self._upstream.hubs.items():
            api, plain = f"/api/datasets/{name}", f"/datasets/{name}/resolve/"
            if path == api or path.startswith(api + "/"):
                return _hub_api(name, files, path.removeprefix(api))
            if path.startswith(plain):
                revision, _, wanted = path.removeprefix(plain).partition("/")
                return _hub_file(files, _commit(revision), wanted, request)
        code = {"X-Error-Code": "RepoNotFound", "X-Error-Message": f"The fixture does not offer {request.url}"}
        return _Answer(404, b"{}", code)

    # -- git

    def _repository(self, url: str) -> Path:
        folder = self._folder / sha256_bytes(url.encode())[:16]
        with self._lock:
            if not folder.is_dir():
                _make_repository(folder, self._upstream.repositories[url])
        return folder


def _piece(
    data: bytes, request: _UpstreamRequest, tag: str | None = None, more: Mapping[str, str] | None = None
) -> _Answer:
    """The file, or the one range that is asked for."""
    tag = tag or f'"{sha256_bytes(data)}"'
    headers = {"Accept-Ranges": "bytes", "ETag": tag, "Content-Type": "application/octet-stream", **(more or {})}
    wanted = request.headers.get("range", "").removeprefix("bytes=")
    if not wanted or "," in wanted or request.headers.get("if-range", tag) != tag:
        return _Answer(200, data, headers)
    first, _, last = wanted.partition("-")
    begin = int(first) if first else max(0, len(data) - int(last))
    end = min(int(last), len(data) - 1) if first and last else len(data) - 1
    if begin > end:
        return _Answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
    return _Answer(206, data[begin : end + 1], {**headers, "Content-Range": f"bytes {begin}-{end}/{len(data)}"})


def _commit(revision: str) -> str:
    """The commit that a revision stands for: itself, or the fixture's where it is a branch."""
    whole = len(revision) == 40 and all(sign in "0123456789abcdef" for sign in revision)
    return revision if whole else COMMIT


def _hub_api(name: str, files: Mapping[str, bytes], rest: str) -> _Answer:
    """What the hub tells of a data set: the commit of the revision, its files and their sizes."""
    revision = rest.rpartition("/")[2] or "main"
    sizes = [{"rfilename": path, "size": len(data)} for path, data in sorted(files.items())]
    return _json({"id": name, "sha": _commit(revision), "siblings": sizes})


def _blob(data: bytes) -> str:
    """The number that git gives to a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _hub_file(files: Mapping[str, bytes], commit: str, path: str, request: _UpstreamRequest) -> _Answer:
    if path not in files:
        return _Answer(404, b"Entry not found", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
    return _piece(files[path], request, f'"{_blob(files[path])}"', {"X-Repo-Commit": commit})


def _json(value: object) -> _Answer:
    return _Answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})


# --- git ------------------------------------------------------------------------------------------------------


def _git(folder: Path, *arguments: str, data: bytes = b"", protocol: str = "") -> bytes:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = {"GIT_PROTOCOL": protocol, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, input=data, env=environment | settings, check=True, capture_output=True
    )
    return done.stdout


def _make_repository(folder: Path, files: Mapping[str, bytes]) -> None:
    """A bare repository with one commit, the same for the same files, by git's own import format."""
    folder.mkdir()
    _git(folder, "init", "--quiet", "--bare", f"--initial-branch={_BRANCH.rpartition('/')[2]}")
    for name in ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter"):
        _git(folder, "config", name, "true")
    stream = [f"commit {_BRANCH}\ncommitter Fixture <fixture@example.org> 946684800 +0000\ndata 7\nFixture\n".encode()]
    for path, data in sorted(files.items()):
        stream.append(b"M 100644 inline %s\ndata %d\n%s\n" % (_quoted(path), len(data), data))
    _git(folder, "fast-import", "--quiet", "--done", data=b"".join(stream) + b"done\n")


def _quoted(path: str) -> bytes:
    return b'"%s"' % path.replace("\\", "\\\\").replace('"', '\\"').encode()


def _git_answer(folder: Path, service: str, request: _UpstreamRequest) -> _Answer:
    """What git's HTTP transport sends; see gitprotocol-http(5)."""
    protocol = request.headers.get("git-protocol", "")
    command = ["upload-pack", "--stateless-rpc"]
    if service == "/info/refs":
        refs = _git(folder, *command, "--advertise-refs", ".", protocol=protocol)
        kind = "application/x-git-upload-pack-advertisement"
        return _Answer(200, b"001e# service=git-upload-pack\n0000" + refs, {"Content-Type": kind})
    packed = request.headers.get("content-encoding") == "gzip"
    data = gzip.decompress(request.body) if packed else request.body
    answer = _git(folder, *command, ".", data=data, protocol=protocol)
    return _Answer(200, answer, {"Content-Type": "application/x-git-upload-pack-result"})


# --- HTTP -----------------------------------------------------------------------------------------------------


class _UpstreamServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    content: _Content
    requests: list[str]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no error of ours."""


class _UpstreamHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: _UpstreamServer

    def _respond(self) -> None:
        host, _, rest = self.path.lstrip("/").partition("/")
        url = f"https://{unquote(host)}/{rest}"
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {url}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            answer = self.server.content.answer(_UpstreamRequest(self.command, url, headers, body))
        except (ValueError, subprocess.CalledProcessError, OSError) as error:
            answer = _Answer(500, f"{type(error).__name__}: {quote(str(error), safe=' :/')}\n".encode())
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_POST = _respond

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are kept in ``Mirrors.requests`` instead."""
