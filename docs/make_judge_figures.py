"""Figures of the heuristic judge on a page: ``python docs/make_judge_figures.py docs/judge-evaluation.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from automedbench.base.files import write_text
from automedbench.base.plaintable import counted
from automedbench.commands.judge_eval import CRITERIA_HEAD, STAGES_HEAD, criterion_row, measure, number, stage_rows
from automedbench.judge.gold import SPLITS, Evaluation, load_gold
from automedbench.judge.rules import HeuristicJudge

BEGIN, END = "<!-- figures of the heuristic judge: begin -->", "<!-- figures of the heuristic judge: end -->"


def updated(page: str, config: Path) -> str:
    """The text of a page with the figures between its marks; raises ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{render(config)}\n\n{END}{after}"


def render(config: Path) -> str:
    """The heuristic judge on every split of the gold set as Markdown."""
    parts = [
        measure(load_gold(config / "gold", None, split), config / "rubrics", HeuristicJudge(), split)
        for split in SPLITS
    ]
    return "\n\n".join(block for found in parts for block in _blocks(found))


def _blocks(found: Evaluation) -> Iterator[str]:
    yield f"### {found.judge}, {found.split.replace('_', ' ')}: {counted(found.n_transcripts, 'transcript')}"
    yield _markdown([STAGES_HEAD, *stage_rows(found.stages)])
    yield _markdown([CRITERIA_HEAD, *map(criterion_row, found.criteria)])
    for level in found.levels:
        yield (
            f"Mean F1 {number(found.mean_f1)}. {level.id}: exact {number(level.exact)}, MAE {number(level.mae)}, "
            f"confusion (rows expected, columns given; 0, ½, 1): {level.confusion}. "
            f"Without valid answer: {found.n_invalid} of {found.n_asked}."
        )


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *body])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/make_judge_figures.py PAGE")
    page = Path(sys.argv[1])
    write_text(page, updated(page.read_text("utf-8"), Path(__file__).resolve().parents[1] / "config"))
