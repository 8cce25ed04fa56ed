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
import math
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

from automedbench.agent.models.chat import ChatMessage, Reply, Role, native_calls, native_message, request_body
from automedbench.base.endpoint.completion import clean_text
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


MAX_MESSAGES = 5000
MAX_DEPTH = 64

_PASSED = (
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "stop", "seed", "top_p"),
    *("presence_penalty", "frequency_penalty"),
)
_OF_MESSAGE = (
    *("role", "content", "name", "tool_calls", "tool_call_id", "refusal"),
    *("reasoning", "reasoning_content", "reasoning_details"),
)
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_LENGTHS = ("max_completion_tokens", "max_tokens")


class Refused(Exception):
    """A request that gets an error object instead of a reply: status, type and code as OpenAI names them.

    ``rule``: that of a finding, where the request is one.
    """

    def __init__(self, status: int, kind: str, code: str | None, message: str, rule: str | None = None) -> None:
        self.status, self.kind, self.code, self.rule = status, kind, code, rule
        super().__init__(message)

    @property
    def body(self) -> dict[str, Any]:
        """The error object."""
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.code}}


@dataclass(frozen=True)
class ProgramRequest:
    """A request of the program, checked: its own fields, and how it wants the answer."""

    fields: Mapping[str, Any]
    messages: tuple[Mapping[str, Any], ...]
    stream: bool
    stream_usage: bool
    max_tokens: int | None

    @property
    def chat(self) -> tuple[ChatMessage, ...]:
        """The messages as the log keeps them: parts that are no text are named, not kept."""
        return tuple(_as_chat(message) for message in self.messages)


Answer = Callable[[ProgramRequest], Reply]


def read_request(data: bytes) -> ProgramRequest:
    """Check the body of a request; raises Refused."""
    body = _parse(data)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _invalid("'messages' must be a list with at least one message")
    if len(messages) > MAX_MESSAGES:
        raise _invalid(f"{len(messages)} messages, at most {MAX_MESSAGES} are taken")
    if body.get("n") not in (None, 1):
        raise _invalid("'n' must be 1")
    options = body.get("stream_options")
    return ProgramRequest(
        fields={name: body[name] for name in _PASSED if body.get(name) is not None},
        messages=tuple(_checked(message) for message in messages),
        stream=body.get("stream") is True,
        stream_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=min((length for name in _LENGTHS if (length := _length(body.get(name)))), default=None),
    )


_TEXTS = frozenset({"text", "refusal", "input_audio"})
"""Parts of a message that hold what they say themselves."""


def refuse_outside(request: ProgramRequest) -> None:
    """Raises Refused for what would make the provider go out: tools that it runs, content behind an address."""
    tools, choice = request.fields.get("tools", []), request.fields.get("tool_choice", "auto")
    for tool in tools if isinstance(tools, list) else [tools]:
        if not _is_own_tool(tool):
            raise _outside("net.provider_tool", f"tools of the provider do not exist here: {_kind_of(tool)}")
    if not isinstance(choice, str) and not _is_own_tool(choice):
        raise _outside("net.provider_tool", f"tools of the provider do not exist here: {_kind_of(choice)}")
    for message in request.messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if not _holds_itself(part):
                raise _outside("net.remote_content", f"only text and data: URLs are passed on, not: {_kind_of(part)}")


def _is_own_tool(tool: Any) -> bool:
    """A function that the program runs itself; names with a dollar sign are some providers' own."""
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    return isinstance(function, dict) and not str(function.get("name")).startswith("$")


def _holds_itself(part: Any) -> bool:
    """A part that brings its content along, and nothing beside it that a provider could fetch."""
    if isinstance(part, str):
        return True
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or set(part) - {"type", kind, "cache_control"}:
        return False
    value = part.get(kind)
    if kind in _TEXTS:
        return isinstance(value, str) or (isinstance(value, dict) and kind == "input_audio")
    place = {"image_url": "url", "file": "file_data"}.get(kind)
    if place is None or (isinstance(value, dict) and set(value) - {place, "detail", "filename", "format"}):
        return False
    address = value.get(place) if isinstance(value, dict) else value
    return isinstance(address, str) and address.startswith("data:")


def _kind_of(value: Any) -> str:
    return str(value.get("type") or next(iter(value), ""))[:80] if isinstance(value, dict) else type(value).__name__


def _outside(rule: str, message: str) -> Refused:
    return Refused(400, "invalid_request_error", None, message, rule)


def upstream_body(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """The request as the endpoint gets it; the agent's ``extra_body`` has the last word."""
    body = request_body(agent, (), ())
    for name in ("tools", "tool_choice"):
        body.pop(name, None)
    body |= request.fields
    body["messages"] = [dict(message) for message in request.messages]
    if request.max_tokens is not None and "max_tokens" in body:
        body["max_tokens"] = min(request.max_tokens, agent.max_tokens)
    return body | agent.extra_body


def completion(reply: Reply, agent: Agent, number: int) -> dict[str, Any]:
    """A reply as the program gets it; ``number`` tells replies apart."""
    message = native_message(ChatMessage("assistant", reply.content, reply.calls, opaque=reply.opaque), True)
    usage = reply.usage
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": agent.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": reply.finish_reason,
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }


def stream_of(whole: Mapping[str, Any], *, usage: bool) -> Iterator[bytes]:
    """The same reply as server-sent events: role, text, calls, end, usage where it was asked for."""
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    message = dict(choice["message"])
    calls = [call | {"index": index} for index, call in enumerate(message.pop("tool_calls", []))]
    text, role = message.pop("content"), message.pop("role")
    deltas: list[dict[str, Any]] = [{"role": role, "content": ""}]
    deltas += [{name: value} for name, value in message.items()]
    deltas += [{"content": text}] if text else []
    deltas += [{"tool_calls": [call]} for call in calls]
    for delta in deltas:
        yield _event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if usage:
        yield _event(head | {"choices": [], "usage": whole["usage"]})
    yield b"data: [DONE]\n\n"


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _parse(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data, parse_constant=_refuse_constant)
        value = _clean(body, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise _invalid("the body must be a JSON object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _clean(value: Any, depth: int) -> Any:
    """The value without lone surrogates; raises ValueError beyond the depth."""
    if depth < 0:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner, depth - 1) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _checked(message: Any) -> Mapping[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise _invalid(f"each message needs a 'role' out of {', '.join(_ROLES)}")
    if not isinstance(message.get("content"), (str, list, type(None))):
        raise _invalid("'content' must be text, a list of parts, or null")
    return {name: message[name] for name in _OF_MESSAGE if name in message}


def _length(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _invalid(message: str) -> Refused:
    return Refused(400, "invalid_request_error", None, message)


def _as_chat(message: Mapping[str, Any]) -> ChatMessage:
    call_id = message.get("tool_call_id")
    return ChatMessage(
        role=_ROLES[message["role"]],
        content=_text(message.get("content")),
        calls=native_calls(message.get("tool_calls")),
        call_id=call_id if isinstance(call_id, str) else None,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_part(part) for part in content or [])


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else f"[{str(part.get('type') or 'part')[:40]}]"
