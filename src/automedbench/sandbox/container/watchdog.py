"""Watchdog of limits that no kernel keeps for a user without a cgroup: memory, processes and disk of one container.

Looks from outside at the container's process tree through /proc, and at its folders through descriptors. Each look
waits twenty times as long as it took, so that large trees cost 5 % of a core; it never waits so long that a limit means
nothing. Memory is private and shared memory of its processes and what lies in its /dev/shm. Mapped files do not count:
the kernel can drop them. Memory in descriptors (memory files without a name, socket queues) is only limited by a
cgroup. Limits: docs/specification.md, 9.2. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from automedbench.sandbox.container.scratch import MAX_ENTRIES, Unseen, walk
from automedbench.sandbox.container.tree import descendants

COST_SHARE = 20
LOOK_SECONDS = 0.5
LONGEST_PAUSE_S, LONGEST_DISK_PAUSE_S = 5.0, 60.0
"""Between two looks at processes, at folders."""
ROOM_SECONDS = 0.1
"""Between two looks at the free space: three writers at 1 GB/s write 0.3 GB meanwhile."""
RESERVE_BYTES, RESERVE_SHARE = 2 * 10**9, 20
"""Free space that a run leaves to the node: 2 GB, and of disks below 40 GB a twentieth."""
FEW_INODES = 1000
FULL_BY_OTHERS = "disk full"
"""Beginning of the reason of an end that is not this run's fault."""
HEADER_BYTES = 1536
"""Headers of a file in an archive; its name comes to that."""
RUNTIME_TASKS = 32  # of the container runtime, the runner and the image's mount; measured 14

_MEMORY = re.compile(rb"^(RssAnon|RssShmem|VmSwap|Threads):\s+(\d+)", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.MULTILINE)


class Breach(NamedTuple):
    """A limit that was passed; ``at_once`` leaves out SIGTERM and its grace (for what endangers the machine).

    ``full`` is a folder whose disk has only ``free`` bytes left.
    """

    reason: str
    at_once: bool = False
    full: str = ""
    free: int = 0


class Limit(NamedTuple):
    """Bytes of memory and of disk, number of processes and threads; None: no limit."""

    memory: int | None = None
    processes: int | None = None
    disk: int | None = None


@dataclass
class Watchdog:
    """Watches one container; ``folders`` are what it may write (workspace, /tmp), ``shm`` has its own /dev/shm.

    ``grouped``: the kernel keeps memory and processes, and only disk is looked at. ``home``: folder that the archive of
    the first folder is written to; empty: free space is not looked at.
    """

    folders: Sequence[str]
    limit: Limit
    private_shm: bool = False
    grouped: bool = False
    home: str = ""

    def __post_init__(self) -> None:
        self._spaces = {folder: measure_space(folder) for folder in (self.home, *self.folders) if folder}
        self._seen = HeldBytes(0, 0, self._spaces)
        self.peak = 0
        """Most bytes of memory that were seen in use; pages that processes share count once for each of them."""

    def watch(self, root: int, report: Callable[[Breach], None]) -> None:
        """Look from threads, one for each kind of limit, until this process ends; ``report`` gets the breach."""
        looks: dict[Callable[[int], Breach | None], float] = {self.disk: LONGEST_DISK_PAUSE_S}
        if not self.grouped:
            looks |= {self.tree: LONGEST_PAUSE_S}
        if self.home:
            looks |= {self.room: ROOM_SECONDS}
        for look, longest in looks.items():
            threading.Thread(target=repeat, args=(look, root, report, longest), daemon=True).start()

    def tree(self, root: int) -> Breach | None:
        """Breach of a limit on processes and their memory."""
        pids = descendants(root)
        tree = measure_tree(pids, private_shm=self.private_shm)
        self.peak = max(self.peak, tree.memory)
        limit = self.limit.processes
        if limit is not None and tree.tasks > limit + RUNTIME_TASKS:
            return Breach(f"process limit: there are more than {limit} processes and threads", True)
        limit = self.limit.memory
        if limit is not None and tree.memory > limit:
            # Pages shared by forked processes were counted once for each; the exact sum costs more time.
            used = proportional_memory(pids, tree.shm)
            if used > limit:
                return Breach(f"memory limit: {used / 1e9:.3g} GB are used, the limit is {limit / 1e9:.3g} GB", True)
        return None

    def disk(self, root: int) -> Breach | None:
        """Breach of a limit on folders and open files."""
        spaces = {folder: measure_space(folder) for folder in self._spaces}
        found = [usage(folder) for folder in self.folders]
        size = sum(each.size for each in found) + nameless_files(descendants(root))
        self._seen = HeldBytes(found[0].size if found else 0, size, spaces)
        entries = sum(each.entries for each in found)
        limit = self.limit.disk
        if limit is not None and size > limit:
            return Breach(f"disk limit: the workspace holds {size / 1e9:.3g} GB, the limit is {limit / 1e9:.3g} GB")
        if entries > MAX_ENTRIES:
            return Breach(f"disk limit: the workspace holds {entries} files, the limit is {MAX_ENTRIES}")
        hidden = next((each.hidden for each in found if each.hidden), "")
        if hidden:
            return Breach(f"disk limit: what the workspace holds cannot be counted: {hidden}")
        return None

    def room(self, _root: int) -> Breach | None:
        """Breach where a disk runs full, or would by the archive of what the workspace holds."""
        spaces = {folder: measure_space(folder) for folder in self._spaces}
        for folder, (free, reserve) in spaces.items():
            if free < reserve // 2:
                return Breach(f"disk limit: the disk has {free / 1e9:.3g} GB left", True, folder, free)
        free, reserve = spaces[self.home]
        held = self._seen.kept + self._growth(self.folders[0], spaces[self.folders[0]].free)
        if held > reserve and free < held + reserve:
            has = f"the workspace holds up to {held / 1e9:.3g} GB, and the disk has {free / 1e9:.3g} GB left"
            return Breach(f"disk limit: {has}, where its archive must fit as well", True)
        return None

    def _growth(self, folder: str, free: int) -> int:
        """Bytes by which the free space of a folder's disk has shrunk since the last look at what is held."""
        return max(0, self._seen.spaces[folder].free - free)

    def blame(self, breach: Breach) -> str:
        """Reason of an ended container, once nothing of it runs: who held little has not filled the disk."""
        if not breach.full:
            return breach.reason
        (begin, _), (now, reserve) = self._spaces[breach.full], measure_space(breach.full)
        held = self._seen.held + max(self._growth(breach.full, breach.free), now - breach.free)
        share = max(min(reserve, (begin - reserve // 2) // 2), reserve // 8)
        if held >= share:
            return breach.reason
        return f"{FULL_BY_OTHERS}: {breach.free / 1e9:.3g} GB are free for {breach.full}, which this run did not fill"


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


class Space(NamedTuple):
    """Free bytes of a disk, and how many of them a run leaves to the node."""

    free: int
    reserve: int


def measure_space(folder: str | os.PathLike[str]) -> Space:
    """Space of the disk that a folder lies on; endless where there is no such folder.

    Inodes are space too: where their free share is smaller than that of the bytes, it counts.
    """
    try:
        found = os.statvfs(folder)
    except OSError:
        return Space(2**63, 0)
    size = found.f_blocks * found.f_frsize
    free = found.f_bavail * found.f_frsize
    if found.f_files > FEW_INODES:  # less is no real number
        free = min(free, size * found.f_favail // found.f_files)
    return Space(free, min(RESERVE_BYTES, size // RESERVE_SHARE))


class HeldBytes(NamedTuple):
    """Bytes that the first folder and that all hold, with open files, and the space of all disks just before."""

    kept: int
    held: int
    spaces: dict[str, Space]


class DiskUsage(NamedTuple):
    """Bytes and entries of a folder, on the disk or in its archive; ``hidden``: the part that could not be counted."""

    size: int
    entries: int
    hidden: str = ""


def usage(folder: str | os.PathLike[str]) -> DiskUsage:
    """Disk usage below a folder of any modes and path lengths."""
    size = entries = 0
    try:
        for _, path, found in walk(folder):
            entries += 1
            size += found.st_blocks * 512 + HEADER_BYTES + len(os.fsencode(path))
            if entries > MAX_ENTRIES:
                break
    except Unseen as unseen:
        return DiskUsage(size, entries, str(unseen))
    return DiskUsage(size, entries)


class TreeUsage(NamedTuple):
    """Processes and threads, and bytes of memory; pages that several processes share count once for each of them.

    ``shm``: bytes in files of /dev/shm, which are part of the shared ones where they are mapped.
    """

    tasks: int
    private: int
    shared: int
    shm: int

    @property
    def memory(self) -> int:
        """Bytes, an upper bound."""
        return self.private + max(self.shared, self.shm)


def measure_tree(pids: Sequence[int], *, private_shm: bool = False) -> TreeUsage:
    """Memory and processes of a tree now; ``private_shm`` adds its /dev/shm."""
    tasks = private = shared = 0
    for pid in pids:
        values = _numbers(f"/proc/{pid}/status", _MEMORY)
        tasks += values.get("Threads", 0)
        private += 1024 * (values.get("RssAnon", 0) + values.get("VmSwap", 0))
        shared += 1024 * values.get("RssShmem", 0)
    return TreeUsage(tasks, private, shared, shared_folder(pids) if private_shm else 0)


def proportional_memory(pids: Iterable[int], shm: int) -> int:
    """Bytes that a tree uses with every shared page counted once (``smaps_rollup``, proc(5)); ``shm`` as above."""
    private = shared = 0
    for pid in pids:
        values = _numbers(f"/proc/{pid}/smaps_rollup", _PROPORTIONAL)
        if not values:  # it does not let itself be looked into: its upper bound counts; nothing when it has ended
            found = _numbers(f"/proc/{pid}/status", _MEMORY)
            values = {"Pss_Anon": found.get("RssAnon", 0), "SwapPss": found.get("VmSwap", 0)}
            values["Pss_Shmem"] = found.get("RssShmem", 0)
        private += 1024 * (values.get("Pss_Anon", 0) + values.get("SwapPss", 0))
        shared += 1024 * values.get("Pss_Shmem", 0)
    return private + max(shared, shm)


def nameless_files(pids: Iterable[int]) -> int:
    """Bytes on disk of deleted files that processes still have open."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        for place, target in _descriptors(pid):
            if target.endswith(" (deleted)") and not target.startswith(("/memfd:", "/dev/")):
                with contextlib.suppress(OSError):
                    found = os.stat(place)
                    if stat.S_ISREG(found.st_mode):
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


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


def _numbers(path: str, pattern: re.Pattern[bytes]) -> dict[str, int]:
    return {name.decode(): int(value) for name, value in pattern.findall(_read(path))}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
