"""Connections to the outside: names are resolved once, checked, and connected to by address.

Where the host reaches the internet through a proxy of its own (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), so do we; names are
then resolved there, and only what can be checked by name is. HTTP/1.1 over these streams is a ``Wire``: h11 is the
grammar, strict on what it reads.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import ipaddress
import socket
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import h11

from automedbench.sandbox.egress.rules import is_public, refuse

CONNECT_S = 30.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UpstreamUnreachable(Exception):
    """The upstream cannot be reached, which is no refusal; says why."""


@dataclass(frozen=True)
class Upstreams:
    """Replaces the world in tests: ``names`` gives addresses for a name (checked as ever), ``places`` an unchecked
    ``address:port`` for a ``host:port``."""

    names: Mapping[str, list[str]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


class Dialer:
    """Opens connections. ``trusted`` places (host:port of the operator's own services) may have private addresses."""

    def __init__(self, trusted: frozenset[str] = frozenset(), upstreams: Upstreams | None = None) -> None:
        self.trusted = trusted
        self.upstreams = upstreams or Upstreams()
        self.proxies = urllib.request.getproxies()

    async def open(self, host: str, port: int, *, tls: bool = False) -> Streams:
        """Connect to ``host:port``, through the host's proxy where there is one.

        Raises EgressRefused for an address that must not be reached, UpstreamUnreachable when there is no answer.
        """
        try:
            async with asyncio.timeout(CONNECT_S):
                streams = await self._open(host, port)
                if tls:
                    await streams[1].start_tls(_default_context(), server_hostname=host)
                return streams
        except (OSError, TimeoutError, h11.ProtocolError) as error:
            raise UpstreamUnreachable(f"{host}:{port}: {_describe_error(error)}") from error

    async def open_plain(self, host: str, port: int) -> tuple[Streams, str, str | None]:
        """Connect for one plain HTTP request; gives the prefix of its target and the proxy's credentials, if any."""
        proxy = None if f"{host}:{port}" in self.upstreams.places else self._find_proxy("http", host)
        if proxy is None:
            return await self.open(host, port), "", None
        try:
            async with asyncio.timeout(CONNECT_S):
                return await self._connect_to_proxy(proxy), f"http://{host}:{port}", _credentials(proxy)
        except (OSError, TimeoutError) as error:
            raise UpstreamUnreachable(f"{host}:{port} through the host's proxy: {_describe_error(error)}") from error

    async def _open(self, host: str, port: int) -> Streams:
        place = f"{host}:{port}"
        if place in self.upstreams.places:
            address, _, number = self.upstreams.places[place].rpartition(":")
            return await asyncio.open_connection(address, int(number), limit=BLOCK)
        proxy = self._find_proxy("https", host)
        if proxy is not None:
            return await self._open_tunnel(proxy, place)
        checked = place not in self.trusted
        addresses = await self._resolve(host, port)
        if checked and not all(is_public(address) for address in addresses):
            raise refuse("private", f"{host} leads to an address that is not public.")
        for address in addresses[:-1]:
            try:
                return await self._connect(address, port, checked)
            except OSError:
                continue
        return await self._connect(addresses[-1], port, checked)

    async def _resolve(self, host: str, port: int) -> list[str]:
        if host in self.upstreams.names:
            return self.upstreams.names[host]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(item[4][0]) for item in found))

    async def _connect(self, address: str, port: int, checked: bool) -> Streams:
        ipaddress.ip_address(address.partition("%")[0])  # a name here would be resolved again, unchecked
        streams = await asyncio.open_connection(address, port, limit=BLOCK)
        peer, own = streams[1].get_extra_info("peername"), streams[1].get_extra_info("sockname")
        if checked and peer[0] == own[0]:
            streams[1].close()
            raise refuse("private", f"{address} is this machine.")
        return streams

    def _find_proxy(self, scheme: str, host: str) -> SplitResult | None:
        """URL of the host's own proxy for a request, if there is one."""
        url = self.proxies.get(scheme, self.proxies.get("all"))
        if not url or urllib.request.proxy_bypass(host):
            return None
        return urlsplit(url if "://" in url else f"http://{url}")

    async def _connect_to_proxy(self, proxy: SplitResult) -> Streams:
        context = _default_context() if proxy.scheme == "https" else None
        port = proxy.port or (443 if context else 80)
        return await asyncio.open_connection(proxy.hostname, port, ssl=context, limit=BLOCK)

    async def _open_tunnel(self, proxy: SplitResult, place: str) -> Streams:
        """A tunnel of the host's proxy to ``host:port``."""
        streams = await self._connect_to_proxy(proxy)
        wire = HttpConnection(h11.CLIENT, *streams)
        headers = [("host", place)]
        if credentials := _credentials(proxy):
            headers.append(("proxy-authorization", credentials))
        await wire.send(h11.Request(method="CONNECT", target=place, headers=headers))
        answer = await wire.receive()
        if not isinstance(answer, h11.Response) or not 200 <= answer.status_code < 300 or wire.http.trailing_data[0]:
            raise OSError(f"the host's proxy refuses the tunnel ({getattr(answer, 'status_code', 'no status')})")
        return streams


@functools.cache
def _default_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _credentials(proxy: SplitResult) -> str | None:
    if proxy.username is None:
        return None
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _describe_error(error: BaseException) -> str:
    """A few words, without addresses of ours."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'closed'})"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) if str(error).startswith("the host's proxy") else type(error).__name__


BLOCK = 256 * 1024
MAX_HEAD = 32 * 1024
IDLE_S = 600.0
HEAD_S = 60.0


class Closed(Exception):
    """The other side ended in the middle of a message, or said nothing for too long."""


class HttpConnection:
    """One HTTP connection, as server or as client."""

    def __init__(self, role: type[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self.reader, self.writer = reader, writer

    async def receive(self, timeout: float = IDLE_S) -> h11.Event:
        """The next event; raises Closed, or h11.RemoteProtocolError for what is not HTTP."""
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                try:
                    async with asyncio.timeout(timeout):
                        self.http.receive_data(await self.reader.read(BLOCK))
                except (OSError, TimeoutError) as error:
                    raise Closed(type(error).__name__) from error
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise Closed("the connection ended")
            else:
                assert not isinstance(event, type)
                return event

    async def send(self, event: h11.Event) -> None:
        """Write one event and wait until there is room for more; raises Closed."""
        data = self.http.send(event)
        try:
            async with asyncio.timeout(IDLE_S):
                self.writer.write(data or b"")
                await self.writer.drain()
        except (OSError, TimeoutError) as error:
            raise Closed(type(error).__name__) from error

    async def body(self, limit: int) -> bytes | None:
        """The rest of a message's body, or None when it is longer than ``limit``."""
        whole = bytearray()
        while True:
            event = await self.receive()
            if isinstance(event, h11.Data):
                whole += event.data
                if len(whole) > limit:
                    return None
            elif isinstance(event, h11.EndOfMessage):
                return bytes(whole)

    def close(self) -> None:
        """Drop the connection."""
        close(self.writer)


def close(writer: asyncio.StreamWriter) -> None:
    """Close a stream without waiting for the other side."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
