"""Transfer: one file over HTTP, that continues where it was cut off, also after the process was killed.

A download lies beside its target as ``<target>.part`` with a note of its version (RFC 9110: strong ETag, else
Last-Modified). The next attempt asks for the rest with Range and If-Range; an answer with the whole file (200) or with
another version of it begins anew, and so does a file whose server names no version.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from automedbench.base.endpoint.faults import parse_retry_after
from automedbench.base.errors import InfrastructureError, MissingDataError

TRIES = 5
CONNECT_S, READ_S = 20.0, 30.0
LONGEST_PAUSE_S = 60.0
BLOCK = 256 * 1024
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_MEANS = {404: "not found; moved or withdrawn?", 410: "withdrawn", 429: "rate limit exceeded"}
_REFUSED = {
    "login": {
        401: "the credentials are wrong",
        403: "access refused; are the terms accepted with that account?",
    },
    "mirror": dict.fromkeys((401, 403), "the mirror refuses; look at fetch.mirrors"),
    "anonymous": {
        401: "the host wants a login, and the card knows of none",
        403: "the host refuses: a blocked network, a file that was moved, or too many requests",
    },
}
_HUB_SAYS = {
    "GatedRepo": "gated: the terms must be accepted, and HF_TOKEN be of that account",
    "RevisionNotFound": "the revision of the card no longer exists",
    "RepoNotFound": "not there, or only for those who are let in",
}
"""What the Hugging Face hub tells by its X-Error-Code."""


class Stopped(Exception):
    """All downloads were asked to end."""


class SourceUnreachable(MissingDataError):
    """The host gives nothing now: no network, no credentials. Other files of the source would fail alike."""


class ContentMismatch(InfrastructureError):
    """Content that does not match the card: changed, damaged or forged. Another source may be right."""


class _Again(Exception):
    """This attempt failed, another may not; ``after``: seconds that the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        self.after = after
        super().__init__(reason)


@dataclass(frozen=True)
class Request:
    """Request for one file."""

    url: str
    name: str
    """For messages; no query, no credentials."""
    authorization: str | None = None
    size: int | None = None
    """As published."""
    mirrored: bool = False
    """From a mirror, which gets no credentials."""


@dataclass
class DownloadProgress:
    """State that all downloads of a data set share: bytes so far, the wish to stop, patience."""

    patience_s: float = 1.0
    stop: threading.Event = field(default_factory=threading.Event)
    done: int = 0
    """Bytes so far."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self, count: int) -> None:
        """Note bytes that were written (or, below zero, thrown away); raises Stopped when asked to stop."""
        with self._lock:
            self.done += count
        if self.stop.is_set():
            raise Stopped

    def pause(self, failures: int, retry_after_s: float | None) -> None:
        """Wait before another attempt: as the host asks, else longer with each failure; raises Stopped."""
        seconds = self.patience_s * 2 ** max(0, failures - 1) if retry_after_s is None else retry_after_s
        if self.stop.wait(min(seconds, LONGEST_PAUSE_S)):
            raise Stopped


def download(request: Request, target: Path, watch: DownloadProgress) -> bool:
    """Get one file, from where an earlier attempt ended; returns whether part of it was there before.

    Raises MissingDataError when the host does not give it, ContentMismatch when its size is not the published one,
    InfrastructureError when the disk is full.
    """
    part = target.with_name(f"{target.name}.part")
    best = begun = _size(part)
    failures = 0
    watch.advance(begun)
    while True:
        try:
            _attempt(request, part, watch)
            break
        except _Again as error:
            failures = 0 if _size(part) > best else failures + 1
            best = max(best, _size(part))
            if failures >= TRIES:
                raise SourceUnreachable(f"{request.name}: {error}, {TRIES} times in a row") from error
            watch.pause(failures, error.after)
        except OSError as error:
            raise write_error(error, part.parent) from error
    os.replace(part, target)
    _note_of(part).unlink(missing_ok=True)
    return begun > 0


def _attempt(request: Request, part: Path, watch: DownloadProgress) -> None:
    """Ask once, for what is not there yet, and write what comes; raises _Again where another attempt may help."""
    import requests

    version = _version_of(part)
    with open(part, "ab") as stream:
        sink = _Sink(stream, watch)
        if not version:
            sink.restart()
        try:
            with send_request(request, _headers(version, sink.size)) as answer:
                total = _look_at(answer, request, sink, version, part)
                for block in answer.iter_content(BLOCK):
                    sink.write(block)
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise _Again(describe_error(error)) from None
        except requests.exceptions.ContentDecodingError:
            raise _Again("damaged on the way") from None
        except requests.RequestException as error:
            raise MissingDataError(f"{request.name}: {type(error).__name__}") from None
        if total is not None and sink.size != total:
            raise _Again(f"expected {total} bytes, the connection ended after {sink.size}")


def look_up(request: Request, watch: DownloadProgress, tries: int = 2) -> tuple[int | None, Mapping[str, str]]:
    """Bytes of a file, None where its host does not tell, and the headers: of its first byte, which is all that comes.

    Raises MissingDataError when the host does not give it, ContentMismatch when its size is not the published one.
    """
    import requests

    headers = _headers("*", 0) | {"Range": "bytes=0-0"}
    for attempt in range(1, tries + 1):
        try:
            with send_request(request, headers) as answer:
                return _read_size(answer, request), answer.headers
        except requests.RequestException as error:
            failure = _Again(describe_error(error))
        except _Again as error:
            failure = error
        if attempt < tries:
            watch.pause(attempt, failure.after and min(failure.after, 10.0))
    raise SourceUnreachable(f"{request.name}: {failure}")


def _read_size(answer: Any, request: Request) -> int | None:
    if answer.status_code not in (200, 206, 416):
        raise _refusal(answer, request)
    if answer.headers.get("Content-Type", "").startswith("text/html") and not request.name.endswith((".html", ".htm")):
        raise MissingDataError(f"{request.name}: expected the file, found a web page (a login, or a licence to accept)")
    return _check_size(total_length(answer), request)


def send_request(request: Request, headers: Mapping[str, str], method: str = "GET") -> Any:
    """Send a request and return the response, its body unread; follows redirects. Raises as requests does."""
    import requests

    return requests.request(
        method,
        request.url,
        headers=headers,
        auth=_login(request.authorization),
        timeout=(CONNECT_S, READ_S),
        # A server on this machine is asked directly, past any proxy of the environment.
        proxies={"no_proxy": "127.0.0.1,localhost,::1"} if _local(request.url) else None,
        stream=True,
    )


class _Sink:
    """The part of a file that is there."""

    def __init__(self, stream: IO[bytes], watch: DownloadProgress) -> None:
        self._stream, self._watch = stream, watch
        self.size = stream.seek(0, os.SEEK_END)

    def write(self, block: bytes) -> None:
        """Append, so that a kill loses no more than a block; raises Stopped when asked to."""
        self._stream.write(block)
        self._stream.flush()
        self.size += len(block)
        self._watch.advance(len(block))

    def restart(self) -> None:
        """Throw away what is there."""
        self._watch.advance(-self.size)
        self._stream.truncate(0)
        self.size = 0


def _login(authorization: str | None) -> Callable[[Any], Any]:
    """Sets the header of the one request it is made for.

    requests takes the header off when it is redirected to another host, and asks .netrc only without such an object.
    """

    def add_login(prepared: Any) -> Any:
        if authorization is not None:
            prepared.headers["Authorization"] = authorization
        return prepared

    return add_login


# --- what the server says -------------------------------------------------------------------------------------


def _headers(version: str, offset: int) -> dict[str, str]:
    rest = {"Range": f"bytes={offset}-", "If-Range": version} if offset else {}
    return {"Accept-Encoding": "identity", "User-Agent": "automedbench", **rest}


def _look_at(answer: Any, request: Request, sink: _Sink, version: str, part: Path) -> int | None:
    """Length of the whole file as far as the server tells, before the body is written; raises what stands against."""
    if answer.status_code == 416 or (answer.status_code == 206 and not _continues(answer, sink.size, version)):
        sink.restart()
        raise _Again("the rest of an earlier download could not be had, or the file changed")
    if answer.status_code not in (200, 206):
        raise _refusal(answer, request)
    if answer.raw.headers.get("Content-Encoding") and re.search(r"\.t?gz$", request.name):
        del answer.raw.headers["Content-Encoding"]  # the file itself is the gzip, so it is kept as it is
    if answer.status_code == 200:
        sink.restart()
        _note_of(part).write_text(_strong(answer) or answer.headers.get("Last-Modified", ""))
    total = _check_size(total_length(answer), request)
    if total is not None:
        check_space(part.parent, total - sink.size, request.name)
    return total


def _check_size(total: int | None, request: Request) -> int | None:
    """The length of a file; raises ContentMismatch where another one is published."""
    if request.size is not None and total is not None and total != request.size:
        raise ContentMismatch(
            f"{request.name}: expected {request.size} bytes as the card says, found {total}.\n"
            "The file was changed at its source; nothing was installed."
        )
    return total


def _continues(answer: Any, offset: int, version: str) -> bool:
    """Return whether the response continues the stored version, also for servers that ignore If-Range."""
    begin = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return begin is not None and int(begin[1]) == offset and _strong(answer) in ("", version)


def _strong(answer: Any) -> str:
    """The ETag, empty where there is none or a weak one."""
    tag: str = answer.headers.get("ETag", "")
    return "" if tag.startswith("W/") else tag


def total_length(answer: Any) -> int | None:
    """Length of the whole file, None where the server does not tell."""
    found = re.search(r"/(\d+)$", answer.headers.get("Content-Range", ""))
    if found:
        return int(found[1])
    length = answer.headers.get("Content-Length", "")
    plain = answer.status_code == 200 and not answer.raw.headers.get("Content-Encoding")
    return int(length) if plain and length.isdecimal() else None


def _refusal(answer: Any, request: Request) -> Exception:
    status = answer.status_code
    if status in AGAIN:
        return _Again(f"HTTP {status} ({describe_status(status)})", parse_retry_after(answer.headers))
    asked = "mirror" if request.mirrored else "anonymous" if request.authorization is None else "login"
    means = _HUB_SAYS.get(answer.headers.get("X-Error-Code", "")) or _REFUSED[asked].get(status)
    message = f"{request.name}: expected the file, found HTTP {status} ({means or describe_status(status)})"
    return SourceUnreachable(message) if status in (401, 403, 407) else MissingDataError(message)


def describe_status(status: int) -> str:
    """A status in words."""
    return _MEANS.get(status) or http.client.responses.get(status, "unknown status")


def describe_error(error: Exception) -> str:
    """Reason of a failed connection, in words."""
    text = str(error)
    for piece, reason in (
        ("NameResolution", "the host's name is not known"),
        ("refused", "the connection was refused"),
        ("timed out", "no answer in time"),
        ("CERTIFICATE", "the host's certificate is not trusted"),
        ("IncompleteRead", "the connection was cut"),
    ):
        if piece in text:
            return reason
    return "the connection failed"


def _local(url: str) -> bool:
    return re.match(r"https?://(127\.0\.0\.1|localhost|\[::1\])[:/]", url) is not None


# --- on disk --------------------------------------------------------------------------------------------------


def _note_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def _version_of(part: Path) -> str:
    """Version of what is there; empty when nothing tells which one it is."""
    note = _note_of(part)
    return note.read_text() if note.is_file() else ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def digests(path: Path, *names: str) -> dict[str, str]:
    """Hexadecimal digests of a file by several algorithms, read once."""
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in names}
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            for value in hashes.values():
                value.update(block)
    return {name: value.hexdigest() for name, value in hashes.items()}


KEPT_FREE = 100 * 2**20
"""Bytes of the disk that are never filled."""


class NoSpace(InfrastructureError):
    """The disk is full, or would be."""


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written below the folder."""
    return shutil.disk_usage(folder).free


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise InfrastructureError when ``needed`` bytes do not fit on the disk of the folder."""
    free = free_bytes(folder)
    if needed + KEPT_FREE > free:
        raise no_space(folder, f"{what} needs about {_gb(needed)}, {_gb(free)} are free")


def no_space(folder: Path, what: str) -> NoSpace:
    """The error for a disk that is full, or will be."""
    return NoSpace(
        f"Not enough space in {folder}: {what}.\n"
        "What is downloaded so far is kept. Free space, or set data.raw to another disk; then run the same again."
    )


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def write_error(error: OSError, folder: Path) -> InfrastructureError:
    """The error for a file that could not be written below the folder."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return no_space(folder, reason)
    return InfrastructureError(
        f"Cannot write below {folder}: {reason}.\nWhat is downloaded so far is kept. Fix that, then run the same again."
    )
