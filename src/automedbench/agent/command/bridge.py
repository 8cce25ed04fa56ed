"""Bridge from a program inside the container to the agent's model: an HTTP server on a UNIX socket of the driver's.

It speaks the chat-completions protocol, streaming or not, and holds no key: the program's own token is worth nothing
elsewhere. Its clients are hostile: headers, bodies, connections and times are bounded, and only two paths exist.
The program chooses messages, tools and their form; model, key, sampling and ``extra_body`` are the agent's. Unknown
fields are left out, because an endpoint may refuse the whole request for them. What would make the provider itself go
out (tools that it runs, pictures and files behind an address) is refused and is a finding; keys are masked in all that
goes in.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import shlex
import shutil
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

from automedbench.agent.command.protocols.chat import completion, read_request, refuse_outside, stream_of
from automedbench.agent.command.protocols.common import Answer, ProgramRequest, Refused
from automedbench.agent.models.model import Reply
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import sha256_bytes, write_text
from automedbench.campaign.agents import Agent
from automedbench.sandbox.container.launcher import SERVICES_DIR, Services

PORTS = range(20_000, 30_000)
"""Loopback ports inside, one drawn for each run: in the network class ``open`` runs share the host's loopback."""

SOCKET, BRIEF, FOLDER = "model.sock", "brief.md", "agent"
LONGEST_SOCKET = 107  # bytes of a socket's path (unix(7)), less the closing zero

MAX_BODY, MAX_BODIES = 16 * 1024 * 1024, 64 * 1024 * 1024
"""Bytes of one request, and of all requests that are read or wait at a time."""
MAX_CONNECTIONS = 32
IDLE_S, BODY_S, JOIN_S = 60.0, 120.0, 5.0


@dataclass
class Place:
    """What the handlers of one bridge share; ``answer`` is None while no command runs."""

    agent: Agent
    token: str
    mask: Callable[[Any], Any] = lambda value: value
    answer: Answer | None = None
    refused: Callable[[Refused], None] = lambda refusal: None
    replies: int = 0
    waiting: int = 0
    """Bytes of the requests that are read or wait."""
    one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    counting: threading.Lock = field(default_factory=threading.Lock)
    lost: tuple[str, Reply] | None = None
    """Digest of a request whose client hung up before its reply, and that reply: asked again, it is not paid again."""

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Room for the bytes of a request; raises Refused when others have taken it."""
        with self.counting:
            if self.waiting + size > MAX_BODIES:
                raise Refused(503, "server_error", None, "too many large requests at a time")
            self.waiting += size
        try:
            yield
        finally:
            with self.counting:
                self.waiting -= size

    def reply(self, data: bytes, hung_up: Callable[[], bool]) -> tuple[ProgramRequest, Reply]:
        """One request, read, and the reply to it; raises Refused. Only one is read at a time: it may need memory."""
        digest = sha256_bytes(data)
        with self.one_at_a_time:
            request = self._read(data)
            if self.answer is None:
                raise Refused(503, "server_error", None, "the run is over")
            if self.lost is not None and self.lost[0] == digest:
                reply = self.lost[1]
            else:
                reply = self.answer(request)
                self.replies += 1
            self.lost = (digest, reply) if hung_up() else None
            return request, reply

    def _read(self, data: bytes) -> ProgramRequest:
        try:
            request = read_request(data)
            refuse_outside(request)
        except Refused as refusal:
            if self.answer is not None and refusal.rule:
                self.refused(refusal)
            raise
        return request


class Bridge:
    """The socket, the brief and the program's folder, offered to the container; a context manager.

    ``folder`` becomes ``/run/services`` inside. Requests are refused until ``serving``. ``mask`` takes the keys out of
    what goes in.
    """

    def __init__(
        self, agent: Agent, folder: Path, *, brief: str, mask: Callable[[Any], Any] = lambda value: value
    ) -> None:
        self.token = f"sk-bridge-{secrets.token_hex(16)}"
        port = secrets.choice(PORTS)
        self.services = Services(folder, {port: SOCKET}, _environment(agent, self.token, port))
        self._place = Place(agent, self.token, mask)
        self._agent, self._folder, self._brief = agent, folder, brief
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Bridge:
        path = self._folder / SOCKET
        if len(str(path).encode()) > LONGEST_SOCKET:
            raise InfrastructureError(
                f"The path of the model's socket is too long: {len(str(path).encode())} bytes, {LONGEST_SOCKET} work."
                "\nSet TMPDIR to a shorter folder."
            )
        write_text(self._folder / BRIEF, self._brief)
        self._copy_program()
        self._server = _Server(str(path), self._place)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._place.answer = None
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server.hang_up()
        (self._folder / SOCKET).unlink(missing_ok=True)

    @contextmanager
    def serving(self, answer: Answer, refused: Callable[[Refused], None] = lambda refusal: None) -> Iterator[None]:
        """Answer the program's requests, one at a time, with ``answer``, which raises Refused.

        ``refused`` is told of requests that would have made the provider go out.
        """
        self._place.answer, self._place.refused = answer, refused
        try:
            yield
        finally:
            self._place.answer = None

    def command_line(self, workspace: str, data: str) -> str:
        """The agent's command as a shell reads it, its placeholders filled in."""
        values = {
            "brief": f"{SERVICES_DIR}/{BRIEF}",
            "folder": f"{SERVICES_DIR}/{FOLDER}",
            "model": self._agent.model,
            "workspace": workspace,
            "data": data,
        }
        return shlex.join(_filled(word, values) for word in self._agent.command or [])

    def _copy_program(self) -> None:
        if self._agent.command_folder is None:
            return
        source = Path(self._agent.command_folder)
        if not source.is_dir():
            raise MissingDataError(f"command_folder: {source} is no folder.\nCheck the agent's entry.")
        shutil.copytree(source, self._folder / FOLDER, ignore=shutil.ignore_patterns("__pycache__"))


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _environment(agent: Agent, token: str, port: int) -> dict[str, str]:
    url = f"http://127.0.0.1:{port}/v1"
    return {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": token, "OPENAI_MODEL": agent.model}


# --- the server -----------------------------------------------------------------------------------------------


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """One thread per connection, a bounded number of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, place: Place) -> None:
        self.place = place
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        super().__init__(path, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            if len(self._open) >= MAX_CONNECTIONS:
                self.shutdown_request(request)
                return
            thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
            self._open[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or sent nonsense is no event of ours."""

    def hang_up(self) -> None:
        """End what connections are left."""
        threads = list(self._open.items())
        for connection, _ in threads:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        end = time.monotonic() + JOIN_S
        for _, thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    """Two paths of the protocol; everything else is an error object."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "bridge", ""
    timeout = IDLE_S
    server: _Server
    CHAT: ClassVar = ("/v1/chat/completions", "/chat/completions")
    MODELS: ClassVar = ("/v1/models", "/models")

    def do_POST(self) -> None:
        self._guarded(self._post)

    def do_GET(self) -> None:
        self._guarded(self._get)

    def log_message(self, *_: object) -> None:
        """The run's log holds what happened."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong with a request, as an error object."""
        self.close_connection = True
        self._send(code, Refused(code, "invalid_request_error", None, message or "bad request").body)

    def _guarded(self, handle: Callable[[], None]) -> None:
        try:
            handle()
        except Refused as refused:
            # A body that was not read would be taken for the next request.
            self.close_connection = True
            self._send(refused.status, refused.body)

    def _check(self) -> None:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.place.token}".encode()):
            raise Refused(401, "invalid_request_error", "invalid_api_key", "this is not the key in OPENAI_API_KEY")

    def _get(self) -> None:
        self._check()
        if self.path not in self.MODELS:
            raise _unknown(self.path)
        model = {"id": self.server.place.agent.model, "object": "model", "created": 0, "owned_by": "agent"}
        self._send(200, {"object": "list", "data": [model]})

    def _post(self) -> None:
        place, length = self.server.place, self._length()
        with place.room(length):
            # Read first: a client that is refused while it still sends does not hear why.
            data = self._body(length)
            self._check()
            if self.path not in self.CHAT:
                raise _unknown(self.path)
            request, reply = place.reply(data, self._hung_up)
        whole = completion(reply, place.agent, place.replies)
        if request.stream:
            self._stream(stream_of(place.mask(whole), usage=request.stream_usage))
        else:
            self._send(200, whole)

    def _length(self) -> int:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit() and len(length) < 12):
            raise Refused(411, "invalid_request_error", None, "a body needs its Content-Length")
        if int(length) > MAX_BODY:
            raise Refused(413, "invalid_request_error", None, f"{length} bytes, at most {MAX_BODY} are taken")
        return int(length)

    def _body(self, length: int) -> bytes:
        end, data = time.monotonic() + BODY_S, bytearray()
        while len(data) < length:
            block = self.rfile.read1(min(length - len(data), 1 << 20))
            if not block or time.monotonic() > end:
                raise Refused(408, "invalid_request_error", None, "the body ended early or came too slowly")
            data += block
        return bytes(data)

    def _hung_up(self) -> bool:
        """The client's end is closed: it gave up waiting."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(self.server.place.mask(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            self.wfile.write(event)


def _unknown(path: str) -> Refused:
    return Refused(404, "invalid_request_error", "unknown_url", f"no such path: {path[:80]}")
