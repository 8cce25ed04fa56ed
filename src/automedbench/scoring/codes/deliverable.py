"""E5: what was asked for is missing, malformed, at another place or under another name, or was never submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from automedbench.base.cards import OutputFile
from automedbench.base.records import CaseSubmission
from automedbench.reading.lines import OUTPUT_FOLDER
from automedbench.scoring.codes.facts import CodeFinding, RunFacts, detector
from automedbench.tracks.common.signals import first_problem

_RESULTS = re.compile(r"out|pred|result|submi|answer", re.IGNORECASE)


@detector("deliver.missing", "E5", "expected outputs that are not there")
def missing(facts: RunFacts) -> CodeFinding | None:
    """Expected outputs that are not there."""
    return _share(facts, facts.missing, "missing")


@detector("deliver.malformed", "E5", "outputs that the format check refuses")
def malformed(facts: RunFacts) -> CodeFinding | None:
    """Outputs that break the contract: unreadable, of another form or shape, without what was asked."""
    return _share(facts, facts.malformed, "malformed")


def _share(facts: RunFacts, cases: Sequence[CaseSubmission], state: str) -> CodeFinding | None:
    if not cases:
        return None
    return CodeFinding(
        "S4", f"{len(cases)} of {len(facts.submission.cases)} outputs {state}; {first_problem(cases[0])}"
    )


@detector("deliver.wrong_place", "E5", "files like the missing outputs, elsewhere or with another name")
def wrong_place(facts: RunFacts) -> CodeFinding | None:
    """Files in the workspace that look like the missing outputs, at another place or under another name."""
    cases = [case.case for case in facts.missing]
    like: list[tuple[str, str]] = []
    for output in facts.card.outputs:
        if not output.optional:
            like += _lookalikes(output, cases, facts)
    if not like:
        return None
    expected, found = like[0]
    more = f", and {len(like) - 1} more alike" if len(like) > 1 else ""
    return CodeFinding("S4", f"{expected} is missing, but {found} is there{more}", _written_in(facts, found))


def _written_in(facts: RunFacts, path: str) -> int | None:
    """The turn in which a file was written last; null where no call lists it."""
    return next((call.turn for call in reversed(facts.conversation.calls) if path in call.new_files), None)


@detector("deliver.never_submitted", "E5", "no accepted call of submit_results")
def never_submitted(facts: RunFacts) -> CodeFinding | None:
    """submit_results was never accepted."""
    if facts.run.submitted:
        return None
    return CodeFinding("S5", f"never submitted ({facts.run.outcome}): {facts.run.detail}")


def _lookalikes(output: OutputFile, cases: list[str], facts: RunFacts) -> Iterator[tuple[str, str]]:
    """(expected path, file that looks like it), at most one of a case."""
    # What a failed call left behind is a part of an output, not an output at another place.
    left_behind = {path for event in facts.events if not event.ok for path in event.call.new_files}
    left_behind -= {path for event in facts.events if event.ok for path in event.call.new_files}
    sizes = facts.conversation.workspace_files
    files = [PurePosixPath(path) for path, size in sizes.items() if size and path not in left_behind]
    if "{case}" in output.path:
        expected = {case: f"{OUTPUT_FOLDER}/{output.path.replace('{case}', case)}" for case in cases}
        pools = {case: [path for path in files if case in str(path)] for case in cases}
    else:
        # One file for all cases is at fault only where none of them is there.
        alone = len(cases) == len(facts.submission.cases)
        expected = {"": f"{OUTPUT_FOLDER}/{output.path}"} if alone else {}
        pools = {"": files}
    known = set(map(str, facts.conversation.workspace_files))
    for case, path in expected.items():
        hit = next((file for file in pools[case] if _looks_like(file, PurePosixPath(path), case)), None)
        if hit is not None and path not in known:
            yield path, str(hit)


def _looks_like(file: PurePosixPath, expected: PurePosixPath, case: str) -> bool:
    """The name asked for elsewhere, or a file of the same kind for the case in a folder of results."""
    if file == expected or "".join(file.suffixes) != "".join(expected.suffixes):
        return False
    of_case = not case or case in file.parts or case in file.name
    if file.name == expected.name:
        return of_case
    in_results = any(_RESULTS.search(part) for part in file.parts[:-1])
    return of_case and in_results


DETECTORS = (missing, malformed, wrong_place, never_submitted)
