"""Charts: what is drawn is what the tables say, names are text, and the same board gives the same files."""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from boards import make_board, make_campaign
from factories import make_error, make_run, make_score, make_totals
from PIL import Image

from automedbench.leaderboard import charts
from automedbench.leaderboard.charts import (
    FOR_PAPER,
    compiled_charts,
    draw_svg,
    embed_data,
    export_charts,
    figures,
    frontier_rows,
    paper_charts,
    ranking_rows,
    stage_rows,
    vega_bundle,
)
from automedbench.leaderboard.charts.parts import (
    DARK,
    LIGHT,
    SERIES_DARK,
    SERIES_LIGHT,
    fill_tokens,
    series_colours,
    series_shapes,
)

TASKS = {"bccd-det-task": "detection", "toy-seg-task": "segmentation"}
KNOWN_TOKENS = {*LIGHT, "font", "agents", "colours", "shapes", "resource", "resource-format"}
HOSTILE = ["<img src=x onerror=alert(1)>", "a & \"b\" 'c'", "@ink", "x" * 300, "מודל"]


def row(agent: str, overall: float | None = 0.5, **more: Any) -> dict[str, Any]:
    """A row of a ranking."""
    values: dict[str, Any] = {
        "agent": agent,
        "overall": overall,
        "overall_low": None,
        "overall_high": None,
        "agentic": overall,
        "task_score": overall,
        "tie": None,
        "rank_best": None,
        "rank_worst": None,
        "n_scored": 3,
        "n_planned": 3,
    }
    return values | more


def items(
    specification: dict[str, Any], data: list[dict[str, Any]], kind: str, role: str = "mark"
) -> list[dict[str, Any]]:
    """Drawn items of one kind of mark, in drawing order."""
    series = list(dict.fromkeys(entry["agent"] for entry in data if "agent" in entry))
    scene = vl_convert.vega_to_scenegraph(embed_data(specification, data, series))["scenegraph"]
    return [item for mark in walk(scene) if (mark["marktype"], mark["role"]) == (kind, role) for item in mark["items"]]


def walk(mark: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All marks below a mark, itself first."""
    if "marktype" in mark:
        yield mark
    for item in mark.get("items", []):
        yield from walk(item)


def texts(specification: dict[str, Any], data: list[dict[str, Any]]) -> list[str]:
    """What text marks say."""
    return [item["text"] for item in items(specification, data, "text")]


# --- tokens -----------------------------------------------------------------------------------------------------


def test_tokens_are_replaced_and_lists_put_in() -> None:
    spec = {"a": "@ink", "b": ["@agents"], "c": [1, "@ink"], "d": {"e": "ink"}}
    assert fill_tokens(spec, {"ink": "#000", "agents": ["x", "y"]}) == {
        "a": "#000",
        "b": ["x", "y"],
        "c": [1, "#000"],
        "d": {"e": "ink"},
    }


def test_unknown_token_is_an_error() -> None:
    with pytest.raises(KeyError, match="inc"):
        fill_tokens({"a": "@inc"}, {"ink": "#000"})


@pytest.mark.parametrize("name", sorted(compiled_charts()))
def test_compiled_charts_have_rows_and_known_tokens_only(name: str) -> None:
    spec = compiled_charts()[name]
    assert [source for source in spec["data"] if source["name"] == "rows"] == [{"name": "rows", "values": []}]
    assert set(re.findall(r"[\"']@([\w-]+)[\"']", str(spec))) <= KNOWN_TOKENS


def test_no_two_agents_look_the_same() -> None:
    looks = list(zip(series_colours(64), series_shapes(64), strict=True))
    assert len(set(looks)) == 64
    assert len(set(looks[:8])) == len({colour for colour, _ in looks[:8]}) == len({shape for _, shape in looks[:8]})


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.1."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    """Contrast ratio of WCAG 2.1, 1 to 21."""
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("theme", "series"), [(LIGHT, SERIES_LIGHT), (DARK, SERIES_DARK)], ids=["light", "dark"])
def test_colours_can_be_read(theme: dict[str, str], series: tuple[str, ...]) -> None:
    """WCAG 2.1 AA: 4.5 for text, 3 for graphics; two Okabe-Ito colours reach 2.2 on white, so they have symbols too."""
    for ground in ("paper", "heat-low", "heat-high"):
        assert contrast(theme["ink"], theme[ground]) >= 4.5, ground
    assert contrast(theme["on-agentic"], theme["agentic"]) >= 4.5
    assert contrast(theme["on-task"], theme["task"]) >= 4.5
    assert contrast(theme["muted"], theme["paper"]) >= 4.5
    assert min(contrast(colour, theme["paper"]) for colour in series) >= 2.2


# --- the ranking ------------------------------------------------------------------------------------------------


def test_bars_are_as_long_as_the_halves() -> None:
    """Agentic 0.8 and task 0.6 are 40 and 30 points of 100: 120 and 90 of 300 pixels, one after the other."""
    bars = items(figures.ranking(300), [row("a", 0.7, agentic=0.8, task_score=0.6)], "rect")
    halves = sorted((bar["x"], bar["width"]) for bar in bars if bar["height"] > 15)
    assert halves == [(0, pytest.approx(120)), (pytest.approx(120), pytest.approx(90))]


def test_whisker_spans_the_interval_and_nothing_without_one() -> None:
    """0.6 to 0.8 is 180 to 240 of 300 pixels; the second agent has no interval."""
    data = [row("a", 0.7, overall_low=0.6, overall_high=0.8), row("b", 0.2)]
    (line,) = items(figures.ranking(300), data, "rule")
    assert sorted((line["x"], line["x2"])) == [pytest.approx(180), pytest.approx(240)]


def test_scores_stand_with_their_ties() -> None:
    assert texts(figures.ranking(300), [row("a", 0.4567, tie="ab"), row("b", 0.1)])[-2:] == ["45.7  ab", "10.0"]


def test_agent_without_a_score_has_a_line_but_no_bar() -> None:
    data = [row("a", None)]
    assert {bar["x2"] - bar["x"] for bar in items(figures.ranking(300), data, "rect")} == {0}
    assert texts(figures.ranking(300), data) == []
    assert [item["text"] for item in items(figures.ranking(300), data, "text", "axis-label")].count("a") == 1


# --- radar ------------------------------------------------------------------------------------------------------


def radar_points(values: list[float | None]) -> list[tuple[float, float]]:
    """Corners in radii from the centre, to the east and to the north."""
    data = [{"axis": f"S{i}", "value": value, "reference": None} for i, value in enumerate(values, 1)]
    side = 280  # twice the reach of 1.4 radii: a radius is 100 pixels
    corners = items(figures.radar(side), data, "symbol")
    return [((corner["x"] - side / 2) / 100, (side / 2 - corner["y"]) / 100) for corner in corners]


def test_radar_axes_go_clockwise_from_the_top() -> None:
    """Four axes are the four points of the compass: north, east, south, west."""
    expected = [(0, 1), (0.5, 0), (0, -0.25), (0, 0)]
    assert radar_points([1.0, 0.5, 0.25, 0.0]) == [pytest.approx(point, abs=1e-6) for point in expected]


def test_radar_of_five_stages() -> None:
    """A regular pentagon: the second corner at 72 degrees from the north."""
    east, north = radar_points([1.0] * 5)[1]
    assert (east, north) == pytest.approx((math.sin(math.radians(72)), math.cos(math.radians(72))), abs=1e-6)


def test_radar_says_what_is_unknown() -> None:
    data = [{"axis": "S1", "value": None, "reference": 0.5}, {"axis": "S2", "value": 0.5, "reference": 0.5}]
    assert [item["text"] for item in items(figures.radar(200), data, "text")] == [["S1", "–"], ["S2", "50"]]
    assert len(items(figures.radar(200), data, "symbol")) == 1


# --- cost and score ---------------------------------------------------------------------------------------------


def frontier_of(*agents: tuple[str, float, float]) -> set[tuple[float, float]]:
    """Where the line of the frontier turns, as (x, y) of drawn agents."""
    data = [row(name, score, resource=cost, resource_text="") for name, cost, score in agents]
    line = items(figures.frontier(300), data, "line")
    return {(round(item["x"], 3), round(item["y"], 3)) for item in line}


def places_of(*agents: tuple[str, float, float]) -> dict[str, tuple[float, float]]:
    data = [row(name, score, resource=cost, resource_text="") for name, cost, score in agents]
    dots = items(figures.frontier(300), data, "symbol")
    return {name: (round(dot["x"], 3), round(dot["y"], 3)) for (name, _, _), dot in zip(agents, dots, strict=True)}


@pytest.mark.parametrize(
    ("agents", "expected"),
    [
        pytest.param([("a", 1, 0.5)], "a", id="one agent"),
        pytest.param([("a", 1, 0.5), ("b", 2, 0.6), ("c", 3, 0.55), ("d", 4, 0.4)], "ab", id="dearer and worse is off"),
        pytest.param([("a", 4, 0.9), ("b", 1, 0.5)], "ab", id="order of rows is no matter"),
        pytest.param([("a", 1, 0.5), ("b", 1, 0.7)], "b", id="same cost: the better one"),
        pytest.param([("a", 1, 0.5), ("b", 2, 0.5)], "a", id="same score: the cheaper one"),
    ],
)
def test_frontier(agents: list[tuple[str, float, float]], expected: str) -> None:
    places = places_of(*sorted(agents, key=lambda agent: (agent[1], -agent[2])))
    assert frontier_of(*agents) == {places[name] for name in expected}


def test_cost_axis_is_logarithmic() -> None:
    """1, 10 and 100 dollars are equally far apart."""
    xs = [x for x, _ in places_of(("a", 1, 0.5), ("b", 10, 0.6), ("c", 100, 0.7)).values()]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.01)


def test_free_or_unknown_cost_is_not_drawn() -> None:
    data = [row("a", 0.5, resource=0.0, resource_text=""), row("b", 0.5, resource=None, resource_text="")]
    assert items(figures.frontier(300), data, "symbol") == []


# --- other charts -----------------------------------------------------------------------------------------------


def test_difference_is_filled_only_when_real() -> None:
    base = {"low": None, "high": None, "n_cells": 4}
    data = [
        {"place": "All tracks", "difference": 0.1, "different": True, **base},
        {"place": "Detection", "difference": -0.1, "different": False, **base},
    ]
    dots = items(figures.differences(300), data, "symbol")
    assert [dot["fill"] for dot in dots] == [LIGHT["agentic"], LIGHT["paper"]]
    assert dots[0]["x"] > 150 > dots[1]["x"], "zero is in the middle of ±10 points"


def test_heat_map_marks_partial_and_missing() -> None:
    data = [
        row("a", 0.5, title="Task", provisional=False),
        row("b", 0.5, title="Task", provisional=True),
        row("c", None, title="Task", provisional=True),
    ]
    assert texts(figures.heat_map(300), data) == ["50", "50*", "–"]


# --- names and files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE, ids=["markup", "quotes", "token", "very long", "right to left"])
def test_names_are_drawn_as_text(name: str) -> None:
    svg = draw_svg(figures.ranking(300), [row(name, 0.7)], [name])
    root = ElementTree.fromstring(svg)  # well-formed: nothing broke out of its element
    tags = {element.tag.split("}")[1] for element in root.iter()}
    assert tags <= {"svg", "rect", "g", "path", "text", "title", "defs", "clipPath", "line", "tspan"}
    shown = [element.text or "" for element in root.iter() if element.tag.endswith("}text")]
    cut = f"{name[:5]}…{name[-6:]}"  # in the middle, beyond twelve characters
    assert (cut if len(name) > 12 else name) in shown


def test_names_that_vanish_are_shown() -> None:
    board = make_board(make_campaign(["zero\u200bwidth", "a\u202egnp.exe"], TASKS))
    assert {entry["agent"] for entry in ranking_rows(board)} == {"zero⟨U+200B⟩width", "a⟨U+202E⟩gnp.exe"}


def test_rows_are_those_of_the_tables() -> None:
    board = make_board(make_campaign(["one", "two"], TASKS))
    drawn = [(entry["agent"], entry["overall"], entry["overall_low"]) for entry in ranking_rows(board)]
    assert drawn == [(line.agent, line.overall, line.overall_low) for line in board.tables["overall"]]
    stages = {(entry["agent"], entry["stage"]): entry["mean"] for entry in stage_rows(board)}
    assert stages == {(line.agent, line.stage): line.mean for line in board.tables["stages"] if line.track is None}


def test_cost_needs_a_price() -> None:
    scores = [make_score(make_run(agent="paid")), make_score(make_run(agent="free"), totals=make_totals(cost_usd="0"))]
    scores.append(make_score(make_run(agent="unknown"), totals=make_totals(cost_usd=None)))
    assert [(entry["agent"], entry["resource_text"]) for entry in frontier_rows(make_board(scores))] == [
        ("paid", "$0.50")
    ]


def test_nothing_scored_gives_no_chart(tmp_path: Path) -> None:
    board = make_board([], [make_run()])
    assert paper_charts(board) == {}
    export_charts(tmp_path, board)
    assert list(tmp_path.iterdir()) == []


def test_charts_are_written_twice_the_same(tmp_path: Path) -> None:
    scores = make_campaign(["one", "two"], TASKS)
    scores[0] = scores[0].model_copy(update={"error_codes": [make_error()]})
    board = make_board(scores)
    export_charts(tmp_path / "one", board)
    export_charts(tmp_path / "two", board)
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert first == second
    assert {Path(name).stem for name in first} == set(FOR_PAPER) == {
        "ranking", "halves", "stages", "frontier", "tasks", "errors"
    }  # fmt: skip
    assert {Path(name).suffix for name in first} == {".svg", ".png"}


def test_png_is_four_times_the_svg(tmp_path: Path) -> None:
    export_charts(tmp_path, make_board(make_campaign(["one"], TASKS)))
    root = ElementTree.fromstring((tmp_path / "ranking.svg").read_text())
    with Image.open(io.BytesIO((tmp_path / "ranking.png").read_bytes())) as image:
        assert image.width == pytest.approx(4 * float(root.attrib["width"]), abs=4)


def test_charts_without_data_are_removed(tmp_path: Path) -> None:
    export_charts(tmp_path, make_board(make_campaign(["one"], TASKS)))
    export_charts(tmp_path, make_board([], [make_run()]))
    assert list(tmp_path.iterdir()) == []


def test_bundle_cannot_end_its_element() -> None:
    bundle = vega_bundle()
    assert "</script" not in bundle.lower() and "<!--" not in bundle
    assert "window.vegaEmbed" in bundle


def test_bundle_is_cached_where_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "CACHE", tmp_path)
    bundle = vega_bundle()
    (path,) = tmp_path.iterdir()
    assert path.read_text() == bundle
    path.write_text("cached")
    assert vega_bundle() == "cached"
    monkeypatch.setattr(charts, "CACHE", path)
    assert vega_bundle() == bundle
