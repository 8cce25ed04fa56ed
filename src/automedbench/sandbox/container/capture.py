"""Capture of an output stream, bounded: head and tail in memory, more of it in a log file, the rest counted."""

from __future__ import annotations

import codecs
from pathlib import Path

HEAD_BYTES = 2 * 1024  # docs/specification.md, 8.4
TAIL_BYTES = 8 * 1024
LOG_BYTES = 10 * 1024 * 1024
PREAMBLE_BYTES = 64 * 1024


class Capture:
    """Takes a stream in blocks and never holds more than head, tail and one block.

    With ``marker``, everything up to and including the marker is kept apart in ``preamble``: what a container
    runtime says before the agent's code starts. ``started`` tells whether the marker came.
    """

    def __init__(self, log: Path, marker: bytes = b"") -> None:
        self.preamble = b""
        self.started = not marker
        self.total = 0
        self._marker = marker
        self._head = b""
        self._tail = b""
        self._log = open(log, "wb")  # noqa: SIM115 - closed by close()

    def feed(self, block: bytes) -> None:
        """Take the next block of the stream."""
        if not self.started:
            block = self._after_marker(block)
        if not block:
            return
        room = LOG_BYTES - self.total
        if room > 0:
            self._log.write(block[:room])
        self.total += len(block)
        missing = HEAD_BYTES - len(self._head)
        self._head += block[:missing] if missing > 0 else b""
        self._tail = (self._tail + block[max(missing, 0) :][-TAIL_BYTES:])[-TAIL_BYTES:]

    def _after_marker(self, block: bytes) -> bytes:
        before, marker, after = (self.preamble + block).partition(self._marker)
        self.started = bool(marker)
        self.preamble = before[-PREAMBLE_BYTES:]
        return after

    def close(self) -> None:
        """Close the log file, with a last line when it does not hold everything."""
        if self.total > LOG_BYTES:
            self._log.write(f"\n[... {self.total - LOG_BYTES} bytes not logged ...]\n".encode())
        self._log.close()

    @property
    def awaits_marker(self) -> bool:
        """It was told to look for a marker, whether or not that has come."""
        return bool(self._marker)

    @property
    def truncated(self) -> bool:
        """Bytes are missing between head and tail."""
        return self.total > HEAD_BYTES + TAIL_BYTES

    def text(self) -> str:
        """Head and tail as text, with a note of what was removed between them."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        # Cutting through a character must not show as damage done by the agent.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        tail = _without_continuation(self._tail)
        removed = self.total - len(head.encode("utf-8", "replace")) - len(tail)
        removed = max(removed, self.total - HEAD_BYTES - TAIL_BYTES)
        return f"{head}\n[... {removed} bytes removed ...]\n{tail.decode('utf-8', 'replace')}"


def _without_continuation(data: bytes) -> bytes:
    """Drop the rest of a cut UTF-8 character at the start (at most three bytes)."""
    for index in range(min(4, len(data))):
        if data[index] & 0xC0 != 0x80:
            return data[index:]
    return data
