"""Sampling of questions: which become cases, in which order, and which others are handed out with their answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from automedbench.base.cards import Sampling, TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.sources import Questions, SourceQuestion
from automedbench.datasets.sampling import TOO_FEW, shuffle_sources


class Calibration(Model):
    """Questions that agents get with their answers."""

    options: dict[str, Any] | None = Field(
        None,
        description="what differs in staging.options: the file of the training questions; null: they are the questions "
        "of the same file that are no cases and show nothing that a case shows",
    )
    count: int = Field(15, ge=1)


class VqaSampling(Model):
    """Options of a card in ``staging.sampling.options``."""

    method: Literal["shuffled", "random_sample"] = Field(
        "shuffled",
        description="random_sample: the rows that random.Random(seed).sample(range(rows), count) of Python's standard "
        "library draws, as the benchmark's published code does; shuffled: the first in the order of SHA-256",
    )
    distinct_images: bool = Field(False, description="no two cases show the same image")
    stratify: str | None = Field(
        None, description="name in staging.options.groups: as many of each value as there are, evenly"
    )
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if self.method == "random_sample" and (self.distinct_images or self.stratify):
            raise ValueError("method: random_sample takes rows as they come; leave out distinct_images and stratify")
        return self


def sampling_options(card: TaskCard) -> VqaSampling:
    """The card's options; raises ConfigError with every problem."""
    return validate(card.staging.sampling.options, VqaSampling, card.id, "staging.sampling.options")


def choose_questions(
    questions: Sequence[SourceQuestion], sampling: Sampling, options: VqaSampling
) -> list[SourceQuestion]:
    """The questions that become cases, in an order that says nothing about places upstream.

    Raises InfrastructureError when there are fewer than ``sampling.count``.
    """
    order = shuffle_sources(questions, sampling.seed)
    pool = _distinct(order) if options.distinct_images else order
    count = len(pool) if sampling.count is None else sampling.count
    if count > len(pool):
        of = f" with images of their own ({len(order)} questions; distinct_images)" if options.distinct_images else ""
        raise InfrastructureError(
            f"The card asks for {count} cases, but the split has {len(pool)}{of}{_left_out(questions)}.\n{TOO_FEW}"
        )
    if options.method == "random_sample":
        rows = random.Random(sampling.seed).sample(range(len(questions)), count)
        names = {questions[row].id for row in rows}
    else:
        names = {question.id for question in _even(pool, options.stratify)[:count]}
    return [question for question in order if question.id in names]


def calibration_questions(
    questions: Iterable[SourceQuestion], cases: Iterable[SourceQuestion], count: int, seed: int
) -> list[SourceQuestion]:
    """Up to ``count`` of the questions that show nothing that a case shows, each something else, in shuffled order."""
    used = {name for case in cases for name in case.shows}
    free = [question for question in questions if used.isdisjoint(question.shows)]
    return _distinct(shuffle_sources(free, seed))[:count]


def balance(cases: Iterable[SourceQuestion], options: VqaSampling) -> dict[str, dict[str, int]]:
    """Group that is sampled evenly → its value → number of cases, in alphabetical order; empty without such a group."""
    if options.stratify is None:
        return {}
    found = Counter(_stratum(case, options.stratify) for case in cases)
    return {options.stratify: dict(sorted(found.items()))}


def _left_out(questions: Sequence[SourceQuestion]) -> str:
    """Reason that there are fewer than upstream, for a message."""
    counts = questions.left_out if isinstance(questions, Questions) else {}
    reasons = ", ".join(f"{reason} {n_rows}" for reason, n_rows in sorted(counts.items()))
    return f" (rows left out: {reasons})" if reasons else ""


def _distinct(questions: Iterable[SourceQuestion]) -> list[SourceQuestion]:
    """The questions that show nothing that an earlier one shows."""
    seen: set[str] = set()
    kept = []
    for question in questions:
        if seen.isdisjoint(question.shows):
            kept.append(question)
            seen |= question.shows
    return kept


def _even(questions: Sequence[SourceQuestion], group: str | None) -> list[SourceQuestion]:
    """The questions with those of each group's value taken in turn; within a value their order stays."""
    if group is None:
        return list(questions)
    strata: dict[str, list[SourceQuestion]] = {}
    for question in questions:
        strata.setdefault(_stratum(question, group), []).append(question)
    turns = [(turn, value, question) for value in strata for turn, question in enumerate(strata[value])]
    return [question for _, _, question in sorted(turns, key=lambda each: each[:2])]


def _stratum(question: SourceQuestion, group: str) -> str:
    return question.groups.get(group, "")
