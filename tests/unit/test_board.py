"""Tables of stages, pairs, ranks and agreement, and the views of a board: expectations by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from factories import make_flat_scores, make_plan, make_run, make_score, make_scores

from automedbench.base.records import RunId, ScoreRecord, Scores, Tier
from automedbench.leaderboard.board import ALL_TRACKS, HEADLINE, Board, tier_choices
from automedbench.leaderboard.entries import BoardEntry, judge_scores, judge_stages, make_samples
from automedbench.leaderboard.tables.stages import collect_ratings
from automedbench.statistics.intervals import intervals
from automedbench.statistics.samples import StatisticsMethod

METHOD = StatisticsMethod("tasks", 0.95, 300)


def run_of(
    agent: str, task: str, repeat: int, scores: Scores, track: str = "detection", tier: Tier = "lite", **changes: Any
) -> BoardEntry:
    """A scored run."""
    run = make_run(agent, task, tier, repeat)
    return BoardEntry(run, track, make_score(run, scores, track=track, **changes))


def flat(agent: str, values: Sequence[float], repeats: int = 3) -> list[BoardEntry]:
    """One task per value, the same in every repeat."""
    return [
        run_of(agent, f"task-{number}", repeat, make_flat_scores(value))
        for number, value in enumerate(values)
        for repeat in range(1, repeats + 1)
    ]


def board(entries: list[BoardEntry]) -> Board:
    """A board of these runs."""
    return Board(make_plan([entry.run for entry in entries]), entries, {}, {}, METHOD)


def test_nothing_planned_is_nothing_everywhere() -> None:
    found = board([])
    lists = (
        found.tables["runs"],
        found.tables["overall"],
        found.tables["tracks"],
        found.tables["tasks"],
        found.tables["cells"],
        found.tables["stages"],
    )
    assert [list(rows) for rows in (*lists, found.tables["comparisons"], found.tables["agreement"])] == [[]] * 8
    assert found.views == {}


def test_choices_of_tiers() -> None:
    """A single tier is no choice of its own when it is the headline."""
    lite, pro = (BoardEntry(make_run(tier=tier), "vqa", None) for tier in ("lite", "pro"))  # type: ignore[arg-type]
    assert tier_choices([]) == {}
    assert tier_choices([lite]) == {HEADLINE: ("lite",)}
    assert tier_choices([pro, lite]) == {HEADLINE: ("lite",), "pro": ("pro",)}
    assert tier_choices([pro]) == {"pro": ("pro",)}


def test_views_hold_every_track() -> None:
    """Detection 0.8, segmentation 0.4: 0.6 over both; pro in its own view only."""
    entries = [
        run_of("a", "one", 1, make_flat_scores(0.8)),
        run_of("a", "two", 1, make_flat_scores(0.4), "segmentation"),
        run_of("a", "one", 1, make_flat_scores(0.1), tier="pro"),
    ]
    found = board(entries)
    assert {choice: list(view) for choice, view in found.views.items()} == {
        HEADLINE: [ALL_TRACKS, "detection", "segmentation"],
        "pro": [ALL_TRACKS, "detection"],
    }
    assert [row.overall for row in found.tables["overall"]] == [pytest.approx(0.6)]
    assert {row.task: row.overall for row in found.tables["tasks"]} == pytest.approx({"one": 0.8, "two": 0.4})
    assert [(row.track, row.overall) for row in found.tables["tracks"]] == [("detection", 0.8), ("segmentation", 0.4)]
    assert found.views["pro"][ALL_TRACKS][0].overall == 0.1
    assert [(row.task, row.tier) for row in found.tables["cells"]] == [("one", "lite"), ("one", "pro"), ("two", "lite")]
    assert [row.task for row in found.tables["tasks"]] == ["one", "two"]


# --- stages -----------------------------------------------------------------------------------------------------


def test_stage_means_are_pooled_over_tasks() -> None:
    """S1: task one (1 + 0 + 0.5) / 3 = 0.5, task two (one tier, three repeats) 1.0 → 0.75. S4 is 0.2 everywhere."""
    s1 = {"one": (1.0, 0.0, 0.5), "two": (1.0, 1.0, 1.0)}
    entries = [
        run_of("a", task, repeat, make_scores((value, 0.0, 0.0, 0.2, 0.0)))
        for task, values in s1.items()
        for repeat, value in enumerate(values, 1)
    ]
    rows = {(row.track, row.stage): row for row in board(entries).tables["stages"]}
    assert list(rows) == [(track, f"S{number}") for track in (None, "detection") for number in range(1, 6)]
    first, fourth = rows[None, "S1"], rows[None, "S4"]
    assert first.mean == pytest.approx(0.75)
    assert first.low is not None and first.high is not None and first.low < 0.75 < first.high <= 1
    assert fourth.mean == pytest.approx(0.2)
    assert (first.n_scored, first.n_planned, first.judge_spread, first.n_spread) == (6, 6, None, 0)


def test_spread_between_judgements_is_a_mean_over_runs_that_have_one() -> None:
    """(0.1 + 0.3) / 2; the third run had one judge."""
    spreads = [{"S1": 0.1}, {"S1": 0.3, "S2": None}, {}]
    entries = [
        run_of("a", "one", repeat, make_scores(), judge_spread=spread) for repeat, spread in enumerate(spreads, 1)
    ]
    rows = {row.stage: row for row in board(entries).tables["stages"] if row.track is None}
    assert (rows["S1"].judge_spread, rows["S1"].n_spread) == (pytest.approx(0.2), 2)
    assert (rows["S2"].judge_spread, rows["S2"].n_spread) == (None, 0)


# --- pairs and ranks --------------------------------------------------------------------------------------------


def test_comparisons() -> None:
    """b is 0.1 better on each of eight tasks: 2 of 2^8 sign patterns are as extreme."""
    values = [0.1 * number for number in range(8)]
    found = board(flat("a", values) + flat("b", [value + 0.1 for value in values])).tables["comparisons"]
    assert [(row.track, row.a, row.b) for row in found] == [(None, "a", "b"), ("detection", "a", "b")]
    row = found[0]
    assert (row.n_cells, row.n_tasks, row.p_like) == (8, 8, pytest.approx(2 / 256))
    assert row.difference == pytest.approx(-0.1)
    assert row.p is not None and row.p < 0.05
    assert row.different and row.generalises is True and row.sufficient


def test_letters_and_ranks_follow_the_comparisons() -> None:
    """a and b change places between tasks, c is far below both; with two repeats nothing is inferred."""
    scores = {"a": [0.5, 0.1] * 4, "b": [0.1, 0.5] * 4, "c": [0.0] * 8}
    found = board([run for name, values in scores.items() for run in flat(name, values)]).tables["overall"]
    rows = {row.agent: (row.tie, row.rank_best, row.rank_worst, row.generalises) for row in found}
    assert rows == {"a": ("a", 1, 2, True), "b": ("a", 1, 2, True), "c": ("b", 3, 3, True)}
    few = board(flat("a", [0.5], 2) + flat("b", [0.1], 2)).tables
    assert [(row.tie, row.rank_best, row.rank_worst, row.generalises) for row in few["overall"]] == [(None,) * 4] * 2
    assert [(row.p, row.different, row.sufficient) for row in few["comparisons"]] == [(None, False, False)] * 2


# --- agreement --------------------------------------------------------------------------------------------------


def judged(panels: Sequence[dict[str, dict[str, float]]]) -> list[BoardEntry]:
    """One run per panel."""
    return [run_of("a", "one", repeat, make_scores(), panel=panel) for repeat, panel in enumerate(panels, 1)]


def scores_of(entries: list[BoardEntry]) -> list[ScoreRecord]:
    """Their scores."""
    return [entry.score for entry in entries if entry.score]


def test_one_judge_agrees_with_nobody() -> None:
    assert board(judged([{}, {"x#1": {"S1": 1.0}}])).tables["agreement"].frame.empty


def test_ratings_have_gaps_where_a_judge_said_nothing() -> None:
    entries = judged([{"x#1": {"S1": 1.0}, "y#1": {"S1": 0.5}}, {"y#1": {"S1": 0.0}, "z#1": {"S2": 1.0}}])
    ratings = collect_ratings(scores_of(entries), "S1")
    assert list(ratings) == ["x#1", "y#1"]
    assert ratings["x#1"][0] == 1.0 and math.isnan(ratings["x#1"][1])
    assert list(ratings["y#1"]) == [0.5, 0.0]


def test_judges_that_differ_widen_the_interval_of_a_row() -> None:
    """Two judges, S1 to S3 of 0.4 and 0.8 in every run, S4 and S5 1: agentic 0.25 + 0.75 · 0.4 = 0.55 and 0.85.

    Nothing varies between repeats. Variance 0.045 between judges, 0.0225 of their mean: SE 0.15, overall 0.075. A judge
    that repeats itself is one judge, one without all stages is none.
    """
    panel = {
        **{f"x#{repeat}": dict.fromkeys(("S1", "S2", "S3"), 0.4) for repeat in (1, 2)},
        "y#1": dict.fromkeys(("S1", "S2", "S3"), 0.8),
        "z#1": {"S1": 0.0},
    }
    scores = make_scores((0.6, 0.6, 0.6, 1.0, 1.0), task=1.0)
    entries = [run_of("a", "one", repeat, scores, panel=panel) for repeat in (1, 2, 3)]
    assert entries[0].score and judge_scores(entries[0].score) == {"x": 0.55, "y": 0.85}
    stages = judge_stages(entries[0].score)
    assert {judge: own["s1"] for judge, own in stages.items()} == {"x": 0.4, "y": 0.8}
    found = intervals(make_samples(entries))
    assert found["agentic"].standard_error == pytest.approx(0.15)
    assert found["overall"].standard_error == pytest.approx(0.075)
    [row] = board(entries).tables["tasks"]
    [alone] = board([run_of("a", "one", repeat, scores) for repeat in (1, 2, 3)]).tables["tasks"]
    assert row.agentic_high > alone.agentic_high and row.task_high == alone.task_high


def test_agreement_of_a_panel() -> None:
    """S1: always the same, 1. S2: x says 0 when y says 1 and the other way round; by hand with four values 0, 1, 1, 0:
    kappa (0 observed − ½ by chance) / ½ = −1; alpha 1 − 3 · 2 / (2 · 2) = −½."""
    panels = [{"x#1": {"S1": value, "S2": value}, "y#1": {"S1": value, "S2": 1 - value}} for value in (0.0, 1.0)]
    rows = {(row.track, row.stage, row.measure): row for row in board(judged(panels)).tables["agreement"]}
    assert set(rows) == {
        *((track, stage, "alpha") for track in (None, "detection") for stage in ("S1", "S2")),
        *((None, stage, "kappa") for stage in ("S1", "S2")),
    }
    assert rows[None, "S1", "alpha"].value == rows[None, "S1", "kappa"].value == 1.0
    assert rows[None, "S2", "kappa"].value == pytest.approx(-1.0)
    assert rows[None, "S2", "alpha"].value == pytest.approx(-0.5)
    kappa = rows[None, "S2", "kappa"]
    assert (kappa.first, kappa.second, kappa.raters, kappa.units) == ("x#1", "y#1", 2, 2)
    assert rows[None, "S2", "alpha"].first is None


def test_kappa_goes_by_distance() -> None:
    """Levels 0, ½ and 1: one step beside costs a quarter of two steps. x 0 ½ 1, y 0 ½ ½: observed ¼ / 3 = 1/12, by
    chance Σ pᵢ qⱼ dᵢⱼ = ⅓·(⅔·¼) + ⅓·(⅓·¼) + ⅓·(⅓·1 + ⅔·¼) = 3/36 + 6/36 = 1/4; kappa 1 − (1/12) / (1/4) = ⅔."""
    pairs = [(0.0, 0.0), (0.5, 0.5), (1.0, 0.5)]
    panels = [{"x#1": {"S3": one}, "y#1": {"S3": two}} for one, two in pairs]
    kappa = next(row for row in board(judged(panels)).tables["agreement"] if row.measure == "kappa")
    assert kappa.value == pytest.approx(2 / 3)


def test_planned_runs_without_a_score_change_no_table_of_pairs() -> None:
    entries = flat("a", [0.1] * 6) + flat("b", [0.2] * 6)
    missing = BoardEntry(RunId(agent="b", task="task-0", tier="lite", repeat=9), "detection", None)
    assert list(board([*entries, missing]).tables["comparisons"]) == list(board(entries).tables["comparisons"])
