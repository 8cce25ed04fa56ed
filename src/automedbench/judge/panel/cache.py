"""Cache of judges' answers, by what was asked: an answer is paid once, also when a judgement is interrupted.

The folder lies outside every run, so that no agent can write into it; an answer that is taken from it is read and
checked as strictly as a fresh one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, sha256_bytes, write_record
from automedbench.base.records import JudgedStage, Model, Tokens
from automedbench.judge.prompt import PROMPT_VERSION


class CachedAnswer(Model):
    """One file of the cache: a valid answer of a judge about one stage."""

    schema_: Literal["automedbench/judge-answer/1"] = Field("automedbench/judge-answer/1", alias="schema")
    judge_digest: str
    prompt_version: int
    stage: JudgedStage
    repeat: int
    answer: str = Field(description="the judge's text, as it was valid")
    tokens: Tokens = Field(Tokens(), description="what it cost when it was given")


class AnswerCache:
    """A folder of answers; ``folder`` None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, key: str) -> CachedAnswer | None:
        """The answer under a key; a damaged file is as good as none."""
        if self.folder is None:
            return None
        try:
            return read_record(self._path(key), CachedAnswer)
        except InfrastructureError:
            return None

    def put(self, key: str, answer: CachedAnswer) -> None:
        """Keep a valid answer."""
        if self.folder is not None:
            write_record(self._path(key), answer)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.json"


def answer_key(judge_digest: str, messages: Sequence[dict[str, Any]], repeat: int) -> str:
    """Name of an answer: judge, prompt version, everything that was said to it, and the repeat, hashed."""
    parts = [judge_digest, PROMPT_VERSION, list(messages), repeat]
    return sha256_bytes(json.dumps(parts, sort_keys=True).encode())
