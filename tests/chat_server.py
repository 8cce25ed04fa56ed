"""A chat-completions endpoint on loopback that answers from a list of programmed responses."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One response: status, body (JSON unless bytes), headers, and how it misbehaves."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    drip_s: float = 0.0
    delay_s: float = 0.0

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def completion(content: Any = "hi", *, finish: str = "stop", usage: Any = "given", **message: Any) -> dict[str, Any]:
    """A well-formed body; ``usage='given'`` is 3 prompt and 2 completion tokens."""
    body = {
        "id": "x",
        "model": "served-model",
        "surprise": True,
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content} | message}
        ],
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5} if usage == "given" else usage
    return body


class ChatServer:
    """Serves ``answers`` one per request, the last one for ever; keeps what was asked. A context manager."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                owner.requests.append(json.loads(self.rfile.read(length)))
                owner.headers.append({name.lower(): value for name, value in self.headers.items()})
                answer = owner.answers.pop(0) if len(owner.answers) > 1 else owner.answers[0]
                try:
                    owner.send(self, answer)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        time.sleep(answer.delay_s)
        handler.send_response(answer.status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(answer.data) + (10 if answer.cut else 0)))
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        for byte in answer.data if answer.drip_s else ():
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(answer.drip_s)
        if not answer.drip_s:
            handler.wfile.write(answer.data)
        if answer.cut:
            handler.close_connection = True

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
