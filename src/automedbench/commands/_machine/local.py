"""Probes of this machine: Python, limits, memory, disks, files, clock."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from automedbench.agent.durable.lease import hold_lease
from automedbench.base.errors import InfrastructureError
from automedbench.commands._machine.examine import Host, ProbeResult, ProbeResults, fail, ok, result_of_error, warn
from automedbench.commands._machine.host import (
    NETWORK_FILE_SYSTEMS,
    nearest_folder,
    read_folder,
    read_lines,
    run_program,
)
from automedbench.commands._machine.profile import slurm_profile
from automedbench.sandbox.container import cgroup
from automedbench.sandbox.container.scratch import why_no_scratch
from automedbench.sandbox.evidence import trace_filter
from automedbench.sandbox.evidence.trace import Trace

GIB = 2**30
MEMBERSHIP = Path("/proc/self/cgroup")
WANTED_FREE_BYTES = {"temporary files": 10 * GIB, "results": 20 * GIB}
SKEW_S = 5.0


def python(host: Host) -> ProbeResults:
    """Version of Python, and of every pinned package."""
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 15):
        yield fail("python", f"is {version}", "Use Python 3.11 to 3.14: `make setup` makes an environment.")
    pins = host.root / "envs" / "host.txt"
    if not pins.is_file():
        yield warn("python", f"{version}; no {pins} to compare with", "Run the doctor in the repository's folder.")
        return
    wanted = dict(line.split("==", 1) for line in pins.read_text().split() if "==" in line)
    other = [f"{name} {pinned}" for name, pinned in wanted.items() if _installed(name) != pinned]
    if other:
        yield warn("python", f"{len(other)} pinned packages are not installed: {_few(other)}", "Run `make setup`.")
    else:
        yield ok("python", f"{version}, {len(wanted)} packages as pinned")


def _installed(name: str) -> str:
    """Version of a package here; empty without it."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return ""


def limits(host: Host) -> ProbeResults:
    """Limits of this shell and of the kernel that code calls, decoys and data loaders of agents meet."""
    low = [
        f"{name} {value:,} (wanted: {wanted:,})"
        for name, (read, wanted) in WANTED.items()
        if (value := read()) < wanted
    ]
    if low:
        fix = "Raise them (limits.conf, sysctl fs.inotify, mount -o remount,size=…), or run fewer agents at a time."
        yield warn("limits", f"lower than wanted: {', '.join(low)}", fix)
    else:
        yield ok("limits", f"{', '.join(WANTED)} are as wanted")


def _hard(name: str) -> int:
    """A hard limit of this shell: those of code calls cannot be higher."""
    value = resource.getrlimit(getattr(resource, name))[1]
    return sys.maxsize if value == resource.RLIM_INFINITY else value


def _inotify(name: str) -> int:
    """Inotify instances for the decoys, one per run."""
    return int(next(iter(read_lines(Path("/proc/sys/fs/inotify") / name)), "0"))


def _shared_memory() -> int:
    """Free bytes of /dev/shm, which data loaders of agents use."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage("/dev/shm").free
    return 0


WANTED: dict[str, tuple[Callable[[], int], int]] = {
    "RLIMIT_NOFILE": (functools.partial(_hard, "RLIMIT_NOFILE"), 16_384),
    "RLIMIT_NPROC": (functools.partial(_hard, "RLIMIT_NPROC"), 4096),
    "RLIMIT_FSIZE": (functools.partial(_hard, "RLIMIT_FSIZE"), 50 * 10**9),
    "RLIMIT_AS": (functools.partial(_hard, "RLIMIT_AS"), sys.maxsize),  # CUDA and numpy need it unlimited
    "fs.inotify.max_user_instances": (functools.partial(_inotify, "max_user_instances"), 64),
    "fs.inotify.max_user_watches": (functools.partial(_inotify, "max_user_watches"), 8192),
    "bytes in /dev/shm": (_shared_memory, 4 * GIB),
}
"""Limit → how it is read, and what code calls should get (docs/specification.md, 9.2)."""


def memory_limit(host: Host) -> ProbeResults:
    """Memory limit of this process's cgroup, as a Slurm job has it."""
    limit = cgroup.memory_limit()
    groups = read_lines(MEMBERSHIP)
    if groups and not any(line.startswith("0::") for line in groups):
        fix = "Boot with systemd.unified_cgroup_hierarchy=1; until then limits of calls are polled twice a second."
        yield warn("cgroups", "are of version 1 only: no limit can be delegated to a run", fix)
    if limit is not None:
        yield ok("memory", f"limited to {limit / GIB:.1f} GiB by the cgroup of this session or job")
        return
    if profile := slurm_profile(host):
        yield ok("memory", f"no limit here; runs are Slurm jobs, which have their own ({profile.path})")
        return
    fix = "Run campaigns as Slurm jobs with --mem, or start Snakemake in `systemd-run --user --scope -p MemoryMax=…`."
    yield warn("memory", "no limit: agent code can use all memory of this machine", fix)


def trace(host: Host) -> ProbeResults:
    """Check that the kernel reports opened files (seccomp user notification, Linux 5.5)."""
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder, Trace(Path(folder)) as tried:
        behind = [sys.executable, "-I", "-S", trace_filter.__file__, str(tried.expect())]
        run_program([*behind, "cat", "/data/private/doctor"])
        works = bool(tried.take().acts)
    if works:
        yield ok("trace", "the kernel tells of what agent code opens, executes and connects to")
    else:
        fix = "Use Linux 5.5 or newer with seccomp; without it runs go on, and `trace: false` stands in their records."
        yield warn("trace", f"Linux {os.uname().release} gives no trace of system calls", fix)


def disks(host: Host) -> ProbeResults:
    """Free space and kind of file system of temporary files and results; leases on the latter."""
    if problem := why_no_scratch():
        yield result_of_error("temporary files", problem)
        return
    results = nearest_folder(host.results)
    for name, path in {"temporary files": Path(tempfile.gettempdir()), "results": results}.items():
        folder, wanted = read_folder(path), WANTED_FREE_BYTES[name]
        text = f"{folder.free_bytes / GIB:.0f} GiB are free on {folder.kind} ({path})"
        if not os.access(path, os.W_OK):
            where = "TMPDIR" if name == "temporary files" else "results"
            yield fail(name, f"{path} cannot be written by this user", f"Set {where} to a folder that it can write.")
        elif folder.free_bytes < wanted:
            yield warn(name, text, f"Free space: a campaign needs {wanted / GIB:.0f} GiB at least.")
        else:
            yield ok(name, text)
        if name == "temporary files" and folder.kind in NETWORK_FILE_SYSTEMS:
            fix = "Set TMPDIR to a disk of this machine: containers and sockets of runs live there."
            yield warn(name, f"{path} lies on a network file system", fix)
    if os.access(results, os.W_OK):
        yield from _leases(results, folder.kind)


def _leases(results: Path, kind: str) -> Iterator[ProbeResult]:
    """Make and drop a real lease where the runs' leases will be."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".doctor-", dir=results) as name,
            hold_lease(Path(name) / "lease.json", 0, say=lambda _text: None),
        ):
            pass
    except (InfrastructureError, OSError) as error:
        fix = "Leases need hard links: put 'results' on another file system."
        yield fail("leases", f"no lease can be held in {results}: {error}", fix)
        return
    if kind in NETWORK_FILE_SYSTEMS:
        fix = "Keep attribute caching of this mount at 60 s or less (acregmax, acdirmax), and locking on."
        yield warn("leases", f"{results} lies on {kind}: a run's lease is seen by other nodes with a delay", fix)
    else:
        yield ok("leases", f"can be held in {results}")


# --- files ---


FILES_PER_RUN = 60
"""Files and folders that a finished run leaves: of the run, its logs, and Snakemake's notes on them, with some room."""
_MORE_FILES = "Ask for more, take another folder for `results`, or make room: `automedbench prune --what workspaces`."


def room(host: Host) -> ProbeResults:
    """Inodes against the files that the campaign's runs make."""
    place, free = nearest_folder(host.results), read_folder(host.results).free_files
    needed = FILES_PER_RUN * (len(host.campaign.runs) if host.campaign else 0)
    if free is not None:
        yield _files(f"{free:,} files can be made on the file system of {place}", free, needed)


def _files(text: str, left: int, needed: int) -> ProbeResult:
    if not left:
        return fail("files", text, _MORE_FILES)
    if needed > left:
        return warn("files", f"{text}; the campaign's runs make about {needed:,}", _MORE_FILES)
    return ok("files", f"{text}; the campaign's runs make about {needed:,}" if needed else text)


# --- clock ---


def clock(host: Host) -> ProbeResults:
    """This machine's time against the file server's."""
    folder = nearest_folder(host.results)
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as stream:
        before = time.time()
        os.utime(stream.name)
        skew = os.stat(stream.name).st_mtime - before
    if abs(skew) > SKEW_S:
        fix = "Synchronise this machine and the file server (NTP)."
        yield warn("clock", f"differs by {skew:+.0f} s from the file server of {folder}", fix)
    else:
        yield ok("clock", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, as the file server of {folder}")


def _few(names: list[str], shown: int = 4) -> str:
    return ", ".join(names[:shown]) + f" and {len(names) - shown} more" * (len(names) > shown)
