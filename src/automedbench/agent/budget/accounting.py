"""What Slurm's accounting tells of jobs: the text of ``sacct``, read, and asked for where there is one.

A job that still runs has its time and GPUs there, but neither CPU time nor memory (sacct(1)).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace

FIELDS = ("JobIDRaw", "State", "Start", "Elapsed", "TotalCPU", "MaxRSS", "AllocTRES")
PATIENCE_S = 10.0
"""A GPU is held while the database is waited for."""
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_GPU = re.compile(r"gres/gpu(?::(?P<model>[^=,]+))?=(?P<count>\d+)")


@dataclass(frozen=True)
class Job:
    """One start of a job (a requeued one has several); seconds, MiB, ``began`` since 1970. None: not told."""

    id: str
    began: float
    elapsed_s: float
    gpus: int | None = None
    gpu_models: tuple[str, ...] = ()
    cpu_s: float | None = None
    peak_memory_mib: int | None = None


def ask_accounting(jobs: Iterable[str]) -> list[Job]:
    """All starts of these jobs; empty where there is no accounting, or it does not answer soon."""
    command = ["sacct", "--noheader", "--parsable2", "--duplicates", f"--format={','.join(FIELDS)}"]
    environment = os.environ | {"SLURM_TIME_FORMAT": "%s"}
    try:
        said = subprocess.run(
            [*command, f"--jobs={','.join(jobs)}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return []
    return read_accounting(said.stdout)


def read_accounting(text: str) -> list[Job]:
    """Jobs in lines of ``FIELDS`` parted by ``|``; the lines of a job's steps follow its own and tell its memory."""
    found: list[Job] = []
    for words in (line.split("|") for line in text.splitlines()):
        if len(words) != len(FIELDS):
            continue
        name, state, start, elapsed, cpu, memory, tres = words
        peak = mib_of(memory)
        if "." in name and found and found[-1].id == name.partition(".")[0]:
            found[-1] = replace(
                found[-1], peak_memory_mib=max(filter(None, (peak, found[-1].peak_memory_mib)), default=None)
            )
        elif start.isdecimal() and (held := seconds_of(elapsed)) is not None:
            ended = state.split(" ")[0] not in ("RUNNING", "SUSPENDED", "COMPLETING")
            spent = seconds_of(cpu) if ended else None
            found.append(Job(name, float(start), held, *gpus_of(tres), spent or None, peak))
    return found


def seconds_of(text: str) -> float | None:
    """Of a time as Slurm writes it: ``[[days-]hours:]minutes:seconds[.part]``; None for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + seconds


def mib_of(text: str) -> int | None:
    """Of a size as Slurm writes it: bytes, or with a unit of 1024; at least 1, None for nothing."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        return None
    unit = 2.0 ** (10 * ("KMGTP".find(match[2] or "-") + 1))
    return max(1, round(float(match[1]) * unit / 2**20))


def gpus_of(tres: str) -> tuple[int | None, tuple[str, ...]]:
    """GPUs in ``cpu=8,gres/gpu:a100=2,gres/gpu=2``, and their models; None where the site counts none."""
    told = [(match["model"], int(match["count"])) for match in _GPU.finditer(tres)]
    models = tuple(model for model, _ in told if model)
    untyped = [count for model, count in told if not model]
    return (untyped[0] if untyped else sum(count for _, count in told)) if told else None, models
