"""Raw and staged data."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from automedbench.base.records.base import FileEntry, Model, Sha256


class Downloaded(Model):
    """One file, or one repository, as it came from its host."""

    name: str = Field(description="URL without query, or place and path on a hub; never with credentials")
    bytes: int
    sha256: Sha256 | None = Field(description="found; null: a repository, whose revision says what it is")
    published: str | None = Field(
        None, description="checksum that the card or the host gives, which it was held against"
    )
    revision: str | None = Field(None, description="commit that was found, where there are commits")
    client: str = Field(description="program that downloaded it, with its version")


FIXTURE_OF = "fixture of "
"""How the source of made-up data begins in a receipt."""


class Receipt(Model):
    """``data/raw/<dataset>/receipt.json``: where raw data came from and what exactly it is."""

    schema_: Literal["automedbench/receipt/1"] = Field("automedbench/receipt/1", alias="schema")
    dataset: str
    source: str = Field(description="kind and place the files came from, for example 'path demo/data/bccd'")
    revision: str | None
    licence: str
    attribution: str
    fetched_at: datetime
    files: dict[str, FileEntry] = Field(description="path below the data set's folder → content")
    downloads: list[Downloaded] = Field(
        default_factory=list, description="what was downloaded before archives were unpacked; empty for your own copy"
    )
    passed_over: list[str] = Field(
        default_factory=list, description="sources that gave something else than the card knows, and what"
    )

    @property
    def made_up(self) -> bool:
        """Whether the files are a fixture, not the data set."""
        return self.source.startswith(FIXTURE_OF)


class CaseEntry(Model):
    """One staged case; holds nothing private but hashes."""

    id: str
    inputs: dict[str, FileEntry] = Field(description="file below public/<task>/<case>/ → content")
    private: dict[str, FileEntry] = Field(description="file below private/<task>/<case>/ → content")
    geometry: dict[str, Any] = Field(
        default_factory=dict, description="what an output must match: width and height, or shape, spacing, affine"
    )


class Manifest(Model):
    """``manifests/<task>.json``: the staged cases of a task in their fixed order."""

    schema_: Literal["automedbench/manifest/1"] = Field("automedbench/manifest/1", alias="schema")
    task: str
    task_version: int
    track: str
    dataset: str
    sampling: str = Field(description="the rule and seed that chose the cases")
    cases: list[CaseEntry] = Field(min_length=1)
    private: dict[str, FileEntry] = Field(
        default_factory=dict, description="file below private/<task>/ that belongs to no case → content"
    )

    @property
    def cases_sha256(self) -> str:
        """Digest of all cases: the same for the same staged data."""
        text = json.dumps([case.model_dump(mode="json") for case in self.cases], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def case_ids(self) -> list[str]:
        """Case ids in manifest order."""
        return [case.id for case in self.cases]
