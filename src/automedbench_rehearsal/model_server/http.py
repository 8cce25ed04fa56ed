"""The HTTP of the test server: turns of scripts as chat completions, whole, streamed, cut, late, slow or compressed."""

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

from automedbench.agent.models.model import Reply

PIECE = 400
"""Characters of text or arguments in one event of a stream."""


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

    @property
    def data(self) -> bytes:
        """The body as it is sent, before compression."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def completion(
    content: Any = "hi", *, finish: str = "stop", usage: Any = "given", model: str = "served-model", **message: Any
) -> dict[str, Any]:
    """A well-formed completion; ``usage='given'`` is 3 prompt and 2 completion tokens, None leaves it out."""
    said = {"role": "assistant", "content": content} | message
    body: dict[str, Any] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "service_tier": "default",
        "choices": [{"index": 0, "finish_reason": finish, "message": said}],
    }
    if usage is not None:
        body["usage"] = tokens(3, 2) if usage == "given" else usage
    return body


def tokens(prompt: int, answer: int) -> dict[str, int]:
    """The ``usage`` object of a completion."""
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """The body of a refusal, as most providers write it."""
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def spoken(reply: Reply, request: Mapping[str, Any], usage: tuple[int, int] | None = None) -> dict[str, Any]:
    """A scripted reply as the completion that answers ``request``.

    A request without tools gets the calls as text. ``usage`` fixes the tokens, else they are characters / 4.
    """
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    message: dict[str, Any] = {"content": reply.content or None}
    if calls and request.get("tools"):
        message["tool_calls"] = calls
    elif calls:
        message["content"] = "\n".join([reply.content, *map(_as_text, calls)]).strip()
    finish = "tool_calls" if "tool_calls" in message else "stop"
    said = len(message["content"] or "") + sum(len(json.dumps(call)) for call in message.get("tool_calls", []))
    counted = usage or (len(json.dumps(request.get("messages"))) // 4, said // 4)
    model = str(request.get("model") or reply.model)
    return completion(message.pop("content"), finish=finish, usage=tokens(*counted), model=model, **message)


def _as_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    written = {"name": function["name"], "arguments": json.loads(function["arguments"])}
    return f"<tool_call>{json.dumps(written, ensure_ascii=False)}</tool_call>"


def is_completion(body: Any) -> bool:
    """True when every choice of ``body`` has a message, so that it can be streamed."""
    choices = body.get("choices") if isinstance(body, dict) else None
    return bool(choices) and all(isinstance(choice.get("message"), dict) for choice in choices or ())


def events(body: Mapping[str, Any], with_usage: bool) -> list[bytes]:
    """The server-sent events of a completion, ``[DONE]`` last; text and arguments in pieces."""
    head = {key: body[key] for key in ("id", "created", "model") if key in body} | {"object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = []
    for choice in body["choices"]:
        for delta in _deltas(choice["message"]):
            chunks.append({"choices": [{"index": choice["index"], "delta": delta, "finish_reason": None}]})
        last = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks.append({"choices": [last]})
    if with_usage:
        chunks.append({"choices": [], "usage": body.get("usage")})
    lines = [json.dumps(head | chunk) for chunk in chunks]
    return [f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]]


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    content = message.get("content")
    deltas += [{"content": part} for part in _pieces(content)] if isinstance(content, str) else []
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        start = {"index": index, "id": call["id"], "type": "function"}
        deltas.append({"tool_calls": [start | {"function": {"name": function["name"], "arguments": ""}}]})
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in _pieces(text)]
    return deltas


def _pieces(text: str) -> Sequence[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


BLOCK = 1024 * 1024
PIECES = 20
BACKLOG = 512

Post = Callable[[str, Mapping[str, str], bytes], tuple[Answer, Mapping[str, Any]]]
Get = Callable[[str, Mapping[str, str]], Answer]


class HttpServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 from its construction on, answers between ``start`` and ``stop``."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, port: int, post: Post, get: Get) -> None:
        self.post, self.get, self.stopped = post, get, threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: without this the second one waits for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    server: HttpServer

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
    return [data[start : start + size] for start in range(0, len(data), size)]
