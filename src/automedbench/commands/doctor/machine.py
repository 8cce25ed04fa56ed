"""Probes of the machine: Python, limits, memory, disks, clock, tools."""

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
from automedbench.commands._host import NETWORK_FILE_SYSTEMS, existing, file_system, read_lines, run_program
from automedbench.commands.doctor.examine import Host, ProbeResult, ProbeResults, fail, ok, warn
from automedbench.sandbox.container import cgroup
from automedbench.sandbox.container.scratch import why_no_scratch
from automedbench.sandbox.evidence import trace_filter
from automedbench.sandbox.evidence.trace import Trace

GIB = 2**30
MEMBERSHIP = Path("/proc/self/cgroup")
WANTED_FREE_BYTES = {"temporary files": 10 * GIB, "results": 20 * GIB}
SKEW_S = 5.0
LOOK_S = 0.2
"""How long the clock is looked at; NTP that slews changes it by less than a thousandth of that."""


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
    missing, other = [], []
    for name, pinned in wanted.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if found != pinned:
            other.append(f"{name} {found} (pinned: {pinned})")
    if missing:
        yield fail("python", f"{len(missing)} packages are missing: {_few(missing)}", "Run `make setup`.")
    if other:
        yield warn("python", f"{len(other)} packages are of another version: {_few(other)}", "Run `make setup`.")
    if not missing and not other:
        yield ok("python", f"{version}, {len(wanted)} packages as pinned")


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
    if _only_version_1():
        fix = "Boot with systemd.unified_cgroup_hierarchy=1; until then limits of calls are polled twice a second."
        yield warn("cgroups", "are of version 1 only: no limit can be delegated to a run", fix)
    if limit is not None:
        yield ok("memory", f"limited to {limit / GIB:.1f} GiB by the cgroup of this session or job")
        return
    fix = "Run campaigns as Slurm jobs with --mem, or start Snakemake in `systemd-run --user --scope -p MemoryMax=…`."
    yield warn("memory", "no limit: agent code can use all memory of this machine", fix)


def _only_version_1() -> bool:
    lines = read_lines(MEMBERSHIP)
    return bool(lines) and not any(line.startswith("0::") for line in lines)


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
        yield fail("temporary files", *problem.split("\n"))
        return
    places = {"temporary files": Path(tempfile.gettempdir()), "results": existing(host.results)}
    for name, path in places.items():
        free, kind = shutil.disk_usage(path).free, file_system(path)
        text = f"{free / GIB:.0f} GiB are free on {kind} ({path})"
        if not os.access(path, os.W_OK):
            yield fail(name, f"{path} cannot be written by this user", "Fix its permissions or choose another folder.")
        elif free < WANTED_FREE_BYTES[name]:
            yield warn(name, text, f"Free space: a campaign needs {WANTED_FREE_BYTES[name] / GIB:.0f} GiB at least.")
        else:
            yield ok(name, text)
    temporary = places["temporary files"]
    if file_system(temporary) in NETWORK_FILE_SYSTEMS:
        fix = "Set TMPDIR to a disk of this machine: containers and sockets of runs live there."
        yield warn("temporary files", f"{temporary} lies on a network file system", fix)
    yield from _leases(places["results"])


def _leases(results: Path) -> Iterator[ProbeResult]:
    """Make and drop a real lease where the runs' leases will be."""
    kind = file_system(results)
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


def clock(host: Host) -> ProbeResults:
    """This machine's time against the file server's, and against common sense."""
    present = datetime.now(UTC)
    if not 2024 <= present.year < 2100:
        yield fail("clock", f"says {present:%Y-%m-%d}", "Set the clock (NTP): TLS and leases depend on it.")
        return
    folder = existing(host.results)
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as stream:
        before, ahead = time.time(), time.time() - time.monotonic()
        os.utime(stream.name)
        skew = os.stat(stream.name).st_mtime - before
    time.sleep(LOOK_S)
    jump = time.time() - time.monotonic() - ahead
    if abs(jump) > LOOK_S:
        fix = "Let NTP slew it, not step. Budgets and leases go by another clock; times in records will be wrong."
        yield warn("clock", f"jumped by {jump:+.1f} s within {LOOK_S} s", fix)
    elif abs(skew) > SKEW_S:
        fix = "Synchronise this machine and the file server (NTP)."
        yield warn("clock", f"differs by {skew:+.0f} s from the file server of {folder}", fix)
    else:
        zone = present.astimezone().tzname()
        yield ok("clock", f"{present:%Y-%m-%d %H:%M} UTC (local zone {zone}), as the file server of {folder}")


def _few(names: list[str], shown: int = 4) -> str:
    return ", ".join(names[:shown]) + f" and {len(names) - shown} more" * (len(names) > shown)
