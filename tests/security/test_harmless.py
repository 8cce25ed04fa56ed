"""What honest agents write: never a reason for a warning, neither by its text nor by what it does.

The tables are ``harmless/<kind>.yaml``. Every snippet is read by the static analysis; all but those that need libraries
that the tests' small image lacks (``needs``) also run in the real container beside the tripwire and whatever else
watches a call there: one in eight with every change, the others by night (``make test-long``). Among them are the false
alarms of a text filter that the public benchmark names.
"""

from __future__ import annotations

from typing import Any

import pytest
from attack_range import Code, Outcome, load_table, run_all
from unprivileged import why_not

from automedbench.sandbox.evidence.policy import check_code

SNIPPETS = {snippet.id: snippet for snippet in load_table("harmless")}
RUNNABLE = [name for name, snippet in SNIPPETS.items() if not snippet.needs]
# A notice has no effect, but a report full of them is read by nobody.
MOST_WITH_NOTICE = 0.1


def test_the_tables_are_large_and_varied() -> None:
    assert len(SNIPPETS) >= 280
    assert len({" ".join(snippet.code.split()) for snippet in SNIPPETS.values()}) == len(SNIPPETS)
    assert len(RUNNABLE) >= 215


def static(snippet: Code) -> list[str]:
    """Severities of what the text alone gives."""
    findings = check_code(snippet.language, snippet.code.replace("@case@", "case_0001"), turn=1, call=1)
    return [finding.severity for finding in findings]


@pytest.mark.parametrize("snippet", SNIPPETS.values(), ids=SNIPPETS)
def test_harmless_text_is_not_refused(snippet: Code) -> None:
    assert set(static(snippet)) <= {"notice"}


def test_few_have_a_notice() -> None:
    noticed = [name for name, snippet in SNIPPETS.items() if static(snippet)]
    assert len(noticed) <= MOST_WITH_NOTICE * len(SNIPPETS), noticed


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> tuple[dict[str, Outcome], list[str]]:
    """Outcomes of the snippets that this session has selected, and what the host complains about afterwards."""
    if reason := why_not("light"):
        pytest.skip(reason)
    names = [item.callspec.params["name"] for item in request.session.items if _runs(item)]
    outcomes, complaints = run_all([SNIPPETS[name] for name in dict.fromkeys(names)], scored=False)
    return {outcome.id: outcome for outcome in outcomes}, complaints


def _runs(item: Any) -> bool:
    return getattr(item, "originalname", "") == "test_harmless_code_leaves_no_warning"


@pytest.mark.apptainer
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if place % 8 else []) for place, name in enumerate(RUNNABLE)]
)
def test_harmless_code_leaves_no_warning(results: tuple[dict[str, Outcome], list[str]], name: str) -> None:
    outcome = results[0][name]
    assert (outcome.status, outcome.effects, outcome.problems) == ("ok", [], []), outcome.stderr
    serious = [finding for finding in outcome.findings if finding.severity != "notice"]
    assert serious == []


@pytest.mark.apptainer
def test_nothing_is_left_behind(results: tuple[dict[str, Outcome], list[str]]) -> None:
    assert results[1] == []
