"""The ranking in a terminal or a log: columns by width, intervals, ties, notes."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from boards import build_rows
from factories import disqualify, make_flat_scores, make_run, make_score, make_totals

from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.formats import (
    footnotes,
    money,
    notes,
    percent,
    print_ranking,
    ranking_cells,
    share,
    span,
)
from automedbench.leaderboard.tables.table import Row
from automedbench.statistics.samples import StatisticsMethod

METHOD = StatisticsMethod("tasks", 0.95, 200)


def rows(*values: float, repeats: int = 3) -> list[Row]:
    """One agent for each value, a little apart in each repeat."""
    entries = [
        BoardEntry(run, "detection", make_score(run, make_flat_scores(value + repeat / 1000)))
        for number, value in enumerate(values)
        for repeat in range(repeats)
        for run in [make_run(f"agent-{number}", repeat=repeat + 1)]
    ]
    return build_rows(entries, "overall", resamples=200)


def printed(ranking: Sequence[Row], width: int | None = None, method: StatisticsMethod = METHOD) -> list[str]:
    """Lines as they are printed into a log, or into a terminal of this width."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return width is not None

    with pytest.MonkeyPatch.context() as patch:
        if width is not None:
            patch.setenv("COLUMNS", str(width))
        stream = Terminal()
        print_ranking(ranking, method, stream)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()


def test_no_agent_is_a_head_and_a_line() -> None:
    assert any("Overall = (Agentic + Task) / 2" in line for line in printed([]))


@pytest.mark.parametrize("width", [80, 90, 100, 110, 120, 130, 140])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    lines = printed(rows(0.8, 0.4, repeats=2), width)
    assert max(map(len, lines)) <= width
    text = " ".join(lines)
    for part in ("agent-0", "agent-1", "Overall", "2/2"):
        assert part in text


def test_interval_and_tie_stand_beside_the_score() -> None:
    row = rows(0.8)[0]._replace(overall_low=0.641, overall_high=0.689, tie="ab")
    cells = ranking_cells(row)
    assert (cells["Interval"], cells["Tie"]) == ("[64.1, 68.9]", "ab")
    text = "\n".join(printed([row]))
    assert "[64.1, 68.9]" in text
    assert "95 % intervals: " in text and "200 resamples" in " ".join(text.split())
    assert "share a letter" in text


def test_without_intervals_there_is_no_column_for_them() -> None:
    text = "\n".join(printed(rows(0.8, repeats=2)))
    assert "Interval" not in text and "Tie" not in text
    assert "insufficient for inference (2 repeats)" in " ".join(text.split())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="nothing to say"),
        pytest.param({"sufficient": False, "min_repeats": 1}, ["insufficient for inference (1 repeat)"], id="one"),
        pytest.param({"n_scored": 0, "sufficient": False, "provisional": True}, ["provisional"], id="nothing scored"),
        pytest.param(
            {"n_disqualified": 2, "n_contradicting": 1, "provisional": True, "mixed": "sandbox, judge"},
            ["2 disqualified", "1 medal with contradictions", "provisional", "mixed sandbox, judge"],
            id="everything",
        ),
    ],
)
def test_notes(changes: dict[str, object], expected: list[str]) -> None:
    assert notes(rows(0.8)[0]._replace(**changes)) == expected


def test_footnotes_by_pooling_and_confidence() -> None:
    lines = footnotes(rows(0.8), StatisticsMethod("runs", 0.9, 500))
    assert lines[0].endswith("means over all runs.")
    assert "90 % intervals: " in lines[1] and "500 resamples" in lines[1]
    assert not any("letter" in line for line in lines), "one agent is tied with nobody"


def test_known_prices_are_marked() -> None:
    scores = [
        make_score(make_run(repeat=number), totals=make_totals(cost_usd=cost))
        for number, cost in enumerate(("0.50", None), 1)
    ]
    ranking = build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall")
    assert ranking_cells(ranking[0])["Cost"] == "$0.50*"
    assert "* mean over the runs with a known price." in footnotes(ranking, METHOD)


def test_names_and_numbers() -> None:
    """Names that look like markup are text; a disqualified run is 0 and failed."""
    scores = [make_score(make_run(agent="[red]good")), disqualify(make_score(make_run(agent="cheater")))]
    ranking = build_rows([BoardEntry(score.run, "detection", score) for score in scores], "overall", resamples=200)
    lines = printed(ranking)
    good = next(line for line in lines if "[red]good" in line)
    assert good.split()[:5] == ["1", "[red]good", "75.0", "100.0", "50.0"]
    cheater = next(line for line in lines if "cheater" in line)
    assert "0.0" in cheater and "100%" in cheater
    assert "1 disqualified" in " ".join(" ".join(lines).split())
    assert any("apptainer/sealed" in line and "heuristic" in line for line in lines)


def test_a_log_holds_no_colours() -> None:
    stream = io.StringIO()
    print_ranking(rows(0.5), METHOD, stream)
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(percent(None), "–", id="unknown"),
        pytest.param(percent(0.5321), "53.2", id="percent"),
        pytest.param(percent(0.0625), "6.3", id="percent: ties go up, as in the page's toFixed"),
        pytest.param(money(None), "–", id="unknown price"),
        pytest.param(span(None, 0.5), "", id="no interval"),
        pytest.param(span(0.0, 1.0), "[0.0, 100.0]", id="everything"),
        pytest.param(share(None), "–", id="unknown share"),
        pytest.param(share(0.125), "13%", id="a tie goes up"),
    ],
)
def test_formats(text: str, expected: str) -> None:
    assert text == expected
