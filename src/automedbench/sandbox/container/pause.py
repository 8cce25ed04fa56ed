"""Time in which code calls wait for cards that runs share: it is none of theirs.

Driver and supervisor measure it with the same clock. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import threading
import time


class Pause:
    """A clock that stands still while a process waits for a card and a call is going on; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits = self._in_call = False
        self._since: float | None = None
        self._seconds = 0.0

    def note_waits(self, waits: bool) -> None:
        """A process of the run waits for a card, or none does any more."""
        with self._lock:
            self._waits = waits
            self._switch()

    def note_call(self, in_call: bool) -> None:
        """A call begins or has ended."""
        with self._lock:
            self._in_call = in_call
            self._switch()

    @property
    def seconds(self) -> float:
        """Seconds for which it stood still so far."""
        with self._lock:
            return self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    def clock(self) -> float:
        """Monotonic seconds without those."""
        with self._lock:
            return (time.monotonic() if self._since is None else self._since) - self._seconds

    def _switch(self) -> None:
        now = time.monotonic()
        if self._since is not None:
            self._seconds += now - self._since
        self._since = now if self._waits and self._in_call else None
