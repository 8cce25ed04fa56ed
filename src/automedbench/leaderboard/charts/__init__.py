"""Charts of the leaderboard: Vega-Lite specifications, compiled for the page and drawn as files for papers.

One specification serves both. On the page the data come from its tables and the colours from its theme; for paper the
same rows are put in here and drawn by vl-convert, which brings Vega and its own fonts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import atomic_path, sha256_bytes, write_text
from automedbench.judge.evidence import neutralise
from automedbench.leaderboard import formats
from automedbench.leaderboard.board import ALL_TRACKS, HEADLINE, Board
from automedbench.leaderboard.charts import figures
from automedbench.leaderboard.charts.parts import Spec, fill_tokens, light_tokens
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.scoring.codes.taxonomy import CODES

COLUMN = 236
"""Width of a plot for paper in pixels: with its axes one column of text (85 mm) at 8 points."""

_PNG_SCALE = 4  # 300 dots per inch at the width of a column
_COST = {"resource": "Mean cost per run in USD, logarithmic", "resource-format": "$~g"}


# --- rows of the board's tables as plain values, texts made harmless -------------------------------------------

Rows = list[dict[str, Any]]


def to_plain_rows(table: BoardTable) -> Rows:
    """Rows as dictionaries of JSON values; characters of names that would vanish or reorder are shown."""
    values = table.values({Decimal: float, str: neutralise})
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def ranking_rows(board: Board) -> Rows:
    """The headline ranking."""
    return [row for row in to_plain_rows(board.tables["overall"]) if row["overall"] is not None]


def frontier_rows(board: Board) -> Rows:
    """The headline ranking with the mean cost of a run, where it is known and above zero."""
    rows = [row for row in ranking_rows(board) if row["mean_cost_usd"]]
    return [row | {"resource": row["mean_cost_usd"], "resource_text": _money(row)} for row in rows]


def stage_rows(board: Board) -> Rows:
    """Stages over all tracks, agents in the order of the ranking."""
    order = sort_agents(board)
    rows = [row for row in to_plain_rows(board.tables["stages"]) if row["track"] is None and row["mean"] is not None]
    return sorted(rows, key=lambda row: (order.index(row["agent"]), row["stage"]))


def task_rows(board: Board) -> Rows:
    """Headline rows of every task with the card's title."""
    titles = {task: card.title for task, card in board.cards.items()}
    order = sort_agents(board)
    if not any(row.n_scored for row in board.tables["tasks"]):
        return []
    rows = [row | {"title": titles.get(row["task"], row["task"])} for row in to_plain_rows(board.tables["tasks"])]
    return sorted(rows, key=lambda row: (row["track"], row["title"], order.index(row["agent"])))


def error_rows(board: Board) -> Rows:
    """Shares of error codes of whole runs over all tracks: agents, then all of them."""
    order = sort_agents(board)
    found = to_plain_rows(board.tables["errors"])
    rows = [row | {"name": _code(row)} for row in found if row["track"] is None and row["stage"] is None]
    if not any(row["n_with_code"] for row in rows):
        return []
    agents = [row for row in rows if row["agent"] is not None]
    everyone = [row | {"agent": "all agents"} for row in rows if row["agent"] is None]
    return [*sorted(agents, key=lambda row: (order.index(row["agent"]), row["code"])), *everyone]


def sort_agents(board: Board) -> list[str]:
    """All planned agents: as ranked in the headline, then the others; names as charts show them."""
    ranked = [row.agent for row in board.views.get(HEADLINE, {}).get(ALL_TRACKS, [])]
    return [neutralise(name) for name in dict.fromkeys([*ranked, *sorted(board.plan.agents)])]


def _code(row: dict[str, Any]) -> str:
    return f"{row['code']} {CODES[row['code']].title}"


def _money(row: dict[str, Any]) -> str:
    return formats.money(Decimal(str(row["mean_cost_usd"])))


# --- charts ----------------------------------------------------------------------------------------------------


FOR_PAPER: dict[str, tuple[Callable[[int], Spec], Callable[[Board], Rows]]] = {
    "ranking": (figures.ranking, ranking_rows),
    "halves": (figures.halves, ranking_rows),
    "stages": (figures.profile, stage_rows),
    "frontier": (figures.frontier, frontier_rows),
    "tasks": (figures.heat_map, task_rows),
    "errors": (figures.error_shares, error_rows),
}
"""File name below ``charts/`` → how it is specified, and from which rows of a board; without rows it is not written."""


def paper_charts(board: Board) -> dict[str, Rows]:
    """Charts that a board has something for, with their rows."""
    found = {name: rows(board) for name, (_, rows) in FOR_PAPER.items()}
    return {name: data for name, data in found.items() if data}


def export_charts(out: Path, board: Board) -> None:
    """Draw the main charts into ``out`` as ``<name>.svg`` and ``<name>.png``; removes those that have no data now.

    The same board gives the same bytes.
    """
    import vl_convert

    drawn = paper_charts(board)
    for name, (specify, _) in FOR_PAPER.items():
        svg, png = out / f"{name}.svg", out / f"{name}.png"
        if name not in drawn:
            svg.unlink(missing_ok=True)
            png.unlink(missing_ok=True)
            continue
        text = draw_svg(specify(COLUMN), drawn[name], sort_agents(board))
        write_text(svg, text)
        with atomic_path(png) as temporary:
            temporary.write_bytes(vl_convert.svg_to_png(text, scale=_PNG_SCALE))


def draw_svg(specification: Spec, data: Sequence[dict[str, Any]], series: Sequence[str]) -> str:
    """A chart of these rows for paper; ``series``: names that have a colour and a symbol of their own."""
    import vl_convert

    svg: str = vl_convert.vega_to_svg(embed_data(specification, data, series), allowed_base_urls=[])
    return svg


def embed_data(specification: Spec, data: Sequence[dict[str, Any]], series: Sequence[str]) -> Spec:
    """A chart of these rows for paper as a Vega specification with its data and colours."""
    present = {value for row in data for value in row.values() if isinstance(value, str)}
    tokens = light_tokens([name for name in series if name in present]) | _COST
    vega: Spec = fill_tokens(_vega(specification), tokens)
    next(source for source in vega["data"] if source["name"] == "rows")["values"] = list(data)
    return vega | {"background": tokens["paper"]}


@functools.cache
def compiled_charts() -> dict[str, Spec]:
    """Charts of the page as Vega specifications without data, colours as tokens."""
    specifications = {
        "ranking": figures.ranking(None),
        "halves": figures.halves(None),
        "profile": figures.profile(None),
        "radar": figures.radar(_RADAR_SIDE),
        "frontier": figures.frontier(None),
        "differences": figures.differences(None),
        "error_shares": figures.error_shares(None),
        "error_costs": figures.error_costs(None),
    }
    return {name: _vega(specification) for name, specification in specifications.items()}


_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def vega_bundle() -> str:
    """Vega as one script that defines ``window.vegaEmbed`` and cannot end its script element.

    Building it takes two seconds: it is cached.
    """

    def build() -> str:
        import vl_convert

        bundle: str = vl_convert.javascript_bundle(_SNIPPET)
        # In a script this sequence occurs in texts and patterns only, where the backslash means nothing.
        return bundle.replace("</script", "<\\/script")

    return _cached(f"{sha256_bytes(_SNIPPET.encode())[:8]}.js", build)


def _vega(specification: Spec) -> Spec:
    """A Vega-Lite specification compiled to Vega; cached, as this takes a tenth of a second each time."""
    text = json.dumps(specification, sort_keys=True)

    def compile_it() -> str:
        import vl_convert

        return json.dumps(vl_convert.vegalite_to_vega(specification))

    vega: Spec = json.loads(_cached(f"{sha256_bytes(text.encode())[:16]}.json", compile_it))
    return vega


CACHE = Path(sys.prefix, "share", "automedbench")
"""Beside the installed packages."""


def _cached(name: str, make: Callable[[], str]) -> str:
    """Result of ``make``, cached until vl-convert has another version; made anew where nothing can be written."""
    path = CACHE / f"vl-convert-{version('vl-convert-python')}-{name}"
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8")
    text = make()
    with contextlib.suppress(InfrastructureError):
        write_text(path, text)
    return text


_RADAR_SIDE = 216
