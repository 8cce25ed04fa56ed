"""Proxy for HTTP(S): tunnels for TLS, one forwarded request per connection for plain HTTP."""

from __future__ import annotations

import asyncio

import h11

from automedbench.sandbox.egress.dial import Refused, Streams
from automedbench.sandbox.egress.exchange import Exchange, relay, too_much
from automedbench.sandbox.egress.rules import LISTED, Target, Verdict, check_plain, check_sni, check_tunnel, end_to_end
from automedbench.sandbox.egress.tls import Hello, NotTLS, read_hello
from automedbench.sandbox.egress.wire import BLOCK, HEAD_S, Closed, Wire, close

# Acknowledgements and requests of a large download are no upload.
UPLOAD_SHARE = 0.01


async def serve(exchange: Exchange) -> Verdict:
    """Answer one request; gives the verdict for the log. Raises Refused, Unreachable, Closed."""
    if exchange.method == "CONNECT":
        return await _tunnel(exchange)
    return await _forward(exchange)


async def _tunnel(exchange: Exchange) -> Verdict:
    entry, settings = exchange.entry, exchange.settings
    entry.host, _, port = exchange.target.rpartition(":")
    entry.port = int(port) if port.isdecimal() and port.isascii() and len(port) < 6 else None
    verdict, target = check_tunnel(settings, exchange.target)
    if target is None:
        raise Refused(verdict)
    upstream = await exchange.dialer.open(target.host, target.port)
    try:
        await exchange.wire.body(0)
        await exchange.wire.send(h11.Response(status_code=200, headers=[]))
        entry.status = 200
        hello = await _hello(exchange.wire, target, trusted=f"{target.host}:{target.port}" in settings.index.places)
        entry.up = len(hello)
        upstream[1].write(hello)

        def over() -> bool:
            return entry.up > settings.upload_bytes + UPLOAD_SHARE * entry.down

        if await relay(exchange.wire, upstream, entry, over):
            raise Refused(too_much(settings))
    finally:
        close(upstream[1])
    return LISTED


async def _hello(wire: Wire, target: Target, *, trusted: bool) -> bytes:
    """The client's first bytes, which must be a ClientHello for this host; raises Refused."""
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
    except NotTLS as error:
        raise Refused(check_sni(target.host, None)) from error
    verdict = _check_hello(hello, target, trusted)
    if not verdict.allowed:
        raise Refused(verdict)
    return data


def _check_hello(hello: Hello, target: Target, trusted: bool) -> Verdict:
    """An operator's own index may be an address, which has no server name."""
    if trusted and hello.sni is None and not hello.encrypted:
        return LISTED
    return check_sni(target.host, hello.sni, encrypted=hello.encrypted)


async def _forward(exchange: Exchange) -> Verdict:
    request, entry = exchange.request, exchange.entry
    verdict, target = check_plain(exchange.settings, exchange.method, exchange.target, list(request.headers))
    entry.host, entry.path = exchange.target, ""
    if target is None:
        entry.host, entry.path = _shown(exchange.target)
        raise Refused(verdict)
    entry.host, entry.port, entry.path = target.host, target.port, target.path
    body = await exchange.body()
    if body is None:
        raise Refused(too_much(exchange.settings))
    streams, prefix, credentials = await exchange.dialer.open_plain(target.host, target.port)
    try:
        return await _ask(exchange, target, body, streams, prefix, credentials)
    finally:
        close(streams[1])


async def _ask(
    exchange: Exchange, target: Target, body: bytes, streams: Streams, prefix: str, credentials: str | None
) -> Verdict:
    upstream = Wire(h11.CLIENT, *streams)
    dropped = {b"host", b"content-length", b"accept-encoding"}
    kept = [(key, value) for key, value in end_to_end(list(exchange.request.headers)) if key not in dropped]
    # Uncompressed, so that the tripwire sees the content; one request per connection.
    own = [(b"host", target.authority.encode()), (b"accept-encoding", b"identity"), (b"connection", b"close")]
    if body or exchange.method == "POST":
        own.append((b"content-length", str(len(body)).encode()))
    if credentials:
        own.append((b"proxy-authorization", credentials.encode()))
    await upstream.send(h11.Request(method=exchange.method, target=prefix + target.path, headers=[*own, *kept]))
    if body:
        await upstream.send(h11.Data(data=body))
    await upstream.send(h11.EndOfMessage())
    while isinstance(answer := await upstream.receive(), h11.InformationalResponse):
        continue
    assert isinstance(answer, h11.Response)
    tripped = await exchange.pass_on(answer.status_code, end_to_end(list(answer.headers)), upstream)
    return tripped or LISTED


def _shown(target: str) -> tuple[str, str]:
    """Host and path of a refused target, as far as it has any, for the log; without user information."""
    rest = target.partition("://")[2] or target
    authority, slash, path = rest.partition("/")
    return authority.rpartition("@")[2], slash + path if slash else ""
