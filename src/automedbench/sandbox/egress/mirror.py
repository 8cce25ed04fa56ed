"""Read-only mirror of the model hub; redirects are followed outside.

A client's token goes nowhere; gated models that the configuration lists are asked for with the driver's own. Paths are
those of the hub's HTTP interface that ``huggingface_hub`` uses for models: ``/api/models…`` and
``/<model>/resolve/<revision>/<file>``. docs/specification.md, 9.3.
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from automedbench.sandbox.egress import HUB_PORT, cache_delivery, rules
from automedbench.sandbox.egress.cache import Stored
from automedbench.sandbox.egress.dial import UpstreamUnreachable
from automedbench.sandbox.egress.exchange import MAX_HOPS, SMALL_BYTES, ProxyExchange, UpstreamAnswer, refuse_labels
from automedbench.sandbox.egress.rules import EgressRefused
from automedbench.sandbox.egress.sites import HUB_HOST, decode

# What an answer is made of; tokens, cookies and the large-file store's own protocol stay outside.
_PASSED = frozenset(
    {b"content-type", b"content-length", b"content-range", b"content-disposition", b"accept-ranges", b"last-modified"}
    | {b"etag", b"link", b"x-repo-commit", b"x-linked-etag", b"x-linked-size", b"x-error-code", b"x-error-message"}
    | {b"x-request-id", b"retry-after", b"content-encoding", b"date"}
)
_PER_ANSWER = frozenset({b"content-length", b"content-range", b"accept-ranges", b"date", b"x-request-id"})
_HUB_HEADERS = frozenset({b"x-repo-commit", b"x-linked-etag", b"x-linked-size", b"x-error-code", b"x-error-message"})
_CONDITIONS = frozenset({b"range", b"if-range", b"if-none-match", b"if-modified-since"})
# Our own, for all alike: what is kept for the next run must not depend on the words of the one that asked.
_OWN = [(b"accept", b"*/*"), (b"user-agent", b"automedbench")]


async def serve(exchange: ProxyExchange) -> rules.Ruling:
    """Answer one request; gives the ruling for the log. Raises EgressRefused, UpstreamUnreachable, Closed."""
    entry, settings = exchange.entry, exchange.settings
    assert settings.hub is not None
    entry.host, entry.path = urlsplit(settings.hub).netloc, exchange.target
    requested = check_mirror(settings, exchange.method, exchange.target)
    body = await exchange.body()
    if body and exchange.method != "POST":
        raise rules.refuse("malformed", f"{exchange.method} has no body.")
    url = settings.hub + requested
    key = "" if exchange.method == "POST" else _key(_find_token(exchange.outside.tokens, urlsplit(url).path), url)
    return await cache_delivery.answer_through_cache(exchange, key, functools.partial(_fetch, exchange, url, body))


def _key(token: str, url: str) -> str:
    """Cache key: the address, and for gated content the token, so that only its holders find it."""
    return f"{hashlib.sha256(token.encode()).hexdigest()} {url}" if token else url


async def _fetch(exchange: ProxyExchange, url: str, body: bytes) -> rules.Ruling:
    hop = await _request(exchange, url, body)
    hub: dict[bytes, bytes] = {}
    try:
        for _ in range(MAX_HOPS):
            if _on_hub(exchange, hop.url):
                hub |= {key: value for key, value in hop.head.headers if key in _HUB_HEADERS}
            if (large := _describe_large(exchange, hub, hop)) is not None:
                return await _deliver(exchange, _key(hop.token, url), hub, hop, *large)
            # A HEAD of a large file: the hub's redirect says all of it, and a signed address is for GET only.
            if hop.redirect is None or (exchange.method == "HEAD" and hop.header(b"x-linked-etag")):
                return await _forward(exchange, url, hub, hop)
            hop.wire.close()
            hop = await _follow_redirect(exchange, hop)
        raise UpstreamUnreachable("the hub redirects in a circle")
    finally:
        hop.wire.close()


def _on_hub(exchange: ProxyExchange, url: str) -> bool:
    return _host_and_port(url) == _host_and_port(exchange.settings.hub or "")


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return (parts.hostname or "").removesuffix("."), rules.url_port(parts)


def _describe_large(exchange: ProxyExchange, hub: dict[bytes, bytes], hop: UpstreamAnswer) -> tuple[str, int] | None:
    """SHA-256 and bytes of the large file that the hub's redirect leads to, where it can be kept.

    The hub's tag of such a file is the SHA-256 of all of it.
    """
    sha256, size = _parse_tag(hub.get(b"x-linked-etag", b"").decode("latin-1")), hub.get(b"x-linked-size", b"")
    cache = exchange.cache
    described = re.fullmatch(r"[0-9a-f]{64}", sha256) and size.isdigit() and hop.redirect
    if cache is None or exchange.method != "GET" or not described:
        return None
    if cache.holds(sha256) != int(size) and not cache.has_room(int(size)):
        return None
    return sha256, int(size)


async def _deliver(
    exchange: ProxyExchange, key: str, hub: dict[bytes, bytes], hop: UpstreamAnswer, sha256: str, size: int
) -> rules.Ruling:
    """Answer with a large file out of the cache, into which it comes from where the hub's redirect leads."""

    async def from_store(begin: int) -> UpstreamAnswer:
        last = hop
        for _ in range(MAX_HOPS):
            last = await _follow_redirect(exchange, last, begin)
            if last.redirect is None:
                return last
            last.wire.close()
        raise UpstreamUnreachable("the store redirects in a circle")

    headers = _decode_headers(hub) | {"etag": f'"{sha256}"', "content-type": "application/octet-stream"}
    stored = Stored(sha256, size, headers, _is_fixed(key), time.time())
    ruling = await cache_delivery.deliver(exchange, stored, from_store)
    assert exchange.cache is not None
    exchange.cache.note(key, stored)
    return ruling


def _decode_headers(headers: dict[bytes, bytes]) -> dict[str, str]:
    return {key.decode("latin-1"): value.decode("latin-1") for key, value in headers.items()}


def _is_fixed(url: str) -> bool:
    """True for what a commit names: it never changes."""
    path = url.partition("?")[0]
    return bool(re.search(r"/(resolve|raw|revision|tree)/[0-9a-f]{40}(/|$)|/api/resolve-cache/", path))


async def _request(
    exchange: ProxyExchange, url: str, body: bytes = b"", begin: int | None = None, token: str = ""
) -> UpstreamAnswer:
    """Send the client's request to a URL, without anything that says who asks; for all from byte ``begin`` on.

    ``token``: the one by which a redirect led here, for the record.
    """
    forwarded = _CONDITIONS if begin is None else frozenset()
    headers = [*_OWN, *((key, value) for key, value in exchange.request.headers if key in forwarded)]
    headers += [(b"range", b"bytes=%d-" % begin)] if begin else []
    headers += [(key, value) for key, value in exchange.request.headers if key == b"content-type" and body]
    if _on_hub(exchange, url) and (own := _find_token(exchange.outside.tokens, urlsplit(url).path)):
        headers.append((b"authorization", f"Bearer {own}".encode()))
        token = own
    return await exchange.request_url(url, headers, body, token=token)


def _find_token(tokens: Mapping[str, str], path: str) -> str:
    """The driver's token for the model that a path is about, where there is one (``owner/name`` or ``owner/*``)."""
    owner, name = [*re.sub(r"^/api/(resolve-cache/)?models/", "/", path.lower()).split("/"), "", ""][1:3]
    return tokens.get(f"{owner}/{name}") or tokens.get(f"{owner}/*") or ""


async def _follow_redirect(exchange: ProxyExchange, hop: UpstreamAnswer, begin: int | None = None) -> UpstreamAnswer:
    """Ask where a redirect leads; on the hub itself the same rules hold again."""
    settings, url = exchange.settings, hop.redirect or ""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.scheme != urlsplit(settings.hub or "").scheme:
        raise rules.refuse("hub_path", "The hub redirects to an address without TLS.")
    if _on_hub(exchange, url):
        check_mirror(settings, exchange.method, parts.path + (f"?{parts.query}" if parts.query else ""))
        return await _request(exchange, url, begin=begin, token=hop.token)
    name = rules.host_name(parts.hostname or "")
    if name is None or parts.username is not None:
        raise rules.refuse("hub_path", "The hub redirects to an address that is not a name.")
    # Names under which a hub stores its files.
    host = urlsplit(settings.hub or "").hostname or ""
    stores = (f".{host}", f".{'.'.join(host.split('.')[-2:])}", ".hf.co")
    if rules.matches_any(settings.own_hosts, name) and not name.endswith(stores):
        raise rules.refuse("dataset_home", "The hub redirects to a home of a data set.")
    return await _request(exchange, url, begin=begin, token=hop.token)


async def _forward(exchange: ProxyExchange, url: str, hub: dict[bytes, bytes], last: UpstreamAnswer) -> rules.Ruling:
    """Pass on the last answer with the hub's headers of the file, as one answer without a redirect."""
    settings = exchange.settings
    # The hub's tag of a large file is the SHA-256 of all of it, also when a part is asked for.
    tags = (hub.get(b"x-linked-etag", b"").decode("latin-1"), last.header(b"x-linked-etag"), last.header(b"etag"))
    known = [tag for tag in map(_parse_tag, tags) if tag in settings.hashes]
    if known:
        exchange.entry.sha256 = known[0]
        raise refuse_labels(delivered=False)
    headers = dict(rules.drop_hop_headers([item for item in last.head.headers if item[0] in _PASSED]))
    headers |= hub
    status = last.head.status_code
    if last.redirect is not None:
        # The size of the file, not of the redirect's own text.
        status = 200
        headers[b"content-length"] = (last.header(b"x-linked-size") or "0").encode()
        headers.pop(b"content-type", None)
    place = f"https://{exchange.within}" if exchange.within else f"http://127.0.0.1:{HUB_PORT}"
    if links := _rewrite_links(headers.pop(b"link", b""), settings.hub or "", place):
        headers[b"link"] = links
    if _is_small(exchange, last):
        kept = _decode_headers({key: value for key, value in headers.items() if key not in _PER_ANSWER})
        key = _key(last.token, url)
        return await cache_delivery.keep_small(exchange, key, last, kept, fixed=_is_fixed(url), oid=_git_tag(last))
    await exchange.forward(status, headers.items(), last.wire)
    return cache_delivery.ALLOWED


def _is_small(exchange: ProxyExchange, last: UpstreamAnswer) -> bool:
    """True for an answer that is held whole, and kept: a small file that has its hash as a tag, or a listing.

    Its length must be told, by chunks at least: without, one that was cut looks whole.
    """
    if exchange.cache is None or exchange.method != "GET" or last.head.status_code != 200:
        return False
    length = last.header(b"content-length")
    listing = "json" in last.header(b"content-type") and "/api/models" in last.url
    complete = int(length) <= SMALL_BYTES if length else bool(last.header(b"transfer-encoding"))
    return complete and bool(listing or _git_tag(last))


def _git_tag(last: UpstreamAnswer) -> str:
    """Git SHA-1 that is the hub's ETag of a small file; a listing has none."""
    tag = _parse_tag(last.header(b"etag"))
    return tag if re.fullmatch(r"[0-9a-f]{40}", tag) else ""


def _rewrite_links(value: bytes, hub: str, place: str) -> bytes:
    """Links to further pages lead to where they were asked for; others (the large-file store's) are left out."""
    kept = [part for part in value.decode("latin-1").split(",") if 'rel="next"' in part]
    return ",".join(kept).replace(hub, place).encode("latin-1")


def _parse_tag(tag: str) -> str:
    return tag.removeprefix("W/").strip('"').lower()


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_QUERY = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/?%\[\]-]*")
# First segments that are no organisation and no model.
_RESERVED = frozenset(
    {"datasets", "spaces", "api", "docs", "models", "collections", "papers", "settings", "login", "logout", "join"}
    | {"new", "organizations", "blog", "posts", "tasks", "pricing", "oauth", "storage", "buckets", "kernels", "resolve"}
)
# Of one model; tokens, settings and discussions are none of an agent's business.
_VIEWS = frozenset({"revision", "tree", "paths-info", "refs", "commits", "treesize"})
_ODD = '\\%\x7f"<>#?'
_ODD_PATH = rules.Ruling(False, "hub_path", "The address of the request is not plain.")
_MODELS_ONLY = "The mirror serves models (/api/models, /<model>/resolve), nothing else."


def check_mirror(settings: rules.EgressSettings, method: str, target: str) -> str:
    """Check a request to the mirror (its origin form); gives the path to ask of the hub, rebuilt from its parts."""
    path, mark, query = target.partition("?")
    if not path.startswith("/") or not _QUERY.fullmatch(query):
        raise EgressRefused(_ODD_PATH)
    _check_data_set(settings, path)
    segments = path[1:].split("/")
    if "" in segments or any(_is_odd(segment) for segment in segments):
        raise EgressRefused(_ODD_PATH)
    if not _is_of_models(segments):
        raise rules.refuse("hub_path", _MODELS_ONLY)
    is_listing = method == "POST" and "paths-info" in segments[3:5] and segments[0] == "api"
    if method not in ("GET", "HEAD") and not is_listing:
        raise rules.refuse("method", f"{method} is refused: the hub is read only.")
    plain = "/".join(quote(unquote(segment), safe="~()!*'+,;=:@$&") for segment in segments)
    return f"/{plain}{mark}{query}"


def _check_data_set(settings: rules.EgressSettings, path: str) -> None:
    """Check that a path is not about a data set or a space, in any spelling."""
    words = [word for word in re.split(r"[/\\]+", decode(path)) if word not in ("", ".")]
    kinds = [index for index, word in enumerate(words[:3]) if word in ("datasets", "spaces")]
    if not kinds:
        return
    url = "/".join([HUB_HOST, *words[kinds[0] : kinds[0] + 3]])
    if rules.is_home(settings.own_urls, url, HUB_HOST, ""):
        raise rules.refuse_own_home(url, sure=True)
    raise rules.refuse("hub_dataset", f"Data sets and Spaces are refused. {_MODELS_ONLY}")


def _is_odd(segment: str) -> bool:
    """True for what could be read as another path: dots, control characters, anything encoded twice or wrongly."""
    try:
        plain = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return True
    parts = plain.split("/")
    return any(part in ("", ".", "..") for part in parts) or any(ord(char) < 32 or char in _ODD for char in plain)


def _is_of_models(segments: list[str]) -> bool:
    """True for ``/api/models``, views of one model, ``/<model>/resolve|raw/<revision>/<file>``, and the same file below
    ``/api/resolve-cache/models``; a model has one or two names.
    """
    if segments[:3] == ["api", "resolve-cache", "models"]:
        return len(segments) > 6 and _is_model(segments[3:5]) and _is_whole(segments[5:])
    is_api = segments[:2] == ["api", "models"]
    rest = segments[2:] if is_api else segments
    if not rest:
        return True
    for length in (1, 2):
        names, view = rest[:length], rest[length:]
        if len(names) == length and _is_model(names):
            if is_api and (not view or view[0] in _VIEWS):
                return True
            if not is_api and len(view) > 2 and view[0] in ("resolve", "raw") and _is_whole(view[2:]):
                return True
    return False


def _is_model(names: list[str]) -> bool:
    """True for names as the hub allows them, the first of which is not a part of its site."""
    plain = all(_NAME.fullmatch(name) and ".." not in name for name in names)
    return plain and names[0].lower() not in _RESERVED


def _is_whole(segments: list[str]) -> bool:
    """True when no segment holds an encoded slash: only revisions and folders of a tree may."""
    return not any("/" in unquote(segment) for segment in segments)
