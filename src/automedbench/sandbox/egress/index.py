"""Index of packages behind the cache: pages whose links lead here, and files by the SHA-256 that the pages give.

``/simple/<project>/`` is a page of the index that this machine's pip uses (PEP 503 and 691);
``/files/<sha256 or ->/<scheme>/<host>/<path>`` a file that it links to. Only hosts that the run may reach anyway are
asked, and what comes is refused unless it has the hash in its address.
"""

from __future__ import annotations

import functools
import hashlib
import html
import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

import h11

from automedbench.sandbox.egress import rules
from automedbench.sandbox.egress.cache import Stored
from automedbench.sandbox.egress.cache_delivery import (
    SMALL_BYTES,
    Published,
    Small,
    deliver,
    keep_small,
    through,
)
from automedbench.sandbox.egress.dial import DialRefused, HttpConnection, UpstreamUnreachable
from automedbench.sandbox.egress.exchange import ProxyExchange

PORT = 8091
MAX_HOPS = 6

_JSON = "application/vnd.pypi.simple.v1+json"
_BINARY = {"content-type": "application/octet-stream"}
_PAGE = re.compile(r"/simple/([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]{0,200}[A-Za-z0-9])/?")
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(?:(?::|%3[Aa])[0-9]{1,5})?"
_FILE = re.compile(rf"/files/(-|[0-9a-f]{{64}})/(https?)/({_HOST})(/[!-~]*)")
_LINK = re.compile(r"""(<a\b[^>]*?\bhref\s*=\s*)(["'])(.*?)\2""", re.IGNORECASE | re.DOTALL)


async def serve(exchange: ProxyExchange) -> rules.Ruling:
    """Answer one request; gives the ruling for the log. Raises Refused, Unreachable, Closed."""
    if exchange.method not in ("GET", "HEAD"):
        raise DialRefused(rules.refuse("method", f"{exchange.method} is refused: the index is read only."))
    page, file = _PAGE.fullmatch(exchange.target), _FILE.fullmatch(exchange.target)
    if page:
        name = re.sub(r"[-_.]+", "-", page[1]).lower()
        url = f"{_base(exchange.settings.index)}/{name}/"
        task = functools.partial(_page, exchange, url)
    elif file:
        url = f"{file[2]}://{unquote(file[3])}{file[4]}"  # pip writes %3A before a port
        task = functools.partial(_file, exchange, url, file[1])
    else:
        raise DialRefused(
            rules.refuse("index_path", "The index serves /simple/<project>/ and the files that it links to.")
        )
    parts = urlsplit(url)
    exchange.entry.host, exchange.entry.path = parts.netloc, parts.path
    _check(exchange.settings, url)
    await exchange.body()
    return await through(exchange, _key(exchange, url), task)


def _key(exchange: ProxyExchange, url: str) -> str:
    """Cache key: hash and address of a file, address and form of a page."""
    file = _FILE.fullmatch(exchange.target)
    form = file[1] if file else "json" if _wants_json(exchange) else "html"
    parts = urlsplit(url)
    return f"{form} {parts.scheme}://{parts.netloc} {unquote(parts.path)} {parts.query}"


def _base(index: rules.PackageIndex) -> str:
    return (index.url or f"https://{index.hosts[0]}/simple").rstrip("/")


def _check(settings: rules.EgressSettings, url: str) -> None:
    """Raise Refused for an address that the run may not reach through its proxy either."""
    parts = urlsplit(url)
    authority = rules.split_authority(parts.netloc)
    if authority is None or ".." in unquote(parts.path).split("/"):
        raise DialRefused(rules.refuse("malformed", "The address of the request is not plain."))
    host, port = authority[0], authority[1] or _port(parts.scheme)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    ruling = rules.check_url(settings, host, path) or rules.check_host(settings, host, port, ports=(80, 443))
    if not ruling.allowed:
        raise DialRefused(ruling)


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _wants_json(exchange: ProxyExchange) -> bool:
    return any(key == b"accept" and _JSON.encode() in value for key, value in exchange.request.headers)


async def _page(exchange: ProxyExchange, url: str) -> rules.Ruling:
    accept = f"{_JSON}, text/html;q=0.1" if _wants_json(exchange) else "text/html"
    final, answer, wire = await _ask(exchange, url, "GET", accept)
    kind = _header(answer, b"content-type") or "text/html"

    async def whole() -> Small:
        body = await _whole(wire)
        try:
            rewritten = _json_page(body, final) if "json" in kind else _html_page(body, final)
        except (ValueError, KeyError, AttributeError) as error:
            raise UpstreamUnreachable("the page is none of an index") from error
        return Small(rewritten, {"content-type": kind}, fixed=False)

    return await _kept(exchange, url, answer, wire, whole)


async def _kept(
    exchange: ProxyExchange,
    url: str,
    answer: h11.Response,
    wire: HttpConnection,
    whole: Callable[[], Awaitable[Small]] | None,
) -> rules.Ruling:
    """Give what came, whole and kept where it is a small answer of status 200, else as it comes."""
    try:
        if whole is None or answer.status_code != 200:
            return await _pass(exchange, answer, wire)
        return await keep_small(exchange, _key(exchange, url), whole)
    finally:
        wire.close()


async def _whole(wire: HttpConnection) -> bytes:
    body = await wire.body(SMALL_BYTES)
    if body is None:
        raise UpstreamUnreachable("the page is too long")
    return body


def _json_page(body: bytes, url: str) -> bytes:
    page: dict[str, Any] = json.loads(body)
    for file in page.get("files", ()):
        file["url"] = _own_link(urljoin(url, file["url"]), file.get("hashes", {}).get("sha256"))
    return json.dumps(page).encode()


def _html_page(body: bytes, url: str) -> bytes:
    def own(found: re.Match[str]) -> str:
        link, fragment = urldefrag(urljoin(url, html.unescape(found[3])))
        sha256 = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
        rewritten = _own_link(link, sha256[1] if sha256 else None) + (f"#{fragment}" if fragment else "")
        return f"{found[1]}{found[2]}{html.escape(rewritten)}{found[2]}"

    return _LINK.sub(own, body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _own_link(url: str, sha256: str | None) -> str:
    parts = urlsplit(urldefrag(url)[0])
    query = f"?{parts.query}" if parts.query else ""
    return f"/files/{sha256 or '-'}/{parts.scheme}/{parts.netloc.rpartition('@')[2]}{quote(parts.path, '/%')}{query}"


async def _file(exchange: ProxyExchange, url: str, sha256: str) -> rules.Ruling:
    """A file by its hash; without one, and where it cannot be kept, it is passed on. What describes one is small."""
    if url.endswith(".metadata"):
        _, answer, wire = await _ask(exchange, url, "GET")

        async def whole() -> Small:
            return Small(await _whole(wire), _BINARY, fixed=True)

        return await _kept(exchange, url, answer, wire, whole)
    size = await _size(exchange, url) if sha256 != "-" else None
    cache = exchange.cache
    if size is None or cache is None or not cache.has_room(size):
        _, answer, wire = await _ask(exchange, url, exchange.method)
        return await _kept(exchange, url, answer, wire, None)

    async def from_index(begin: int) -> tuple[h11.Response, HttpConnection]:
        _, answer, wire = await _ask(exchange, url, "GET", begin=begin)
        return answer, wire

    # The client says which hash it is: with a name of its own it cannot meet, fill or find any other file.
    file = hashlib.sha256(_key(exchange, url).encode()).hexdigest()
    stored = Stored(sha256, size, _BINARY, True, time.time(), file)
    ruling = await deliver(exchange, stored, Published(sha256, size, from_index, file))
    if exchange.method == "GET":
        cache.note(_key(exchange, url), stored)
    return ruling


async def _size(exchange: ProxyExchange, url: str) -> int | None:
    """Length of a file (bytes) as its host reports it."""
    _, answer, wire = await _ask(exchange, url, "HEAD")
    wire.close()
    length = _header(answer, b"content-length") or ""
    return int(length) if answer.status_code == 200 and length.isdecimal() else None


async def _pass(exchange: ProxyExchange, answer: h11.Response, wire: HttpConnection) -> rules.Ruling:
    return await exchange.pass_on(answer.status_code, rules.end_to_end(list(answer.headers)), wire) or rules.LISTED


def _header(answer: h11.Response, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in answer.headers if key == name), None)


async def _ask(
    exchange: ProxyExchange, url: str, method: str, accept: str = "*/*", begin: int = 0
) -> tuple[str, h11.Response, HttpConnection]:
    """Ask an address and those that it redirects to, each by the rules of the run; gives the last one's answer."""
    for _ in range(MAX_HOPS):
        _check(exchange.settings, url)
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _port(parts.scheme)
        streams = await exchange.dialer.open(host, port, tls=parts.scheme == "https")
        headers = [(b"host", parts.netloc.encode()), (b"accept", accept.encode())]
        headers += [(b"range", b"bytes=%d-" % begin)] if begin else []
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        answer, wire = await exchange.send_on(streams, target, headers, method=method)
        leads_to = _header(answer, b"location") if answer.status_code in (301, 302, 303, 307, 308) else None
        if leads_to is None:
            return url, answer, wire
        wire.close()
        url = urljoin(url, leads_to)
    raise UpstreamUnreachable("the index redirects in a circle")
