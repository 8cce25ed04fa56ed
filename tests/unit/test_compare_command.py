"""`automedbench compare A B`: what it prints, what it refuses, and what it concludes; numbers by hand.

Scores are flat (every score of a run the same number), so that the mean of a cell can be read off.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from factories import disqualify, make_enforced, make_flat_scores, make_recipe, make_run, make_score

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import write_record
from automedbench.base.records import ScoreRecord, Tier
from automedbench.commands import main
from automedbench.commands.compare import compare_agents
from automedbench.statistics.samples import StatisticsMethod

HIGH, LOW = [0.80, 0.82, 0.84, 0.86, 0.88], [0.20, 0.22, 0.24, 0.26, 0.28]
"""Means 0.84 and 0.24. The error is an outcome that no run showed: 0.84/6 and 0.76/6, SE 0.189; 0.6 is 3.2 SE."""


def cell(
    agent: str, values: list[float], task: str = "one", tier: Tier = "lite", track: str = "detection", **changes: object
) -> list[ScoreRecord]:
    """Scored repeats of one cell."""
    return [
        make_score(make_run(agent, task, tier, repeat), make_flat_scores(value), track=track, **changes)
        for repeat, value in enumerate(values, 1)
    ]


def write(results: Path, *scores: list[ScoreRecord]) -> None:
    for score in (score for group in scores for score in group):
        write_record(results / "runs" / score.run.path / "score.json", score)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Agents good and bad on two tracks: detection 0.84 against 0.24, vqa 0.3 against 0.3."""
    for agent, values in (("good", HIGH), ("bad", LOW)):
        write(tmp_path, cell(agent, values), cell(agent, [0.1, 0.3, 0.5], "two", track="vqa"))
    return tmp_path


def compare(capsys: pytest.CaptureFixture[str], results: Path, *arguments: str) -> str:
    main(["compare", *arguments, "--results", str(results)])
    return capsys.readouterr().out


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="--results"):
        main(["compare", "a", "b", "--results", str(tmp_path)])


def test_unknown_agent(results: Path) -> None:
    """With the nearest name, and all that there are."""
    with pytest.raises(ConfigError, match=r"'goood' \(did you mean 'good'\?\); there are bad, good"):
        main(["compare", "goood", "bad", "--results", str(results)])


def test_an_agent_and_itself(results: Path) -> None:
    with pytest.raises(ConfigError, match="name two agents"):
        main(["compare", "good", "good", "--results", str(results)])


def test_no_common_cell(results: Path) -> None:
    write(results, cell("other", HIGH, tier="standard"))
    with pytest.raises(MissingDataError, match=r"no scored task and tier in common \(A has 2, B has 1\)"):
        main(["compare", "good", "other", "--results", str(results)])
    with pytest.raises(MissingDataError, match=r"in common \(A has 0, B has 0\)"):
        main(["compare", "good", "bad", "--track", "vqa", "--tier", "standard", "--results", str(results)])


def test_pro_is_not_part_of_it_unless_asked_for(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(results, cell("good", HIGH, "one", "pro"), cell("bad", HIGH, "one", "pro"))
    assert "A better in 1, equal in 1, worse in 0." in compare(capsys, results, "good", "bad")
    assert "A better in 0, equal in 1, worse in 0." in compare(capsys, results, "good", "bad", "--tier", "pro")


def test_one_task(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = compare(capsys, results, "good", "bad", "--task", "one")
    [line] = [line for line in text.splitlines() if line.startswith("all")]
    assert line.split()[:5] == ["all", "1", "84.0", "24.0", "+60.0"]
    assert line.split()[7:9] == ["<", "0.001"]  # 0.0015 of a normal distribution; 2000 draws
    assert line.split()[-1] == "–"  # one task
    assert "Detection" not in text  # one track alone is no second row
    assert "A is ahead most in: one/lite +60.0\n" in text
    assert "B is ahead" not in text
    assert "Conclusion: good scores higher than bad on these tasks, by 60.0 points" in text


def test_the_other_way_round(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = compare(capsys, results, "bad", "good", "--task", "one")
    assert text.startswith("bad (A) minus good (B)")
    assert "-60.0" in text and "B is ahead most in: one/lite -60.0\n" in text
    assert "Conclusion: good scores higher than bad on these tasks, by 60.0 points" in text


def test_all_tracks_then_each(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: (0.84 + 0.30) / 2 against (0.24 + 0.30) / 2; each track is a table of its own."""
    rows_of_one = compare(capsys, results, "good", "bad", "--task", "one").splitlines()[3].split()
    rows = [line.split() for line in compare(capsys, results, "good", "bad").splitlines()]
    assert ["all", "2", "57.0", "27.0", "+30.0"] in [row[:5] for row in rows]
    [detection] = [row for row in rows if row[:1] == ["Detection"]]
    assert detection[1:5] == ["1", "84.0", "24.0", "+60.0"]
    assert detection[7:] == rows_of_one[7:]
    [vqa] = [row for row in rows if row[:3] == ["Visual", "question", "answering"]]
    assert vqa[3:7] == ["1", "30.0", "30.0", "0.0"] and vqa[-3] == "1.000"


def test_pooling_by_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """(5 · 0.84 + 4 · 0.3) / 9 = 0.6; by tasks (0.84 + 0.3) / 2 = 0.57."""
    for agent in "ab":
        write(tmp_path, cell(agent, HIGH), cell(agent, [0.3] * 4, "two"))
    for pooling, expected in (("runs", "60.0"), ("tasks", "57.0")):
        text = compare(capsys, tmp_path, "a", "b", "--pooling", pooling)
        assert ["all", "2", expected] in [line.split()[:3] for line in text.splitlines()]


def test_runs_without_an_effect_of_their_case_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, cell("a", LOW, no_effect=True), cell("b", HIGH))
    assert "Without effect of the case on the outputs: A 5 runs, B 0 runs.\n" in compare(capsys, tmp_path, "a", "b")


def test_two_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, cell("a", [0.9, 0.9]), cell("b", [0.1, 0.1, 0.1]))
    text = compare(capsys, tmp_path, "a", "b")
    assert "insufficient for inference, because some cell has 2 repeats and 3 are needed" in text
    assert "+80.0" in text


def test_other_agents_belong_to_the_family(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test is that of the leaderboard: the largest statistic of three pairs is larger than that of one."""
    alone = compare(capsys, results, "good", "bad", "--task", "one", "--json")
    write(results, cell("other", LOW))
    three = compare(capsys, results, "good", "bad", "--task", "one", "--json")
    pairs = [json.loads(text)["places"][0]["compared"] for text in (alone, three)]
    assert pairs[0]["p"] < pairs[1]["p"] and pairs[0]["low"] > pairs[1]["low"]


def test_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, cell("a", HIGH), cell("b", HIGH[::-1]))
    text = compare(capsys, tmp_path, "a", "b")
    assert "cannot be told apart" in text and "does not make them equal" in text


def test_tasks_like_these(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven tasks, a ahead in all: 2 of 128 sign patterns; five tasks can show nothing, which is said."""
    for number in range(7):
        write(tmp_path, cell("a", [0.7, 0.71, 0.72], f"t{number}"), cell("b", [0.5, 0.51, 0.5], f"t{number}"))
    text = compare(capsys, tmp_path, "a", "b")
    assert "Conclusion: a scores higher than b on these tasks, by" in text
    assert text.endswith("; this holds for tasks like these (p = 0.016).\n")
    for number in (5, 6):
        shutil.rmtree(tmp_path / "runs" / "b" / f"t{number}")
    text = compare(capsys, tmp_path, "a", "b")
    assert text.endswith("; 5 tasks cannot show it for tasks like these, 6 are needed.\n")


CHANGED = {
    "judge": ({"recipe": make_recipe(judge="heuristic-2")}, " (heuristic (heuristic-1), heuristic (heuristic-2))"),
    "sandbox": ({"enforced": make_enforced(network="open")}, " (apptainer/open, apptainer/sealed)"),
    "task version": ({"recipe": make_recipe(task_version=2)}, ""),
    "cases": ({"recipe": make_recipe(cases_sha256="1" * 64)}, ""),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_must_not_be_compared(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Means are shown, nothing is tested, and it is said loudly; --anyway tests."""
    changes, values = CHANGED[name]
    write(tmp_path, cell("a", HIGH), cell("b", LOW, **changes))
    text = compare(capsys, tmp_path, "a", "b")
    assert f"NOT COMPARABLE, other {name}{values}: " in text
    assert "Conclusion: none." in text and "84.0" in text
    text = compare(capsys, tmp_path, "a", "b", "--anyway")
    assert "NOT COMPARABLE" in text
    assert "scores higher" in text and f", although they differ in {name}; " in text


def test_cautions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What may change a score is said, and tested all the same."""
    limits = [make_recipe(limits={"max_turns": turns}) for turns in (50, 100)]
    write(tmp_path, cell("a", HIGH, recipe=limits[0]), cell("b", LOW, recipe=limits[1]))
    text = compare(capsys, tmp_path, "a", "b")
    assert "Caution, other limits: with more of it more can be done" in text and "scores higher" in text


def test_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, cell("a", HIGH), cell("b", LOW))
    rows = [line.split() for line in compare(capsys, tmp_path, "a", "b").splitlines()]
    assert ["S3", "84.0", "24.0", "+60.0"] in rows


def test_disqualified_runs_are_zeros(tmp_path: Path) -> None:
    """0.9 0.9 0.9 and a disqualified one: 0.675."""
    a = cell("a", [0.9, 0.9, 0.9, 0.9])
    found = compare_agents([*a[:3], disqualify(a[3])], cell("b", [0.5] * 4), "overall", StatisticsMethod())
    assert found["cells"][0]["mean_a"] == pytest.approx(0.675)
    assert found["places"][0]["compared"] is not None
    assert found["places"][0]["compared"].difference == pytest.approx(0.175)


def test_cells_by_difference() -> None:
    """+0.1, 0 (0.0004 is less than shown), -0.3; a cell that only one agent has is left out."""
    a = [
        *cell("a", [0.5] * 3, "x"),
        *cell("a", [0.5004] * 3, "y"),
        *cell("a", [0.2] * 3, "z"),
        *cell("a", [1.0], "only"),
    ]
    b = [*cell("b", [0.4] * 3, "x"), *cell("b", [0.5] * 3, "y"), *cell("b", [0.5] * 3, "z")]
    found = compare_agents(b, a, "overall", StatisticsMethod())
    assert [(row["task"], round(row["difference"], 6)) for row in found["cells"]] == [
        ("z", 0.3),
        ("y", -0.0004),
        ("x", -0.1),
    ]
    assert (found["wins"], found["ties"], found["losses"]) == (1, 1, 1)


@pytest.mark.parametrize("confidence", ["x", "", "nan", "0.5", "0.4", "1", "95"])
def test_a_confidence_that_is_none(results: Path, confidence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["compare", "good", "bad", "--results", str(results), "--confidence", confidence])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert f"--confidence: '{confidence}' is not a number between 0.5 and 1, both excluded\n" in said
    assert len(said.splitlines()) <= 3


def fresh(scores: list[ScoreRecord], seed: int | None = 7) -> list[ScoreRecord]:
    """The same runs on a fresh draw."""
    return [score.model_copy(update={"recipe": score.recipe.model_copy(update={"draw": seed})}) for score in scores]


def test_gap_between_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0.5 0.6 0.7 against 0.3 0.4 0.5: gap 0.2, SE √(2 · 0.01 / 3) = 0.0816, four degrees of freedom: ± 0.2267.

    The other task is the same in both; over both tasks the gap is 0.1, and half of the reach.
    """
    published, drawn = tmp_path / "results", tmp_path / "results-draw7"
    write(published, cell("a", [0.5, 0.6, 0.7]), cell("a", [0.4] * 3, "two"), cell("a", [0.9] * 3, "only published"))
    write(drawn, fresh(cell("a", [0.3, 0.4, 0.5])), fresh(cell("a", [0.4] * 3, "two")))
    lines = compare(capsys, published, "a", "--fresh", str(drawn), "--measure", "agentic").splitlines()
    assert lines[0] == "Published draw minus fresh (seed 7): agentic score, ×100, pooled by tasks"
    found = {line.split("  ")[0]: line.split() for line in lines if "[" in line}
    assert found["one"][1:] == ["1", "60.0", "40.0", "+20.0", "[-2.7,", "42.7]"]
    assert found["two"][1:] == ["1", "40.0", "40.0", "0.0", "[0.0,", "0.0]"]
    assert found["all tasks"][2:] == ["2", "50.0", "40.0", "+10.0", "[-1.3,", "21.3]"]
    assert lines[-1] == "Conclusion: no gap is seen; one within the interval would go unnoticed."


def test_gap_that_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published, drawn = tmp_path / "results", tmp_path / "results-draw7"
    write(published, cell("a", HIGH))
    write(drawn, fresh(cell("a", LOW)))
    text = compare(capsys, published, "a", "--fresh", str(drawn), "--measure", "agentic")
    assert "Conclusion: the published cases are easier for this agent than fresh ones" in text
    text = compare(capsys, published, "a", "--fresh", str(drawn))
    assert "+60.0  –" in " ".join(text.split()).replace(" –", "  –") and "Conclusion: none" in text, (
        "no mean over cases"
    )


def test_gap_names_what_else_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other cases are the point, another rubric and another prompt are not."""
    write(tmp_path / "one", cell("a", HIGH, recipe=make_recipe(agent_digest="one")))
    other = make_recipe(rubric_version=99, agent_digest="other", draw=7)
    write(tmp_path / "seven", cell("a", HIGH, recipe=other))
    text = compare(capsys, tmp_path / "one", "a", "--fresh", str(tmp_path / "seven"))
    assert [line.partition(":")[0] for line in text.splitlines() if "other" in line.partition(":")[0]] == [
        "NOT COMPARABLE, other rubric version",
        "NOT COMPARABLE, other agent",
    ]


def test_draws_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write(tmp_path / "one", cell("a", HIGH))
    write(tmp_path / "seven", fresh(cell("a", HIGH)))
    with pytest.raises(ConfigError, match="is of the published draw; give results of a fresh one"):
        main(["compare", "a", "--fresh", str(tmp_path / "one"), "--results", str(tmp_path / "one")])
    with pytest.raises(ConfigError, match=r"is of the fresh \(seed 7\) draw; give results of a published one"):
        main(["compare", "a", "--fresh", str(tmp_path / "seven"), "--results", str(tmp_path / "seven")])
