"""Runner, the first program inside a container: it starts each call's program and reports its end.

Run as ``python3 -I -S runner.py`` (standard library only, Python 3.9 and later; nothing of the package
is there) with a SOCK_SEQPACKET socket as standard input. A packet from outside is JSON ``{"call": 7, "argv": […]}``
with the descriptors of the program's stdout and stderr; answers are ``ANSWER``: kind, call, number. It has the agent's
own user and is not trusted: limits, output and trace are kept outside, and its answers can only hurt its own run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct

ANSWER = struct.Struct("!cIi")
READY, ENDED, FAILED = b"H", b"E", b"F"
"""Kinds of answers: it listens; a call's wait status; the error number of a call that could not be started."""

OPEN_FILES = 16_384
"""Descriptors of a program: few of them can hide memory in files that are on their way between processes."""
CALL_PATH = "AUTOMEDBENCH_PATH"
"""Variable with the PATH of a call's programs; call 0 is a look from outside, which has the runner's own."""
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
DEFAULTS = (*ENDING, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def take_control() -> socket.socket:
    """The socket that was standard input; programs get an empty one instead."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return control


def close_to_others() -> None:
    """Let no process of the same user read or write this one, and adopt the orphans of calls."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def limit_files() -> None:
    """Limit the descriptors of all that follows, to less than what starts other containers may have.

    The kernel counts those on their way between a user's processes together, and compares with the sender's own limit.
    """
    most = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def watch_children() -> int:
    """A descriptor that becomes readable when a child has ended; signals that end a program are for others."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    return reader


def build_environment(call: int) -> dict[str, str]:
    """Environment of a call's program."""
    given = dict(os.environ)
    path = given.pop(CALL_PATH, "")
    return {**given, "PATH": path} if call and path else given


def start_program(call: int, argv: list[str], streams: list[int]) -> int:
    """Start a program in a session of its own, looked up along the runner's PATH; raises OSError."""
    actions = [(os.POSIX_SPAWN_DUP2, stream, place) for place, stream in enumerate(streams, start=1)]
    environment = build_environment(call)
    return os.posix_spawnp(argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=DEFAULTS)


def reap() -> dict[int, int]:
    """Wait statuses of the children that have ended, orphans included."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def serve(control: socket.socket, children: int) -> None:
    """Execute one call after the other until nothing is there to give one."""
    control.send(ANSWER.pack(READY, 0, 0))
    call = pid = 0
    while True:
        ready, _, _ = select.select([control.fileno(), children], [], [])
        if children in ready:
            os.read(children, 4096)
            status = reap().get(pid)
            if status is not None:
                control.send(ANSWER.pack(ENDED, call, status))
                pid = 0
        if control.fileno() in ready:
            packet, streams, _, _ = socket.recv_fds(control, 1 << 16, 2)
            for stream in streams:
                os.set_inheritable(stream, False)  # recv_fds takes flags, but does not use them
            if len(streams) != 2:  # nothing more will come, or code in here has taken the descriptors away
                return
            order = json.loads(packet)
            call = order["call"]
            try:
                pid = start_program(call, order["argv"], streams)
            except OSError as error:
                control.send(ANSWER.pack(FAILED, call, error.errno or 0))
            for stream in streams:
                os.close(stream)


def main() -> None:
    """Run until the other end of the socket is closed."""
    close_to_others()
    limit_files()
    serve(take_control(), watch_children())


if __name__ == "__main__":
    main()
