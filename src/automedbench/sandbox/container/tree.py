"""Tree of processes, seen from outside through /proc: what a process has started, and sending signals to it.

Standard library only: the supervisor uses it, which imports nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple

from automedbench.sandbox.container.runner import reap

KILL_SECONDS = 5.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


class Task(NamedTuple):
    """A process as ``/proc/PID/stat`` reports it; ids are those of the reader's namespace, times are in ticks.

    ``cpu``: used by it and by those that it has waited for.
    """

    state: str
    parent: int
    session: int
    started: int
    cpu: int


def tasks() -> dict[int, Task]:
    """Process id → every process on the machine."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (task := read_task(int(name))) is not None:
            found[int(name)] = task
    return found


def read_task(pid: int) -> Task | None:
    """One process; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            # The command name (in brackets) may hold anything, also brackets and blanks.
            words = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(words) < 20:
        return None
    return Task(words[0].decode(), int(words[1]), int(words[3]), int(words[19]), sum(map(int, words[11:15])))


def read_status(pid: int, field: bytes) -> str:
    """Last word of a line of ``/proc/PID/status``, as of ``NSpid:`` the id inside; empty when the process has gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as stream:
        for line in stream:
            if line.startswith(field):
                return line.split()[-1].decode()
    return ""


def below(root: int, known: dict[int, Task]) -> list[int]:
    """Every process below ``root`` among the known ones."""
    children: dict[int, list[int]] = {}
    for pid, task in known.items():
        children.setdefault(task.parent, []).append(pid)
    found, pending = list[int](), [root]
    while pending:
        new = children.pop(pending.pop(), [])
        found += new
        pending += new
    return found


def descendants(root: int) -> list[int]:
    """Every process below ``root``."""
    return below(root, tasks())


def cpu_seconds() -> float:
    """CPU seconds of this process and of all that it ever started: waited for, or still there."""
    ended = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    known = tasks()
    return ended + sum(known[pid].cpu for pid in below(os.getpid(), known)) / os.sysconf("SC_CLK_TCK")


def ticks() -> int:
    """Now, as ``Task.started`` counts: since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def started_since(root: int, since: int) -> list[int]:
    """Processes below ``root`` of sessions that began at a moment (``ticks``) or later: 0 for all.

    No process can join a session that is there: one that a call started is in the call's session or in a newer one,
    and what an older background process starts meanwhile stays in its own.
    """
    known = tasks()
    mine = below(root, known)
    older = {known[pid].session for pid in mine if known[pid].started < since}
    return [pid for pid in mine if known[pid].session not in older]


def has_started_since(root: int, since: int) -> bool:
    """Check whether anything is left below ``root`` of sessions that began at a moment (``ticks``) or later.

    A list of processes misses those that start a successor and end, again and again. Their parents' own lists
    (CONFIG_PROC_CHILDREN) never do: the kernel hands a successor on in the moment in which its parent ends. One that
    has ended counts until its parent has noticed.
    """
    if alive(started_since(root, since)):
        return True
    known = tasks()
    mine = [root, *below(root, known)]
    older = {known[pid].session for pid in mine if pid in known and known[pid].started < since}
    ours = {root} | {pid for pid in mine if pid in known and known[pid].session in older}
    return any(child not in ours for pid in ours for child in children(pid))


def children(pid: int) -> list[int]:
    """Children of a process, ended ones included; none where it has ended, or the kernel does not list them."""
    found = list[int]()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as stream:
                found += map(int, stream.read().split())
    return found


def alive(pids: Iterable[int]) -> list[int]:
    """Those of the processes that still run; the first thread of one may have ended before the others."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            task = read_task(pid)
            if task is not None and (task.state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1):
                found.append(pid)
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes that may have ended meanwhile."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def kill_rest() -> None:
    """Kill what is left below this process, for some seconds at most. Repeated: a tree may fork meanwhile."""
    end = time.monotonic() + KILL_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            reap()
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises when no child is left
            send(descendants(os.getpid()), signal.SIGKILL)
            time.sleep(0.005)


def adopt_orphans() -> None:
    """Become the parent of what daemons below this process leave behind: they are found as well."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
