"""Parts of several charts: colours, axes, marks. ``width`` is in pixels; None fills the place the chart is put in.

A specification names colours by tokens (``@ink``), so that one serves light, dark and print. Data colours are those of
Okabe and Ito (Color Universal Design, 2008), which people with any colour vision can tell apart; grey stands for their
black, and their yellow is darkened on white. A symbol always says the same as a colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]

PAPER_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
PAGE_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif'

# The page's own colours are those of templates/common.css; a test holds them together.
LIGHT: dict[str, str] = {
    "ink": "#1b2430",
    "muted": "#5b6675",
    "line": "#dde2e8",
    "paper": "#ffffff",
    "agentic": "#0072b2",
    "task": "#e69f00",
    "on-agentic": "#ffffff",
    "on-task": "#241a00",
    "heat-low": "#ffffff",
    "heat-high": "#6aaed6",
}
DARK: dict[str, str] = {
    "ink": "#e4e9ef",
    "muted": "#9aa6b4",
    "line": "#2f3945",
    "paper": "#171d25",
    "agentic": "#56b4e9",
    "task": "#e69f00",
    "on-agentic": "#06202f",
    "on-task": "#241a00",
    "heat-low": "#171d25",
    "heat-high": "#2b648b",
}
SERIES_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b6675", "#8a7a00")
SERIES_DARK = ("#56b4e9", "#ff8a50", "#1fc79a", "#e39ac4", "#e69f00", "#9d8cff", "#9aa6b4", "#f0e442")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


def series_colours(n: int) -> list[str]:
    """A colour on white for each of ``n`` agents."""
    return [SERIES_LIGHT[index % len(SERIES_LIGHT)] for index in range(n)]


def series_shapes(n: int) -> list[str]:
    """A symbol for each of ``n`` agents; no two of the first 64 share colour and symbol."""
    return [SHAPES[(index + index // len(SHAPES) * 3) % len(SHAPES)] for index in range(n)]


def fill_tokens(spec: Any, tokens: Mapping[str, Any]) -> Any:
    """``spec`` with each string ``@name`` replaced; a list that holds nothing but a token becomes the token's list.

    Data must not be in the specification yet: what an agent wrote is no token.
    """
    if isinstance(spec, dict):
        return {key: fill_tokens(value, tokens) for key, value in spec.items()}
    if isinstance(spec, list):
        if len(spec) == 1 and isinstance(spec[0], str) and isinstance(tokens.get(spec[0][1:]), list):
            return tokens[spec[0][1:]]
        return [fill_tokens(value, tokens) for value in spec]
    if isinstance(spec, str) and spec.startswith("@"):
        return tokens[spec[1:]]
    return spec


def light_tokens(agents: Sequence[str]) -> dict[str, Any]:
    """Everything that tokens stand for in a chart for paper."""
    return LIGHT | {
        "font": PAPER_FONT,
        "agents": list(agents),
        "colours": series_colours(len(agents)),
        "shapes": series_shapes(len(agents)),
    }


def chart_config() -> Spec:
    """Type and lines of every chart."""
    axis = {"labelColor": "@muted", "titleColor": "@muted", "gridColor": "@line", "domainColor": "@line"}
    legend = {"labelColor": "@ink", "titleColor": "@muted", "labelFontSize": 11, "labelLimit": 180, "symbolSize": 70}
    return {
        "aria": False,
        "font": "@font",
        "background": "transparent",
        "view": {"stroke": None},
        "axis": axis | {"tickColor": "@line", "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
        "legend": legend
        | {"titleFontSize": 11, "titleFontWeight": "normal", "symbolStrokeWidth": 0, "symbolOpacity": 1},
        "text": {"color": "@ink", "fontSize": 11},
        "rule": {"color": "@ink"},
        "title": {"color": "@ink", "fontSize": 12, "anchor": "start"},
    }


Width = int | None

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
THIN = {"stroke": "@line", "strokeWidth": 0.5}
NARROW = "containerSize()[0] < 520"


def chart(width: Width, body: Spec, *, height: Any = None) -> Spec:
    """A specification around ``body``; its data come later, under the name ``rows``."""
    size = {"width": "container" if width is None else width}
    autosize = {"type": "fit-x" if isinstance(height, dict) else "fit", "contains": "padding"}
    return {
        "$schema": SCHEMA,
        "config": chart_config(),
        "data": {"name": "rows", "values": []},
        **size,
        **({} if height is None else {"height": height}),
        "autosize": autosize if width is None else {"type": "pad"},
        "padding": 4,
        **body,
    }


def width_dependent(width: Width, narrow: int, wide: int) -> Any:
    """A number that follows the width of the place; of a fixed chart the narrow one."""
    return {"expr": f"{NARROW} ? {narrow} : {wide}"} if width is None else narrow


def points(field: str, name: str) -> Spec:
    """A score of [0, 1] in points of 100; unknown stays unknown."""
    return {"calculate": f"isValid(datum['{field}']) ? 100 * datum['{field}'] : null", "as": name}


def name_axis(field: str, **axis: Any) -> Spec:
    """Names without a title and a line."""
    return {"field": field, "type": "nominal", "title": None, "axis": {"ticks": False, "domain": False} | axis}


_MIDDLE = (
    "length(datum.label) > (width < 420 ? 12 : 30) "
    "? slice(datum.label, 0, width < 420 ? 5 : 14) + '…' + slice(datum.label, width < 420 ? -6 : -15) : datum.label"
)


def agent_axis(width: Width, *, limit: int = 92) -> Spec:
    """Agents from the top in the order of the rows; long names are cut in the middle, as they differ at their ends."""
    room = width_dependent(width, limit, 210)
    look = {"labelLimit": room, "labelExpr": _MIDDLE, "labelColor": "@ink", "labelFontSize": 12, "labelPadding": 6}
    return name_axis("agent", **look) | {"sort": None}


def number_axis(field: str, title: str, **axis: Any) -> Spec:
    """Numbers without a line."""
    axis = {"tickCount": 5, "ticks": False, "domain": False} | axis
    return {"field": field, "type": "quantitative", "title": title, "axis": axis}


def score_axis(field: str, title: str, **more: Any) -> Spec:
    """0 to 100 points."""
    return number_axis(field, title) | {"scale": {"domain": [0, 100]}} | more


def agent_colour(width: Width) -> Spec:
    """Colour and symbol of an agent, with one legend for both."""
    where = {"orient": "top", "columns": width_dependent(width, 2, 5), "title": None, "offset": 8}
    where |= {"labelExpr": _MIDDLE, "symbolLimit": 16}
    return {
        channel: {
            "field": "agent",
            "type": "nominal",
            "scale": {"domain": ["@agents"], "range": [token]},
            "legend": where,
        }
        for channel, token in (("color", "@colours"), ("shape", "@shapes"))
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


def agent_dots(width: Width, x: Spec, y: Spec, tooltip: list[Spec]) -> Spec:
    """A symbol of each agent at its place."""
    return {
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
        "encoding": {"x": x, "y": y, "tooltip": tooltip, **agent_colour(width)},
    }


def hints(*pairs: tuple[str, str]) -> list[Spec]:
    """Tooltips of a chart: (title, field)."""
    return [{"field": field, "title": title} for title, field in pairs]


def score_fields(field: str, low: str, high: str) -> list[Spec]:
    """A score with its interval as numbers (``value``, ``from``, ``to``) and as texts (``score``, ``interval``)."""
    return [
        points(field, "value"),
        points(low, "from"),
        points(high, "to"),
        format_field(field, "score"),
        _format_interval(low, high),
    ]


def format_field(field: str, name: str, digits: int = 1) -> Spec:
    """A score as text in points; a dash for unknown."""
    return {"calculate": f"isValid(datum['{field}']) ? format(100 * datum['{field}'], '.{digits}f') : '–'", "as": name}


def _format_interval(low: str, high: str) -> Spec:
    """``interval``: as text in points."""
    text = f"format(100 * datum['{low}'], '.1f') + ' to ' + format(100 * datum['{high}'], '.1f')"
    known = f"isValid(datum['{low}']) && isValid(datum['{high}'])"
    return {"calculate": f"{known} ? {text} : 'not enough repeats'", "as": "interval"}


def heat(field: str, tooltip: list[Spec] | None = None, *, lines: Spec = THIN, size: int = 11) -> list[Spec]:
    """Cells shaded by a share of [0, 1], with their ``label``."""
    scale = {"domain": [0, 1], "range": ["@heat-low", "@heat-high"], "interpolate": "rgb"}
    colour: Spec = {"color": {"field": field, "type": "quantitative", "scale": scale, "legend": None}}
    return [
        {"mark": {"type": "rect"} | lines, "encoding": colour | ({"tooltip": tooltip} if tooltip else {})},
        {"mark": {"type": "text", "fontSize": size}, "encoding": {"text": {"field": "label"}}},
    ]


def difference_chart(width: Width, field: str, place: str, marks: Spec) -> Spec:
    """Differences in points with their intervals (``low``, ``high``), a line for each ``place``; zero marked.

    ``marks``: the layer that draws the differences, without its x. Texts for its tooltip: of ``score_fields``.
    """
    x = number_axis("value", "Difference in points", grid=True)
    y = agent_axis(width, limit=130) | {"field": place}
    body = {
        "transform": score_fields(field, "low", "high"),
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rule", "color": "@muted"}, "encoding": {"x": {"datum": 0}, "y": None}},
            whisker("horizontal", low="from", high="to", colour="@muted"),
            marks | {"encoding": {"x": x} | marks["encoding"]},
        ],
    }
    return chart(width, body, height={"step": 28 if width is None else 22})
