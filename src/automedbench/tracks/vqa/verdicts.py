"""Verdicts of the answer judge as the scorer reads them (``answer_judge.json``, written by ``judge.answers``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import Manifest, Score, Sha256, SubmissionRecord

RESOURCE = "answer_verdicts"


class Verdict(BaseModel):
    """What the scorer needs of one verdict; ``score`` is null unless it was judged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    case: str
    status: Literal["judged", "shortcut", "unjudged", "not_sent"]
    score: Score | None
    answer_sha256: Sha256 | None


class Verdicts(BaseModel):
    """What the scorer needs of the file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str
    prompt_version: int
    verdicts: list[Verdict]


def read_verdicts(
    resources: Mapping[str, Path], manifest: Manifest, checked: SubmissionRecord, model: str | None
) -> Verdicts | None:
    """The verdicts on exactly this submission; None when none are given and none are asked for.

    ``model`` is the judge that the card's settings name, None for lexical scoring. Raises MissingDataError when its
    verdicts are missing, ConfigError when they are another judge's, InfrastructureError when they are about other
    answers.
    """
    path = resources.get(RESOURCE)
    if path is None:
        if model is None:
            return None
        raise MissingDataError(
            f"{manifest.task} is scored by the answer judge {model}, but no verdicts are given.\n"
            "Run scripts/judge_answers.py with the same --campaign and --run first."
        )
    found = read_record(path, Verdicts)
    if model is not None and found.model != model:
        raise ConfigError([f"{path}: verdicts of {found.model}, but metric.settings.judge_model is {model}"])
    judged = [(verdict.case, verdict.answer_sha256) for verdict in found.verdicts]
    collected = [(case.case, next((file.sha256 for file in case.files.values()), None)) for case in checked.cases]
    if judged != collected:
        raise InfrastructureError(f"{path}: verdicts on other answers than these; judge this submission again.")
    return found
