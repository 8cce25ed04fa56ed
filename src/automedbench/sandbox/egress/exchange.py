"""Exchange, shared by proxy and mirror: a client's request, what is asked upstream, the answer, and the log.

Answers pass through the tripwire, which knows the hashes of held-out files.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urljoin, urlsplit

import h11

from automedbench.base.records import Finding, Severity
from automedbench.sandbox.egress.cache import Cache
from automedbench.sandbox.egress.dial import (
    BLOCK,
    HEAD_S,
    MAX_HEAD,
    Closed,
    Dialer,
    HttpConnection,
    Streams,
    UpstreamUnreachable,
)
from automedbench.sandbox.egress.planted import Outage
from automedbench.sandbox.egress.rules import EgressRefused, EgressSettings, Ruling, refuse, url_port

if TYPE_CHECKING:
    from automedbench.sandbox.egress.authority import Authority

# The end of every body waits here until the hash of all of it is known: a file that is held out never arrives whole.
HELD_BYTES = 256 * 1024
SMALL_BYTES = 64 * 1024**2
"""Listings and files without a published SHA-256 are held whole up to this size; longer ones are not kept."""
MAX_HOPS = 6
"""Redirects that are followed."""
LINGER_S = 2.0
LINGER_BYTES = 4 * 1024 * 1024

# Acknowledgements and requests of a large download are no upload.
UPLOAD_SHARE = 0.01

Pairs = Iterable[tuple[bytes, bytes]]

# The hub's own words for "not for you": its library then shows the message instead of "check your network".
_HUB_ERROR_CODES = {403: b"GatedRepo", 404: b"EntryNotFound"}


@dataclass
class Uploads:
    """Upload counter of all connections of a run, request heads included, against their common limit."""

    limit: float
    sent: int = 0
    received: InitVar[int] = 0

    def __post_init__(self, received: int) -> None:
        self.limit += UPLOAD_SHARE * received
        self._reported = self.is_over

    @property
    def is_over(self) -> bool:
        """True when nothing more may leave."""
        return self.sent > self.limit

    def add(self, up: int, down: int = 0) -> None:
        """Count bytes; what comes down earns its share."""
        self.sent += up
        self.limit += UPLOAD_SHARE * down

    def refuse(self) -> EgressRefused:
        """Refusal of what would go over the limit: a warning once in a run, then a notice for all that is asked."""
        text = f"This run has sent up all that it may ({self.limit:.0f} bytes over all connections)."
        if self._reported:
            return refuse("upload_total", text)
        self._reported = True
        return EgressRefused(Ruling(False, "upload_total", text, "net.upload", "warning", "high"))


@dataclass(frozen=True)
class Outside:
    """State shared by all exchanges of a run: rules, dialer, cache and tokens."""

    settings: EgressSettings
    dialer: Dialer
    uploads: Uploads
    tokens: Mapping[str, str]
    """Of ``settings.gated``: repository of the hub → token."""
    authority: Authority | None
    """For ``settings.opened``."""
    cache: Cache | None
    """The campaign's, for ``settings.cached``."""
    planted: Outage


@dataclass(frozen=True)
class UpstreamAnswer:
    """Head of an answer from outside, and the connection that brings its body."""

    url: str
    head: h11.Response
    wire: HttpConnection
    token: str = ""
    """The driver's, if the answer or one that led here was given for it."""

    def header(self, name: bytes) -> str:
        """First value of a header, empty without."""
        return first_header(self.head.headers, name)

    @property
    def redirect(self) -> str | None:
        """URL that the answer redirects to, if it does."""
        location = self.header(b"location") if self.head.status_code in (301, 302, 303, 307, 308) else ""
        return urljoin(self.url, location) if location else None

    async def small_body(self) -> bytes:
        """The body of an answer that is held whole; raises UpstreamUnreachable when it is longer than SMALL_BYTES."""
        body = await self.wire.body(SMALL_BYTES)
        if body is None:
            raise UpstreamUnreachable("the answer is too long")
        return body


def first_header(headers: Pairs, name: bytes) -> str:
    """First value of a header, empty without."""
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


@dataclass
class ProxyExchange:
    """One request of agent code; ``within`` is the host of the opened TLS that it came in."""

    wire: HttpConnection
    request: h11.Request
    entry: EgressEntry
    outside: Outside
    within: str | None = None
    opened: tuple[str, HttpConnection] | None = None
    """Set by a tunnel whose TLS is opened: its host, and the connection on which requests follow."""

    @property
    def settings(self) -> EgressSettings:
        """Rules of the run."""
        return self.outside.settings

    @property
    def cache(self) -> Cache | None:
        """Models and packages that lie here, where there is one."""
        return self.outside.cache

    def count_upload(self, up: int) -> None:
        """Count bytes before they are passed on; raises EgressRefused when the run's uploads are used up."""
        uploads = self.outside.uploads
        uploads.add(up)
        if uploads.is_over:
            raise uploads.refuse()

    @property
    def method(self) -> str:
        """Method in the client's spelling."""
        return self.request.method.decode("latin-1")

    @property
    def target(self) -> str:
        """Target as in the request line."""
        return self.request.target.decode("latin-1")

    async def body(self) -> bytes:
        """The request's body; raises EgressRefused when it is over a limit for uploads."""
        if self.wire.http.they_are_waiting_for_100_continue:
            await self.wire.send(h11.InformationalResponse(status_code=100, headers=[]))
        body = await self.wire.body(self.settings.upload_bytes)
        self.entry.up = len(body) if body is not None else self.settings.upload_bytes
        self.count_upload(head_bytes(self.request) + len(body or b""))
        if body is None:
            raise refuse_upload(self.settings)
        return body

    async def send_text(self, status: int, text: str) -> None:
        """Answer with one line for a person."""
        if self.wire.http.our_state is not h11.SEND_RESPONSE:
            return
        self.entry.status = status
        line = re.sub(r"[^ -~]", "?", text)[:300]
        data = f"{line}\n".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(data)).encode())]
        if self.entry.service == "hub" and status in _HUB_ERROR_CODES:
            headers += [(b"x-error-code", _HUB_ERROR_CODES[status]), (b"x-error-message", line.encode())]
        # Of a refused tunnel, programs show the reason and nothing else.
        await self.send_whole(status, headers, data, line.encode()[:200])

    async def send_whole(self, status: int, headers: Pairs, body: bytes, reason: bytes = b"") -> None:
        """Answer with a body that is there; of a HEAD only the head."""
        await self.send_head(status, headers, reason)
        if self.request.method != b"HEAD":
            await self.wire.send(h11.Data(data=body))
        await self.wire.send(h11.EndOfMessage())

    async def forward(self, status: int, headers: Pairs, upstream: HttpConnection) -> None:
        """Send the answer's head and stream its body through the tripwire; raises EgressRefused when that goes off."""
        self.entry.status = status
        await self.send_head(status, headers)
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
            raise refuse_labels(delivered=sent > 0)
        for block in held:
            await self._pass_block(block)
        await self.wire.send(h11.EndOfMessage())

    async def request_url(
        self, url: str, headers: Pairs, body: bytes = b"", method: str | None = None, token: str = ""
    ) -> UpstreamAnswer:
        """Send a request to a URL that a rule has let through. Raises EgressRefused, UpstreamUnreachable, Closed."""
        parts = urlsplit(url)
        streams = await self.outside.dialer.open(parts.hostname or "", url_port(parts), tls=parts.scheme == "https")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head, wire = await self.send_request(
            streams, target, [(b"host", parts.netloc.encode()), *headers], body, method
        )
        return UpstreamAnswer(url, head, wire, token)

    async def send_request(
        self, streams: Streams, target: str, headers: Pairs, body: bytes = b"", method: str | None = None
    ) -> tuple[h11.Response, HttpConnection]:
        """Ask upstream for what a rule has let through; the head of its answer, and the wire that brings the rest.

        Uncompressed, so that the tripwire sees the content; one request per connection. Raises Closed.
        """
        upstream = HttpConnection(h11.CLIENT, *streams)
        own = [(b"accept-encoding", b"identity"), (b"connection", b"close")]
        if body or self.method == "POST":
            own.append((b"content-length", str(len(body)).encode()))
        try:
            await upstream.send(h11.Request(method=method or self.method, target=target, headers=[*headers, *own]))
            if body:
                await upstream.send(h11.Data(data=body))
            await upstream.send(h11.EndOfMessage())
            while isinstance(answer := await upstream.receive(), h11.InformationalResponse):
                continue
        except BaseException:
            upstream.close()
            raise
        assert isinstance(answer, h11.Response)
        return answer, upstream

    async def send_head(self, status: int, headers: Pairs, reason: bytes = b"") -> None:
        """Begin the answer."""
        # Outside of an opened tunnel one request per connection: nothing that follows can be taken for a part of it.
        stays = self.within is not None and self.wire.http.their_state is h11.DONE
        kept = [(key, value) for key, value in headers if key.lower() != b"connection"]
        own = [] if stays else [(b"connection", b"close")]
        await self.wire.send(h11.Response(status_code=status, headers=[*kept, *own], reason=reason))

    async def _pass_block(self, block: bytes) -> int:
        self.outside.planted.pass_on(self.entry, len(block))
        await self.wire.send(h11.Data(data=block))
        self.entry.down += len(block)
        self.outside.uploads.add(0, len(block))
        return len(block)


def refuse_labels(*, delivered: bool) -> EgressRefused:
    """Refusal of content that equals a held-out file."""
    text = "The content is held out: it equals a file of this task's labels or raw data."
    severity: Severity = "disqualifying" if delivered else "warning"
    return EgressRefused(Ruling(False, "labels", text, "net.labels", severity, "high"))


def refuse_upload(settings: EgressSettings) -> EgressRefused:
    """Refusal of an upload over the limit."""
    text = f"Uploads of more than {settings.upload_bytes} bytes are refused."
    return EgressRefused(Ruling(False, "upload", text, "net.upload", "warning", "high"))


async def drain_and_close(wire: HttpConnection) -> None:
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


async def read_request(wire: HttpConnection) -> h11.Request:
    """The head of a client's request; raises Closed, or h11.RemoteProtocolError for what is none."""
    event = await wire.receive(HEAD_S)
    if not isinstance(event, h11.Request):
        raise Closed("no request")
    # h11 bounds what is incomplete, and a large head may come complete in one piece. Rules read the whole address.
    if len(event.target) > MAX_TARGET:
        raise h11.RemoteProtocolError("address too long", error_status_hint=414)
    if head_bytes(event) > MAX_HEAD:
        raise h11.RemoteProtocolError("head too long", error_status_hint=431)
    return event


def head_bytes(request: h11.Request) -> int:
    """Size of what a request says before its body."""
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


MAX_TARGET = 8 * 1024
MAX_CALL, MAX_RUN = 2_000, 50_000  # lines of the log
MAX_HOST, MAX_PATH = 120, 240
MAX_KINDS = 64
MAX_FINDINGS, NAMED_PLACES = 5, 3
_ORDER = {"disqualifying": 0, "warning": 1, "notice": 2}

Service = Literal["proxy", "hub", "index"]

_SECRET = re.compile(r"\b(sk-|hf_|ghp_|github_pat_|xox[bp]-|AKIA)[A-Za-z0-9_-]{6,}|[A-Za-z0-9+_-]{80,}={0,2}")


@dataclass
class EgressEntry:
    """One request on its way; ``up`` and ``down`` are bytes of bodies, or of the tunnel."""

    service: Service
    call: int | None
    turn: int | None
    method: str = "?"
    host: str = ""
    port: int | None = None
    path: str = ""
    status: int | None = None
    up: int = 0
    down: int = 0
    sha256: str | None = None
    planted: bool = False
    begun: float = field(default_factory=time.monotonic)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def begin(self, turn: int | None, call: int | None) -> None:
        """Start the clock of a request on a connection that was kept open."""
        self.turn, self.call, self.begun, self.at = turn, call, time.monotonic(), datetime.now(UTC)


@dataclass
class RefusalCount:
    """Refusals of one kind in one call."""

    ruling: Ruling
    count: int = 0
    where: Counter[str] = field(default_factory=Counter)


def make_findings(kinds: Iterable[RefusalCount], turn: int | None, call: int | None) -> list[Finding]:
    """Findings of one call: the worst kinds of refusal one each, what is over the limit in the last one's words."""
    ranked = sorted(kinds, key=lambda kind: (_ORDER[kind.ruling.severity], kind.ruling.rule, -kind.count))
    kept, rest = ranked[:MAX_FINDINGS], ranked[MAX_FINDINGS:]
    last = f"; {sum(kind.count for kind in rest)} other refusals: see the log of requests" if rest else ""
    numbered = enumerate(kept, start=1)
    return [_finding(kind, number, last if number == len(kept) else "", turn, call) for number, kind in numbered]


def _finding(kind: RefusalCount, number: int, last: str, turn: int | None, call: int | None) -> Finding:
    ruling, shown = kind.ruling, [place for place, _ in kind.where.most_common(NAMED_PLACES)]
    more = f" and {len(kind.where) - len(shown)} more" if len(kind.where) > len(shown) else ""
    return Finding.of(
        ruling.rule,
        "egress",
        "network",
        ruling.severity,
        ruling.confidence,
        f"{ruling.reason}: {', '.join(shown)[:180] or 'no host'}{more} ({kind.count} times){last}",
        turn=turn,
        call=call,
        place=f"{'end' if call is None else f'{call:04d}'}-{number}",
        blocked=ruling.severity != "disqualifying",
    )


class RequestLog:
    """Appends to a file; what is over the limits is counted, and the counts are appended at the end of a call."""

    def __init__(self, path: Path) -> None:
        self.sent_before, self.received_before = _sum_bytes(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._run_lines = 0
        self._start_call()

    def close(self) -> None:
        """Write what is still to be counted, and close the file."""
        self._write_skipped(None, None)
        os.fsync(self._file)
        os.close(self._file)

    def record(self, entry: EgressEntry, ruling: Ruling) -> None:
        """Append one request with its ruling."""
        host, path = mask(entry.host, MAX_HOST), mask(entry.path.partition("?")[0], MAX_PATH)
        outcome = "allowed" if ruling.allowed else "refused"
        if not ruling.allowed:
            self._count(ruling, f"{host}{path}" if path else host)
        if self._call_lines >= MAX_CALL or self._run_lines >= MAX_RUN:
            self._skipped[f"{outcome}: {ruling.reason}"] += 1
            self._skipped_bytes[0] += entry.up
            self._skipped_bytes[1] += entry.down
            return
        self._call_lines += 1
        self._run_lines += 1
        line = {
            "time": entry.at.isoformat(timespec="milliseconds"),
            "turn": entry.turn,
            "call": entry.call,
            "service": entry.service,
            "method": mask(entry.method, 20),
            "host": host,
            "port": entry.port,
            "path": path or None,
            "verdict": outcome,
            "reason": ruling.reason,
            "status": entry.status,
            "up": entry.up,
            "down": entry.down,
            "seconds": round(time.monotonic() - entry.begun, 3),
        }
        self._append(line if entry.sha256 is None else {**line, "sha256": entry.sha256})

    def end_call(self, turn: int | None, call: int | None) -> list[Finding]:
        """Findings of what was refused since the last call of this; counts of what was not written go to the file."""
        self._write_skipped(turn, call)
        findings = make_findings(self._kinds.values(), turn, call)
        self._start_call()
        return findings

    def _start_call(self) -> None:
        self._call_lines = 0
        self._skipped: Counter[str] = Counter()
        self._skipped_bytes = [0, 0]
        self._kinds: dict[tuple[str, str, str], RefusalCount] = {}

    def _count(self, ruling: Ruling, where: str) -> None:
        kind = self._kinds.setdefault((ruling.rule, ruling.reason, ruling.severity), RefusalCount(ruling))
        kind.count += 1
        if where in kind.where or len(kind.where) < MAX_KINDS:
            kind.where[where] += 1

    def _write_skipped(self, turn: int | None, call: int | None) -> None:
        if self._skipped:
            up, down = self._skipped_bytes
            line = {"turn": turn, "call": call, "not_written": dict(self._skipped), "up": up, "down": down}
            self._append({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **line})
            self._skipped.clear()

    def _append(self, line: dict[str, Any]) -> None:
        # One write per line: a reader never sees half of one, and a kill loses none that was written.
        os.write(self._file, json.dumps(line, ensure_ascii=True).encode() + b"\n")


def _sum_bytes(path: Path) -> tuple[int, int]:
    """Bytes that earlier processes of the run let up and down, by its log; a line that a kill has torn tells nothing.

    What came down earned its share, without which a run that goes on after large downloads could ask for nothing more.
    """
    up = down = 0
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            up, down = up + int(entry.get("up", 0)), down + int(entry.get("down", 0))
    return up, down


def mask(text: str, limit: int) -> str:
    """One bounded line of plain characters without what looks like a secret."""
    plain = re.sub(r"[^ -~]", "?", text[: 4 * limit])
    return _SECRET.sub(lambda match: f"{match[1] or ''}…", plain)[:limit]
