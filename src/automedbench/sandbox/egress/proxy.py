"""Proxy for HTTP(S): tunnels for TLS, one forwarded request per connection for plain HTTP.

Of a closed tunnel the name in its ClientHello is read without taking part in the handshake (RFC 8446, 4.1.2; RFC 6066,
3). To hosts that serve models and data sets alike the proxy speaks TLS itself, so that it sees what is asked for.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import h11

from automedbench.sandbox.egress import mirror, rules
from automedbench.sandbox.egress.cache_delivery import prefer_stored
from automedbench.sandbox.egress.dial import BLOCK, HEAD_S, Closed, HttpConnection, Streams, close
from automedbench.sandbox.egress.exchange import UPLOAD_SHARE, ProxyExchange, refuse_upload

# Ours to say, or for some servers another address or method than the one that was checked.
_DROPPED = re.compile(
    rb"host|content-length|accept-encoding|forwarded|x-forwarded-.*"
    rb"|x-(original|rewrite)-ur[il]|x-(http-)?method(-override)?"
)


async def serve(exchange: ProxyExchange) -> rules.Ruling:
    """Answer one request; gives the ruling for the log. Raises EgressRefused, UpstreamUnreachable, Closed."""
    if exchange.method == "CONNECT":
        return await _tunnel(exchange)
    return await _serve_plain(exchange)


async def _tunnel(exchange: ProxyExchange) -> rules.Ruling:
    entry, settings = exchange.entry, exchange.settings
    entry.host, entry.port = rules.split_authority(exchange.target) or (exchange.target, None)
    target = rules.check_tunnel(settings, exchange.target)
    if rules.opens_tls(settings, target.host):
        await _open_tls(exchange, target.host)
        return rules.LISTED
    upstream = await exchange.outside.dialer.open(target.host, target.port)
    try:
        await exchange.wire.body(0)
        await exchange.wire.send(h11.Response(status_code=200, headers=[]))
        entry.status = 200
        hello = await _read_hello(
            exchange.wire, target, trusted=f"{target.host}:{target.port}" in settings.index.places
        )
        entry.up = len(hello)
        exchange.count_upload(len(hello))
        upstream[1].write(hello)
        await _relay(exchange, *upstream)
    finally:
        close(upstream[1])
    return rules.LISTED


async def _relay(exchange: ProxyExchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pipe both directions until both have ended or one breaks; raises EgressRefused when too much goes up."""
    client, entry, uploads = exchange.wire, exchange.entry, exchange.outside.uploads

    def is_too_large() -> bool:
        return entry.up > exchange.settings.upload_bytes + UPLOAD_SHARE * entry.down

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter, up: int, down: int) -> None:
        while data := await source.read(BLOCK):
            size = len(data)
            exchange.outside.planted.pass_on(entry, down * size)
            entry.up, entry.down = entry.up + up * size, entry.down + down * size
            uploads.add(up * size, down * size)
            if is_too_large() or uploads.is_over:
                raise Closed("upload over the limit")
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    both = (
        asyncio.create_task(pipe(client.reader, writer, 1, 0)),
        asyncio.create_task(pipe(reader, client.writer, 0, 1)),
    )
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in both:
            task.cancel()
        ended = await asyncio.gather(*both, return_exceptions=True)
    if any(isinstance(error, Closed) for error in ended):
        raise refuse_upload(exchange.settings) if is_too_large() else uploads.refuse()


async def _open_tls(exchange: ProxyExchange, host: str) -> None:
    """Speak TLS with the client in the host's name; raises EgressRefused when the client does not."""
    wire, authority = exchange.wire, exchange.outside.authority
    assert authority is not None
    await wire.body(0)
    # What the client sends from now on belongs to the handshake.
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await wire.send(h11.Response(status_code=200, headers=[]))
    exchange.entry.status = 200
    try:
        await wire.writer.start_tls(authority.context(host), ssl_handshake_timeout=HEAD_S)
    except OSError as error:
        text = f"TLS for {host} failed; programs must name it and trust the certificates in SSL_CERT_FILE."
        raise rules.refuse("tls", text) from error
    exchange.opened = host, HttpConnection(h11.SERVER, wire.reader, wire.writer)


async def serve_opened(exchange: ProxyExchange) -> rules.Ruling:
    """Answer one request inside an opened tunnel. Raises EgressRefused, UpstreamUnreachable, Closed."""
    entry, host = exchange.entry, exchange.within or ""
    entry.host, entry.port, entry.path = host, 443, exchange.target
    if host == exchange.settings.hub_host:
        entry.service = "hub"
        return await mirror.serve(exchange)
    headers = list(exchange.request.headers)
    target = rules.check_opened(exchange.settings, host, exchange.method, exchange.target, headers)
    body = await exchange.body()

    async def ask() -> rules.Ruling:
        return await _forward(exchange, target, body, await exchange.outside.dialer.open(host, 443, tls=True))

    return await prefer_stored(exchange, f"https://{host}{target.path.partition('?')[0]}", ask)


async def _read_hello(wire: HttpConnection, target: rules.RequestTarget, *, trusted: bool) -> bytes:
    """The client's first bytes, which must be a ClientHello for this host; raises EgressRefused."""
    data = wire.http.trailing_data[0]
    try:
        async with asyncio.timeout(HEAD_S):
            while (hello := read_hello(data)) is None:
                more = await wire.reader.read(BLOCK)
                if not more:
                    raise Closed("no ClientHello")
                data += more
    except TimeoutError as error:
        raise Closed("no ClientHello in time") from error
    except NotTLS:
        hello, trusted = Hello(None, False), False
    # An operator's own index may be an address, which has no server name.
    if not trusted or hello.sni is not None or hello.encrypted:
        rules.check_sni(target.host, hello.sni, encrypted=hello.encrypted)
    return data


async def _serve_plain(exchange: ProxyExchange) -> rules.Ruling:
    request, entry = exchange.request, exchange.entry
    entry.host, entry.path = _split_target(exchange.target)
    target = rules.check_plain(exchange.settings, exchange.method, exchange.target, list(request.headers))
    entry.host, entry.port, entry.path = target.host, target.port, target.path
    body = await exchange.body()
    return await _forward(exchange, target, body, *await exchange.outside.dialer.open_plain(target.host, target.port))


async def _forward(
    exchange: ProxyExchange,
    target: rules.RequestTarget,
    body: bytes,
    streams: Streams,
    prefix: str = "",
    credentials: str | None = None,
) -> rules.Ruling:
    headers = rules.drop_hop_headers(list(exchange.request.headers))
    kept = [(key, value) for key, value in headers if not _DROPPED.fullmatch(key)]
    own = [(b"host", target.authority.encode())]
    if credentials:
        own.append((b"proxy-authorization", credentials.encode()))
    answer, upstream = await exchange.send_request(streams, prefix + target.path, [*own, *kept], body)
    try:
        await exchange.forward(answer.status_code, rules.drop_hop_headers(list(answer.headers)), upstream)
    finally:
        upstream.close()
    return rules.LISTED


def _split_target(target: str) -> tuple[str, str]:
    """Host and path of a refused target, as far as it has any, for the log; without user information."""
    rest = target.partition("://")[2] or target
    authority, slash, path = rest.partition("/")
    return authority.rpartition("@")[2], slash + path if slash else ""


_HANDSHAKE, _CLIENT_HELLO = b"\x16\x03", 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_MAX_RECORD = 2**14 + 256


class NotTLS(ValueError):
    """The bytes are not the beginning of a TLS connection."""


@dataclass(frozen=True)
class Hello:
    """``sni`` is None when no name is given; ``encrypted``: another, hidden ClientHello is inside (ECH)."""

    sni: str | None
    encrypted: bool


def read_hello(data: bytes) -> Hello | None:
    """The ClientHello that ``data`` begins with, or None while its record is not complete.

    Raises NotTLS for anything else, also for one that is spread over several records, which no client does.
    """
    if not data.startswith(_HANDSHAKE[: len(data)]):
        raise NotTLS("no handshake record")
    if len(data) < 5:
        return None
    length = int.from_bytes(data[3:5], "big")
    if not 0 < length <= _MAX_RECORD or data[5:6] not in (b"", bytes([_CLIENT_HELLO])):
        raise NotTLS("no record of a ClientHello")
    if len(data) < 5 + length:
        return None
    record = _HelloReader(data[6 : 5 + length])
    hello = _HelloReader(record.vector(3))
    if record.left:
        raise NotTLS("more than a ClientHello")
    return _parse(hello)


class _HelloReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.place : self.place + count]
        if len(piece) < count:
            raise NotTLS("truncated ClientHello")
        self.place += count
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def left(self) -> int:
        return len(self.data) - self.place


def _parse(reader: _HelloReader) -> Hello:
    reader.take(2 + 32)
    reader.vector(1)
    reader.vector(2)
    reader.vector(1)
    if not reader.left:
        return Hello(None, False)
    extensions = _HelloReader(reader.vector(2))
    names: list[str] = []
    encrypted = False
    while extensions.left:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            entries = _HelloReader(_HelloReader(content).vector(2))
            while entries.left:
                form, name = entries.number(1), entries.vector(2)
                names += [name.decode("latin-1")] if form == 0 else []
        encrypted = encrypted or kind == _ENCRYPTED_HELLO
    if len(names) > 1:
        raise NotTLS("more than one server name")
    return Hello(names[0] if names else None, encrypted)
