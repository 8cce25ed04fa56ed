"""Board page, ``index.html``: one HTML file that opens from disk, loads nothing and runs only what it was built with.

Its script gets tables without repeated keys, texts and compiled charts. Nothing of it is markup.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

from automedbench import __version__
from automedbench.base.cards import Reference, TaskCard
from automedbench.base.records import TIERS, ScoreRecord
from automedbench.campaign.treatments import variant_name
from automedbench.judge.rubric import RubricCriterion
from automedbench.leaderboard import definitions, formats
from automedbench.leaderboard.board import Board, tier_choices
from automedbench.leaderboard.charts import compiled_charts, paper_charts, vega_bundle
from automedbench.leaderboard.charts.parts import DARK, LIGHT, PAGE_FONT, SERIES_DARK, SERIES_LIGHT, SHAPES
from automedbench.leaderboard.conditions import BY_NAME, PUBLISHED, draw_name
from automedbench.leaderboard.entries import BoardEntry, group_by, judge_scores, list_scores
from automedbench.leaderboard.formats import QUANTITIES, change, skill_use
from automedbench.leaderboard.page.html import content_policy, embed, safe_source, script, style, write_html
from automedbench.leaderboard.page.run_pages import criterion_words
from automedbench.leaderboard.plan import PlannedAgent
from automedbench.leaderboard.tables.cells import find_unranked, split_by_track, tabulate_cells
from automedbench.leaderboard.tables.columns import RUNS_BESIDE, RUNS_ON_PAGE
from automedbench.leaderboard.tables.ranking import rank_scores
from automedbench.leaderboard.tables.table import BoardTable, plain_json
from automedbench.scoring.codes.taxonomy import CODES, TAXONOMY
from automedbench.statistics.intervals import MIN_REPEATS
from automedbench.statistics.repeats import REPEAT_COUNTS
from automedbench.statistics.samples import Pooling

SCAFFOLDS = {"openai": "built-in loop", "command": "own program"}
"""Provider of an agent → what drives its model, where its name doesn't say it."""
PAGE_TABLES = (
    *("tasks", "cells", "stages", "comparisons", "agreement", "errors", "error_pairs", "error_costs"),
    *("error_summary", "tiers"),
)


def page_data(board: Board, dates: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Everything but the runs: rankings of every choice of tier and track, tables, texts, charts and their colours.

    ``dates``: agent → day of its last run.
    """
    choices, settings = tier_choices(board.entries), agent_settings(board.entries)
    return {
        "agents": list(dict.fromkeys([*(row.agent for row in board.tables["overall"]), *sorted(board.plan.agents)])),
        "about": {
            name: _agent_facts(agent, settings.get(name, {})) | {"date": dates.get(name, "")}
            for name, agent in board.plan.agents.items()
        },
        "settings": settings,
        "cards": [_card(card) for _, card in sorted(board.cards.items())],
        "tiers": {name: " + ".join(definitions.TIERS[tier][0] for tier in tiers) for name, tiers in choices.items()},
        "tier_choices": {choice: list(tiers) for choice, tiers in choices.items()},
        "tracks": {track: definitions.track_title(track) for track in board.tracks},
        "short": {track: definitions.short_title(track) for track in board.tracks},
        "medal_rate": [track for track in board.tracks if (text := definitions.track_text(track)) and text.medal_rate],
        "tasks": _page_tasks(board),
        "views": {
            tiers: {track: page_table(rows) for track, rows in views.items()} for tiers, views in board.views.items()
        },
        "tables": {name: page_table(board.tables[name]) for name in PAGE_TABLES} | {"other": other_pooling(board)},
        "rubrics": {track: list(map(_criterion, rubric.criteria)) for track, rubric in board.rubrics.items()},
        "rubric_versions": {track: rubric.version for track, rubric in board.rubrics.items()},
        "outcomes": definitions.OUTCOMES,
        "errors": {code: {"title": text.title, "meaning": text.meaning} for code, text in CODES.items()},
        "taxonomy": TAXONOMY,
        "stages": {stage.id: stage.title for stage in definitions.STAGES},
        "pooling": board.method.pooling,
        "pooling_text": definitions.POOLINGS[board.method.pooling],
        "confidence": board.method.confidence,
        "resamples": board.method.resamples,
        "repeats_asked": _available_repeats(board.tables["cells"]),
        "one_judge": _one_judge(board.entries),
        "charts": compiled_charts(),
        "themes": {
            "light": {"colours": LIGHT | {"font": PAGE_FONT}, "series": SERIES_LIGHT},
            "dark": {"colours": DARK | {"font": PAGE_FONT}, "series": SERIES_DARK},
        },
        "shapes": SHAPES,
        "published": {"heads": definitions.PUBLISHED_HEADS, "agents": definitions.PUBLISHED_OVERALL},
        "exported": list(paper_charts(board)),
    }


def page_table(table: BoardTable, names: Iterable[str] = ()) -> dict[str, Any]:
    """A table by columns: those of ``names``, by default all but the signatures, which are long.

    A column has its values or, where these are few different ones, its levels and which of them each row has (codes).
    """
    kept = names or [name for name in table.kinds if name != "signature"]
    return {"n": len(table), "columns": {name: _column(own) for name, own in table.values(_SHORT, kept).items()}}


def other_pooling(board: Board) -> dict[str, Any]:
    """Headline scores and ranks as the pooling that is not configured gives them, over everything and per track."""
    pooling: Pooling = "runs" if board.method.pooling == "tasks" else "tasks"
    all_ = ["everything"]
    rows = [
        (track, agent, _shorten(row.overall), int(row["rank"]))
        for track, part in split_by_track(board.headline)
        for (_, agent), row in rank_scores(tabulate_cells(part), find_unranked(part, all_), all_, pooling).iterrows()
        if row["rank"] > 0  # none for agents on other tasks
    ]
    names = ("track", "agent", "overall", "rank")
    return {"n": len(rows), "columns": {name: _column([row[i] for row in rows]) for i, name in enumerate(names)}}


def agent_settings(entries: Sequence[BoardEntry]) -> dict[str, dict[str, Any]]:
    """Agent → every setting that its scored runs tell, each with its different values, and what they were served as."""
    found: dict[str, dict[str, Any]] = {}
    for score in list_scores(entries):
        recorded = found.setdefault(score.run.agent, {"settings": {}, "served": {}})
        for name, value in sorted(score.recipe.agent_settings.items()):
            recorded["settings"].setdefault(name, {})[value if isinstance(value, str) else plain_json(value)] = None
        recorded["served"].update(dict.fromkeys(score.recipe.served))
    return {
        agent: {
            "settings": {name: list(values) for name, values in recorded["settings"].items()},
            "served": [*recorded["served"]],
        }
        for agent, recorded in found.items()
    }


def _agent_facts(agent: PlannedAgent, recorded: dict[str, Any]) -> dict[str, str]:
    """Model of an agent, its scaffold, and what its lab says about how it was run."""
    layer = recorded.get("settings", {}).get("layer", ["null"])
    scaffold = layer[0] if layer != ["null"] else SCAFFOLDS.get(agent.provider, agent.provider)
    return agent.model_dump(exclude={"provider"}) | {"scaffold": scaffold}


def _card(card: TaskCard) -> dict[str, Any]:
    """Row of a task in the tables of data sets and of rules."""
    data, given = card.dataset, card.briefs.lite_model
    return {
        "id": card.id,
        "title": card.title,
        "unit": card.unit,
        "modality": card.modality,
        "dataset": f"{data.title} ({data.year})" if data.year else data.title,
        "attribution": data.attribution,
        "homepages": data.homepages,
        "licence": data.licence,
        "access": data.access,
        "description": card.description,
        "limits": card.limits.model_dump(exclude_none=True),
        "outputs": [f"{output.path}: {output.description}" for output in card.outputs if not output.optional],
        "metric": [card.metric.name, *(f"{name} {value}" for name, value in card.metric.settings.items())],
        "lite_model": given.name if given and "lite" in card.tiers else card.briefs.no_lite,
        "candidates": card.briefs.standard_candidates,
    }


def _page_tasks(board: Board) -> list[dict[str, Any]]:
    """Planned tasks by track and title, with the number of their cases: as scored, else as their card says."""
    tracks = {entry.run.task: entry.track for entry in board.entries}
    titles = {task: board.cards[task].title if task in board.cards else task for task in tracks}
    ordered = sorted(tracks, key=lambda task: (definitions.track_title(tracks[task]), titles[task], task))
    scored = {score.run.task: len(score.case_scores) for score in list_scores(board.entries) if score.case_scores}
    planned = {card.id: card.staging.sampling.count for card in board.cards.values()}
    found = {card.id: list(map(_reference, card.references)) for card in board.cards.values()}
    return [
        {"id": task, "title": titles[task], "track": tracks[task], "n_cases": scored.get(task) or planned.get(task)}
        | {"references": found.get(task, [])}
        for task in ordered
    ]


def _reference(reference: Reference) -> dict[str, Any]:
    """A published result beside a task, with its words."""
    shown = reference.model_dump(include={"value", "kind", "who", "metric"})
    return shown | {"differs": reference.differs, "origin": reference.origin}


def _criterion(criterion: RubricCriterion) -> dict[str, Any]:
    """A criterion of a rubric, for the section of its stage."""
    place = {"id": criterion.id, "stage": criterion.stage, "auto_tiers": criterion.auto_tiers}
    return criterion_words(criterion) | place


def _one_judge(entries: Iterable[BoardEntry]) -> str:
    """Text in place of agreement where there are not several judgements."""
    judges = sorted({score.recipe.judge for score in list_scores(entries)})
    if not judges:
        return "No run is judged yet."
    return f"Each run was judged once (by {', '.join(judges)}): there is no agreement to measure."


def _available_repeats(cells: BoardTable) -> list[int]:
    """k that the page offers: 1, and those for which some cell has enough repeats."""
    return [k for k in REPEAT_COUNTS if k == 1 or any(row.min_repeats >= k for row in cells)]


def _interval_text(board: Board, scores: Sequence[ScoreRecord]) -> str:
    """Method of intervals, ties and ranks, where there are any."""
    if not any(row.sufficient for row in board.tables["cells"]):
        return f"Below {MIN_REPEATS} repeats in a cell nothing is inferred: no intervals, no ties, no tests."
    judges = (len(judge_scores(score)) for score in scores if score.recipe.judge_kind == "llm")
    return definitions.interval_text(board.method, judges)


def _column(values: list[Any]) -> dict[str, list[Any]]:
    levels = list(dict.fromkeys(values))
    if 2 * len(levels) > len(values):
        return {"values": values}
    codes = {level: number for number, level in enumerate(levels)}
    return {"levels": levels, "codes": [codes[value] for value in values]}


_shorten = functools.partial(round, ndigits=5)
"""A number with as many digits as can be read."""


_SHORT: dict[type, Callable[[Any], Any]] = {float: _shorten, Decimal: lambda money: round(float(money), 6)}


SCRIPTS = (
    *("common.js", "board-state.js", "board-charts.js", "board-why.js", "board-ranking.js", "board-places.js"),
    *("board-profiles.js", "board-tasks.js", "board-compare.js", "board-errors.js", "board-runs.js", "board.js"),
)


def write_board(path: Path, board: Board, dates: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write ``index.html``; the same board gives the same bytes. ``dates``: agent → day of its last run."""
    write_html(path, "board.html", page_context(board, dates))


def list_treatments(board: Board) -> list[dict[str, Any]]:
    """Rows of the page's table of treatments: one per variant and place, with its changes by quantity."""
    rows = [row for row in board.tables.get("treatments", ()) if row.track is None or len(board.tracks) > 1]
    places = group_by(rows, lambda row: (row.agent, row.treatment, row.track))
    return [
        {
            "variant": variant_name(agent, treatment),
            "place": definitions.track_title(track) if track else "all",
            "used": skill_use(own[0]),
            "changes": {row.quantity: (change(row, row.quantity), bool(row.different)) for row in own},
        }
        for (agent, treatment, track), own in sorted(places.items(), key=lambda item: item[0][:2])
    ]


def write_comparison(path: Path, board: Board) -> None:
    """Write ``beside.html``: any two runs side by side, or one case of all agents, as frames of the runs' own pages."""
    sheet, program = style("common.css", "beside.css"), script("common.js", "beside.js")
    context = {
        "policy": content_policy([sheet], [program], frames=True),
        "style": safe_source(sheet),
        "script": safe_source(program),
        "titles": embed({task["id"]: task["title"] for task in _page_tasks(board)}),
        "runs": embed(page_table(board.tables["runs"], RUNS_BESIDE)),
    }
    write_html(path, "beside.html", context)


def page_context(board: Board, dates: Mapping[str, str]) -> dict[str, Any]:
    """Context of the template; ``dates``: agent → day of its last run."""
    sheet, program, vega = style("common.css", "board.css"), script(*SCRIPTS), vega_bundle()
    found = list_scores(board.entries)
    planned = {entry.run.tier for entry in board.entries}
    return {
        "policy": content_policy([sheet], [vega, program]),
        "style": safe_source(sheet),
        "vega": safe_source(vega),
        "script": safe_source(program),
        "data": embed(page_data(board, dates)),
        "dated": max(dates.values(), default=""),
        "runs": embed(page_table(board.tables["runs"], RUNS_ON_PAGE)),
        "sections": definitions.SECTIONS,
        "pooling_text": definitions.POOLINGS[board.method.pooling],
        "interval_text": _interval_text(board, found),
        "n_by_rules": sum(score.recipe.judge_kind == "heuristic" for score in found),
        "issues": {
            f"{card.title}: {card.id}": definitions.list_issues(card) for _, card in sorted(board.cards.items())
        },
        "draws": sorted({draw_name(score.recipe.draw) for score in found} - {PUBLISHED}),
        "made_up": any(score.made_up for score in found),
        "n_scored": len(found),
        "n_planned": len(board.entries),
        "unreadable": board.unreadable,
        "differs": group_by(board.differs, lambda name: BY_NAME[name].effect),
        "signature": board.signature,
        "citation": definitions.CITATION,
        "licence": definitions.LICENCE,
        "version": __version__,
        "outdated": board.outdated,
        "other_tasks": any(row.other_tasks for row in board.tables["overall"]),
        "tracks": {track: definitions.track_text(track) for track in board.tracks},
        "stages": definitions.STAGES,
        "tiers": dict(definitions.TIERS[tier] for tier in TIERS if tier in planned),
        "treatments": list_treatments(board),
        "reliability": group_by(board.tables.get("reliability", ()), lambda row: row.agent),
        "formats": formats,
        "quantities": QUANTITIES,
        "rules": definitions.RULES
        | {f"Sandbox: {name}": definitions.BACKENDS[name] for name in sorted({s.enforced.backend for s in found})}
        | {f"Network: {name}": definitions.NETWORKS[name] for name in sorted({s.enforced.network for s in found})},
    }
