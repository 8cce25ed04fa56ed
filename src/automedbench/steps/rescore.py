"""Changes that scoring or judging finished runs again would make: scores beside scores, row by row."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record, write_text
from automedbench.base.plaintable import table
from automedbench.base.records import UNMEASURED, ScoreRecord
from automedbench.campaign.record import CampaignRecord

What = Literal["rescore", "rejudge"]
MAX_ROWS = 40
"""Rows on the terminal; all of them stand in the table's file."""
_SCORES: dict[What, tuple[str, ...]] = {
    "rescore": ("task", "s2", "s3", "s4", "s5", "agentic", "overall"),
    "rejudge": ("s1", "s2", "s3", "agentic", "overall"),
}
_ADOPT: dict[What, str] = {"rescore": "score_metrics", "rejudge": "score_judge"}


def rescore(campaign: CampaignRecord, what: What) -> list[str]:
    """Lines that say what scoring or judging again would change, with all runs in ``<results>/again/<what>.csv``.

    What they were made of is removed. Raises MissingDataError when no run has a score.
    """
    again = campaign.results / "again"
    changes = read_changes(campaign.results, what)
    write_text(again / f"{what}.csv", to_csv(changes, what))
    shutil.rmtree(again / what)
    return [*change_lines(changes, what), f"All runs: {again / what}.csv"]


def read_changes(results: Path, what: What) -> pd.DataFrame:
    """A row per run that was scored again below ``<results>/again/<what>``, the largest change of overall first.

    Each score, in [0, 1], ``_before``, ``_after`` and, by its name alone, after minus before; ``remarks``: what else is
    different. Raises MissingDataError when there is none.
    """
    folder = results / "again" / what
    paths = sorted(folder.glob("*/*/*/r*/score.json"))
    if not paths:
        raise MissingDataError(
            f"{results}: no run has a score yet, so none can be scored again.\nRun `snakemake` first."
        )
    found = pd.DataFrame([_row(results / "runs" / path.relative_to(folder), path, what) for path in paths])
    found = found.assign(**{name: found[f"{name}_after"] - found[f"{name}_before"] for name in _SCORES[what]})
    found["changed"] = found.remarks.ne("") | found[list(_SCORES[what])].abs().gt(1e-9).any(axis=1)
    return found.assign(size=-found.overall.abs()).sort_values(["size", "run"], ignore_index=True)


def _row(old: Path, new: Path, what: What) -> dict[str, Any]:
    before, after = read_record(old, ScoreRecord), read_record(new, ScoreRecord)
    pairs = {"medal": (before.medal, after.medal), "judge": (before.recipe.judge, after.recipe.judge)}
    pairs["effect"] = (_effect(before), _effect(after))
    pairs["errors"] = (_codes(before), _codes(after))
    remarks = (f"{name} {one or 'none'} → {other or 'none'}" for name, (one, other) in pairs.items() if one != other)
    scores = {
        f"{name}_{when}": getattr(score.scores, name)
        for name in _SCORES[what]
        for when, score in (("before", before), ("after", after))
    }
    unmeasured = not after.effect.is_measured
    found = {"run": before.run.path, "agent": before.run.agent, "unmeasured": unmeasured}
    return found | scores | {"remarks": "; ".join(remarks)}


def _effect(score: ScoreRecord) -> str:
    return score.effect.verdict if score.effect.is_measured else UNMEASURED


def _codes(score: ScoreRecord) -> str:
    return " ".join(sorted({error.code for error in score.error_codes}))


def change_lines(changes: pd.DataFrame, what: What) -> list[str]:
    """The table for a terminal, scores ×100: changed runs, then the mean change per agent."""
    changed = changes[changes.changed]
    if changed.empty:
        return [f"{what}: none of {len(changes)} runs would change."]
    names = list(_SCORES[what])
    head = ("run", *(name if name in ("agentic", "overall", "task") else name.upper() for name in names), "")
    rows = [(run.run, *_cells(run[names]), run.remarks) for _, run in changed.head(MAX_ROWS).iterrows()]
    lines = table([head, *rows], right=range(1, len(names) + 1))
    if len(changed) > MAX_ROWS:
        lines.append(f"… and {len(changed) - MAX_ROWS} more")
    means = [(agent, *_cells(mean)) for agent, mean in changes.groupby("agent")[names].mean().iterrows()]
    return [
        f"{what}: {len(changed)} of {len(changes)} runs would change (points, after minus before):",
        *lines,
        "",
        *table([("mean of all runs", *head[1:-1]), *means], right=range(1, len(names) + 1)),
        *_unmeasured_lines(changes),
        f"Nothing was changed. To adopt it, with the options of this call: snakemake --forcerun {_ADOPT[what]}",
    ]


def _unmeasured_lines(changes: pd.DataFrame) -> list[str]:
    count = int(changes.unmeasured.sum())
    what = f"In {count} of {len(changes)} runs the effect of the case is not measured, and so it limits no stage"
    return [f"{what}: `snakemake rescore` measures it."] if count else []


def _cells(deltas: Iterable[float]) -> list[str]:
    return ["·" if abs(delta) < 1e-9 else f"{100 * delta:+.2f}" for delta in deltas]


def to_csv(changes: pd.DataFrame, what: What) -> str:
    """Every run with its scores before and after."""
    scores = [f"{name}_{when}" for name in _SCORES[what] for when in ("before", "after")]
    text: str = changes.to_csv(columns=["run", *scores, "remarks"], index=False, lineterminator="\n")
    return text
