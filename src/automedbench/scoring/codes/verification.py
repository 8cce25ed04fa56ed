"""E3, in every track: outputs that were not looked at, or whose faults were seen and left as they were."""

from __future__ import annotations

import json

from automedbench.judge.record import Event
from automedbench.scoring.codes.calls import checks_outputs, wrote_later
from automedbench.scoring.codes.facts import CodeFinding, RunFacts, detector
from automedbench.tracks import get_track
from automedbench.tracks.common.signals import first_problem


@detector("verify.unread_malformed", "E3", "malformed outputs that no code read back")
def unread_malformed(facts: RunFacts) -> CodeFinding | None:
    """Malformed outputs, and no code read one back."""
    if not facts.malformed or any(map(_reads_back, facts.events)):
        return None
    return CodeFinding("S3", f"no code read an output back; {first_problem(facts.malformed[0])}")


@detector("verify.unread_poor", "E3", "outputs below okay that no code read back")
def unread_poor(facts: RunFacts) -> CodeFinding | None:
    """Outputs too poor for any medal, and no code read one back; not where a poor score proves nothing."""
    if not get_track(facts.detail.track).poor_is_evidence or not facts.there or not facts.below_okay:
        return None
    if any(map(_reads_back, facts.events)):
        return None
    return CodeFinding("S3", f"no code read an output back; {facts.below_okay}")


def _reads_back(event: Event) -> bool:
    """Code or a command opened an output, be it that its check failed. How hard it looked is for the judge to say."""
    return checks_outputs(event) or (event.ok and event.reads_output)


@detector("verify.ignored_check", "E3", "a failed check of outputs that no later output answers")
def ignored_check(facts: RunFacts) -> CodeFinding | None:
    """A check of outputs failed, and after it neither was an output written nor did a check end well."""
    failed = [number for number, event in enumerate(facts.events) if checks_outputs(event)]
    if not failed or wrote_later(facts, failed[-1]):
        return None
    if any(event.ok and event.checks for event in facts.events[failed[-1] + 1 :]):
        return None
    event = facts.events[failed[-1]]
    stage = event.call.stage if event.call.stage in ("S3", "S4", "S5") else "S3"
    return CodeFinding(stage, f"{event.complaint}; no output was written after it", event.call.turn)


@detector("verify.refusal_ignored", "E3", "malformed outputs named by a refused submission and left")
def refusal_ignored(facts: RunFacts) -> CodeFinding | None:
    """The first submission was refused with a number of malformed outputs, and none was written before the next."""
    refused, n_malformed = _first_refusal(facts)
    if n_malformed is None or not facts.malformed or not facts.run.submitted:
        return None
    if any(event.cases for event in facts.events if event.call.turn >= refused):
        return None
    outputs = "1 malformed output" if n_malformed == 1 else f"{n_malformed} malformed outputs"
    return CodeFinding("S5", f"told of {outputs}, then submitted without writing any again", refused)


def _first_refusal(facts: RunFacts) -> tuple[int, int | None]:
    """(turn, malformed outputs that the agent was told of) of the first refused call of submit_results."""
    for message in facts.conversation.messages:
        if message.role == "tool" and '"accepted"' in message.content:
            try:
                answer = json.loads(message.content)
            except ValueError:
                continue
            if isinstance(answer, dict) and answer.get("accepted") is False:
                n_malformed = answer.get("invalid_count")
                return message.turn, n_malformed if isinstance(n_malformed, int) and n_malformed > 0 else None
    return 0, None


@detector("verify.no_effect", "E3", "outputs on which their case has no effect, as measured")
def no_effect(facts: RunFacts) -> CodeFinding | None:
    """Outputs that fit their own case no better than another: of one form, copies of the input, or unrelated to it."""
    return CodeFinding("S4", facts.no_effect) if facts.no_effect else None


DETECTORS = (unread_malformed, unread_poor, ignored_check, refusal_ignored, no_effect)
