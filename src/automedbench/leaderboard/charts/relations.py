"""Charts of how agents relate: cost against score, ranks, paired differences, agreement of judges."""

from __future__ import annotations

from automedbench.leaderboard.charts.parts import (
    Width,
    agent_axis,
    agent_colour,
    by_width,
    chart,
    difference_chart,
    heat,
    hints,
    points,
    score_axis,
    shown,
    shown_range,
    whisker,
)
from automedbench.leaderboard.charts.theme import Spec

LABELS = "frontier_names"
"""Name of the marks that get the label transform."""


def frontier(width: Width) -> Spec:
    """Score against what a run takes, on a logarithmic axis; the line joins agents that none beats on both.

    Rows: ``Row`` with ``resource`` and ``resource_said``. An agent is on the frontier when no agent that takes as
    little or less scores as high: running maximum of the score in order of the resource.
    """
    running = {"sort": [{"field": "resource"}, {"field": "overall", "order": "descending"}], "frame": [None, 0]}
    steps: list[Spec] = [
        {"filter": "isValid(datum.overall) && datum.resource > 0"},
        points("overall", "score"),
        points("overall_low", "low"),
        points("overall_high", "high"),
        shown("overall", "said"),
        shown_range("overall_low", "overall_high", "said_interval"),
        {"window": [{"op": "max", "field": "overall", "as": "best"}], **running},
        {"window": [{"op": "lag", "field": "best", "as": "before"}], **running},
        {"calculate": "!isValid(datum.before) || datum.overall > datum.before", "as": "frontier"},
    ]
    cost = {
        "field": "resource",
        "type": "quantitative",
        "title": "@resource",
        "scale": {"type": "log", "zero": False, "nice": False, "padding": 36},
        "axis": {"format": "@resource-format", "tickCount": 5, "labelOverlap": True, "grid": True, "ticks": False},
    }
    score = {
        "field": "score",
        "type": "quantitative",
        "title": "Overall score",
        "scale": {"zero": False, "padding": 18},
        "axis": {"tickCount": 5, "ticks": False, "domain": False},
    }
    at: Spec = {"x": cost, "y": score}
    tooltip = hints(
        ("Agent", "agent"), ("Overall", "said"), ("Interval", "said_interval"), ("A run takes", "resource_said")
    )
    line = {
        "transform": [{"filter": "datum.frontier"}],
        "mark": {"type": "line", "interpolate": "step-after", "color": "@muted", "strokeDash": [5, 4]},
        "encoding": at,
    }
    dots = {
        "name": "frontier_dots",
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
        "encoding": at | {"tooltip": tooltip, **agent_colour(width, legend=width is not None)},
    }
    spread = whisker("vertical", low="low", high="high", colour="@muted", cap=6, x=cost)
    names = {"name": LABELS, "mark": {"type": "text"}, "encoding": at | {"text": {"field": "agent"}}}
    layers = [line, spread, dots, *([names] if width is None else [])]
    return chart(width, {"transform": steps, "layer": layers}, height=340 if width is None else 220)


def label_points(vega: Spec) -> Spec:
    """The compiled frontier with its names placed by Vega's label transform, so that they cover nothing.

    Vega-Lite has no such transform: the text marks are rebuilt upon the symbols they belong to. It measures on a
    canvas, which only a browser has; a chart for paper has a legend instead.
    """
    return vega | {"marks": [_as_labels(mark) if mark["name"].startswith(LABELS) else mark for mark in vega["marks"]]}


def _as_labels(mark: Spec) -> Spec:
    placing: Spec = {
        "type": "label",
        "size": {"signal": "[max(width, 10), max(height, 10)]"},  # while the place is not laid out: 0
        "anchor": ["right", "left", "top-right", "bottom-right", "top-left", "bottom-left", "top", "bottom"],
        "offset": [6],
        "avoidMarks": ["layer_0_marks"],  # the line; a mark without items would stop the transform
    }
    look = {"font": {"value": "@font"}, "fill": {"value": "@ink"}, "fontSize": {"value": 11.5}, "limit": {"value": 150}}
    return {
        "name": mark["name"],
        "type": "text",
        "from": {"data": "frontier_dots_marks"},
        "encode": {"enter": {"text": {"field": "datum.agent"}, **look}},
        "transform": [placing],
    }


def ranks(width: Width) -> Spec:
    """Share of bootstrap draws in which an agent has a rank. Rows: ``RankRow`` of one place."""
    rank = {
        "field": "rank",
        "type": "ordinal",
        "title": "Rank",
        "axis": {"orient": "top", "labelAngle": 0, "ticks": False, "domain": False},
    }
    text = "datum.share >= 0.995 ? '100' : datum.share >= 0.005 ? format(100 * datum.share, '.0f') : ''"
    tooltip = hints(("Agent", "agent"), ("Rank", "rank"), ("Share of draws", "said"))
    body = {
        "transform": [
            {"calculate": text, "as": "label"},
            {"calculate": "format(100 * datum.share, '.1f') + ' %'", "as": "said"},
        ],
        "encoding": {"x": rank, "y": agent_axis(width)},
        "layer": heat("share", tooltip),
    }
    return chart(width, body, height={"step": 26 if width is None else 20})


def differences(width: Width) -> Spec:
    """Paired difference of two agents per place, in points, with its interval; zero marked.

    Rows: ``ComparisonRow`` with ``place``; filled where the difference is one after Holm's correction.
    """
    tooltip = hints(
        ("", "place"), ("Difference", "said"), ("Interval", "said_interval"), ("Task-tier cells", "n_cells")
    )
    fill = {"condition": {"test": "datum.different === true", "value": "@agentic"}, "value": "@paper"}
    marks: Spec = {
        "mark": {"type": "point", "size": 90, "opacity": 1, "color": "@agentic", "strokeWidth": 2},
        "encoding": {"fill": fill, "tooltip": tooltip},
    }
    return difference_chart(width, "difference", "place", marks)


def agreement(width: Width) -> Spec:
    """Agreement of judges per stage: Krippendorff's α of all, weighted κ of pairs.

    Rows: ``AgreementRow`` with ``who`` (which coefficient, of whom). Coefficients can be as low as −1: those below −0.2
    stand at the left edge with their value beside them.
    """
    tooltip = hints(("Stage", "stage"), ("Judges", "who"), ("Value", "said"), ("Interval", "said_interval"))
    value = score_axis("at", "Agreement", scale={"domain": [-0.2, 1]})
    value["axis"] = {"format": ".1f", "values": [0, 0.2, 0.4, 0.6, 0.8, 1], "ticks": False, "domain": False}
    stage = {"field": "stage", "type": "nominal", "title": None, "axis": {"ticks": False, "domain": False}}
    offset = {"field": "who", "sort": None}
    legend = {"orient": "top", "title": None, "columns": by_width(width, 1, 3), "labelLimit": 260}
    marks: Spec = {"type": "point", "filled": True, "size": 80, "opacity": 1}
    body = {
        "transform": [
            {"filter": "isValid(datum.value)"},
            {"calculate": "max(datum.value, -0.2)", "as": "at"},
            {"calculate": "format(datum.value, '.2f')", "as": "said"},
            {
                "calculate": "isValid(datum.low) ? format(datum.low, '.2f') + ' to ' + format(datum.high, '.2f') : '–'",
                "as": "said_interval",
            },
            {"calculate": "isValid(datum.low) ? max(datum.low, -0.2) : null", "as": "from"},
            {"calculate": "isValid(datum.high) ? max(datum.high, -0.2) : null", "as": "to"},
        ],
        "encoding": {"y": stage, "yOffset": offset},
        "layer": [
            whisker("horizontal", low="from", high="to", colour="@muted", cap=6),
            {
                "mark": marks,
                "encoding": {
                    "x": value,
                    "color": {
                        "field": "who",
                        "type": "nominal",
                        "sort": None,
                        "scale": {"range": ["@colours"]},
                        "legend": legend,
                    },
                    "shape": {
                        "field": "who",
                        "type": "nominal",
                        "sort": None,
                        "scale": {"range": ["@shapes"]},
                        "legend": legend,
                    },
                    "tooltip": tooltip,
                },
            },
            {
                "transform": [{"filter": "datum.value < -0.2"}],
                "mark": {"type": "text", "align": "left", "dx": 9, "color": "@muted"},
                "encoding": {"x": value, "text": {"field": "said"}},
            },
        ],
    }
    return chart(width, body, height={"step": 22})
