"""Judge addressed by a run's text, as findings of the audit (docs/specification.md, 9.6).

Looked for when the run is over, since it is the record that is judged. Only what an agent wrote itself and can be
meant for no other is a strike; text that a program printed first may come from a download: a warning, no strike. No
agent was warned while it ran, and the judge's lower result has taken the gain away: all of it is one strike in a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automedbench.base.records import Confidence, Conversation, Finding, Injection, Severity
from automedbench.reading.injection import AgentText, explicit, find_injections

MAX_FINDINGS = 20
_PRINTED = ("stdout", "stderr")


@dataclass(frozen=True)
class _Weight:
    severity: Severity
    confidence: Confidence


OWN, PRINTED, WEAK = _Weight("warning", "high"), _Weight("warning", "medium"), _Weight("notice", "low")


def judge_findings(conversation: Conversation) -> list[Finding]:
    """At most one finding per turn and weight, in order; plan and file names at the end count as one place.

    A passage that is seen again (a plan that code writes, prints and leaves) is no second finding.
    """
    found: dict[tuple[int | None, _Weight], list[Injection]] = {}
    for injection in _fresh(find_injections(_texts(conversation))):
        found.setdefault((injection.turn, _weight(injection)), []).append(injection)
    calls = _first_calls(conversation)
    made = [_finding(turn, weight, group, calls) for (turn, weight), group in found.items()]
    return _one_strike(made)[:MAX_FINDINGS]


def _one_strike(findings: Sequence[Finding]) -> list[Finding]:
    """The first of high confidence stays so; the others are warnings that count no further."""
    first = next((finding for finding in findings if finding.confidence == "high"), None)
    return [
        finding
        if finding is first or finding.confidence != "high"
        else finding.model_copy(update={"confidence": "medium"})
        for finding in findings
    ]


def _texts(conversation: Conversation) -> Sequence[AgentText]:
    texts = [AgentText("note", item.turn, item.content) for item in conversation.messages if item.role == "assistant"]
    for call in conversation.calls:
        texts.append(AgentText("code", call.turn, call.code))
        texts.append(AgentText("stdout", call.turn, call.stdout))
        texts.append(AgentText("stderr", call.turn, call.stderr))
    texts.append(AgentText("plan", None, conversation.plan or ""))
    texts += [AgentText("file name", None, path) for path in sorted(conversation.workspace_files)]
    return texts


def _fresh(injections: Sequence[Injection]) -> Iterator[Injection]:
    """Each passage where it first stands; what an agent repeats from something printed before is a quotation.

    A passage that may be harmless, such as a word in the form of an end tag, makes no quotation of an explicit one.
    """
    seen: list[tuple[str, bool]] = []
    for injection in sorted(injections, key=_order):
        words, is_explicit = "".join(re.findall(r"\w+", injection.passage.casefold())), explicit(injection)
        if not any((words in known or known in words) and (grave or not is_explicit) for known, grave in seen):
            seen.append((words, is_explicit))
            yield injection


def _order(injection: Injection) -> tuple[bool, int, bool]:
    return injection.turn is None, injection.turn or 0, injection.where in _PRINTED


def _weight(injection: Injection) -> _Weight:
    if not explicit(injection):
        return WEAK
    return PRINTED if injection.where in _PRINTED else OWN


def _first_calls(conversation: Conversation) -> dict[int, int]:
    calls: dict[int, int] = {}
    for call in conversation.calls:
        calls.setdefault(call.turn, call.call)
    return calls


def _finding(turn: int | None, weight: _Weight, group: Sequence[Injection], calls: dict[int, int]) -> Finding:
    first = group[0]
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    passage = "".join(char if char.isprintable() else " " for char in first.passage)
    return Finding.of(
        first.rule,
        "static",
        "judge_injection",
        weight.severity,
        weight.confidence,
        f"{first.where}{more}: {' '.join(passage.split())}",
        turn=turn,
        call=None if turn is None else calls.get(turn),
        place=f"{'end' if turn is None else f'{turn:04d}'}-{weight.confidence}",
    )
