"""Machine usage of attempts: one file each beside the ledger's books, added to by every process that works on it.

``<results>/ledger/used/<run>+<attempt>.json`` lists *shifts*: one process's work on the attempt. Its reading is written
at its start, once a minute and at its end, so that a killed one loses a minute at most.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import os
import platform
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

import pydantic

from automedbench.base.errors import AutoMedBenchError
from automedbench.base.files import known_record, write_record
from automedbench.base.plaintable import counted
from automedbench.base.records import Model, Used, now
from automedbench.sandbox.boxes import Sandbox
from automedbench.sandbox.container.gpus import driver_version
from automedbench.sandbox.container.tree import cpu_seconds

FOLDER = "ledger/used"
REFRESH_S = 60.0
PROCESS = "process"
NO_GPU, NO_LOAD = "no GPU was requested", "the driver reports no load"
OWN_TURNS = "the run's own turns: others may have computed meanwhile"
UNSEEN = "no call lasted until it was looked at"
KILLED = "process, a minute or less before it was killed"


class ProcessUsage(Model):
    """One process's work on an attempt."""

    began: datetime
    anew: bool = pydantic.Field(description="it made the attempt; what stands before is of an older one of this name")
    gpus: int = pydantic.Field(ge=0)
    share: int = pydantic.Field(1, ge=1, description="runs that had these, and one Slurm job, together")
    used: Used
    ended: bool = pydantic.Field(False, description="false: it still runs, or was killed")


class UsedBook(Model):
    """``ledger/used/<run>+<attempt>.json``: what an attempt took of machines."""

    schema_: Literal["automedbench/used/1"] = pydantic.Field("automedbench/used/1", alias="schema")
    run: str
    shifts: list[ProcessUsage]


@dataclass(frozen=True)
class ProcessStart:
    """Start of a process's work: for a reader, by the clock of this process, and by its CPU time."""

    at: datetime = field(default_factory=now)
    clock_s: float = field(default_factory=time.monotonic)
    cpu_s: float = field(default_factory=cpu_seconds)


@dataclass
class UsageRecorder:
    """The shift of this process; a context manager, within which its reading is written.

    ``check`` raises InfrastructureError when another process has taken over, whose file it is then. No fault of a
    figure ends a run: what cannot be written or read is left out.
    """

    results: Path | None
    """The campaign's folder; without one nothing is written."""
    run: str
    attempt: str
    anew: bool
    gpus: int
    share: int
    """Runs that have these GPUs in turn."""
    check: Callable[[], None]
    since: ProcessStart = field(default_factory=ProcessStart)
    sandbox: Sandbox | None = None
    """Once there is one."""

    def __post_init__(self) -> None:
        name = f"{self.run.replace('/', '+')}+{self.attempt}.json"
        self.path = self.results / FOLDER / name if self.results else None
        book = known_record(self.path, UsedBook) if self.path else None
        self._earlier = book.shifts if book else []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="timesheet", daemon=True)

    def __enter__(self) -> Self:
        self._write([*self._earlier, self._measure()])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._over.is_set():
            self._stop()
            self._write([*self._earlier, self._measure(ended=True)])

    def close(self) -> Used:
        """End the shift; return the sum of all shifts of the attempt."""
        self._stop()
        shifts = [*self._earlier, self._measure(ended=True)]
        self._write(shifts)
        return sum_usage(shifts)

    def _measure(self, *, ended: bool = False) -> ProcessUsage:
        box, gpus = self.sandbox, self.gpus
        lease_s, waited_s = (box and box.gpu_turns_s) or (None, None)
        peak, busy_s, idle_s = (box.peak_memory, box.gpu_busy_s, box.gpu_idle_s) if box else (None, None, None)
        looked = "cgroup, with cached files" if box and box.enforced.limits == "cgroup" else PROCESS
        held_s = time.monotonic() - self.since.clock_s
        busy_told_by = NO_GPU if not gpus else NO_LOAD if busy_s is None else "the cards' driver"
        idle_told_by = OWN_TURNS if busy_s is None and idle_s is not None else busy_told_by
        used = Used(
            held_s=round(held_s, 2),
            gpu_held_s=round(held_s * gpus / self.share, 2) if gpus else None,
            gpu_lease_s=lease_s if lease_s is None else round(lease_s, 2),
            gpu_waited_s=waited_s if waited_s is None else round(waited_s, 2),
            gpu_busy_s=busy_s if busy_s is None else round(busy_s, 2),
            gpu_idle_s=idle_s if idle_s is None else round(idle_s, 2),
            cpu_s=round(cpu_seconds() - self.since.cpu_s, 2),
            peak_memory_mib=max(1, peak // 2**20) if peak else None,
            nodes=[socket.gethostname()],
            jobs=[job] if (job := os.environ.get("SLURM_JOB_ID")) else [],
            gpu_models=box.enforced.gpu_names if box else [],
            machines=[_machine()],
            gpu_drivers=[version] if gpus and (version := driver_version()) else [],
            told_by={
                "held_s": PROCESS,
                "gpu_held_s": PROCESS if gpus else NO_GPU,
                "gpu_busy_s": busy_told_by,
                "gpu_idle_s": idle_told_by,
                "cpu_s": PROCESS,
                "peak_memory_mib": looked if peak else UNSEEN,
            },
        )
        return ProcessUsage(began=self.since.at, anew=self.anew, gpus=gpus, share=self.share, used=used, ended=ended)

    def _refresh(self) -> None:
        while not self._over.wait(REFRESH_S):
            self._write([*self._earlier, self._measure()])

    def _stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _write(self, shifts: Sequence[ProcessUsage]) -> None:
        with contextlib.suppress(AutoMedBenchError):
            self.check()
            if self.path is not None:
                write_record(self.path, UsedBook(run=self.run, shifts=list(shifts)))


@functools.cache
def _machine() -> str:
    """This node: processor, how many of them this process may use, memory of all of it."""
    model = re.search(r"^model name\s*:\s*(.*\S)", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    name = " ".join((model[1] if model else platform.machine()).split())
    memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
    return f"{name}, {counted(len(os.sched_getaffinity(0)), 'processor')}, {memory} GiB"


def _final_usage(usage: ProcessUsage) -> Used:
    """Final figures of a shift; of a killed process the last ones written, marked as such."""
    if usage.ended:
        return usage.used
    reported = {name: KILLED if by == PROCESS else by for name, by in usage.used.told_by.items()}
    return usage.used.model_copy(update={"told_by": reported})


def sum_usage(shifts: Sequence[ProcessUsage]) -> Used:
    """Sum the usage of an attempt's processes, at least one, since the attempt was made."""
    first = max((place for place, usage in enumerate(shifts) if usage.anew), default=0)
    return functools.reduce(operator.add, map(_final_usage, shifts[first:]))


def read_use(results: Path, gpus: int = 0) -> dict[str, Used]:
    """Run → what all shifts of its attempts took of machines; those with fewer than ``gpus`` GPUs are left out.

    Runs that shared the GPUs of a Slurm job are charged for its empty places too: with all that it held.
    """
    found: dict[str, Used] = {}
    books = (known_record(path, UsedBook) for path in sorted((results / FOLDER).glob("*.json")))
    shifts = [(book.run, usage) for book in filter(None, books) for usage in book.shifts if usage.gpus >= gpus]
    surcharges = _surcharges([usage for _, usage in shifts])
    for run, usage in shifts:
        used, job = _final_usage(usage), _shared_job(usage)
        if job and used.gpu_held_s:
            used = used.model_copy(update={"gpu_held_s": round(used.gpu_held_s * surcharges[job], 2)})
        found[run] = found[run] + used if run in found else used
    return found


def _shared_job(usage: ProcessUsage) -> str:
    return usage.used.jobs[-1] if usage.share > 1 and usage.used.jobs else ""


def _surcharges(shifts: Iterable[ProcessUsage]) -> dict[str, float]:
    """Job that runs shared → time for which it held its GPUs ÷ what its runs had of it with all places taken."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    places: dict[str, int] = {}
    for usage in shifts:
        if job := _shared_job(usage):
            spans[job].append((usage.began.timestamp(), usage.used.held_s or 0.0))
            places[job] = usage.share
    found = {}
    for job, each in spans.items():
        held_s, end = 0.0, -math.inf
        for began, lasted_s in sorted(each):
            held_s += max(0.0, began + lasted_s - max(end, began))
            end = max(end, began + lasted_s)
        found[job] = held_s * places[job] / (sum(lasted_s for _, lasted_s in each) or 1.0)
    return found
