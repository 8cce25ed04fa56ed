"""The leak audit: does anything that agents will see give an answer away? Looked at before it becomes visible.

For every staged case: no upstream id, class or answer in the names of public files; nothing in their headers that is
not needed to read them; no public file that is a private one or a table of labels; no order that follows upstream's
names or the classes; no way of compression that belongs to one class; one modification time for all. What is told by
the content itself is the task. Only headers are read, and hashes are those that staging and fetching made anyway.

Could an order, a size or a way of compression have come about by chance? Exact or normal, never random: each test
gives a value in standard deviations of what chance alone gives, with the normal approximation of

* the rank sum of a class among all cases (Wilcoxon 1945; Mann and Whitney 1947),
* the number of runs of equal classes (Wald and Wolfowitz 1940; more than two classes: Mood 1940),
* the rank correlation of two orders (Spearman 1904),

ties between equal values given their mean rank. Beyond ``LIMIT`` it is no chance: for one test the normal distribution
gives 6 of 100 000. Below ``ENOUGH`` cases nothing is said, because no order of so few could be told from chance.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import MODIFIED, parse_json_object, read_record, sha256_file
from automedbench.base.records import CaseEntry, Receipt
from automedbench.base.workers import map_in_order
from automedbench.datasets.leaks.headers import inspect_headers

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
_MAX_LISTED = 3


def audit(
    card: TaskCard, raw: Path, public: Path, private: Path, cases: Sequence[CaseEntry], *, copies: Collection[str] = ()
) -> list[str]:
    """Remarks on a staged task for its log; raises InfrastructureError when it would give answers away.

    ``public`` and ``private`` are the task's own folders, ``raw`` the data set's, whose receipt is read when there is
    one. ``copies`` are private files that repeat an input of their case on purpose.
    """
    staged = StagedTask(card, raw, public, private, list(cases), frozenset(copies))
    leaks = [*_names(staged), *_headers(staged), *_equal_files(staged), *_times(staged)]
    remarks: list[str] = []
    chosen = remarks if card.staging.case_prefix is None else leaks  # a release's order and files are not our choice
    _order(staged, chosen, remarks)
    _compression(staged, chosen, remarks)
    if leaks:
        more = f"; and {len(leaks) - _MAX_LISTED} more" if len(leaks) > _MAX_LISTED else ""
        raise InfrastructureError(
            f"{card.id} is not staged, because its public files would give answers away: "
            f"{'; '.join(leaks[:_MAX_LISTED])}{more}.\n"
            "Nothing became visible. Correct the reader or the card's staging; the checks are in "
            "automedbench.datasets.leaks."
        )
    return remarks


def set_times(public: Path) -> None:
    """Give every file and folder below ``public`` and itself the same modification time."""
    for path in [*_everything(public), public]:
        os.utime(path, (MODIFIED, MODIFIED), follow_symlinks=False)


@dataclass(frozen=True)
class StagedTask:
    """A staged task: its own folders of public and private files, ``raw`` that of its data set."""

    card: TaskCard
    raw: Path
    public: Path
    private: Path
    cases: list[CaseEntry]
    copies: frozenset[str] = frozenset()

    @cached_property
    def split(self) -> Split:
        """Split that the cases come from."""
        return read_split(self.private)

    @cached_property
    def ids(self) -> list[str]:
        """Upstream names that belong to one case, are no plain words, and no part of our own names.

        None of a release, whose cases keep the names that it gave them.
        """
        if self.card.staging.case_prefix is None:
            return []
        count = Counter(name.lower() for names in upstream_names(self.split).values() for name in names)
        own = {join_words(f"{case.id.rpartition('_')[0]}/{name}") for case in self.cases for name in case.inputs}
        return sorted(
            name
            for name, n_cases in count.items()
            if n_cases == 1
            and len(join_words(name)) >= _SHORTEST_ID
            and any(letter.isdigit() for letter in name)
            and not any(f"_{join_words(name)}_" in f"_{words}_" for words in own)
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
        return dict(
            zip(places, map_in_order(lambda place: inspect_headers(self.files[place], place), places), strict=True)
        )

    @cached_property
    def classes(self) -> dict[str, str]:
        """Case → its class, of those whose truth is one."""
        found = {case.id: case_class(self.split, self.private, case.id) for case in self.cases}
        return {case: label for case, label in found.items() if label is not None}


# --- names ------------------------------------------------------------------------------------------------------


def _names(staged: StagedTask) -> Iterator[str]:
    """Undeclared files, links, and names that hold an upstream id or a class."""
    folders = {case.id for case in staged.cases}
    ids, classes = Phrases(map(join_words, staged.ids)), _class_words(staged.card)
    for place, path in staged.files.items():
        if path.is_symlink() or not path.is_file():
            yield f"{place} is not a regular file"
        elif place.split("/")[0] in folders and place not in staged.case_files:
            yield f"{place} is not in the manifest"
        for name in ids.within(place):
            yield f"the name {place} holds the upstream id {name}"
        for name in classes.within(place):
            yield f"the name {place} holds the class {name}"


def _class_words(card: TaskCard) -> Phrases:
    own = set(_WORD.findall(" ".join([card.staging.case_prefix or "", *(file.file for file in card.inputs)]).lower()))
    names = {
        join_words(text)
        for target in card.targets
        for text in (target.name, target.source or "", *target.aliases)
        if not text.strip().isdigit()
    }
    return Phrases(name for name in names if len(name) > 1 and not own.issuperset(name.split("_")))


class Phrases:
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


def join_words(text: str) -> str:
    """Words of a text in lower case, joined by underscores."""
    return "_".join(_WORD.findall(text.lower()))


# --- content that can be compared without reading it --------------------------------------------------------------


def _headers(staged: StagedTask) -> Iterator[str]:
    """Metadata in files; handed-out examples may hold their own answers."""
    for place, (findings, _) in staged.headers.items():
        for found in findings:
            yield f"{place} holds {found}"
    ids = frozenset(staged.ids)
    for place in staged.case_files:
        if place.endswith(_TEXTS) and place in staged.files:
            text = staged.files[place].read_text("utf-8", "replace").lower()
            for name in sorted(ids.intersection(word.strip(".") for word in _TOKEN.findall(text))):
                yield f"{place} holds the upstream id {name}"


def _equal_files(staged: StagedTask) -> Iterator[str]:
    """Public files whose content is that of a private file, or of a table or archive upstream."""
    listed = {entry.sha256: f"{case.id}/{name}" for case in staged.cases for name, entry in case.inputs.items()}
    for place, path in staged.files.items():
        if place not in staged.case_files and path.is_file():
            listed.setdefault(sha256_file(path), place)
    for case in staged.cases:
        for name, entry in case.private.items():
            if name not in staged.copies and entry.sha256 in listed:
                yield f"{listed[entry.sha256]} is the private file {case.id}/{name}"
    for name, path in private_files(staged.private, staged.cases).items():
        if (digest := sha256_file(path)) in listed:
            yield f"{listed[digest]} is the private file {name}"
    for name, digest in _label_files(staged.raw):
        if digest in listed:
            yield f"{listed[digest]} is {name} of the raw data"


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


def _times(staged: StagedTask) -> Iterator[str]:
    times = {path.lstat().st_mtime_ns for path in staged.files.values()}
    if len(times) > 1:
        yield f"public files have {len(times)} different modification times"


# --- order, size, compression ---------------------------------------------------------------------------------------


def _order(staged: StagedTask, leaks: list[str], remarks: list[str]) -> None:
    """The cases' order against upstream's and against the classes."""
    ids = [case.id for case in staged.cases]
    upstream = upstream_order(staged.split, ids)
    value = correlation(range(len(ids)), upstream) if upstream else 0.0
    if abs(value) > LIMIT:
        own_ids = staged.card.staging.case_prefix is None
        declared = "listed" if own_ids else staged.card.staging.sampling.options.get("order")
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


def _compression(staged: StagedTask, leaks: list[str], remarks: list[str]) -> None:
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


ENOUGH = 20
LIMIT = 4.0
MOST_LIKELY = 1e-4
"""Probability below which a way of compression that only one class has is no chance."""


def rank_sums(values: Sequence[float], classes: Sequence[str]) -> dict[str, float]:
    """Class → how far its values' ranks are from those of all, in standard deviations; positive: larger values."""
    n_all = len(values)
    if n_all < ENOUGH:
        return {}
    ranks = _ranks(values)
    spread = sum((rank - (n_all + 1) / 2) ** 2 for rank in ranks) / (n_all - 1)
    sums: dict[str, float] = defaultdict(float)
    for rank, label in zip(ranks, classes, strict=True):
        sums[label] += rank
    found = {}
    for label, n_class in Counter(classes).items():
        deviation = math.sqrt(spread * n_class * (n_all - n_class) / n_all)
        if deviation > 0:
            found[label] = (sums[label] - n_class * (n_all + 1) / 2) / deviation
    return found


def runs(classes: Sequence[str]) -> float:
    """Deviation of the number of runs of equal classes from chance; negative: blocks, positive: alternation."""
    n_all, counts = len(classes), Counter(classes).values()
    squares, cubes = sum(count**2 for count in counts), sum(count**3 for count in counts)
    variance = squares * (squares + n_all * (n_all + 1)) - 2 * n_all * cubes - n_all**3
    if n_all < ENOUGH or variance <= 0:
        return 0.0
    found = 1 + sum(first != second for first, second in itertools.pairwise(classes))
    expected = (n_all * (n_all + 1) - squares) / n_all
    return (found - expected) / math.sqrt(variance / (n_all**2 * (n_all - 1)))


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation of two orders of the same cases, in standard deviations of chance."""
    n_all = len(first)
    if n_all < ENOUGH:
        return 0.0
    middle = (n_all + 1) / 2
    pairs = [(one - middle, two - middle) for one, two in zip(_ranks(first), _ranks(second), strict=True)]
    spread = math.sqrt(sum(one**2 for one, _ in pairs) * sum(two**2 for _, two in pairs))
    return sum(one * two for one, two in pairs) / spread * math.sqrt(n_all - 1) if spread else 0.0


def telling(forms: Mapping[str, Hashable], classes: Mapping[str, str]) -> dict[Hashable, str]:
    """Form → the one class that has it, where chance would hardly give a form to one class alone.

    ``forms`` and ``classes`` say of each case how its file is compressed and what its class is. The probability that
    k cases drawn from all n are all of a class with m cases is C(m, k) / C(n, k).
    """
    sizes = Counter(classes[case] for case in forms)
    owners: dict[Hashable, list[str]] = defaultdict(list)
    for case, form in forms.items():
        owners[form].append(classes[case])
    found = {}
    for form, labels in owners.items():
        if len(set(labels)) == 1 and len(labels) < len(forms):
            n_form = len(labels)
            if math.comb(sizes[labels[0]], n_form) < MOST_LIKELY * math.comb(len(forms), n_form):
                found[form] = labels[0]
    return found


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    from scipy.stats import rankdata

    return [float(rank) for rank in rankdata(values)]


SPLIT = "split.json"
_HASH = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"(\d+)")
# Names of a case's place upstream, the first of which orders the cases; and what is no name of anything.
_SOURCES = ("row", "source", "image_id", "subject", "study", "source_id")
_NO_NAMES = frozenset({"label"})


Split = dict[str, dict[str, Any]]
"""Case → where it comes from."""


def read_split(private: Path) -> Split:
    """The record of the choice below a task's private folder; empty when its track writes none."""
    split: Split = _json_object(private / SPLIT).get("cases", {})
    return split


def upstream_names(split: Split) -> dict[str, set[str]]:
    """Case → names by which upstream knows it and its files, with and without folder and suffix."""
    found = {}
    for case, entry in split.items():
        names = set()
        for text in _texts(entry):
            path = PurePosixPath(text)
            names |= {text, path.name, path.name.split(".")[0], *path.parts}
        found[case] = names
    return found


def upstream_order(split: Split, cases: Sequence[str]) -> list[int]:
    """Place of each case among the cases in upstream's order: by row, else by name, numbers as numbers."""
    key = next((name for name in _SOURCES if all(name in split.get(case, {}) for case in cases)), None)
    if key is None:
        return []
    ordered = sorted(range(len(cases)), key=lambda place: _natural(str(split[cases[place]][key])))
    return sorted(ordered, key=ordered.__getitem__)


def case_class(split: Split, private: Path, case: str) -> str | None:
    """The case's answer where it is one of few: its class, its letter, yes or no, the classes it shows; else None."""
    label = split.get(case, {}).get("label")
    if isinstance(label, str):
        return label
    for name in ("answer.json", "boxes.json"):
        truth = _json_object(private / case / name)
        if isinstance(truth.get("answer_label"), str):
            return str(truth["answer_label"])
        if truth.get("kind") == "yes_no":
            return str(truth.get("answer_text", "")).strip().lower()
        if isinstance(truth.get("boxes"), list):
            return " + ".join(sorted({str(box.get("class")) for box in truth["boxes"]})) or "none"
    return None


def _texts(value: Any, key: str = "") -> list[str]:
    """Strings and names of hashed files in an entry; hashes, numbers and the label are none."""
    if isinstance(value, dict):
        hashed = [name for name, inner in value.items() if isinstance(inner, str) and _HASH.fullmatch(inner)]
        named = [name for name in hashed if "sha256" not in name]
        return named + [text for name, inner in value.items() for text in _texts(inner, name)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner, key)]
    return [value] if isinstance(value, str) and key not in _NO_NAMES and not _HASH.fullmatch(value) else []


def _natural(text: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _NUMBER.split(text)]


def _json_object(path: Path) -> dict[str, Any]:
    """A private file of the task; empty where there is none."""
    return (parse_json_object(path.read_bytes()) or {}) if path.is_file() else {}
