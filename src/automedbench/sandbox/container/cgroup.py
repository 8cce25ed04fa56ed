"""Memory of the job, by its control groups and by Slurm; kills that the kernel counted; a group for each container.

A container has its own group where this process's group (version 2) is delegated to the user: a systemd scope with
``Delegate=yes``, some Slurm installations. Everywhere else its limits are polled (``watchdog``), and version 1 is only
read. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automedbench.sandbox.container.tree import read_task

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
LEAF = "automedbench-driver"
"""Where the processes of a delegated group move to: only a group without own processes may have limited children."""
REMOVE_SECONDS = 2.0


def memory_limit(root: Path = ROOT, membership: Path = MEMBERSHIP, machine: int | None = None) -> int | None:
    """Bytes that this process's cgroup (version 2 or 1) and its ancestors allow; None when there is no limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if machine is None else machine
    limits = []
    for number, controllers, path in _read_membership(membership):
        if number == "0":
            limits += _read_limits(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _read_limits(root / "memory", path, "memory.limit_in_bytes")
    # Version 1 writes a number larger than any machine for "none".
    return min((limit for limit in limits if limit < total), default=None)


def job_memory(environment: Mapping[str, str] = os.environ) -> int | None:
    """Bytes that this process's job may use: the lower limit of its cgroup and of Slurm; None: no limit.

    Where a site kills by polling, only Slurm's variables hold the limit. They are in MiB; 0 means the whole node.
    """
    limits = [memory_limit(), _slurm_memory(environment)]
    return min((limit for limit in limits if limit), default=None)


def _slurm_memory(environment: Mapping[str, str]) -> int:
    """Bytes of a job on this node by its variables (sbatch(1)): of the node, each core or each GPU; 0: unknown."""
    for memory, each in (("NODE", ""), ("CPU", "SLURM_CPUS_ON_NODE"), ("GPU", "SLURM_GPUS_ON_NODE")):
        words = environment.get(f"SLURM_MEM_PER_{memory}", ""), environment.get(each, "1")
        if all(word.isdigit() for word in words):
            return int(words[0]) * int(words[1]) * 2**20
    return 0


def oom_kills(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Processes that the kernel killed for memory in this process's cgroup so far; 0 where that is unknown."""
    found = 0
    for number, controllers, path in _read_membership(membership):
        if number == "0":
            found += _read_oom_kills(root / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found += _read_oom_kills(root / "memory" / path.lstrip("/") / "memory.oom_control")
    return found


@dataclass(frozen=True)
class Group:
    """A control group of one container."""

    folder: Path

    def join(self) -> None:
        """Move this process into it; raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def oom_kills(self) -> int:
        """Processes of it that the kernel killed for memory."""
        return _read_oom_kills(self.folder / "memory.events")

    @property
    def peak(self) -> int | None:
        """Most bytes that it had in use; None before Linux 5.19."""
        try:
            return int((self.folder / "memory.peak").read_text())
        except (OSError, ValueError):
            return None

    def freeze(self, frozen: bool) -> bool:
        """Let its processes stand still or go on; false where the kernel cannot (before Linux 5.2)."""
        try:
            (self.folder / "cgroup.freeze").write_text("1" if frozen else "0")
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Kill what is left in it and remove it, as far as possible."""
        with contextlib.suppress(OSError), open(os.open(self.folder / "cgroup.kill", os.O_WRONLY), "w") as stream:
            stream.write("1")
        end = time.monotonic() + REMOVE_SECONDS
        while time.monotonic() < end:
            try:
                return self.folder.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.01)
        return None


def make_group(
    memory: int | None, processes: int | None, root: Path = ROOT, membership: Path = MEMBERSHIP
) -> Group | None:
    """A group with these limits (bytes; tasks) below this process's own; None where it may make none.

    It bears this process's name. Groups of processes that have ended without removing theirs go first.
    """
    own = next((path for number, _, path in _read_membership(membership) if number == "0"), None)
    if own is None or not (root / "cgroup.controllers").exists():
        return None
    base = root / own.lstrip("/")
    base = base.parent if base.name == LEAF else base
    group = Group(base / _group_name(os.getpid()))
    try:
        _delegate(base, root)
        _remove_stale(base)
        group.folder.mkdir()
        for name, value in (("memory.max", memory), ("pids.max", processes)):
            (group.folder / name).write_text("max" if value is None else str(value))
        (group.folder / "memory.oom.group").write_text("1")
    except OSError:
        group.remove()
        return None
    with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
        (group.folder / "memory.swap.max").write_text("0")
    return group


def _group_name(pid: int) -> str:
    """Name of the group of a process; no other process ever had its id and its start."""
    task = read_task(pid)
    return f"automedbench-{pid}-{task.started if task else 0}"


def _remove_stale(base: Path) -> None:
    """Remove groups whose supervisors were killed, with what is left in them."""
    for folder in base.glob("automedbench-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and folder.name != _group_name(int(pid)):
            Group(folder).remove()


def _delegate(base: Path, root: Path) -> None:
    """Let children of ``base`` have limits; raises OSError where that is not permitted."""
    if {"memory", "pids"} <= set((base / "cgroup.subtree_control").read_text().split()):
        return
    if not os.access(base / "cgroup.subtree_control", os.W_OK) or base == root:
        raise PermissionError(f"{base} is not delegated")
    leaf = base / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in (base / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(pid)
    (base / "cgroup.subtree_control").write_text("+memory +pids")


def _read_membership(file: Path) -> list[list[str]]:
    try:
        lines = [line.split(":", 2) for line in file.read_text().splitlines()]
    except OSError:
        return []
    return [line for line in lines if len(line) == 3]


def _read_oom_kills(file: Path) -> int:
    try:
        counts = dict(line.split(maxsplit=1) for line in file.read_text().splitlines() if " " in line)
        return int(counts.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def _read_limits(root: Path, path: str, name: str) -> list[int]:
    folder, found = root / path.lstrip("/"), []
    for place in (folder, *folder.parents):
        if not place.is_relative_to(root):
            break
        try:
            found.append(int((place / name).read_text()))
        except (OSError, ValueError):
            continue
    return found
