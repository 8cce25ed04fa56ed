"""LaTeX tables of a leaderboard: what stands where, marks and notes, the same bytes twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from factories import make_flat_scores, make_plan, make_run, make_score

from automedbench import __version__
from automedbench.base.records import Tier
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.papers import (
    PaperTable,
    export_paper_tables,
    overall_table,
    stage_table,
    tier_table,
    track_table,
)
from automedbench.statistics.samples import StatisticsMethod

METHOD = StatisticsMethod("tasks", 0.95, 200)
TRACKS = {"one": "detection", "two": "segmentation"}


def entry(agent: str, task: str, repeat: int, value: float | None, tier: Tier = "lite") -> BoardEntry:
    """A planned run whose scores are all ``value``; null: not scored."""
    run = make_run(agent, task, tier, repeat)
    track = TRACKS[task]
    return BoardEntry(run, track, None if value is None else make_score(run, make_flat_scores(value), track=track))


def board(entries: Sequence[BoardEntry], method: StatisticsMethod = METHOD) -> Board:
    """A leaderboard of these runs."""
    return Board(make_plan([entry.run for entry in entries]), entries, {}, {}, method)


def texts(table: PaperTable) -> list[list[str]]:
    """What the cells say, without intervals and marks."""
    return [[cell.text for cell in row] for row in table.rows]


# Two agents, two tasks in two tracks, three repeats without any spread: a has 0.8 and 0.6, b has 0.4 and 0.6.
VALUES = {"a": {"one": 0.8, "two": 0.6}, "b": {"one": 0.4, "two": 0.6}}
STEADY = [
    entry(agent, task, repeat, value)
    for agent, tasks in VALUES.items()
    for task, value in tasks.items()
    for repeat in (1, 2, 3)
]


def test_nothing_planned_is_an_empty_table() -> None:
    for table in (made(board([])) for made in (overall_table, track_table, stage_table, tier_table)):
        assert texts(table) == []
        assert table.notes[-1] == f"automedbench {__version__}."


def test_nothing_scored_is_dashes() -> None:
    table = overall_table(board([entry("a", "one", 1, None)]))
    assert texts(table) == [["–", "a", "–", "–", "–", "–", "–", "0/1"]]
    assert not any(cell.bold or cell.span for row in table.rows for cell in row)
    assert "a: provisional." in table.notes


def test_overall() -> None:
    """(0.8 + 0.6) / 2 = 0.7 and (0.4 + 0.6) / 2 = 0.5."""
    table = overall_table(board(STEADY))
    assert [head for head, _ in table.heads] == [
        *("Rank", "Agent", "Overall", "Agentic", "Task", "Failed", "Cost/run", "Runs n/N")
    ]
    assert [row[1:] for row in texts(table)] == [
        ["a", "70.0", "70.0", "70.0", "0%", "$0.50", "6/6"],
        ["b", "50.0", "50.0", "50.0", "0%", "$0.50", "6/6"],
    ]
    assert all(row[2].span.startswith("[") for row in table.rows)


def test_ranks_that_the_data_allow() -> None:
    """Two agents with the same scores may both be first; nothing is added where only one rank is possible."""
    same = [entry(agent, task, repeat, repeat / 10) for agent in "ab" for task in TRACKS for repeat in (1, 2, 3)]
    assert [row[0].text for row in overall_table(board(same)).rows] == ["1 (1–2)", "1 (1–2)"]
    apart = [("a", HIGH), ("b", LOW)]
    runs = [entry(agent, "one", number, value) for agent, own in apart for number, value in enumerate(own, 1)]
    assert [row[0].text for row in overall_table(board(runs)).rows] == ["1", "2"]


def test_notes_say_how_the_numbers_came_about() -> None:
    notes = overall_table(board(STEADY)).notes
    assert notes[0] == (
        "Overall = (Agentic + Task) / 2, ×100, lite and standard tiers; means over tasks of tiers of repeats."
    )
    assert any("95 % intervals: " in note and "200 resamples" in note for note in notes)
    assert "Sandbox: apptainer/sealed. Judge: heuristic (heuristic-1)." in notes
    assert overall_table(board(STEADY, StatisticsMethod("runs", 0.9, 200))).notes[0].endswith("means over all runs.")


def test_two_repeats_are_insufficient() -> None:
    few = [entry for entry in STEADY if entry.run.repeat < 3]
    table = overall_table(board(few))
    assert not any(cell.span or cell.mark for row in table.rows for cell in row)
    assert [row[0].text for row in table.rows] == ["1", "2"]
    assert "a: insufficient for inference (2 repeats)." in table.notes
    assert any(note.startswith("Insufficient for inference: fewer than 3 repeats") for note in table.notes)


def test_tracks() -> None:
    """Agents by headline rank."""
    table = track_table(board(STEADY))
    assert [head for head, _ in table.heads] == ["Agent", "Detection", "Segmentation", "Overall"]
    assert texts(table) == [["a", "80.0", "60.0", "70.0"], ["b", "40.0", "60.0", "50.0"]]
    assert "Runs scored of planned, each agent: Detection 3/3, Segmentation 3/3." in table.notes


def test_missing_track_is_a_dash() -> None:
    """b is planned on one track only; a's other track has one of three runs."""
    entries = [entry("a", "one", 1, 0.8), entry("a", "two", 1, 0.2), entry("a", "two", 2, None)]
    table = track_table(board([*entries, entry("b", "one", 1, 0.9)]))
    assert texts(table) == [["a", "80.0", "20.0", "50.0"], ["b", "90.0", "–", "90.0"]]
    assert "Runs scored of planned, a: Detection 1/1, Segmentation 1/2." in table.notes
    assert "Runs scored of planned, b: Detection 1/1." in table.notes


def test_stages() -> None:
    table = stage_table(board(STEADY))
    assert [head for head, _ in table.heads] == [
        *("Agent", "S1 Plan", "S2 Set up", "S3 Validate", "S4 Run", "S5 Submit", "Runs n/N")
    ]
    assert texts(table) == [["a", *["70.0"] * 5, "6/6"], ["b", *["50.0"] * 5, "6/6"]]


HIGH, LOW = [0.80, 0.82, 0.84, 0.86, 0.88], [0.20, 0.22, 0.24, 0.26, 0.28]
"""Five against five runs of one task: an outcome that no run showed, 0.84/6 and 0.76/6, is the error: 0.6 is 3.2 SE."""
BOLD = [
    # why, (agent, task, scores) …, cells that are bold in the headline and by tracks (agent, column)
    ("nobody", [], []),
    ("alone", [("a", "one", HIGH)], []),
    ("told apart", [("a", "one", HIGH), ("b", "one", LOW)], [("a", "Overall"), ("a", "Detection")]),
    ("the later name", [("a", "one", LOW), ("b", "one", HIGH)], [("b", "Overall"), ("b", "Detection")]),
    ("tied with the second", [("a", "one", HIGH), ("b", "one", LOW), ("c", "one", HIGH[::-1])], []),
    (
        "only others tied",
        [("a", "one", HIGH), ("b", "one", LOW), ("c", "one", LOW)],
        [("a", "Overall"), ("a", "Detection")],
    ),
    ("a mean alone", [("a", "one", [0.9, 0.5, 0.1]), ("b", "one", [0.1, 0.2, 0.3])], []),
    ("few repeats", [("a", "one", HIGH[:2]), ("b", "one", LOW[:2])], []),
    ("few repeats of the first", [("a", "one", HIGH[:2]), ("b", "one", LOW)], []),
    ("few repeats of another", [("a", "one", HIGH), ("b", "one", LOW), ("c", "one", LOW[:2])], []),
    ("few repeats elsewhere", [("a", "one", HIGH), ("a", "two", HIGH[:2]), ("b", "one", LOW)], [("a", "Detection")]),
    (
        "first by a task that the other lacks",  # 0.62 before 0.61, and 0.24 against 0.61 on the common task
        [("b", "one", LOW), ("b", "two", [1.0] * 5), ("a", "one", [0.57, 0.59, 0.61, 0.63, 0.65])],
        [("a", "Detection")],
    ),
    (
        "the same with other names",
        [("a", "one", LOW), ("a", "two", [1.0] * 5), ("b", "one", [0.57, 0.59, 0.61, 0.63, 0.65])],
        [("b", "Detection")],
    ),
    (
        "one of two tracks",
        [("a", "one", HIGH), ("a", "two", LOW), ("b", "one", LOW), ("b", "two", HIGH)],
        [("a", "Detection"), ("b", "Segmentation")],
    ),
]


@pytest.mark.parametrize(("runs", "expected"), [row[1:] for row in BOLD], ids=[row[0] for row in BOLD])
def test_bold_rests_on_a_test(runs: list[tuple[str, str, list[float]]], expected: list[tuple[str, str]]) -> None:
    """Overall scores that are higher than every other by the paired test, and nothing else; said below."""
    found = board([entry(agent, task, number, v) for agent, task, values in runs for number, v in enumerate(values, 1)])
    for table, agent_at in ((overall_table(found), 1), (track_table(found), 0), (stage_table(found), 0)):
        bold = {
            (row[agent_at].text, head)
            for row in table.rows
            for cell, (head, _) in zip(row, table.heads, strict=True)
            if cell.bold
        }
        assert bold == {place for place in expected if place[1] in [head for head, _ in table.heads]}
        assert any(note.startswith("Bold: higher than every other agent") for note in table.notes) == bool(bold)


def test_pro_is_in_no_paper_table() -> None:
    table = overall_table(board([*STEADY, entry("a", "one", 1, 1.0, "pro")]))
    assert texts(table)[0][2] == "70.0"


def test_files_are_the_same_twice(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    export_paper_tables(board(STEADY), first)
    export_paper_tables(board(STEADY[::-1]), second)
    names = {f"{name}.tex" for name in ("overall", "tracks", "stages", "tiers")}
    assert {path.name for path in first.iterdir()} == names
    assert [(first / name).read_bytes() for name in names] == [(second / name).read_bytes() for name in names]


def test_lite_stands_against_standard() -> None:
    """Only tasks with both tiers: a has 0.9 and 0.6 on one (0.9 / 0.6 − 1 = 50 %), and task two in lite only."""
    entries = [
        entry("a", "one", 1, 0.9),
        entry("a", "one", 1, 0.6, "standard"),
        entry("a", "two", 1, 0.1),
        entry("b", "one", 1, 0.4),
    ]
    table = tier_table(board(entries))
    assert texts(table) == [["a", "90.0", "60.0", "+50.0%", "90.0", "60.0", "1", "1, 1"]]
    tracks = [(row.track, row.agent) for row in board(entries).tables["tiers"]]
    assert tracks == [(None, "a"), ("detection", "a")]
