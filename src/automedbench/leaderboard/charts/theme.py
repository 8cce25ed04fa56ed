"""Colours of charts. A specification names them by tokens (``@ink``), so that one serves light, dark and print.

Data colours are those of Okabe and Ito (Color Universal Design, 2008), which people with any colour vision can tell
apart; grey stands for their black, and their yellow is darkened on white. A symbol always says the same as a colour.
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


def series_colours(n: int, palette: Sequence[str] = SERIES_LIGHT) -> list[str]:
    """A colour for each of ``n`` agents."""
    return [palette[index % len(palette)] for index in range(n)]


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
