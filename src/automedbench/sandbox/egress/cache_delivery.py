"""Delivery from the cache: what one process fetches, all others pass on while it comes; hashes and rules as ever.

A file that equals a held-out one is refused before its first byte, by the hash under which it lies. The end of a file
that is still coming waits until its hash is known to be the published one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import IO

import h11

from automedbench.sandbox.egress.cache import KEPT_FREE, MAX_FILLS, Cache, Stored
from automedbench.sandbox.egress.dial import IDLE_S, Closed, HttpConnection, UpstreamUnreachable
from automedbench.sandbox.egress.exchange import (
    HELD_BYTES,
    ProxyExchange,
    UpstreamAnswer,
    first_header,
    refuse_labels,
)
from automedbench.sandbox.egress.rules import LISTED, EgressRefused, Ruling

PIECE_BYTES = 8 * 1024**2
BATCH_BYTES, BATCH_S = 2 * 1024**2, 0.2
POLL_S = 0.02

ALLOWED = Ruling(True, "model")
ABSENT = Ruling(True, "not_cached")
OTHER_CONTENT = Ruling(
    False, "other_content", "The file differs from its published checksum; it was cut and is not kept."
)

Source = Callable[[int], Awaitable[UpstreamAnswer]]
"""Asks for a file from a byte on."""


class CachedContentChanged(Exception):
    """Digest mismatch between downloaded and published content; carries the SHA-256 of the download."""


async def answer_through_cache(exchange: ProxyExchange, key: str, ask: Callable[[], Awaitable[Ruling]]) -> Ruling:
    """Answer a GET or HEAD from the cache where that is fresh or all there is, else by ``ask``.

    Raises EgressRefused, UpstreamUnreachable, Closed.
    """
    cache = exchange.cache
    if cache is None:
        return await ask()
    stored = cache.find(key)
    if stored is not None and (cache.alone or stored.is_fresh):
        return await deliver(exchange, stored)
    if cache.alone:
        await exchange.send_text(404, "[egress] Not in this campaign's cache, which is all that can be reached.")
        return ABSENT
    try:
        return await ask()
    except UpstreamUnreachable:
        if stored is None or exchange.entry.status is not None:
            raise
        return await deliver(exchange, stored)


async def prefer_stored(exchange: ProxyExchange, url: str, ask: Callable[[], Awaitable[Ruling]]) -> Ruling:
    """Answer a GET or HEAD with what `prepare` stored under a plain address, else by ``ask``."""
    known = exchange.cache.find(url) if exchange.cache is not None and exchange.method in ("GET", "HEAD") else None
    return await (ask() if known is None else deliver(exchange, known))


async def deliver(exchange: ProxyExchange, stored: Stored, source: Source | None = None) -> Ruling:
    """Answer with a file that is there or, where there is a ``source``, coming; parts are given as asked for.

    Raises EgressRefused for content that is held out or not as published, UpstreamUnreachable and Closed.
    """
    entry, cache, wire = exchange.entry, exchange.cache, exchange.wire
    assert cache is not None
    if stored.sha256 in exchange.settings.hashes:
        entry.sha256 = stored.sha256
        raise refuse_labels(delivered=False)
    begin, end, status = requested_range(exchange, stored.size)
    head = {**stored.headers, "content-length": str(end - begin), "accept-ranges": "bytes"}
    head |= {"content-range": f"bytes {begin}-{end - 1}/{stored.size}"} if status == 206 else {}
    if exchange.method == "HEAD":
        begin = end
    file = _CachedFile(cache, stored, source)
    try:
        reached = await file.wait_beyond(begin) if begin < end else 0
        entry.status = status
        await exchange.send_head(status, _encode_headers(head))
        while begin < end:
            count = min(reached, end, begin + PIECE_BYTES) - begin
            exchange.outside.planted.pass_on(entry, count)
            await _pass_piece(wire, file.open(), begin, count)
            begin, entry.down = begin + count, entry.down + count
            reached = await file.wait_beyond(begin) if begin < end else 0
    except CachedContentChanged as error:
        entry.sha256 = str(error)
        known = entry.sha256 in exchange.settings.hashes
        raise (refuse_labels(delivered=entry.down > 0) if known else EgressRefused(OTHER_CONTENT)) from error
    finally:
        file.close()
    await wire.send(h11.EndOfMessage())
    return ALLOWED if entry.service == "hub" else LISTED


def _encode_headers(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def requested_range(exchange: ProxyExchange, size: int) -> tuple[int, int, int]:
    """First byte, end and status of the part that the client asks for; all of it when it asks oddly."""
    header = first_header(exchange.request.headers, b"range")
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header)
    if found is None or not any(found.groups()) or size == 0:
        return 0, size, 200
    begin, end = max(0, size - int(found[2] or 0)), size
    if found[1]:
        begin, end = int(found[1]), min(size, int(found[2] or size) + 1)
    return (begin, end, 206) if begin < end else (0, size, 200)


class _CachedFile:
    """A file of the cache, followed while this process or another fills it."""

    def __init__(self, cache: Cache, stored: Stored, source: Source | None) -> None:
        self._cache, self._stored, self._source = cache, stored, source
        self._filling: asyncio.Task[None] | None = None
        self._seen, self._since = -1, time.monotonic()
        self._file: IO[bytes] | None = None

    async def wait_beyond(self, place: int) -> int:
        """The end of what may be passed on, once that is beyond ``place``."""
        cache, name = self._cache, self._stored.name
        while not self._is_there():
            with contextlib.suppress(FileNotFoundError):
                size = cache.part(name).stat().st_size
                if size - HELD_BYTES > place:
                    return size - HELD_BYTES
                self._watch(size)
            await self._fill()
        return self._stored.size

    def _is_there(self) -> bool:
        """False also for a file that a crash of its machine has left with another length, which goes."""
        blob = self._cache.blob(self._stored.name)
        with contextlib.suppress(FileNotFoundError):
            if blob.stat().st_size == self._stored.size:
                return True
            blob.unlink()
        return False

    def open(self) -> IO[bytes]:
        """The file, open until ``close``; a part may have become whole since it was looked at.

        Raises Closed when it is not the one of before: a part that another run asked for with a wrong address goes once
        its hash is known, and what has been passed on of it must not be continued.
        """
        cache, name = self._cache, self._stored.name
        for path in (cache.blob(name), cache.part(name), cache.blob(name)):
            with contextlib.suppress(FileNotFoundError):
                self._file = self._file or open(path, "rb")  # noqa: SIM115 (close)
                if not os.path.samestat(os.fstat(self._file.fileno()), path.stat()):
                    raise Closed("the file in the cache was replaced while it came")
                return self._file
        raise Closed("the file has left the cache")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _watch(self, size: int) -> None:
        if size != self._seen:
            self._seen, self._since = size, time.monotonic()
        elif time.monotonic() - self._since > IDLE_S:
            raise Closed("the file in the cache does not grow")

    async def _fill(self) -> None:
        """Fill the file where no other process does, and wait for a moment."""
        if self._source is None:
            raise Closed("the file has left the cache")
        cache = self._cache
        free = self._filling is None and cache.fills < MAX_FILLS
        if free and (part := cache.claim(self._stored.name)) is not None:
            # It goes on when this client leaves, for those that follow it.
            cache.fills += 1
            self._filling = asyncio.create_task(fill(cache, part, self._stored, self._source))
            self._filling.add_done_callback(functools.partial(_end_fill, cache))
        if self._filling is None:
            await asyncio.sleep(POLL_S)
            return
        done, _ = await asyncio.wait({self._filling}, timeout=POLL_S)
        for task in done:
            self._filling = None
            task.result()


def _end_fill(cache: Cache, task: asyncio.Task[None]) -> None:
    cache.fills -= 1
    if not task.cancelled():
        task.exception()


async def fill(cache: Cache, part: int, stored: Stored, source: Source) -> None:
    """Fetch what is missing of a claimed part, and keep it when its hash is right; closes the descriptor.

    Raises CachedContentChanged, UpstreamUnreachable, Closed, and h11's errors; what came is then kept for the next one
    to go on with, but for a disk that is full.
    """
    name = stored.name
    with os.fdopen(part, "r+b", buffering=0) as stream:
        if cache.holds(name) == stored.size:
            cache.part(name).unlink(missing_ok=True)
            return
        digest = await asyncio.to_thread(hashlib.file_digest, stream, "sha256")
        if stream.tell() < stored.size:
            try:
                digest = await _fetch(stream, digest, stored.size, source)
            except OSError as error:
                cache.part(name).unlink(missing_ok=True)
                raise UpstreamUnreachable(f"the cache cannot take it ({error.strerror})") from error
        if (digest.hexdigest(), stream.tell()) != (stored.sha256, stored.size):
            cache.part(name).unlink(missing_ok=True)
            raise CachedContentChanged(digest.hexdigest())
        await asyncio.to_thread(cache.keep, name)


async def _fetch(stream: IO[bytes], digest: hashlib._Hash, size: int, source: Source) -> hashlib._Hash:
    answer = await source(done := stream.tell())
    status, wire = answer.head.status_code, answer.wire
    if done and status != 206:
        stream.truncate(0)
        done = stream.seek(0)
        digest = hashlib.sha256()
    pending, since = bytearray(), time.monotonic()
    try:
        if status not in (200, 206):
            raise UpstreamUnreachable(f"the file is not given (status {status})")
        while not isinstance(event := await wire.receive(), h11.EndOfMessage) and done <= size:
            if isinstance(event, h11.Data):
                done += len(event.data)
                pending += event.data
                if len(pending) >= BATCH_BYTES or time.monotonic() - since > BATCH_S:
                    block, pending, since = pending, bytearray(), time.monotonic()
                    await asyncio.to_thread(_append, stream, digest, block)
    finally:
        wire.close()
        await asyncio.to_thread(_append, stream, digest, pending)
    if done < size:
        raise Closed("the file ended early")
    return digest


def _append(stream: IO[bytes], digest: hashlib._Hash, block: bytearray) -> None:
    """Hash and write a block, both without Python's lock; raises OSError when the disk has little room left."""
    digest.update(block)
    left = memoryview(block)
    while left:
        left = left[stream.write(left) :]
    disk = os.fstatvfs(stream.fileno())
    if disk.f_bavail * disk.f_frsize < KEPT_FREE // 2:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def keep_small(
    exchange: ProxyExchange,
    key: str,
    answer: UpstreamAnswer,
    headers: dict[str, str],
    *,
    fixed: bool = False,
    oid: str = "",
    rewrite: Callable[[bytes], bytes] | None = None,
) -> Ruling:
    """Read an answer of status 200 whole, keep it, and give it on; few at a time, for they are held in memory.

    ``oid``: its published hash as git names content; ``rewrite`` makes of its body what is kept and given.
    Raises EgressRefused for content that is held out or not as published, UpstreamUnreachable and Closed.
    """
    cache = exchange.cache
    assert cache is not None
    try:
        async with cache.whole:
            body = await answer.small_body()
            body = rewrite(body) if rewrite is not None else body
            stored = Stored(_verify_small(exchange, body, oid), len(body), headers, fixed, time.time())
            kept = cache.has_room(stored.size) and await _keep(cache, key, stored, body)
            body = b"" if kept else body
    finally:
        answer.wire.close()
    if kept:
        return await deliver(exchange, stored)
    exchange.entry.status = 200
    head = {**stored.headers, "content-length": str(stored.size)}
    await exchange.send_whole(200, _encode_headers(head), body)
    exchange.entry.down = stored.size
    return ALLOWED if exchange.entry.service == "hub" else LISTED


def _verify_small(exchange: ProxyExchange, body: bytes, oid: str) -> str:
    """SHA-256 of a small answer; raises EgressRefused."""
    sha256 = hashlib.sha256(body).hexdigest()
    held_out = sha256 in exchange.settings.hashes
    if held_out or (oid and oid not in (git_blob_hash(body), hashlib.sha1(body).hexdigest())):
        exchange.entry.sha256 = sha256
        raise refuse_labels(delivered=False) if held_out else EgressRefused(OTHER_CONTENT)
    return sha256


async def _keep(cache: Cache, key: str, stored: Stored, body: bytes) -> bool:
    """False when the disk does not take it."""
    try:
        if cache.holds(stored.sha256) != stored.size:
            await asyncio.to_thread(cache.add, stored.sha256, body)
        cache.note(key, stored)
    except OSError:
        return False
    return True


def git_blob_hash(content: bytes) -> str:
    """SHA-1 under which git, and so the hub, knows a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


async def _pass_piece(wire: HttpConnection, file: IO[bytes], begin: int, count: int) -> None:
    # The bytes go from file to socket without us; h11 only counts them, by the length of what it is given.
    wire.http.send_with_data_passthrough(h11.Data(data=range(count)))  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(IDLE_S):
            sent = await loop.sendfile(wire.writer.transport, file, begin, count)
    except (OSError, RuntimeError, TimeoutError) as error:
        raise Closed(type(error).__name__) from error
    if sent != count:
        raise Closed("the file became shorter")
