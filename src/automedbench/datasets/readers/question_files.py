"""Question answering: one JSON or JSON Lines file with a record per question, and a folder of images.

Options of the card (``staging.options``) say where the file and the images are and how the keys are called; see
``Options``. Multiple-choice options may be an object (letter → text), a list of texts, or a list of objects with
``letter`` and ``content``; images a name, a list of names, or a list of objects with ``image_path``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path, PurePosixPath
from string import ascii_uppercase
from typing import Any

from pydantic import Field

from automedbench.cards import RelativePath, TaskCard
from automedbench.datasets.pictures import Picture, picture_file
from automedbench.datasets.questions import SourceQuestion
from automedbench.errors import InfrastructureError, MissingDataError
from automedbench.records import Model
from automedbench.yamlfile import validate

MAX_FILE_BYTES = 200_000_000
Row = dict[str, Any]


class Keys(Model):
    """Names of the upstream keys."""

    id: str = "id"
    question: str = "question"
    answer: str | None = Field("answer", description="key of the answer's text; null where only a letter is given")
    images: str = "images"
    options: str | None = Field(None, description="key of the answer options of multiple-choice questions")
    label: str | None = Field(None, description="key of the right letter; null: the option that equals the answer")


class Options(Model):
    """Where things are below the raw folder, and what the keys mean."""

    questions: RelativePath = Field(description="JSON list, or JSON Lines with one object per line")
    images: RelativePath = Field(description="folder that the images' names are relative to")
    keys: Keys = Keys()
    keep: dict[str, str] = Field(default_factory=dict, description="upstream key → value of the rows that are taken")
    groups: dict[str, str] = Field(default_factory=dict, description="name of a table → upstream key, kept private")


def read(raw: Path, card: TaskCard) -> list[SourceQuestion]:
    """All kept questions in file order.

    Raises MissingDataError for absent files and InfrastructureError for unreadable ones, for empty questions or
    answers, for options without a right one, and for an id that occurs twice.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    path = raw / options.questions
    rows = [(number, row) for number, row in enumerate(_rows(path)) if _is_kept(row, options.keep)]
    if not rows:
        raise _unreadable(path, "holds no question that staging.options.keep lets through")
    questions = [_Reader(path, raw / options.images, options, number, row).question() for number, row in rows]
    seen: dict[str, int] = {}
    for question in questions:
        if seen.setdefault(question.id, question.row) != question.row:
            raise _unreadable(path, f"rows {seen[question.id]} and {question.row} have the same id '{question.id}'")
    return questions


def _is_kept(row: Row, keep: dict[str, str]) -> bool:
    return all(str(row.get(key)) == value for key, value in keep.items())


def _rows(path: Path) -> list[Row]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _unreadable(path, f"has more than {MAX_FILE_BYTES} bytes")
        text = path.read_text("utf-8")
        value = json.loads(text) if text.lstrip()[:1] == "[" else list(map(json.loads, filter(str.strip, _lines(text))))
    except FileNotFoundError as error:
        raise MissingDataError(
            f"{path} (list of questions) does not exist.\n"
            "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, f"is not a readable list of questions: {error}") from error
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise _unreadable(path, "is not a list of objects")
    return value


def _lines(text: str) -> list[str]:
    """Lines of JSON Lines; other line separators of Unicode may stand inside strings."""
    return text.split("\n")


class _Reader:
    """One row of the file; raises InfrastructureError naming file and row."""

    def __init__(self, path: Path, images: Path, options: Options, number: int, row: Row) -> None:
        self._path, self._images, self._options, self._number, self._row = path, images, options, number, row
        self._keys = options.keys

    def question(self) -> SourceQuestion:
        """The row as a source record."""
        options = self._choices()
        label = self._label(options) if options else None
        answer = options[label] if label else self._text(self._keys.answer or "", "answer")
        return SourceQuestion(
            id=self._text(self._keys.id, "id"),
            row=self._number,
            question=self._text(self._keys.question, "question"),
            answer=answer,
            images=tuple(map(self._image, self._image_names())),
            options=options,
            label=label,
            groups={name: str(self._row[key]) for name, key in self._options.groups.items() if self._row.get(key)},
        )

    def _fail(self, why: str) -> InfrastructureError:
        return _unreadable(self._path, f"row {self._number} {why}")

    def _text(self, key: str, what: str) -> str:
        value = self._row.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise self._fail(f"has no {what} (key '{key}')")
        return value.strip()

    def _choices(self) -> dict[str, str]:
        value = self._row.get(self._keys.options) if self._keys.options else None
        if value is None:
            return {}
        pairs = _lettered(value)
        good = all(
            letter in tuple(ascii_uppercase) and isinstance(text, str) and text.strip() for letter, text in pairs
        )
        if not good or len(pairs) < 2 or len(dict(pairs)) < len(pairs):
            raise self._fail("has options that are not at least two texts with a letter each")
        return {letter: text.strip() for letter, text in sorted(pairs)}

    def _label(self, options: dict[str, str]) -> str:
        if self._keys.label is not None:
            value = self._row.get(self._keys.label)
            label = value[0] if isinstance(value, list) and len(value) == 1 else value
            if label not in options:
                raise self._fail(f"has the label {label!r}, which is none of its options")
            return str(label)
        answer = self._text(self._keys.answer or "", "answer").casefold()
        equal = [letter for letter, text in options.items() if text.casefold() == answer]
        if len(equal) != 1:
            raise self._fail(f"has an answer that equals {len(equal)} of its options instead of one")
        return equal[0]

    def _image_names(self) -> list[str]:
        value = self._row.get(self._keys.images)
        items = value if isinstance(value, list) else [value]
        names = [item.get("image_path") if isinstance(item, dict) else item for item in items]
        good = [name for name in names if isinstance(name, str) and name]
        if not good or len(good) < len(names):
            raise self._fail(f"names no image (key '{self._keys.images}')")
        return good

    def _image(self, name: str) -> Picture:
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts:
            raise self._fail(f"names the image '{name}', which leaves the folder of images")
        path = self._images / name
        if not path.is_file():
            raise MissingDataError(
                f"{path} (image of row {self._number} of {self._path.name}) does not exist.\n"
                "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
            )
        return picture_file(path)


def _lettered(value: Any) -> list[tuple[Any, Any]]:
    """Options in any of the known shapes as pairs of letter and text; empty for another shape."""
    if isinstance(value, dict):
        return list(value.items())
    if not isinstance(value, list) or len(value) > len(ascii_uppercase):
        return []
    if all(isinstance(item, dict) for item in value):
        return [(item.get("letter"), item.get("content")) for item in value]
    return list(zip(ascii_uppercase, value, strict=False))


def _unreadable(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(f"{path}: {why}.\nDelete the file and fetch the data again (`snakemake prepare`).")
