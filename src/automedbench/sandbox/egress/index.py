"""Index of packages behind the cache: pages whose links lead here, and files by the SHA-256 that the pages give.

``/simple/<project>/`` is a page of the index that this machine's pip uses, in HTML (PEP 503);
``/files/<sha256 or ->/<scheme>/<host>/<path>`` a file that it links to. Only hosts that the run may reach anyway are
asked, and what comes is refused unless it has the hash in its address.
"""

from __future__ import annotations

import functools
import hashlib
import html
import re
import time
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

from automedbench.sandbox.egress import rules
from automedbench.sandbox.egress.cache import Stored
from automedbench.sandbox.egress.cache_delivery import answer_through_cache, deliver, keep_small
from automedbench.sandbox.egress.dial import UpstreamUnreachable
from automedbench.sandbox.egress.exchange import MAX_HOPS, ProxyExchange, UpstreamAnswer
from automedbench.sandbox.egress.rules import EgressRefused

_BINARY = {"content-type": "application/octet-stream"}
_PAGE = re.compile(r"/simple/([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]{0,200}[A-Za-z0-9])/?")
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(?:(?::|%3[Aa])[0-9]{1,5})?"
_FILE = re.compile(rf"/files/(-|[0-9a-f]{{64}})/(https?)/({_HOST})(/[!-~]*)")
_LINK = re.compile(r"""(<a\b[^>]*?\bhref\s*=\s*)(["'])(.*?)\2""", re.IGNORECASE | re.DOTALL)


async def serve(exchange: ProxyExchange) -> rules.Ruling:
    """Answer one request; gives the ruling for the log. Raises EgressRefused, UpstreamUnreachable, Closed."""
    if exchange.method not in ("GET", "HEAD"):
        raise rules.refuse("method", f"{exchange.method} is refused: the index is read only.")
    page, file = _PAGE.fullmatch(exchange.target), _FILE.fullmatch(exchange.target)
    if page:
        name = re.sub(r"[-_.]+", "-", page[1]).lower()
        index = exchange.settings.index
        url, form = f"{(index.url or f'https://{index.hosts[0]}/simple').rstrip('/')}/{name}/", "html"
    elif file:
        url, form = f"{file[2]}://{unquote(file[3])}{file[4]}", file[1]  # pip writes %3A before a port
    else:
        raise rules.refuse("index_path", "The index serves /simple/<project>/ and the files that it links to.")
    parts = urlsplit(url)
    exchange.entry.host, exchange.entry.path = parts.netloc, parts.path
    _check_url(exchange.settings, url)
    await exchange.body()
    # Of a page its address, of a file also the hash that the client expects.
    key = f"{form} {parts.scheme}://{parts.netloc} {unquote(parts.path)} {parts.query}"
    if page or url.endswith(".metadata"):
        ask = functools.partial(_serve_small, exchange, url, key, page=page is not None)
    else:
        ask = functools.partial(_serve_file, exchange, url, key, form)
    return await answer_through_cache(exchange, key, ask)


def _check_url(settings: rules.EgressSettings, url: str) -> None:
    """Raise EgressRefused for an address that the run may not reach through its proxy either."""
    parts = urlsplit(url)
    authority = rules.split_authority(parts.netloc)
    if authority is None or ".." in unquote(parts.path).split("/"):
        raise EgressRefused(rules.NOT_PLAIN)
    host, port = authority[0], rules.url_port(parts)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    rules.check_url(settings, host, path)
    rules.check_host(settings, host, port, ports=(80, 443))


async def _serve_small(exchange: ProxyExchange, url: str, key: str, *, page: bool) -> rules.Ruling:
    """Answer with a page, or with the small file that describes a package (PEP 658)."""
    answer = await _request(exchange, url, "GET", "text/html" if page else "*/*")
    if answer.head.status_code != 200:
        return await _forward(exchange, answer)
    headers = {"content-type": answer.header(b"content-type") or "text/html"} if page else _BINARY
    rewrite = functools.partial(_rewrite_links, answer.url) if page else None
    return await keep_small(exchange, key, answer, headers, fixed=not page, rewrite=rewrite)


def _rewrite_links(url: str, page: bytes) -> bytes:
    """Let the links of the page at ``url`` lead to this index."""

    def own(found: re.Match[str]) -> str:
        link, fragment = urldefrag(urljoin(url, html.unescape(found[3])))
        sha256 = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
        parts = urlsplit(link)
        query = f"?{parts.query}" if parts.query else ""
        place = f"{parts.scheme}/{parts.netloc.rpartition('@')[2]}{quote(parts.path, '/%')}{query}"
        target = f"/files/{sha256[1] if sha256 else '-'}/{place}" + (f"#{fragment}" if fragment else "")
        return f"{found[1]}{found[2]}{html.escape(target)}{found[2]}"

    return _LINK.sub(own, page.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


async def _serve_file(exchange: ProxyExchange, url: str, key: str, sha256: str) -> rules.Ruling:
    """Answer with a file by its hash; without one, and where it cannot be kept, it is passed on."""
    size = await _request_size(exchange, url) if sha256 != "-" else None
    cache = exchange.cache
    if size is None or cache is None or not cache.has_room(size):
        return await _forward(exchange, await _request(exchange, url, exchange.method))

    async def from_index(begin: int) -> UpstreamAnswer:
        return await _request(exchange, url, "GET", begin=begin)

    # The client says which hash it is: with a name of its own it cannot meet, fill or find any other file.
    stored = Stored(sha256, size, _BINARY, True, time.time(), hashlib.sha256(key.encode()).hexdigest())
    ruling = await deliver(exchange, stored, from_index)
    cache.note(key, stored)
    return ruling


async def _request_size(exchange: ProxyExchange, url: str) -> int | None:
    """Length of a file (bytes) as its host reports it."""
    answer = await _request(exchange, url, "HEAD")
    answer.wire.close()
    length = answer.header(b"content-length")
    return int(length) if answer.head.status_code == 200 and length.isdecimal() else None


async def _forward(exchange: ProxyExchange, answer: UpstreamAnswer) -> rules.Ruling:
    """Pass an answer on as it comes."""
    try:
        headers = rules.drop_hop_headers(list(answer.head.headers))
        await exchange.forward(answer.head.status_code, headers, answer.wire)
        return rules.LISTED
    finally:
        answer.wire.close()


async def _request(
    exchange: ProxyExchange, url: str, method: str, accept: str = "*/*", begin: int = 0
) -> UpstreamAnswer:
    """Request a URL and those that it redirects to, each by the rules of the run; gives the last one's answer."""
    headers = [(b"accept", accept.encode()), *([(b"range", b"bytes=%d-" % begin)] if begin else [])]
    for _ in range(MAX_HOPS):
        _check_url(exchange.settings, url)
        answer = await exchange.request_url(url, headers, method=method)
        if answer.redirect is None:
            return answer
        answer.wire.close()
        url = answer.redirect
    raise UpstreamUnreachable("the index redirects in a circle")
