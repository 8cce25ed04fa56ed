"""Watchdog of limits that no kernel keeps for a user without a cgroup: memory, processes and disk of one call.

Looks from outside at the call's process tree through /proc. Each look waits twenty times as long as it took, so that
large trees cost at most 5 % of a core. Memory is what the machine would need for the call: private and shared memory
of its processes, what lies in its /dev/shm, and memory files without a name. Mapped files do not count: the kernel
can drop them. A job's own cgroup may be stricter and then acts first. Limits: docs/specification.md, 9.2.

Files that speak of training (weights, optimiser states) are looked for as well: weak evidence, since weights may have
been downloaded or converted. Rules: docs/specification.md, 9.8 and 9.9.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automedbench.base.cards import Limits
from automedbench.base.records import Finding
from automedbench.sandbox.container.process import Stop
from automedbench.sandbox.container.supervisor import descendants

MAX_ENTRIES = 2_000_000  # files and folders of a workspace
COST_SHARE = 20
RUNTIME_TASKS = 32  # of the container runtime and the image's mount; measured 12

_MEMORY = re.compile(rb"^(RssAnon|RssShmem|VmSwap|Threads):\s+(\d+)", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.MULTILINE)


@dataclass
class Watchdog:
    """Watches one call; ``folders`` are what it may write (workspace and its /tmp), ``shm`` has its own /dev/shm."""

    folders: Sequence[Path]
    limits: Limits
    private_shm: bool = False
    _looks: list[_Paced] = field(init=False)

    def __post_init__(self) -> None:
        self._looks = [_Paced(self._tree), _Paced(self._disk)]

    def __call__(self, root: int) -> Stop | None:
        """Why the call whose tree begins at process ``root`` must end, or None."""
        return next((stop for look in self._looks if (stop := look(root)) is not None), None)

    def _tree(self, root: int) -> Stop | None:
        pids = descendants(root)
        tree = usage_of(pids, private_shm=self.private_shm)
        limit = self.limits.max_processes
        if limit is not None and tree.tasks > limit + RUNTIME_TASKS:
            return Stop(f"process limit: the call has more than {limit} processes and threads", True)
        limit_gb = self.limits.mem_gb
        if limit_gb is not None and tree.memory > limit_gb * 1e9:
            # Pages shared by forked processes were counted once for each; the exact sum costs more time.
            used = proportional_memory(pids, tree)
            if used > limit_gb * 1e9:
                return Stop(f"memory limit: the call uses {used / 1e9:.3g} GB, the limit is {limit_gb:g} GB", True)
        return None

    def _disk(self, root: int) -> Stop | None:
        found = [usage(folder) for folder in self.folders]
        size = sum(size for size, _ in found) + nameless_files(descendants(root))
        entries = sum(entries for _, entries in found)
        limit = self.limits.disk_gb
        if limit is not None and size > limit * 1e9:
            return Stop(f"disk limit: the workspace holds {size / 1e9:.3g} GB, the limit is {limit:g} GB")
        if entries > MAX_ENTRIES:
            return Stop(f"disk limit: the workspace holds {entries} files, the limit is {MAX_ENTRIES}")
        return None


class _Paced:
    """Calls a look only as often as its cost allows."""

    def __init__(self, look: Callable[[int], Stop | None]) -> None:
        self._look = look
        self._next = 0.0

    def __call__(self, root: int) -> Stop | None:
        begin = time.monotonic()
        if begin < self._next:
            return None
        stop = self._look(root)
        end = time.monotonic()
        self._next = end + COST_SHARE * (end - begin)
        return stop


def usage(folder: Path) -> tuple[int, int]:
    """Bytes on disk and number of entries below a folder; what vanishes meanwhile does not count."""
    size = entries = 0
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    entries += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
        except OSError:
            continue
    return size, entries


@dataclass(frozen=True)
class TreeUsage:
    """``memory`` in bytes is an upper bound: pages shared by several processes count once for each."""

    tasks: int
    private: int
    shared: int
    files: int

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.private + max(self.shared, self.files)


def usage_of(pids: Sequence[int], *, private_shm: bool = False) -> TreeUsage:
    """What a process tree uses now; ``private_shm`` adds the /dev/shm that its processes see."""
    tasks = private = shared = 0
    for pid in pids:
        values = _numbers(f"/proc/{pid}/status", _MEMORY)
        tasks += values.get("Threads", 0)
        private += 1024 * (values.get("RssAnon", 0) + values.get("VmSwap", 0))
        shared += 1024 * values.get("RssShmem", 0)
    files = memory_files(pids) + (shared_folder(pids) if private_shm else 0)
    return TreeUsage(tasks, private, shared, files)


def proportional_memory(pids: Iterable[int], tree: TreeUsage) -> int:
    """Bytes that a tree uses with every shared page counted once (``smaps_rollup``, proc(5))."""
    private = shared = 0
    for pid in pids:
        values = _numbers(f"/proc/{pid}/smaps_rollup", _PROPORTIONAL)
        if not values:  # ended meanwhile, or no permission
            continue
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


def _open_files(pids: Iterable[int], wanted: Callable[[str], bool]) -> int:
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            for name in os.listdir(folder):
                if wanted(os.readlink(f"{folder}/{name}")):
                    found = os.stat(f"{folder}/{name}")
                    if stat.S_ISREG(found.st_mode):
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
        except OSError:
            continue
    return sum(sizes.values())


def _numbers(path: str, pattern: re.Pattern[bytes]) -> dict[str, int]:
    try:
        with open(path, "rb") as stream:
            return {name.decode(): int(value) for name, value in pattern.findall(stream.read())}
    except OSError:
        return {}


MAX_LOOKED_AT = 200_000
SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".h5", ".keras", ".onnx")
# Downloads of the model libraries lie here (launcher.agent_environment).
CACHES = {".cache", ".local"}
_STATES = ("optim", "trainer_state", "scheduler")
_LOGS = "events.out.tfevents"

Stamp = tuple[int, int]


def training_files(workspace: Path) -> dict[str, Stamp]:
    """Path below the workspace → (bytes, time of change) of weights, optimiser states and training logs."""
    found: dict[str, Stamp] = {}
    pending, seen = [workspace], 0
    while pending and seen < MAX_LOOKED_AT:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        if folder != workspace or entry.name not in CACHES:
                            pending.append(Path(entry.path))
                    elif _speaks(entry.name) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found[os.path.relpath(entry.path, workspace)] = (status.st_size, status.st_mtime_ns)
        except OSError:
            continue
    return found


def _speaks(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) or name.startswith(_LOGS) or _is_state(name)


def _is_state(name: str) -> bool:
    return any(word in name.lower() for word in _STATES) and name.lower().endswith((*SUFFIXES, ".bin", ".json"))


def training_findings(
    before: Mapping[str, Stamp], after: Mapping[str, Stamp], *, turn: int, call: int
) -> list[Finding]:
    """One notice for new or changed weights, one for optimiser states and training logs."""
    new = sorted(path for path, stamp in after.items() if before.get(path) != stamp)
    states = [path for path in new if _is_state(Path(path).name) or Path(path).name.startswith(_LOGS)]
    weights = [path for path in new if path not in states]
    kinds = (("telemetry.training_state", states), ("telemetry.weights", weights))
    return [_finding(rule, paths, after, turn, call) for rule, paths in kinds if paths]


def _finding(rule: str, paths: list[str], stamps: Mapping[str, Stamp], turn: int, call: int) -> Finding:
    largest = max(paths, key=lambda path: stamps[path][0])
    shown = largest.encode("utf-8", "backslashreplace").decode()[-160:]
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    evidence = f"{shown} ({stamps[largest][0]} bytes){more}"
    return Finding.of(rule, "telemetry", "training", "notice", "medium", evidence, turn=turn, call=call)
