"""The import airlock against agents that are still running: real processes change the workspace while it is collected.

Normally nothing of an agent is alive by then. It must hold all the same: nothing but the agent's own plain files comes
out, every hash is that of the copy, and no collection hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import mmap
import multiprocessing
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automedbench.sandbox.airlock import collector
from automedbench.sandbox.airlock.collector import MAX_UNEXPECTED, Collected, collect, read_beneath

OUT = "agents_outputs/c1/p.json"
SECRET = b"secret answer"
OWN = b"own "
LIMIT = 64 * 1024
ROUNDS = 120
SECONDS = 0.8
FORK = multiprocessing.get_context("fork")

pytestmark = pytest.mark.timeout(90)


class Ground:
    """A workspace beside private answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.out = self.workspace / OUT
        self.private = folder / "private/c1"
        self.private.mkdir(parents=True)
        (self.private / "p.json").write_bytes(SECRET)
        self.out.parent.mkdir(parents=True)
        self.out.write_bytes(OWN)

    def collect(self) -> Collected:
        return collect(self.workspace, {OUT: LIMIT}, self.folder / "submission")

    def check(self, collected: Collected) -> None:
        """What came out is the agent's own, in plain files, and hashed as copied."""
        kept = [path for path in (self.folder / "submission").rglob("*") if not path.is_dir() or path.is_symlink()]
        assert [path.relative_to(self.folder / "submission").as_posix() for path in kept] == list(collected.files)
        for path in kept:
            status = path.lstat()
            assert stat.S_ISREG(status.st_mode)
            assert status.st_nlink == 1
            content = path.read_bytes()
            assert SECRET not in content
            assert len(content) <= LIMIT
            entry = collected.files[OUT]
            assert (entry.bytes, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


# --- attackers: each changes the workspace once and puts it back, over and over -----------------------------------


def swap(path: Path, make: Callable[[Path], object], back: Callable[[Path], object]) -> None:
    """Put something else in a path's place in one step, then the good thing again."""
    other = path.with_name(f".{path.name}.other")
    for build in (make, back):
        build(other)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif other.is_dir() and not other.is_symlink():
            path.unlink(missing_ok=True)
        os.replace(other, path)


def own_file(path: Path) -> None:
    path.write_bytes(OWN)


def own_folder(path: Path) -> None:
    path.mkdir(exist_ok=True)
    (path / "p.json").write_bytes(OWN)


def link(ground: Ground) -> None:
    swap(ground.out, lambda path: path.symlink_to(ground.private / "p.json"), own_file)


def relative_link(ground: Ground) -> None:
    swap(ground.out, lambda path: path.symlink_to("../../../private/c1/p.json"), own_file)


def hard_link(ground: Ground) -> None:
    swap(ground.out, lambda path: os.link(ground.private / "p.json", path), own_file)


def pipe(ground: Ground) -> None:
    swap(ground.out, os.mkfifo, own_file)


def unix_socket(ground: Ground) -> None:
    def make(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(path.parent)
            made.bind(path.name)

    swap(ground.out, make, own_file)


def device_or_folder(ground: Ground) -> None:
    def make(path: Path) -> None:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            path.mkdir()

    swap(ground.out, make, own_file)


def huge(ground: Ground) -> None:
    def make(path: Path) -> None:
        with open(path, "wb") as stream:
            stream.truncate(1 << 40)

    swap(ground.out, make, own_file)


def folder_link(ground: Ground) -> None:
    swap(ground.out.parent, lambda path: path.symlink_to(ground.private), own_folder)


def top_link(ground: Ground) -> None:
    def back(path: Path) -> None:
        path.mkdir()
        own_folder(path / "c1")

    swap(ground.workspace / "agents_outputs", lambda path: path.symlink_to(ground.private.parent), back)


def folder_moved_out(ground: Ground) -> None:
    """The folder leaves the workspace while its files are opened, and a link takes its place."""
    away = ground.folder / "away"
    os.rename(ground.out.parent, away)
    ground.out.parent.symlink_to(ground.private)
    ground.out.parent.unlink()
    os.rename(away, ground.out.parent)


def exchanged(ground: Ground) -> None:
    """Both names exist all the time: renameat2(2) with RENAME_EXCHANGE."""
    other = ground.out.with_name("other")
    if not other.is_symlink() and not ground.out.is_symlink():
        other.symlink_to(ground.private / "p.json")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.renameat2(-100, os.fsencode(ground.out), -100, os.fsencode(other), 2)


def second_name(ground: Ground) -> None:
    """A hard link that appears while the file is copied."""
    other = ground.out.with_name("second")
    os.link(ground.out, other)
    other.unlink()


def growing(ground: Ground) -> None:
    with open(ground.out, "ab") as stream:
        stream.write(OWN * 100)
    if ground.out.stat().st_size > 2 * LIMIT:
        os.truncate(ground.out, 0)


def shrinking(ground: Ground) -> None:
    ground.out.write_bytes(OWN * 10_000)
    os.truncate(ground.out, 3)


def mapped(ground: Ground) -> None:
    with open(ground.out, "r+b") as stream:
        stream.truncate(LIMIT)
        with mmap.mmap(stream.fileno(), LIMIT) as memory:
            for offset in range(0, LIMIT, 4096):
                memory[offset : offset + 4] = OWN


def permissions(ground: Ground) -> None:
    ground.out.chmod(0)
    ground.out.parent.chmod(0)
    ground.out.parent.chmod(0o755)
    ground.out.chmod(0o644)


def removed(ground: Ground) -> None:
    ground.out.unlink()
    ground.out.parent.rmdir()
    own_folder(ground.out.parent)


def leased(ground: Ground) -> None:
    """Whoever opens a file under a lease waits until the holder lets go, or for 45 seconds."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    handle = os.open(ground.out, os.O_RDWR)
    try:
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        time.sleep(0.01)
    finally:
        os.close(handle)


def locked(ground: Ground) -> None:
    with open(ground.out, "r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        fcntl.lockf(stream, fcntl.LOCK_EX)
        time.sleep(0.01)


def fed_pipe(ground: Ground) -> None:
    """A pipe whose writer never stops."""
    with contextlib.suppress(FileNotFoundError):
        ground.out.unlink()
    os.mkfifo(ground.out)
    handle = os.open(ground.out, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(handle, OWN * 1000)
    os.close(handle)


def renames(ground: Ground) -> None:
    """A storm of renames, which makes the kernel's own resolution start again."""
    one, two = ground.workspace / "one", ground.workspace / "two"
    one.mkdir(exist_ok=True)
    os.rename(one, two)
    os.rename(two, one)


ATTACKERS = [
    *(link, relative_link, hard_link, pipe, unix_socket, device_or_folder, huge, folder_link, top_link),
    *(folder_moved_out, exchanged, second_name, growing, shrinking, mapped, permissions, removed, leased, locked),
    *(fed_pipe, renames),
]


def attack_for_ever(attacker: Callable[[Ground], None], ground: Ground, count: Any) -> None:
    while True:
        try:
            attacker(ground)
            count.value += 1
        except OSError:
            with contextlib.suppress(OSError):
                own_folder(ground.out.parent)


@contextlib.contextmanager
def under_attack(attacker: Callable[[Ground], None], ground: Ground) -> Iterator[Any]:
    """A process that attacks until the block ends; gives its number of attacks."""
    count = FORK.Value("L", 0)
    process = FORK.Process(target=attack_for_ever, args=(attacker, ground, count), daemon=True)
    process.start()
    try:
        yield count
    finally:
        process.kill()
        process.join(10)
        assert process.exitcode is not None


@pytest.mark.parametrize("attacker", ATTACKERS, ids=lambda attacker: attacker.__name__)
def test_nothing_but_own_files_passes_while_they_are_exchanged(
    ground: Ground, attacker: Callable[[Ground], None]
) -> None:
    with under_attack(attacker, ground) as count:
        end = time.monotonic() + SECONDS
        rounds = 0
        while rounds < ROUNDS and time.monotonic() < end:
            ground.check(ground.collect())
            rounds += 1
        while count.value == 0 and time.monotonic() < end + 30:  # a busy machine may not have started it yet
            ground.check(ground.collect())
    assert count.value > 0


# --- waiting --------------------------------------------------------------------------------------------------------


def test_a_file_under_a_lease_is_not_waited_for(ground: Ground) -> None:
    """open(2): O_NONBLOCK makes a conflicting lease an EWOULDBLOCK instead of a wait of lease-break-time."""
    held = FORK.Event()

    def hold() -> None:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        handle = os.open(ground.out, os.O_RDWR)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        held.set()
        time.sleep(60)

    process = FORK.Process(target=hold, daemon=True)
    process.start()
    try:
        assert held.wait(20)
        collected = ground.collect()
    finally:
        process.kill()
        process.join(10)
    assert [(item.path, item.reason) for item in collected.rejected] == [(OUT, "unreadable")]
    assert read_beneath(ground.workspace, OUT, LIMIT) in (None, OWN)


def test_locks_of_others_do_not_matter(ground: Ground) -> None:
    with open(ground.out, "r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert list(ground.collect().files) == [OUT]


# --- shapes ---------------------------------------------------------------------------------------------------------


def test_holes_stay_holes(ground: Ground) -> None:
    """A file of nothing takes no room, in the workspace or in the collection."""
    size = 100 * 1024 * 1024
    with open(ground.out, "wb") as stream:
        stream.truncate(size)
        stream.write(b"start")
        stream.seek(size - 3)
        stream.write(b"end")
    collected = collect(ground.workspace, {OUT: size}, ground.folder / "submission")
    copy = ground.folder / "submission" / OUT
    assert collected.files[OUT].bytes == copy.stat().st_size == size
    assert copy.stat().st_blocks * 512 < size / 10
    with open(copy, "rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == collected.files[OUT].sha256


def test_more_entries_than_anybody_lists(ground: Ground) -> None:
    """The list is bounded, whatever there is; the expected file is found. (``AMB_ENTRIES`` makes them more.)"""
    folder = os.open(ground.out.parent, os.O_RDONLY)
    for index in range(int(os.environ.get("AMB_ENTRIES", "30000"))):
        os.symlink("x", str(index), dir_fd=folder)
    os.close(folder)
    try:
        collected = ground.collect()
    finally:
        shutil.rmtree(ground.out.parent)
    assert list(collected.files) == [OUT]
    assert len(collected.rejected) == MAX_UNEXPECTED


def test_a_tree_deeper_than_any_path(ground: Ground) -> None:
    here = os.getcwd()
    os.chdir(ground.workspace / "agents_outputs")
    try:
        for _ in range(3000):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
    finally:
        os.chdir(here)
    try:
        collected = ground.collect()
    finally:  # deeper than shutil and pytest can remove
        subprocess.run(["rm", "-rf", ground.workspace / "agents_outputs"], check=True)
    assert list(collected.files) == [OUT]
    assert len(collected.rejected) == 1


NAMES = [
    b"\n",
    b"\x1b[2J",
    b"\xff\xfe",
    b"-rf",
    b"a\tb",
    b"$(id)",
    b"x" * 255,
    "\u202egnp.exe".encode(),
    b"..\\x",
    b"*",
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_that_are_no_text(ground: Ground, name: bytes) -> None:
    folder = os.fsencode(ground.workspace / "agents_outputs")
    os.mkdir(folder + b"/" + name)
    Path(os.fsdecode(folder + b"/" + name + b"/" + name)).symlink_to(os.fsdecode(name))
    collected = ground.collect()
    assert list(collected.files) == [OUT]
    (item,) = collected.rejected
    assert item.path.isprintable()
    assert item.target is not None and item.target.isprintable()
    assert item.path.encode("utf-8")


@pytest.mark.parametrize("path", ["../private/c1/p.json", "agents_outputs/../../private/c1/p.json", "/etc/passwd"])
def test_no_way_up(ground: Ground, path: str) -> None:
    answer = ground.workspace.parent / "private/c1/p.json"
    answer.parent.mkdir(parents=True, exist_ok=True)
    answer.write_text("the answer")
    (ground.workspace / "agents_outputs").mkdir(exist_ok=True)
    assert collector.read_beneath(ground.workspace, path, 10_000) is None
