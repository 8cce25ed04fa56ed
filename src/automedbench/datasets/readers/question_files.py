"""Question answering: tables with a record per question (JSON, JSON Lines, CSV, Parquet), and images.

Options of the card (``staging.options``) say where files and images are and how the keys are called; see ``Options``.

- ``questions`` is a file, a pattern, or a list of them; their rows are read as one table.
- Images are names below a folder (one, a list, objects with ``image_path``), or cells of a Parquet table with the
  encoded picture; ``keys.images`` may be several columns, of which those that are empty do not count. ``<image 2>`` in
  a question or option means the second image of the row as it is staged.
- Options are letter → text, a list of texts, objects with ``letter`` and ``content``, the Python literal of a list, or
  columns of their own. The right one is told by letter, by its text, or by the answer that equals it.
- Rows that cannot be asked are an error, unless ``leave_out`` names the reason: then they are counted.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from string import ascii_uppercase
from typing import Any, Literal

from pydantic import Field

from automedbench.base.cards import RelativePath, TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.pictures import Picture, picture_file, small_jpeg
from automedbench.datasets.forms.problems import missing, unreadable
from automedbench.datasets.forms.sources import Questions, SourceQuestion
from automedbench.datasets.forms.tables import Row, RowPosition, read_tables

MAX_LISTED_KEYS = 12


class Keys(Model):
    """Names of the upstream keys or columns. Of a list of names, the first that a row has counts."""

    id: str | None = Field("id", description="null: the file and the row's number are the id")
    question: str = "question"
    answer: str | None = Field("answer", description="key of the answer's text; null where only a letter is given")
    images: str | list[str] = Field("images", description="a key, or columns with one image each")
    options: str | dict[str, str] | None = Field(
        None, description="key of the answer options of multiple-choice questions, or letter → column"
    )
    label: str | list[str] | None = Field(
        None, description="key of the right letter (or option's text); null: the option that equals the answer"
    )
    origin: str | None = Field(None, description="key that tells which questions show the same image or video")


class Options(Model):
    """Paths below the raw folder, and the meaning of the keys."""

    questions: RelativePath | list[RelativePath] = Field(description="files or patterns, read in this order")
    images: RelativePath | None = Field(
        None, description="folder that the images' names are relative to; null: pictures are cells of the table"
    )
    by_name: bool = Field(False, description="images lie anywhere below the folder, and their names are unique")
    keys: Keys = Keys()
    keep: dict[str, str] = Field(default_factory=dict, description="upstream key → value of the rows that are taken")
    groups: dict[str, str | list[str]] = Field(
        default_factory=dict, description="name of a table → upstream key, kept private"
    )
    lettered: bool = Field(False, description="options begin with their own letter and a colon")
    leave_out: list[Reason] = Field(
        default_factory=list, description="rows with this fault are left out and counted instead of being an error"
    )

    def columns(self) -> list[str]:
        """Every key that is needed; nothing else of a table is read."""
        keys = self.keys
        named = [keys.id, keys.question, keys.answer, *_list(keys.images), *_list(keys.label), keys.origin]
        named += keys.options.values() if isinstance(keys.options, dict) else [keys.options]
        named += [*self.keep, *(key for group in self.groups.values() for key in _list(group))]
        return list(dict.fromkeys(name for name in named if name is not None))


def question_files(raw: Path, card: TaskCard) -> Questions:
    """All kept questions in file order.

    Raises MissingDataError for absent files and InfrastructureError for unreadable ones, for rows that cannot be asked
    and that the card does not leave out, and for an id that occurs twice.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    patterns = _list(options.questions)
    reader = _QuestionReader(raw, options)
    for place, row in read_tables(raw, patterns, options.columns()):
        if all(str(row.get(key)) == value for key, value in options.keep.items()):
            reader.take(place, row)
    if not reader.questions:
        left_out = f" (left out: {dict(reader.left_out)})" if reader.left_out else ""
        raise unreadable(raw / patterns[0], f"contains no question that the card's options let through{left_out}")
    return Questions(reader.questions.values(), reader.left_out)


def _list(value: str | list[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


class _QuestionReader:
    """Rows as questions; raises InfrastructureError naming file and row."""

    def __init__(self, raw: Path, options: Options) -> None:
        self._raw, self._options, self._keys = raw, options, options.keys
        self._by_name = self._index() if options.by_name else None
        self._decodes: dict[str, bool] = {}
        self.questions: dict[str, SourceQuestion] = {}
        self.left_out: Counter[str] = Counter()

    def take(self, place: RowPosition, row: Row) -> None:
        """Add the row's question, or count it among those left out."""
        try:
            question = self._question(place, row)
        except Unfit as error:
            if error.reason not in self._options.leave_out:
                raise place.unreadable(str(error)) from error
            self.left_out[error.reason] += 1
            return
        before = self.questions.setdefault(question.id, question)
        if before is not question:
            raise unreadable(place.path, f"rows {before.row} and {question.row} have the same id '{question.id}'")

    def _question(self, place: RowPosition, row: Row) -> SourceQuestion:
        keys = self._keys
        images, numbers = self._images(place, row)
        options = {letter: renumbered(text, numbers) for letter, text in self._choices(row).items()}
        label = self._label(row, options) if options else None
        return SourceQuestion(
            id=f"{place.name}#{place.number}" if keys.id is None else _text(row, keys.id, "id"),
            row=place.row,
            question=renumbered(_text(row, keys.question, "question"), numbers),
            answer=options[label] if label else _text(row, keys.answer or "", "answer"),
            images=images,
            options=options,
            label=label,
            groups=self._groups(row),
            origin=normalize_text(row.get(keys.origin)) or "" if keys.origin else "",
        )

    def _groups(self, row: Row) -> dict[str, str]:
        found = {name: _first(row, _list(key)) for name, key in self._options.groups.items()}
        return {name: str(value) for name, value in found.items() if value}

    def _choices(self, row: Row) -> dict[str, str]:
        keys = self._keys.options
        if keys is None:
            return {}
        value = row.get(keys) if isinstance(keys, str) else {letter: row.get(key) for letter, key in keys.items()}
        return parse_options(value, lettered=self._options.lettered)

    def _label(self, row: Row, options: Mapping[str, str]) -> str:
        if self._keys.label is not None:
            return right_option(options, _first(row, _list(self._keys.label)))
        return equal_option(options, _text(row, self._keys.answer or "", "answer"))

    def _images(self, place: RowPosition, row: Row) -> tuple[tuple[Picture, ...], dict[int, int]]:
        """The row's pictures, and for each number upstream (1, 2, …) the number among them."""
        keys = self._keys.images
        if isinstance(keys, list):
            cells = {number: row[key] for number, key in enumerate(keys, 1) if row.get(key) is not None}
        else:
            value = row.get(keys)
            known = value if isinstance(value, Picture) or self._options.images is None else None
            names = [known] if known is not None else image_names(value)
            cells = dict(enumerate(names, 1))
        if not cells:
            raise Unfit("image", f"names no image (columns {', '.join(_list(keys))})")
        pictures = tuple(self._picture(place, cell) for cell in cells.values())
        return pictures, {number: new for new, number in enumerate(cells, 1)}

    def _picture(self, place: RowPosition, cell: Any) -> Picture:
        picture = cell if isinstance(cell, Picture) else self._file(place, cell)
        if "broken_image" in self._options.leave_out and not self._is_whole(picture):
            raise Unfit("broken_image", f"has the unreadable image {picture.short}")
        return picture

    def _file(self, place: RowPosition, name: Any) -> Picture:
        if not isinstance(name, str) or self._options.images is None:
            raise Unfit("image", "has an image that is neither a picture nor the name of one")
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise place.unreadable(f"names the image '{name}', which leaves the folder of images")
        path = self._raw / self._options.images / name
        if self._by_name is not None:
            same = self._by_name.get(path.name, [path])
            if len(same) > 1:
                raise place.unreadable(f"names an image that there is twice: {same[0]} and {same[1]}")
            path = same[0]
        if not path.is_file():
            if "image" in self._options.leave_out:
                raise Unfit("image", f"names the absent image '{name}'")
            raise missing(path, f"image of row {place.number} of {place.path.name}")
        return picture_file(path)

    def _is_whole(self, picture: Picture) -> bool:
        """True when the picture can be decoded; each is tried once."""
        if picture.name not in self._decodes:
            try:
                small_jpeg(picture, 50)
                self._decodes[picture.name] = True
            except InfrastructureError:
                self._decodes[picture.name] = False
        return self._decodes[picture.name]

    def _index(self) -> dict[str, list[Path]]:
        """File name → paths of all files below the folder of images."""
        index: dict[str, list[Path]] = {}
        for path in sorted((self._raw / (self._options.images or ".")).rglob("*")):
            if path.is_file():
                index.setdefault(path.name, []).append(path)
        return index


def _first(row: Row, keys: list[str]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _text(row: Row, key: str, what: str) -> str:
    text = normalize_text(row.get(key))
    if text is None:
        found = ", ".join(list(row)[:MAX_LISTED_KEYS])
        raise Unfit("answer" if what == "answer" else None, f"has no {what} (key '{key}'; found {found})")
    return text


Reason = Literal["image", "broken_image", "answer", "options", "label"]
"""Why a row cannot be asked: no image or an unreadable one, no answer, no options, no right one among them."""
MAX_LIST_CHARS = 20_000
_MARKER = re.compile(r"<image (\d{1,3})>")


class Unfit(Exception):
    """A row that cannot be asked; without a ``reason`` no card can leave it out."""

    def __init__(self, reason: Reason | None, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def normalize_text(value: Any) -> str | None:
    """A cell as text without white space around it; None for what is empty or no text or number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        value = str(value)
    return value.strip() or None if isinstance(value, str) else None


def parse_options(value: Any, *, lettered: bool = False) -> dict[str, str]:
    """Answer options by letter, in the order of the letters; empty when the cell is.

    ``value``: letter → text, a list of texts, a list of objects with ``letter`` and ``content``, or the Python literal
    of a list of texts. ``lettered``: texts begin with their own letter and a colon, which is taken away.
    """
    if value is None:
        return {}
    pairs = _pairs(value)
    options = {letter: normalize_text(text) for letter, text in pairs}
    good = {letter: text for letter, text in sorted(options.items(), key=str) if letter in tuple(ascii_uppercase)}
    if len(pairs) < 2 or len(options) < len(pairs) or len(good) < len(pairs) or not all(good.values()):
        raise Unfit("options", "has options that are not at least two texts with a letter each")
    texts = {letter: text or "" for letter, text in good.items()}
    bare = {letter: strip_letter(text, letter) for letter, text in texts.items()} if lettered else texts
    if not all(bare.values()):
        raise Unfit("options", "has an option that is a letter without a text")
    return bare


def strip_letter(text: str, letter: str) -> str:
    """The text without its letter and colon in front, if it has them."""
    return re.sub(rf"^\s*{letter}\s*:", "", text).strip()


def equal_option(options: Mapping[str, str], answer: str) -> str:
    """The letter of the one option that equals the answer but for case and white space around it."""
    forms = {answer.strip().casefold()}
    forms |= {strip_letter(answer, letter).casefold() for letter in options}
    equal = [letter for letter, text in options.items() if text.strip().casefold() in forms]
    if len(equal) != 1:
        raise Unfit("label", f"has an answer that equals {len(equal)} of its options instead of one")
    return equal[0]


def right_option(options: Mapping[str, str], value: Any) -> str:
    """The letter that a cell means: a letter, a list of one, or the text of an option."""
    label = value[0] if isinstance(value, list) and len(value) == 1 else value
    text = normalize_text(label)
    if text in options:
        return str(text)
    if text is None or len(text) == 1:
        raise Unfit("label", f"has the label {value!r}, which is none of its options")
    return equal_option(options, text)


def renumbered(text: str, numbers: Mapping[int, int]) -> str:
    """The text with each ``<image k>`` as the number under which that image is staged (``numbers``)."""

    def new(found: re.Match[str]) -> str:
        number = int(found[1])
        if number not in numbers:
            raise Unfit("image", f"speaks of {found[0]}, which it does not have")
        return f"<image {numbers[number]}>"

    return _MARKER.sub(new, text)


def image_names(value: Any) -> list[str]:
    """Names of images: a name, a list of names, or a list of objects with ``image_path``."""
    items = value if isinstance(value, list) else [value]
    names = [item.get("image_path") if isinstance(item, dict) else item for item in items]
    good = [name for name in names if isinstance(name, str) and name]
    if not good or len(good) < len(names):
        raise Unfit("image", "names no image")
    return good


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """Options in any of the known shapes as pairs of letter and text; empty for another shape."""
    if isinstance(value, str):
        value = _literal(value)
    if isinstance(value, dict):
        # A table gives every row all the letters.
        return [(letter, text) for letter, text in value.items() if text is not None]
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > len(ascii_uppercase):
        return []
    if all(isinstance(item, dict) for item in value):
        return [(item.get("letter"), item.get("content")) for item in value]
    return list(zip(ascii_uppercase, value, strict=False))


def _literal(text: str) -> Any:
    """A list that is written as a text; nothing is evaluated."""
    if not text.lstrip().startswith("[") or len(text) > MAX_LIST_CHARS:
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
