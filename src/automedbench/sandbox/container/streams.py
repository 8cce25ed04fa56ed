"""Streams of a program, taken by the supervisor: head and tail in memory, more of it in a log file, the rest counted.

Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import errno
import os
import time
from base64 import b64encode
from dataclasses import dataclass
from typing import IO, Any

HEAD_BYTES = 2 * 1024  # docs/specification.md, 8.4
TAIL_BYTES = 8 * 1024
LOG_BYTES = 10 * 1024 * 1024
TOTAL_LOG_BYTES = 1024**3
"""All logs of a run together."""
BLOCK = 256 * 1024
LATE_PAUSE = 0.05
"""Seconds between two looks at a stream whose call is over: background processes are not read faster than this."""


@dataclass
class Room:
    """Bytes that logs of a folder may still take."""

    left: int = TOTAL_LOG_BYTES

    @classmethod
    def beside(cls, log: str) -> Room:
        """Bytes that the other files of a log's folder leave."""
        with os.scandir(os.path.dirname(log)) as files:
            return cls(TOTAL_LOG_BYTES - sum(each.stat().st_size for each in files))


class Stream:
    """Takes a pipe in blocks and never holds more than head, tail and one block."""

    def __init__(self, pipe: int, log: str, room: Room) -> None:
        """Raises OSError when the log cannot be written."""
        os.set_blocking(pipe, False)
        self.pipe, self.open, self.late_at = pipe, True, 0.0
        self.total = self.logged = 0
        self.error = ""
        self._head = self._tail = b""
        self._room = room
        self._log: IO[bytes] = open(log, "wb", buffering=0)  # noqa: SIM115 - closed by close()

    def read(self) -> bool:
        """Take what there is, at most one block; false when there is nothing now, or no more."""
        if not self.open:
            return False
        try:
            block = os.read(self.pipe, BLOCK)
        except BlockingIOError:
            return False
        except OSError:
            block = b""
        if block:
            self._feed(block)
        else:
            self.close()
        return bool(block)

    def read_late(self) -> None:
        """Take one block now and then."""
        now = time.monotonic()
        if now >= self.late_at:
            self.late_at = now + LATE_PAUSE
            self.read()

    def close(self) -> None:
        """Close pipe and log, which gets a last line when it does not hold everything; may be called twice."""
        if not self.open:
            return
        self.open = False
        os.close(self.pipe)
        if self.total > self.logged:
            self._write(f"\n[... {self.total - self.logged} bytes not logged ...]\n".encode())
        self._log.close()

    def summary(self) -> dict[str, Any]:
        """Head, tail and length so far, as JSON."""
        return {
            "head": b64encode(self._head).decode(),
            "tail": b64encode(self._tail).decode(),
            "total": self.total,
            "error": self.error,
        }

    def _feed(self, block: bytes) -> None:
        room = min(LOG_BYTES - self.logged, self._room.left)
        if room > 0 and self.total == self.logged:
            self._write(block[:room])
            self.logged += len(block[:room])
            self._room.left -= len(block[:room])
        self.total += len(block)
        missing = HEAD_BYTES - len(self._head)
        self._head += block[:missing] if missing > 0 else b""
        self._tail = (self._tail + block[max(missing, 0) :][-TAIL_BYTES:])[-TAIL_BYTES:]

    def _write(self, data: bytes) -> None:
        try:
            self._log.write(data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # the agent's doing, or met by the journal's next line
                self._room.left = 0
            else:
                self.error = self.error or f"{error.strerror}"
