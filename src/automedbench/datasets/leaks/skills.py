"""Search of a folder that agents are given beside the data for answers of the cases that they are to solve.

Found are copies of private files, also packed, ids of cases (ours and upstream's) in names and texts, answers of
several words in texts, and the mark that cards and briefs carry. Answers that were changed in form are not found.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes, sha256_file
from automedbench.datasets.leaks import Phrases, StagedTask, join_words, private_files

MOST_BYTES = 256 * 1024 * 1024
"""Of an unpacked file that is searched."""
MOST_NESTED = 3
FEWEST_WORDS = 6
"""Of an answer that is looked for: shorter ones, such as names of classes, any text may hold."""
CANARY = re.compile(r"automedbench [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find_answers(folder: Path, staged: StagedTask) -> Iterator[str]:
    """Places in ``folder`` that give an answer of the task away, in words; nothing for a clean folder.

    Raises InfrastructureError for a packed file that cannot be searched.
    """
    answers = _Answers(staged)
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder).as_posix()
        for name in answers.ids.within(place):
            yield f"the name {place} holds the case id {name}"
        if path.is_file():
            for inner, data in _unpack(place, path.read_bytes()):
                yield from answers.within(inner, data)


@dataclass(frozen=True)
class _Answers:
    """Everything by which an answer of a task is recognised."""

    staged: StagedTask

    @cached_property
    def files(self) -> dict[str, str]:
        """Digest of a private file → case or name that it belongs to."""
        tables = private_files(self.staged.private, self.staged.cases)
        found = {sha256_file(path): name for name, path in tables.items()}
        return found | {entry.sha256: case.id for case in self.staged.cases for entry in case.private.values()}

    @cached_property
    def ids(self) -> Phrases:
        """Ids of the cases, upstream's and ours."""
        return Phrases(map(join_words, [*self.staged.ids, *(case.id for case in self.staged.cases)]))

    @cached_property
    def texts(self) -> dict[str, str]:
        """Words of an answer → its case."""
        found = {}
        for case in self.staged.cases:
            for name in case.private:
                for text in _read_texts(self.staged.private / case.id / name):
                    if (words := join_words(text)).count("_") + 1 >= FEWEST_WORDS:
                        found[words] = case.id
        return found

    def within(self, place: str, data: bytes) -> Iterator[str]:
        """Answers in one file."""
        if owner := self.files.get(sha256_bytes(data)):
            yield f"{place} is a private file of {owner}"
            return
        if b"\0" in data[:8192]:
            return
        text = data.decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), start=1):
            for name in self.ids.within(line):
                yield f"{place}:{number} holds the case id {name}"
            if CANARY.search(line):
                yield f"{place}:{number} holds the mark of the benchmark's own cards and briefs"
        words = f"_{join_words(text)}_"
        yield from (
            f"{place} holds the answer of {case}" for known, case in self.texts.items() if f"_{known}_" in words
        )


def _read_texts(path: Path) -> list[str]:
    """Texts of a private file: a text as it is, values of a JSON; nothing of images and volumes."""
    if path.suffix == ".txt":
        return [path.read_text("utf-8", "replace")]
    return _list_values(json.loads(path.read_bytes())) if path.suffix == ".json" else []


def _list_values(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [text for each in inner for text in _list_values(each)]
    return [value] if isinstance(value, str) else []


def _unpack(place: str, data: bytes, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """A file and, where it is packed, what it holds."""
    yield place, data
    try:
        inner = list(_read_members(place, data)) if depth < MOST_NESTED else []
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError) as error:
        raise InfrastructureError(f"{place} cannot be searched for answers: {error}.\nUnpack it.") from error
    for name, content in inner:
        yield from _unpack(name, content, depth + 1)


def _read_members(place: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Members of an archive, or the content of a compressed file."""
    if data[:2] == b"\x1f\x8b":
        with gzip.open(io.BytesIO(data)) as stream:
            yield place, _read_bounded(stream)
    elif data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                with archive.open(member) as stream:
                    yield f"{place}/{member.filename}", _read_bounded(stream)
    elif data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for entry in tar:
                if (file := tar.extractfile(entry)) is not None:
                    yield f"{place}/{entry.name}", _read_bounded(file)


def _read_bounded(stream: Any) -> bytes:
    data: bytes = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(f"it holds more than {MOST_BYTES:,} bytes")
    return data
