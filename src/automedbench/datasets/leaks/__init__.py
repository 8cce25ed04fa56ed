"""The leak audit: does anything that agents will see give an answer away? Looked at before it becomes visible.

For every staged case: no upstream id, class or answer in the names of public files; nothing in their headers that is
not needed to read them; no public file that is a private one or a table of labels; no order that follows upstream's
names or the classes; no way of compression that belongs to one class; one modification time for all. What is told by
the content itself is the task. Only headers are read, and hashes are those that staging and fetching made anyway.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import read_record, sha256_file
from automedbench.base.records import CaseEntry, Receipt
from automedbench.base.workers import in_order
from automedbench.datasets.leaks.chance import LIMIT, correlation, rank_sums, runs, telling
from automedbench.datasets.leaks.headers import look_at
from automedbench.datasets.leaks.truth import Split, class_of, read_split, upstream_names, upstream_order

__all__ = ["MODIFIED", "audit", "set_times"]

MODIFIED = 1_577_836_800
"""Modification time of every public file: the start of 2020 (UTC). None tells when or in which order it was made."""
DECLARED_ORDERS = frozenset({"sorted", "numeric", "listed"})
"""Values of ``staging.sampling.options.order`` by which a card says that its cases follow upstream's order."""
LABEL_SUFFIXES = frozenset(
    {".csv", ".tsv", ".tab", ".txt", ".json", ".jsonl", ".xml", ".parquet", ".xlsx", ".zip", ".tar", ".gz", ".h5"}
)
_VOLUMES = (".nii.gz", ".nii")
_TEXTS = (".json", ".csv", ".txt")
_WORD = re.compile(r"[a-z0-9]+")
_TOKEN = re.compile(r"[^\s\"'(),;:<>\[\]{}]+")
_SHORTEST_ID = 5
_SHOWN = 3


def audit(
    card: TaskCard, raw: Path, public: Path, private: Path, cases: Sequence[CaseEntry], *, copies: Collection[str] = ()
) -> list[str]:
    """Remarks on a staged task for its log; raises InfrastructureError when it would give answers away.

    ``public`` and ``private`` are the task's own folders, ``raw`` the data set's, whose receipt is read when there is
    one. ``copies`` are private files that repeat an input of their case on purpose.
    """
    staged = _Staged(card, raw, public, private, list(cases), frozenset(copies))
    leaks = [*_names(staged), *_headers(staged), *_equal_files(staged), *_times(staged)]
    remarks: list[str] = []
    _order(staged, leaks, remarks)
    _compression(staged, leaks, remarks)
    if leaks:
        more = f"; and {len(leaks) - _SHOWN} more" if len(leaks) > _SHOWN else ""
        raise InfrastructureError(
            f"{card.id} is not staged, because its public files would give answers away: "
            f"{'; '.join(leaks[:_SHOWN])}{more}.\n"
            "Nothing became visible. Correct the reader or the card's staging; the checks are in "
            "automedbench.datasets.leaks."
        )
    return remarks


def set_times(public: Path) -> None:
    """Give every file and folder below ``public`` and itself the same modification time."""
    for path in [*_everything(public), public]:
        os.utime(path, (MODIFIED, MODIFIED), follow_symlinks=False)


@dataclass(frozen=True)
class _Staged:
    card: TaskCard
    raw: Path
    public: Path
    private: Path
    cases: list[CaseEntry]
    copies: frozenset[str]

    @cached_property
    def split(self) -> Split:
        """Where the cases come from."""
        return read_split(self.private)

    @cached_property
    def ids(self) -> list[str]:
        """Upstream names that belong to one case, are no plain words, and no part of our own names."""
        count = Counter(name.lower() for names in upstream_names(self.split).values() for name in names)
        own = {_words(f"{case.id.rpartition('_')[0]}/{name}") for case in self.cases for name in case.inputs}
        return sorted(
            name
            for name, n_cases in count.items()
            if n_cases == 1
            and len(_words(name)) >= _SHORTEST_ID
            and any(letter.isdigit() for letter in name)
            and not any(f"_{_words(name)}_" in f"_{words}_" for words in own)
        )

    @cached_property
    def files(self) -> dict[str, Path]:
        """Public files by their place below the task's folder."""
        return {
            path.relative_to(self.public).as_posix(): path for path in _everything(self.public) if not path.is_dir()
        }

    @cached_property
    def case_files(self) -> dict[str, tuple[str, str]]:
        """Place of every case's file → case and name."""
        return {f"{case.id}/{name}": (case.id, name) for case in self.cases for name in case.inputs}

    @cached_property
    def headers(self) -> dict[str, tuple[list[str], bytes | None]]:
        """Place → what the file says beside its content, and how it is stored; examples' answers are left out."""
        places = [place for place in self.files if place in self.case_files or not place.endswith(".json")]
        return dict(zip(places, in_order(lambda place: look_at(self.files[place], place), places), strict=True))

    @cached_property
    def classes(self) -> dict[str, str]:
        """Case → its class, of those whose truth is one."""
        found = {case.id: class_of(self.split, self.private, case.id) for case in self.cases}
        return {case: label for case, label in found.items() if label is not None}


# --- names ------------------------------------------------------------------------------------------------------


def _names(staged: _Staged) -> Iterator[str]:
    """Undeclared files, links, and names that hold an upstream id or a class."""
    folders = {case.id for case in staged.cases}
    ids, classes = _Phrases(map(_words, staged.ids)), _class_words(staged.card)
    for place, path in staged.files.items():
        if path.is_symlink() or not path.is_file():
            yield f"{place} is no regular file"
        elif place.split("/")[0] in folders and place not in staged.case_files:
            yield f"{place} is not in the manifest"
        for name in ids.within(place):
            yield f"the name {place} holds the upstream id {name}"
        for name in classes.within(place):
            yield f"the name {place} holds the class {name}"


def _class_words(card: TaskCard) -> _Phrases:
    own = set(_WORD.findall(" ".join([card.staging.case_prefix, *(file.file for file in card.inputs)]).lower()))
    names = {
        _words(text)
        for target in card.targets
        for text in (target.name, target.source or "", *target.aliases)
        if not text.strip().isdigit()
    }
    return _Phrases(name for name in names if len(name) > 1 and not own.issuperset(name.split("_")))


class _Phrases:
    """Names as sequences of words, to be found in a text with anything between its words."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.longest = max((name.count("_") + 1 for name in self.names), default=0)

    def within(self, text: str) -> list[str]:
        """Those that the text holds."""
        words = _WORD.findall(text.lower())
        found = {
            "_".join(words[start : start + length])
            for length in range(1, self.longest + 1)
            for start in range(len(words) - length + 1)
        }
        return sorted(found & self.names)


def _words(text: str) -> str:
    return "_".join(_WORD.findall(text.lower()))


# --- content that can be compared without reading it --------------------------------------------------------------


def _headers(staged: _Staged) -> Iterator[str]:
    """Metadata in files; handed-out examples may hold their own answers."""
    for place, (said, _) in staged.headers.items():
        for found in said:
            yield f"{place} holds {found}"
    ids = frozenset(staged.ids)
    for place in staged.case_files:
        if place.endswith(_TEXTS) and place in staged.files:
            text = staged.files[place].read_text("utf-8", "replace").lower()
            for name in sorted(ids.intersection(word.strip(".") for word in _TOKEN.findall(text))):
                yield f"{place} holds the upstream id {name}"


def _equal_files(staged: _Staged) -> Iterator[str]:
    """Public files whose content is that of a private file, or of a table or archive upstream."""
    shown = {entry.sha256: f"{case.id}/{name}" for case in staged.cases for name, entry in case.inputs.items()}
    for place, path in staged.files.items():
        if place not in staged.case_files and path.is_file():
            shown.setdefault(sha256_file(path), place)
    for case in staged.cases:
        for name, entry in case.private.items():
            if name not in staged.copies and entry.sha256 in shown:
                yield f"{shown[entry.sha256]} is the private file {case.id}/{name}"
    for name, path in private_files(staged.private, staged.cases).items():
        if (digest := sha256_file(path)) in shown:
            yield f"{shown[digest]} is the private file {name}"
    for name, digest in _label_files(staged.raw):
        if digest in shown:
            yield f"{shown[digest]} is {name} of the raw data"


def private_files(private: Path, cases: Sequence[CaseEntry]) -> dict[str, Path]:
    """Files below a task's private folder that belong to no case: tables and the record of the choice."""
    known = {f"{case.id}/{name}" for case in cases for name in case.private}
    found = {path.relative_to(private).as_posix(): path for path in _everything(private) if path.is_file()}
    return {name: path for name, path in found.items() if name not in known}


def _label_files(raw: Path) -> Iterator[tuple[str, str]]:
    """Tables and archives of the raw data with their hashes, by the receipt; nothing without one."""
    try:
        receipt = read_record(raw / "receipt.json", Receipt)
    except MissingDataError:
        return
    for name, entry in receipt.files.items():
        if PurePosixPath(name).suffix.lower() in LABEL_SUFFIXES and not name.lower().endswith(_VOLUMES):
            yield name, entry.sha256


def _times(staged: _Staged) -> Iterator[str]:
    times = {path.lstat().st_mtime_ns for path in staged.files.values()}
    if len(times) > 1:
        yield f"public files have {len(times)} different modification times"


# --- order, size, compression ---------------------------------------------------------------------------------------


def _order(staged: _Staged, leaks: list[str], remarks: list[str]) -> None:
    """The cases' order against upstream's and against the classes."""
    ids = [case.id for case in staged.cases]
    upstream = upstream_order(staged.split, ids)
    value = correlation(range(len(ids)), upstream) if upstream else 0.0
    if abs(value) > LIMIT:
        declared = staged.card.staging.sampling.options.get("order")
        text = f"the cases' order follows that of upstream's names ({value:+.1f} standard deviations of chance)"
        if declared in DECLARED_ORDERS:
            remarks.append(f"{text}, as the card declares (order: {declared})")
        else:
            leaks.append(text)
    known = [case for case in ids if case in staged.classes]
    classes = [staged.classes[case] for case in known]
    found = {f"of class {label}": value for label, value in rank_sums(range(len(known)), classes).items()}
    found["of equal classes in a row"] = runs(classes)
    for what, value in found.items():
        if abs(value) > LIMIT:
            leaks.append(f"the order of the cases {what} is {value:+.1f} standard deviations from chance")


def _compression(staged: _Staged, leaks: list[str], remarks: list[str]) -> None:
    """Formats, how files are stored, and their sizes, against the classes."""
    known = [case for case in staged.cases if case.id in staged.classes]
    formats = {case.id: tuple(sorted({PurePosixPath(name).suffix for name in case.inputs})) for case in known}
    for label in sorted(set(telling(formats, staged.classes).values())):
        leaks.append(f"some files have a format that only class {label} has")
    for name in sorted({name for case in staged.cases for name in case.inputs}):
        having = [case for case in known if name in case.inputs]
        if len({staged.classes[case.id] for case in having}) < 2:
            continue
        forms = {case.id: staged.headers[f"{case.id}/{name}"][1] for case in having}
        for label in sorted(set(telling(forms, staged.classes).values())):
            leaks.append(f"some {name} are stored in a way that only class {label} has")
        sizes = [case.inputs[name].bytes for case in having]
        for label, value in rank_sums(sizes, [staged.classes[case.id] for case in having]).items():
            if abs(value) > LIMIT:
                remarks.append(f"{name} of class {label}: sizes are {value:+.1f} standard deviations from chance")


def _everything(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))
