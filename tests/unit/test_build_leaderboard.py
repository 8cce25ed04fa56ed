"""The whole leaderboard of a small campaign: every file, twice the same, from whatever is finished."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import (
    disqualify,
    make_current,
    make_run,
    make_score,
    make_scores,
    write_campaign,
    written_campaign,
)

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import ScoreRecord
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.build import build_leaderboard
from automedbench.leaderboard.tables.columns import OCCASIONAL, TABLES
from automedbench.statistics.samples import StatisticsMethod


def build(results: Path, root: Path, **options: Any) -> Board:
    """Build the leaderboard beside the results."""
    return build_leaderboard(results, [str(root / "config/tasks")], StatisticsMethod(resamples=200), **options)


def campaign() -> list[ScoreRecord]:
    """Two agents, three repeats of one task; one run is disqualified."""
    scores = [
        make_score(make_run(agent=agent, repeat=repeat), make_scores(task=value))
        for agent, value in (("a", 0.8), ("b", 0.2))
        for repeat in (1, 2, 3)
    ]
    return [*scores[:-1], disqualify(scores[-1])]


def files(folder: Path) -> dict[str, bytes]:
    """Path below ``folder`` → content."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_every_file_is_written(tmp_path: Path, root: Path) -> None:
    write_campaign(tmp_path, campaign())
    built = build(tmp_path, root)
    written = set(files(tmp_path / "leaderboard"))
    tables = {f"{name}.{suffix}" for name in {*TABLES} - OCCASIONAL for suffix in ("csv", "parquet")}
    papers = {f"{name}.tex" for name in ("overall", "tracks", "stages", "tiers")}
    pages = {f"runs/{agent}/bccd-det-task/lite/r{repeat}.html" for agent in "ab" for repeat in (1, 2, 3)}
    single = {"index.html", "beside.html", "leaderboard.json", "run.css", "run.js", "run-pages.json"}
    assert tables | papers | pages | single <= written
    others = written - tables - papers - pages - single
    assert others and all(name.startswith("charts/") for name in others)
    assert [row.agent for row in built.tables["overall"]] == ["a", "b"]


def test_what_a_killed_build_left_is_gone(tmp_path: Path, root: Path) -> None:
    left = [tmp_path / "leaderboard" / name for name in (".runs.csv.0a1b2c3d.tmp", "runs/a/.r1.html.0000002a.tmp")]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    notes = tmp_path / "leaderboard" / "notes.tmp"
    notes.write_text("a user's")
    write_campaign(tmp_path, campaign())
    build(tmp_path, root)
    assert not any(path.exists() for path in left) and notes.exists()


def test_same_bytes_twice(tmp_path: Path, root: Path) -> None:
    write_campaign(tmp_path, campaign())
    build(tmp_path, root)
    first = files(tmp_path / "leaderboard")
    for path in sorted((tmp_path / "leaderboard").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    build(tmp_path, root)
    second = files(tmp_path / "leaderboard")
    assert [name for name in first if first[name] != second.get(name)] == []


def test_partial_campaign(tmp_path: Path, root: Path) -> None:
    planned = [make_run(repeat=number) for number in (1, 2, 3)]
    write_campaign(tmp_path, [make_score(planned[0])], planned)
    with pytest.raises(InfrastructureError, match=r"2 of 3 planned runs have no score: \S+/r2, \S+/r3\."):
        build(tmp_path, root)
    row = build(tmp_path, root, partial=True).tables["overall"][0]
    assert (row.n_scored, row.n_planned, row.provisional, row.sufficient) == (1, 3, True, False)
    assert list((tmp_path / "leaderboard/runs").rglob("*.html")) == [
        tmp_path / "leaderboard/runs" / f"{planned[0].path}.html"
    ]


def test_nothing_scored(tmp_path: Path, root: Path) -> None:
    write_campaign(tmp_path, [], [make_run()])
    built = build(tmp_path, root, partial=True)
    assert (built.tables["overall"][0].overall, built.tables["overall"][0].n_planned) == (None, 1)
    assert (tmp_path / "leaderboard" / "index.html").is_file()


def test_script(tmp_path: Path, root: Path) -> None:
    """Every option, the ranking and the page's path on standard output, what is missing on standard error."""
    scores = [make_current(score) for score in campaign()]
    planned = [*(score.run for score in scores), make_run(agent="b", repeat=4)]
    plan = write_campaign(tmp_path, scores, planned)
    broken = tmp_path / "runs" / scores[0].run.path / "score.json"
    broken.write_text("{")
    settings = {"pooling": "runs", "leaderboard": {"confidence": 0.9, "resamples": 300}, "cards": ["config/tasks"]}
    file = written_campaign(tmp_path, results=str(plan.parent), **settings)
    command = [sys.executable, "scripts/build_leaderboard.py", "--campaign", str(file), "--partial"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "means over all runs" in done.stdout
    assert "90 % intervals: " in done.stdout and "300 resamples" in done.stdout, "b has three repeats of four"
    assert "Insufficient for inference: fewer than 3 repeats" in done.stdout, "a has two"
    assert done.stdout.splitlines()[-1] == f"Page: {tmp_path}/leaderboard/index.html"
    assert done.stderr.startswith(f"Counted as missing: runs/{scores[0].run.path}/score.json: ")
