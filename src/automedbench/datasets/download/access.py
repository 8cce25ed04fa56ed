"""Access to hosts: mirrors, credentials, and what of a URL may be shown."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from automedbench.base.cards import Source
from automedbench.base.errors import ConfigError, MissingDataError

HUB = "huggingface.co"
KAGGLE = "www.kaggle.com"
PHYSIONET = "physionet.org"
SYNAPSE = "repo-prod.prod.sagebase.org"
# The one host that a credential is for. Others go to the host of their source.
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HOMES = {
    "HF_TOKEN": HUB,
    "KAGGLE_USERNAME": KAGGLE,
    "PHYSIONET_USERNAME": PHYSIONET,
    "SYNAPSE_AUTH_TOKEN": SYNAPSE,
    "ZENODO_TOKEN": "zenodo.org",
}


@dataclass(frozen=True)
class Access:
    """Access to data sets on this machine: mirrors and logins."""

    mirrors: Mapping[str, str] = field(default_factory=dict)
    """Host → base URL that stands in for ``https://<host>``."""
    stand_in: bool = False
    """The mirrors offer made-up data: published sizes, checksums and commits do not apply."""
    offline: bool = False
    """Only what is there already."""
    workers: int = 4
    """Files that are downloaded at a time."""
    patience_s: float = 1.0
    """First pause before another attempt; it doubles each time."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def mirror(self, host: str) -> str | None:
        """Base URL that stands in for a host, or None."""
        base = self.mirrors.get(host.lower())
        return None if base is None else base.rstrip("/")

    def url(self, url: str) -> str:
        """The URL that is really asked."""
        parts = urlsplit(url)
        base = self.mirror(parts.netloc)
        return url if base is None else base + urlunsplit(("", "", parts.path, parts.query, ""))

    def authorization(self, source: Source, host: str) -> str | None:
        """Value of the header for a host, from the variables that the source names: one is a token, two are a login.

        None where the host is not theirs or a mirror stands in for it. Raises MissingDataError naming the variables
        that are not set.
        """
        if self.mirror(host) is not None:
            return None
        token = self.environment.get("HF_TOKEN", "").strip()
        if host == HUB and token:  # also where the card needs none: the hub lets its users ask more often
            return f"Bearer {token}"
        home = _HOMES.get(source.credentials[0], urlsplit(source.where).netloc) if source.credentials else None
        if home is None or home.lower() != host.lower():
            return None
        values = self.credentials(source)
        if len(values) == 1:
            return f"Bearer {values[0]}"
        return "Basic " + base64.b64encode(":".join(values).encode()).decode()

    def credentials(self, source: Source) -> list[str]:
        """Values of the variables that a source names; raises MissingDataError naming those that are not set."""
        absent = [name for name in source.credentials if not self.environment.get(name, "").strip()]
        if absent:
            verb = "is" if len(absent) == 1 else "are"
            raise MissingDataError(f"{describe(source)}: {' and '.join(absent)} {verb} not set in the environment")
        return [self.environment[name].strip() for name in source.credentials]


def pinned_commit(source: Source) -> str | None:
    """The commit that a source is pinned to; None for a branch, a tag, or a kind without commits."""
    return source.revision if source.revision and _COMMIT.fullmatch(source.revision) else None


def describe(source: Source) -> str:
    """Kind and place of a source as the receipt tells it, without credentials in a URL."""
    if source.kind == "path" or not urlsplit(source.where).netloc:
        return f"{source.kind} {source.where}"
    return f"{source.kind} {mask_url(source.where)}"


def mask_url(url: str) -> str:
    """A URL without user, password, query and fragment, any of which may hold a secret."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def read_mirrors(given: Mapping[str, str]) -> dict[str, str]:
    """Host in lower case → URL; raises ConfigError for what is no host and no URL."""
    problems = []
    for host, url in given.items():
        parts = urlsplit(url)
        if not host or "/" in host or parts.scheme not in ("http", "https") or not parts.netloc:
            problems.append(
                f"fetch.mirrors: '{host}: {url}': expected host: URL, such as zenodo.org: http://files.here"
            )
        elif "@" in parts.netloc or parts.query:
            problems.append(f"fetch.mirrors: the URL for {host} must hold no password and no query")
    if problems:
        raise ConfigError(problems)
    return {host.lower(): url for host, url in given.items()}
