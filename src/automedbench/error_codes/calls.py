"""Calls that failed and from which a run never recovered, and what kind of failure it was."""

from __future__ import annotations

import re
from typing import Literal

from automedbench.error_codes.facts import RunFacts
from automedbench.judge.trace import Event
from automedbench.reading.code import OUTPUT_FOLDER

Resource = Literal["time", "memory", "disk"]
TAIL = 12
"""Lines at the end of what a call printed in which a message is looked for."""

_SETUP = re.compile(
    r"ModuleNotFoundError|ImportError|No module named|No matching distribution|Could not find a version"
    r"|Could not install packages|command not found|FileNotFoundError|No such file or directory"
    r"|cannot open shared object|ConnectionError|ConnectTimeout|ConnectionRefusedError|Connection refused|URLError"
    r"|HTTPError|Max retries exceeded|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known|Network is unreachable"
    r"|RepositoryNotFoundError|GatedRepoError|LocalEntryNotFoundError|OfflineModeIsEnabled|couldn't connect to"
    r"|is not a valid model identifier|Can't load tokenizer|ImageFileError|Error\(s\) in loading state_dict"
    r"|invalid load key|PytorchStreamReader failed|CUDA driver|No CUDA GPUs are available|Torch not compiled with CUDA"
)
# These are not printed by chance, so they count wherever they stand in what a download or an installation printed.
_REFUSED = re.compile(
    r"No matching distribution|Could not find a version|Could not install packages|Could not resolve host"
    r"|Temporary failure in name resolution|Name or service not known|Network is unreachable|Max retries exceeded"
    r"|RepositoryNotFoundError|GatedRepoError|LocalEntryNotFoundError|OfflineModeIsEnabled|couldn't connect to"
    r"|is not a valid model identifier|HTTPError|HTTP request sent.*(?:40\d|50\d)|ERROR 40\d|URLError|ConnectionError"
)
_MEMORY = re.compile(
    r"MemoryError|OutOfMemoryError|CUDA out of memory|Cannot allocate memory|Unable to allocate|bad_alloc"
    r"|\[SANDBOX\].*memory"
)
_DISK = re.compile(r"No space left on device|Disk quota exceeded")


def broke_off_in(facts: RunFacts) -> Event | None:
    """The last call that failed, unless a later one that ended well wrote an output or all outputs are valid.

    Checks of outputs are left out: what they complain of is no fault of the pipeline.
    """
    if facts.submission.all_valid:
        return None
    failed = [number for number, event in enumerate(facts.events) if event.failed and not checks_outputs(event)]
    if not failed or wrote_later(facts, failed[-1]):
        return None
    last = facts.events[failed[-1]]
    return last if _matters(facts, failed[-1]) and not _stopped_by_rule(last) else None


def wrote_later(facts: RunFacts, number: int) -> bool:
    """Whether a call after this one ended well and created or changed outputs."""
    return any(event.ok and event.cases for event in facts.events[number + 1 :])


def checks_outputs(event: Event) -> bool:
    """It failed over outputs that it read, by an assertion or because one is not there, and wrote none."""
    about_outputs = "AssertionError" in event.complaint or OUTPUT_FOLDER in event.complaint
    return event.call.status == "error" and about_outputs and bool(event.facts.output_reads) and not event.cases


def ran_out_of(event: Event) -> Resource | None:
    """The resource that a failed call ran out of, if any."""
    text = tail(event)
    if event.call.status == "timeout":
        return "time"
    if _DISK.search(text):
        return "disk"
    return "memory" if _MEMORY.search(text) else None


def setup_message(event: Event, *, anywhere: bool = False) -> str:
    """The line that says that something could not be found, fetched, loaded, installed or imported; empty: none does.

    Of a call that failed it is its last line, or any line of an installation. ``anywhere``: any line near its end, but
    only with words that nothing else prints.
    """
    lines = [line.strip() for line in tail(event).split("\n") if line.strip()]
    if anywhere:
        return next((line for line in reversed(lines) if _REFUSED.search(line)), "")
    if event.installs is not None:
        return event.complaint or "no message"
    return event.complaint if _SETUP.search(event.complaint) and OUTPUT_FOLDER not in event.complaint else ""


def tail(event: Event) -> str:
    """The last lines that a call printed, errors last."""
    lines = [*event.call.stdout.split("\n")[-TAIL:], *event.call.stderr.split("\n")[-TAIL:]]
    return "\n".join(lines)


def _matters(facts: RunFacts, number: int) -> bool:
    """A call that fails after outputs were written explains what is missing only if it was about outputs or set-up."""
    event = facts.events[number]
    before = any(earlier.cases for earlier in facts.events[:number])
    return not before or bool(event.cases) or _about_outputs(event) or bool(setup_message(event) or ran_out_of(event))


def _about_outputs(event: Event) -> bool:
    named = [spot.name for spot in (*event.facts.strings, *event.facts.commands)]
    return OUTPUT_FOLDER in event.call.code or any(OUTPUT_FOLDER in name for name in named)


def _stopped_by_rule(event: Event) -> bool:
    """Killed, but not for want of memory: a rule of the sandbox ended it, which the audit deals with."""
    return event.call.status == "killed" and ran_out_of(event) is None
