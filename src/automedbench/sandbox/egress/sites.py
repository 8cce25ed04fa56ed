"""Sites that serve models and data sets alike, GitHub and Zenodo: hosts, and which addresses name a home there.

A repository or a record is served by many hosts under many paths; all that are let through hold its name, however they
are spelt: codeload, api, raw, LFS (``owner/name``), pages, files, DOIs, OAI (a record's number).
"""

from __future__ import annotations

import re
import unicodedata
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
        (r"(?<![\w-])", r"(?![\w-])"),
    ),
    (
        re.compile(r"(?:.*\.)?zenodo\.org"),
        re.compile(r"zenodo\.org/(?:api/)?records?/(\d+)"),
        (r"(?<!\d)0*", r"(?!\d)"),
    ),
)
# Where an address says of what it is; by numbers of repositories, GraphQL, buckets or pictures of any site it does not.
_PLAIN = re.compile(
    r"api\.github\.com(/(repos|search|users|orgs|rate_limit)(/.*)?)?|(?!api\.|camo\.).*github(usercontent)?\.com(/.*)?"
    r"|zenodo\.org(/(records?|search|doi|communities|api/(records|communities))(/.*)?)?"
)


def decode(text: str) -> str:
    """Lower case without percent signs, up to three levels of them; letters that look alike are one."""
    for _ in range(3):
        text = unquote(text)
    return unicodedata.normalize("NFKC", text).casefold()


def resolve_dots(segments: Iterable[str]) -> list[str]:
    """Segments of a path without empty ones, and with dots taken as the way up that they mean."""
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    return kept


def is_named(homes: Iterable[str], host: str, path: str) -> bool:
    """True when a request holds the name of a home (``host/path``) of the same site, in any spelling."""
    site = next((site for site in _SITES if site[0].fullmatch(host.lower().removesuffix("."))), None)
    if site is None:
        return False
    _, names, (before, behind) = site
    texts = _spell_path(path)
    found = {match[1].removesuffix(".git") for home in homes if (match := names.match(home))}
    # The cheap question first: a request must not cost what a run could stop the proxy with.
    candidates = ((name, text) for name in found for text in texts if name in text)
    return any(re.search(before + re.escape(name) + behind, text) for name, text in candidates)


def is_copy(homes: Iterable[str], host: str, path: str) -> bool:
    """True when a request is for a repository of GitHub's that has a home's name and another owner, as forks have."""
    sites, names, _ = _SITES[0]
    if not sites.fullmatch(host.lower().removesuffix(".")):
        return False
    found = {match[1].removesuffix(".git").partition("/")[2] for home in homes if (match := names.match(home))}
    spelt = "|".join(map(re.escape, found)) or "(?!)"
    place = re.compile(rf"(?:(?:repos|media|wiki)/)?[^/]+/(?:{spelt})(?:\.git|\.wiki)*(?![^/?&])")
    return any(place.match(text) for text in _spell_path(path))


def find_opaque(url: str) -> str | None:
    """Reason to refuse an address (``host/path``, as rules compare them) that hides its content."""
    site = any(hosts.fullmatch(url.partition("/")[0]) for hosts, *_ in _SITES)
    if not site or _PLAIN.fullmatch(url):
        return None
    return f"{url[:120]} does not say which repository or record it is of; ask for that by its name."


def _spell_path(path: str) -> tuple[str, ...]:
    """Path and query with segments as they stand, and with dot segments resolved; ``owner:name`` is ``owner/name``."""
    plain = decode(path).replace(":", "/")
    segments = [part for part in re.split(r"[/\\]+", plain) if part not in ("", ".")]
    return "/".join(segments), "/".join(resolve_dots(segments))
