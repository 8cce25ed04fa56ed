"""E4: code of the pipeline failed while it ran, and nothing repaired it."""

from __future__ import annotations

from automedbench.error_codes.calls import broke_off_in, ran_out_of, setup_message
from automedbench.error_codes.facts import Detector, Found, RunFacts
from automedbench.judge.trace import ALL_CASES, Event
from automedbench.reading.code import OUTPUT_FOLDER


def unrepaired(facts: RunFacts) -> Found | None:
    """The last failure was neither of set-up nor of a resource; it wrote no output, and nothing after it did."""
    failure = _failure(facts)
    if failure is None or failure.cases:
        return None
    return Found(failure.call.stage, _shown(failure), failure.call.turn)


def partial(facts: RunFacts) -> Found | None:
    """The same, but it had written some outputs before it failed."""
    failure = _failure(facts)
    if failure is None or not failure.cases:
        return None
    share = f"after {len(failure.cases)} of {len(facts.submission.cases)} cases"
    part = f"while it wrote below {OUTPUT_FOLDER}" if ALL_CASES in failure.cases else share
    return Found(failure.call.stage, f"broke off {part}; {_shown(failure)}", failure.call.turn)


def _failure(facts: RunFacts) -> Event | None:
    failure = broke_off_in(facts)
    if failure is None or ran_out_of(failure) or setup_message(failure):
        return None
    return failure


def _shown(event: Event) -> str:
    return f"{event.call.status}: {event.complaint or 'no message'}"


DETECTORS = (
    Detector("execute.unrepaired", "E4", "the last failed call raised, and no later one wrote an output", unrepaired),
    Detector(
        "execute.partial", "E4", "the last failed call raised after some outputs, and no later one wrote any", partial
    ),
)
