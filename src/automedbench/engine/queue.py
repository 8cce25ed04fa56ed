"""What Slurm says of jobs, and whether it will take another one."""

from __future__ import annotations

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


def is_busy(said: str) -> bool:
    """Whether sbatch refused for now: a limit of jobs is reached, or the controller does not answer."""
    return any(word.casefold() in said.casefold() for word in BUSY)


def states_in_queue(name: str) -> dict[str, str] | None:
    """State of each job of that name that the controller knows; None when it does not answer."""
    said = _ask("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%i|%T")
    return None if said is None else read_states(said.splitlines())


def states_in_accounting(jobs: Iterable[str]) -> dict[str, str]:
    """State of jobs that have left the queue; empty where there is no accounting."""
    said = _ask("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State", "--jobs", ",".join(jobs))
    return read_states((said or "").splitlines())


def read_states(lines: Iterable[str]) -> dict[str, str]:
    """``17|CANCELLED by 1000`` is a CANCELLED job 17."""
    rows = (line.partition("|") for line in lines if "|" in line)
    return {number.strip(): state.split()[0].rstrip("+") for number, _, state in rows if state.strip()}


def _ask(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
