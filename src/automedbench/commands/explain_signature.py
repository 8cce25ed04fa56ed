"""Explain a score's signature, or how two of them differ and which of the differences matter.

A signature stands in the column `signature` of the leaderboard's tables, on pages and below paper tables. Of a run,
named as <agent>/<task>/<tier>/r<k> or by its folder, all conditions are shown, also those that its signature has as a
digest only.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record
from automedbench.base.plaintable import table
from automedbench.base.records import ScoreRecord
from automedbench.base.yamlfile import suggestion
from automedbench.commands._campaign import add_campaign_options, find_results
from automedbench.commands._output import show
from automedbench.judge.evidence import neutralise
from automedbench.leaderboard.conditions import (
    BY_NAME,
    CHANGES,
    CONDITIONS,
    KEYS,
    MAY,
    NOT,
    NOTHING,
    OTHER_KEYS,
    UNKNOWN,
    Effect,
    mixed_names,
    parse_signature,
    read_conditions,
    signature,
    strongest_effect,
)

MAX_WIDTH = 64
_SEVERAL = re.compile(r"(\d+)\*[0-9a-f]{8}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: one or two signatures or runs, and where runs are."""
    parser.add_argument(
        "first", metavar="SIGNATURE", help="a signature in quotes, or a run: <agent>/<task>/<tier>/r<k>"
    )
    parser.add_argument("second", metavar="OTHER", nargs="?", help="another one: what differs, and what that means")
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print it; raises ConfigError for what is neither a signature nor a scored run."""
    first = _read_subject(options.first, options)
    found: dict[str, object]
    if options.second is None:
        fields = list(signature_fields(first))
        rows = [(one.name, _cut(one.value), f"{one.meaning}; another one {one.matters}") for one in fields]
        found, lines = {"fields": fields}, table([("", "value", "what it is"), *rows])
        if isinstance(first, ScoreRecord):
            lines = [_signature(first), "", *lines]
    else:
        fields = find_differing_fields(first, _read_subject(options.second, options))
        found = {"fields": fields, "conclusion": conclusion(fields)}
        lines = [*_difference_table(fields), conclusion(fields)]
    show(options, found, [neutralise("\n".join(lines))])


Subject = str | ScoreRecord
"""A signature, or the score of a run."""


@dataclass(frozen=True)
class Field:
    """A key of a signature, or a condition of a run, with its meaning; ``other``: the value of the second one."""

    name: str
    value: str
    meaning: str
    matters: Effect
    why: str
    other: str = ""

    @property
    def unknown(self) -> bool:
        """True where one of the two does not have the value."""
        return UNKNOWN in (self.value.split("@") + self.other.split("@"))


def _read_subject(text: str, options: argparse.Namespace) -> Subject:
    if text.lstrip().startswith("amb:"):
        parse_signature(text)
        return text.strip()
    if (score := Path(text, "score.json")).is_file():
        return read_record(score, ScoreRecord)
    runs = find_results(options) / "runs"
    if (score := runs / text / "score.json").is_file():
        return read_record(score, ScoreRecord)
    known = [score.parent.relative_to(runs).as_posix() for score in sorted(runs.glob("*/*/*/r*/score.json"))]
    message = f"'{text[:60]}' is not a signature (amb:…), and no scored run below {runs} has that name"
    raise ConfigError([message + suggestion(text, known)])


def signature_fields(named: Subject) -> Iterator[Field]:
    """Fields of a signature, or conditions in a run's records, in their order."""
    if isinstance(named, str):
        for key, value in parse_signature(named).items():
            yield _make_field(key, value, NOTHING)
        return
    for one in CONDITIONS:
        yield Field(one.name, _text(one.value(named)), one.meaning, one.effect, one.why)


def find_differing_fields(first: Subject, second: Subject) -> list[Field]:
    """List differences; of two runs by condition, else by the keys of their signatures.

    What is an agent's own is compared between runs of one agent only.
    """
    if isinstance(first, ScoreRecord) and isinstance(second, ScoreRecord):
        same = first.run.agent == second.run.agent
        pairs = [
            (one, one.value(first), one.value(second)) for one in CONDITIONS if same or "agent" not in one.same_for
        ]
        return [
            Field(one.name, _text(a), one.meaning, one.effect, one.why, _text(b))
            for one, a, b in pairs
            if (a != b or a is None) and NOTHING not in (a, b)
        ]
    one, two = (parse_signature(_signature(named)) for named in (first, second))
    mixed = {key for each in (one, two) for name in mixed_names(each.get("mixed", "")) if (key := BY_NAME[name].key)}
    keys = [key for key in ("mixed", *KEYS, "n") if key not in mixed]
    found = [_make_field(key, one.get(key, NOTHING), two.get(key, NOTHING)) for key in keys]
    mixes = [field for field in found if field.name == "mixed" and (field.value or field.other)]
    if mixes:
        found.remove(mixes[0])
    return [*mixes, *(field for field in found if field.value != field.other or field.unknown)]


def _text(value: object) -> str:
    return UNKNOWN if value is None else str(value)


def _signature(named: Subject) -> str:
    return named if isinstance(named, str) else signature([read_conditions(named)])


def _make_field(key: str, value: str, other: str) -> Field:
    if key in OTHER_KEYS:
        effect = strongest_effect([*mixed_names(value), *mixed_names(other)]) if key == "mixed" else NOT
        return Field(key, value, OTHER_KEYS[key], effect, _WHY[key], other)
    parts = KEYS[key]
    meaning = "; ".join(part.meaning for part in parts)
    if several := _SEVERAL.fullmatch(value):
        meaning = f"{several[1]} values, one for each task or tier, as a digest: {meaning}"
    why = "; ".join(dict.fromkeys(part.why for part in parts))
    return Field(key, value, meaning, strongest_effect(part.name for part in parts), why, other)


_WHY = {
    "amb": "another form cannot be read",
    "mixed": "runs that are not alike have no conditions that others could share",
    "n": "more runs make intervals narrower, not scores higher",
}


def conclusion(fields: Sequence[Field]) -> str:
    """One sentence: whether the two can be compared."""
    found = {kind: [one.name for one in fields if one.matters == kind and not one.unknown] for kind in (CHANGES, MAY)}
    unknown = [one.name for one in fields if one.unknown and one.matters != NOT]
    if any(one.name == "mixed" and one.matters == CHANGES for one in fields):
        return "Not comparable: the runs of one of them are not alike themselves."
    if found[CHANGES]:
        return f"Not comparable: another {', '.join(found[CHANGES])} changes the score."
    if unknown:
        return f"It is unknown whether they are comparable: {', '.join(unknown)} is not known of both."
    if found[MAY]:
        return f"Compare with care: another {', '.join(found[MAY])} may change the score."
    return "Comparable: nothing differs that could change a score."


def _difference_table(fields: Sequence[Field]) -> list[str]:
    if not fields:
        return []
    rows = []
    for one in fields:
        effect = "not known" if one.unknown else one.matters
        rows.append((one.name, _cut(one.value or "–"), _cut(one.other or "–"), effect, one.why))
    return [*table([("", "first", "second", "that", "because"), *rows]), ""]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…"
