"""A release: the folder of a task as another benchmark published it, with its own case ids and a manifest of digests.

``manifest.json`` lies in the folder and lists all that is in it; layout and assumptions are told in docs/presets.md.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from automedbench.base.cards import Name, RelativePath, TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_file
from automedbench.base.records import Model, Sha256
from automedbench.datasets.forms.problems import read_text

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 50_000_000
WHAT_NEXT = "Get the release of this task again, and set `release` in the configuration to the folder above it."


class ReleaseManifest(Model):
    """``manifest.json`` of a release; keys beside these are left alone."""

    model_config = ConfigDict(extra="ignore")

    task: str
    cases: list[Name] = Field(min_length=1, description="ids of the cases")
    files: dict[RelativePath, Sha256] = Field(min_length=1, description="path below the folder → SHA-256")


def check_release(card: TaskCard, raw: Path) -> list[str]:
    """Ids of a release's cases, when manifest and files are what they should be.

    The digest of the manifest is ``revision`` of the card's source; without one it is not known and not compared.
    Raises MissingDataError without a manifest, and InfrastructureError for another manifest, task or number of cases,
    and for files that are absent, changed or not listed.
    """
    path = raw / MANIFEST
    text, known = read_text(path, "manifest of the release", MAX_MANIFEST_BYTES), card.dataset.sources[0].revision
    if known is not None and (found := sha256_file(path)) != known:
        raise _wrong(path, f"has the SHA-256 {found}, the release's is {known}")
    try:
        manifest = ReleaseManifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(path, f"is no manifest: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    count = card.staging.sampling.count
    if manifest.task != card.id:
        raise _wrong(path, f"is of the task '{manifest.task}', not of {card.id}")
    if len(set(manifest.cases)) != len(manifest.cases) or count not in (None, len(manifest.cases)):
        raise _wrong(path, f"lists {len(set(manifest.cases))} different cases of {len(manifest.cases)}, not {count}")
    _same_files(raw, manifest)
    return manifest.cases


def require_same_cases(card: TaskCard, listed: list[str], staged: list[str]) -> None:
    """Raise InfrastructureError unless the staged cases are those that the release lists."""
    if differ := sorted(set(listed) ^ set(staged)):
        where = "its manifest" if differ[0] in listed else "its files"
        raise InfrastructureError(
            f"{card.id}: the case {differ[0]} is only in {where} ({len(differ)} cases differ).\n{WHAT_NEXT}"
        )


def _same_files(raw: Path, manifest: ReleaseManifest) -> None:
    ours = {MANIFEST, "receipt.json"}
    there = {path.relative_to(raw).as_posix() for path in raw.rglob("*") if path.is_file()} - ours
    if extra := sorted(name for name in there - set(manifest.files) if not name.rpartition("/")[2].startswith(".")):
        raise _wrong(raw / extra[0], "is not listed in the release's manifest")
    for name, digest in sorted(manifest.files.items()):
        if name not in there:
            raise _wrong(raw / name, "does not exist, but the release's manifest lists it")
        if (found := sha256_file(raw / name)) != digest:
            raise _wrong(raw / name, f"has the SHA-256 {found}, the release's manifest says {digest}")


def _wrong(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(f"{path} {why}.\n{WHAT_NEXT}")
