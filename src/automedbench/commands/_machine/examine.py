"""Examination of a machine and a campaign: what is enforced, what is lacking, by trying; one line per finding.

Probes are functions that yield findings. They run side by side, each within its own time, and never stop one another.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automedbench.base.errors import AutoMedBenchError
from automedbench.base.masking import masked
from automedbench.base.plaintable import counted, table
from automedbench.base.records import Model
from automedbench.campaign.load import Campaign
from automedbench.commands._output import show

Status = Literal["ok", "warn", "FAIL"]
DEADLINE_S = 50.0
"""All probes together; what does not answer by then is reported as such."""


class ProbeResult(Model):
    """One line of the report; ``fix`` says what to do about a warning or failure."""

    probe: str
    status: Status
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Host:
    """Subject of the probes: this machine, and a campaign if there is one. ``images`` is the folder of images."""

    campaign: Campaign | None
    images: Path
    root: Path = Path()
    """The repository's folder: pins and profiles."""
    profile: str = ""
    """The profile that is compared with the campaign and the cluster; empty: the one that is there."""
    record: Path | None = None
    """Folder in which tries keep the answers of servers; None: they are not kept."""

    @property
    def image_names(self) -> list[str]:
        """The images that the campaign needs; without one those for the code of agents that are there."""
        if self.campaign is not None:
            return self.campaign.images
        there = [name for name in ("light", "research") if (self.images / f"{name}.sif").is_file()]
        return [*(there or ["light"]), "scorer"]

    @property
    def agent_image(self) -> Path:
        """The image that agent code runs in; of several, the first."""
        return self.images / f"{[*self.image_names, 'light'][0]}.sif"

    @property
    def results(self) -> Path:
        """Folder of the results."""
        return Path(self.campaign.config.results if self.campaign else "results")


ProbeResults = Iterable[ProbeResult]


@dataclass(frozen=True)
class HostProbe:
    """A named probe and how long it may take: one that looks, free of charge, or with ``doctor=False`` one that tries.

    ``usd``: the most that a try may cost, None where a price is not known; free without it. ``first_run`` is false for
    a look that a try makes unnecessary.
    """

    name: str
    look: Callable[[Host], ProbeResults]
    limit_s: float = 15.0
    doctor: bool = True
    usd: Callable[[Host], float | None] = lambda _host: 0.0
    first_run: bool = True


def ok(probe: str, message: str) -> ProbeResult:
    """Nothing to do."""
    return ProbeResult(probe=probe, status="ok", message=message)


def warn(probe: str, message: str, fix: str) -> ProbeResult:
    """Works with less; a person should know."""
    return ProbeResult(probe=probe, status="warn", message=message, fix=fix)


def fail(probe: str, message: str, fix: str) -> ProbeResult:
    """Runs would fail, or would not be isolated."""
    return ProbeResult(probe=probe, status="FAIL", message=message, fix=fix)


def result_of_error(probe: str, error: Exception | str, status: Status = "FAIL") -> ProbeResult:
    """Result from an error: its first line is the message, the rest is the fix."""
    message, _, fix = str(error).partition("\n")
    return ProbeResult(probe=probe, status=status, message=message, fix=fix)


def next_step(text: str, fixes: Mapping[str, str], otherwise: str) -> str:
    """What to do about a message: the fix of the first pattern that is found in it."""
    return next((fix for pattern, fix in fixes.items() if re.search(pattern, text, re.IGNORECASE)), otherwise)


def examine(
    host: Host,
    probes: Sequence[HostProbe],
    deadline_s: float = DEADLINE_S,
    ended: Callable[[HostProbe, list[ProbeResult]], None] = lambda _probe, _found: None,
) -> list[ProbeResult]:
    """Results of all probes in their order. A probe that hangs or breaks is a finding itself.

    ``ended`` is called with what a probe has found when it ends, or when its time does. Probes run in daemon threads:
    one that waits for a dead file server cannot be ended, only be left behind.
    """
    started = time.monotonic()
    found: list[list[ProbeResult]] = [[] for _ in probes]
    threads = [
        threading.Thread(target=_look, args=(host, probe, found[place], ended), name=probe.name, daemon=True)
        for place, probe in enumerate(probes)
    ]
    for thread in threads:
        thread.start()
    for place, (probe, thread) in enumerate(zip(probes, threads, strict=True)):
        thread.join(max(0.0, started + min(probe.limit_s, deadline_s) - time.monotonic()))
        if thread.is_alive():
            late = warn(probe.name, f"no answer within {min(probe.limit_s, deadline_s):.0f} s", LATE)
            found[place] = [*found[place], late]
            ended(probe, found[place])
    return [finding for findings in found for finding in list(findings)]


LATE = "Look at the load of this machine and at its network file systems, then run the command again."


def _look(
    host: Host, probe: HostProbe, into: list[ProbeResult], ended: Callable[[HostProbe, list[ProbeResult]], None]
) -> None:
    try:
        for finding in probe.look(host):
            into.append(_mask(finding))
    except AutoMedBenchError as error:
        into.append(_mask(result_of_error(probe.name, error)))
    except Exception as error:
        fix = "This is a fault of the probe, not of the machine: please report it."
        into.append(_mask(warn(probe.name, f"the probe broke ({type(error).__name__}: {error})", fix)))
    ended(probe, into)


def _mask(result: ProbeResult) -> ProbeResult:
    """The result on one line, without values of variables whose names say secret: a second line of defence."""
    secrets = [value for name, value in os.environ.items() if len(value) >= 8 and _SECRET_NAME.search(name)]
    secrets.sort(key=len, reverse=True)
    texts = {name: " ".join(masked(getattr(result, name), secrets).split()) for name in ("message", "fix")}
    return result.model_copy(update=texts)


_SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_COLOURS = {"ok  ": "\x1b[32m", "warn": "\x1b[33m", "FAIL": "\x1b[31m"}
_PLAIN = "\x1b[0m"


def report_lines(findings: Sequence[ProbeResult], *, coloured: bool = False) -> list[str]:
    """One line per finding, with the fix behind an arrow, and a line of counts."""
    rows = []
    for finding in findings:
        text = finding.message + (f" → {finding.fix}" if finding.fix else "")
        rows.append((f"{finding.status:<4}", finding.probe, _printable(text)))
    lines = table(rows)
    if coloured:
        lines = [f"{_COLOURS[line[:4]]}{line[:4]}{_PLAIN}{line[4:]}" for line in lines]
    counts = Counter(finding.status for finding in findings)
    return [*lines, f"{counts['ok']} ok, {counted(counts['warn'], 'warning')}, {counted(counts['FAIL'], 'failure')}"]


def add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: where images and profile are."""
    parser.add_argument("--images", type=Path, help="folder of the images, instead of the campaign's")
    parser.add_argument("--profile", default="", help="profile of the campaign; profiles/site where it is, else slurm")


def print_report(options: argparse.Namespace, findings: Sequence[ProbeResult], *after: str) -> None:
    """Print the report and these lines after it, in colour on a terminal; exit with status 1 when anything fails."""
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    show(options, findings, [*report_lines(findings, coloured=coloured), *after])
    if any(finding.status == "FAIL" for finding in findings):
        sys.exit(1)


def _printable(text: str) -> str:
    """Without control characters: programs and servers speak here."""
    return "".join(character if character.isprintable() else " " for character in text)
