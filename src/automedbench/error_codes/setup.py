"""E2: data, model, package or resource that could not be had or loaded, and that was not overcome."""

from __future__ import annotations

import re

from automedbench.error_codes.calls import broke_off_in, ran_out_of, setup_message
from automedbench.error_codes.facts import Detector, Found, RunFacts
from automedbench.judge.trace import Event

_DOWNLOADS = re.compile(
    r"from_pretrained|hf_hub_download|snapshot_download|load_state_dict_from_url|urlretrieve|urlopen|requests\.get"
    r"|torch\.hub|\bwget\b|\bcurl\b|\bgit clone\b|load_dataset|gdown"
)


def unrepaired(facts: RunFacts) -> Found | None:
    """The last failure was one of set-up, nothing after it wrote an output, and outputs are missing or malformed."""
    failure = broke_off_in(facts)
    if failure is None or ran_out_of(failure) or not (message := setup_message(failure)):
        return None
    return Found("S2", f"{failure.call.status}: {message}", failure.call.turn)


def fallback(facts: RunFacts) -> Found | None:
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
    return Found("S2", f"{line}; never obtained, and the outputs are poor: {facts.below_okay}", turn)


def time_used_up(facts: RunFacts) -> Found | None:
    """The run ended at its time limit, or its last call did and nothing after it wrote an output."""
    if facts.run.outcome == "time_limit":
        last = facts.conversation.calls[-1] if facts.conversation.calls else None
        return Found(last.stage if last else "S2", f"the run ended at its time limit: {facts.run.detail}")
    return _last_ran_out(facts, "time")


def memory_used_up(facts: RunFacts) -> Found | None:
    """The run ended out of memory, or its last call did (processor or GPU) and nothing after it wrote an output."""
    if facts.run.outcome == "out_of_memory":
        last = next((event for event in reversed(facts.events) if event.failed), None)
        shown = f": {last.call.status}: {last.complaint}" if last else ""
        stage = last.call.stage if last else "S4"
        return Found(stage, f"the run ended out of memory{shown}", last.call.turn if last else None)
    return _last_ran_out(facts, "memory")


def disk_used_up(facts: RunFacts) -> Found | None:
    """The run ended out of disk, or its last call did and nothing after it wrote an output."""
    if facts.run.outcome == "out_of_disk":
        last = facts.conversation.calls[-1] if facts.conversation.calls else None
        return Found(last.stage if last else "S4", f"the run ended out of disk: {facts.run.detail}")
    return _last_ran_out(facts, "disk")


def _last_ran_out(facts: RunFacts, resource: str) -> Found | None:
    failure = broke_off_in(facts)
    if failure is None or ran_out_of(failure) != resource:
        return None
    call = failure.call
    return Found(call.stage, f"{call.status}: {failure.complaint or 'no message'}", call.turn)


def _failed_download(event: Event) -> str:
    """The line that says so; code that hides its exit code (``pip … | tail``) counts too."""
    if event.call.status in ("refused", "harness_error") or not (event.installs or _DOWNLOADS.search(event.call.code)):
        return ""
    return setup_message(event, anywhere=True)


def _obtains(event: Event) -> bool:
    tried = event.installs is not None or _DOWNLOADS.search(event.call.code) is not None
    return event.ok and tried and not setup_message(event, anywhere=True)


DETECTORS = (
    Detector(
        "setup.unrepaired", "E2", "the last failed call could not find, fetch, load, install or import", unrepaired
    ),
    Detector("setup.fallback", "E2", "a failed download or installation that was worked around badly", fallback),
    Detector("setup.time", "E2", "the time limit of the run or of its last call", time_used_up),
    Detector("setup.memory", "E2", "memory of the run or of its last call, on processor or GPU", memory_used_up),
    Detector("setup.disk", "E2", "disk space of the run or of its last call", disk_used_up),
)
