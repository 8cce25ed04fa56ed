"""Tables of error codes from scores made by hand; every expectation is counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from factories import disqualify, make_flat_scores, make_run, make_score

from automedbench.base.records import ErrorCode, ScoreRecord
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.tables.error_codes import (
    error_tables,
    is_completed,
)


def codes(text: str) -> list[ErrorCode]:
    """``E3@S3`` by a rule, ``E1@S1!`` by a judge."""
    return [
        ErrorCode.model_validate(
            {
                "code": word[:2],
                "stage": word[3:5],
                "evidence": word,
                "source": "judge" if word.endswith("!") else "rule",
                "detector": f"detector.{word[:2]}",
            }
        )
        for word in text.split()
    ]


def score(text: str = "", overall: float = 0.5, repeat: int = 1, **changes: Any) -> ScoreRecord:
    """A run with these codes; ``agent``, ``task``, ``tier`` and ``track`` by keyword."""
    place = {name: changes.pop(name) for name in ("agent", "task", "tier") if name in changes}
    run = make_run(**({"agent": "a", "task": "t"} | place), repeat=repeat)
    return make_score(run, make_flat_scores(overall), error_codes=codes(text), **changes)


def entries(*scores: ScoreRecord) -> list[BoardEntry]:
    return [BoardEntry(item.run, item.track, item) for item in scores]


def one(rows: Sequence[Any], **wanted: Any) -> Any:
    """The one row whose fields are these."""
    found = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    assert len(found) == 1, (wanted, found)
    return found[0]


FOUR = entries(
    score("E3@S3 E5@S4", repeat=1),
    score("E3@S3 E3@S4 E1@S1!", repeat=2),
    score("", repeat=3),
    score("E5@S4 E5@S5", repeat=4, agent="b", track="vqa", task="q"),
)
"""Fired: E3 twice, E5 twice, E1 once: 5 pairs of run and code."""


def test_nothing_scored() -> None:
    assert list(error_tables([])["errors"]) == []
    atlas = error_tables([BoardEntry(make_run(), "detection", None)])
    assert list(map(list, atlas.values())) == [[], [], [], []]


SHARES = [
    # track, agent, stage, code, n_runs, n_with_code, n_fired, n_by_rule
    (None, None, None, "E1", 4, 1, 5, 0),
    (None, None, None, "E2", 4, 0, 5, 0),
    (None, None, None, "E3", 4, 2, 5, 2),
    (None, None, None, "E5", 4, 2, 5, 2),
    (None, "a", None, "E3", 3, 2, 4, 2),
    (None, "b", None, "E3", 1, 0, 1, 0),
    ("vqa", None, None, "E5", 1, 1, 1, 1),
    ("detection", "a", None, "E5", 3, 1, 4, 1),
    (None, None, "S3", "E3", 4, 2, 2, 2),
    (None, None, "S4", "E3", 4, 1, 3, 1),
    (None, None, "S4", "E5", 4, 2, 3, 2),
    (None, None, "S5", "E5", 4, 1, 1, 1),
    (None, None, "S1", "E1", 4, 1, 1, 0),
]


@pytest.mark.parametrize(("track", "agent", "stage", "code", "n_runs", "n_with", "n_fired", "n_rule"), SHARES)
def test_shares(
    track: str | None,
    agent: str | None,
    stage: str | None,
    code: str,
    n_runs: int,
    n_with: int,
    n_fired: int,
    n_rule: int,
) -> None:
    row = one(error_tables(FOUR)["errors"], track=track, agent=agent, stage=stage, code=code)
    assert (row.n_runs, row.n_with_code, row.n_fired) == (n_runs, n_with, n_fired)
    assert (row.n_by_rule, row.n_by_judge) == (n_rule, n_with - n_rule)
    assert row.run_share == n_with / n_runs
    assert row.fired_share == n_with / n_fired


def test_rules_cannot_measure_knowledge() -> None:
    """Null, not 0, where no language model judged; the other codes as ever."""
    atlas = error_tables(entries(score("E5@S5")))
    row = one(atlas["errors"], track=None, agent=None, stage=None, code="E1")
    assert (row.n_with_code, row.n_by_judge, row.run_share, row.fired_share) == (None, None, None, None)
    assert one(atlas["errors"], track=None, agent=None, stage=None, code="E5").n_with_code == 1
    summary = one(atlas["error_summary"], track=None, agent=None)
    assert (summary.n_knowledge, summary.ratio, summary.n_engineering) == (None, None, 1)


def test_order_of_rows() -> None:
    """All tracks first, in each all agents first; then the five codes, then stages that fired."""
    rows = error_tables(FOUR)["errors"]
    places = list(dict.fromkeys((row.track, row.agent) for row in rows))
    assert places == [
        (None, None), (None, "a"), (None, "b"), ("detection", None), ("detection", "a"), ("vqa", None), ("vqa", "b")
    ]  # fmt: skip
    assert [row.code for row in rows[:5]] == ["E1", "E2", "E3", "E4", "E5"]
    assert [(row.stage, row.code) for row in rows[5:10]] == [
        ("S1", "E1"), ("S3", "E3"), ("S4", "E3"), ("S4", "E5"), ("S5", "E5")
    ]  # fmt: skip


def test_codes_that_never_fired_have_no_share_of_nothing() -> None:
    row = one(error_tables(entries(score()))["errors"], track=None, agent=None, code="E3")
    assert (row.n_runs, row.run_share, row.n_fired, row.fired_share) == (1, 0.0, 0, None)


def test_disqualified_runs_are_in_no_denominator() -> None:
    """Their codes were never determined."""
    atlas = error_tables(entries(score("E5@S5"), disqualify(score("E3@S3", repeat=2))))
    assert one(atlas["errors"], track=None, agent=None, code="E5", stage=None).n_runs == 1
    assert one(atlas["errors"], track=None, agent=None, code="E3", stage=None).n_with_code == 0
    summary = one(atlas["error_summary"], track=None, agent=None)
    assert (summary.n_runs, summary.n_disqualified) == (1, 1)


def test_all_disqualified() -> None:
    atlas = error_tables(entries(disqualify(score("E3@S3"))))
    assert (list(atlas["errors"]), list(atlas["error_pairs"]), list(atlas["error_costs"])) == ([], [], [])
    assert one(atlas["error_summary"], track=None, agent=None).recovery_rate is None


PAIRS = [
    # runs with their codes, n_both, Jaccard, lift: P(both) ÷ (P(E3) · P(E5))
    ("never together", ["E3@S3", "E5@S4"], 0, 0.0, 0.0),
    ("always together", ["E3@S3 E5@S4", ""], 1, 1.0, 2.0),
    ("as by chance", ["E3@S3 E5@S4", "E3@S3", "E5@S4", ""], 1, 1 / 3, 1.0),
    ("one never fires", ["E3@S3", ""], 0, 0.0, None),
    ("none fires", [""], 0, None, None),
    ("two stages are one code", ["E3@S3 E3@S4 E5@S4 E5@S5"], 1, 1.0, 1.0),
]


@pytest.mark.parametrize(
    ("runs", "n_both", "jaccard", "lift"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS]
)
def test_pairs(runs: list[str], n_both: int, jaccard: float | None, lift: float | None) -> None:
    atlas = error_tables(entries(*(score(text, repeat=number) for number, text in enumerate(runs, 1))))
    row = one(atlas["error_pairs"], track=None, first="E3", second="E5")
    assert (row.n_both, row.n_runs) == (n_both, len(runs))
    assert row.jaccard == (None if jaccard is None else pytest.approx(jaccard))
    assert row.lift == (None if lift is None else pytest.approx(lift))


def test_every_pair_once() -> None:
    atlas = error_tables(FOUR)
    assert len([row for row in atlas["error_pairs"] if row.track is None]) == 10  # 5 · 4 / 2
    assert all(row.first < row.second for row in atlas["error_pairs"])


def cost(*scores: ScoreRecord) -> Any:
    return one(error_tables(entries(*scores))["error_costs"], track=None, agent=None, code="E3")


def test_cost_compares_within_cells() -> None:
    """An easy task without the code and a hard one with it differ, though the code costs 0.1 in each."""
    row = cost(
        score("E3@S3", 0.8, 1, task="easy"), score("", 0.9, 2, task="easy"), score("", 0.9, 3, task="easy"),
        score("E3@S3", 0.1, 1, task="hard"), score("E3@S3", 0.1, 2, task="hard"), score("", 0.2, 3, task="hard"),
    )  # fmt: skip
    assert (row.n_cells, row.within_difference) == (2, pytest.approx(-0.1))
    # With: (0.8 + 0.1 + 0.1) / 3; without: (0.9 + 0.9 + 0.2) / 3.
    assert row.difference == pytest.approx(1 / 3 - 2 / 3)
    assert (row.n_with, row.n_without) == (3, 3)
    assert (row.low, row.high) == (None, None)  # two cells tell nothing of their spread


def test_cells_are_agent_task_and_tier() -> None:
    row = cost(
        score("E3@S3", 0.1), score("", 0.9, agent="b"), score("", 0.8, task="u"), score("", 0.7, tier="standard")
    )
    assert (row.n_cells, row.within_difference, row.low, row.high) == (0, None, None, None)
    assert row.difference == pytest.approx(0.1 - 0.8)


@pytest.mark.parametrize("text", ["", "E3@S3"])
def test_cost_without_the_other_kind(text: str) -> None:
    row = cost(score(text, 0.4))
    assert (row.mean_with, row.mean_without) == ((None, 0.4) if text == "" else (0.4, None))
    assert (row.difference, row.within_difference) == (None, None)


def test_interval_of_the_cost() -> None:
    """Differences −0.1, −0.2, −0.3: mean −0.2, s = 0.1, t(0.975, 2) = 4.302653 (table), half width 0.248414."""
    runs = [
        item
        for task, difference in (("x", 0.1), ("y", 0.2), ("z", 0.3))
        for item in (score("E3@S3", 0.5 - difference, 1, task=task), score("", 0.5, 2, task=task))
    ]
    row = cost(*runs)
    assert (row.low, row.high) == (pytest.approx(-0.2 - 0.248414, abs=1e-6), pytest.approx(-0.2 + 0.248414, abs=1e-6))


def test_engineering_to_knowledge() -> None:
    """FOUR: one E1 against two E3 and two E5."""
    row = one(error_tables(FOUR)["error_summary"], track=None, agent=None)
    assert (row.n_knowledge, row.n_engineering, row.ratio, row.n_fired) == (1, 4, 4.0, 5)
    assert one(error_tables(FOUR)["error_summary"], track="vqa", agent="b").ratio is None


COMPLETED: list[tuple[str, dict[str, Any], bool]] = [
    ("submitted and scored", {}, True),
    ("never submitted", {"failed": True, "outcome": "stopped"}, False),
    ("an output missing", {"failed": True}, False),
    ("some malformed", {"completion_rate": 0.5, "valid_rate": 0.5}, True),
    ("nothing that could be scored", {"completion_rate": 0.0, "valid_rate": 0.0}, False),
]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in COMPLETED], ids=[row[0] for row in COMPLETED])
def test_completed(changes: dict[str, Any], expected: bool) -> None:
    assert is_completed(score(**changes)) is expected


def test_disqualified_is_not_completed() -> None:
    assert not is_completed(disqualify(score()))


def test_recovery_rate() -> None:
    """Completed runs ÷ runs with two or more different codes (paper); others are not asked."""
    atlas = error_tables(
        entries(
            score("E2@S2 E3@S3", repeat=1),
            score("E3@S3 E5@S5", repeat=2, failed=True),
            score("E3@S3 E5@S5", repeat=3, failed=True),
            score("E3@S3 E3@S4", repeat=4, failed=True),
            score("E3@S3", repeat=5),
            score("E2@S2 E3@S3", repeat=1, agent="b"),
        )
    )
    of_all, of_a = (
        one(atlas["error_summary"], track=None, agent=None),
        one(atlas["error_summary"], track=None, agent="a"),
    )
    assert (of_all.n_two_or_more, of_all.n_recovered, of_all.recovery_rate) == (4, 2, 0.5)
    assert (of_a.n_two_or_more, of_a.n_recovered, of_a.recovery_rate) == (3, 1, pytest.approx(1 / 3))


def test_order_of_entries_does_not_matter() -> None:
    one_way, other = (error_tables(runs) for runs in (FOUR, list(reversed(FOUR))))
    for name, table in one_way.items():
        assert list(table) == list(other[name]), name
