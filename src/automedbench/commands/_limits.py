"""Child process with limits for what another lab sent: no bundle can take the machine with it.

The child does a command's whole work. What each step may use, in processor time and memory, is said before it is begun.
The parent, which reads nothing of the bundle, looks on and tells how the child ended.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import select
import signal
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from automedbench.base.errors import AutoMedBenchError, InfrastructureError
from automedbench.sandbox.container.tree import end_with_parent

UNREADABLE = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RecursionError, TypeError, ValueError),
    *(EOFError, tarfile.TarError),
)
"""Errors that reading another lab's files can end with."""
WALL_PER_CPU, WALL_S = 10.0, 60.0
"""Seconds in all for each of processor time, where others compute too, and beyond."""
LOOK_S = 0.02
BEYOND = 1 << 30
"""Bytes of address space beyond the memory: the kernel refuses more, if memory grows between two looks."""
SHOWN_LINES, SHOWN_CHARACTERS = 3, 400
TOO_LARGE, TOO_LONG = (f"{what} than a bundle of its size may" for what in ("needed more memory", "took more time"))


class Allowance:
    """What the child may use; in any other process it limits nothing."""

    def __init__(self, told: mmap.mmap | None = None) -> None:
        self._told, self._seconds = told, 0.0
        self._space, self._memory = _count_bytes(os.getpid())

    def step(self, what: str, seconds: float, memory: int, *, computes: bool = False) -> None:
        """Begin ``what``, with so many more seconds of processor time, and bytes of memory beyond the first.

        ``computes``: with libraries that map more address space than they use.
        """
        if self._told is None:
            return
        self._seconds += seconds
        _limit(resource.RLIMIT_CPU, int(self._seconds) + 1)
        _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY if computes else self._space + memory + BEYOND)
        end = time.monotonic() + WALL_S + WALL_PER_CPU * max(0.0, self._seconds - time.process_time())
        text = f"{end} {self._memory + memory} {what}".encode("ascii", "replace")
        self._told[:] = text[: len(self._told)].ljust(len(self._told))


def run_limited(work: Callable[[Allowance], int], bundle: str) -> int:
    """Exit code of ``work``, done in a child; raises InfrastructureError when a limit, or a signal, ended it."""
    told = mmap.mmap(-1, mmap.PAGESIZE)
    told[:] = f"{time.monotonic() + WALL_S} {BEYOND} the start".encode().ljust(len(told))
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = _work(work, Allowance(told), bundle)
        finally:
            os._exit(code)
    try:
        why = _look_on(child, told)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0 and not why:
        return code
    ended = TOO_LONG if code == -signal.SIGXCPU else f"ended by {signal.Signals(-code).name}"
    raise InfrastructureError(
        f"{bundle}: {_read(told)[2]} {why or ended}.\nNothing of it is used; docs/bundles.md has the limits."
    )


def _look_on(child: int, told: mmap.mmap) -> str:
    """Wait until a child has ended, or has taken more than it may: which of its limits that was."""
    handle = os.pidfd_open(child)
    try:
        while not select.select([handle], [], [], LOOK_S)[0]:
            end, memory, _ = _read(told)
            if time.monotonic() > end:
                return TOO_LONG
            if _count_bytes(child)[1] > memory:
                return TOO_LARGE
    finally:
        os.close(handle)
    return ""


def _read(told: mmap.mmap) -> tuple[float, int, str]:
    """End on the monotonic clock, bytes of memory, and name of the child's step."""
    end, memory, step = told[:].decode().split(" ", 2)
    return float(end), int(memory), step.strip()


def _work(work: Callable[[Allowance], int], allowance: Allowance, bundle: str) -> int:
    """The child: what goes wrong in it is told in a few lines, in which no terminal acts on what a bundle holds."""
    end_with_parent()
    _limit(resource.RLIMIT_CORE, 0)
    sys.stderr = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libraries say when they have no memory
    try:
        return work(allowance)
    except AutoMedBenchError as error:
        lines = f"{type(error).__name__}: {error}".split("\n")[:SHOWN_LINES]
        print("\n".join(map(_shown, lines)), file=sys.stderr)
    except UNREADABLE as error:
        print(_shown(f"InfrastructureError: {bundle}: cannot be read: {describe(error)}"), file=sys.stderr)
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    return 1


def describe(error: BaseException) -> str:
    """One of the errors that reading can end with, for a message."""
    return TOO_LARGE if isinstance(error, MemoryError) else f"{type(error).__name__}: {str(error)[:200]}"


def _shown(line: str) -> str:
    return "".join(each if each.isprintable() else " " for each in line[:SHOWN_CHARACTERS])


def _limit(kind: int, value: int) -> None:
    """Set a soft limit, which may be raised again, within the hard one."""
    _, hard = resource.getrlimit(kind)
    unlimited = resource.RLIM_INFINITY
    resource.setrlimit(kind, (min((each for each in (value, hard) if each != unlimited), default=unlimited), hard))


def _count_bytes(pid: int) -> tuple[int, int]:
    """Address space of a process, and its memory now; nothing of one that has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[:2] or ["0", "0"]
    except OSError:
        return 0, 0
    return int(pages[0]) * mmap.PAGESIZE, int(pages[1]) * mmap.PAGESIZE
