"""Sites that serve models and data sets alike, GitHub and Zenodo: hosts, and which addresses name a home there.

A repository or a record is served by many hosts under many paths; all that are let through hold its name, however they
are spelt: codeload, api, raw, LFS (``owner/name``), pages, files, DOIs, OAI (a record's number).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

HUB_HOST = "huggingface.co"
GITHUB = ("github.com", "*.github.com", "*.githubusercontent.com")
ZENODO = ("zenodo.org", "*.zenodo.org")

# Per site: its hosts, the name in the address of a home, and what must not stand before and behind the name.
_SITES = (
    (
        re.compile(r"(?:.*\.)?github(?:usercontent)?\.com"),
        re.compile(r"(?:(?:codeload\.)?github\.com|api\.github\.com/repos|raw\.githubusercontent\.com)/([^/]+/[^/]+)"),
        (r"(?<![\w.-])", r"(?![\w-])"),
    ),
    (re.compile(r"(?:.*\.)?zenodo\.org"), re.compile(r"zenodo\.org/(?:api/)?records?/(\d+)"), (r"(?<!\d)", r"(?!\d)")),
)
# Where an address says of what it is; by numbers of repositories, GraphQL or buckets it does not.
_PLAIN = re.compile(
    r"api\.github\.com(/(repos|search|users|orgs|rate_limit)(/.*)?)?|(?!api\.).*github(usercontent)?\.com(/.*)?"
    r"|zenodo\.org(/(records?|search|doi|communities|api/(records|communities))(/.*)?)?"
)


def decoded(text: str) -> str:
    """Lower case without percent signs, up to three levels of them."""
    for _ in range(3):
        text = unquote(text)
    return text.lower()


def is_named(homes: Iterable[str], host: str, path: str) -> bool:
    """True when a request holds the name of a home (``host/path``) of the same site, in any spelling."""
    site = next((site for site in _SITES if site[0].fullmatch(host.lower().removesuffix("."))), None)
    if site is None:
        return False
    _, names, (before, behind) = site
    said = _texts(path)
    found = {match[1].removesuffix(".git") for home in homes if (match := names.match(home))}
    return any(re.search(before + re.escape(name) + behind, text) for name in found for text in said)


def opaque(url: str) -> str | None:
    """Why an address (``host/path``, as rules compare them) of one of the sites is refused: it hides what it is of."""
    site = any(hosts.fullmatch(url.partition("/")[0]) for hosts, *_ in _SITES)
    if not site or _PLAIN.fullmatch(url):
        return None
    return f"{url[:120]} does not say which repository or record it is of; ask for that by its name."


def _texts(path: str) -> tuple[str, ...]:
    """Path and query with segments as they stand, and with dot segments resolved."""
    plain = decoded(path)
    segments = [part for part in re.split(r"[/\\]+", plain) if part not in ("", ".")]
    kept: list[str] = []
    for part in segments:
        kept = kept[:-1] if part == ".." else [*kept, part]
    return "/".join(segments), "/".join(kept)
