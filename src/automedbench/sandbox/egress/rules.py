"""Rules of the proxy, what it lets through: one verdict per request, by default a refusal. Pure functions.

Under TLS only the host is visible (``CONNECT``), on plain HTTP the whole URL. docs/specification.md, 9.3 and 9.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from automedbench.base.records import Confidence, Severity
from automedbench.sandbox.egress.settings import EgressSettings, host_name, is_address, matches_any, split_authority

Headers = Sequence[tuple[bytes, bytes]]

HTTP_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
# Meant for the next hop only (RFC 9110, 7.6.1), or for the proxy itself.
HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "http2-settings", "expect"}
)


@dataclass(frozen=True)
class Verdict:
    """``reason`` is a stable word; ``text`` goes to the agent; rule, severity and confidence are of the finding."""

    allowed: bool
    reason: str
    text: str = ""
    rule: str = "net.refused"
    severity: Severity = "notice"
    confidence: Confidence = "low"


@dataclass(frozen=True)
class Target:
    """Where a request goes. ``path`` is the origin form with query, empty for a tunnel."""

    host: str
    port: int
    path: str = ""

    @property
    def authority(self) -> str:
        """As it stands in a Host header."""
        return self.host if self.port == 80 and self.path else f"{self.host}:{self.port}"


LISTED = Verdict(True, "listed")


def refuse(reason: str, text: str) -> Verdict:
    """An ordinary refusal: a notice."""
    return Verdict(False, reason, text)


def own_home(where: str, *, sure: bool) -> Verdict:
    """A refused request to the home of this task's data; a host alone is sure where it serves nothing else."""
    severity: Severity = "warning" if sure else "notice"
    text = f"{where} is a home of this task's data set, which is not to be fetched."
    return Verdict(False, "own_home", text, "net.labels", severity, "high" if sure else "medium")


def check_tunnel(settings: EgressSettings, target: str) -> tuple[Verdict, Target | None]:
    """Verdict on ``CONNECT target``."""
    authority = split_authority(target)
    host, port = authority or ("", None)
    if port is None:
        return refuse("malformed", "CONNECT needs host:port."), None
    verdict = check_host(settings, host, port, ports=(443,))
    return verdict, Target(_plain(host), port) if verdict.allowed else None


def check_plain(settings: EgressSettings, method: str, target: str, headers: Headers) -> tuple[Verdict, Target | None]:
    """Verdict on a plain HTTP request in absolute form."""
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        return refuse("scheme", "Ask for http:// in absolute form, or open a tunnel with CONNECT for https."), None
    text, slash, tail = _split_path(rest)
    authority = split_authority(text)
    if authority is None or not re.fullmatch(r"[!-~]*", rest) or set("#\\") & set(rest):
        return refuse("malformed", "The address of the request is not plain."), None
    host, given = authority
    port = 80 if given is None else given
    if method not in HTTP_METHODS:
        return refuse("method", f"{method} is not forwarded; {', '.join(sorted(HTTP_METHODS))} are."), None
    if problem := _header_problem(headers, host, port):
        return problem, None
    path = (slash if slash == "/" else "/" + slash) + tail
    verdict = check_url(settings, host, path) or check_host(settings, host, port, ports=(80,))
    return verdict, Target(_plain(host), port, path) if verdict.allowed else None


def check_host(settings: EgressSettings, host: str, port: int, *, ports: Iterable[int]) -> Verdict:
    """Verdict on a host and port, before any address is known."""
    name = host_name(host)
    if f"{_plain(host)}:{port}" in settings.index.places:
        return LISTED
    if name is None:
        if is_address(host):
            return refuse("address", "Addresses are refused; use the name of a listed host.")
        return refuse("malformed", "The host is not a plain DNS name.")
    if matches_any(settings.own_hosts, name):
        return own_home(name, sure=not matches_any(settings.general_hosts, name))
    hub = host_name(urlsplit(settings.hub).hostname or "") if settings.hub else None
    if hub is not None and (name == hub or name.endswith(f".{hub}")):
        return refuse("hub", "The hub is reached through its mirror at HF_ENDPOINT, which serves models.")
    if matches_any(settings.deny_hosts, name):
        return refuse("dataset_home", f"{name} is a home of the benchmark's data sets.")
    if not matches_any(settings.allow, name):
        return refuse("not_listed", f"{name} is not on the list of hosts that may be reached.")
    if port not in ports:
        return refuse("port", f"Port {port} is refused: tunnels go to 443, plain HTTP to 80.")
    return LISTED


def check_url(settings: EgressSettings, host: str, path: str) -> Verdict | None:
    """A refusal when a URL lies below a data set's, else None."""
    url = visible_url(host, path)
    if any(_lies_below(url, prefix) for prefix in settings.own_urls):
        return own_home(url[:120], sure=True)
    if any(_lies_below(url, prefix) for prefix in settings.deny_urls):
        return refuse("dataset_home", f"{url[:120]} is a home of the benchmark's data sets.")
    return None


def visible_url(host: str, path: str) -> str:
    """Host and path as rules compare them: lower case, no query, decoded, without empty and dot segments."""
    plain = path.partition("?")[0]
    for _ in range(3):
        plain = unquote(plain)
    kept: list[str] = []
    for segment in re.split(r"[/\\]+", plain.lower()):
        if segment == "..":
            kept = kept[:-1]
        elif segment not in ("", "."):
            kept.append(segment)
    return "/".join([_plain(host).removeprefix("www."), *kept])


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Headers without those that are meant for one hop, and without those that ``Connection`` names."""
    named = {word.strip().lower() for key, value in headers if key == b"connection" for word in value.split(b",")}
    return [(key, value) for key, value in headers if key.decode("latin-1") not in HOP_BY_HOP and key not in named]


def check_sni(host: str, sni: str | None, *, encrypted: bool = False) -> Verdict:
    """Verdict on the name in a tunnel's ClientHello, which must be the tunnel's."""
    if encrypted:
        return refuse("sni", "An encrypted ClientHello hides where the tunnel leads.")
    if sni is None:
        return refuse("sni", "A tunnel must begin with a TLS ClientHello that names the host.")
    if host_name(sni) != _plain(host):
        return Verdict(False, "sni", f"The tunnel is for {host}, its TLS for {sni[:80]}.", confidence="medium")
    return LISTED


def _header_problem(headers: Headers, host: str, port: int) -> Verdict | None:
    hosts = [value.decode("latin-1") for key, value in headers if key == b"host"]
    if any(split_authority(value) is None for value in hosts) or len(hosts) > 1:
        return refuse("host_header", "The Host header is not plain.")
    for value in hosts:
        named, own_port = split_authority(value) or ("", None)
        if (_plain(named), own_port or 80) != (_plain(host), port):
            return refuse("host_header", "The Host header differs from the address of the request.")
    names = {key for key, _ in headers}
    if b"upgrade" in names or any(b"upgrade" in value.lower() for key, value in headers if key == b"connection"):
        return refuse("upgrade", "Upgrades (websockets, HTTP/2) are refused.")
    if b"transfer-encoding" in names and b"content-length" in names:
        return refuse("malformed", "A request has one length, not two.")
    return None


def _split_path(rest: str) -> tuple[str, str, str]:
    """Authority, the character that ends it, and what follows."""
    match = re.search(r"[/?#]", rest)
    return (rest, "", "") if match is None else (rest[: match.start()], match[0], rest[match.end() :])


def _lies_below(url: str, prefix: str) -> bool:
    return url == prefix or url.startswith(prefix.rstrip("/") + "/")


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")
