"""May a new agent take the place of an old one? Compares two evaluations, cell by cell, and says where it got worse.

Reads two files of `export-evaluator` over the same cells. Refused when the mean of all cells falls by more than 0.01 in
Overall, 0.03 in the task score, 0.03 in S3, S4 or S5, or 0.05 in Overall on any track, or when a valid cell became
invalid. A stage that one of the two lacks is left out of its mean, and said. Exit code 0: promoted; 3: refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from automedbench.base.errors import ConfigError
from automedbench.base.files import read_given
from automedbench.base.plaintable import counted, table
from automedbench.commands._output import add_json, show
from automedbench.commands.export_evaluator import STAGES, Cell, Evaluation
from automedbench.commands.verify import DIFFERS
from automedbench.scoring import AGENTIC_WEIGHTS

DROPS = {"overall": 0.01, "task_score": 0.03, "s3": 0.03, "s4": 0.03, "s5": 0.03}
TRACK_DROP = 0.05
ROUNDING = 1e-9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench promote``."""
    parser.add_argument("base", type=Path, help="evaluation of the agent that stands")
    parser.add_argument("candidate", type=Path, help="evaluation of the one that is to take its place")
    add_json(parser)


def main(options: argparse.Namespace) -> None:
    """Print what was compared; exit 0 or 3."""
    base, candidate = (
        read_given(path, Evaluation, "automedbench export-evaluator") for path in (options.base, options.candidate)
    )
    found = compare(base, candidate)
    reasons = [one.reason for one in found if one.reason]
    rows = [(one.what, f"{one.base:.4f}", f"{one.candidate:.4f}", str(one.pairs), one.reason or "ok") for one in found]
    lines = [
        *table([("", base.agent, candidate.agent, "pairs", ""), *rows]),
        f"{candidate.agent}: {'refused, ' + counted(len(reasons), 'reason') if reasons else 'promoted'}",
    ]
    show(options, {"promoted": not reasons, "reasons": reasons, "compared": found}, lines)
    if reasons:
        sys.exit(DIFFERS)


@dataclass(frozen=True)
class Compared:
    """A mean over the pairs in which both have the number; ``reason``: why it refuses, else empty."""

    what: str
    base: float
    candidate: float
    pairs: int
    reason: str


def overall(cell: Cell) -> float | None:
    """Half the weighted stages, half the task score; null where one is missing."""
    stages = [getattr(cell, name) for name in STAGES]
    if cell.task_score is None or None in stages:
        return None
    agentic: float = sum(AGENTIC_WEIGHTS[name] * getattr(cell, name) for name in STAGES)
    return (agentic + cell.task_score) / 2


def compare(base: Evaluation, candidate: Evaluation) -> list[Compared]:
    """Every mean that decides. Raises ConfigError for evaluations of other cells, or without a number in common."""
    ours, theirs = ({cell.key: cell for cell in each.cells} for each in (base, candidate))
    for each, cells in ((base, ours), (candidate, theirs)):
        if len(cells) < len(each.cells):
            raise ConfigError([f"{each.agent}: the same cell stands in it twice"])
    if other := sorted(ours.keys() ^ theirs.keys()):
        place = "/".join(map(str, other[0]))
        raise ConfigError(
            [f"{counted(len(other), 'cell')} in one of the two only, first {place}: compare the same runs"]
        )
    pairs = [(ours[key], theirs[key]) for key in sorted(ours)]
    lost = [one.key for one, two in pairs if one.valid and not two.valid]
    before, after = fmean(one.valid for one, _ in pairs), fmean(two.valid for _, two in pairs)
    reason = f"{counted(len(lost), 'valid cell')} became invalid, first {'/'.join(map(str, lost[0]))}" if lost else ""
    found = [Compared("valid", before, after, len(pairs), reason)]
    found += [_mean(name, pairs, _value(name), drop) for name, drop in DROPS.items()]
    for track in sorted({one.track for one, _ in pairs}):
        of_track = [pair for pair in pairs if pair[0].track == track]
        found.append(_mean(f"overall of {track}", of_track, overall, TRACK_DROP))
    return found


def _value(name: str) -> Callable[[Cell], float | None]:
    if name == "overall":
        return overall

    def value(cell: Cell) -> float | None:
        found: float | None = getattr(cell, name)
        return found

    return value


def _mean(
    what: str, pairs: Sequence[tuple[Cell, Cell]], value: Callable[[Cell], float | None], allowed: float
) -> Compared:
    values = [(value(first), value(second)) for first, second in pairs]
    both = [(one, two) for one, two in values if one is not None and two is not None]
    if not both:
        raise ConfigError([f"{what}: no cell in which both have it, so that nothing can be decided"])
    before, after = fmean(one for one, _ in both), fmean(two for _, two in both)
    fell = before - after
    return Compared(
        what, before, after, len(both), f"fell by {fell:.4f}, limit {allowed:g}" if fell > allowed + ROUNDING else ""
    )
