"""``leaderboard.json``: everything in one file that its model takes back; every column of every table is explained."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest
from factories import make_error, make_flat_scores, make_plan, make_run, make_score

from automedbench import __version__
from automedbench.base.files import read_record
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.build import LeaderboardFile, export_tables
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.tables.columns import COLUMNS, OCCASIONAL, TABLES
from automedbench.statistics.samples import StatisticsMethod

METHOD = StatisticsMethod("tasks", 0.95, 200)
PANEL = {"one#1": {"S1": 1.0, "S2": 0.5, "S3": 0.5}, "two#1": {"S1": 0.5, "S2": 0.5, "S3": 1.0}}


def entries() -> list[BoardEntry]:
    """Two agents, a task, three repeats judged by a panel of two, one error code; one planned run without a score."""
    found = []
    for agent, value in (("a", 0.8), ("b", 0.4)):
        for repeat in (1, 2, 3):
            run = make_run(agent, "bccd-det-task", "lite", repeat)
            changes = {"panel": PANEL, "judge_spread": {"S1": 0.25, "S2": None}, "judge_cost_usd": "0.02"}
            codes = [make_error("E5")] if agent == "b" else []
            score = make_score(run, make_flat_scores(value + repeat / 100), error_codes=codes, **changes)
            found.append(BoardEntry(run, "detection", score))
    return [*found, BoardEntry(make_run("b", "bccd-det-task", "lite", 4), "detection", None)]


def board(runs: list[BoardEntry]) -> Board:
    """A leaderboard of these runs."""
    return Board(make_plan([entry.run for entry in runs]), runs, {}, {}, METHOD, {"x": "unreadable"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("leaderboard")
    export_tables(board(entries()), out)
    return out


def test_everything_is_in_one_file(folder: Path) -> None:
    record = read_record(folder / "leaderboard.json", LeaderboardFile)
    assert list(record.tables) == sorted(set(TABLES) - OCCASIONAL)
    assert (record.n_scored, record.n_planned, record.unreadable) == (6, 7, {"x": "unreadable"})
    assert (record.code_version, record.pooling, record.confidence, record.resamples) == (
        *(__version__, "tasks", 0.95, 200),
    )
    assert (record.judge_kind, record.judges) == ("heuristic", ["heuristic (heuristic-1)"])
    assert (record.sandboxes, record.differs) == (["apptainer/sealed"], [])
    assert (record.tracks, list(record.agents)) == ({"detection": "Detection"}, ["a", "b"])
    assert record.tasks["bccd-det-task"].track == "detection"


def test_tables_of_the_one_file_are_the_single_files(folder: Path) -> None:
    record = read_record(folder / "leaderboard.json", LeaderboardFile)
    for name, table in record.tables.items():
        parquet = polars.read_parquet(folder / f"{name}.parquet")
        assert (parquet.columns, len(parquet)) == (table.columns, len(table.rows))
        assert (folder / f"{name}.csv").read_text().startswith(",".join(table.columns) + "\n")


def test_tables_hold_what_went_in(folder: Path) -> None:
    """Means by hand: a (0.81 + 0.82 + 0.83) / 3 = 0.82, b 0.42."""
    tables = read_record(folder / "leaderboard.json", LeaderboardFile).tables
    rows = {name: [dict(zip(t.columns, row, strict=True)) for row in t.rows] for name, t in tables.items()}
    assert [(row["agent"], row["rank"], row["overall"]) for row in rows["overall"]] == [("a", 1, 0.82), ("b", 2, 0.42)]
    assert [(row["n_scored"], row["n_planned"], row["provisional"]) for row in rows["overall"]] == [
        (3, 3, False),
        (3, 4, True),
    ]
    assert [row["judge_cost_usd"] for row in rows["overall"]] == ["0.020000", "0.020000"]
    s1, s2 = (
        row for row in rows["stages"] if row["agent"] == "a" and not row["track"] and row["stage"] in ("S1", "S2")
    )
    assert (s1["mean"], s1["judge_spread"], s1["n_spread"]) == (0.82, 0.25, 3)
    assert (s2["judge_spread"], s2["n_spread"]) == (None, 0)
    assert {(row["a"], row["b"], row["track"]) for row in rows["comparisons"]} == {
        *(("a", "b", None), ("a", "b", "detection")),
    }
    assert {(row["stage"], row["measure"]) for row in rows["agreement"]} == {
        (stage, measure) for stage in ("S1", "S2", "S3") for measure in ("alpha", "kappa")
    }
    assert len(rows["runs"]) == 6 and rows["runs"][0]["n_judgements"] == 2


def test_no_explanation_is_left_over() -> None:
    used = {name for table in TABLES.values() for name in table.columns}
    assert set(COLUMNS) == used


def test_without_any_run_there_are_tables_with_heads_only(tmp_path: Path) -> None:
    export_tables(board([]), tmp_path)
    record = read_record(tmp_path / "leaderboard.json", LeaderboardFile)
    assert all(table.rows == [] for table in record.tables.values())
    assert polars.read_parquet(tmp_path / "runs.parquet").height == 0
