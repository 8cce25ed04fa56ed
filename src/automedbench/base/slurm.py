"""Jobs in Slurm: calls of squeue and sacct and their output; messages of sbatch; forms of times and sizes.

A job that still runs has its time and GPUs in the accounting, but neither CPU time nor memory (sacct(1)).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace

ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
ENDED |= {"REVOKED", "TIMEOUT"}
BUSY = (
    "MaxSubmit",
    "MaxJobs",
    "job submit limit",
    "submission limit",
    "temporarily unable",
    "temporarily unavailable",
    "Socket timed out",
    "Unable to contact slurm controller",
    "Connection refused",
    "in standby mode",
    "Transport endpoint",
)
"""Parts of what sbatch says when the same call can succeed later (slurm_errno.c and the messages of its plugins)."""
FIELDS = ("JobIDRaw", "State", "Start", "Elapsed", "TotalCPU", "MaxRSS", "AllocTRES")
DEFAULTS = ("SQUEUE_", "SACCT_")
"""Beginnings of the variables that hold a user's own defaults: a filter by partition or state, another form."""
PATIENCE_S = 10.0
"""A GPU is held while the database is waited for."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+(?:\.\d+)?))?(?::(\d+(?:\.\d+)?))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_GPU = re.compile(r"gres/gpu(?::(?P<model>[^=,]+))?=(?P<count>\d+)")


@dataclass(frozen=True)
class Job:
    """One start of a job (a requeued one has several); seconds, MiB, ``began`` since 1970. None: unknown."""

    id: str
    began: float
    elapsed_s: float
    gpus: int | None = None
    gpu_models: tuple[str, ...] = ()
    cpu_s: float | None = None
    peak_memory_mib: int | None = None


def is_busy(message: str) -> bool:
    """True when sbatch refused for now: a limit of jobs is reached, or the controller does not answer."""
    return any(word.casefold() in message.casefold() for word in BUSY)


def states_in_queue(name: str) -> dict[str, str] | None:
    """State of each job of that name that the controller knows; None when it does not answer."""
    output = _ask("squeue", "--states=all", f"--name={name}", "--format=%i|%T")
    return None if output is None else read_states(output.splitlines())


def states_in_accounting(jobs: Iterable[str]) -> dict[str, str]:
    """State of jobs that have left the queue; empty where there is no accounting."""
    output = _ask("sacct", "--parsable2", "--allocations", "--format=JobID,State", f"--jobs={','.join(jobs)}")
    return read_states((output or "").splitlines())


def ask_accounting(jobs: Iterable[str]) -> list[Job]:
    """All starts of these jobs; empty where there is no accounting, or it does not answer soon."""
    words = ("--parsable2", "--duplicates", f"--format={','.join(FIELDS)}", f"--jobs={','.join(jobs)}")
    return read_accounting(_ask("sacct", *words, patience_s=PATIENCE_S) or "")


def _ask(program: str, *words: str, patience_s: float = 60) -> str | None:
    """Output of a command, times as seconds since 1970; None when it fails or does not answer.

    The user's defaults for these commands do not count: they would hide jobs, which then seem to have ended.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(DEFAULTS)}
    try:
        done = subprocess.run(
            [program, "--noheader", *words],
            env=kept | {"SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def read_states(lines: Iterable[str]) -> dict[str, str]:
    """``17|CANCELLED by 1000`` is a CANCELLED job 17."""
    rows = (line.partition("|") for line in lines if "|" in line)
    return {number.strip(): state.split()[0].rstrip("+") for number, _, state in rows if state.strip()}


def read_accounting(text: str) -> list[Job]:
    """Jobs in lines of ``FIELDS`` parted by ``|``; the lines of a job's steps follow its own and tell its memory."""
    found: list[Job] = []
    for words in (line.split("|") for line in text.splitlines()):
        if len(words) != len(FIELDS):
            continue
        name, state, start, elapsed, cpu, memory, tres = words
        peak = parse_mib(memory)
        if "." in name and found and found[-1].id == name.partition(".")[0]:
            found[-1] = replace(
                found[-1], peak_memory_mib=max(filter(None, (peak, found[-1].peak_memory_mib)), default=None)
            )
        elif start.isdecimal() and (held := parse_seconds(elapsed)) is not None:
            ended = state.split(" ")[0] not in ("RUNNING", "SUSPENDED", "COMPLETING")
            spent = parse_seconds(cpu) if ended else None
            found.append(Job(name, float(start), held, *parse_gpus(tres), spent or None, peak))
    return found


def parse_seconds(text: str) -> float | None:
    """Of a time as Slurm writes it: ``90`` and ``1:30`` begin with minutes, ``8:00:00`` with hours, ``1-12`` with days.

    None for anything else, as for what has no limit.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, first, second, third = (float(part or 0) for part in match.groups())
    if match[1] is None and match[4] is None:
        return 60 * first + second
    return 86_400 * days + 3600 * first + 60 * second + third


def parse_mib(text: str) -> int | None:
    """Of a size as Slurm writes it: bytes, or with a unit of 1024; at least 1, None for nothing."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        return None
    unit = 2.0 ** (10 * ("KMGTP".find(match[2] or "-") + 1))
    return max(1, round(float(match[1]) * unit / 2**20))


def parse_gpus(tres: str) -> tuple[int | None, tuple[str, ...]]:
    """GPUs in ``cpu=8,gres/gpu:a100=2,gres/gpu=2``, and their models; None where the site counts none."""
    counts = [(match["model"], int(match["count"])) for match in _GPU.finditer(tres)]
    models = tuple(model for model, _ in counts if model)
    untyped = [count for model, count in counts if not model]
    return (untyped[0] if untyped else sum(count for _, count in counts)) if counts else None, models
