"""Jobs in Slurm: their states by squeue and sacct; messages of sbatch; times as Slurm writes them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable

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
DEFAULTS = ("SQUEUE_", "SACCT_")
"""Beginnings of the variables that hold a user's own defaults: a filter by partition or state, another form."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


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


def _ask(program: str, *words: str) -> str | None:
    """Output of a command; None when it fails or does not answer.

    The user's defaults for these commands do not count: they would hide jobs, which then seem to have ended.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(DEFAULTS)}
    try:
        done = subprocess.run(
            [program, "--noheader", *words],
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def read_states(lines: Iterable[str]) -> dict[str, str]:
    """``17|CANCELLED by 1000`` is a CANCELLED job 17."""
    rows = (line.partition("|") for line in lines if "|" in line)
    return {number.strip(): state.split()[0].rstrip("+") for number, _, state in rows if state.strip()}


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
