"""Child process with limits for what another lab sent: no bundle can take the machine with it.

The child does a command's whole work, and before each step sets how much processor time and memory the kernel gives it.
The parent, which reads nothing of the bundle, waits and tells how the child ended.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import sys
import tarfile
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
SHOWN_LINES, SHOWN_CHARACTERS = 3, 400
TOO_LARGE, TOO_LONG = (f"{what} than a bundle of its size may" for what in ("needed more memory", "took more time"))


class Allowance:
    """What the child may use; in any other process it limits nothing."""

    def __init__(self, told: mmap.mmap | None = None) -> None:
        self._told, self._seconds, self._begun_with = told, 0.0, _count_data_bytes()

    def step(self, what: str, seconds: float, memory: int) -> None:
        """Begin ``what``, with so many more seconds of processor time, and bytes of memory beyond the first."""
        if self._told is None:
            return
        self._seconds += seconds
        _limit(resource.RLIMIT_CPU, int(self._seconds) + 1)
        _limit(resource.RLIMIT_DATA, self._begun_with + memory)
        _write_step(self._told, what)


def run_limited(work: Callable[[Allowance], int], bundle: str) -> int:
    """Exit code of ``work``, done in a child; raises InfrastructureError when a limit, or a signal, ended it."""
    told = mmap.mmap(-1, mmap.PAGESIZE)
    _write_step(told, "the start")
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
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    why = TOO_LONG if code == -signal.SIGXCPU else f"ended by {signal.Signals(-code).name}"
    raise InfrastructureError(
        f"{bundle}: {told[:].decode().strip()} {why}.\nNothing of it is used; docs/bundles.md has the limits."
    )


def _write_step(told: mmap.mmap, what: str) -> None:
    """Name the child's step in memory that both processes share."""
    told[:] = what.encode("ascii", "replace")[: len(told)].ljust(len(told))


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


def _count_data_bytes() -> int:
    """Private memory of this process that can be written, as the kernel counts it against ``RLIMIT_DATA``."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * mmap.PAGESIZE
