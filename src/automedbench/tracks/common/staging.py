"""Staging: files of cases with their hashes, tables as text, and what every split record says."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from automedbench.base.cards import TaskCard
from automedbench.base.files import sha256_bytes, sha256_file, write_bytes, write_json
from automedbench.base.records import CaseEntry, FileEntry
from automedbench.base.workers import map_in_order

SPLIT = "split.json"
SourceT = TypeVar("SourceT")


def write_split(private: Path, card: TaskCard, form: str, cases: Mapping[str, Mapping[str, Any]], **facts: Any) -> None:
    """Write ``split.json``: by which rule the cases were chosen, and where upstream each of them is from.

    ``form`` names what the track writes, with a version; ``facts`` hold for the choice as a whole.
    """
    chosen = card.staging.sampling.model_dump(include={"split", "seed", "rule"})
    write_json(private / SPLIT, {"schema": f"automedbench/{form}", **chosen, **facts, "cases": cases})


def stage_cases(
    private: Path,
    card: TaskCard,
    form: str,
    cases: Mapping[str, SourceT],
    stage_case: Callable[[str, SourceT], tuple[CaseEntry, Mapping[str, Any]]],
    **facts: Any,
) -> list[CaseEntry]:
    """Write every case, several at a time, and the split record as ``write_split`` does; entries in case order.

    ``stage_case`` takes a case's id and source and returns its entry and where upstream it is from.
    """
    staged = map_in_order(lambda case: stage_case(case, cases[case]), cases)
    write_split(private, card, form, {entry.id: origin for entry, origin in staged}, **facts)
    return [entry for entry, _ in staged]


def first_fit(
    order: Sequence[SourceT], count: int | None, unfit: Callable[[SourceT], str | None]
) -> tuple[list[SourceT], list[tuple[SourceT, str]]]:
    """The first ``count`` that are fit (None: all), and others before them with what ``unfit`` says of them.

    As many at a time are looked at as are still needed, so that no more are read than one after the other.
    """
    chosen: list[SourceT] = []
    others: list[tuple[SourceT, str]] = []
    rest = iter(order)
    while some := list(itertools.islice(rest, (len(order) if count is None else count) - len(chosen))):
        for source, why in zip(some, map_in_order(unfit, some), strict=True):
            if why is None:
                chosen.append(source)
            else:
                others.append((source, why))
    return chosen, others


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
