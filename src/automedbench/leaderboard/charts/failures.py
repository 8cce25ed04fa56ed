"""Charts of error codes (taxonomy ``cause-v2``): who has which, which go together, what each costs."""

from __future__ import annotations

from automedbench.leaderboard.charts.parts import (
    Width,
    agent_axis,
    by_width,
    chart,
    difference_chart,
    heat,
    hints,
    points,
    score_axis,
    shown,
)
from automedbench.leaderboard.charts.theme import Spec


def error_shares(width: Width) -> Spec:
    """Share of an agent's runs that have a code. Rows: ``ErrorRow`` of whole runs with ``name`` (code and title)."""
    tooltip = hints(
        ("Agent", "agent"), ("Code", "name"), ("Runs with it", "said_runs"), ("Share of fired codes", "said_fired")
    )
    code = _code_axis("name", width)
    body = {
        "transform": [
            {"calculate": "isValid(datum.run_share) ? format(100 * datum.run_share, '.0f') : '–'", "as": "label"},
            {"calculate": "datum.n_with_code + ' of ' + datum.n_runs", "as": "said_runs"},
            {"calculate": "isValid(datum.fired_share) ? format(100 * datum.fired_share, '.1f') + ' %' : '–'",
             "as": "said_fired"},
        ],
        "encoding": {"x": code, "y": agent_axis(width)},
        "layer": heat("run_share", tooltip),
    }  # fmt: skip
    return chart(width, body, height={"step": 28 if width is None else 20})


def error_pairs(width: Width) -> Spec:
    """Runs that have both of two codes, shaded by their share of the runs with either. Rows: ``PairRow``."""
    tooltip = hints(("", "first"), ("and", "second"), ("Runs with both", "n_both"), ("of runs with either", "said"))
    first = {"field": "first", "type": "nominal", "title": None, "axis": {"ticks": False, "domain": False}}
    second = _code_axis("second", width)
    body = {
        "transform": [
            {"calculate": "isValid(datum.jaccard) ? format(100 * datum.jaccard, '.0f') + ' %' : '–'", "as": "said"},
            {"calculate": "'' + datum.n_both", "as": "label"},
        ],
        "encoding": {"x": second, "y": first},
        "layer": heat("jaccard", tooltip),
    }
    return chart(width, body, height={"step": 34 if width is None else 24})


def error_costs(width: Width) -> Spec:
    """How much less runs with a code score than runs of the same cell without it. Rows: ``CostRow`` with ``name``."""
    tooltip = hints(
        ("Code", "name"),
        ("Difference", "said"),
        ("Interval", "said_interval"),
        ("Cells with both kinds of runs", "n_cells"),
        ("Runs with it", "n_with"),
    )
    marks: Spec = {
        "transform": [{"filter": "isValid(datum.value)"}],
        "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1, "color": "@agentic"},
        "encoding": {"tooltip": tooltip},
    }
    return difference_chart(width, "within_difference", "name", marks)


def error_counts(width: Width) -> Spec:
    """Mean overall score by the number of codes a run has. Rows: ``CountRow`` with ``name``."""
    y = {"field": "name", "type": "nominal", "sort": None, "title": None}
    axis = {"ticks": False, "domain": False, "labelColor": "@ink", "labelFontSize": 12, "labelPadding": 6}
    label = {"type": "text", "align": "left", "dx": 6, "fontWeight": "bold"}
    body = {
        "transform": [
            points("mean_overall", "value"),
            shown("mean_overall", "said"),
            {"calculate": "datum.said + '  (' + datum.n_runs + ' runs)'", "as": "label"},
        ],
        "encoding": {"y": y | {"axis": axis}, "x": score_axis("value", "Mean overall score")},
        "layer": [
            {"mark": {"type": "bar", "color": "@agentic", "height": {"band": 0.6}}},
            {"mark": label, "encoding": {"text": {"field": "label"}}},
        ],
    }
    return chart(width, body, height={"step": 28 if width is None else 22})


def _code_axis(field: str, width: Width) -> Spec:
    """Codes on top; on a narrow screen only the code of ``E2 Data or model set-up``."""
    axis = {
        "orient": "top",
        "labelAngle": 0,
        "ticks": False,
        "domain": False,
        "labelColor": "@ink",
        "labelLimit": by_width(width, 26, 150),
        "labelExpr": "bandwidth('x') < 150 ? slice(datum.value, 0, 2) : datum.value",
    }
    return {"field": field, "type": "nominal", "title": None, "axis": axis}
