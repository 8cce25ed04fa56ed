"""Checks of finished runs: a verdict each, and the first field in which two records of the same thing differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.base.cards import TaskCard
from automedbench.base.errors import AutoMedBenchError
from automedbench.base.files import read_record
from automedbench.base.plaintable import table
from automedbench.base.records import DetailReport, Model, ScoreRecord
from automedbench.judge.evidence import neutralise
from automedbench.scoring.run import score_from_files
from automedbench.tracks import settings_that_count

DIFFERS = 3
"""Exit code when a check differs."""
TOLERANCE = 1e-6
NOTHING = ...
"""Stands for a value that one of two records does not have; no JSON value is equal to it."""

Verdict = Literal["same", "differs", "absent"]


@dataclass(frozen=True)
class Check:
    """One check; ``detail`` names the first difference, or what could not be compared and why."""

    what: str
    verdict: Verdict
    detail: str = ""


def same_unless(what: str, difference: str) -> Check:
    """Check that is ``same`` without a difference, else ``differs``."""
    return Check(what, "differs" if difference else "same", difference)


def none_of(what: str, problems: Sequence[str]) -> Check:
    """Check that is ``same`` without a problem; else it names the first one and their number."""
    return same_unless(what, f"{problems[0]}; {len(problems)} such" if problems else "")


def check_lines(found: dict[str, list[Check]]) -> Iterator[str]:
    """One line per run where nothing differs, else a line per check."""
    for name, checks in found.items():
        counts = {verdict: sum(check.verdict == verdict for check in checks) for verdict in ("differs", "absent")}
        if len(found) > 1 and not counts["differs"]:
            yield f"{name}: same" + (f", {counts['absent']} not there to compare" if counts["absent"] else "")
            continue
        yield f"{name}:"
        yield from table([(f"  {check.what}", check.verdict, neutralise(check.detail)) for check in checks])


def check_score(folder: Path, card: TaskCard | None) -> Check:
    """The score of the run in ``folder``, made again from its records."""
    what = "score made again"
    if card is None:
        return Check(what, "absent", "no card of this task was found")
    try:
        recorded = read_record(folder / "score.json", ScoreRecord)
        again = score_from_files(card, folder.joinpath, recorded.recipe.effects or "counted")
    except AutoMedBenchError as error:
        return Check(what, "differs", str(error).partition("\n")[0])
    return same_unless(what, first_difference(recorded, again))


def first_difference(old: Model, new: Model) -> str:
    """The first field in which a record made again differs, numbers beyond a tolerance; empty: none.

    Which code made it is left out, and so are digests of files and settings of metrics that have their usual value.
    """
    found = _differing_value(_compared(old), _compared(new), "")
    if found is None:
        return ""
    shown = ["nothing" if value is NOTHING else str(value)[:80] for value in found[1:]]
    return f"{found[0]}: recorded {shown[0]}, made again {shown[1]}"


def _compared(record: Model) -> dict[str, Any]:
    content = record.model_dump(mode="json")
    if isinstance(record, DetailReport):
        content["settings"] = settings_that_count(record.track, record.settings)
    if isinstance(record, ScoreRecord):
        content |= {"sources": {}, "recipe": content["recipe"] | {"code": None, "code_version": ""}}
    return content


def _differing_value(old: Any, new: Any, where: str) -> tuple[str, Any, Any] | None:
    """First difference of two JSON values: its path, and the two values there."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(f"{where} {key}", old.get(key, NOTHING), new.get(key, NOTHING)) for key in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list):
        both = itertools.zip_longest(old, new, fillvalue=NOTHING)
        pairs = [(f"{where} {number}", *pair) for number, pair in enumerate(both, start=1)]
    elif isinstance(old, float) and isinstance(new, float):
        return None if abs(old - new) <= TOLERANCE else (where.strip(), old, new)
    else:
        return None if old == new else (where.strip(), old, new)
    return next((found for key, one, other in pairs if (found := _differing_value(one, other, key))), None)
