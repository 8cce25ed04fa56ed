"""The HTTP of the test server: answers whole, as server-sent events, cut, late, slow or compressed."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from automedbench_rehearsal.model_server.wire import error_body


@dataclass(frozen=True)
class Answer:
    """One response: status, body (sent as JSON unless it is bytes), headers, and how the sending misbehaves."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: Literal["", "at_once", "body"] = ""
    """The connection ends before the first byte, or in the middle of the body."""
    delay_s: float = 0.0
    """Silence before the headers."""
    pause_s: float = 0.0
    """Silence in the middle of the body."""
    drip_s: float = 0.0
    """The body comes in small pieces over this time."""
    padding: int = 0
    """Blanks after the body, in bytes."""
    gzip: Literal["", "whole", "broken"] = ""
    """The body is compressed, or says so without being it."""
    events: Sequence[bytes] = ()
    """Sent in place of the body, as a stream."""

    @property
    def data(self) -> bytes:
        """The body as it is sent, before compression."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


BLOCK = 1024 * 1024
PIECES = 20
BACKLOG = 512

Post = Callable[[str, Mapping[str, str], bytes], Answer]
Get = Callable[[str, Mapping[str, str]], Answer]


class HttpServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 from its construction on, answers between ``start`` and ``stop``."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, port: int, post: Post, get: Get) -> None:
        self.post, self.get, self.stopped = post, get, threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _ModelHandler)
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, name="scripted-server", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End every answer and connection, also the silent ones, and close the port."""
        self.stopped.set()
        self.shutdown()
        self._thread.join()
        self._end_connections()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Note the connection, so that it can be ended."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection ended by itself."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; anything else is shown."""
        import sys

        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _end_connections(self) -> None:
        """Threads that wait for the next request of a kept connection, or in the middle of an answer, end."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Cut(Exception):
    """The connection shall end here."""


class _ModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: without this the second one waits for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    server: HttpServer

    def do_GET(self) -> None:
        """The list of models."""
        self._send(self.server.get(self.path, dict(self.headers.items())))

    def do_POST(self) -> None:
        """A request for a reply."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.close_connection = True
            return self._send(Answer(411, error_body("Content-Length is missing", "invalid_request_error")))
        data = self.rfile.read(int(length))
        return self._send(self.server.post(self.path, dict(self.headers.items()), data))

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _send(self, answer: Answer) -> None:
        try:
            self._wait(answer.delay_s)
            if answer.cut == "at_once":
                raise _Cut
            if answer.events and not answer.gzip:
                self._send_events(answer)
            else:
                self._send_whole(answer)
        except (_Cut, OSError):
            self.close_connection = True

    def _send_whole(self, answer: Answer) -> None:
        data = answer.data
        headers = {"Content-Type": "application/json"} | dict(answer.headers)
        if answer.gzip:
            headers["Content-Encoding"] = "gzip"
            data = gzip.compress(data, 1) if answer.gzip == "whole" else b"\x1f\x8b\x08 this is not gzip"
        headers["Content-Length"] = str(len(data) + answer.padding)
        self._send_head(answer.status, headers)
        self._send_parts(_parts(data, answer), answer)
        for start in range(0, answer.padding, BLOCK):
            self.wfile.write(b" " * min(BLOCK, answer.padding - start))

    def _send_events(self, answer: Answer) -> None:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Transfer-Encoding": "chunked"}
        self._send_head(200, headers | dict(answer.headers))
        self._send_parts([b"%x\r\n%s\r\n" % (len(part), part) for part in answer.events], answer)
        self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_parts(self, parts: list[bytes], answer: Answer) -> None:
        """All parts, or half of them before the cut or the pause."""
        half = len(parts) // 2
        for number, part in enumerate(parts):
            if number == half:
                self._wait(answer.pause_s)
                if answer.cut == "body":
                    raise _Cut
            self.wfile.write(part)
            self._wait(answer.drip_s / len(parts))

    def _wait(self, seconds: float) -> None:
        if seconds > 0 and self.server.stopped.wait(seconds):
            raise _Cut


def _parts(data: bytes, answer: Answer) -> list[bytes]:
    """``data`` in as many parts as its way of being sent needs; at least two."""
    size = max(1, -(-len(data) // (PIECES if answer.drip_s else 2)))
    return [data[start : start + size] for start in range(0, len(data), size)]
