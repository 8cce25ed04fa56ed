"""Figures: the ranking with both halves, stage profiles, radars, the heat map; cost, ranks, differences; error codes.

Rows are table rows, unless a chart says so; those of error codes are of the taxonomy ``cause-v2``.
"""

from __future__ import annotations

from automedbench.leaderboard.charts.parts import (
    Spec,
    Width,
    agent_axis,
    agent_colour,
    agent_dots,
    chart,
    difference_chart,
    format_field,
    heat,
    hints,
    name_axis,
    points,
    score_axis,
    score_fields,
    whisker,
    width_dependent,
)

_RADAR_REACH = 1.4
"""Half the side of a radar in radii: room for the names around it."""


def ranking(width: Width) -> Spec:
    """Both halves of the overall score, stacked to it; interval as whisker, then score and tie letters.

    Rows: of a ranking (``Row``).
    """
    halves = [
        *score_fields("overall", "overall_low", "overall_high"),
        format_field("agentic", "agentic_text"),
        format_field("task_score", "task_text"),
        {"calculate": "datum.n_scored + ' of ' + datum.n_planned", "as": "runs"},
        {"calculate": "isValid(datum.rank_best) ? datum.rank_best + '–' + datum.rank_worst : '–'", "as": "ranks"},
        {"calculate": "max(datum.value, isValid(datum.to) ? datum.to : 0)", "as": "end"},
        {"calculate": "datum.score + (datum.tie ? '  ' + datum.tie : '')", "as": "label"},
    ]
    tooltip = hints(
        ("Agent", "agent"),
        ("Overall", "score"),
        ("Interval", "interval"),
        ("Possible ranks", "ranks"),
        ("Agentic half", "agentic_text"),
        ("Task half", "task_text"),
        ("Runs scored", "runs"),
    )
    bars = {
        "transform": [
            {"fold": ["agentic", "task_score"], "as": ["half", "half_score"]},
            {"calculate": "50 * datum.half_score", "as": "share"},
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
    layers = [bars, *inside, whisker("horizontal", low="from", high="to", cap=9), label]
    body = {"transform": halves, "encoding": {"y": agent_axis(width)}, "layer": layers}
    return chart(width, body, height={"step": 24})


def _half_legend() -> Spec:
    text = "datum.value == 'agentic' ? 'Agentic half' : 'Task half'"
    return {"title": None, "orient": "top", "labelExpr": text, "symbolType": "square"}


def _half_value(field: str, before: str, colour: str) -> Spec:
    """Score of a half, 0 to 100, at the beginning of its bar, where there is room and no whisker."""
    clear = f"!isValid(datum.from) || datum.from > 50 * {before} + 7800 / width"
    room = f"isValid(datum.{field}) && datum.{field} > 0.2 && datum.{field} * width > 165 && ({clear})"
    title = "Agentic" if field == "agentic" else "Task"
    return {
        "transform": [
            {"filter": room},
            {"calculate": f"50 * {before}", "as": "begin"},
            {"calculate": f"'{title} ' + format(100 * datum.{field}, '.1f')", "as": "inside"},
        ],
        "mark": {"type": "text", "color": colour, "fontSize": 10.5, "align": "left", "dx": 7},
        "encoding": {"x": {"field": "begin", "type": "quantitative"}, "text": {"field": "inside"}},
    }


def profile(width: Width) -> Spec:
    """Mean of each stage, agents side by side with their intervals. Rows: ``StageRow`` of one place."""
    offset = {"field": "agent", "scale": {"domain": ["@agents"], "paddingInner": 0.2, "paddingOuter": 0.6}}
    stage = name_axis("stage", labelAngle=0, labelColor="@ink", labelFontSize=12, labelPadding=9)
    place = {"x": stage, "xOffset": offset}
    tooltip = hints(
        ("Agent", "agent"), ("Stage", "stage"), ("Mean", "score"), ("Interval", "interval"), ("Runs", "n_scored")
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
        "mark": {"type": "point", "filled": True, "size": width_dependent(width, 46, 80), "opacity": 1},
        "encoding": {"y": score_axis("value", "Mean score of the stage"), "tooltip": tooltip, **agent_colour(width)},
    }
    body = {
        "transform": score_fields("mean", "low", "high"),
        "encoding": place,
        "layer": [lines, whisker("vertical", low="from", high="to", colour="@muted", cap=5), dots],
    }
    return chart(width, body, height=300 if width is None else 200)


def radar(side: int) -> Spec:
    """One agent's means on one axis per ``axis`` value, with the mean over all agents dashed behind it.

    Rows: ``axis``, ``value`` and ``reference`` in [0, 1], clockwise from the top.
    """
    return chart(side, {"transform": _SPOKES, "layer": _radar_layers()}, height=side)


_SPOKES: list[Spec] = [
    {"window": [{"op": "row_number", "as": "number"}]},
    {"joinaggregate": [{"op": "count", "as": "axes"}]},
    {"calculate": "2 * PI * (datum.number - 1) / datum.axes", "as": "angle"},
    {"calculate": "sin(datum.angle)", "as": "east"},
    {"calculate": "cos(datum.angle)", "as": "north"},
]
"""Angle and end of every axis: clockwise from the top, as hands of a clock."""


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
    rings["transform"] = [
        {"calculate": "[0.25, 0.5, 0.75, 1]", "as": "ring"},
        {"flatten": ["ring"]},
        *rings["transform"],
    ]
    axes = {
        "transform": [{"calculate": "0", "as": "centre"}],
        "mark": {"type": "rule", "color": "@line", "strokeWidth": 1},
        "encoding": place("centre", "centre") | {"x2": {"field": "east"}, "y2": {"field": "north"}},
    }
    tooltip = hints(("", "axis"), ("Mean", "score"), ("Mean of all agents", "reference_text"))
    corners = {
        "transform": [*at("datum.value"), format_field("value", "score"), format_field("reference", "reference_text")],
        "mark": {"type": "point", "filled": True, "size": 34, "color": "@agentic", "opacity": 1},
        "encoding": place("x", "y") | {"tooltip": tooltip},
    }
    names = {
        "transform": [
            *at("1.27"),
            format_field("value", "score", 0),
            {"calculate": "[datum.axis, datum.score]", "as": "name"},
        ],
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
    agent = name_axis("agent", orient="top", labelAngle=-40, labelLimit=110) | {"sort": None}
    task = name_axis("title", labelLimit=150, labelColor="@ink") | {"sort": None}
    text = "isValid(datum.overall) ? format(100 * datum.overall, '.0f') + (datum.provisional ? '*' : '') : '–'"
    body = {
        "transform": [{"calculate": text, "as": "label"}],
        "encoding": {"x": agent, "y": task},
        "layer": heat("overall", lines={"stroke": "@paper"}, size=10),
    }
    spec = chart(width, body, height={"step": 17})
    return spec | {"width": {"step": 34}} if width is not None else spec


def frontier(width: Width) -> Spec:
    """Score against what a run takes, on a logarithmic axis; the line joins agents that none beats on both.

    Rows: ``Row`` with ``resource`` and ``resource_text``. An agent is on the frontier when no agent that takes as
    little or less scores as high: running maximum of the score in order of the resource. One all of whose runs are
    disqualified is never on it.
    """
    running = {"sort": [{"field": "resource"}, {"field": "overall", "order": "descending"}], "frame": [None, 0]}
    steps: list[Spec] = [
        {"filter": "isValid(datum.overall) && datum.resource > 0"},
        *score_fields("overall", "overall_low", "overall_high"),
        {"calculate": "datum.n_disqualified >= datum.n_scored ? -1 : datum.overall", "as": "earned"},
        {"window": [{"op": "max", "field": "earned", "as": "best"}], **running},
        {"window": [{"op": "lag", "field": "best", "as": "before"}], **running},
        {"calculate": "datum.earned > (isValid(datum.before) ? datum.before : -1)", "as": "frontier"},
    ]
    cost = {
        "field": "resource",
        "type": "quantitative",
        "title": "@resource",
        "scale": {"type": "log", "zero": False, "nice": False, "padding": 36},
        "axis": {"format": "@resource-format", "tickCount": 5, "labelOverlap": True, "grid": True, "ticks": False},
    }
    score = score_axis("value", "Overall score", scale={"zero": False, "padding": 18})
    tooltip = hints(
        ("Agent", "agent"), ("Overall", "score"), ("Interval", "interval"), ("A run takes", "resource_text")
    )
    line = {
        "transform": [{"filter": "datum.frontier"}],
        "mark": {"type": "line", "interpolate": "step-after", "color": "@muted", "strokeDash": [5, 4]},
        "encoding": {"x": cost, "y": score},
    }
    spread = whisker("vertical", low="from", high="to", colour="@muted", cap=6, x=cost)
    dots = agent_dots(width, cost, score, tooltip)
    return chart(width, {"transform": steps, "layer": [line, spread, dots]}, height=340 if width is None else 220)


def halves(width: Width) -> Spec:
    """Agentic against task half, with the intervals of both; along a dashed line the overall score is the same.

    Rows: of a ranking (``Row``).
    """
    steps = [
        {"filter": "isValid(datum.overall)"},
        *(
            step
            for half, field in (("agentic", "agentic"), ("task", "task_score"))
            for step in (
                points(field, f"{half}_at"),
                points(f"{half}_low", f"{half}_from"),
                points(f"{half}_high", f"{half}_to"),
                format_field(field, f"{half}_text"),
            )
        ),
        format_field("overall", "score"),
    ]
    x, y = score_axis("agentic_at", "Agentic half"), score_axis("task_at", "Task half")
    tooltip = hints(
        ("Agent", "agent"), ("Agentic half", "agentic_text"), ("Task half", "task_text"), ("Overall", "score")
    )
    ends = [
        {"x": low, "y": high, "x2": high, "y2": low, "name": f"Overall {overall}"}
        for overall in (25, 50, 75)
        for low, high in [(max(0, 2 * overall - 100), min(100, 2 * overall))]
    ]
    number = {"type": "quantitative"}
    equal = {
        "data": {"values": ends},
        "mark": {"type": "rule", "color": "@muted", "opacity": 0.5, "strokeDash": [4, 4]},
        "encoding": {
            "x": {"field": "x"} | number,
            "y": {"field": "y"} | number,
            "x2": {"field": "x2"},
            "y2": {"field": "y2"},
        },
    }
    named = {
        "data": {"values": ends},
        "mark": {"type": "text", "color": "@muted", "fontSize": 10, "align": "left", "dx": 3, "dy": 9},
        "encoding": {"x": {"field": "x"} | number, "y": {"field": "y"} | number, "text": {"field": "name"}},
    }
    spread = [
        whisker("horizontal", low="agentic_from", high="agentic_to", colour="@muted", cap=6, y=y),
        whisker("vertical", low="task_from", high="task_to", colour="@muted", cap=6, x=x),
    ]
    body = {"transform": steps, "layer": [equal, named, *spread, agent_dots(width, x, y, tooltip)]}
    return chart(width, body, height=360 if width is None else 220)


def differences(width: Width) -> Spec:
    """Paired difference of two agents per place, in points, with its interval; zero marked.

    Rows: ``ComparisonRow`` with ``place``; filled where the agents are told apart.
    """
    tooltip = hints(("", "place"), ("Difference", "score"), ("Interval", "interval"), ("Task-tier cells", "n_cells"))
    fill = {"condition": {"test": "datum.different === true", "value": "@agentic"}, "value": "@paper"}
    marks: Spec = {
        "mark": {"type": "point", "size": 90, "opacity": 1, "color": "@agentic", "strokeWidth": 2},
        "encoding": {"fill": fill, "tooltip": tooltip},
    }
    return difference_chart(width, "difference", "place", marks)


def error_shares(width: Width) -> Spec:
    """Share of an agent's runs that have a code. Rows: ``ErrorRow`` of whole runs with ``name`` (code and title)."""
    tooltip = hints(("Agent", "agent"), ("Code", "name"), ("Runs with it", "runs"), ("Share of fired codes", "fired"))
    code = name_axis(
        "name",
        orient="top",
        labelAngle=0,
        labelColor="@ink",
        labelLimit=width_dependent(width, 26, 150),
        # On a narrow screen only the code of "E2 Data or model set-up".
        labelExpr="bandwidth('x') < 150 ? slice(datum.value, 0, 2) : datum.value",
    )
    body = {
        "transform": [
            format_field("run_share", "label", 0),
            {"calculate": "datum.n_with_code + ' of ' + datum.n_runs", "as": "runs"},
            format_field("fired_share", "percent"),
            {"calculate": "isValid(datum.fired_share) ? datum.percent + ' %' : '–'", "as": "fired"},
        ],
        "encoding": {"x": code, "y": agent_axis(width)},
        "layer": heat("run_share", tooltip),
    }
    return chart(width, body, height={"step": 28 if width is None else 20})


def error_costs(width: Width) -> Spec:
    """Score difference of runs with a code to runs of the same cell without it. Rows: ``CostRow`` with ``name``."""
    tooltip = hints(
        ("Code", "name"),
        ("Difference", "score"),
        ("Interval", "interval"),
        ("Cells with both kinds of runs", "n_cells"),
        ("Runs with it", "n_with"),
    )
    marks: Spec = {
        "transform": [{"filter": "isValid(datum.value)"}],
        "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1, "color": "@agentic"},
        "encoding": {"tooltip": tooltip},
    }
    return difference_chart(width, "within_difference", "name", marks)
