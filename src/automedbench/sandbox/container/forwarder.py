"""Forwarder, a program inside the container that makes the driver's UNIX sockets reachable on loopback ports.

Run as ``python3 -I -S forwarder.py PORT=SOCKET … -- COMMAND …`` (standard library only, Python 3.9 and later; nothing
of the package is there). It listens on every port before the command starts, pipes each connection to its socket, and
ends with the command's exit status, or 128 + the number of the signal that ended it. The command is the runner. Nothing
rests on it: when it ends, so does the container.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time

PR_SET_DUMPABLE = 4
BUFFER = 64 * 1024  # bytes on their way, per direction of a connection
RETRY_S = 0.02  # a UNIX socket whose queue is full refuses at once, where TCP would wait
SPARE_FILES, MOST_CONNECTIONS = 64, 8_000
# A signal to every process of a container: the command decides how it ends, and its forwarder stays until then.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class End:
    """One side of a connection: its socket, the bytes that wait to be sent to it, and what it has finished."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock, self.waiting, self.ended, self.shut = sock, bytearray(), False, False
        self.other: End = self

    def events(self) -> int:
        """Selector events: readable while the other side's queue has room, writable while bytes wait."""
        reading = not self.ended and len(self.other.waiting) < BUFFER
        return (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if self.waiting else 0)

    def read(self) -> None:
        """Take bytes for the other side; raises OSError when the connection broke."""
        data = self.sock.recv(BUFFER - len(self.other.waiting))
        self.other.waiting += data
        self.ended = not data

    def write(self) -> None:
        """Send what waits, and pass the other side's end on after its last byte; raises OSError."""
        if self.waiting:
            del self.waiting[: self.sock.send(self.waiting)]
        if self.other.ended and not self.waiting and not self.shut:
            self.shut = True
            self.sock.shutdown(socket.SHUT_WR)


class Forwarder:
    """Listeners and connections of one container."""

    def __init__(self, places: dict[int, str]) -> None:
        self.selector = selectors.DefaultSelector()
        self.open, self.most = 0, 64
        self.full: list[tuple[socket.socket, str]] = []
        for port, place in places.items():
            listener = socket.create_server(("127.0.0.1", port), backlog=4096)
            listener.setblocking(False)
            self.selector.register(listener, selectors.EVENT_READ, place)

    def run(self, wakeup: int, command: int) -> int:
        """Pipe until the command is over and give its wait status; ``wakeup`` becomes readable when a child ends."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(1, min(MOST_CONNECTIONS, (files - SPARE_FILES) // 2))
        self.selector.register(wakeup, selectors.EVENT_READ)
        while True:
            for key, events in self.selector.select(RETRY_S if self.full else None):
                if isinstance(key.data, End):
                    self.pump(key.data, events)
                elif isinstance(key.fileobj, socket.socket):
                    self.accept(key.fileobj, key.data)
                else:
                    os.read(wakeup, 4096)
                    pid, status = os.waitpid(command, os.WNOHANG)
                    if pid:
                        return status
            full, self.full = self.full, []
            for client, place in full:
                self.connect(client, place)

    def accept(self, listener: socket.socket, place: str) -> None:
        """Take a connection; when files have run out, it stays in the kernel's queue."""
        with contextlib.suppress(OSError):
            if self.open < self.most:
                client, _ = listener.accept()
                self.open += 1
                return self.connect(client, place)
        return time.sleep(RETRY_S)

    def connect(self, client: socket.socket, place: str) -> None:
        """Join a connection with its UNIX socket; without a listener it is reset."""
        ends: tuple[End, ...] = (End(client),)
        try:
            ends += (End(socket.socket(socket.AF_UNIX)),)
            ends[1].sock.connect(place)
        except BlockingIOError:
            ends[1].sock.close()
            self.full.append((client, place))
        except OSError:
            self.close(ends, broken=True)
        else:
            for end, other in (ends, ends[::-1]):
                end.other = other
                self.selector.register(end.sock, selectors.EVENT_READ, end)

    def pump(self, end: End, events: int) -> None:
        """Move bytes of one connection; when one side breaks, both are reset."""
        if end.sock.fileno() < 0:
            return  # closed earlier in the same round
        sides, broken = (end, end.other), False
        try:
            if events & end.events() & selectors.EVENT_READ:
                end.read()
            for side in sides:
                with contextlib.suppress(BlockingIOError):
                    side.write()
        except OSError:
            broken = True
        for side in sides:
            # A socket that waits for nothing is not watched: the kernel would report its hang-up again and again.
            if side.sock.fileno() in self.selector.get_map():
                self.selector.unregister(side.sock)
            if side.events() and not broken:
                self.selector.register(side.sock, side.events(), side)
        if broken or (end.shut and end.other.shut):
            self.close(sides, broken)

    def close(self, sides: tuple[End, ...], broken: bool) -> None:
        """Close one connection; a reset tells the client that something is wrong."""
        for side in sides:
            if broken and side.sock.family == socket.AF_INET:
                side.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.sock.close()
        self.open -= 1


def main(words: list[str]) -> int:
    """Listen, start the command, forward until it ends; gives the exit status.

    No process of the same user may read or write this one, and standard input is the command's alone.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    cut = words.index("--")
    places = {int(port): place for port, _, place in (word.partition("=") for word in words[:cut])}
    command = words[cut + 1 :]
    forwarder = Forwarder(places)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    # What Python and we ignore is as a shell would leave it for the command.
    defaults = (*ENDING, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=defaults)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    status = forwarder.run(reader, pid)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    # Connections that are still open end with the process: no code is left that could use them.
    sys.exit(main(sys.argv[1:]))
