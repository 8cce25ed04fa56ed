"""One process that does several steps: ``python together.py LIST``; nothing but the standard library is loaded.

The list holds commands, their order and what each waits for. The result of each is written down at once, a line each,
beside the list (``verdicts``): who waits for the steps need not wait for the process, and believes the lines more than
its end. A step that fails or takes the process with it costs the others nothing: those without a line were not begun.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import runpy
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

State = Literal["begun", "done", "failed"]
STRICT = "set -euo pipefail; "
"""What Snakemake puts before a shell command."""


@dataclass(frozen=True)
class Step:
    """One step of a list."""

    number: int
    """Snakemake's number of it."""
    command: str
    after: Sequence[int] = ()
    """Steps of the same list that must be done before."""
    inputs: Sequence[str] = ()
    """Files that must be there; on a network file system they can be seen late."""
    inside: bool = False
    """The command is a script of ours, which this process may run itself."""


@dataclass(frozen=True)
class StepList:
    """Steps that one process executes."""

    steps: Sequence[Step]
    wait_s: float = 0.0
    """Patience with inputs that cannot be seen yet."""
    begin_within_s: float | None = None
    """No step is begun later than this after the start: the Slurm job would end in the middle of it."""
    beside: int = 1
    """Steps at a time, of a list in which none waits for another."""


def write_list(path: Path, steps: StepList) -> None:
    """Write the list where a process on any node finds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(steps)))
    temporary.rename(path)


def read_list(path: Path) -> StepList:
    """The list at ``path``."""
    data = json.loads(path.read_text())
    steps = tuple(Step(**step) for step in data.pop("steps"))
    return StepList(steps, **data)


def verdict_path(path: Path) -> Path:
    """Path of the file where the process writes the results of a list's steps."""
    return path.with_suffix(".verdicts")


def read_verdicts(path: Path) -> dict[int, State]:
    """Results so far of the steps of the list at ``path``; an incomplete last line is skipped."""
    try:
        lines = verdict_path(path).read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    return {entry["step"]: entry["state"] for line in lines if line.endswith("\n") for entry in [json.loads(line)]}


def do_steps(path: Path) -> bool:
    """Do the steps of a list, until it is removed; True when all of them are done."""
    steps, verdicts = read_list(path), read_verdicts(path)
    last = time.monotonic() + (math.inf if steps.begin_within_s is None else steps.begin_within_s)
    done = {number for number, state in verdicts.items() if state == "done"}  # Slurm began the job again
    with open(verdict_path(path), "a", buffering=1) as lines:

        def record(step: Step, state: State) -> None:
            lines.write(json.dumps({"step": step.number, "state": state}) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
            done.update({step.number} if state == "done" else ())

        if steps.beside > 1:
            left = deque(step for step in steps.steps if verdicts.get(step.number) not in ("done", "failed"))
            _do_beside(steps, left, record, lambda: _is_wanted(path) and time.monotonic() <= last)
            return len(done) == len(steps.steps)
        for step in steps.steps:
            if not _is_wanted(path):
                break
            if time.monotonic() > last or step.number in done or not done.issuperset(step.after):
                continue
            record(step, "begun")
            _wait_for(step.inputs, steps.wait_s)
            code = _run_inside(step.command) if step.inside else _run_in_shell(step.command)
            if code > 128:  # a signal ended it; whether it is begun again is for others to decide
                break
            record(step, "failed" if code else "done")
    return len(done) == len(steps.steps)


def _is_wanted(path: Path) -> bool:
    """Return whether the list is still there; opened, as a network file system looks anew only then."""
    try:
        path.open().close()
    except FileNotFoundError:
        return False
    return True


def _do_beside(
    steps: StepList, waiting: deque[Step], record: Callable[[Step, State], None], goes_on: Callable[[], bool]
) -> None:
    """Do steps at the same time; a place that gets free takes the next one while ``goes_on``, until a signal comes."""
    running: dict[int, tuple[subprocess.Popen[bytes], Step]] = {}
    with _forward_signals(running) as received:
        while True:
            while waiting and len(running) < steps.beside and not received and goes_on():
                record(step := waiting.popleft(), "begun")
                _wait_for(step.inputs, steps.wait_s)
                process = subprocess.Popen(["/bin/bash", "-c", STRICT + step.command], start_new_session=True)
                running[process.pid] = process, step
            if not running:
                return
            pid, status = os.wait()
            process, step = running.pop(pid)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            if 0 <= code <= 128:  # else a signal ended it, as above
                record(step, "failed" if code else "done")


def _wait_for(files: Sequence[str], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not all(map(os.path.exists, files)) and time.monotonic() < deadline:
        time.sleep(1)


def _run_in_shell(command: str) -> int:
    """Exit status of the command in a shell of its own; a signal to this process goes to it as well."""
    words = ["/bin/bash", "-c", STRICT + command]
    with subprocess.Popen(words, start_new_session=True) as process, _forward_signals([process.pid]):
        return process.wait() % 256


@contextlib.contextmanager
def _forward_signals(groups: Collection[int]) -> Iterator[list[int]]:
    """Pass signals on, and list them: Slurm may signal only a job's first process, a terminal only its own group."""
    received: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for group in list(groups):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_inside(command: str) -> int:
    """Exit status of one of our scripts, run in this process."""
    _, script, *arguments = shlex.split(command)
    words, sys.argv = sys.argv, [script, *arguments]
    try:
        with _restore_streams():
            try:
                runpy.run_path(script, run_name="__main__")
            except SystemExit as end:
                return end.code if isinstance(end.code, int) else int(end.code is not None)
            except Exception:
                traceback.print_exc()  # into the log of the step
                return 1
        return 0
    finally:
        sys.argv = words


@contextlib.contextmanager
def _restore_streams() -> Iterator[None]:
    """Restore standard output and error afterwards: a step sends both into its log."""
    kept = [(stream, os.dup(stream)) for stream in (1, 2)]
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, copy in kept:
            os.dup2(copy, stream)
            os.close(copy)


if __name__ == "__main__":
    sys.exit(0 if do_steps(Path(sys.argv[1])) else 1)
