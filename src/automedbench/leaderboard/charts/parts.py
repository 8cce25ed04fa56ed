"""Parts of several charts. ``width`` is in pixels; None fills the place the chart is put in."""

from __future__ import annotations

from typing import Any

from automedbench.leaderboard.charts.theme import Spec, chart_config

Width = int | None

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
NARROW = "containerSize()[0] < 520"


def chart(width: Width, body: Spec, *, height: Any = None, rows: str = "rows") -> Spec:
    """A specification around ``body``; its data come later, under the name ``rows``."""
    size = {"width": "container" if width is None else width}
    autosize = {"type": "fit-x" if isinstance(height, dict) else "fit", "contains": "padding"}
    return {
        "$schema": SCHEMA,
        "config": chart_config(),
        "data": {"name": rows, "values": []},
        **size,
        **({} if height is None else {"height": height}),
        "autosize": autosize if width is None else {"type": "pad"},
        "padding": 4,
        **body,
    }


def by_width(width: Width, narrow: int, wide: int) -> Any:
    """A number that follows the width of the place; of a fixed chart the narrow one."""
    return {"expr": f"{NARROW} ? {narrow} : {wide}"} if width is None else narrow


def points(field: str, name: str) -> Spec:
    """A score of [0, 1] in points of 100; unknown stays unknown."""
    return {"calculate": f"isValid(datum['{field}']) ? 100 * datum['{field}'] : null", "as": name}


def agent_axis(width: Width, *, limit: int = 92) -> Spec:
    """Agents from the top in the order of the rows; names are cut to the room there is, never wrapped."""
    axis = {"labelLimit": by_width(width, limit, 210), "ticks": False, "domain": False, "labelColor": "@ink"}
    return {
        "field": "agent",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": axis | {"labelFontSize": 12, "labelPadding": 6},
    }


def score_axis(field: str, title: str, **more: Any) -> Spec:
    """0 to 100 points."""
    axis = {"tickCount": 5, "ticks": False, "domain": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": {"domain": [0, 100]}, "axis": axis} | more


def agent_colour(width: Width, *, legend: bool = True) -> Spec:
    """Colour and symbol of an agent, with one legend for both."""
    scale = {"domain": ["@agents"]}
    where = {"orient": "top", "columns": by_width(width, 2, 5), "title": None, "offset": 8}
    shown = where if legend else None
    return {
        "color": {"field": "agent", "type": "nominal", "scale": scale | {"range": ["@colours"]}, "legend": shown},
        "shape": {"field": "agent", "type": "nominal", "scale": scale | {"range": ["@shapes"]}, "legend": shown},
    }


def whisker(orient: str, *, low: str, high: str, colour: str = "@ink", cap: int = 8, **encoding: Any) -> Spec:
    """An interval as a line with caps; rows without one have none."""
    across = "x" if orient == "horizontal" else "y"
    ends = {across: {"field": low, "type": "quantitative"}, f"{across}2": {"field": high}}
    tick = {"field": high, "type": "quantitative"}
    caps = {"type": "tick", "orient": "vertical" if across == "x" else "horizontal", "size": cap, "thickness": 1.5}
    return {
        "transform": [{"filter": f"isValid(datum['{low}']) && isValid(datum['{high}'])"}],
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 1.5, "color": colour}, "encoding": ends | encoding},
            {"mark": caps | {"color": colour}, "encoding": {across: tick | {"field": low}} | encoding},
            {"mark": caps | {"color": colour}, "encoding": {across: tick} | encoding},
        ],
    }


def hints(*pairs: tuple[str, str]) -> list[Spec]:
    """What a chart says about the thing that is pointed at: (title, field)."""
    return [{"field": field, "title": title} for title, field in pairs]


def shown(field: str, name: str, digits: int = 1) -> Spec:
    """A score as text in points; a dash for unknown."""
    return {"calculate": f"isValid(datum['{field}']) ? format(100 * datum['{field}'], '.{digits}f') : '–'", "as": name}


def shown_range(low: str, high: str, name: str) -> Spec:
    """An interval as text in points."""
    text = f"format(100 * datum['{low}'], '.1f') + ' to ' + format(100 * datum['{high}'], '.1f')"
    known = f"isValid(datum['{low}']) && isValid(datum['{high}'])"
    return {"calculate": f"{known} ? {text} : 'not enough repeats'", "as": name}


def heat(field: str, tooltip: list[Spec]) -> list[Spec]:
    """Cells shaded by a share of [0, 1], with their ``label``."""
    scale = {"domain": [0, 1], "range": ["@heat-low", "@heat-high"], "interpolate": "rgb"}
    return [
        {
            "mark": {"type": "rect", "stroke": "@line", "strokeWidth": 0.5},
            "encoding": {
                "color": {"field": field, "type": "quantitative", "scale": scale, "legend": None},
                "tooltip": tooltip,
            },
        },
        {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": "label"}}},
    ]


def difference_chart(width: Width, field: str, place: str, marks: Spec) -> Spec:
    """Differences in points with their intervals (``low``, ``high``), a line for each ``place``; zero marked.

    ``marks``: the layer that draws the differences, without its x. Texts to point at: ``said``, ``said_interval``.
    """
    axis = {"tickCount": 5, "ticks": False, "domain": False, "grid": True}
    x: Spec = {"field": "value", "type": "quantitative", "title": "Difference in points", "axis": axis}
    y = agent_axis(width, limit=130) | {"field": place}
    body = {
        "transform": [
            points(field, "value"),
            points("low", "from"),
            points("high", "to"),
            shown(field, "said"),
            shown_range("low", "high", "said_interval"),
        ],
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rule", "color": "@muted"}, "encoding": {"x": {"datum": 0}, "y": None}},
            whisker("horizontal", low="from", high="to", colour="@muted"),
            marks | {"encoding": {"x": x} | marks["encoding"]},
        ],
    }
    return chart(width, body, height={"step": 28 if width is None else 22})
