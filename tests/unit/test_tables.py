"""Tables of the leaderboard: expectations by hand, and the paper's own table recomputed."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from boards import build_rows
from factories import (
    disqualify,
    make_enforced,
    make_flat_scores,
    make_recipe,
    make_run,
    make_score,
    make_scores,
    make_totals,
)

from automedbench.base.records import HEADLINE_TIERS, Tier, Tokens
from automedbench.leaderboard.conditions import find_differences, read_conditions
from automedbench.leaderboard.entries import BoardEntry, make_samples, match_scores
from automedbench.leaderboard.tables.cells import tabulate_runs
from automedbench.leaderboard.tables.ranking import build_ranking
from automedbench.leaderboard.tables.table import Row
from automedbench.statistics.samples import StatisticsMethod


def entry(agent: str, task: str, tier: Tier, repeat: int, value: float | None, track: str = "detection") -> BoardEntry:
    """A planned run whose scores are all ``value``; null: not scored."""
    run = make_run(agent, task, tier, repeat)
    score = None if value is None else make_score(run, make_flat_scores(value), track=track)
    return BoardEntry(run, track, score)


def only(rows: list[Row]) -> Row:
    """The one row."""
    assert len(rows) == 1
    return rows[0]


# Task one: lite 0.2 and 0.4 (mean 0.3), standard 0.9 (mean 0.9) → 0.6. Task two: lite 0.0 → 0.0.
# By tasks (0.6 + 0.0) / 2 = 0.3; by runs (0.2 + 0.4 + 0.9 + 0.0) / 4 = 0.375.
UNEVEN = [
    entry("a", "one", "lite", 1, 0.2),
    entry("a", "one", "lite", 2, 0.4),
    entry("a", "one", "standard", 1, 0.9),
    entry("a", "two", "lite", 1, 0.0),
]


def test_nothing_planned_gives_no_row() -> None:
    assert build_rows([], "overall") == []


def test_agent_without_a_score_has_a_row_without_numbers() -> None:
    row = only(build_rows([entry("a", "one", "lite", 1, None)], "overall"))
    assert (row.rank, row.overall, row.s1, row.failure_rate, row.mean_turns, row.mean_cost_usd) == (None,) * 6
    assert (row.n_scored, row.n_planned, row.cells_scored, row.cells_planned) == (0, 1, 0, 1)
    assert row.provisional


@pytest.mark.parametrize(
    ("pooling", "expected"), [pytest.param("tasks", 0.3, id="tasks"), pytest.param("runs", 0.375, id="runs")]
)
def test_pooling(pooling: str, expected: float) -> None:
    row = only(build_rows(UNEVEN, "overall", pooling))  # type: ignore[arg-type]
    for value in (row.overall, row.agentic, row.task_score, row.s1, row.s2, row.s3, row.s4, row.s5):
        assert value == pytest.approx(expected)


def test_scopes_of_one_agent() -> None:
    assert [(row.task, row.overall) for row in build_rows(UNEVEN, "task")] == [
        ("one", pytest.approx(0.6)),
        ("two", 0.0),
    ]
    cells = build_rows(UNEVEN, "cell")
    assert [(row.task, row.tier, row.n_scored) for row in cells] == [
        ("one", "lite", 2),
        ("one", "standard", 1),
        ("two", "lite", 1),
    ]
    assert cells[0].overall == pytest.approx(0.3)


def test_tracks_are_separate_rows() -> None:
    entries = [entry("a", "one", "lite", 1, 0.4), entry("a", "ct", "lite", 1, 0.8, track="segmentation")]
    assert [(row.track, row.overall) for row in build_rows(entries, "track")] == [
        ("detection", 0.4),
        ("segmentation", 0.8),
    ]


def test_pro_is_not_in_the_headline() -> None:
    entries = [entry("a", "one", "lite", 1, 0.4), entry("a", "one", "pro", 1, 1.0)]
    row = only(build_rows([entry for entry in entries if entry.run.tier in HEADLINE_TIERS], "overall"))
    assert (row.overall, row.n_planned) == (0.4, 1)


def test_missing_cell_is_not_imputed() -> None:
    """One of two tiers is missing: the task's mean is that of the other, not half of it."""
    entries = [entry("a", "one", "lite", 1, 0.8), entry("a", "one", "standard", 1, None)]
    row = only(build_rows(entries, "overall"))
    assert row.overall == 0.8
    assert (row.n_scored, row.n_planned, row.cells_scored, row.cells_planned) == (1, 2, 1, 2)
    assert row.provisional


def test_medals_with_contradictions_are_counted() -> None:
    """0.2 of the statements; without a medal it is no mark of the row."""
    scores = [make_score(make_run(repeat=n), medal=medal, contradicting=0.2) for n, medal in ((1, "good"), (2, "fail"))]
    row = only(build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall"))
    assert (row.n_contradicting, row.no_medal_rate) == (1, 0.5)


def test_disqualified_counts_zero_and_as_failed() -> None:
    """(1.0 + 0) / 2; even a record that kept its numbers and calls itself complete counts 0 and failed."""
    good = make_score(make_run(repeat=1), make_flat_scores(1.0))
    odd = make_score(make_run(repeat=2), make_flat_scores(1.0), disqualified=True, failed=False)
    row = only(build_rows([BoardEntry(score.run, "detection", score) for score in (good, odd)], "overall"))
    assert (row.overall, row.s1, row.failure_rate, row.n_failed, row.n_disqualified) == (0.5, 0.5, 0.5, 1, 1)
    assert disqualify(good).scores.overall == 0.0


def test_use_is_a_mean_over_runs_whatever_the_pooling() -> None:
    """Turns 10, 20, 60 → 30. By tasks it would be (15 + 60) / 2."""
    turns = {("one", 1): 10, ("one", 2): 20, ("two", 1): 60}
    scores = [
        make_score(
            make_run(task=task, repeat=repeat),
            totals=make_totals(turns=n, wall_s=float(n), tokens=Tokens(prompt=n, completion=n, cached=5, reasoning=3)),
        )
        for (task, repeat), n in turns.items()
    ]
    row = only(build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall"))
    assert (row.mean_turns, row.mean_wall_s, row.mean_tokens) == (30.0, 30.0, 60.0)


@pytest.mark.parametrize(
    ("costs", "mean", "n_priced"),
    [
        pytest.param([None, None], None, 0, id="unknown is not zero"),
        pytest.param([None, "0.30", "0.10"], Decimal("0.200000"), 2, id="over known prices"),
        pytest.param(["0", "0.1", "0.1"], Decimal("0.066667"), 3, id="free is a price"),
    ],
)
def test_cost(costs: list[str | None], mean: Decimal | None, n_priced: int) -> None:
    scores = [
        make_score(make_run(repeat=number), totals=make_totals(cost_usd=cost)) for number, cost in enumerate(costs, 1)
    ]
    row = only(build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall"))
    assert (row.mean_cost_usd, row.n_priced) == (mean, n_priced)


def test_order_does_not_depend_on_the_input_and_ties_go_by_name() -> None:
    values = {"c": 0.5, "a": 0.5, "b": 0.9, "d": None}
    entries = [entry(name, "one", "lite", 1, value) for name, value in values.items()]
    rows = build_rows(entries, "overall")
    assert [(row.rank, row.agent) for row in rows] == [(1, "b"), (2, "a"), (2, "c"), (None, "d")]
    assert build_rows(entries[::-1], "overall") == rows


def test_rounding_makes_no_rank() -> None:
    values = {"a": 0.1 + 0.2, "b": 0.3, "c": 0.2}
    rows = build_rows([entry(agent, "one", "lite", 1, value) for agent, value in values.items()], "overall")
    assert [(row.agent, row.rank) for row in rows] == [("a", 1), ("b", 1), ("c", 3)]


LOCAL = make_enforced("local")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="same"),
        pytest.param({"enforced": LOCAL}, ["sandbox"], id="backend"),
        pytest.param({"enforced": make_enforced(network="open")}, ["sandbox"], id="network"),
        pytest.param({"recipe": make_recipe(judge_kind="llm", judge="judge-x")}, ["judge"], id="judge"),
        pytest.param({"recipe": make_recipe(track_version=2)}, ["track version"], id="track version"),
        pytest.param({"recipe": make_recipe(cases_sha256="1" * 64)}, ["cases"], id="staged data"),
        pytest.param({"recipe": make_recipe(rubric_version=102)}, ["rubric version"], id="rubric"),
    ],
)
def test_mixed_conditions_are_named(changes: dict[str, object], expected: list[str]) -> None:
    scores = [make_score(make_run(repeat=1)), make_score(make_run(repeat=2), **changes)]
    assert find_differences(map(read_conditions, scores)) == expected
    row = only(build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall"))
    assert row.mixed == ", ".join(expected)


def test_row_names_its_classes() -> None:
    scores = [make_score(make_run(repeat=1)), make_score(make_run(repeat=2), enforced=LOCAL)]
    row = only(build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall"))
    assert row.sandbox == "apptainer/sealed + local/sealed"
    assert row.judge == "heuristic (heuristic-1)"


def test_versions_may_differ_between_tasks() -> None:
    scores = [make_score(make_run(task="one")), make_score(make_run(task="two"), recipe=make_recipe(task_version=7))]
    assert find_differences(map(read_conditions, scores)) == []


def test_entries_take_the_track_from_cards_until_a_score_says_it() -> None:
    runs = [make_run(task="one"), make_run(task="two"), make_run(task="three")]
    score = make_score(make_run(task="one"), track="segmentation")
    assert [entry.track for entry in match_scores(runs, [score], {"two": "vqa"})] == ["segmentation", "vqa", "unknown"]


def test_unplanned_score_is_left_out() -> None:
    planned = [make_run(repeat=1)]
    scores = [make_score(make_run(repeat=1)), make_score(make_run(repeat=2))]
    assert only(build_rows(match_scores(planned, scores, {}), "overall")).n_planned == 1


def test_agents_on_other_tasks_have_no_rank() -> None:
    """c did the easy task only: its mean of 0.9 is no better than a's, which has 0.9 there as well (by hand)."""
    easy, hard = {"a": 0.9, "b": 0.8, "c": 0.9}, {"a": 0.3, "b": 0.2}
    entries = [entry(agent, "easy", "lite", 1, value) for agent, value in easy.items()]
    entries += [entry(agent, "hard", "lite", 1, value) for agent, value in hard.items()]
    found = build_ranking(tabulate_runs(entries), "overall", StatisticsMethod())
    assert [(row.agent, row.rank, row.overall, row.other_tasks) for row in found.rows] == [
        ("a", 1, pytest.approx(0.6), False),
        ("b", 2, pytest.approx(0.5), False),
        ("c", None, pytest.approx(0.9), True),
    ]
    assert len(found.comparisons) == 3  # pairs are fair: only cells that both have
    ranks = {(row.task, row.agent): row.rank for row in build_rows(entries, "task")}
    assert ranks == {("easy", "a"): 1, ("easy", "c"): 1, ("easy", "b"): 3, ("hard", "a"): 1, ("hard", "b"): 2}


def test_agents_of_another_judge_have_no_rank_beside_the_pinned_one() -> None:
    """a was judged by the preset's judge; b, with more, was not: marked, without a rank. Alone, b is the first."""
    mine, other = entry("a", "one", "lite", 1, 0.5), replace(entry("b", "one", "lite", 1, 0.6), other_judge=True)
    found = [(row.agent, row.rank, row.other_judge) for row in build_rows([mine, other], "overall")]
    assert found == [("a", 1, False), ("b", None, True)]
    assert [(row.rank, row.other_judge) for row in build_rows([other], "overall")] == [(1, True)]


def test_of_two_choices_of_tasks_the_larger_ranks() -> None:
    entries = [entry("a", "one", "lite", 1, 0.5), entry("b", "one", "lite", 1, 0.6), entry("b", "two", "lite", 1, 0.1)]
    assert [(row.agent, row.rank) for row in build_rows(entries, "overall")] == [("b", 1), ("a", None)]


# --- intervals, ranks, ties, reliability --------------------------------------------------------------------------


def steady(agent: str, tasks: dict[str, float], repeats: int = 3) -> list[BoardEntry]:
    """Runs of a campaign in which nothing varies between repeats."""
    return [
        entry(agent, task, "lite", repeat, value) for task, value in tasks.items() for repeat in range(1, repeats + 1)
    ]


def spread_out(agent: str, offset: float, n_tasks: int = 8) -> list[BoardEntry]:
    """Eight tasks from 0.2 to 0.55 plus an offset; three repeats at -0.01, 0 and +0.01 of it."""
    return [
        entry(agent, f"task-{task}", "lite", repeat, 0.2 + 0.05 * task + offset + 0.01 * (repeat - 2))
        for task in range(n_tasks)
        for repeat in (1, 2, 3)
    ]


@pytest.mark.parametrize("scope", ["overall", "track", "task", "cell"])
@pytest.mark.parametrize("pooling", ["tasks", "runs"])
def test_every_scope_has_intervals(scope: str, pooling: str) -> None:
    """They hold the mean, and lie within what a score can be."""
    for row in build_rows(spread_out("a", 0.0), scope, pooling, resamples=200):  # type: ignore[arg-type]
        for name in ("overall", "agentic", "task"):
            value = row.task_score if name == "task" else getattr(row, name)
            low, high = getattr(row, f"{name}_low"), getattr(row, f"{name}_high")
            assert 0 <= low < value < high <= 1
        assert (row.sufficient, row.min_repeats) == (True, 3)


def test_intervals_of_halves_are_those_of_the_halves() -> None:
    """Agentic half the same everywhere, task half not: only the latter is uncertain about its eight tasks."""
    entries = [
        BoardEntry(run, "detection", make_score(run, make_scores((0.5,) * 5, task=0.1 * task)))
        for task in range(8)
        for repeat in (1, 2, 3)
        for run in [make_run("a", f"task-{task}", "lite", repeat)]
    ]
    row = only(build_rows(entries, "overall", resamples=200))
    assert (row.agentic_low, row.agentic_high) == (pytest.approx(0.5), pytest.approx(0.5))
    assert row.task_low is not None and row.task_high is not None and row.task_high - row.task_low > 0.1


@pytest.mark.parametrize("repeats", [1, 2])
def test_below_three_repeats_nothing_is_inferred(repeats: int) -> None:
    entries = steady("a", {"one": 0.8}, repeats) + steady("b", {"one": 0.1}, repeats)
    for row in build_rows(entries, "overall", resamples=200):
        assert (row.overall_low, row.overall_high, row.agentic_low, row.task_high) == (None,) * 4
        assert (row.rank_best, row.rank_worst, row.tie) == (None,) * 3
        assert (row.sufficient, row.min_repeats) == (False, repeats)
    assert [row.rank for row in build_rows(entries, "overall", resamples=200)] == [1, 2], "the ranking itself stays"


def test_one_thin_cell_makes_the_row_insufficient() -> None:
    """One of two tasks has two repeats: the row that holds it infers nothing, that of the other task does."""
    entries = [*steady("a", {"one": 0.8}), *steady("a", {"two": 0.6}, 2)]
    assert not only(build_rows(entries, "overall", resamples=200)).sufficient
    assert [row.sufficient for row in build_rows(entries, "task", resamples=200)] == [True, False]


def test_clear_difference() -> None:
    """0.3 apart on each of eight tasks: no other rank is possible, and no letter is shared."""
    rows = build_rows(spread_out("a", 0.0) + spread_out("b", 0.3), "overall", resamples=500)
    assert [(row.agent, row.rank, row.rank_best, row.rank_worst) for row in rows] == [("b", 1, 1, 1), ("a", 2, 2, 2)]
    assert [row.tie for row in rows] == ["a", "b"]


def test_single_agent_is_compared_with_nobody() -> None:
    row = only(build_rows(spread_out("a", 0.0), "overall", resamples=200))
    assert (row.rank, row.rank_best, row.rank_worst, row.tie) == (1, None, None, None)


def test_agent_without_scores_does_not_hinder_the_others() -> None:
    rows = build_rows([*spread_out("a", 0.0), entry("b", "task-0", "lite", 1, None)], "overall", resamples=200)
    assert [(row.agent, row.sufficient, row.overall_low is None) for row in rows] == [
        ("a", True, False),
        ("b", False, True),
    ]


def medals(agent: str, cells: dict[tuple[str, Tier], str]) -> list[BoardEntry]:
    """Runs by (task, tier): one letter per repeat, ``g`` good, ``o`` okay, ``f`` fail, ``d`` disqualified; the overall
    score is 0.8, 0.6, 0.2 and 0."""
    entries = []
    for (task, tier), letters in cells.items():
        for repeat, letter in enumerate(letters, 1):
            run = make_run(agent, task, tier, repeat)
            value, medal = {"g": (0.8, "good"), "o": (0.6, "okay"), "f": (0.2, "fail"), "d": (0.9, "good")}[letter]
            score = make_score(run, make_flat_scores(value), medal=medal)
            entries.append(BoardEntry(run, "detection", disqualify(score) if letter == "d" else score))
    return entries


RELIABILITY = [
    # id, runs by cell, pass^1, pass^3, worst of 3, share without a medal
    ("one run, won", {("one", "lite"): "g"}, 1.0, None, None, 0.0),
    ("one run, not won", {("one", "lite"): "f"}, 0.0, None, None, 1.0),
    ("all of three", {("one", "lite"): "ogo"}, 1.0, 1.0, 0.6, 0.0),
    ("two of three", {("one", "lite"): "ofg"}, 2 / 3, 0.0, 0.2, 1 / 3),
    ("disqualified wins nothing", {("one", "lite"): "gdg"}, 2 / 3, 0.0, 0.0, 1 / 3),
    # C(3, 3) / C(4, 3) = 1/4; triples of g, g, o, f: 0.6 once, 0.2 three times.
    ("three of four", {("one", "lite"): "ggof"}, 3 / 4, 1 / 4, 0.3, 1 / 4),
    (
        "a cell with two repeats has no pass^3",
        {("one", "lite"): "ggg", ("two", "lite"): "gf"},
        3 / 4,
        None,
        None,
        1 / 5,
    ),
    # Tiers of a task first: ((1 + 0) / 2 + 1) / 2 = 0.75; worst ((0.8 + 0.2) / 2 + 0.6) / 2 = 0.55.
    (
        "tiers, then tasks",
        {("one", "lite"): "ggg", ("one", "standard"): "fff", ("two", "lite"): "ooo"},
        *(0.75, 0.75, 0.55, 1 / 3),
    ),
]


@pytest.mark.parametrize(
    ("cells", "pass_1", "pass_3", "worst_3", "no_medal"),
    [row[1:] for row in RELIABILITY],
    ids=[row[0] for row in RELIABILITY],
)
def test_reliability(
    cells: dict[tuple[str, Tier], str], pass_1: float, pass_3: float | None, worst_3: float | None, no_medal: float
) -> None:
    row = only(build_rows(medals("a", cells), "overall", resamples=200))
    assert (row.pass_1, row.pass_3, row.worst_3) == (
        pytest.approx(pass_1),
        pass_3 if pass_3 is None else pytest.approx(pass_3),
        worst_3 if worst_3 is None else pytest.approx(worst_3),
    )
    assert row.no_medal_rate == pytest.approx(no_medal)


def test_reliability_of_many_repeats_is_not_that_of_all() -> None:
    """Thirty of 35 runs win: C(30, 5) / C(35, 5) = 142506 / 324632; that all 35 would win is 0 for nearly everyone."""
    row = only(build_rows(medals("a", {("one", "lite"): "g" * 30 + "f" * 5}), "overall", resamples=200))
    assert row.pass_5 == pytest.approx(142506 / 324632)


def test_reliability_over_runs_weighs_cells_by_their_runs() -> None:
    """k = 1: the share of runs with a medal, 3 of 5."""
    cells: dict[tuple[str, Tier], str] = {("one", "lite"): "gof", ("two", "lite"): "g", ("two", "standard"): "f"}
    row = only(build_rows(medals("a", cells), "overall", "runs", resamples=200))
    assert (row.pass_1, row.pass_3) == (pytest.approx(0.6), None)


def test_nothing_scored_has_no_reliability() -> None:
    row = only(build_rows([entry("a", "one", "lite", 1, None)], "overall"))
    assert (row.pass_1, row.worst_3, row.no_medal_rate, row.min_repeats) == (None, None, None, 0)


def test_judging_and_earlier_attempts_are_apart_from_running() -> None:
    """Judge: (0.02 + 0.04) / 2 over the two with a known price; the runs cost 0.50 each, with their attempts 0.90."""
    scores = [
        make_score(
            make_run(repeat=number), judge_cost_usd=cost, attempts=number, attempts_cost_usd=f"{0.5 + 0.2 * number}"
        )
        for number, cost in enumerate(("0.02", None, "0.04"), 1)
    ]
    row = only(build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall", resamples=200))
    assert (row.judge_cost_usd, row.n_judge_priced) == (Decimal("0.030000"), 2)
    assert (row.mean_cost_usd, row.n_priced) == (Decimal("0.500000"), 3)
    assert (row.attempts, row.attempts_cost_usd) == (1 + 2 + 3, Decimal("0.900000"))


def test_cases_count_only_while_they_are_the_same() -> None:
    """Samples have cases; a task that was staged again in between has none, and a disqualified run has zeros."""
    scores = [make_score(make_run(repeat=number), case_scores=[0.25, 0.75]) for number in (1, 2)]
    entries = [BoardEntry(score.run, "detection", score) for score in scores]
    assert [sample.cases.tolist() for sample in make_samples(entries) if sample.cases is not None] == [[0.25, 0.75]] * 2
    restaged = scores[1].model_copy(update={"recipe": make_recipe(cases_sha256="1" * 64)})
    changed = [entries[0], BoardEntry(restaged.run, "detection", restaged)]
    assert [sample.cases for sample in make_samples(changed)] == [None, None]
    out = disqualify(scores[0])
    [sample] = make_samples([BoardEntry(out.run, "detection", out)])
    assert sample.cases is not None and sample.cases.tolist() == [0.0, 0.0]
    assert (sample.agentic, sample.task_score) == (0.0, 0.0)
