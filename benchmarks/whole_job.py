"""Measuring commands from their start to their end, interleaved: wall time, user time, largest resident set.

A child's ``ru_maxrss`` begins with what its parent holds when it forks, so commands measured by a program that has
loaded volumes would all look large. This file, run as a program, is the small parent: it imports the standard library
only, reads the commands from its input and prints what each run cost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from side_by_side import Measurement

Cost = tuple[float, float, int]
"""Wall seconds, user seconds, largest resident set in KiB."""


def measure_jobs(
    commands: Mapping[str, Sequence[str]], rounds: int, *, once_above_s: float = 5.0
) -> dict[str, Measurement]:
    """Medians of every command after one warm-up; one whose warm-up takes longer than the limit is not repeated.

    ``peak_mib`` is the whole process, Python and its libraries included. Raises SystemExit when a command fails.
    """
    import statistics

    from side_by_side import Measurement

    order = json.dumps({"commands": list(commands.values()), "rounds": rounds, "once_above_s": once_above_s})
    done = subprocess.run(
        [sys.executable, "-IS", str(Path(__file__).resolve())],
        input=order,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit("a whole job failed")
    costs: list[list[Cost]] = json.loads(done.stdout)
    return {
        name: Measurement(
            1000 * statistics.median(wall for wall, _, _ in runs),
            1000 * statistics.median(user for _, user, _ in runs),
            statistics.median(peak for _, _, peak in runs) / 1024,
            len(runs),
        )
        for name, runs in zip(commands, costs, strict=True)
    }


def _run(command: Sequence[str]) -> Cost:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}")
    return time.perf_counter() - start, usage.ru_utime, usage.ru_maxrss


def main() -> None:
    """Run the commands that the input lists, print their costs as JSON."""
    order = json.load(sys.stdin)
    commands = order["commands"]
    warm_up = [_run(command) for command in commands]
    costs = [[cost] if cost[0] > order["once_above_s"] else [] for cost in warm_up]
    repeated = [number for number, cost in enumerate(costs) if not cost]
    for _ in range(order["rounds"]):
        for number in repeated:
            costs[number].append(_run(commands[number]))
    json.dump(costs, sys.stdout)


if __name__ == "__main__":
    main()
