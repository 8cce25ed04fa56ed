"""The page: one HTML file that opens from disk, loads nothing and runs only the script it was built with.

Everything that an agent may have written travels as JSON in script elements that browsers do not execute, with ``<``
escaped, and reaches the document as text nodes only. The content policy allows our own script and style by their
hashes; nothing else can run or load even if that failed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automedbench.cards import TaskCard
from automedbench.files import atomic_path
from automedbench.judge.rubric import Rubric
from automedbench.leaderboard import definitions
from automedbench.leaderboard.details import CompactTable, RunDetail
from automedbench.leaderboard.ledger import ledger_row
from automedbench.leaderboard.plan import Plan
from automedbench.leaderboard.tables import (
    HEADLINE_TIERS,
    Entry,
    Pooling,
    Row,
    build_rows,
    in_tiers,
    scored,
    unequal_coverage,
    what_differs,
)
from automedbench.records import TIERS, Model

if TYPE_CHECKING:
    import jinja2
    import markupsafe

TEMPLATES = Path(__file__).parent / "templates"
HEADLINE = "headline"
ALL_TRACKS = "all"

_LIST_COLUMNS = (
    *("agent", "track", "task", "tier", "repeat", "outcome", "disqualified", "failed", "overall", "agentic"),
    *("task_score", "s1", "s2", "s3", "s4", "s5", "medal", "turns", "wall_s", "tokens_total", "cost_usd"),
)
_DIGITS = 5
# What every record repeats of the score, which is embedded whole.
_SAID_ALREADY: dict[str, Any] = {
    "run": {"schema_", "run", "totals", "enforced"},
    "report": {"schema_", "run", "settings", "cases"},
    "judge": {"schema_", "run", "tokens"},
    "audit": {"schema_", "run", "enforced"},
}


class PageTask(Model):
    """A task in the pickers."""

    id: str
    title: str
    track: str


class PageCriterion(Model):
    """A criterion of a rubric as a reader needs it."""

    id: str
    stage: str
    title: str
    earned_when: str
    levels: list[str]
    auto_tiers: list[str]


class PageData(Model):
    """What the script of the page works on; ``views``: tier choice → track → ranking."""

    agents: list[str]
    models: dict[str, str]
    tiers: dict[str, str]
    tracks: dict[str, str]
    tasks: list[PageTask]
    views: dict[str, dict[str, CompactTable]]
    task_rows: CompactTable
    cells: CompactTable
    runs: CompactTable
    rubrics: dict[str, list[PageCriterion]]
    rubric_versions: dict[str, int]
    outcomes: dict[str, str]
    errors: dict[str, str]
    stages: dict[str, str]


@dataclass(frozen=True)
class Board:
    """Everything a page is built from, besides the details of single runs."""

    plan: Plan
    entries: Sequence[Entry]
    cards: dict[str, TaskCard]
    rubrics: dict[str, Rubric]
    pooling: Pooling
    unreadable: dict[str, str]

    @property
    def tasks(self) -> list[str]:
        """Planned tasks, sorted."""
        return sorted({entry.run.task for entry in self.entries})

    @property
    def tracks(self) -> list[str]:
        """Their tracks, sorted."""
        return sorted({entry.track for entry in self.entries})


def write_page(path: Path, board: Board, details: Iterable[tuple[str, str]]) -> None:
    """Write ``index.html``; ``details`` (run path, ``embed_detail``) are taken one by one as they are written."""
    template = _environment().get_template("page.html")
    stream = template.stream(page_context(board, details))
    stream.enable_buffering(64)
    with atomic_path(path) as temporary:
        stream.dump(str(temporary), encoding="utf-8", errors="backslashreplace")


def page_context(board: Board, details: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What the template needs."""
    import markupsafe

    style, script = _asset("page.css"), _asset("page.js")
    entries = board.entries
    found = scored(entries)
    return {
        "policy": content_policy(style, script),
        "style": markupsafe.Markup(style),
        "script": markupsafe.Markup(script),
        "data": embed(page_data(board)),
        "details": details,
        "pooling": board.pooling,
        "n_scored": len(found),
        "n_planned": len(entries),
        "unreadable": board.unreadable,
        "differs": what_differs(found),
        "unequal_coverage": unequal_coverage(in_tiers(entries, HEADLINE_TIERS)),
        "tracks": {track: definitions.TRACKS.get(track) for track in board.tracks},
        "stages": definitions.STAGES,
        "tiers": {tier: definitions.TIERS[tier] for tier in _planned_tiers(entries)},
        "backends": {name: definitions.BACKENDS[name] for name in sorted({s.enforced.backend for s in found})},
        "networks": {name: definitions.NETWORKS[name] for name in sorted({s.enforced.network for s in found})},
        "cards": [board.cards[task] for task in board.tasks if task in board.cards],
    }


def content_policy(style: str, script: str) -> str:
    """Content security policy: nothing loads; only this style and this script apply."""
    return (
        f"default-src 'none'; script-src '{_source_hash(script)}'; style-src '{_source_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def embed_detail(detail: RunDetail) -> str:
    """One run's record, embedded without what its parts repeat."""
    return embed(detail, _SAID_ALREADY)


def embed(record: Model, exclude: Mapping[str, Any] | None = None) -> markupsafe.Markup:
    """A record as JSON that cannot end or leave its script element, whatever its texts hold."""
    import markupsafe

    text = record.model_dump_json(by_alias=True, exclude=exclude)
    # In JSON these characters occur within strings only, where the escapes mean the same.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return markupsafe.Markup(text)


def page_data(board: Board) -> PageData:
    """Rankings of every choice of tier and track, tables by task, and the list of runs."""
    entries, pooling = board.entries, board.pooling
    choices = tier_choices(entries)
    headline = in_tiers(entries, HEADLINE_TIERS)
    ranking = build_rows(headline, "overall", pooling)
    return PageData(
        agents=list(dict.fromkeys([*(row.agent for row in ranking), *sorted(board.plan.agents)])),
        models={name: agent.model for name, agent in board.plan.agents.items()},
        tiers={choice: _choice_title(choice, entries) for choice in choices},
        tracks={track: definitions.track_title(track) for track in board.tracks},
        tasks=[_page_task(task, board) for task in board.tasks],
        views={choice: _views(in_tiers(entries, tiers), pooling) for choice, tiers in choices.items()},
        task_rows=to_page_table(build_rows(headline, "task", pooling)),
        cells=to_page_table(build_rows(entries, "cell", pooling)),
        runs=to_page_table([ledger_row(score) for score in scored(entries)], _LIST_COLUMNS),
        rubrics={track: _criteria(rubric) for track, rubric in board.rubrics.items()},
        rubric_versions={track: rubric.version for track, rubric in board.rubrics.items()},
        outcomes=definitions.OUTCOMES,
        errors=definitions.ERROR_CODES,
        stages={stage.id: stage.title for stage in definitions.STAGES},
    )


def tier_choices(entries: Iterable[Entry]) -> dict[str, tuple[str, ...]]:
    """Choices of the tier picker → tiers: the headline first, then single tiers where that says something else."""
    planned = _planned_tiers(entries)
    headline = tuple(tier for tier in planned if tier in HEADLINE_TIERS)
    singles = [tier for tier in planned if headline != (tier,)]
    return ({HEADLINE: headline} if headline else {}) | {tier: (tier,) for tier in singles}


def to_page_table(rows: Sequence[Any], columns: Sequence[str] = ()) -> CompactTable:
    """Dataclass rows as lists; all fields unless ``columns`` says which."""
    names = list(columns) or [field.name for field in fields(Row)]
    return CompactTable(columns=names, rows=[[_compact(getattr(row, name)) for name in names] for row in rows])


def _views(entries: list[Entry], pooling: Pooling) -> dict[str, CompactTable]:
    by_track = {track: [e for e in entries if e.track == track] for track in sorted({e.track for e in entries})}
    parts = {ALL_TRACKS: entries} | by_track
    return {name: to_page_table(build_rows(part, "overall", pooling)) for name, part in parts.items()}


def _choice_title(choice: str, entries: Iterable[Entry]) -> str:
    if choice == HEADLINE:
        return " + ".join(definitions.TIERS[tier][0] for tier in _planned_tiers(entries) if tier in HEADLINE_TIERS)
    return definitions.TIERS[choice][0]


def _planned_tiers(entries: Iterable[Entry]) -> list[str]:
    planned = {entry.run.tier for entry in entries}
    return [tier for tier in TIERS if tier in planned]


def _page_task(task: str, board: Board) -> PageTask:
    card = board.cards.get(task)
    track = next(entry.track for entry in board.entries if entry.run.task == task)
    return PageTask(id=task, title=card.title if card else task, track=track)


def _criteria(rubric: Rubric) -> list[PageCriterion]:
    return [
        PageCriterion(
            id=criterion.id,
            stage=criterion.stage,
            title=criterion.title,
            earned_when=criterion.earned_when,
            levels=[f"{level.value:g}: {level.text}" for level in criterion.levels] if criterion.stage == "S3" else [],
            auto_tiers=list(criterion.auto_tiers),
        )
        for criterion in rubric.criteria
    ]


def _compact(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    return str(value) if isinstance(value, Decimal) else value


def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
