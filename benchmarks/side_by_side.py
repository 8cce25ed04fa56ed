"""Measuring candidates beside one another: interleaved rounds, medians, peak memory, one Markdown table.

Candidates take no argument and return a value; the first is ours. Trust ratios within a table, not milliseconds. Peak
memory is the growth of the resident set during one call in a forked child (Linux).
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Candidate = Callable[[], Any]


@dataclass(frozen=True)
class Measurement:
    """Medians of one candidate."""

    wall_ms: float
    user_ms: float
    peak_mib: float
    rounds: int


def measure(candidates: Mapping[str, Candidate], rounds: int, *, once_above_s: float = 20.0) -> dict[str, Measurement]:
    """Medians of every candidate after one warm-up; one whose warm-up takes longer than the limit is not repeated."""
    memory = {name: peak_mib(candidate) for name, candidate in candidates.items()}
    wall: dict[str, list[float]] = {name: [] for name in candidates}
    user: dict[str, list[float]] = {name: [] for name in candidates}
    slow: set[str] = set()
    for number in range(rounds + 1):
        for name, candidate in candidates.items():
            if name in slow:
                continue
            spent, cpu = _timed(candidate)
            if number == 0 and spent > once_above_s:
                slow.add(name)
            if number or name in slow:
                wall[name].append(spent)
                user[name].append(cpu)
    return {
        name: Measurement(
            1000 * statistics.median(wall[name]), 1000 * statistics.median(user[name]), memory[name], len(wall[name])
        )
        for name in candidates
    }


def _timed(candidate: Candidate) -> tuple[float, float]:
    before, start = _user_s(), time.perf_counter()
    candidate()
    return time.perf_counter() - start, _user_s() - before


def _user_s() -> float:
    """Processor time of this process so far, without the system's share."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def peak_mib(candidate: Candidate) -> float:
    """Growth of the resident set's high-water mark during one call, in MiB."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(sender, candidate))
    child.start()
    sender.close()  # a candidate that fails ends the wait
    found = float(receiver.recv())
    child.join()
    return found


def _measure(sender: Any, candidate: Candidate) -> None:
    # A fork inherits its parent's mark; writing 5 resets it to the present size.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    candidate()
    sender.send((_status("VmHWM") - before) / 1024)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1])


def table(measured: Mapping[str, Measurement]) -> str:
    """Markdown: one row per candidate, ratios to the first."""
    ours = next(iter(measured.values()))
    rows = [_row(name, each, ours) for name, each in measured.items()]
    return "\n".join(["| | ms | ÷ ours | user ÷ ours | peak MiB |", "|---|---|---|---|---|", *rows])


def _row(name: str, each: Measurement, ours: Measurement) -> str:
    label = name if each.rounds > 1 else f"{name} (once)"
    # Below a millisecond the clock of processor time says nothing.
    user = f"{each.user_ms / ours.user_ms:.1f}" if ours.user_ms >= 1 else "–"
    return f"| {label} | {each.wall_ms:.0f} | {each.wall_ms / ours.wall_ms:.1f} | {user} | {each.peak_mib:.0f} |"
