"""Package index that this machine's pip uses, so that pip works inside as it does outside.

No host name stands here: pip knows them.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True)
class PackageIndex:
    """``hosts`` serve the index and its files; ``places`` (host:port) are trusted with any address and port."""

    url: str | None
    """To be set inside; None: pip's own default."""
    hosts: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


NO_INDEX = PackageIndex(None)


def read_index(python: str = sys.executable) -> PackageIndex:
    """The index of the configuration that pip itself shows; NO_INDEX without pip."""
    try:
        done = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return default_index()
    configured = configured_url(done.stdout)
    return default_index() if configured is None else index_at(configured)


def configured_url(listing: str) -> str | None:
    """The index of ``pip config list``; a variable of the environment wins over a file, as in pip."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        scope, _, name = key.partition(".")
        if name.strip(".") == "index-url":
            found[scope] = str(ast.literal_eval(value)) if value[:1] in "'\"" else value
    return next((found[scope] for scope in (":env:", "install", "download", "global") if scope in found), None)


def index_at(url: str) -> PackageIndex:
    """An index at a URL that the operator configured: trusted, without its user name and password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return NO_INDEX
    port = parts.port or (443 if parts.scheme == "https" else 80)
    place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    shown = urlunsplit((parts.scheme, place, parts.path, "", ""))
    return PackageIndex(shown, (parts.hostname,), (f"{parts.hostname}:{port}",))


def default_index() -> PackageIndex:
    """pip's built-in index and the host of its files; NO_INDEX without pip."""
    try:
        known = importlib.import_module("pip._internal.models.index").PyPI
        return PackageIndex(None, (urlsplit(known.url).hostname, known.file_storage_domain))
    except (ImportError, AttributeError):
        return NO_INDEX
