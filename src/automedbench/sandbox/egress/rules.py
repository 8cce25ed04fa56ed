"""Rules of the proxy, what it lets through: one ruling per request, by default a refusal.

Under TLS only the host is visible (``CONNECT``), on plain HTTP and where TLS is opened the whole URL.
docs/specification.md, 9.3 and 9.8. What one run may reach is worked out from cards, configuration, and the package
index that this machine's pip uses.

Host names are read as strictly as a rule about them needs. What is not plainly a DNS name is refused instead of being
interpreted: every reader of odd forms (octal addresses, percent signs, user information) reads them differently, and
the difference is a way around a rule.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import html
import json
import os
import re
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from pydantic import TypeAdapter

from automedbench.base.cards import DataSet, Source, TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Confidence, Manifest, Receipt, Severity
from automedbench.sandbox.egress.sites import (
    GITHUB,
    HUB_HOST,
    ZENODO,
    decode,
    find_opaque,
    is_copy,
    is_named,
    resolve_dots,
)

if TYPE_CHECKING:
    from automedbench.campaign.config import EgressConfig

Headers = Sequence[tuple[bytes, bytes]]

HTTP_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
# What git and git-lfs send to read a repository (gitprotocol-http; git-lfs, docs/api/batch.md).
_READS = re.compile(r"/[\w.-]+/[\w.-]+/(git-upload-pack|info/lfs/objects/batch)")
# Of an address: printable ASCII without "#" and backslash.
_PLAIN = re.compile(r"[!\"$-\[\]-~]*")
# Meant for the next hop only (RFC 9110, 7.6.1), or for the proxy itself.
HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "http2-settings", "expect"}
)


@dataclass(frozen=True)
class Ruling:
    """``reason`` is a stable word; ``text`` goes to the agent; rule, severity and confidence are of the finding."""

    allowed: bool
    reason: str
    text: str = ""
    rule: str = "net.refused"
    severity: Severity = "notice"
    confidence: Confidence = "low"


@dataclass(frozen=True)
class RequestTarget:
    """Target of a request. ``path`` is the origin form with query, empty for a tunnel."""

    host: str
    port: int
    path: str = ""

    @property
    def authority(self) -> str:
        """Authority as in a Host header."""
        return self.host if self.port in (80, 443) and self.path else f"{self.host}:{self.port}"


class EgressRefused(Exception):
    """A request that a rule does not let through; carries the ruling."""

    def __init__(self, ruling: Ruling) -> None:
        self.ruling = ruling
        super().__init__(ruling.text)


LISTED = Ruling(True, "listed")
NOT_PLAIN = Ruling(False, "malformed", "The address of the request is not plain.")


def refuse(reason: str, text: str) -> EgressRefused:
    """An ordinary refusal: a notice."""
    return EgressRefused(Ruling(False, reason, text))


def refuse_own_home(where: str, *, sure: bool) -> EgressRefused:
    """A refused request to the home of this task's data; a host alone is sure where it serves nothing else."""
    severity: Severity = "warning" if sure else "notice"
    text = f"{where} is a home of this task's data set, which is not to be fetched."
    return EgressRefused(Ruling(False, "own_home", text, "net.labels", severity, "high" if sure else "medium"))


def check_tunnel(settings: EgressSettings, target: str) -> RequestTarget:
    """Check ``CONNECT target``."""
    host, port = split_authority(target) or ("", None)
    if port is None:
        raise refuse("malformed", "CONNECT needs host:port.")
    check_host(settings, host, port, ports=(443,))
    return RequestTarget(_normalise_host(host), port)


def check_plain(settings: EgressSettings, method: str, target: str, headers: Headers) -> RequestTarget:
    """Check a plain HTTP request in absolute form."""
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        text = "Ask for http:// in absolute form, or open a tunnel with CONNECT for https."
        raise refuse("scheme", text)
    place, tail = re.fullmatch(r"([^/?]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    authority = split_authority(place)
    if authority is None or not _PLAIN.fullmatch(rest):
        raise EgressRefused(NOT_PLAIN)
    host, port = authority[0], authority[1] or 80
    if method not in HTTP_METHODS:
        text = f"{method} is not forwarded; {', '.join(sorted(HTTP_METHODS))} are."
        raise refuse("method", text)
    _check_headers(headers, host, port)
    path = tail if tail.startswith("/") else f"/{tail}"
    check_url(settings, host, path)
    check_host(settings, host, port, ports=(80,))
    return RequestTarget(_normalise_host(host), port, path)


def check_opened(settings: EgressSettings, host: str, method: str, target: str, headers: Headers) -> RequestTarget:
    """Check a request in origin form inside a tunnel to ``host`` whose TLS is opened."""
    if not target.startswith("/") or not _PLAIN.fullmatch(target):
        raise EgressRefused(NOT_PLAIN)
    _check_headers(headers, host, 443)
    reads = host == "github.com" and method == "POST" and _READS.fullmatch(target)
    if (method not in ("GET", "HEAD") and not reads) or "git-receive-pack" in decode(target):
        raise refuse("method", f"{method} is refused: {host} is for reading.")
    check_url(settings, host, target)
    return RequestTarget(host, 443, target)


def opens_tls(settings: EgressSettings, host: str) -> bool:
    """True when TLS to the host is opened, so that the whole URL is seen."""
    return matches_any(settings.opened, host)


def check_host(settings: EgressSettings, host: str, port: int, *, ports: tuple[int, ...]) -> None:
    """Check a host and port, before any address is known."""
    name = host_name(host)
    if f"{_normalise_host(host)}:{port}" in settings.index.places:
        return
    if name is None:
        if is_address(host):
            raise refuse("address", "Addresses are refused; use the name of a listed host.")
        raise refuse("malformed", "The host is not a plain DNS name.")
    if matches_any(settings.own_hosts, name):
        raise refuse_own_home(name, sure=not matches_any(settings.general_hosts, name))
    hub = settings.hub_host
    opened = opens_tls(settings, name) and not matches_any(settings.deny_hosts, name)
    if name == hub and opened and ports == (port,) == (443,):
        return
    if hub is not None and (name == hub or name.endswith(f".{hub}")):
        raise refuse("hub", "The hub is reached through its mirror at HF_ENDPOINT, which serves models.")
    if matches_any(settings.deny_hosts, name):
        raise refuse("dataset_home", f"{name} is a home of the benchmark's data sets.")
    if not matches_any(settings.allow, name):
        raise refuse("not_listed", f"{name} is not on the list of hosts that may be reached.")
    if port not in ports:
        raise refuse("port", f"Port {port} is refused: tunnels go to 443, plain HTTP to 80.")


def check_url(settings: EgressSettings, host: str, path: str) -> None:
    """Check that a URL does not lie below a data set's."""
    url = normalise_url(host, path)
    if url == _normalise_host(host) + path.lower() and any(_lies_below(url, prefix) for prefix in settings.models):
        return
    if is_home(settings.own_urls, url, host, path):
        raise refuse_own_home(url[:120], sure=True)
    if is_home(settings.deny_urls, url, host, path):
        raise refuse("dataset_home", f"{url[:120]} is a home of the benchmark's data sets.")
    if is_copy(settings.own_urls, host, path):
        raise refuse("own_name", f"{url[:120]} has the name of this task's data set, and may be a copy of it.")
    if opens_tls(settings, _normalise_host(host)) and (why := find_opaque(url)):
        raise refuse("opaque", why)


def normalise_url(host: str, path: str) -> str:
    """Host and path as rules compare them: lower case, no query, decoded, without empty and dot segments."""
    kept = resolve_dots(re.split(r"[/\\]+", decode(path.partition("?")[0])))
    return "/".join([_normalise_host(host).removeprefix("www."), *kept])


def drop_hop_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Headers without those that are meant for one hop, and without those that ``Connection`` names."""
    named = {word.strip().lower() for key, value in headers if key == b"connection" for word in value.split(b",")}
    return [(key, value) for key, value in headers if key.decode("latin-1") not in HOP_BY_HOP and key not in named]


def check_sni(host: str, sni: str | None, *, encrypted: bool = False) -> None:
    """Check the name in a tunnel's ClientHello, which must be the tunnel's."""
    if encrypted:
        raise refuse("sni", "An encrypted ClientHello hides where the tunnel leads.")
    if sni is None:
        raise refuse("sni", "A tunnel must begin with a TLS ClientHello that names the host.")
    if host_name(sni) != _normalise_host(host):
        text = f"The tunnel is for {host}, its TLS for {sni[:80]}."
        raise EgressRefused(Ruling(False, "sni", text, confidence="medium"))


def _check_headers(headers: Headers, host: str, port: int) -> None:
    hosts = [value.decode("latin-1") for key, value in headers if key == b"host"]
    if any(split_authority(value) is None for value in hosts) or len(hosts) > 1:
        raise refuse("host_header", "The Host header is not plain.")
    for value in hosts:
        named, own_port = split_authority(value) or ("", None)
        if (_normalise_host(named), own_port or (443 if port == 443 else 80)) != (_normalise_host(host), port):
            raise refuse("host_header", "The Host header differs from the address of the request.")
    names = {key for key, _ in headers}
    if b"upgrade" in names or any(b"upgrade" in value.lower() for key, value in headers if key == b"connection"):
        raise refuse("upgrade", "Upgrades (websockets, HTTP/2) are refused.")
    if b"transfer-encoding" in names and b"content-length" in names:
        raise refuse("malformed", "A request has one length, not two.")


def is_home(homes: Iterable[str], url: str, host: str, path: str) -> bool:
    """True for a URL (as rules compare them) below a home, or with its name in any spelling."""
    return any(_lies_below(url, home) for home in homes) or is_named(homes, host, path)


def _lies_below(url: str, prefix: str) -> bool:
    return url == prefix or url.startswith(prefix.rstrip("/") + "/")


def _normalise_host(host: str) -> str:
    return host.lower().removesuffix(".")


# Where a source names an id instead of a URL.
_PLACES = {
    "huggingface": (f"{HUB_HOST}/datasets/",),
    "kaggle": ("kaggle.com/datasets/",),
    "physionet": ("physionet.org/", "physionet.org/files/", "physionet.org/content/"),
    "synapse": ("synapse.org/", "prod.sagebase.org/repo/v1/entity/"),
    "tcia": ("cancerimagingarchive.net/",),
    "box": ("box.com/",),
}
# Sites that serve the same content under other names.
_FAMILIES = {
    "github.com": ("*.githubusercontent.com", "*.github.io"),
    HUB_HOST: ("*.hf.co",),
    "kaggle.com": ("*.kaggleusercontent.com",),
    "osf.io": ("*.osf.io",),
    "box.com": ("*.boxcloud.com",),
    "figshare.com": ("*.figshare.com", "pfigshare-u-files.s3.amazonaws.com"),
    "data.mendeley.com": ("*.mendeley.com", "prod-dcd-datasets-public-files-eu-west-1.s3.eu-west-1.amazonaws.com"),
    "cancerimagingarchive.net": ("idc-open-data.s3.amazonaws.com", "*.imaging.datacommons.cancer.gov"),
}
# Sites whose files and pages are served by hosts beside the one that is named.
_SITES = ("box.com", "figshare.com", "mendeley.com", "cancerimagingarchive.net", "isic-archive.com")
# A homepage there is mostly code or weights, which agents need; a source there is the data.
_CODE = frozenset({"github.com", "gitlab.com", "bitbucket.org"})
# Sites for many purposes: under TLS only the host is seen, and a request to it proves nothing.
_GENERAL = _CODE | {HUB_HOST, "zenodo.org", "figshare.com", "kaggle.com", "osf.io", "box.com", "nature.com", "doi.org"}
_GENERAL |= {"data.mendeley.com", "arxiv.org", "google.com", "amazonaws.com", "googleapis.com", "registry.opendata.aws"}
_GENERAL |= {"s3.amazonaws.com", "ndownloader.figshare.com", "mendeley.com", "dataverse.harvard.edu"}
# A file that short is in many places ("0\n"), and so are licences and readmes of a data set.
MIN_LABEL_BYTES = 64
MIN_RAW_BYTES = 64 * 1024
# Annotations are shorter than images, and in no other place.
MIN_TABLE_BYTES = 1024
_TABLES = (".xml", ".csv", ".tsv", ".tab", ".json", ".jsonl", ".h5", ".xlsx", ".parquet")


@dataclass(frozen=True)
class PackageIndex:
    """``hosts`` serve the index and its files; ``places`` (host:port) are trusted with any address and port."""

    url: str | None
    """To be set inside; None: pip's own default."""
    hosts: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


INDEX_S, MAX_PAGE = 10.0, 16 * 2**20
"""Seconds and bytes for a page of the operator's index."""
INDEX_PAUSES_S = (0.0, 2.0, 8.0)
"""Pauses before each of its requests."""
_HREF = re.compile(r"""<a\b[^>]*?\bhref\s*=\s*["'](.*?)["']""", re.IGNORECASE | re.DOTALL)
NO_INDEX = PackageIndex(None)
PYPI = PackageIndex(None, ("pypi.org", "files.pythonhosted.org"))
"""pip's built-in index, and the host of its files."""


@dataclass(frozen=True)
class Homes:
    """Addresses that serve a data set: ``hosts`` are patterns, ``urls`` are ``host/path`` prefixes in lower case.

    ``code``: homepages on code hosts, the authors' code and often their model; asking for them proves nothing.
    """

    hosts: frozenset[str]
    urls: frozenset[str]
    code: frozenset[str]


@dataclass(frozen=True)
class EgressSettings:
    """Rules of one run. Host patterns are names or ``*.name``; URLs are ``host/path`` prefixes in lower case."""

    allow: tuple[str, ...]
    deny_hosts: tuple[str, ...] = ()
    """Refused as a whole, also where ``allow`` names them."""
    deny_urls: tuple[str, ...] = ()
    """Refused where the path is visible: plain HTTP, opened TLS and the hub mirror."""
    own_hosts: tuple[str, ...] = ()
    """Of ``deny_hosts``, the homes of this task's data set."""
    general_hosts: tuple[str, ...] = ()
    """Of ``own_hosts``, sites for many purposes, where the host alone is weak evidence."""
    own_urls: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    """Hosts whose TLS the proxy opens, so that rules about URLs hold there."""
    models: tuple[str, ...] = ()
    """URLs of the lite tier's checkpoints, allowed also below a homepage of a data set."""
    gated: tuple[str, ...] = ()
    """Repositories of the hub, ``owner/name`` or ``owner/*``, that are asked for with a token of the driver's."""
    hub: str | None = None
    index: PackageIndex = NO_INDEX
    hashes: tuple[str, ...] = ()
    """SHA-256 of files that hold held-out labels, sorted."""
    upload_bytes: int = 1024 * 1024
    """In one request or tunnel."""
    upload_total_bytes: int = 8 * 1024 * 1024
    """In all requests and tunnels of the run together."""
    cached: bool = False
    """The campaign's cache is behind the hub's mirror and the index, which has a mirror too then."""
    offline: bool = False
    """They answer from the cache and from nowhere else."""
    sealed: bool = False
    """There is no proxy beside them."""

    @property
    def services(self) -> list[Literal["proxy", "hub", "index"]]:
        """Services that agent code can reach."""
        there = {"proxy": not self.sealed, "hub": self.hub is not None, "index": self.cached and bool(self.index.hosts)}
        return [name for name in ("proxy", "hub", "index") if there[name]]

    @property
    def hub_host(self) -> str | None:
        """Name of the hub's host."""
        return host_name(urlsplit(self.hub).hostname or "") if self.hub else None

    @property
    def trusted(self) -> frozenset[str]:
        """Hub and index of the operator (host:port), which may have private addresses."""
        hub = urlsplit(self.hub or "")
        return frozenset([*self.index.places, *([f"{hub.hostname}:{url_port(hub)}"] if self.hub else [])])

    @property
    def reachable(self) -> tuple[str, ...]:
        """Patterns of ``allow`` that no refusal covers as a whole: what may be promised to an agent."""
        refused = self.deny_hosts
        return tuple(
            host for host in self.allow if host not in refused and not matches_any(refused, host.removeprefix("*."))
        )

    @property
    def digest(self) -> str:
        """SHA-256 over all of it: two runs with the same digest could reach the same."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EgressSettings:
        """The inverse of ``dataclasses.asdict``, also after a way through JSON."""
        return TypeAdapter(cls).validate_python(data)


def build_settings(
    card: TaskCard,
    cards: Iterable[TaskCard],
    config: EgressConfig,
    *,
    index: PackageIndex = NO_INDEX,
    hashes: Iterable[str] = (),
    models: Iterable[str] = (),
    sealed: bool = False,
) -> EgressSettings:
    """Rules of a run of ``card``, in a benchmark with all ``cards``.

    Homes of data sets are refused as a whole, but by URL on hosts whose TLS is opened, and those of other tasks on a
    host that is allowed for code or models. ``models`` are the URLs of checkpoints.
    """
    allowed = tuple(dict.fromkeys([*(name.lower() for name in config.allow), *index.hosts]))
    own = list_homes(card.dataset)
    others = [list_homes(other.dataset) for other in cards]
    hub_host = host_name(urlsplit(config.hub).hostname or "") if config.hub else None
    hub_hosts = set(make_patterns(hub_host)) if hub_host else set()
    opened = (*GITHUB, *ZENODO, *((hub_host,) if hub_host else ())) if config.open_tls else ()
    foreign = {host for homes in others for host in homes.hosts if not _overlaps(host, allowed)}
    places = [_parse_location(url) for url in models]
    locations = [_parse_location(entry) for entry in config.deny]
    denied = {pattern for host, path in locations if not path for pattern in _family_patterns(host)}
    urls = {host + path for host, path in locations if path}
    return EgressSettings(
        allow=allowed,
        deny_hosts=tuple(sorted((own.hosts | foreign | hub_hosts) - set(opened) | denied)),
        deny_urls=tuple(sorted(own.urls.union(own.code, urls, *(homes.urls for homes in others)))),
        own_hosts=tuple(sorted(own.hosts - set(opened))),
        general_hosts=tuple(sorted(host for host in own.hosts if _is_general(host))),
        own_urls=tuple(sorted(own.urls)),
        opened=opened,
        models=tuple(sorted(host + path for host, path in places if not is_home(own.urls, host + path, host, path))),
        gated=tuple(sorted(name.lower() for token in config.tokens for name in token.models)),
        hub=config.hub.rstrip("/") if config.hub else None,
        index=index,
        hashes=tuple(sorted(set(hashes))),
        upload_total_bytes=config.upload_total_mb * 1024**2,
        cached=config.cache is not None,
        offline=config.offline,
        sealed=sealed,
    )


def list_homes(dataset: DataSet) -> Homes:
    """List the addresses that serve a data set, from its homepages and sources."""
    pages = [_parse_location(page) for page in dataset.homepages]
    places: list[tuple[str, str]] = []
    for source in dataset.sources:
        for part in (source, *source.also):
            places += _list_source_places(part)
    code = [page for page in pages if page[0].removeprefix("www.") in _CODE]
    homes = [*places, *(page for page in pages if page not in code)]
    hosts = frozenset(pattern for host, _ in homes for pattern in _family_patterns(host))
    return Homes(hosts, _join_urls(homes), _join_urls(code))


def _join_urls(places: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset(host.removeprefix("www.") + path for host, path in places if path.strip("/"))


def _list_source_places(source: Source) -> list[tuple[str, str]]:
    """Hosts and paths of one source and of everything that it downloads."""
    places: list[tuple[str, str]] = []
    if "://" in source.where:
        places.append(_parse_location(source.where))
    elif source.kind in _PLACES:
        places += [_parse_location(place + source.where) for place in _PLACES[source.kind]]
    names = [download.name for download in source.downloads]
    tables = [download.rows.table for download in source.downloads if download.rows]
    places += [_parse_location(name.partition("{")[0]) for name in (*names, *tables) if "://" in name]
    if source.kind == "synapse":
        places += [_parse_location(place + name) for place in _PLACES["synapse"] for name in names]
    return [place for host, path in places for place in (*_list_aliases(host, path), (host, path))]


def _list_aliases(host: str, path: str) -> list[tuple[str, str]]:
    """The same data at the same site, under addresses that its pages, files and programs use."""
    site = next((site for site in _SITES if host == site or host.endswith(f".{site}")), None)
    found = [] if site in (None, host) else [(str(site), path)]
    record = re.match(r"/(?:api/)?records?/(\d+)", path)
    if host.removeprefix("www.") == "zenodo.org" and record:
        found += [(host, f"/{kind}/{record[1]}") for kind in ("records", "record", "api/records")]
    bucket = re.fullmatch(r"([\w.-]+)\.s3[.-][\w.-]*amazonaws\.com|([\w.-]+)\.s3\.amazonaws\.com", host)
    if bucket:
        name = bucket[1] or bucket[2]
        found += [(f"{name}.s3.amazonaws.com", path), ("s3.amazonaws.com", f"/{name}{path}")]
    return found


def label_hashes(manifest: Manifest, receipt: Receipt | None = None) -> list[str]:
    """SHA-256 of a task's held-out files, raw data and archives; files that are in many places are left out."""
    labels = [entry for case in manifest.cases for entry in case.private.values() if entry.bytes >= MIN_LABEL_BYTES]
    labels += [entry for entry in manifest.private.values() if entry.bytes >= MIN_LABEL_BYTES]
    files = receipt.files if receipt else {}
    least = {name: MIN_TABLE_BYTES if name.lower().endswith(_TABLES) else MIN_RAW_BYTES for name in files}
    raw = [entry for name, entry in files.items() if entry.bytes >= least[name]]
    downloads = [each for each in receipt.downloads if each.bytes >= MIN_RAW_BYTES] if receipt else []
    archives = {each.sha256 for each in downloads if each.sha256 is not None}
    shown = {entry.sha256 for case in manifest.cases for entry in case.inputs.values()}
    return sorted(({entry.sha256 for entry in (*labels, *raw)} | archives) - shown)


def _parse_location(text: str) -> tuple[str, str]:
    """Host and path of a URL or ``host/path``, in lower case; ``("", "")`` when it names no host."""
    parts = urlsplit(text if "://" in text else f"//{text}")
    host = (parts.hostname or "").lower()
    host = host[2:] if host.startswith("*.") else host
    if not host or (host_name(host) is None and not is_address(host)):
        return "", ""
    return host, re.sub(r"/+", "/", unquote(parts.path)).rstrip("/").lower()


def _family_patterns(host: str) -> set[str]:
    site = host.removeprefix("www.")
    return {*make_patterns(site), *_FAMILIES.get(site, ())} if host else set()


def _overlaps(pattern: str, allowed: tuple[str, ...]) -> bool:
    """True when a pattern and the allow-list have hosts in common."""
    name = pattern.removeprefix("*.")
    return (
        matches_any(allowed, name)
        or matches_any(allowed, f"x.{name}")
        or any(matches_any([pattern], entry.removeprefix("*.")) for entry in allowed)
    )


def _is_general(pattern: str) -> bool:
    name = pattern.removeprefix("*.")
    return name in _GENERAL or any(pattern in family for family in _FAMILIES.values())


_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_NAT64 = IPv6Network("64:ff9b::/96")


def host_name(text: str) -> str | None:
    """The name in lower case without a final dot, or None when it is no DNS name (addresses are none)."""
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or is_address(name):
        return None
    return name


def is_address(text: str) -> bool:
    """True for what some program would read as an IP address, in any notation.

    A name whose last label is a number is one: no top-level domain is (the rule of the WHATWG URL standard).
    """
    bare = text.strip("[]").partition("%")[0]
    if ":" in bare or text.startswith("["):
        return True
    return bool(_NUMBER.fullmatch(bare.lower().removesuffix(".").rpartition(".")[2]))


def split_authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of ``host[:port]``; None for user information, odd characters and ports that are no number.

    The host is returned as it stands; a bracketed address keeps its brackets.
    """
    match = re.fullmatch(r"(\[[0-9A-Za-z:.%]*\]|[^\s:@/?#\\\[\]]+)(?::([0-9]{1,5}))?", text, re.ASCII)
    if match is None:
        return None
    port = None if match[2] is None else int(match[2])
    return None if port is not None and not 0 < port < 65536 else (match[1], port)


def url_port(parts: SplitResult) -> int:
    """Port of a URL, by its scheme where it names none."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def matches_any(patterns: Iterable[str], host: str) -> bool:
    """True when a pattern covers the host: its name, or with ``*.`` every name below it (and not itself)."""
    return any(
        host.endswith(pattern[1:]) and len(host) >= len(pattern) if pattern.startswith("*.") else host == pattern
        for pattern in patterns
    )


def make_patterns(host: str) -> tuple[str, str]:
    """Patterns for a host and everything below it; ``www.`` stands for the site."""
    site = host.removeprefix("www.")
    return site, f"*.{site}"


def is_public(text: str) -> bool:
    """True for an address that belongs to the internet at large.

    Private, loopback, link-local (cloud metadata), shared and reserved ones do not, nor do those that carry such an
    address inside (mapped, 6to4, Teredo, NAT64).
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(str(IPv4Address(int(address) & 0xFFFFFFFF)))
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        carried = [item for item in (address.sixtofour, *(address.teredo or ())) if item is not None]
        if not all(is_public(str(item)) for item in carried):
            return False
    special = address.is_multicast or address.is_reserved or address.is_unspecified
    return address.is_global and not special


def read_index(*, ask: bool = True) -> PackageIndex:
    """The index that this machine's pip is configured for, or its built-in one.

    Of the environment pip gets what configures it, and no key of an endpoint. A configured index is asked for the hosts
    of its files, unless told not to; raises InfrastructureError when it refuses or does not answer.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    passed = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "XDG_", "HOME", "PATH"))}
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=60, env=passed).stdout
    except subprocess.TimeoutExpired:
        listing = ""
    configured = configured_url(listing)
    if configured is None:
        return PYPI
    index = parse_index_url(configured)
    return add_linked_hosts(index, configured) if ask and index.url else index


def add_linked_hosts(index: PackageIndex, configured: str) -> PackageIndex:
    """The index with the hosts of files that its page of pip links; of these, internal ones are trusted as it is.

    The index alone where it does not hold pip. Raises InfrastructureError when it refuses or does not answer.
    """
    page, base = _read_page(f"{(index.url or '').rstrip('/')}/pip/", configured)
    links = [urlsplit(urljoin(base, html.unescape(link))) for link in _HREF.findall(page)]
    if page and not any("/pip-" in link.path for link in links):
        raise _refusal(index.url, "answers with another page, maybe a login page, instead of pip's files")
    files = {(link.hostname, url_port(link)) for link in links if link.scheme in ("http", "https") and link.hostname}
    hosts = dict.fromkeys([*index.hosts, *sorted(host for host, _ in files)])
    places = dict.fromkeys([*index.places, *sorted(f"{host}:{port}" for host, port in files if _is_internal(host))])
    return dataclasses.replace(index, hosts=tuple(hosts), places=tuple(places))


def _read_page(url: str, configured: str) -> tuple[str, str]:
    """Text and final address of a page of the index, empty where there is no such page; a failure is tried again."""
    import http.client
    import urllib.error
    import urllib.request

    user, word = urlsplit(configured).username, urlsplit(configured).password
    login = b64encode(f"{unquote(user or '')}:{unquote(word or '')}".encode()).decode()
    headers = {"Accept": "text/html", **({"Authorization": f"Basic {login}"} if user else {})}
    problem = ""
    for pause_s in INDEX_PAUSES_S:
        time.sleep(pause_s)
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=INDEX_S) as answer:
                return answer.read(MAX_PAGE).decode("utf-8", "replace"), answer.url
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                return "", url
            problem = f"refuses (HTTP {error.code})"
        except (OSError, ValueError, http.client.HTTPException) as error:
            problem = f"does not answer ({getattr(error, 'reason', '') or error})"
    raise _refusal(url, problem)


def _refusal(url: str | None, problem: str) -> InfrastructureError:
    return InfrastructureError(
        f"The package index that pip is configured for here {problem}: {url}\n"
        "Set pip's index-url (`pip config list`, PIP_INDEX_URL) to one that this machine reaches, or fill a cache and "
        "set sandbox.egress.offline: true (docs/network.md)."
    )


def _is_internal(host: str) -> bool:
    """True for a host with an address that does not belong to the internet."""
    try:
        return not all(is_public(str(found[4][0])) for found in socket.getaddrinfo(host, None))
    except OSError:
        return False


def configured_url(listing: str) -> str | None:
    """The index of ``pip config list``; a variable of the environment wins over a file, as in pip."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        scope, _, name = key.partition(".")
        if name.strip(".") == "index-url":
            found[scope] = str(ast.literal_eval(value)) if value[:1] in "'\"" else value
    return next((found[scope] for scope in (":env:", "install", "download", "global") if scope in found), None)


def parse_index_url(url: str) -> PackageIndex:
    """An index at a URL that the operator configured: trusted, without its user name and password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return NO_INDEX
    place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    shown = urlunsplit((parts.scheme, place, parts.path, "", ""))
    return PackageIndex(shown, (parts.hostname,), (f"{parts.hostname}:{url_port(parts)}",))
