"""Filter of the trace, the part inside: the kernel notifies a process outside of opened paths and of exits.

This is the first program inside; it becomes the forwarder or the runner, so that nothing runs there unseen. The filter
(seccomp user notification) is inherited by every child and cannot be taken off; the listener goes to the tracer outside
and is closed here, so that nothing inside can read or answer. Standard library only, no package import, Python 3.8. No
file is opened between the filter and the tracer's answer: that call would wait for a tracer which has no listener yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (word.partition("=") for word in text.split())}


# The architectures' tables of system calls; what one of them lacks is not in its table. Those that only look whether
# something is there (stat, access) are left out: three quarters of an interpreter's calls, which open nothing.
CALLS = {
    "x86_64": _table(
        "open=2 creat=85 openat=257 openat2=437 execve=59 execveat=322 connect=42 chdir=80 symlink=88 symlinkat=266"
        " link=86 linkat=265"
        " rename=82 renameat=264 renameat2=316 truncate=76 chmod=90 fchmodat=268 fchmodat2=452 exit_group=231"
    ),
    "aarch64": _table(
        "openat=56 openat2=437 execve=221 execveat=281 connect=203 chdir=49 symlinkat=36 linkat=37"
        " renameat=38 renameat2=276 truncate=45 fchmodat=53 fchmodat2=452 exit_group=94"
    ),
}
# Files could be opened past the filter through these; the sandbox's own filter denies them as well.
IO_URING = (425, 426, 427)
_X32 = 0x40000000

# linux/filter.h, linux/seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
NOTIFY, ALLOW, NO_SUCH_CALL, DENIED = 0x7FC00000, 0x7FFF0000, 0x00050000 | 38, 0x00050000 | 1
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_PR_SET_NO_NEW_PRIVS = 38
ANSWER_S = 30.0


def program(machine: str) -> bytes:
    """The filter in the kernel's form; raises OSError for an architecture without a table."""
    if machine not in CALLS:
        raise OSError(f"no trace on {machine}: no table of its system calls")
    calls = CALLS[machine]
    body = _only(machine)
    body += [_decide(_EQUAL, number, DENIED) for number in IO_URING]
    body += [_decide(_EQUAL, number, NOTIFY) for number in sorted(calls.values())]
    return b"".join([*(step for pair in body for step in pair), _step(_RETURN, ALLOW)])


def _only(machine: str) -> list[list[bytes]]:
    """Another interface of the same machine (32 bit, x32) has other numbers: it has no calls."""
    other = [[_step(_LOAD, 4)], [_step(_EQUAL, ARCHITECTURES[machine], 1, 0), _step(_RETURN, NO_SUCH_CALL)]]
    x32 = [_decide(_AT_LEAST, _X32, NO_SUCH_CALL)] if machine == "x86_64" else []
    return [*other, [_step(_LOAD, 0)], *x32]


def _decide(test: int, value: int, action: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, action)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def install(socket_path: str) -> None:
    """Install the filter and hand its listener to the tracer that listens at ``socket_path``.

    Raises OSError when the kernel refuses the filter, or no tracer answers. After a refusal nothing has changed;
    without an answer the traced calls of this process fail (ENOSYS).
    """
    steps = program(os.uname().machine)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tracer:
        tracer.settimeout(ANSWER_S)
        tracer.connect(socket_path)  # before the filter: this call is traced as well
        listener = _listener(steps)
        try:
            tracer.sendmsg([b"L"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", listener))])
        finally:
            os.close(listener)
        if tracer.recv(1) != b"L":
            raise OSError("the tracer took no listener")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _listener(steps: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs was refused")
    given = _Program(len(steps) // 8, steps)
    # Without the second flag (Linux 5.19) a signal in the middle repeats a call: harmless, but slower.
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        number = ctypes.c_long(_SECCOMP[os.uname().machine])
        found: int = libc.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(given))
        if found >= 0:
            return found
    raise OSError(ctypes.get_errno(), "the kernel refused the filter of the trace")


def main(arguments: list[str]) -> None:
    """``SOCKET COMMAND...``: become the command, traced if the kernel allows it; the tracer knows whether it does."""
    with contextlib.suppress(OSError):
        install(arguments[0])
    os.execvp(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
