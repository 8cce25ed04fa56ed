"""Bridge from a program inside the container to the agent's model: an HTTP server on a UNIX socket of the driver's.

It speaks four protocols (``protocols``), streaming or not, and holds no key: the program's own token is worth nothing
elsewhere. Its clients are hostile: headers, bodies, connections and times are bounded, and few paths exist.
The program chooses messages, tools and their form; model, key, sampling and ``extra_body`` are the agent's. Unknown
fields are left out, because an endpoint may refuse the whole request for them. What would make the provider itself go
out (tools that it runs, pictures and files behind an address) is refused and is a finding; keys are masked in all that
goes in. Program and endpoint speak the same protocol: what is allowed passes unchanged.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from automedbench.agent.command.program import AgentProgram
from automedbench.agent.models.model import Reply
from automedbench.agent.protocols import PATHS, PROTOCOLS, count_tokens, find_call, list_models, whole_answer
from automedbench.agent.protocols.common import ApiCall, ProgramRequest, RequestRefused
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes
from automedbench.campaign.agents import Agent
from automedbench.sandbox.places import Services

PORTS = range(20_000, 30_000)
"""Loopback ports inside, one drawn for each run: in the network class ``open`` runs share the host's loopback."""

SOCKET = "model.sock"
LONGEST_SOCKET = 107  # bytes of a socket's path (unix(7)), less the closing zero

MAX_BODY, MAX_BODIES = 16 * 1024 * 1024, 64 * 1024 * 1024
"""Bytes of one request, and of all requests that are read or wait at a time."""
MAX_CONNECTIONS = 32
IDLE_S, BODY_S, JOIN_S = 60.0, 120.0, 5.0
ALIVE_S = 15.0
"""Seconds between two signs of life to a client that waits for a stream; programs give up after a minute or more."""
MAX_COUNTED = 50
"""Different paths and statuses that are counted."""

AnswerFunction = Callable[[ProgramRequest], Reply]
T = TypeVar("T")


@dataclass
class BridgeState:
    """State that the handlers of one bridge share; ``answer`` is None while no command runs."""

    agent: Agent
    token: str
    mask: Callable[[Any], Any] = lambda value: value
    answer: AnswerFunction | None = None
    refused: Callable[[RequestRefused], None] = lambda refusal: None
    requested: Counter[str] = field(default_factory=Counter)
    """Requests by method, path and status."""
    waiting: int = 0
    """Bytes of the requests that are read or wait."""
    reading: threading.Lock = field(default_factory=threading.Lock)
    one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    counting: threading.Lock = field(default_factory=threading.Lock)
    lost: tuple[str, dict[str, Any]] | None = None
    """Digest of a request whose client hung up before its answer, and the answer: a retry is not paid again."""

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Room for the bytes of a request; raises RequestRefused when others have taken it."""
        with self.counting:
            if self.waiting + size > MAX_BODIES:
                raise RequestRefused(503, "server_error", None, "too many large requests at a time")
            self.waiting += size
        try:
            yield
        finally:
            with self.counting:
                self.waiting -= size

    def note(self, method: str, target: str, status: int) -> None:
        request = f"{method} {self.mask(target.partition('?')[0][:80])} {status}"
        with self.counting:
            if request not in self.requested and len(self.requested) >= MAX_COUNTED:
                request = "others"
            self.requested[request] += 1

    def read(self, call: ApiCall, data: bytes) -> ProgramRequest:
        """A request, checked; raises RequestRefused. One is read at a time, and none is kept: it may need memory."""
        try:
            with self.reading:
                return PROTOCOLS[call.protocol].parse_request(call, data)
        except RequestRefused as refusal:
            if self.answer is not None and refusal.rule:
                self.refused(refusal)
            raise

    def reply(self, call: ApiCall, data: bytes, hung_up: Callable[[], bool]) -> tuple[ProgramRequest, dict[str, Any]]:
        """A request and the whole answer to it, in its turn; raises RequestRefused."""
        with self.one_at_a_time:
            request = self.read(call, data)
            if self.answer is None:
                raise RequestRefused(503, "server_error", None, "the run is over")
            digest = sha256_bytes(json.dumps([request.protocol, request.fields]).encode())
            if self.lost is not None and self.lost[0] == digest:
                whole = self.lost[1]
            else:
                whole = self.mask(whole_answer(request, self.answer(request)))
            self.lost = (digest, whole) if hung_up() else None
            return request, whole


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
        url = f"http://127.0.0.1:{port}"
        self.program = AgentProgram.create(agent, url, self.token)
        variables = _environment(agent, self.token, url) | self.program.environment
        self.services = Services(folder, {port: SOCKET}, variables)
        self._state = BridgeState(agent, self.token, mask)
        self._folder, self._brief = folder, brief
        self._server: _BridgeServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Bridge:
        path = self._folder / SOCKET
        if len(str(path).encode()) > LONGEST_SOCKET:
            raise InfrastructureError(
                f"The path of the model's socket is too long: {len(str(path).encode())} bytes, {LONGEST_SOCKET} work."
                "\nSet TMPDIR to a shorter folder."
            )
        self.program.install(self._folder, self._brief)
        self._server = _BridgeServer(str(path), self._state)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._state.answer = None
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server.hang_up()
        (self._folder / SOCKET).unlink(missing_ok=True)

    @contextmanager
    def serving(
        self, answer: AnswerFunction, refused: Callable[[RequestRefused], None] = lambda refusal: None
    ) -> Iterator[None]:
        """Answer the program's requests, one at a time, with ``answer``, which raises RequestRefused.

        ``refused`` is called for requests that would have made the provider go out.
        """
        self._state.answer, self._state.refused = answer, refused
        try:
            yield
        finally:
            self._state.answer = None

    @property
    def requested(self) -> Counter[str]:
        """Requests of the program so far by method, path and status of the answer."""
        return self._state.requested


def _environment(agent: Agent, token: str, url: str) -> dict[str, str]:
    """Addresses, token and model under the names that programs of the four protocols look for."""
    model = agent.model
    return {
        "AMB_URL": url,
        "AMB_TOKEN": token,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "ANTHROPIC_BASE_URL": url,
        "GOOGLE_GEMINI_BASE_URL": url,
        **{f"{name}_API_KEY": token for name in ("OPENAI", "ANTHROPIC", "GEMINI")},
        **{f"{name}_MODEL": model for name in ("OPENAI", "ANTHROPIC", "GEMINI")},
    }


# --- the server -----------------------------------------------------------------------------------------------


class _BridgeServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """One thread per connection, a bounded number of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, state: BridgeState) -> None:
        self.state = state
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        super().__init__(path, _BridgeHandler)

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
        threads = list(self._open.items())
        for connection, _ in threads:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        end = time.monotonic() + JOIN_S
        for _, thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


class _BridgeHandler(BaseHTTPRequestHandler):
    """The paths of the protocols; everything else is an error object."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "bridge", ""
    timeout = IDLE_S
    server: _BridgeServer
    call: ApiCall | None = None
    """The API call of the request at hand; an error has the form of its protocol."""

    def do_POST(self) -> None:
        self._guarded(self._post)

    def do_GET(self) -> None:
        self._guarded(self._get)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """The run's log holds what happened."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error that the base class found in a request, as an error object."""
        self.close_connection = True
        self._send(code, self._error(RequestRefused(code, "invalid_request_error", None, message or "bad request")))

    def _guarded(self, handle: Callable[[], None]) -> None:
        self.call = find_call("GET" if self.command == "HEAD" else self.command, self.path)
        if self.call and self.call.action in ("models", "model") and self.headers.get("x-goog-api-key"):
            self.call = replace(self.call, protocol="gemini")  # its SDKs use a path that others use as well
        try:
            handle()
        except RequestRefused as refused:
            # A body that was not read would be taken for the next request.
            self.close_connection = True
            self._send(refused.status, self._error(refused))

    def _error(self, refused: RequestRefused) -> dict[str, Any]:
        return PROTOCOLS[self.call.protocol if self.call else "chat"].error_body(refused)

    def _check(self) -> ApiCall:
        """The API call of a client with the token; raises RequestRefused."""
        scheme, _, bearer = self.headers.get("Authorization", "").partition(" ")
        given = [bearer] if scheme.lower() == "bearer" else []
        given += [self.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key")]
        given += _read_query_key(self.path)
        token = self.server.state.token.encode()
        if not any(hmac.compare_digest(word.strip().encode(), token) for word in given):
            raise RequestRefused(
                401, "invalid_request_error", "invalid_api_key", "this is not the key in OPENAI_API_KEY"
            )
        if self.call is None:
            message = f"no such path: {self.path[:80]}; there are {PATHS}"
            raise RequestRefused(404, "invalid_request_error", "unknown_url", message)
        return self.call

    def _get(self) -> None:
        if self.path in ("/", "/health"):  # whether a server is there at all
            return self._send(200, {})
        return self._send(200, list_models(self._check(), self.server.state.agent))

    def _post(self) -> None:
        state, length = self.server.state, self._length()
        with state.room(length):
            # Read first: a client that is refused while it still sends does not hear why.
            data = self._body(length)
            call = self._check()
            request = state.read(call, data)
            tokens, stream = count_tokens(request) if call.action == "count" else None, request.stream
            del request  # it may need memory, and is read again in its turn
            if tokens is not None:
                self._send(200, tokens)
            elif stream:
                self._stream(call, data)
            else:
                self._send(200, state.reply(call, data, self._hung_up)[1])

    def _length(self) -> int:
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise RequestRefused(415, "invalid_request_error", None, "a body must not be compressed")
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit() and len(length) < 12):
            raise RequestRefused(411, "invalid_request_error", None, "a body needs its Content-Length")
        if int(length) > MAX_BODY:
            raise RequestRefused(413, "invalid_request_error", None, f"{length} bytes, at most {MAX_BODY} are taken")
        return int(length)

    def _body(self, length: int) -> bytes:
        end, data = time.monotonic() + BODY_S, bytearray()
        while len(data) < length:
            block = self.rfile.read1(min(length - len(data), 1 << 20))
            if not block or time.monotonic() > end:
                raise RequestRefused(408, "invalid_request_error", None, "the body ended early or came too slowly")
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
        self._note(status)
        data = json.dumps(self.server.state.mask(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _note(self, status: int) -> None:
        if self.command in ("GET", "POST"):
            self.server.state.note(self.command, self.path, status)

    def _stream(self, call: ApiCall, data: bytes) -> None:
        """The answer as a stream; while it is waited for, the client sees that the connection lives."""
        protocol, state = PROTOCOLS[call.protocol], self.server.state
        pending = _in_background(lambda: state.reply(call, data, self._hung_up))
        begun = False
        try:
            while not wait([pending], ALIVE_S).done:
                if not begun:
                    self._begin_stream()
                    begun = True
                self.wfile.write(protocol.KEEP_ALIVE)
        except OSError:
            wait([pending])  # what comes is kept for the client's next try
            return
        try:
            request, whole = pending.result()
        except RequestRefused as refused:
            if not begun:
                raise
            masked = RequestRefused(refused.status, refused.kind, refused.code, state.mask(str(refused)))
            self.wfile.write(protocol.error_event(masked))
            return
        if not begun:
            self._begin_stream()
        for part in protocol.stream_answer(request, whole):
            self.wfile.write(part)

    def _begin_stream(self) -> None:
        self._note(200)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True


def _read_query_key(target: str) -> list[str]:
    """The ``key`` in a query, as Gemini's clients may give it."""
    try:
        return parse_qs(target.partition("?")[2], max_num_fields=20).get("key", [])
    except ValueError:
        return []


def _in_background(work: Callable[[], T]) -> Future[T]:
    """Start ``work`` in a thread of its own, which a process that ends does not wait for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
