"""Staging: files of cases with their hashes, tables as text, and what every split record says."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.files import sha256_bytes, sha256_file, to_json, write_bytes, write_json
from automedbench.base.records import CaseEntry, FileEntry, Model
from automedbench.base.workers import map_in_order
from automedbench.datasets.sampling import HasId, too_few

SPLIT = "split.json"
SourceT = TypeVar("SourceT")
NamedT = TypeVar("NamedT", bound=HasId)
Content = bytes | Model | Callable[[Path], object]
"""What becomes a file: its bytes, a record, or a function that writes it at a path."""


@dataclass(frozen=True)
class StagedCase:
    """One case before it is written: file names below its folders with their contents, and what records say of it.

    ``origin``: where upstream it is from.
    """

    given: Mapping[str, Content]
    held_out: Mapping[str, Content]
    origin: Mapping[str, Any]
    geometry: dict[str, Any] = field(default_factory=dict)


def write_split(private: Path, card: TaskCard, form: str, cases: Mapping[str, Mapping[str, Any]], **facts: Any) -> None:
    """Write ``split.json``: by which rule the cases were chosen, and where upstream each of them is from.

    ``form`` names what the track writes, with a version; ``facts`` hold for the choice as a whole.
    """
    chosen = card.staging.sampling.model_dump(include={"split", "seed", "rule"})
    write_json(private / SPLIT, {"schema": f"automedbench/{form}", **chosen, **facts, "cases": cases})


def stage_cases(
    public: Path,
    private: Path,
    card: TaskCard,
    form: str,
    cases: Mapping[str, SourceT],
    stage_case: Callable[[str, SourceT], StagedCase],
    **facts: Any,
) -> list[CaseEntry]:
    """Write every case, several at a time, and the split record as ``write_split`` does; entries in case order.

    ``stage_case`` takes a case's id and source.
    """

    def one(case: str) -> tuple[CaseEntry, Mapping[str, Any]]:
        staged = stage_case(case, cases[case])
        return write_case(public, private, case, staged), staged.origin

    written = map_in_order(one, cases)
    write_split(private, card, form, {entry.id: origin for entry, origin in written}, **facts)
    return [entry for entry, _ in written]


def write_case(public: Path, private: Path, case: str, staged: StagedCase) -> CaseEntry:
    """Write both folders of a case; its entry of the manifest."""
    return CaseEntry(
        id=case,
        inputs=put_all(public / case, staged.given),
        private=put_all(private / case, staged.held_out),
        geometry=staged.geometry,
    )


def choose_fit(
    card: TaskCard, order: Sequence[NamedT], unfit: Callable[[NamedT], str | None]
) -> tuple[list[NamedT], dict[str, str]]:
    """The first that are fit, as many as the card asks for, and others before them by id with what ``unfit`` says.

    Those of which it says an empty text are not listed. As many at a time are looked at as are still needed, so that no
    more are read than one after the other. Raises InfrastructureError when there are too few.
    """
    count = card.staging.sampling.count
    chosen: list[NamedT] = []
    passed_over: dict[str, str] = {}
    rest = iter(order)
    while some := list(itertools.islice(rest, (len(order) if count is None else count) - len(chosen))):
        verdicts = list(zip(some, map_in_order(unfit, some), strict=True))
        chosen += [source for source, why in verdicts if why is None]
        passed_over |= {source.id: why for source, why in verdicts if why}
    if not chosen or len(chosen) < (count or 0):
        example = next((f" (for example {name}: {why})" for name, why in passed_over.items()), "")
        raise too_few(card, f"but only {len(chosen)} of {len(order)} are fit{example}")
    return chosen, passed_over


def put_all(folder: Path, files: Mapping[str, Content]) -> dict[str, FileEntry]:
    """Write files of a case below a folder; hash and size of each."""
    return {name: _put(folder / name, content) for name, content in files.items()}


def _put(path: Path, content: Content) -> FileEntry:
    if isinstance(content, Model):
        content = to_json(content.model_dump(mode="json", by_alias=True)).encode()
    if isinstance(content, bytes):
        return put(path, content)
    content(path)
    return describe_file(path)


def put(path: Path, data: bytes) -> FileEntry:
    """Write a file of a case; its hash and size."""
    write_bytes(path, data)
    return file_entry(data)


def file_entry(data: bytes) -> FileEntry:
    """Hash and size of ``data``."""
    return FileEntry(sha256=sha256_bytes(data), bytes=len(data))


def describe_file(path: Path) -> FileEntry:
    """Hash and size of a file."""
    return FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size)


def csv_bytes(header: list[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """A table as UTF-8 CSV with a line feed after every row."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return table.getvalue().encode()


def normalised(name: str) -> str:
    """A class name as it is compared: without outer white space, in lower case."""
    return name.strip().lower()


def spellings(card: TaskCard, *, sources: bool = False, aliases: bool = True) -> dict[str, str]:
    """Every accepted spelling → class name; ``sources`` adds the upstream names, which agents may not use.

    Raises ConfigError when one spelling means two classes.
    """
    names: dict[str, str] = {}
    for target in card.targets:
        accepted = [target.name, *(target.aliases if aliases else []), *([target.source] if sources else [])]
        name = normalised(target.name)
        for spelling in map(normalised, filter(None, accepted)):
            if names.setdefault(spelling, name) != name:
                raise ConfigError([f"{card.id}: targets: '{spelling}' means both '{names[spelling]}' and '{name}'"])
    return names
