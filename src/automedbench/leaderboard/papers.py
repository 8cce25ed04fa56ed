"""Papers: the ranking, tracks, stages and tiers as LaTeX (booktabs), with ties and notes.

Bold is a claim and rests on a test: the highest mean alone is not bold, nor is what is not tested (halves, stages).
Nothing in them depends on the time or the machine: the same scores give the same bytes. Every text is data: escaped so
that it cannot leave its cell.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automedbench import __version__
from automedbench.base.files import write_text
from automedbench.leaderboard import definitions
from automedbench.leaderboard.board import ALL_TRACKS, HEADLINE, Board
from automedbench.leaderboard.entries import group_by
from automedbench.leaderboard.formats import (
    UNKNOWN,
    condition_notes,
    footnotes,
    money,
    notes,
    percent,
    pooling_note,
    share,
    span,
    uncertainty_notes,
)
from automedbench.leaderboard.tables.stages import STAGES
from automedbench.leaderboard.tables.table import Row

_LATEX = {
    **{character: f"\\{character}" for character in "{}$&#_%"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
}
_LATEX_LIGATURE = re.compile(r"(?<=-)(?=-)|(?<=')(?=')|(?<=`)(?=`)|(?<=[?!])(?=`)")


@dataclass(frozen=True)
class PaperCell:
    """A text, an interval beside it, letters above it."""

    text: str
    span: str = ""
    mark: str = ""
    bold: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table with its heads (text, alignment) and what stands below it."""

    name: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[PaperCell]]
    notes: Sequence[str]


def one_line(text: str) -> str:
    """Blanks for line ends and tabs, ``?`` for what is no visible character (controls, direction marks, surrogates)."""
    spaced = re.sub(r"\s+", " ", text).strip()
    return "".join("?" if unicodedata.category(character)[0] == "C" else character for character in spaced)


def latex_text(text: str) -> str:
    """Text that LaTeX prints as it is."""
    plain = _LATEX_LIGATURE.sub("\0", one_line(text))
    return "".join("{}" if character == "\0" else _LATEX.get(character, character) for character in plain)


def to_latex(table: PaperTable) -> str:
    """A ``tabular`` for ``\\input``; needs the package booktabs and UTF-8 input."""
    width = len(table.heads)
    lines = [
        r"% Needs \usepackage{booktabs}.",
        rf"\begin{{tabular}}{{{''.join(align for _, align in table.heads)}}}",
        r"\toprule",
        _latex_row([latex_text(head) for head, _ in table.heads]),
        r"\midrule",
        *(_latex_row([_latex_cell(cell) for cell in row]) for row in table.rows),
        r"\bottomrule",
        *(rf"\multicolumn{{{width}}}{{l}}{{\footnotesize {latex_text(note)}}} \\" for note in table.notes),
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: PaperCell) -> str:
    text = latex_text(cell.text)
    # At the start of a row a bracket or an asterisk would be an argument of the row end before it.
    text = f"{{{text[0]}}}{text[1:]}" if text.startswith(("[", "*")) else text
    text = rf"\textbf{{{text}}}" if cell.bold else text
    text += rf"\textsuperscript{{{latex_text(cell.mark)}}}" if cell.mark else ""
    return text + (rf" {{\scriptsize {latex_text(cell.span)}}}" if cell.span else "")


def export_paper_tables(board: Board, folder: Path) -> None:
    """Write ``overall``, ``tracks``, ``stages`` and ``tiers``, each as ``.tex``."""
    for table in (overall_table(board), track_table(board), stage_table(board), tier_table(board)):
        write_text(folder / f"{table.name}.tex", to_latex(table))


def overall_table(board: Board) -> PaperTable:
    """The headline ranking with both halves, failure rate, cost and coverage; scores ×100."""
    ranking = board.tables["overall"]
    best = _best(board, None, ranking)
    rows = [
        [
            PaperCell(_ranks(row)),
            PaperCell(row.agent),
            _place(row, best),
            _score(row.agentic, row.agentic_low, row.agentic_high),
            _score(row.task_score, row.task_low, row.task_high),
            PaperCell(share(row.failure_rate)),
            PaperCell(money(row.mean_cost_usd) + ("*" if 0 < row.n_priced < row.n_scored else "")),
            PaperCell(f"{row.n_scored}/{row.n_planned}"),
        ]
        for row in ranking
    ]
    texts, numbers = ("Rank", "Agent", "Overall", "Agentic", "Task"), ("Failed", "Cost/run", "Runs n/N")
    heads = [*((name, "l") for name in texts), *((name, "r") for name in numbers)]
    below = [*footnotes(ranking, board.method), *_bold_notes(rows), *_row_notes(ranking)]
    return PaperTable("overall", heads, rows, [*below, _version(board)])


def track_table(board: Board) -> PaperTable:
    """Overall score per track, agents in the order of the headline ranking; a track that an agent lacks is a dash."""
    views = board.views.get(HEADLINE, {})
    tracks = [track for track in views if track != ALL_TRACKS]
    ranking = board.tables["overall"]
    places = {(track, row.agent): row for track in tracks for row in views[track]}
    best = {track: _best(board, track, views[track]) for track in tracks}
    first = _best(board, None, ranking)
    rows = [
        [
            PaperCell(row.agent),
            *(_place(places.get((track, row.agent)), best[track]) for track in tracks),
            _place(row, first),
        ]
        for row in ranking
    ]
    heads = [(name, "l") for name in ("Agent", *map(definitions.track_title, tracks), "Overall")]
    below = [
        pooling_note(board.method),
        *uncertainty_notes([*ranking, *places.values()], board.method),
        *condition_notes(ranking),
    ]
    return PaperTable(
        "tracks", heads, rows, [*below, *_bold_notes(rows), *_coverage(ranking, tracks, places), _version(board)]
    )


def stage_table(board: Board) -> PaperTable:
    """Mean of every stage over all tracks, agents in the order of the headline ranking."""
    ranking = board.tables["overall"]
    everywhere = group_by([row for row in board.tables["stages"] if row.track is None], lambda row: row.agent)
    found: list[dict[str, Row]] = [{row.stage: row for row in everywhere.get(one.agent, [])} for one in ranking]
    rows = [
        [
            PaperCell(row.agent),
            *(_stage(stages.get(stage)) for stage in STAGES),
            PaperCell(f"{row.n_scored}/{row.n_planned}"),
        ]
        for row, stages in zip(ranking, found, strict=True)
    ]
    titles = {text.id: f"{text.id} {text.title}" for text in definitions.STAGES}
    heads = [*((name, "l") for name in ("Agent", *map(titles.__getitem__, STAGES))), ("Runs n/N", "r")]
    judged = "S1 to S3 are judged, S4 and S5 computed; ×100."
    below = [judged, pooling_note(board.method), *uncertainty_notes(ranking, board.method), *condition_notes(ranking)]
    return PaperTable("stages", heads, rows, [*below, *_row_notes(ranking), _version(board)])


def tier_table(board: Board) -> PaperTable:
    """Agentic half and overall score in both tiers over all tracks, agents in the order of the headline ranking."""
    ranking = board.tables["overall"]
    found = {row.agent: row for row in board.tables["tiers"] if row.track is None}
    ordered = [found[row.agent] for row in ranking if row.agent in found]
    rows = [
        [
            PaperCell(row.agent),
            *(PaperCell(percent(value)) for value in (row.agentic_lite, row.agentic_standard)),
            PaperCell(UNKNOWN if row.agentic_change is None else f"{100 * row.agentic_change:+.1f}%".replace("-", "−")),
            *(PaperCell(percent(value)) for value in (row.overall_lite, row.overall_standard)),
            PaperCell(str(row.n_tasks)),
            PaperCell(f"{row.n_lite}, {row.n_standard}"),
        ]
        for row in ordered
    ]
    numbers = ("Agentic, lite", "standard", "change", "Overall, lite", "standard", "Tasks", "Runs")
    heads = [("Agent", "l"), *((name, "r") for name in numbers)]
    which = "Over the tasks scored in both tiers; change: lite against standard, relative. No test is made of it."
    below = [which, pooling_note(board.method), *condition_notes(ranking), *_row_notes(ranking), _version(board)]
    return PaperTable("tiers", heads, rows, below)


def _ranks(row: Row) -> str:
    """1, or 1 (1–2) where the data allow other ranks."""
    if row.rank is None:
        return UNKNOWN
    return str(row.rank) if row.rank_best == row.rank_worst else f"{row.rank} ({row.rank_best}–{row.rank_worst})"


def _best(board: Board, track: str | None, ranking: Sequence[Row]) -> str | None:
    """The first of a ranking if tests find its overall score higher than that of every other agent; else None."""
    scored = [row for row in ranking if row.overall is not None]
    if len(scored) < 2 or not scored[0].sufficient:
        return None
    first = scored[0].agent
    pairs = [pair for pair in board.tables["comparisons"] if pair.track == track and pair.different]
    beaten = {pair.b for pair in pairs if pair.a == first and (pair.difference or 0.0) > 0}
    beaten |= {pair.a for pair in pairs if pair.b == first and (pair.difference or 0.0) < 0}
    return first if all(row.agent in beaten for row in scored[1:]) else None


def _score(value: float | None, low: float | None, high: float | None) -> PaperCell:
    return PaperCell(percent(value), span(low, high))


def _place(row: Row | None, best: str | None) -> PaperCell:
    """The overall score of an agent in a place."""
    if row is None:
        return PaperCell(UNKNOWN)
    return PaperCell(percent(row.overall), span(row.overall_low, row.overall_high), row.tie or "", row.agent == best)


def _stage(row: Row | None) -> PaperCell:
    return _score(row.mean, row.low, row.high) if row else PaperCell(UNKNOWN)


def _coverage(ranking: Sequence[Row], tracks: Sequence[str], places: dict[tuple[str, str], Row]) -> list[str]:
    """Runs n/N of every track; once where it is the same for all agents."""
    found = {row.agent: _list_coverage(row.agent, tracks, places) for row in ranking}
    if len(found) > 1 and len(set(found.values())) == 1:
        return [f"Runs scored of planned, each agent: {next(iter(found.values()))}."]
    return [f"Runs scored of planned, {agent}: {runs}." for agent, runs in found.items()]


def _list_coverage(agent: str, tracks: Sequence[str], places: dict[tuple[str, str], Row]) -> str:
    rows = [(track, places.get((track, agent))) for track in tracks]
    counts = (f"{definitions.track_title(track)} {row.n_scored}/{row.n_planned}" for track, row in rows if row)
    return ", ".join(counts)


def _bold_notes(rows: Sequence[Sequence[PaperCell]]) -> list[str]:
    """Note on the meaning of bold, where there is any."""
    bold = any(cell.bold for row in rows for cell in row)
    return ["Bold: higher than every other agent with a score (simultaneous intervals on these tasks)."] if bold else []


def _row_notes(ranking: Sequence[Row]) -> list[str]:
    return [f"{row.agent}: {', '.join(found)}." for row in ranking if (found := notes(row))]


def _version(board: Board) -> str:
    """Version and signature of the board."""
    return f"automedbench {__version__}{f', signature {board.signature}' if board.signature else ''}."
