"""The HTTP of the test server: one thread per connection, answers whole, streamed, cut, late, slow or compressed."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from automedbench_rehearsal.model_server.answers import Answer, error_body, events, is_completion

BLOCK = 1024 * 1024
PIECES = 20
BACKLOG = 512

Post = Callable[[str, Mapping[str, str], bytes], tuple[Answer, Mapping[str, Any]]]
Get = Callable[[str, Mapping[str, str]], Answer]


class HttpServer:
    """Listens on 127.0.0.1 from its construction on, answers between ``start`` and ``stop``."""

    def __init__(self, port: int, post: Post, get: Get) -> None:
        self._stopped = threading.Event()
        self._server = _Server(port, post, get, self._stopped)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="scripted-server", daemon=True
        )

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End every answer and connection, also the silent ones, and close the port."""
        self._stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, port: int, post: Post, get: Get, stopped: threading.Event) -> None:
        self.post, self.get, self.stopped = post, get, stopped
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; anything else is shown."""
        import sys

        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def end_connections(self) -> None:
        """Threads that wait for the next request of a kept connection, or in the middle of an answer, end."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Cut(Exception):
    """The connection shall end here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: without this the second one waits for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        """The list of models."""
        self._send(self.server.get(self.path, dict(self.headers.items())), {})

    def do_POST(self) -> None:
        """A chat request."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.close_connection = True
            return self._send(Answer(411, error_body("Content-Length is missing", "invalid_request_error")), {})
        data = self.rfile.read(int(length))
        answer, request = self.server.post(self.path, dict(self.headers.items()), data)
        return self._send(answer, request)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _send(self, answer: Answer, request: Mapping[str, Any]) -> None:
        try:
            self._wait(answer.delay_s)
            if answer.cut == "at_once":
                raise _Cut
            streamed = bool(request.get("stream")) and answer.status == 200 and is_completion(answer.body)
            if streamed and not answer.gzip:
                self._send_events(answer, request)
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

    def _send_events(self, answer: Answer, request: Mapping[str, Any]) -> None:
        wanted = request.get("stream_options")
        parts = events(answer.body, isinstance(wanted, dict) and bool(wanted.get("include_usage")))
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Transfer-Encoding": "chunked"}
        self._send_head(200, headers | dict(answer.headers))
        self._send_parts([b"%x\r\n%s\r\n" % (len(part), part) for part in parts], answer)
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
    return list(_slices(data, size))


def _slices(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]
