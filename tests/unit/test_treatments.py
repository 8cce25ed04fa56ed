"""Treatments on the board: variants against their base, what they opened of their skills; numbers by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import (
    make_call,
    make_conversation,
    make_flat_scores,
    make_plan,
    make_recipe,
    make_run,
    make_score,
    make_totals,
)

from automedbench.base.files import read_record, write_record
from automedbench.base.records import Conversation, HelpUse, Process, ScoreRecord, Tokens
from automedbench.commands import main
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.build import leaderboard_file
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.page.board_page import write_board
from automedbench.leaderboard.skills import read_skill_use
from automedbench.leaderboard.tables.cells import tabulate_runs
from automedbench.leaderboard.tables.table import Row
from automedbench.leaderboard.tables.treatments import QUANTITIES, build_skills, build_treatments
from automedbench.statistics.samples import StatisticsMethod

METHOD = StatisticsMethod("tasks", 0.95, 2000)
REPEATS = range(1, 6)
LOW, HIGH = (0.20, 0.22, 0.24, 0.26, 0.28), (0.80, 0.82, 0.84, 0.86, 0.88)
OF = {"a": LOW, "a+skill": HIGH, "a+text": LOW, "b": HIGH}
SKILLS: dict[str, Any] = {"treatment": {"skills": "skills/one"}, "provider": "openai"}


def scores_of(agent: str) -> list[ScoreRecord]:
    """Five repeats on one task; the base takes 100 s and 1 000 tokens a run, the variant with skills twice of both."""
    factor = 2 if agent == "a+skill" else 1
    totals = make_totals(
        wall_s=100.0 * factor, tokens=Tokens(prompt=900 * factor, completion=100 * factor), cost_usd=None
    )
    recipe = make_recipe(agent_settings=SKILLS if agent == "a+skill" else {})
    return [
        make_score(make_run(agent, "one", "lite", repeat), make_flat_scores(value), totals=totals, recipe=recipe)
        for repeat, value in zip(REPEATS, OF[agent], strict=True)
    ]


def entries_of(*agents: str) -> list[BoardEntry]:
    return [BoardEntry(score.run, score.track, score) for agent in agents for score in scores_of(agent)]


USE = {
    "a+skill/one/lite/r1": [
        HelpUse(file="SKILL.md", call=2, stage="S1"),
        HelpUse(file="x.py", call=5, stage="S3"),
        HelpUse(file="SKILL.md", call=7, stage="S4"),
    ],
    "a+skill/one/lite/r2": [],
    "a+skill/one/lite/r5": [HelpUse(file="SKILL.md", call=3, stage="S1")],
}


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], Row]:
    """Treatment and quantity → row over all tracks."""
    found = build_treatments(tabulate_runs(entries_of(*OF)), USE, METHOD)
    return {(row.treatment, row.quantity): row for row in found if row.track is None}


def test_changes_are_means_of_the_variant_minus_those_of_its_base(rows: dict[tuple[str, str], Row]) -> None:
    """0.84 - 0.24; 2 000 - 1 000 tokens; 200 - 100 s; costs are unknown. Agents without a variant have no row."""
    assert {treatment for treatment, _ in rows} == {"skill", "text"}
    assert [name for treatment, name in rows if treatment == "skill"] == [q for q in QUANTITIES if q != "cost_usd"]
    expected = {"overall": 0.6, "task": 0.6, "s1": 0.6, "tokens": 1000.0, "minutes": 100 / 60}
    assert {name: rows["skill", name].change for name in expected} == pytest.approx(expected)
    bases = {"overall": 0.24, "tokens": 1000.0, "minutes": 100 / 60}
    assert {name: rows["skill", name].mean_base for name in bases} == pytest.approx(bases)
    assert {rows["text", name].change for name in ("overall", "s3", "tokens")} == {0.0}


def test_a_clear_change_is_told_from_none(rows: dict[tuple[str, str], Row]) -> None:
    """Scores: SE of 0.6 is at least sqrt((0.84/6)² + (0.76/6)²) = 0.19, an outcome that no run showed; so 3.2 SE.

    The stages of these runs are their scores, so they have the same interval.
    """
    skill, text = rows["skill", "overall"], rows["text", "overall"]
    assert skill.different and 0 < skill.low < 0.6 - 1.96 * 0.18 and skill.high > 0.6 + 1.96 * 0.18
    assert not text.different and text.low < 0 < text.high
    assert (rows["skill", "s2"].low, rows["skill", "s2"].high) == pytest.approx((skill.low, skill.high))


def test_treatments_of_a_base_are_corrected_together() -> None:
    """The interval of two is wider than that of one alone, and agents of other families change nothing."""

    def low(*agents: str) -> float:
        found = build_treatments(tabulate_runs(entries_of(*agents)), {}, METHOD)
        return next(row.low for row in found if (row.treatment, row.quantity, row.track) == ("skill", "overall", None))

    assert low("a", "a+skill") > low("a", "a+skill", "a+text") + 0.01
    assert low("a", "a+skill", "b") == pytest.approx(low("a", "a+skill"), abs=0.01)


def test_use_is_counted_in_runs(rows: dict[tuple[str, str], Row]) -> None:
    """Two of three traced runs; overall of these two (0.80, 0.88) is 0.60 above the base. The text has no files."""
    skill, text = rows["skill", "overall"], rows["text", "overall"]
    assert (skill.n_scored, skill.n_traced, skill.n_used) == (5, 3, 2)
    assert skill.change_used == pytest.approx(0.84 - 0.24)
    assert (text.n_traced, text.n_used, text.change_used) == (None, None, None)


def test_each_opened_file_has_its_first_call() -> None:
    found = build_skills(tabulate_runs(entries_of(*OF)), USE)
    assert [(row.agent, row.repeat, row.file, row.call, row.stage) for row in found] == [
        ("a+skill", 1, "SKILL.md", 2, "S1"),
        ("a+skill", 1, "x.py", 5, "S3"),
        ("a+skill", 5, "SKILL.md", 3, "S1"),
    ]


def test_use_comes_from_the_trace(tmp_path: Path) -> None:
    """Run 1 opened a file, 2 none, 3 was not traced, 4 has no record; of a program the start does not count."""
    opened = Process(command="cat", parent=None, exit_code=0, reads=["/skills/a/SKILL.md", "/data/public/x", "y"])
    other = Process(command="cat", parent=None, exit_code=0, reads=["/data/public/x"])
    calls = {1: [[opened], [opened, opened]], 2: [[other]], 3: [None]}
    entries = entries_of("a+skill")
    for entry in entries:
        if entry.score and entry.run.repeat in calls:
            made = [make_call(n, stage="S1", processes=each) for n, each in enumerate(calls[entry.run.repeat], start=1)]
            write_record(tmp_path / "runs" / entry.run.path / "conversation.json", make_conversation(entry.score, made))
    reads = [HelpUse(file="a/SKILL.md", call=call, stage="S1") for call in (1, 2)]
    place = "a+skill/one/lite/r"
    assert read_skill_use(tmp_path, entries) == {f"{place}1": reads, f"{place}2": []}
    program = make_recipe(agent_settings=SKILLS | {"provider": "command"})
    run = entries[0].run
    first = BoardEntry(run, "detection", make_score(run, recipe=program))
    assert read_skill_use(tmp_path, [first]) == {f"{place}1": reads[1:]}
    # Its own tool showed a file that it opened at its start; of another name the trace knows nothing.
    path = tmp_path / "runs" / run.path / "conversation.json"
    shown = [HelpUse(file=name, call=1, stage="S1") for name in ("a/SKILL.md", "b/SKILL.md")]
    write_record(path, read_record(path, Conversation).model_copy(update={"help_used": shown}))
    assert read_skill_use(tmp_path, [first]) == {f"{place}1": reads}
    # Of MCP servers a called tool counts, and nothing that is opened.
    called = HelpUse(file="mcp__cells__count", call=2, stage="S4")
    write_record(path, read_record(path, Conversation).model_copy(update={"help_used": [*shown, called]}))
    servers = make_recipe(agent_settings={"treatment": {"mcp": "servers"}, "provider": "command"})
    first = BoardEntry(run, "detection", make_score(run, recipe=servers))
    assert read_skill_use(tmp_path, [first]) == {f"{place}1": [called]}


def board(*agents: str) -> Board:
    entries = entries_of(*agents)
    return Board(
        make_plan([entry.run for entry in entries]), entries, {}, {}, StatisticsMethod("tasks", 0.95, 200), {}, USE
    )


def test_the_page_has_treatments_only_where_there_are_any(tmp_path: Path) -> None:
    treated, plain = board("a", "a+skill"), board("a", "b")
    write_board(tmp_path / "with.html", treated)
    write_board(tmp_path / "without.html", plain)
    text = (tmp_path / "with.html").read_text()
    row = text.partition('<th class="foreign">a+skill</th>')[2].partition("</tr>")[0]
    assert "<b>+60.0 [" in row and '<td class="num">2 of 3</td>' in row and "+1,000 [" in row
    assert "reatments" not in (tmp_path / "without.html").read_text().partition("<script")[0]
    known = leaderboard_file(plain)
    assert not {"treatments", "skills"} & set(known.tables) and "quantity" not in known.definitions
    assert {"treatments", "skills"} <= set(leaderboard_file(treated).tables)


def test_compare_gives_the_verdict_on_a_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In all quantities, whichever is named first; for agents of no family nothing is added."""
    for entry in entries_of("a", "a+skill", "b"):
        if entry.score:
            write_record(tmp_path / "runs" / entry.run.path / "score.json", entry.score)
    main(["compare", "a", "a+skill", "--results", str(tmp_path)])
    text = capsys.readouterr().out
    assert "a+skill minus a, all runs" in text
    assert any(line.split()[:3] == ["Overall", "24.0", "+60.0"] for line in text.splitlines())
    assert any(line.split()[:3] == ["Tokens", "1,000", "+1,000"] for line in text.splitlines())
    main(["compare", "a", "b", "--results", str(tmp_path)])
    assert "all runs" not in capsys.readouterr().out
