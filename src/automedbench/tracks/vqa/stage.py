"""VQA's staging: questions that agents see without anything that tells the answer, and the private gold."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, to_json
from automedbench.base.records import CaseEntry, Model
from automedbench.base.workers import map_in_order
from automedbench.datasets import get_reader
from automedbench.datasets.forms.pictures import Picture, rgb_jpeg, small_jpeg
from automedbench.datasets.forms.sources import Questions, SourceQuestion
from automedbench.datasets.sampling import assign_case_ids, draw_cases, shuffle_sources
from automedbench.metrics.answers import is_number, is_yes_no, normalise
from automedbench.tracks.common.staging import StagedCase, put_all, stage_cases
from automedbench.tracks.vqa import sampling

QUESTION, TRUTH = "question.json", "answer.json"
CALIBRATION = "calibration"
Kind = Literal["choice", "yes_no", "number", "open"]
JPEG_QUALITY = 92

_AUXILIARY = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must)\b", re.IGNORECASE
)


class QuestionTruth(Model):
    """``private/<case>/answer.json``."""

    question: str
    answer_text: str
    answer_label: str | None
    kind: Kind = Field(description="how it is scored: by letter, by first word, by number, by text")
    groups: dict[str, str] = Field(description="table → the question's row in it")


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Choose cases, write each one's question, images and gold, the private table, and the calibration set if any.

    Raises InfrastructureError for a gold answer of which nothing is left to compare, and for unreadable images.
    """
    _encoded.cache_clear()  # it knows pictures by name
    options = sampling.sampling_options(card)
    questions = get_reader(card.staging.reader)(raw, card)
    chosen = draw_cases(
        card,
        questions,
        lambda of, rest: sampling.choose_questions(rest, of.staging.sampling, options),
        lambda found: found,
        lambda question: question.groups.get(options.stratify or ""),
    )
    cases, released = assign_case_ids(card, chosen), card.staging.case_prefix is None
    entries = stage_cases(
        public,
        private,
        card,
        "vqa-split/1",
        # In the order of the rows: a table is decompressed in pieces, and rows side by side share one.
        dict(sorted(cases.items(), key=lambda item: item[1].row)),
        lambda case, question: _staged(case, question, released),
        counts=dict(Counter(map(_kind, chosen))),
        balanced=sampling.balance(chosen, options),
        left_out=dict(questions.left_out) if isinstance(questions, Questions) else {},
    )
    if options.calibration is not None:
        _stage_calibration(_calibration(card, raw, options.calibration, questions, chosen), public / CALIBRATION)
    by_id = {entry.id: entry for entry in entries}
    return [by_id[case] for case in cases]


def read_truth(path: Path, case: CaseEntry) -> QuestionTruth:
    """The gold of one case; raises InfrastructureError when it is absent or does not fit the manifest."""
    truth = read_record(path, QuestionTruth)
    options = case.geometry["options"]
    if truth.answer_label not in (options or [None]) or (truth.kind == "choice") != bool(options):
        raise InfrastructureError(f"{path}: does not fit the options in the manifest; stage the task again.")
    return truth


def question_form(question: str, options: Iterable[str]) -> str:
    """Form of a question, from what the agent sees alone: by its options or its first word, never by the answer."""
    if options:
        return "multiple_choice"
    return "closed" if _AUXILIARY.match(question.strip()) else "open"


def _kind(question: SourceQuestion) -> Kind:
    if question.options:
        return "choice"
    if is_yes_no(question.answer):
        return "yes_no"
    return "number" if is_number(question.answer) else "open"


def _staged(case: str, question: SourceQuestion, released: bool) -> StagedCase:
    if not normalise(question.answer):
        raise InfrastructureError(
            f"Row {question.row} (id {question.id}): of the gold answer {question.answer[:40]!r} nothing is left to "
            "compare.\nIt cannot be scored; leave the row out (staging.options.keep) or correct the data."
        )
    record = _question_record(case, question)
    truth = QuestionTruth(
        question=question.question,
        answer_text=question.answer,
        answer_label=question.label,
        kind=_kind(question),
        groups={"question_form": record["question_type"], **question.groups},
    )
    geometry = {name: record[name] for name in ("answer_mode", "question_type")}
    origin = {
        "source_id": question.id,
        "row": question.row,
        "images": {picture.short: _encoded(picture, released)[0] for picture in question.images},
    }
    files = _question_files(record, question.images, released)
    return StagedCase(files, {TRUTH: truth}, origin, {**geometry, "options": dict(question.options)})


def _question_record(case: str, question: SourceQuestion) -> dict[str, Any]:
    """``question.json``: nothing of the answer, and no upstream name that would find it."""
    form = question_form(question.question, question.options)
    record: dict[str, Any] = {
        "question_id": case,
        "question": question.question,
        "question_type": form,
        "answer_mode": "multiple_choice" if question.options else "open_ended",
        "image_paths": [f"image_{number}.jpg" for number in range(1, len(question.images) + 1)],
    }
    if question.options:
        record |= {"options": dict(question.options), "valid_labels": list(question.options)}
    return record


def _question_files(record: dict[str, Any], images: Iterable[Picture], released: bool = False) -> dict[str, bytes]:
    pictures = zip(record["image_paths"], (_encoded(image, released)[1] for image in images), strict=True)
    return {QUESTION: to_json(record).encode(), **dict(pictures)}


@functools.lru_cache(maxsize=256)
def _encoded(picture: Picture, released: bool) -> tuple[str, bytes]:
    """Digest upstream and the JPEG that agents get, read once; many questions ask about the same picture.

    Of a release the pixels stay as they are.
    """
    upstream = picture.held()
    return upstream.sha256, rgb_jpeg(upstream) if released else small_jpeg(upstream, JPEG_QUALITY)


def _calibration(
    card: TaskCard,
    raw: Path,
    wanted: sampling.Calibration,
    questions: Sequence[SourceQuestion],
    cases: Sequence[SourceQuestion],
) -> list[SourceQuestion]:
    """Questions to hand out with their answers; raises InfrastructureError when one of them is a case."""
    seed = card.staging.sampling.seed
    if wanted.options is None:
        return sampling.calibration_questions(questions, cases, wanted.count, seed)
    staging = card.staging.model_copy(update={"options": card.staging.options | wanted.options})
    others = get_reader(staging.reader)(raw, card.model_copy(update={"staging": staging}))
    both = {question.id for question in questions} & {question.id for question in others}
    if both:
        raise InfrastructureError(
            f"{card.id}: question '{min(both)}' is among the evaluated ones and in the calibration file.\n"
            "Name another file in staging.sampling.options.calibration: its answers are handed out."
        )
    return shuffle_sources(others, seed)[: wanted.count]


def _stage_calibration(questions: Iterable[SourceQuestion], folder: Path) -> None:
    """``<folder>/<id>/`` with question, images and ``answer.json`` of each question."""

    def one(numbered: tuple[int, SourceQuestion]) -> None:
        number, question = numbered
        name = f"{CALIBRATION}_{number:04d}"
        gold = {"question_id": name, "answer_text": question.answer, "answer_label": question.label}
        files = _question_files(_question_record(name, question), question.images)
        put_all(folder / name, {**files, TRUTH: to_json(gold).encode()})

    map_in_order(one, enumerate(questions, 1))
