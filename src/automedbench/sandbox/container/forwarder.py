"""Forwarder, a program inside the container that makes the driver's UNIX sockets reachable on loopback ports.

Run as ``python3 -I -S forwarder.py PORT=SOCKET … -- COMMAND …`` (standard library only, Python 3.9 and later; nothing
of the package is there). It listens on every port before the command starts, pipes each connection to its socket, and
ends with the command's exit status, or 128 + the number of the signal that ended it. The command is the runner. Nothing
rests on it: when it ends, so does the container.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Awaitable

PR_SET_DUMPABLE = 4
BUFFER = 64 * 1024  # bytes on their way, per direction of a connection
RETRY_S = 0.02  # a UNIX socket whose queue is full refuses at once, where TCP would wait
SPARE_FILES, MOST_CONNECTIONS = 64, 8_000
# A signal to every process of a container: the command decides how it ends, and its forwarder stays until then.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


async def serve(listener: socket.socket, place: str, free: asyncio.Semaphore) -> None:
    """Take every connection of a listener; when files have run out, it stays in the kernel's queue."""
    loop = asyncio.get_running_loop()
    joined: set[asyncio.Task[None]] = set()  # the loop alone would not keep them

    def end(task: asyncio.Task[None]) -> None:
        joined.discard(task)
        free.release()

    while True:
        await free.acquire()
        try:
            client, _ = await loop.sock_accept(listener)
        except OSError:
            free.release()
            await asyncio.sleep(RETRY_S)
        else:
            task = loop.create_task(join(client, place))
            joined.add(task)
            task.add_done_callback(end)


async def join(client: socket.socket, place: str) -> None:
    """Pipe a connection to a UNIX socket and back; without a listener, and when one side breaks, it is reset."""
    with client:
        try:
            with socket.socket(socket.AF_UNIX) as service:
                service.setblocking(False)
                await connect(service, place)
                await run_both(pipe(client, service), pipe(service, client))
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def connect(service: socket.socket, place: str) -> None:
    """Connect as soon as the queue has room; raises OSError."""
    while True:
        try:
            return service.connect(place)
        except BlockingIOError:
            await asyncio.sleep(RETRY_S)


async def run_both(*pipes: Awaitable[None]) -> None:
    """Run until both have ended, or one has failed, which ends the other; raises OSError."""
    tasks = [asyncio.ensure_future(each) for each in pipes]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pipe(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on, and the end after the last one; raises OSError when the connection broke."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, BUFFER):
        await loop.sock_sendall(sink, data)
    sink.shutdown(socket.SHUT_WR)


async def run(listeners: dict[socket.socket, str], command: list[str]) -> int:
    """Start the command, serve until it ends; gives its wait status. Raises OSError when it cannot start."""
    child_ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, child_ended.set)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    # What Python and we ignore is as a shell would leave it for the command.
    defaults = (*ENDING, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
    pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=defaults)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = asyncio.Semaphore(max(1, min(MOST_CONNECTIONS, (files - SPARE_FILES) // 2)))
    serving = []
    for listener, place in listeners.items():
        listener.setblocking(False)
        serving.append(asyncio.ensure_future(serve(listener, place, free)))
    while True:
        await child_ended.wait()
        child_ended.clear()
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status


def main(words: list[str]) -> int:
    """Forward until the command ends; gives the exit status.

    No process of the same user may read or write this one, and standard input is the command's alone.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    cut = words.index("--")
    places = {int(port): place for port, _, place in (word.partition("=") for word in words[:cut])}
    listeners = {socket.create_server(("127.0.0.1", port), backlog=4096): place for port, place in places.items()}
    command = words[cut + 1 :]
    try:
        status = asyncio.run(run(listeners, command))
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
