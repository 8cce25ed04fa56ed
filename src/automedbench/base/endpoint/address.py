"""Paths of a protocol below a base URL, and the headers that hold the key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

ProtocolName = Literal["chat", "responses", "messages", "gemini"]

ANTHROPIC_VERSION = "2023-06-01"
_VERSION = re.compile(r"/v\d+\w*$")


def api_root(base_url: str, protocol: ProtocolName) -> str:
    """The URL that a protocol's paths are put behind.

    ``chat`` takes the base URL as it is written. The others add the version where it is missing: ``/v1`` (Responses:
    only behind a host without any path), ``/v1beta`` for Gemini.
    """
    root = base_url.rstrip("/")
    if protocol == "chat" or _VERSION.search(root) or (protocol == "responses" and urlsplit(root).path):
        return root
    return f"{root}/{'v1beta' if protocol == 'gemini' else 'v1'}"


def credentials(protocol: ProtocolName, key: str) -> Mapping[str, str]:
    """The headers that show the key."""
    if protocol == "messages":
        return {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION}
    return {"x-goog-api-key": key} if protocol == "gemini" else {"Authorization": f"Bearer {key}"}
