"""Signals: what tracks' detectors of faults have in common; each looks at the records of one run, at no output file."""

from __future__ import annotations

from collections.abc import Callable

from automedbench.base.records import CaseScore, CaseSubmission
from automedbench.tracks import Outputs, Signal

MOST = 0.9
"""Share of the cases from which on something holds for 'all' of them: one odd case does not hide it."""
FEWEST = 3
"""Fewer cases can be alike by chance."""
FAR_BELOW = 1 / 3
"""Of the okay threshold (docs/specification.md, 10.5)."""


def find_in_most(
    outputs: Outputs, wrong: Callable[[CaseScore], bool], what: str, show: Callable[[CaseScore], str]
) -> str | None:
    """Nearly all scored cases are wrong in the same way; the first of them is shown."""
    hits = [case for case in outputs.scored if wrong(case)]
    if not hits or len(hits) < MOST * len(outputs.scored):
        return None
    return f"{what} in {len(hits)} of {len(outputs.scored)} outputs; {hits[0].case}: {show(hits[0])}"


def find_remark(outputs: Outputs, code: str, what: str) -> str | None:
    """Nearly all submitted cases have the same problem or remark."""
    hits = [case for case in outputs.there if has_problem(case, code)]
    if not hits or len(hits) < MOST * len(outputs.there):
        return None
    return f"{what} in {len(hits)} of {len(outputs.there)} outputs; {first_problem(hits[0], code)}"


def remark_signal(name: str, looks_at: str, code: str, what: str) -> Signal:
    """The signal that finds what ``find_remark`` does."""
    return Signal(name, looks_at, lambda outputs: find_remark(outputs, code, what))


def has_problem(case: CaseSubmission, *codes: str) -> bool:
    """Return whether a case has a problem or a remark with one of these codes."""
    return any(problem.code in codes for problem in case.problems)


def first_problem(case: CaseSubmission, *codes: str) -> str:
    """First problem of a case in one line; with ``codes`` the first of these."""
    problems = [problem for problem in case.problems if not codes or problem.code in codes]
    return f"{case.case}: {problems[0].message if problems else case.status}"


def far_below(outputs: Outputs) -> str | None:
    """Detect a submission with less than a third of the quality at which okay begins."""
    quality, okay = outputs.quality_of_completed, outputs.okay_from
    if quality is None or okay is None or quality >= FAR_BELOW * okay:
        return None
    name = outputs.detail.quality_name
    return f"{name} {quality:.4f} over what was submitted, less than a third of {okay:g} (okay)"


QUALITY_FAR_BELOW = Signal("verify.far_below", "quality far below okay", far_below)
