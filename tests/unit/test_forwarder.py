"""The forwarder as a real program between loopback ports and UNIX sockets."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import free_port

from automedbench.sandbox.container.launcher import FORWARDER

PYTHON = [sys.executable, "-I", "-S", str(FORWARDER)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because a UNIX socket's address is."""
    made = Path(tempfile.mkdtemp(prefix="amb-fwd-"))
    yield made
    shutil.rmtree(made)


@contextlib.contextmanager
def service(path: Path, attend: Callable[[socket.socket], None], backlog: int = 64) -> Iterator[None]:
    """A UNIX socket that handles every connection in a thread."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(backlog)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=handle, args=(client,), daemon=True).start()

        def handle(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                attend(client)

        threading.Thread(target=serve, daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)


def echo(client: socket.socket) -> None:
    while block := client.recv(1 << 16):
        client.sendall(block)


def answer_after_the_end(client: socket.socket) -> None:
    """Counts until the client has ended its side, then answers: works only with half-closed connections."""
    count = 0
    while block := client.recv(1 << 16):
        count += len(block)
    client.sendall(b"%d" % count)


def forward(folder: Path, port: int, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
    places = [f"{port}={folder / 'a.sock'}"]
    return subprocess.run([*PYTHON, *places, "--", *command], capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload,no-any-return]


@contextlib.contextmanager
def forwarding(folder: Path) -> Iterator[int]:
    """A forwarder whose command waits until the end of the block."""
    port = free_port()
    process = subprocess.Popen(
        [*PYTHON, f"{port}={folder / 'a.sock'}", "--", "sh", "-c", "echo up; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        assert process.stdout.readline() == b"up\n"
        try:
            yield port
        finally:
            process.stdin.close()
            assert process.wait(30) == 1  # read met the end


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 0"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -KILL $$"], 128 + 9),
        (["sh", "-c", "kill -SEGV $$"], 128 + 11),
        (["sh", "-c", "kill -TERM $$"], 128 + 15),
        (["no-such-program"], 127),
        (["/etc/hostname"], 126),
    ],
    ids=["ok", "error", "killed", "crash", "terminated", "not found", "not executable"],
)
def test_exit_status_is_the_commands(folder: Path, command: list[str], status: int) -> None:
    """128 + signal and 126/127 as in the shell (POSIX, 2.8.2)."""
    assert forward(folder, free_port(), *command).returncode == status


def test_the_command_finds_signals_as_a_shell_leaves_them(folder: Path) -> None:
    """Bits of ignored signals in /proc/self/status are none; a Python child would otherwise ignore SIGPIPE for good."""
    done = forward(folder, free_port(), "sh", "-c", "grep -E '^Sig(Ign|Blk)' /proc/self/status")
    # 32 and 33 are the C library's own.
    assert {int(line.split()[1], 16) & 0x7FFFFFFF for line in done.stdout.splitlines()} == {0}


def test_the_command_stays_in_the_session_and_group(folder: Path) -> None:
    code = "import os; print(os.getsid(0), os.getpgid(0))"
    done = forward(folder, free_port(), sys.executable, "-c", code)
    assert done.stdout.split() == [str(os.getsid(0)), str(os.getpgid(0))]


def test_ports_listen_before_the_command_starts(folder: Path) -> None:
    port = free_port()
    with service(folder / "a.sock", echo):
        code = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); s.sendall(b'hi'); print(s.recv(9))"
        assert forward(folder, port, sys.executable, "-S", "-c", code).stdout == "b'hi'\n"


def test_it_listens_on_loopback_only(folder: Path) -> None:
    with forwarding(folder) as port:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    assert listening == {"0100007F"}


def test_the_end_of_the_command_ends_open_connections(folder: Path) -> None:
    port = free_port()
    ended = threading.Event()

    def attend(client: socket.socket) -> None:
        echo(client)
        ended.set()

    with service(folder / "a.sock", attend):
        code = f"import socket, os; s = socket.create_connection(('127.0.0.1', {port})); s.send(b'x'); s.recv(1)"
        code += "; os.fork() or __import__('time').sleep(600)"  # a child of the command keeps the connection
        begin = time.monotonic()
        process = subprocess.Popen(
            [*PYTHON, f"{port}={folder / 'a.sock'}", "--", sys.executable, "-S", "-c", code], start_new_session=True
        )
        with process:
            assert process.wait(60) == 0
            assert time.monotonic() - begin < 60
            assert ended.wait(30)
            os.killpg(process.pid, signal.SIGKILL)


def test_half_closed_connections(folder: Path) -> None:
    with (
        service(folder / "a.sock", answer_after_the_end),
        forwarding(folder) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(bytes(3_000_000))
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"3000000"
        assert client.recv(100) == b""


def test_large_transfers_in_both_directions_at_once(folder: Path) -> None:
    data = os.urandom(20_000_000)
    with (
        service(folder / "a.sock", echo),
        forwarding(folder) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):

        def send() -> None:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        got = bytearray()
        while block := client.recv(1 << 20):
            got += block
        sender.join(60)
    assert got == data


def test_memory_is_bounded_when_nobody_reads(folder: Path) -> None:
    stop = threading.Event()

    def flood(client: socket.socket) -> None:
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while True:
                client.send(bytes(1 << 20))
        stop.wait(30)

    with service(folder / "a.sock", flood), forwarding(folder) as port:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        time.sleep(1)
        (pid,) = pids_of(port)
        usage = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for client in clients:
            client.close()
        stop.set()
    assert usage < 100_000_000


def pids_of(port: int) -> list[int]:
    """Processes whose arguments name a port of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if any(word.startswith(f"{port}=".encode()) for word in words):
                found.append(int(entry.name))
    return found


def test_thousands_of_connections(folder: Path) -> None:
    """More than fit into a queue, and all of them answered."""
    with service(folder / "a.sock", echo, backlog=4), forwarding(folder) as port:
        for _ in range(4):
            clients = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(400)]
            for number, client in enumerate(clients):
                client.sendall(b"%d" % number)
            assert [client.recv(10) for client in clients] == [b"%d" % number for number in range(400)]
            for client in clients:
                client.close()


def test_more_connections_than_files_wait(folder: Path) -> None:
    port = free_port()
    script = f"ulimit -n 200; exec {' '.join(PYTHON)} {port}={folder / 'a.sock'} -- sh -c 'echo up; read line'"
    with service(folder / "a.sock", echo):
        process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        with process:
            assert process.stdout.readline() == b"up\n"
            clients = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(150)]
            for client in clients:
                client.sendall(b"x")
                assert client.recv(1) == b"x" if clients.index(client) < 60 else True
                client.close()
            process.stdin.close()
            assert process.wait(30) == 1


@pytest.mark.parametrize("kind", ["missing", "deaf", "no socket"])
def test_a_service_that_is_not_there_resets(folder: Path, kind: str) -> None:
    if kind == "deaf":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(folder / "a.sock"))
    elif kind == "no socket":
        (folder / "a.sock").write_text("x")
    with (
        forwarding(folder) as port,
        pytest.raises(ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(b"x")
        assert client.recv(1)


def test_a_service_that_breaks_is_seen(folder: Path) -> None:
    def cut(client: socket.socket) -> None:
        client.recv(1)

    with (
        service(folder / "a.sock", cut),
        forwarding(folder) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(bytes(1_000_000))
        with contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""


def test_termination_is_left_to_the_command(folder: Path) -> None:
    """The driver's SIGTERM goes to every process of the call; the command may clean up and say its status."""
    script = "trap 'echo cleaned; exit 5' TERM; echo up; sleep 60 & wait"
    process = subprocess.Popen(
        [*PYTHON, f"{free_port()}={folder / 'a.sock'}", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == b"cleaned\n"
        assert process.wait(30) == 5


def test_orphans_of_the_command_do_not_end_it(folder: Path) -> None:
    """Other children's ends wake it up as well."""
    done = forward(folder, free_port(), "sh", "-c", "(sleep 0.1 &) ; (sleep 0.2 &) ; sleep 0.5; exit 3")
    assert done.returncode == 3
