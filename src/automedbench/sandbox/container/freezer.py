"""Freezer of a container: all of its processes stand still while a request waits for its endpoint.

By the container's control group where it has one, else by SIGSTOP to everything below the supervisor, again and again
until nothing moves. A signal can be undone from inside (a timer that sends SIGCONT): a process that keeps moving is
killed. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import signal
import time
from collections import Counter

from automedbench.sandbox.container import tree
from automedbench.sandbox.container.cgroup import Group

SETTLE_SECONDS, ROUND_SECONDS = 0.25, 0.002
"""Within this time a tree stands still; a process that forks is stopped before it has forked twice."""
AGAIN_SECONDS = 0.5
"""Between two looks for what moves in a frozen container."""
MOST_ESCAPES = 3
"""Looks at which a stopped process may move before it is killed."""
STILL = frozenset("TtDZXx")
"""States (proc(5)) in which a process uses no processor; one in D stops when it comes back from its system call."""

_Process = tuple[int, int]
"""Process id and start: no two processes have both in common."""


class Freezer:
    """Freezes what lies below the process ``root``, or in ``group``."""

    def __init__(self, root: int, group: Group | None) -> None:
        self._root, self._group = root, group
        self._stopped = Counter[_Process]()
        """Looks at which each process that was stopped moved."""
        self._look_at = 0.0
        self.since: float | None = None
        """When it was frozen; None while it runs."""

    def freeze(self) -> None:
        """Let everything stand still; nothing happens when it does."""
        if self.since is not None:
            return
        self.since = time.monotonic()
        if self._group is not None and self._group.freeze(True):
            return
        end = self.since + SETTLE_SECONDS
        while self._stop_moving() and time.monotonic() < end:
            time.sleep(ROUND_SECONDS)
        self._look_at = time.monotonic() + AGAIN_SECONDS

    def keep(self, now: float) -> None:
        """Look from time to time for what moves in spite of SIGSTOP."""
        if self.since is None or not self._stopped or now < self._look_at:
            return
        moving = self._stop_moving()
        self._stopped.update(moving)
        tree.send([pid for pid, started in moving if self._stopped[pid, started] >= MOST_ESCAPES], signal.SIGKILL)
        self._look_at = time.monotonic() + AGAIN_SECONDS

    def thaw(self) -> float:
        """Let everything go on that the freezer stopped; seconds since it was frozen."""
        if self.since is None:
            return 0.0
        seconds = time.monotonic() - self.since
        if self._group is not None:
            self._group.freeze(False)
        known = {pid: tree.read_task(pid) for pid, _ in self._stopped}
        tree.send(
            [pid for pid, started in self._stopped if (task := known[pid]) and task.started == started], signal.SIGCONT
        )
        self._stopped.clear()
        self.since = None
        return seconds

    def _stop_moving(self) -> list[_Process]:
        """Stop what moves, and give it."""
        known = tree.tasks()
        below = [(pid, known[pid]) for pid in tree.below(self._root, known)]
        moving = [(pid, task.started) for pid, task in below if task.state not in STILL]
        tree.send([pid for pid, _ in moving], signal.SIGSTOP)
        for process in moving:
            self._stopped[process] += 0
        return moving
