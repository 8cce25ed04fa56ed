"""Limits kept by looking at a process tree from outside."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from unprivileged import as_user, has_user

from automedbench.sandbox.container import cgroup, scratch, watchdog
from automedbench.sandbox.container.tree import descendants
from automedbench.sandbox.container.watchdog import Breach, Limit, Watchdog, measure_tree, proportional_memory, usage

MIB = 1024 * 1024


@contextmanager
def tree(code: str) -> Iterator[int]:
    """Process id of a parent that waits while Python code runs in its child; the child says when it is ready."""
    program = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])"
    waiting = f"{code}\nimport time\nprint('ready', flush=True)\ntime.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", program, waiting], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        yield parent.pid
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def looked(folders: list[str], limit: Limit, root: int) -> Breach | None:
    dog = Watchdog(folders, limit)
    return dog.tree(root) or dog.disk(root)


def look(code: str, limit: Limit) -> Breach | None:
    with tree(code) as root:
        return looked([], limit, root)


def test_a_process_without_children() -> None:
    assert descendants(os.getpid()) == [] or all(pid != os.getpid() for pid in descendants(os.getpid()))
    assert measure_tree([]).memory == 0


def test_descendants_of_descendants() -> None:
    with tree("import subprocess\np = subprocess.Popen(['sleep', '60'])") as root:
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in descendants(root)}
    assert len(names) == 2
    assert "sleep" in names


# MiB of the code's own; an interpreter needs some 10 more.
MEMORY = {
    "private": ("b = bytearray(100 << 20)", 100),
    "shared-anonymous": ("import mmap\nm = mmap.mmap(-1, 100 << 20)\nm.write(bytes(100 << 20))", 100),
    "reserved-only": ("import mmap\nm = mmap.mmap(-1, 4 << 30)", 0),
    "mapped-file": (
        "import mmap, tempfile\nf = tempfile.TemporaryFile(dir='/var/tmp')\nf.truncate(100 << 20)\n"
        "m = mmap.mmap(f.fileno(), 100 << 20)\nm.write(b'x' * (100 << 20))",
        0,
    ),
}


@pytest.mark.parametrize(("code", "expected"), MEMORY.values(), ids=MEMORY)
def test_memory_of_a_tree(code: str, expected: int) -> None:
    with tree(code) as root:
        found = measure_tree(descendants(root)).memory / MIB
    assert expected <= found <= expected + 40


def test_pages_of_forked_processes_count_once() -> None:
    code = "import os, time\nb = bytearray(100 << 20)\nfor _ in range(4):\n  if os.fork() == 0: time.sleep(60)"
    with tree(code) as root:
        pids = descendants(root)
        assert measure_tree(pids).memory > 450 * MIB
        assert 100 * MIB < proportional_memory(pids, 0) < 180 * MIB
        assert looked([], Limit(memory=300_000_000), root) is None


def test_over_the_memory_limit_the_call_ends_at_once() -> None:
    stop = look("b = bytearray(200 << 20)", Limit(memory=100_000_000))
    assert stop is not None
    assert stop.at_once
    assert "the limit is 0.1 GB" in stop.reason


def test_without_limits_nothing_ends() -> None:
    assert look("b = bytearray(200 << 20)", Limit()) is None


def test_threads_count_as_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    code = f"import threading, time\nfor _ in range(30): {start}"
    assert look(code, Limit(processes=40)) is None
    monkeypatch.setattr(watchdog, "RUNTIME_TASKS", 0)
    stop = look(code, Limit(processes=20))
    assert stop is not None
    assert stop.reason == "process limit: there are more than 20 processes and threads"


def test_disk(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_bytes(b"x" * 3_000_000)
    os.truncate(os.open(tmp_path / "sparse", os.O_WRONLY | os.O_CREAT), 10**12)
    size, entries, hidden = usage(tmp_path)
    assert 3_000_000 <= size < 3_200_000
    assert (entries, hidden) == (4, "")
    stop = looked([str(tmp_path)], Limit(disk=2_000_000), os.getpid())
    assert stop is not None
    assert (stop.reason.startswith("disk limit: the workspace holds 0.003"), stop.at_once) == (True, False)


def test_deleted_files_that_are_still_open_count_as_disk() -> None:
    code = "import tempfile\nf = tempfile.TemporaryFile(dir='/var/tmp')\nf.write(b'x' * 5_000_000)\nf.flush()"
    assert look(code, Limit(disk=10**9)) is None
    with tree(code) as root:
        stop = looked(["/nonexistent"], Limit(disk=4_000_000), root)
    assert stop is not None
    assert "disk limit" in stop.reason


def test_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MAX_ENTRIES", 10)
    for index in range(11):
        (tmp_path / str(index)).touch()
    stop = looked([str(tmp_path)], Limit(), os.getpid())
    assert stop is not None
    assert stop.reason == "disk limit: the workspace holds 11 files, the limit is 10"


def test_a_look_that_takes_long_comes_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 2 s of this clock, and twenty times as long passes before the next one; 5 s if that is the longest."""
    now, looks, told = [0.0], [], list[Breach]()
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watchdog.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    def look(_root: int) -> Breach | None:
        looks.append(now[0])
        now[0] += 2
        return Breach("too much") if len(looks) == 3 else None

    watchdog.repeat(look, 1, told.append, 60.0)
    assert (looks, told) == ([0.0, 42.0, 84.0], [Breach("too much")])
    now[0], told[:], looks[:] = 0.0, [], []
    watchdog.repeat(look, 1, told.append, 5.0)
    assert looks == [0.0, 7.0, 14.0]


def test_what_cannot_be_listed_or_named_is_counted(tmp_path: Path) -> None:
    """Folders of mode 0300 and 000, and paths longer than the kernel takes (4096 bytes, limits.h)."""
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("x" * 200, dir_fd=at)
        below = os.open("x" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.write(os.open("deep", os.O_WRONLY | os.O_CREAT, dir_fd=at), b"x" * 1_000_000)
    for mode in (0o300, 0o000):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        (folder / "big").write_bytes(b"x" * 1_000_000)
        folder.chmod(mode)
    done = usage(tmp_path)
    assert 3_000_000 <= done.size < 3_500_000
    assert (done.entries, done.hidden) == (30 + 1 + 2 + 2, "")


def test_what_a_look_cannot_reach_ends_the_container(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(scratch.MAX_DEPTH + 1):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    breach = looked([str(tmp_path)], Limit(), os.getpid())
    assert breach is not None
    assert breach.reason.endswith("cannot be counted: folders are nested deeper than 500 levels")


def hidden_process() -> int:
    """Memory in MiB."""
    code = "import ctypes, os\nb = bytearray(100 << 20)\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"
    with tree(code) as root:
        return proportional_memory(descendants(root), 0) // MIB


def test_a_process_that_cannot_be_looked_into_is_counted_as_far_as_it_shows() -> None:
    """Root may look into every process, so the test becomes another user."""
    if not has_user():
        pytest.skip("no ordinary user to become (tests/setup/user.sh add)")
    assert 100 <= as_user(hidden_process) < 140


def test_modes_of_a_workspace_are_repaired_without_leaving_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o400)
    workspace = tmp_path / "workspace"
    (workspace / "a").mkdir(parents=True)
    (workspace / "a/file").write_text("x")
    (workspace / "a/link").symlink_to(outside)
    for path in (workspace / "a/file", workspace / "a", workspace):
        path.chmod(0)
    scratch.repair_modes(workspace)
    modes = [stat.S_IMODE(path.lstat().st_mode) for path in (workspace, workspace / "a", workspace / "a/file", outside)]
    assert modes == [0o700, 0o700, 0o400, 0o400]
    scratch.repair_modes(tmp_path / "none")


CGROUP = {
    "cgroup.controllers": "cpu memory pids\n",
    "job/cgroup.subtree_control": "memory pids\n",
    "job/cgroup.procs": "",
    "job/automedbench-driver/cgroup.procs": "",
}


def test_a_delegated_cgroup_gets_a_child_with_limits(tmp_path: Path) -> None:
    """A tree as the kernel shows it (cgroups(7)); where nothing is delegated there is none.

    What killed supervisors left behind goes, one whose process id was given to another one too.
    """
    for name, text in CGROUP.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    membership = tmp_path / "membership"
    membership.write_text("0::/job/automedbench-driver\n")
    own, parent = (cgroup._group_name(pid) for pid in (os.getpid(), os.getppid()))
    killed = ["automedbench-4194399-17", f"{own}7"]
    for name in (*killed, parent, "automedbench-notes"):
        (tmp_path / "job" / name).mkdir()
    group = cgroup.make_group(10**9, None, tmp_path, membership)
    assert group is not None
    assert group.folder == tmp_path / "job" / own
    left = {name: (tmp_path / "job" / name).exists() for name in (*killed, parent, "automedbench-notes")}
    assert left == {killed[0]: False, killed[1]: False, parent: True, "automedbench-notes": True}
    written = {name: (group.folder / name).read_text() for name in ("memory.max", "pids.max", "memory.oom.group")}
    assert written == {"memory.max": "1000000000", "pids.max": "max", "memory.oom.group": "1"}
    (group.folder / "memory.events").write_text("max 3\noom_kill 2\n")
    assert group.oom_kills == 2
    shutil.rmtree(group.folder)
    (tmp_path / "job/cgroup.subtree_control").unlink()
    assert cgroup.make_group(10**9, None, tmp_path, membership) is None
    assert cgroup.make_group(10**9, None, tmp_path / "none", membership) is None


GB = 10**9
ROOM = {  # free at the start, free then, held by the workspace and by all: what is said of it; a disk of 100 GB
    "plenty": (50, 40, 0, 0, ""),
    "its archive would not fit": (50, 21, 20, 20, "disk limit: the workspace holds up to 20 GB"),
    "small, and others fill": (50, 1.5, 1, 1, ""),
    "filled by it": (50, 0.5, 1, 30, "disk limit: the disk has 0.5 GB left"),
    "filled by others": (50, 0.5, 1, 1, "disk full: 0.5 GB are free"),
    "little was free, half of it taken": (2.2, 0.9, 0, 0.7, "disk limit: the disk has 0.9 GB left"),
}


@pytest.mark.parametrize(("begin", "free", "kept", "held", "reason"), ROOM.values(), ids=ROOM)
def test_who_fills_the_disk(
    begin: float, free: float, kept: float, held: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [begin]
    monkeypatch.setattr(watchdog, "measure_space", lambda _: watchdog.Space(int(now[0] * GB), 2 * GB))
    dog = Watchdog(["workspace"], Limit(), home="home")
    now[0] = free
    spaces = dict.fromkeys(("home", "workspace"), watchdog.Space(int(free * GB), 0))
    dog._seen = watchdog.HeldBytes(int(kept * GB), int(held * GB), spaces)
    breach = dog.room(0)
    assert (dog.blame(breach) if breach else "").startswith(reason) and bool(breach) == bool(reason)


def test_names_and_headers_count_as_disk(tmp_path: Path) -> None:
    """Of an empty file an archive holds three blocks of 512 bytes, and its path."""
    for number in range(100):
        (tmp_path / f"{number:0200d}").touch()
    assert 100 * (1536 + 200) <= usage(tmp_path).size < 100 * (1536 + 200) + 100_000
