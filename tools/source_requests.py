"""Asking: what a host says of a file or of its files, without getting one: headers, a first byte, a listing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from automedbench.base.endpoint.faults import parse_retry_after
from automedbench.datasets.download import transfer
from automedbench.datasets.download.access import mask_url

TRIES = 3
LISTING_BYTES, LISTING_S = 64 * 2**20, 120.0
"""A listing may be as long, and take as long."""
PERMANENT = frozenset({301, 308})
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "automedbench"}


class NoAnswer(Exception):
    """A host gave none, several times in a row; the message is the reason."""


@dataclass(frozen=True)
class HttpAnswer:
    """Answer of a host."""

    status: int
    moved: str | None = None
    """New address, where it has moved for good."""
    size: int | None = None
    """Bytes of the whole file."""
    page: bool = False
    """A web page."""
    code: str = ""
    """The hub's own word for a refusal."""
    body: bytes = b""
    """Of a listing."""


def ask(request: transfer.Request, watch: transfer.DownloadProgress, *, listing: bool = False) -> HttpAnswer:
    """Headers of a file or, with ``listing``, all that its address gives.

    A host that is busy, broken or silent is asked again, as ``Retry-After`` says. Raises NoAnswer with the reason.
    """
    import requests

    told, after = "", None
    for attempt in range(TRIES):
        if attempt:
            watch.pause(attempt, after)
        try:
            answer, after = _listing(request) if listing else _headers(request)
        except requests.RequestException as error:
            told, after = transfer.describe_error(error), None
            continue
        if answer.status not in transfer.AGAIN:
            return answer
        told = f"HTTP {answer.status} ({transfer.describe_status(answer.status)})"
    raise NoAnswer(told)


def _headers(request: transfer.Request) -> tuple[HttpAnswer, float | None]:
    """By HEAD; by a GET of the first byte where a host refuses HEAD or tells no size."""
    with transfer.send_request(request, _HEADERS, "HEAD") as answer:
        told = _read(answer)
        if (told.status < 400 and told.size) or told.status in (401, 407, *transfer.AGAIN):
            return told, _pause(answer)
    with transfer.send_request(request, _HEADERS | {"Range": "bytes=0-0"}) as answer:
        return _read(answer), _pause(answer)


def _listing(request: transfer.Request) -> tuple[HttpAnswer, float | None]:
    import requests

    body, until = bytearray(), time.monotonic() + LISTING_S
    with transfer.send_request(request, _HEADERS) as answer:
        for block in answer.iter_content(transfer.BLOCK):
            body += block
            if len(body) > LISTING_BYTES or time.monotonic() > until:
                raise requests.Timeout("timed out")
        return _read(answer, bytes(body)), _pause(answer)


def _read(answer: Any, body: bytes = b"") -> HttpAnswer:
    head = answer.headers
    return HttpAnswer(
        status=answer.status_code,
        moved=_moved(answer),
        size=transfer.total_length(answer),
        page=head.get("Content-Type", "").startswith("text/html"),
        code=head.get("X-Error-Code", ""),
        body=body,
    )


def _moved(answer: Any) -> str | None:
    """Target of permanent redirects; a store behind a temporary one is no move."""
    to = None
    for hop in answer.history:
        if hop.status_code not in PERMANENT:
            break
        to = mask_url(urljoin(hop.url, hop.headers.get("Location", "")))
    return to


def _pause(answer: Any) -> float | None:
    return parse_retry_after(answer.headers)
