"""Charts of scores: the ranking with both halves, stage profiles, radars and the heat map. Rows are table rows."""

from __future__ import annotations

from automedbench.leaderboard.charts.parts import (
    Width,
    agent_axis,
    agent_colour,
    by_width,
    chart,
    hints,
    points,
    score_axis,
    shown,
    shown_range,
    whisker,
)
from automedbench.leaderboard.charts.theme import Spec

RINGS = "[0.25, 0.5, 0.75, 1]"
_RADAR_REACH = 1.4
"""Half the side of a radar in radii: room for the names around it."""


def ranking(width: Width) -> Spec:
    """Both halves of the overall score, stacked to it; interval as whisker, then score and tie letters.

    Rows: of a ranking (``Row``).
    """
    halves = [
        points("overall", "total"),
        points("overall_low", "low"),
        points("overall_high", "high"),
        shown("overall", "said"),
        shown("agentic", "said_agentic"),
        shown("task_score", "said_task"),
        shown_range("overall_low", "overall_high", "said_interval"),
        {"calculate": "datum.n_scored + ' of ' + datum.n_planned", "as": "said_runs"},
        {"calculate": "isValid(datum.rank_best) ? datum.rank_best + '–' + datum.rank_worst : '–'", "as": "said_rank"},
        {"calculate": "max(datum.total, isValid(datum.high) ? datum.high : 0)", "as": "end"},
        {"calculate": "datum.said + (datum.tie ? '  ' + datum.tie : '')", "as": "label"},
    ]
    tooltip = hints(
        ("Agent", "agent"),
        ("Overall", "said"),
        ("Interval", "said_interval"),
        ("Possible ranks", "said_rank"),
        ("Agentic half", "said_agentic"),
        ("Task half", "said_task"),
        ("Runs scored", "said_runs"),
    )
    bars = {
        "transform": [
            {"fold": ["agentic", "task_score"], "as": ["half", "value"]},
            {"calculate": "50 * datum.value", "as": "share"},
        ],
        "mark": {"type": "bar", "height": {"band": 0.78}},
        "encoding": {
            "x": score_axis("share", "Overall score", stack="zero"),
            "order": {"field": "half", "sort": "ascending"},
            "color": {
                "field": "half",
                "type": "nominal",
                "scale": {"domain": ["agentic", "task_score"], "range": ["@agentic", "@task"]},
                "legend": None if width is None else _half_legend(),
            },
            "tooltip": tooltip,
        },
    }
    label = {
        "transform": [{"filter": "isValid(datum.overall)"}],
        "mark": {"type": "text", "align": "left", "dx": 7, "fontWeight": "bold", "fontSize": 12},
        "encoding": {"x": {"field": "end", "type": "quantitative"}, "text": {"field": "label"}},
    }
    inside = [_half_value("agentic", "0", "@on-agentic"), _half_value("task_score", "datum.agentic", "@on-task")]
    layers = [bars, *inside, whisker("horizontal", low="low", high="high", cap=9), label]
    body = {"transform": halves, "encoding": {"y": agent_axis(width)}, "layer": layers}
    return chart(width, body, height={"step": 34 if width is None else 24})


def _half_legend() -> Spec:
    text = "datum.value == 'agentic' ? 'Agentic half' : 'Task half'"
    return {"title": None, "orient": "top", "labelExpr": text, "symbolType": "square"}


def _half_value(field: str, before: str, colour: str) -> Spec:
    """The value of a half at the beginning of its bar, where it has room and the whisker does not run through it."""
    clear = f"!isValid(datum.low) || datum.low > 50 * {before} + 3600 / width"
    room = f"isValid(datum.{field}) && datum.{field} > 0.2 && ({clear})"
    return {
        "transform": [
            {"filter": room},
            {"calculate": f"50 * {before}", "as": "begin"},
            shown(field, "inside"),
        ],
        "mark": {"type": "text", "color": colour, "fontSize": 10.5, "align": "left", "dx": 7},
        "encoding": {"x": {"field": "begin", "type": "quantitative"}, "text": {"field": "inside"}},
    }


def profile(width: Width) -> Spec:
    """Mean of each stage, agents side by side with their intervals. Rows: ``StageRow`` of one place."""
    offset = {"field": "agent", "scale": {"domain": ["@agents"], "paddingInner": 0.2, "paddingOuter": 0.6}}
    stage = {
        "field": "stage",
        "type": "nominal",
        "title": None,
        "axis": {"labelAngle": 0, "ticks": False, "labelColor": "@ink", "labelFontSize": 12, "domain": False}
        | {"labelPadding": 9},
    }
    place = {"x": stage, "xOffset": offset}
    tooltip = hints(
        ("Agent", "agent"), ("Stage", "stage"), ("Mean", "said"), ("Interval", "said_interval"), ("Runs", "n_scored")
    )
    lines = {
        "transform": [{"filter": "isValid(datum.value)"}],
        "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.35},
        "encoding": {
            "y": {"field": "value", "type": "quantitative"},
            "y2": {"datum": 0},
            "color": {"field": "agent", "type": "nominal"},
        },
    }
    dots = {
        "transform": [{"filter": "isValid(datum.value)"}],
        "mark": {"type": "point", "filled": True, "size": by_width(width, 46, 80), "opacity": 1},
        "encoding": {"y": score_axis("value", "Mean score of the stage"), "tooltip": tooltip, **agent_colour(width)},
    }
    body = {
        "transform": [
            points("mean", "value"),
            points("low", "from"),
            points("high", "to"),
            shown("mean", "said"),
            shown_range("low", "high", "said_interval"),
        ],
        "encoding": place,
        "layer": [lines, whisker("vertical", low="from", high="to", colour="@muted", cap=5), dots],
    }
    return chart(width, body, height=300 if width is None else 200)


def radar(side: int) -> Spec:
    """One agent's means on one axis per ``axis`` value, with the mean over all agents dashed behind it.

    Rows: ``axis``, ``value`` and ``reference`` in [0, 1], clockwise from the top.
    """
    return chart(side, {"transform": _spokes(), "layer": _radar_layers()}, height=side)


def radars(side: int) -> Spec:
    """A radar per agent, three in a row, for paper. Rows: as of ``radar``, with ``agent`` and its ``position``."""
    inner = {"width": side, "height": side, "layer": _radar_layers()}
    facet: Spec = {"field": "agent", "type": "nominal", "title": None, "header": {"labelColor": "@ink"}}
    facet["sort"] = {"field": "position", "op": "min"}
    spec = chart(side, {"transform": _spokes("agent"), "facet": facet, "columns": 3, "spacing": 14, "spec": inner})
    del spec["width"]
    return spec


def _spokes(*within: str) -> list[Spec]:
    """Angle and end of every axis: clockwise from the top, as hands of a clock."""
    return [
        {"window": [{"op": "row_number", "as": "number"}], "groupby": list(within)},
        {"joinaggregate": [{"op": "count", "as": "axes"}], "groupby": list(within)},
        {"calculate": "2 * PI * (datum.number - 1) / datum.axes", "as": "angle"},
        {"calculate": "sin(datum.angle)", "as": "east"},
        {"calculate": "cos(datum.angle)", "as": "north"},
    ]


def _radar_layers() -> list[Spec]:
    scale = {"domain": [-_RADAR_REACH, _RADAR_REACH], "nice": False, "zero": False}

    def place(east: str, north: str) -> Spec:
        hidden = {"type": "quantitative", "axis": None, "scale": scale}
        return {"x": hidden | {"field": east}, "y": hidden | {"field": north}}

    def at(radius: str) -> list[Spec]:
        return [
            {"filter": f"isValid({radius})"},
            {"calculate": f"datum.east * {radius}", "as": "x"},
            {"calculate": f"datum.north * {radius}", "as": "y"},
        ]

    def polygon(radius: str, detail: list[Spec], **mark: object) -> Spec:
        line = {"type": "line", "interpolate": "linear-closed", "strokeJoin": "round"} | mark
        order = {"field": "number", "type": "quantitative"}
        return {"transform": at(radius), "mark": line, "encoding": place("x", "y") | {"order": order, "detail": detail}}

    rings = polygon("datum.ring", [{"field": "ring"}], color="@line", strokeWidth=1)
    rings["transform"] = [{"calculate": RINGS, "as": "ring"}, {"flatten": ["ring"]}, *rings["transform"]]
    axes = {
        "transform": [{"calculate": "0", "as": "centre"}],
        "mark": {"type": "rule", "color": "@line", "strokeWidth": 1},
        "encoding": place("centre", "centre") | {"x2": {"field": "east"}, "y2": {"field": "north"}},
    }
    tooltip = hints(("", "axis"), ("Mean", "said"), ("Mean of all agents", "said_reference"))
    corners = {
        "transform": [*at("datum.value"), shown("value", "said"), shown("reference", "said_reference")],
        "mark": {"type": "point", "filled": True, "size": 34, "color": "@agentic", "opacity": 1},
        "encoding": place("x", "y") | {"tooltip": tooltip},
    }
    names = {
        "transform": [*at("1.27"), shown("value", "said", 0), {"calculate": "[datum.axis, datum.said]", "as": "name"}],
        "mark": {"type": "text", "fontSize": 12, "lineHeight": 13, "baseline": "middle", "dy": -5},
        "encoding": place("x", "y") | {"text": {"field": "name"}},
    }
    return [
        rings,
        axes,
        polygon("datum.reference", [], color="@muted", strokeWidth=1.5, strokeDash=[4, 3]),
        polygon("datum.value", [], color="@agentic", strokeWidth=2, fill="@agentic", fillOpacity=0.18),
        corners,
        names,
    ]


def heat_map(width: Width) -> Spec:
    """Overall score of every agent on every task; an asterisk where not all planned runs are scored.

    Rows: ``Row`` of tasks with ``title``.
    """
    agent = {
        "field": "agent",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"orient": "top", "labelAngle": -40, "ticks": False, "domain": False, "labelLimit": 110},
    }
    task = {
        "field": "title",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"ticks": False, "domain": False, "labelLimit": 150, "labelColor": "@ink"},
    }
    text = "isValid(datum.overall) ? format(100 * datum.overall, '.0f') + (datum.provisional ? '*' : '') : '–'"
    heat = {"domain": [0, 1], "range": ["@heat-low", "@heat-high"], "interpolate": "rgb"}
    body = {
        "transform": [{"calculate": text, "as": "label"}],
        "encoding": {"x": agent, "y": task},
        "layer": [
            {
                "mark": {"type": "rect", "stroke": "@paper"},
                "encoding": {"color": {"field": "overall", "type": "quantitative", "scale": heat, "legend": None}},
            },
            {"mark": {"type": "text", "fontSize": 10}, "encoding": {"text": {"field": "label"}}},
        ],
    }
    spec = chart(width, body, height={"step": 17})
    return spec | {"width": {"step": 34}} if width is not None else spec
