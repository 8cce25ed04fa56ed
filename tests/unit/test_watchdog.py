"""Limits kept by looking at a process tree from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from automedbench.base.cards import Limits
from automedbench.sandbox.container import watchdog
from automedbench.sandbox.container.supervisor import descendants
from automedbench.sandbox.container.watchdog import Watchdog, proportional_memory, usage, usage_of

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


def look(code: str, **limits: float | int | None) -> object:
    with tree(code) as root:
        return Watchdog([], Limits(**limits))(root)  # type: ignore[arg-type]


def test_a_process_without_children() -> None:
    assert descendants(os.getpid()) == [] or all(pid != os.getpid() for pid in descendants(os.getpid()))
    assert usage_of([]).memory == 0


def test_descendants_of_descendants() -> None:
    with tree("import subprocess\np = subprocess.Popen(['sleep', '60'])") as root:
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in descendants(root)}
    assert len(names) == 2
    assert "sleep" in names


# MiB of the code's own; an interpreter needs some 10 more.
MEMORY = {
    "private": ("b = bytearray(100 << 20)", 100),
    "shared-anonymous": ("import mmap\nm = mmap.mmap(-1, 100 << 20)\nm.write(bytes(100 << 20))", 100),
    "memory-file-unmapped": (
        "import os\nf = os.memfd_create('x')\nfor _ in range(100): os.write(f, bytes(1 << 20))",
        100,
    ),
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
        found = usage_of(descendants(root)).memory / MIB
    assert expected <= found <= expected + 40


def test_pages_of_forked_processes_count_once() -> None:
    code = "import os, time\nb = bytearray(100 << 20)\nfor _ in range(4):\n  if os.fork() == 0: time.sleep(60)"
    with tree(code) as root:
        pids = descendants(root)
        upper = usage_of(pids)
        assert upper.memory > 450 * MIB
        assert 100 * MIB < proportional_memory(pids, upper) < 180 * MIB
        assert Watchdog([], Limits(mem_gb=0.3))(root) is None


def test_over_the_memory_limit_the_call_ends_at_once() -> None:
    stop = look("b = bytearray(200 << 20)", mem_gb=0.1)
    assert stop is not None
    assert stop.at_once  # type: ignore[attr-defined]
    assert "the limit is 0.1 GB" in stop.reason  # type: ignore[attr-defined]


def test_without_limits_nothing_ends() -> None:
    assert look("b = bytearray(200 << 20)", mem_gb=None, max_processes=None) is None


def test_threads_count_as_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    code = f"import threading, time\nfor _ in range(30): {start}"
    assert look(code, max_processes=40) is None
    monkeypatch.setattr(watchdog, "RUNTIME_TASKS", 0)
    stop = look(code, max_processes=20)
    assert stop is not None
    assert stop.reason == "process limit: the call has more than 20 processes and threads"  # type: ignore[attr-defined]


def test_disk(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_bytes(b"x" * 3_000_000)
    os.truncate(os.open(tmp_path / "sparse", os.O_WRONLY | os.O_CREAT), 10**12)
    size, entries = usage(tmp_path)
    assert 3_000_000 <= size < 3_200_000
    assert entries == 4
    stop = Watchdog([tmp_path], Limits(disk_gb=0.002))(os.getpid())
    assert stop is not None
    assert (stop.reason.startswith("disk limit: the workspace holds 0.003"), stop.at_once) == (True, False)


def test_deleted_files_that_are_still_open_count_as_disk() -> None:
    code = "import tempfile\nf = tempfile.TemporaryFile(dir='/var/tmp')\nf.write(b'x' * 5_000_000)\nf.flush()"
    assert look(code, disk_gb=1) is None
    with tree(code) as root:
        stop = Watchdog([Path("/nonexistent")], Limits(disk_gb=0.004))(root)
    assert stop is not None
    assert "disk limit" in stop.reason


def test_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MAX_ENTRIES", 10)
    for index in range(11):
        (tmp_path / str(index)).touch()
    stop = Watchdog([tmp_path], Limits())(os.getpid())
    assert stop is not None
    assert stop.reason == "disk limit: the workspace holds 11 files, the limit is 10"


def test_a_look_that_takes_long_comes_less_often(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: float(next(clock)))
    looks: list[Path] = []

    def counted(folder: Path) -> tuple[int, int]:
        looks.append(folder)
        return 0, 0

    monkeypatch.setattr(watchdog, "usage", counted)
    dog = Watchdog([tmp_path], Limits())
    for _ in range(100):
        dog(os.getpid())
    # A look takes one second of this clock, and twenty pass before the next one.
    assert 2 <= len(looks) <= 100 // 10
