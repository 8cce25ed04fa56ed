"""Exchange, shared by proxy and mirror: a client's request, its answer, its line in the log, and the label tripwire."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import h11

from automedbench.sandbox.egress.dial import Dialer
from automedbench.sandbox.egress.request_log import Entry
from automedbench.sandbox.egress.rules import Verdict
from automedbench.sandbox.egress.settings import EgressSettings
from automedbench.sandbox.egress.wire import BLOCK, HEAD_S, IDLE_S, MAX_HEAD, Closed, Wire

# The end of every body waits here until the hash of all of it is known: a file that is held out never arrives whole.
HELD_BYTES = 256 * 1024
LINGER_S = 2.0
LINGER_BYTES = 4 * 1024 * 1024

Pairs = Iterable[tuple[bytes, bytes]]


@dataclass
class Exchange:
    """One request of agent code."""

    wire: Wire
    request: h11.Request
    entry: Entry
    settings: EgressSettings
    dialer: Dialer

    @property
    def method(self) -> str:
        """In the client's spelling."""
        return self.request.method.decode("latin-1")

    @property
    def target(self) -> str:
        """As it stands in the request line."""
        return self.request.target.decode("latin-1")

    async def body(self) -> bytes | None:
        """The request's body, or None when it is over the limit for uploads."""
        if self.wire.http.they_are_waiting_for_100_continue:
            await self.wire.send(h11.InformationalResponse(status_code=100, headers=[]))
        body = await self.wire.body(self.settings.upload_bytes)
        self.entry.up = len(body) if body is not None else self.settings.upload_bytes
        return body

    async def say(self, status: int, text: str) -> None:
        """Answer with one line for a person."""
        if self.wire.http.our_state is not h11.SEND_RESPONSE:
            return
        self.entry.status = status
        line = re.sub(r"[^ -~]", "?", text)[:300]
        data = f"{line}\n".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(data)).encode())]
        if self.entry.service == "hub" and status == 403:
            # The hub's own words for "not for you": its library then shows the message instead of "check your network".
            headers += [(b"x-error-code", b"GatedRepo"), (b"x-error-message", line.encode())]
        # Of a refused tunnel, programs show the reason and nothing else.
        await self._send_head(status, headers, line.encode()[:200])
        if self.request.method != b"HEAD":
            await self.wire.send(h11.Data(data=data))
        await self.wire.send(h11.EndOfMessage())

    async def pass_on(self, status: int, headers: Pairs, upstream: Wire) -> Verdict | None:
        """Send the answer's head and stream its body through the tripwire; a verdict when that went off."""
        self.entry.status = status
        await self._send_head(status, headers)
        held: deque[bytes] = deque()
        size = sent = 0
        digest = hashlib.sha256()
        while not isinstance(event := await upstream.receive(), h11.EndOfMessage):
            if not isinstance(event, h11.Data) or not event.data:
                continue
            block = bytes(event.data)
            digest.update(block)
            held.append(block)
            size += len(block)
            while size - sent - len(held[0]) >= HELD_BYTES:
                sent += await self._pass_block(held.popleft())
        if size and digest.hexdigest() in self.settings.hashes:
            self.entry.sha256 = digest.hexdigest()
            return found_labels(delivered=sent > 0)
        for block in held:
            await self._pass_block(block)
        await self.wire.send(h11.EndOfMessage())
        return None

    async def _send_head(self, status: int, headers: Pairs, reason: bytes = b"") -> None:
        # One request per connection: nothing that follows can be taken for a part of this one.
        kept = [(key, value) for key, value in headers if key.lower() != b"connection"]
        head = h11.Response(status_code=status, headers=[*kept, (b"connection", b"close")], reason=reason)
        await self.wire.send(head)

    async def _pass_block(self, block: bytes) -> int:
        await self.wire.send(h11.Data(data=block))
        self.entry.down += len(block)
        return len(block)


def found_labels(*, delivered: bool) -> Verdict:
    """Verdict on content that equals a held-out file."""
    text = "The content is held out: it equals a file of this task's labels or raw data."
    return Verdict(False, "labels", text, "net.labels", "disqualifying" if delivered else "warning", "high")


def too_much(settings: EgressSettings) -> Verdict:
    """Verdict on an upload over the limit."""
    text = f"Uploads of more than {settings.upload_bytes} bytes are refused."
    return Verdict(False, "upload", text, "net.upload", "warning", "high")


async def linger(wire: Wire) -> None:
    """Say that nothing follows and read what the client still sends: a hard close could swallow our answer."""
    try:
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            wire.writer.write_eof()
            async with asyncio.timeout(LINGER_S):
                left = LINGER_BYTES
                while left > 0 and (data := await wire.reader.read(BLOCK)):
                    left -= len(data)
    finally:
        wire.close()


async def relay(
    client: Wire, upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter], entry: Entry, over: Callable[[], bool]
) -> bool:
    """Pipe both directions until both have ended or one breaks; true when ``over`` (asked per block) stopped it."""
    reader, writer = upstream
    stopped = False

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str) -> None:
        nonlocal stopped
        while data := await source.read(BLOCK):
            setattr(entry, direction, getattr(entry, direction) + len(data))
            if over():
                stopped = True
                return
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    up = asyncio.create_task(pipe(client.reader, writer, "up"))
    down = asyncio.create_task(pipe(reader, client.writer, "down"))
    tasks = {up, down}
    seen = -1
    try:
        while tasks and not stopped:
            done, tasks = await asyncio.wait(tasks, timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
            moved, seen = entry.up + entry.down != seen, entry.up + entry.down
            if any(task.exception() is not None for task in done) or not (done or moved):
                break
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
    return stopped


async def read_request(wire: Wire) -> h11.Request:
    """The head of a client's request; raises Closed, or h11.RemoteProtocolError for what is none."""
    event = await wire.receive(HEAD_S)
    if not isinstance(event, h11.Request):
        raise Closed("no request")
    # h11 bounds what is incomplete, and a large head may come complete in one piece.
    if len(event.target) + sum(len(name) + len(value) for name, value in event.headers) > MAX_HEAD:
        raise h11.RemoteProtocolError("head too long", error_status_hint=431)
    return event
