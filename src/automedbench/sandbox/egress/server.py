"""Server process with the sockets of proxy and mirror: ``python -P -m automedbench.sandbox.egress.server FD``.

FD is a socket to the driver. One JSON line each way: the settings first, then orders (``call``, ``drain``), each
answered by one line. The end of the driver's side ends the process; of keys it has only tokens for gated models, and
the driver is another process, safe from what a client does to this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import h11

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Finding
from automedbench.sandbox.egress import index, mirror, proxy
from automedbench.sandbox.egress.authority import Authority
from automedbench.sandbox.egress.cache import Cache
from automedbench.sandbox.egress.dial import (
    BLOCK,
    Closed,
    Dialer,
    HttpConnection,
    Upstreams,
    UpstreamUnreachable,
)
from automedbench.sandbox.egress.exchange import (
    EgressEntry,
    Outside,
    ProxyExchange,
    RequestLog,
    Service,
    Uploads,
    drain_and_close,
    read_request,
)
from automedbench.sandbox.egress.planted import PLANTED, NetworkFault, Outage
from automedbench.sandbox.egress.rules import LISTED, EgressRefused, EgressSettings, Ruling
from automedbench.sandbox.places import CA_FILE

MAX_CONNECTIONS = 256
BACKLOG = 4096
MAX_TRACEBACKS = 20
"""Mistakes of ours whose traces are written down."""
SETTLE_S = 0.5
ACCEPT_ROUNDS = 16
"""Turns of the event loop from a waiting connection to its task (three in CPython 3.11 to 3.14), and to spare."""
SO_PASSRIGHTS = 83
"""Take descriptors along with data: asm-generic/socket.h."""
BUSY = Ruling(False, "busy", "Too many connections at once.")
SERVICES: dict[Service, Callable[[ProxyExchange], Awaitable[Ruling]]] = {
    "proxy": proxy.serve,
    "hub": mirror.serve,
    "index": index.serve,
}


class Server:
    """Answers every connection of a run."""

    def __init__(
        self,
        settings: EgressSettings,
        log: Path,
        upstreams: Upstreams | None,
        tokens: Mapping[str, str],
        cache: Cache | None,
        authority: Authority | None = None,
        fault: NetworkFault | None = None,
    ) -> None:
        self._log = RequestLog(log)
        uploads = Uploads(settings.upload_total_bytes, self._log.sent_before, self._log.received_before)
        planted = Outage(fault, settings.index.hosts)
        dialer = Dialer(settings.trusted, upstreams)
        self._outside = Outside(settings, dialer, uploads, tokens, authority, cache, planted)
        self._tasks: set[asyncio.Task[None]] = set()
        self._settled: set[asyncio.Task[None]] = set()
        self._turn: int | None = None
        self._call: int | None = None
        self._failures = 0

    def accept(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection, in a task of its own; of far too many none is read, for each would take memory."""
        if len(self._tasks) >= MAX_CONNECTIONS:
            self._log.record(EgressEntry(service, self._call, self._turn), BUSY)
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve_client(service, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def set_call(self, turn: int | None, call: int | None) -> None:
        """Connections that are made from now on belong to this call; those of background processes live on."""
        await self._accept_waiting()
        self._turn, self._call = turn, call

    async def drain(self, turn: int | None, call: int | None) -> list[Finding]:
        """Findings of what was refused since the last drain, of every connection that was made before it."""
        await self._accept_waiting()
        new = self._tasks - self._settled
        if new:
            await asyncio.wait(new, timeout=SETTLE_S)
        self._settled = set(self._tasks)
        return self._log.end_call(turn, call)

    async def _accept_waiting(self) -> None:
        """Let every connection that clients have made become a task, also where the order overtook it."""
        for _ in range(ACCEPT_ROUNDS):
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End every connection, then the log."""
        await self._accept_waiting()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._log.close()

    async def _serve_client(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = HttpConnection(h11.SERVER, reader, writer)
        opened = await self._serve_request(service, wire, None)
        if opened is not None:
            host, wire = opened
            while await self._serve_request(service, wire, host) is not None:
                wire.http.start_next_cycle()
        await drain_and_close(wire)

    async def _serve_request(
        self, service: Service, wire: HttpConnection, within: str | None
    ) -> tuple[str, HttpConnection] | None:
        """Answer one request and log it; gives host and connection where requests in opened TLS (may) follow."""
        entry = EgressEntry(service, self._call, self._turn)
        ruling, opened = Ruling(False, "malformed", "Not an HTTP request."), None
        try:
            ruling, opened = await self._dispatch(service, wire, entry, within)
        except (Closed, h11.ProtocolError, OSError):
            # A client that connects and leaves has asked for nothing.
            ruling = ruling if wire.http.trailing_data[0] else Ruling(True, "empty")
        except asyncio.CancelledError:
            ruling = LISTED if entry.status == 200 else Ruling(True, "cut")
        except Exception:
            # A mistake of ours must cost neither the other connections nor the line in the log.
            ruling = Ruling(False, "failure", "The proxy failed.")
            self._failures += 1
            if self._failures <= MAX_TRACEBACKS:
                traceback.print_exc()
        if within is None or entry.method != "?" or not ruling.allowed:
            self._log.record(entry, PLANTED if entry.planted else ruling)
        return opened

    async def _dispatch(
        self, service: Service, wire: HttpConnection, entry: EgressEntry, within: str | None
    ) -> tuple[Ruling, tuple[str, HttpConnection] | None]:
        """Read one request and answer it."""
        try:
            request = await read_request(wire)
        except h11.RemoteProtocolError as error:
            text = f"Not a request that is forwarded: {error}."
            with contextlib.suppress(Closed, h11.ProtocolError):
                head = [(b"content-length", b"0"), (b"connection", b"close")]
                entry.status = error.error_status_hint
                await wire.send(h11.Response(status_code=error.error_status_hint, headers=head))
                await wire.send(h11.EndOfMessage())
            return Ruling(False, "malformed", text), None
        if within is not None:
            entry.begin(self._turn, self._call)
        entry.method = request.method.decode("latin-1")
        exchange = ProxyExchange(wire, request, entry, self._outside, within)
        if self._outside.planted.is_down(service, exchange.target):
            entry.planted, entry.path = True, exchange.target
            await exchange.send_text(503, "Service Unavailable")
            return PLANTED, None
        try:
            ruling = await (proxy.serve_opened if within else SERVICES[service])(exchange)
            stays = within is not None and wire.http.our_state is wire.http.their_state is h11.DONE
            return ruling, (within, wire) if within is not None and stays else exchange.opened
        except EgressRefused as error:
            ruling, status, text = error.ruling, 403, error.ruling.text
        except UpstreamUnreachable as error:
            ruling, status, text = Ruling(True, "unreachable"), 502, f"The host does not answer: {error}"
        except (Closed, h11.RemoteProtocolError, OSError):
            # A client that is gone cannot read this; of the upstream it is the truth.
            ruling, status, text = Ruling(True, "broken"), 502, "The connection to the host broke."
        # A client that does not wait for the answer does not change the ruling.
        with contextlib.suppress(Closed, h11.ProtocolError, OSError):
            await exchange.send_text(status, f"[egress] {text}")
        return ruling, None


async def run(control: socket.socket) -> None:
    """Serve until the driver's side of ``control`` ends."""
    reader, writer = await asyncio.open_connection(sock=control, limit=64 * 1024 * 1024)
    start = json.loads(await reader.readline())
    settings = EgressSettings.from_json(start["settings"])
    authority = Authority(settings.opened) if settings.opened else None
    place = start["cache"]
    try:
        cache = Cache(Path(place), start["cache_bytes"], alone=settings.offline) if place else None
    except InfrastructureError as error:
        _write_reply(writer, {"failed": str(error)})
        await writer.drain()
        return
    log, upstreams = Path(start["log"]), Upstreams(**start["upstreams"])
    server = Server(settings, log, upstreams, start["tokens"], cache, authority, start["fault"])
    services = settings.services
    if start["bundle"] is not None:
        Path(CA_FILE).write_bytes(Path(start["bundle"]).read_bytes() + (b"\n" + authority.pem if authority else b""))
    listeners = [await _listen(server, service) for service in services]
    try:
        _write_reply(writer, {"ready": True})
        while line := await reader.readline():
            order = json.loads(line)
            if order["order"] == "call":
                await server.set_call(order["turn"], order["call"])
                _write_reply(writer, {})
            else:
                findings = await server.drain(order["turn"], order["call"])
                _write_reply(writer, {"findings": [finding.model_dump(mode="json") for finding in findings]})
    finally:
        for listener in listeners:
            listener.close()
        await server.close()
        # Here and not in the driver, which may have been killed.
        for name in (CA_FILE, *(f"{service}.sock" for service in services)):
            Path(name).unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def serve_on_loopback(
    settings: EgressSettings,
    log: Path,
    cache: Cache | None,
    upstreams: Upstreams | None = None,
    tokens: Mapping[str, str] | None = None,
) -> AsyncIterator[dict[Service, int]]:
    """The services on ports of this host's loopback, for programs of this user; gives their ports.

    Other users of the machine could ask for gated models with the operator's token, and are not answered.
    """
    server = Server(settings, log, upstreams, tokens or {}, cache)
    ports: dict[Service, int] = {}

    def own(service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if _find_user(writer) == os.getuid():
            server.accept(service, reader, writer)
        else:
            writer.close()

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.close)
        for service in settings.services:
            accept = functools.partial(own, service)
            listener = await asyncio.start_server(accept, "127.0.0.1", 0, limit=BLOCK, backlog=BACKLOG)
            stack.callback(listener.close)
            ports[service] = listener.sockets[0].getsockname()[1]
        yield ports


def _find_user(writer: asyncio.StreamWriter) -> int | None:
    """User id of the peer of a connection over this host's loopback (IPv4), from the kernel (proc(5))."""
    ends = [writer.get_extra_info(name)[:2] for name in ("peername", "sockname")]
    spelt = [f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in ends]
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return next((int(row[7]) for row in rows if row[1:3] == spelt), None)


async def _listen(server: Server, service: Service) -> asyncio.Server:
    """Listen on a socket in the working directory: a relative name is never too long for one."""
    sock = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):  # before Linux 6.16 a card stays open in what is not read yet, past its turn
        sock.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
    Path(f"{service}.sock").unlink(missing_ok=True)
    sock.bind(f"{service}.sock")
    accept = functools.partial(server.accept, service)
    return await asyncio.start_unix_server(accept, sock=sock, limit=BLOCK, backlog=BACKLOG)


def _write_reply(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


def main(words: list[str]) -> None:
    """Run until the driver ends it; its own death ends this process too."""
    control = socket.socket(fileno=int(words[0]))
    control.set_inheritable(False)
    # A signal to the driver's group is the driver's to answer: it ends us when it is done.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard > 0 else 65_536, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ConnectionError):
        asyncio.run(run(control))
    # Threads that still resolve a name must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
