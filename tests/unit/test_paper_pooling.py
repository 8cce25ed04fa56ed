"""The pooled Overall of the paper, recomputed by our tables from its means per track and its numbers of runs.

Numbers: arXiv 2606.01961, table 4 (means per track and Overall over all runs); how many tasks have 20 and 10 repeats:
its section on the set-up. The Overall over tasks is worked out from the same table: weights 8, 2, 5, 5 and 4 tasks.
"""

from __future__ import annotations

import pytest
from boards import build_rows
from factories import make_flat_scores, make_score

from automedbench.base.records import HEADLINE_TIERS, RunId, ScoreRecord
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.tables.table import Row

# track → (tasks with 20 repeats, tasks with 10 repeats) in each of two tiers: 260, 40, 100, 100 and 80 runs per agent.
CAMPAIGN = {
    "segmentation": (5, 3),
    "enhancement": (0, 2),
    "vqa": (0, 5),
    "report_generation": (0, 5),
    "detection": (0, 4),
}
RUNS = {"segmentation": 260, "enhancement": 40, "vqa": 100, "report_generation": 100, "detection": 80}
# agent → means per track, Overall over runs (as printed), Overall over tasks.
PAPER = {
    "Opus 4.6": ([67.2, 78.3, 55.5, 55.8, 85.7], 66.5, 66.4),
    "GLM-5": ([58.0, 68.8, 64.0, 48.6, 83.3], 61.6, 62.4),
    "Gemini 3.1 Pro": ([54.7, 70.9, 62.3, 47.7, 77.2], 59.0, 59.9),
    "ChatGPT-5.4": ([59.4, 75.1, 36.5, 40.8, 73.8], 55.3, 54.5),
    "MiniMax-M2.5": ([46.5, 74.5, 55.8, 28.9, 80.0], 51.6, 52.7),
    "Qwen3.5": ([42.8, 63.5, 57.0, 38.7, 81.4], 51.2, 53.1),
}
FEW = 200
"""Resamples: intervals are not what is tested here."""


def paper_entries(agent: str) -> list[BoardEntry]:
    """All 580 runs of an agent. Runs of a track differ, a little more in each repeat, but their mean is the paper's."""
    entries: list[BoardEntry] = []
    for (track, (twenty, ten)), value in zip(CAMPAIGN.items(), PAPER[agent][0], strict=True):
        repeats = {f"{track}-{number}": 20 if number < twenty else 10 for number in range(twenty + ten)}
        entries += [
            _entry(RunId(agent=agent, task=task, tier=tier, repeat=repeat), track, _value(value, repeat, n))
            for task, n in repeats.items()
            for tier in HEADLINE_TIERS
            for repeat in range(1, n + 1)
        ]
    return entries


def _value(mean: float, repeat: int, n: int) -> float:
    """``mean`` / 100, plus an offset that sums to 0 over the repeats 1 … n."""
    return mean / 100 + 0.005 * (repeat - (n + 1) / 2)


def _entry(run: RunId, track: str, value: float) -> BoardEntry:
    return BoardEntry(run, track, make_score(run, make_flat_scores(value), track=track))


def only(rows: list[Row]) -> Row:
    """The one row."""
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("agent", PAPER)
def test_overall_over_runs_is_the_papers(agent: str) -> None:
    row = only(build_rows(paper_entries(agent), "overall", "runs", resamples=FEW))
    assert row.n_scored == row.n_planned == 580
    assert 100 * (row.overall or 0) == pytest.approx(PAPER[agent][1], abs=0.1)


@pytest.mark.parametrize("agent", PAPER)
def test_overall_over_tasks_is_another_number(agent: str) -> None:
    row = only(build_rows(paper_entries(agent), "overall", "tasks", resamples=FEW))
    assert 100 * (row.overall or 0) == pytest.approx(PAPER[agent][2], abs=0.06)


@pytest.mark.parametrize("pooling", ["runs", "tasks"])
def test_tracks_are_what_went_in(pooling: str) -> None:
    """The control: means per track and numbers of runs are the paper's in either pooling."""
    rows = build_rows(paper_entries("GLM-5"), "track", pooling, resamples=FEW)  # type: ignore[arg-type]
    expected = dict(zip(CAMPAIGN, PAPER["GLM-5"][0], strict=True))
    assert {row.track: row.n_scored for row in rows} == RUNS
    assert {row.track: round(100 * (row.overall or 0), 6) for row in rows} == expected


def test_pooling_decides_the_papers_last_place() -> None:
    """Qwen overtakes MiniMax when tasks weigh the same."""
    entries = paper_entries("MiniMax-M2.5") + paper_entries("Qwen3.5")
    assert [row.agent for row in build_rows(entries, "overall", "runs", resamples=FEW)] == ["MiniMax-M2.5", "Qwen3.5"]
    assert [row.agent for row in build_rows(entries, "overall", "tasks", resamples=FEW)] == ["Qwen3.5", "MiniMax-M2.5"]


def test_a_track_less_changes_the_pooled_number() -> None:
    """The control: the paper's value does not come out of just any campaign of these means."""
    entries = [entry for entry in paper_entries("Opus 4.6") if entry.track != "segmentation"]
    row = only(build_rows(entries, "overall", "runs", resamples=FEW))
    assert abs(100 * (row.overall or 0) - 66.5) > 0.1


def test_unscored_runs_are_in_no_mean() -> None:
    entries = paper_entries("Opus 4.6")
    unscored = [BoardEntry(_again(entry.score, 100 + entry.run.repeat), entry.track, None) for entry in entries[:50]]
    row = only(build_rows([*entries, *unscored], "overall", "runs", resamples=FEW))
    assert (row.n_scored, row.n_planned, row.provisional) == (580, 630, True)
    assert 100 * (row.overall or 0) == pytest.approx(66.5, abs=0.1)


def _again(score: ScoreRecord | None, repeat: int) -> RunId:
    assert score
    return score.run.model_copy(update={"repeat": repeat})
