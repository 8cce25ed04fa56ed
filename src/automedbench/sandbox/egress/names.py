"""Host names, authorities and patterns, as strictly as a rule about them needs. Pure functions.

What is not plainly a DNS name is refused instead of being interpreted: every reader of odd forms (octal addresses,
percent signs, user information) reads them differently, and the difference is a way around a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

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


def matches(pattern: str, host: str) -> bool:
    """``host`` itself, or with ``*.`` every name below it (and not itself)."""
    return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1 if pattern.startswith("*.") else host == pattern


def matches_any(patterns: Iterable[str], host: str) -> bool:
    """True when a pattern covers the host."""
    return any(matches(pattern, host) for pattern in patterns)


def below(host: str) -> tuple[str, str]:
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
