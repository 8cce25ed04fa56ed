"""Calls that failed and from which a run never recovered: E2 where data, model, package or resource could not be had or
loaded, E4 where code of the pipeline failed while it ran.
"""

from __future__ import annotations

import re
from typing import Literal

from automedbench.base.records import Stage
from automedbench.judge.record import ALL_CASES, FEW, Event
from automedbench.reading.lines import OUTPUT_FOLDER
from automedbench.scoring.codes.facts import CodeFinding, RunFacts, detector
from automedbench.tracks import get_track

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
    r"|is not a valid model identifier|HTTPError|HTTP request sent.{0,200}(?:40\d|50\d)|ERROR 40\d|URLError"
    r"|ConnectionError"
)
_MEMORY = re.compile(
    r"MemoryError|OutOfMemoryError|(?:CUDA|HIP) out of memory|(?:CUDA|HIP) error: out of memory|STATUS_ALLOC_FAILED"
    r"|CUDA_ERROR_OUT_OF_MEMORY|Cannot allocate memory|Unable to allocate|bad_alloc"
    r"|\[SANDBOX\].{0,200}memory"
)
_DISK = re.compile(r"No space left on device|Disk quota exceeded")


def find_failed_call(facts: RunFacts) -> Event | None:
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
    """Check whether a later call succeeded and created or changed outputs."""
    return any(event.ok and event.cases for event in facts.events[number + 1 :])


def checks_outputs(event: Event) -> bool:
    """Check whether it failed over outputs that it read, by an assertion or a missing file, and wrote none."""
    about_outputs = "AssertionError" in event.complaint or OUTPUT_FOLDER in event.complaint
    return event.call.status == "error" and about_outputs and event.reads_output and not event.cases


def exhausted_resource(event: Event) -> Resource | None:
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
    return (
        not before
        or bool(event.cases)
        or any(OUTPUT_FOLDER in line.code for line in event.lines)
        or bool(setup_message(event) or exhausted_resource(event))
    )


def _stopped_by_rule(event: Event) -> bool:
    """Killed, but not for want of memory: a rule of the sandbox ended it, which the audit deals with."""
    return event.call.status == "killed" and exhausted_resource(event) is None


_DOWNLOADS = re.compile(
    r"from_pretrained|hf_hub_download|snapshot_download|load_state_dict_from_url|urlretrieve|urlopen|requests\.get"
    r"|torch\.hub|\bwget\b|\bcurl\b|\bgit clone\b|load_dataset|gdown"
)


@detector("setup.unrepaired", "E2", "the last failed call could not find, fetch, load, install or import")
def setup_unrepaired(facts: RunFacts) -> CodeFinding | None:
    """The last failure was one of set-up, nothing after it wrote an output, and outputs are missing or malformed."""
    failure = find_failed_call(facts)
    if failure is None or exhausted_resource(failure) or not (message := setup_message(failure)):
        return None
    return CodeFinding("S2", f"{failure.call.status}: {message}", failure.call.turn)


@detector("setup.fallback", "E2", "a failed download or installation that was worked around badly")
def fallback(facts: RunFacts) -> CodeFinding | None:
    """A download or an installation failed and was never made up for, and what was done without it is below okay."""
    if not facts.below_okay:
        return None
    failed = [(number, line) for number, event in enumerate(facts.events) if (line := _failed_download(event))]
    if not failed:
        return None
    number, line = failed[-1]
    if any(_obtains(event) for event in facts.events[number + 1 :]):
        return None
    turn = facts.events[number].call.turn
    return CodeFinding("S2", f"{line}; never obtained, and the outputs are poor: {facts.below_okay}", turn)


@detector("setup.time", "E2", "the time limit of the run or of its last call")
def time_used_up(facts: RunFacts) -> CodeFinding | None:
    """The run ended at its time limit, or its last call did and nothing after it wrote an output."""
    if facts.run.outcome == "time_limit":
        return _ended_in_its_last(facts, "at its time limit", "S2")
    return _last_ran_out(facts, "time")


@detector("setup.memory", "E2", "memory of the run or of its last call, on processor or GPU")
def memory_used_up(facts: RunFacts) -> CodeFinding | None:
    """The run ended out of memory, or its last call did (processor or GPU) and nothing after it wrote an output."""
    if facts.run.outcome == "out_of_memory":
        last = next((event for event in reversed(facts.events) if event.failed), None)
        shown = f": {last.call.status}: {last.complaint}" if last else ""
        stage = last.call.stage if last else "S4"
        return CodeFinding(stage, f"the run ended out of memory{shown}", last.call.turn if last else None)
    return _last_ran_out(facts, "memory")


@detector("setup.disk", "E2", "disk space of the run or of its last call")
def disk_used_up(facts: RunFacts) -> CodeFinding | None:
    """The run ended out of disk, or its last call did and nothing after it wrote an output."""
    if facts.run.outcome == "out_of_disk":
        return _ended_in_its_last(facts, "out of disk", "S4")
    return _last_ran_out(facts, "disk")


def _ended_in_its_last(facts: RunFacts, how: str, without_calls: Stage) -> CodeFinding:
    calls = facts.conversation.calls
    return CodeFinding(calls[-1].stage if calls else without_calls, f"the run ended {how}: {facts.run.detail}")


def _last_ran_out(facts: RunFacts, resource: str) -> CodeFinding | None:
    failure = find_failed_call(facts)
    if failure is None or exhausted_resource(failure) != resource:
        return None
    call = failure.call
    return CodeFinding(call.stage, f"{call.status}: {failure.complaint or 'no message'}", call.turn)


def _failed_download(event: Event) -> str:
    """The line that says so; code that hides its exit code (``pip … | tail``) counts too."""
    if event.call.status in ("refused", "harness_error") or not (event.installs or _DOWNLOADS.search(event.call.code)):
        return ""
    return setup_message(event, anywhere=True)


def _obtains(event: Event) -> bool:
    tried = event.installs is not None or _DOWNLOADS.search(event.call.code) is not None
    return event.ok and tried and not setup_message(event, anywhere=True)


SETUP = (setup_unrepaired, fallback, time_used_up, memory_used_up, disk_used_up)


@detector("execute.unrepaired", "E4", "the last failed call raised, and no later one wrote an output")
def code_unrepaired(facts: RunFacts) -> CodeFinding | None:
    """The last failure was neither of set-up nor of a resource; it wrote no output, and nothing after it did."""
    failure = _failure(facts)
    if failure is None or failure.cases:
        return None
    return CodeFinding(failed_call_stage(failure), _excerpt(failure), failure.call.turn)


@detector("execute.partial", "E4", "the last failed call raised after some outputs, and no later one wrote any")
def partial(facts: RunFacts) -> CodeFinding | None:
    """The same, but it had written some outputs before it failed."""
    failure = _failure(facts)
    if failure is None or not failure.cases:
        return None
    share = f"after {len(failure.cases)} of {len(facts.submission.cases)} cases"
    part = f"while it wrote below {OUTPUT_FOLDER}" if ALL_CASES in failure.cases else share
    return CodeFinding(failed_call_stage(failure), f"broke off {part}; {_excerpt(failure)}", failure.call.turn)


@detector("execute.no_model_call", "E4", "outputs of which no model can have made any")
def no_model_call(facts: RunFacts) -> CodeFinding | None:
    """Answers came although no file of a model was opened in the whole run; of agents that are no model by design."""
    if facts.audit is None or facts.audit.model_opened is not False or not facts.there:
        return None
    by_design = facts.run.origin in WITHOUT_A_MODEL
    if by_design or not get_track(facts.detail.track).needs_model:
        return None
    return CodeFinding(
        "S4", f"{len(facts.there)} outputs, and the run opened no weights and no program that computes a model"
    )


def failed_call_stage(event: Event) -> Stage:
    """Stage of a failed call, by what its code does, the same on every track: the full run where it goes through the
    cases and writes outputs, a first case where it writes one, else the stage that the driver saw it in."""
    if not (event.cases or event.writes_output):
        return event.call.stage
    several = event.many_cases or len(event.cases) > FEW or len(event.case_ids) > FEW
    return "S4" if several or event.call.stage == "S4" else "S3"


def _failure(facts: RunFacts) -> Event | None:
    failure = find_failed_call(facts)
    if failure is None or exhausted_resource(failure) or setup_message(failure):
        return None
    return failure


def _excerpt(event: Event) -> str:
    return f"{event.call.status}: {event.complaint or 'no message'}"


WITHOUT_A_MODEL = ("baseline", "scripted")
EXECUTION = (code_unrepaired, partial, no_model_call)
