"""Tables of the leaderboard: expectations by hand, and the paper's own table recomputed."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
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

from automedbench.leaderboard.tables import (
    HEADLINE_TIERS,
    Entry,
    Row,
    build_rows,
    entries_of,
    in_tiers,
    rank_agents,
    unequal_coverage,
    what_differs,
)
from automedbench.records import RunId, ScoreRecord, Tier, Tokens


def entry(agent: str, task: str, tier: Tier, repeat: int, value: float | None, track: str = "detection") -> Entry:
    """A planned run whose scores are all ``value``; null: not scored."""
    run = make_run(agent, task, tier, repeat)
    score = None if value is None else make_score(run, make_flat_scores(value), track=track)
    return Entry(run, track, score)


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
    row = only(build_rows(in_tiers(entries, HEADLINE_TIERS), "overall"))
    assert (row.overall, row.n_planned) == (0.4, 1)


def test_missing_cell_is_not_imputed() -> None:
    """One of two tiers is missing: the task's mean is that of the other, not half of it."""
    entries = [entry("a", "one", "lite", 1, 0.8), entry("a", "one", "standard", 1, None)]
    row = only(build_rows(entries, "overall"))
    assert row.overall == 0.8
    assert (row.n_scored, row.n_planned, row.cells_scored, row.cells_planned) == (1, 2, 1, 2)
    assert row.provisional


def test_disqualified_counts_zero_and_as_failed() -> None:
    """(1.0 + 0) / 2; even a record that kept its numbers and calls itself complete counts 0 and failed."""
    good = make_score(make_run(repeat=1), make_flat_scores(1.0))
    odd = make_score(make_run(repeat=2), make_flat_scores(1.0), disqualified=True, failed=False)
    row = only(build_rows([Entry(score.run, "detection", score) for score in (good, odd)], "overall"))
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
    row = only(build_rows([Entry(score.run, "detection", score) for score in scores], "overall"))
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
    row = only(build_rows([Entry(score.run, "detection", score) for score in scores], "overall"))
    assert (row.mean_cost_usd, row.n_priced) == (mean, n_priced)


def test_spread_over_repeats() -> None:
    """Repeat 1: (0.2 + 0.4) / 2 = 0.3, repeat 2: (0.4 + 0.8) / 2 = 0.6; s = 0.3 / √2. Repeat 3 lacks a cell."""
    values = [(1, 0.2, 0.4), (2, 0.4, 0.8), (3, 1.0, None)]
    entries = [entry("a", "one", "lite", repeat, one) for repeat, one, _ in values]
    entries += [entry("a", "two", "lite", repeat, two) for repeat, _, two in values]
    row = only(build_rows(entries, "overall"))
    assert row.overall_sd == pytest.approx(0.3 / math.sqrt(2))
    assert row.sd_repeats == 2


def test_spread_needs_two_repeats() -> None:
    row = only(build_rows([entry("a", "one", "lite", 1, 0.5)], "overall"))
    assert (row.overall_sd, row.sd_repeats) == (None, 1)


def test_order_does_not_depend_on_the_input_and_ties_go_by_name() -> None:
    values = {"c": 0.5, "a": 0.5, "b": 0.9, "d": None}
    entries = [entry(name, "one", "lite", 1, value) for name, value in values.items()]
    rows = build_rows(entries, "overall")
    assert [(row.rank, row.agent) for row in rows] == [(1, "b"), (2, "a"), (2, "c"), (None, "d")]
    assert build_rows(entries[::-1], "overall") == rows


def test_rounding_makes_no_rank() -> None:
    assert rank_agents({"a": 0.1 + 0.2, "b": 0.3, "c": 0.2}) == {"a": 1, "b": 1, "c": 3}


LOCAL = make_enforced("local")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="same"),
        pytest.param({"enforced": LOCAL}, ["sandbox"], id="backend"),
        pytest.param({"enforced": make_enforced(network="open")}, ["sandbox"], id="network"),
        pytest.param({"recipe": make_recipe(judge_kind="llm", judge="judge-x")}, ["judge"], id="judge"),
        pytest.param({"recipe": make_recipe(track_version=2)}, ["task version"], id="track version"),
        pytest.param({"recipe": make_recipe(cases_sha256="1" * 64)}, ["cases"], id="staged data"),
        pytest.param({"recipe": make_recipe(rubric_version=102)}, ["rubric version"], id="rubric"),
    ],
)
def test_mixed_conditions_are_named(changes: dict[str, object], expected: list[str]) -> None:
    scores = [make_score(make_run(repeat=1)), make_score(make_run(repeat=2), **changes)]
    assert what_differs(scores) == expected
    row = only(build_rows([Entry(score.run, "detection", score) for score in scores], "overall"))
    assert row.mixed == ", ".join(expected)


def test_row_names_its_classes() -> None:
    scores = [make_score(make_run(repeat=1)), make_score(make_run(repeat=2), enforced=LOCAL)]
    row = only(build_rows([Entry(score.run, "detection", score) for score in scores], "overall"))
    assert row.sandbox == "apptainer/sealed + local/sealed"
    assert row.judge == "heuristic (heuristic-1)"


def test_versions_may_differ_between_tasks() -> None:
    scores = [make_score(make_run(task="one")), make_score(make_run(task="two"), recipe=make_recipe(task_version=7))]
    assert what_differs(scores) == []


def test_entries_take_the_track_from_cards_until_a_score_says_it() -> None:
    runs = [make_run(task="one"), make_run(task="two"), make_run(task="three")]
    score = make_score(make_run(task="one"), track="segmentation")
    assert [entry.track for entry in entries_of(runs, [score], {"two": "vqa"})] == ["segmentation", "vqa", "unknown"]


def test_unplanned_score_is_left_out() -> None:
    planned = [make_run(repeat=1)]
    scores = [make_score(make_run(repeat=1)), make_score(make_run(repeat=2))]
    assert only(build_rows(entries_of(planned, scores, {}), "overall")).n_planned == 1


def test_unequal_coverage() -> None:
    same = [entry("a", "one", "lite", 1, 0.5), entry("b", "one", "lite", 1, 0.5), entry("b", "one", "lite", 2, 0.5)]
    assert not unequal_coverage(same)
    assert unequal_coverage([*same, entry("b", "two", "lite", 1, 0.5)])


def test_scores_helper_keeps_the_formulas() -> None:
    """0.25·1 + 0.15·1 + 0.35·0.5 + 0.15·1 + 0.10·0.5 = 0.775; (0.775 + 0.3) / 2 = 0.5375."""
    scores = make_scores((1, 1, 0.5, 1, 0.5), task=0.3)
    assert (scores.agentic, scores.overall) == (pytest.approx(0.775), pytest.approx(0.5375))


# --- the paper's table 4 (means per track) and its pooled Overall -------------------------------------------------

# track → (tasks with 20 repeats, tasks with 10 repeats) in each of two tiers (paper-facts.md, section 1):
# 260, 40, 100, 100 and 80 runs per agent.
CAMPAIGN = {
    "segmentation": (5, 3),
    "enhancement": (0, 2),
    "vqa": (0, 5),
    "report_generation": (0, 5),
    "detection": (0, 4),
}
# agent → means per track, Overall over runs (printed in table 4), Overall over tasks (paper-facts.md, section 3, [X])
PAPER = {
    "Opus 4.6": ([67.2, 78.3, 55.5, 55.8, 85.7], 66.5, 66.4),
    "GLM-5": ([58.0, 68.8, 64.0, 48.6, 83.3], 61.6, 62.4),
    "Gemini 3.1 Pro": ([54.7, 70.9, 62.3, 47.7, 77.2], 59.0, 59.9),
    "ChatGPT-5.4": ([59.4, 75.1, 36.5, 40.8, 73.8], 55.3, 54.5),
    "MiniMax-M2.5": ([46.5, 74.5, 55.8, 28.9, 80.0], 51.6, 52.7),
    "Qwen3.5": ([42.8, 63.5, 57.0, 38.7, 81.4], 51.2, 53.1),
}


def paper_entries(agent: str) -> list[Entry]:
    """All runs of an agent, each with the mean of its track."""
    entries = []
    for (track, (twenty, ten)), value in zip(CAMPAIGN.items(), PAPER[agent][0], strict=True):
        template = make_score(scores=make_flat_scores(value / 100), track=track)
        repeats = {f"{track}-{number}": 20 if number < twenty else 10 for number in range(twenty + ten)}
        entries += [
            _copy(template, RunId(agent=agent, task=task, tier=tier, repeat=repeat))
            for task, n in repeats.items()
            for tier in HEADLINE_TIERS
            for repeat in range(1, n + 1)
        ]
    return entries


def _copy(score: ScoreRecord, run: RunId) -> Entry:
    return Entry(run, score.track, score.model_copy(update={"run": run}))


@pytest.mark.parametrize("agent", PAPER)
def test_paper_table_is_reproduced(agent: str) -> None:
    entries = paper_entries(agent)
    by_runs, by_tasks = (only(build_rows(entries, "overall", pooling)) for pooling in ("runs", "tasks"))
    _, over_runs, over_tasks = PAPER[agent]
    assert by_runs.n_planned == 580
    assert 100 * (by_runs.overall or 0) == pytest.approx(over_runs, abs=0.1)
    assert 100 * (by_tasks.overall or 0) == pytest.approx(over_tasks, abs=0.06)


def test_pooling_decides_the_papers_last_place() -> None:
    """Qwen overtakes MiniMax when tasks weigh the same (paper-facts.md, section 3)."""
    entries = paper_entries("MiniMax-M2.5") + paper_entries("Qwen3.5")
    assert [row.agent for row in build_rows(entries, "overall", "runs")] == ["MiniMax-M2.5", "Qwen3.5"]
    assert [row.agent for row in build_rows(entries, "overall", "tasks")] == ["Qwen3.5", "MiniMax-M2.5"]
