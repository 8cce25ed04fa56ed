"""A copy of another benchmark's release: whether it is the published one, and whether all of its cases are there."""

from __future__ import annotations

import re
from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import hash_json, read_record
from automedbench.base.records import Receipt
from automedbench.datasets.forms.problems import first_file

UNVERIFIED = "unverified copy"
WHAT_NEXT = "Get this task of the release again, and set `release` in the configuration to its folder."


def check_release(card: TaskCard, raw: Path) -> str:
    """Check that the copy is the one of the card's revision and has the card's number of cases; what it is, in words.

    The revision is the digest over all paths and SHA-256 of the copy. Where the card has none, the copy's own is
    recorded as that of an unverified copy. Raises InfrastructureError for another content or number of cases.
    """
    files = read_record(first_file([raw / "receipt.json"], "record of the copy"), Receipt).files
    found, known = hash_json({path: entry.sha256 for path, entry in files.items()}), card.dataset.revision
    if known not in (None, found):
        raise InfrastructureError(f"{raw}: the copy has the digest {found}, the release {known}.\n{WHAT_NEXT}")
    marker = re.compile(rf"(?:.*/)?public/([^/]+)/{re.escape(card.inputs[0].file)}")
    cases = {match[1] for path in files if (match := marker.fullmatch(path))}
    if len(cases) != card.staging.sampling.count:
        raise InfrastructureError(
            f"{raw}: holds {len(cases)} cases of {card.id}, the release {card.staging.sampling.count}.\n{WHAT_NEXT}"
        )
    return f"digest {found[:16]}" if known else f"{UNVERIFIED}, digest {found[:16]}"
