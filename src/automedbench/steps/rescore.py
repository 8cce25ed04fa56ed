"""Changes that scoring or judging finished runs again would make: scores beside scores, row by row."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record, write_text
from automedbench.base.plaintable import table
from automedbench.base.records import ScoreRecord
from automedbench.campaign.load import CampaignRecord

What = Literal["rescore", "rejudge"]
SHOWN = 40
"""Rows on the terminal; all of them stand in the table's file."""
_SCORES: dict[What, tuple[str, ...]] = {
    "rescore": ("task", "s4", "s5", "agentic", "overall"),
    "rejudge": ("s1", "s2", "s3", "agentic", "overall"),
}
_ADOPT: dict[What, str] = {"rescore": "score_metrics", "rejudge": "score_judge"}


@dataclass(frozen=True)
class Change:
    """One run: its scores before and after by name, in [0, 1], and what else is different."""

    run: str
    agent: str
    before: dict[str, float]
    after: dict[str, float]
    remarks: tuple[str, ...]

    @property
    def delta(self) -> dict[str, float]:
        """After minus before."""
        return {name: self.after[name] - self.before[name] for name in self.before}

    @property
    def changed(self) -> bool:
        """Any score or remark."""
        return bool(self.remarks) or any(abs(value) > 1e-9 for value in self.delta.values())


def rescore(campaign: CampaignRecord, what: What) -> list[str]:
    """Lines that say what scoring or judging again would change, with all runs in ``<results>/again/<what>.csv``.

    What they were made of is removed. Raises MissingDataError when no run has a score.
    """
    again = campaign.results / "again"
    changes = read_changes(campaign.results, what)
    write_changes(changes, what, again / f"{what}.csv")
    shutil.rmtree(again / what)
    return [*change_lines(changes, what), f"All runs: {again / what}.csv"]


def read_changes(results: Path, what: What) -> list[Change]:
    """Every run that was scored again below ``<results>/again/<what>``, the largest change of overall first.

    Raises MissingDataError when there is none.
    """
    folder = results / "again" / what
    paths = sorted(folder.glob("*/*/*/r*/score.json"))
    if not paths:
        raise MissingDataError(
            f"{results}: no run has a score yet, so none can be scored again.\nRun `snakemake` first."
        )
    changes = [_change(results / "runs" / path.parent.relative_to(folder) / path.name, path, what) for path in paths]
    return sorted(changes, key=lambda change: (-abs(change.delta["overall"]), change.run))


def _change(old: Path, new: Path, what: What) -> Change:
    before, after = read_record(old, ScoreRecord), read_record(new, ScoreRecord)
    pairs = {"medal": (before.medal, after.medal), "judge": (before.recipe.judge, after.recipe.judge)}
    pairs["errors"] = (_codes(before), _codes(after))
    return Change(
        run=before.run.path,
        agent=before.run.agent,
        before={name: getattr(before.scores, name) for name in _SCORES[what]},
        after={name: getattr(after.scores, name) for name in _SCORES[what]},
        remarks=tuple(
            f"{name} {one or 'none'} → {other or 'none'}" for name, (one, other) in pairs.items() if one != other
        ),
    )


def _codes(score: ScoreRecord) -> str:
    return " ".join(sorted({error.code for error in score.error_codes}))


def change_lines(changes: Sequence[Change], what: What) -> list[str]:
    """The table for a terminal, scores ×100: changed runs, then the mean change per agent."""
    changed = [change for change in changes if change.changed]
    if not changed:
        return [f"{what}: none of {len(changes)} runs would change."]
    names = _SCORES[what]
    head = ("run", *(name if name in ("agentic", "overall", "task") else name.upper() for name in names), "")
    rows = [(change.run, *_cells(change.delta, names), "; ".join(change.remarks)) for change in changed[:SHOWN]]
    lines = table([head, *rows], right=range(1, len(names) + 1))
    if len(changed) > SHOWN:
        lines.append(f"… and {len(changed) - SHOWN} more")
    agents = sorted({change.agent for change in changes})
    means = [(agent, *_cells(_means(changes, agent, names), names)) for agent in agents]
    return [
        f"{what}: {len(changed)} of {len(changes)} runs would change (points, after minus before):",
        *lines,
        "",
        *table([("mean of all runs", *head[1:-1]), *means], right=range(1, len(names) + 1)),
        f"Nothing was changed. To adopt it, with the options of this call: snakemake --forcerun {_ADOPT[what]}",
    ]


def _means(changes: Iterable[Change], agent: str, names: Sequence[str]) -> dict[str, float]:
    own = [change.delta for change in changes if change.agent == agent]
    return {name: fmean(delta[name] for delta in own) for name in names}


def _cells(delta: dict[str, float], names: Sequence[str]) -> list[str]:
    return ["·" if abs(delta[name]) < 1e-9 else f"{100 * delta[name]:+.2f}" for name in names]


def write_changes(changes: Sequence[Change], what: What, out: Path) -> None:
    """Every run with its scores before and after as CSV."""
    names = _SCORES[what]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *(f"{name}_{when}" for name in names for when in ("before", "after")), "remarks"])
    for change in changes:
        values = [value for name in names for value in (change.before[name], change.after[name])]
        writer.writerow([change.run, *values, "; ".join(change.remarks)])
    write_text(out, text.getvalue())
