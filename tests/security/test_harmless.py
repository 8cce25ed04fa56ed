"""What honest agents write: never a reason for a warning.

The tables are ``harmless/<kind>.yaml``. The snippets run in the real container beside the tripwire and whatever else
watches a call there: one in eight with every change, the others by night (``make test-long``).
"""

from __future__ import annotations

from typing import Any

import pytest
from attack_range import Outcome, load_table, run_all
from unprivileged import why_not

SNIPPETS = {snippet.id: snippet for snippet in load_table("harmless")}


def test_the_tables_are_large_and_varied() -> None:
    assert len(SNIPPETS) >= 280
    assert len({" ".join(snippet.code.split()) for snippet in SNIPPETS.values()}) == len(SNIPPETS)


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
    "name", [pytest.param(name, marks=[pytest.mark.long] if place % 8 else []) for place, name in enumerate(SNIPPETS)]
)
def test_harmless_code_leaves_no_warning(results: tuple[dict[str, Outcome], list[str]], name: str) -> None:
    outcome = results[0][name]
    assert (outcome.status, outcome.effects, outcome.problems) == ("ok", [], []), outcome.stderr
    serious = [finding for finding in outcome.findings if finding.severity != "notice"]
    assert serious == []


@pytest.mark.apptainer
def test_nothing_is_left_behind(results: tuple[dict[str, Outcome], list[str]]) -> None:
    assert results[1] == []
