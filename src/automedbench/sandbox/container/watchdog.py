"""Watchdog of limits that no kernel keeps for a user without a cgroup: memory, processes and disk of one container.

Looks from outside at the container's process tree through /proc, and at its folders through descriptors. Each look
waits twenty times as long as it took, so that large trees cost 5 % of a core; it never waits so long that a limit means
nothing (a tree with millions of open files takes long to look at). Memory is what the machine would
need for the container: private and shared memory of its processes, what lies in its /dev/shm, memory files without a
name, what waits in sockets. Mapped files do not count: the kernel can drop them. What cannot be counted ends the
container as well. Limits: docs/specification.md, 9.2. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import re
import socket
import stat
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from automedbench.sandbox.container.scratch import MAX_ENTRIES, Unseen, walk
from automedbench.sandbox.container.tree import descendants

COST_SHARE = 20
LOOK_SECONDS = 0.5
LONGEST_PAUSE_S, LONGEST_DISK_PAUSE_S = 5.0, 60.0
"""Between two looks at processes, at folders."""
UNCOUNTED = "cannot be counted"
RUNTIME_TASKS = 32  # of the container runtime, the runner and the image's mount; measured 14
IN_FLIGHT_SECONDS = 3.0
"""How long descriptors may lie in a queue between processes while the machine's free space shrinks."""

_MEMORY = re.compile(rb"^(RssAnon|RssShmem|VmSwap|Threads):\s+(\d+)", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.MULTILINE)
_IN_FLIGHT = re.compile(rb"^(scm_fds):\s+(\d+)", re.MULTILINE)
_AVAILABLE = re.compile(rb"^(MemAvailable):\s+(\d+)", re.MULTILINE)


class Breach(NamedTuple):
    """A limit that was passed; ``at_once`` leaves out SIGTERM and its grace (for what endangers the machine)."""

    reason: str
    at_once: bool = False


class Limit(NamedTuple):
    """Bytes of memory and of disk, number of processes and threads; None: no limit."""

    memory: int | None = None
    processes: int | None = None
    disk: int | None = None


@dataclass
class Watchdog:
    """Watches one container; ``folders`` are what it may write (workspace, /tmp), ``shm`` has its own /dev/shm.

    ``grouped``: the kernel keeps memory and processes, and only disk is looked at.
    """

    folders: Sequence[str]
    limit: Limit
    private_shm: bool = False
    grouped: bool = False

    def __post_init__(self) -> None:
        self._free = self._free_space()
        self._flying_since: float | None = None
        self._ours: set[int] | None = None
        self._held: Held | None = None
        self.peak = 0
        """Most bytes of memory that were seen in use; pages that processes share count once for each of them."""

    def watch(self, root: int, report: Callable[[Breach], None], *, started: bool) -> None:
        """Look from threads, one for each kind of limit, until this process ends; ``report`` gets the breach.

        ``started``: the container stands and nothing of an agent's runs yet; what is closed to us now is ours.
        """
        self._ours = closed_processes(descendants(root)) if started else None
        looks: dict[Callable[[int], Breach | None], float] = {self.disk: LONGEST_DISK_PAUSE_S}
        if not self.grouped:
            looks |= {self.tree: LONGEST_PAUSE_S, self.open_files: LONGEST_PAUSE_S}
        for look, longest in looks.items():
            threading.Thread(target=repeat, args=(look, root, report, longest), daemon=True).start()

    def open_files(self, root: int) -> None:
        """Note what is held in open files, which takes long where there are many; ``tree`` adds it to what it sees."""
        self._held = held_in_files(descendants(root))

    def tree(self, root: int) -> Breach | None:
        """Breach of a limit on processes and their memory."""
        pids = descendants(root)
        tree = measure_tree(pids, private_shm=self.private_shm, held=self._held)
        self.peak = max(self.peak, tree.memory)
        limit = self.limit.processes
        if limit is not None and tree.tasks > limit + RUNTIME_TASKS:
            return Breach(f"process limit: there are more than {limit} processes and threads", True)
        limit = self.limit.memory
        if limit is not None and tree.memory > limit:
            # Pages shared by forked processes were counted once for each; the exact sum costs more time.
            used = proportional_memory(pids, replace(tree, files=0, queued=0))
            if used <= limit:  # what open files hold was seen a while ago, and decides
                used = proportional_memory(pids, measure_tree(pids, private_shm=self.private_shm))
            if used > limit:
                return Breach(f"memory limit: {used / 1e9:.3g} GB are used, the limit is {limit / 1e9:.3g} GB", True)
        return None

    def disk(self, root: int) -> Breach | None:
        """Breach of a limit on folders and open files."""
        pids = descendants(root)
        found = [usage(folder) for folder in self.folders]
        size = sum(each.size for each in found) + nameless_files(pids)
        entries = sum(each.entries for each in found)
        limit = self.limit.disk
        if limit is not None and size > limit:
            return Breach(f"disk limit: the workspace holds {size / 1e9:.3g} GB, the limit is {limit / 1e9:.3g} GB")
        if entries > MAX_ENTRIES:
            return Breach(f"disk limit: the workspace holds {entries} files, the limit is {MAX_ENTRIES}")
        hidden = next((each.hidden for each in found if each.hidden), "")
        if hidden:
            return Breach(f"disk limit: what the workspace holds {UNCOUNTED}: {hidden}")
        return self._in_flight(pids)

    def _in_flight(self, pids: Sequence[int]) -> Breach | None:
        """Breach where open files cannot be inspected while free space shrinks by a limit."""
        closed = set[int]() if self._ours is None else closed_processes(pids) - self._ours
        flying = count_queued_descriptors(pids) + len(closed)
        now = time.monotonic()
        self._flying_since = (self._flying_since or now) if flying else None
        if self._flying_since is None or now - self._flying_since < IN_FLIGHT_SECONDS:
            return None
        lost = [before - free for before, free in zip(self._free, self._free_space(), strict=True)]
        limits = (self.limit.memory, *(self.limit.disk for _ in self.folders))
        if not any(limit is not None and gone > limit for gone, limit in zip(lost, limits, strict=True)):
            return None
        what = "files of processes that hide them" if closed else f"{flying} files on their way between processes"
        return Breach(f"disk limit: {what} {UNCOUNTED}", True)

    def _free_space(self) -> list[int]:
        """Bytes of memory that are available, and of each folder's file system."""
        memory = 1024 * _numbers("/proc/meminfo", _AVAILABLE).get("MemAvailable", 0)
        return [memory, *(_free(folder) for folder in self.folders)]


def repeat(
    look: Callable[[int], Breach | None],
    root: int,
    report: Callable[[Breach], None],
    longest: float = LONGEST_PAUSE_S,
) -> None:
    """Look at the processes below ``root`` as often as the cost allows; a breach is reported once, and is the end."""
    while True:
        begin = time.monotonic()
        breach = look(root)
        if breach is not None:
            return report(breach)
        time.sleep(min(max(LOOK_SECONDS, COST_SHARE * (time.monotonic() - begin)), longest))


class DiskUsage(NamedTuple):
    """Bytes on disk and entries of a folder; ``hidden``: the part that could not be counted."""

    size: int
    entries: int
    hidden: str = ""


def usage(folder: str | os.PathLike[str]) -> DiskUsage:
    """Disk usage below a folder of any modes and path lengths."""
    size = entries = 0
    try:
        for _, _, found in walk(folder):
            entries += 1
            size += found.st_blocks * 512
            if entries > MAX_ENTRIES:
                break
    except Unseen as unseen:
        return DiskUsage(size, entries, str(unseen))
    return DiskUsage(size, entries)


def _free(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bfree * found.f_frsize


@dataclass(frozen=True)
class TreeUsage:
    """``memory`` in bytes is an upper bound: pages shared by several processes count once for each."""

    tasks: int
    private: int
    shared: int
    files: int
    queued: int

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.private + self.queued + max(self.shared, self.files)


class Held(NamedTuple):
    """Bytes that wait in sockets, and in memory files that are open."""

    queued: int
    files: int


def held_in_files(pids: Sequence[int]) -> Held:
    """Bytes that a process tree holds in open files outside any disk."""
    return Held(queued_bytes(pids), memory_files(pids))


def measure_tree(pids: Sequence[int], *, private_shm: bool = False, held: Held | None = None) -> TreeUsage:
    """Memory and processes of a tree now; ``private_shm`` adds its /dev/shm, ``held`` is not looked for again."""
    tasks = private = shared = 0
    for pid in pids:
        values = _numbers(f"/proc/{pid}/status", _MEMORY)
        tasks += values.get("Threads", 0)
        private += 1024 * (values.get("RssAnon", 0) + values.get("VmSwap", 0))
        shared += 1024 * values.get("RssShmem", 0)
    queued, files = held or held_in_files(pids)
    return TreeUsage(tasks, private, shared, files + (shared_folder(pids) if private_shm else 0), queued)


def proportional_memory(pids: Iterable[int], tree: TreeUsage) -> int:
    """Bytes that a tree uses with every shared page counted once (``smaps_rollup``, proc(5))."""
    private, shared = tree.queued, 0
    for pid in pids:
        values = _numbers(f"/proc/{pid}/smaps_rollup", _PROPORTIONAL)
        if not values:  # it does not let itself be looked into: its upper bound counts; nothing when it has ended
            found = _numbers(f"/proc/{pid}/status", _MEMORY)
            values = {"Pss_Anon": found.get("RssAnon", 0), "SwapPss": found.get("VmSwap", 0)}
            values["Pss_Shmem"] = found.get("RssShmem", 0)
        private += 1024 * (values.get("Pss_Anon", 0) + values.get("SwapPss", 0))
        shared += 1024 * values.get("Pss_Shmem", 0)
    return private + max(shared, tree.files)


def memory_files(pids: Iterable[int]) -> int:
    """Bytes in memory files (memfd_create) that processes have open; no resident memory counts them."""
    return _open_files(pids, lambda target: target.startswith("/memfd:"))


def nameless_files(pids: Iterable[int]) -> int:
    """Bytes on disk of deleted files that processes still have open."""
    return _open_files(
        pids, lambda target: target.endswith(" (deleted)") and not target.startswith(("/memfd:", "/dev/"))
    )


def shared_folder(pids: Iterable[int]) -> int:
    """Bytes in the private /dev/shm of a container, looked at through the first process that shows one."""
    host = os.stat("/dev/shm").st_dev if os.path.isdir("/dev/shm") else None
    for pid in pids:
        place = f"/proc/{pid}/root/dev/shm"
        try:
            if os.stat(place).st_dev == host:
                continue
            found = os.statvfs(place)
        except OSError:
            continue
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


SMALL_QUEUES = 8
"""Fewer sockets than this are not looked into; how much one holds is the machine's choice: up to 38 MB were seen."""
_NO_LINGER = struct.pack("ii", 0, 0)
_SYS_PIDFD_OPEN, _SYS_PIDFD_GETFD = 434, 438  # the same on x86-64 and arm64
_LIBC = ctypes.CDLL(None, use_errno=True)


def queued_bytes(pids: Iterable[int]) -> int:
    """Bytes that wait in the sockets of a tree, where it has many."""
    sockets = {target: (pid, number) for pid, number, target in open_sockets(pids)}
    if len(sockets) < SMALL_QUEUES:
        return 0
    handles: dict[int, int] = {}
    try:
        return sum(_queued(handles, pid, number) for pid, number in sockets.values())
    finally:
        for handle in handles.values():
            if handle >= 0:
                os.close(handle)


def _queued(handles: dict[int, int], pid: int, number: int) -> int:
    """Bytes that a socket of another process holds: not read by its peer yet, for TCP also not read by itself."""
    if pid not in handles:
        handles[pid] = _LIBC.syscall(_SYS_PIDFD_OPEN, pid, 0)
    copy = _LIBC.syscall(_SYS_PIDFD_GETFD, handles[pid], number, 0) if handles[pid] >= 0 else -1
    if copy < 0:
        return 0
    try:
        held = socket.socket(fileno=copy)
    except OSError:  # closed since it was listed, and its number given to another file
        os.close(copy)
        return 0
    with held:
        with contextlib.suppress(OSError):  # closing it here, last of all, must not wait for a peer
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        own = _waiting(held, termios.TIOCOUTQ)
        return own if held.family == socket.AF_UNIX else own + _waiting(held, termios.FIONREAD)


def _waiting(held: socket.socket, kind: int) -> int:
    size = array.array("i", [0])
    try:
        fcntl.ioctl(held, kind, size)
    except OSError:
        return 0
    return size[0]


def open_sockets(pids: Iterable[int]) -> Iterator[tuple[int, int, str]]:
    """Process, descriptor and name of every open socket."""
    for pid in pids:
        for place, target in _descriptors(pid):
            if target.startswith("socket:"):
                yield pid, int(place.rpartition("/")[2]), target


def count_queued_descriptors(pids: Iterable[int]) -> int:
    """Descriptors that lie in queues of a tree's UNIX sockets (``scm_fds`` of fdinfo, Linux 5.6)."""
    found: dict[str, int] = {}
    for pid, number, target in open_sockets(pids):
        if target not in found:
            found[target] = _numbers(f"/proc/{pid}/fdinfo/{number}", _IN_FLIGHT).get("scm_fds", 0)
    return sum(found.values())


def _open_files(pids: Iterable[int], wanted: Callable[[str], bool]) -> int:
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        for place, target in _descriptors(pid):
            if wanted(target):
                with contextlib.suppress(OSError):
                    found = os.stat(place)
                    if stat.S_ISREG(found.st_mode):
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def _descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """Place in /proc and target of each open file of a process; one that is closed meanwhile hides no other."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield f"{folder}/{name}", os.readlink(f"{folder}/{name}")


def closed_processes(pids: Iterable[int]) -> set[int]:
    """Processes whose open files are not shown to us: they made themselves undumpable (prctl(2)), as the runner did."""
    found = set[int]()
    for pid in pids:
        try:
            os.scandir(f"/proc/{pid}/fd").close()
        except PermissionError:
            found.add(pid)
        except OSError:
            continue
    return found


def _numbers(path: str, pattern: re.Pattern[bytes]) -> dict[str, int]:
    return {name.decode(): int(value) for name, value in pattern.findall(_read(path))}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
