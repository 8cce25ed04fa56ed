"""The order of events of a run, as far as files and exit codes prove it: pilot, full run, checks, set-up failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from automedbench.base.records import CodeCall
from automedbench.reading.code import OUTPUT_FOLDER, CodeFacts, Spot, read_calls, third_party

ALL_CASES = "*"
"""Stands for the cases of an output that holds all of them, such as ``agents_outputs/predictions.csv``."""
_ENVIRONMENT_FAILURE = re.compile(
    r"ModuleNotFoundError|ImportError|No module named|No matching distribution|Could not find a version"
    r"|Could not install packages|command not found"
)
_ACCESS_FAILURE = re.compile(
    r"FileNotFoundError|No such file or directory|ConnectionError|URLError|HTTPError|Could not resolve host"
    r"|RepositoryNotFoundError|GatedRepoError|No space left on device|CUDA driver"
)
_INSTALL = re.compile(
    r"^(?:\S*/)?(?:(?:python[\d.]* -m )?(?:pip[\d.]*|uv pip|conda|mamba|apt|apt-get) (?:\S+ )*?install\b"
    r"|python[\d.]* -m venv\b|virtualenv\b|uv venv\b|conda create\b)"
)


@dataclass(frozen=True)
class Event:
    """One code call: what its code does, and the cases whose outputs it created or changed."""

    call: CodeCall
    facts: CodeFacts
    cases: frozenset[str]
    new_cases: frozenset[str]

    @property
    def ok(self) -> bool:
        """The code ran to its end without failing, as far as is known: some programs tell no exit codes."""
        return self.call.status == "ok" and self.call.exit_code in (0, None)

    @property
    def failed(self) -> bool:
        """The code was run and failed; refused code was never run."""
        return self.call.status in ("error", "timeout", "killed")

    @property
    def one_case(self) -> bool:
        """The code picks a single case, or names a single one, and goes through no list of cases."""
        ids = len(self.facts.case_ids)
        return bool(self.facts.one_case or ids) and ids <= 1 and not self.facts.many_cases

    @property
    def whole(self) -> bool:
        """It wrote the output that holds all cases, and not for a single case."""
        return ALL_CASES in self.cases and not self.one_case

    def tries(self, words: frozenset[str]) -> bool:
        """It ended well, handled one case, and printed something of it that has one of ``words`` in its name."""
        names = " ".join(spot.name for spot in self.facts.shown).lower()
        shown = bool(self.call.stdout.strip()) and bool(words & set(re.split(r"[\W_]+", names)))
        return self.ok and self.one_case and shown

    @property
    def installs(self) -> Spot | None:
        """Where it installs packages or makes an environment."""
        return next((spot for spot in self.facts.commands if _INSTALL.match(spot.name)), None)

    @property
    def environment(self) -> Spot | None:
        """Where it installs something or imports an installed package."""
        imports = (spot for spot in self.facts.imports if third_party(spot.name))
        return self.installs or next(imports, None)

    @property
    def complaint(self) -> str:
        """The last line of what it reported."""
        return last_line(self.call.stderr) or last_line(self.call.stdout)

    @property
    def environment_failed(self) -> bool:
        """It failed because of installing or importing."""
        return self.failed and (bool(_ENVIRONMENT_FAILURE.search(self.complaint)) or self.installs is not None)

    @property
    def setup_failed(self) -> bool:
        """It failed because something could not be found, fetched, installed or imported."""
        missing = _ACCESS_FAILURE.search(self.complaint) and OUTPUT_FOLDER not in self.complaint
        return self.environment_failed or (self.failed and bool(missing))


def read_trace(calls: list[CodeCall], outputs: Iterable[str] = ()) -> list[Event]:
    """Events in order. ``outputs``: file names that count as a case's output; none given: every file."""
    names = frozenset(outputs)
    seen: frozenset[str] = frozenset()
    events = []
    for call, facts in zip(calls, read_calls(calls, names), strict=True):
        cases = frozenset(case for path in call.new_files if (case := output_case(path, names)))
        events.append(Event(call, facts, cases, cases - seen))
        seen |= cases
    return events


def output_case(path: str, outputs: frozenset[str] = frozenset()) -> str | None:
    """Case of ``agents_outputs/<case>/…/<file>``, ALL_CASES of ``agents_outputs/<file>``; null for any other path."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if OUTPUT_FOLDER not in parts:
        return None
    below = parts[parts.index(OUTPUT_FOLDER) + 1 :]
    if not below or (outputs and below[-1] not in outputs):
        return None
    return below[0] if len(below) > 1 else ALL_CASES


def find_pilot(events: list[Event], words: Iterable[str] = ()) -> int | None:
    """Index of the first call before the first batch that ended well and wrote outputs, of no more cases than a pilot.

    Tries that failed do not count against it, whether or not they left a file. Where one output holds all cases, a call
    that tries a single case and prints something of it with one of ``words`` in its name is a pilot too: it need not
    write a file.
    """
    wanted = frozenset(words) if any(event.whole for event in events) else frozenset()
    early = events[: first_batch(events)]
    return next((i for i, event in enumerate(early) if event.ok and (event.cases or event.tries(wanted))), None)


def first_batch(events: list[Event]) -> int | None:
    """Index of the first call that created outputs of more cases than a pilot does."""
    limit = _pilot_size(events)
    return next((i for i, event in enumerate(events) if _is_batch(event, limit)), None)


def full_run(events: list[Event], pilot: int, n_cases: int | None = None) -> int | None:
    """Index of the first call after the pilot that created outputs of at least two further cases, or of all.

    Of a task with two cases (``n_cases``) only one is left after the pilot.
    """
    limit = 0 if n_cases == 2 else 1
    return next((i for i in range(pilot + 1, len(events)) if _is_batch(events[i], limit)), None)


def _is_batch(event: Event, limit: int) -> bool:
    return event.whole or len(event.new_cases) > limit


def _pilot_size(events: list[Event]) -> int:
    """At most max(2, 10 %) of the cases are a pilot (docs/specification.md, 8.8)."""
    return max(2, sum(len(event.new_cases) for event in events) // 10)


def find_check(events: Iterable[Event], words: Iterable[str] = ()) -> tuple[Event, Spot] | None:
    """The first call that ended well, read an output back and compared what it read.

    With ``words``, what it compared must be one of them, and showing one of them of what was read counts as well.
    """
    return next(find_checks(events, words), None)


def find_checks(events: Iterable[Event], words: Iterable[str] = ()) -> Iterator[tuple[Event, Spot]]:
    """All such calls and lines, comparisons of a call before what it only shows; see ``find_check``."""
    wanted = frozenset(words)
    for event in events:
        if not (event.ok and event.facts.output_reads):
            continue
        shown = event.facts.output_shown if wanted and event.call.stdout.strip() else []
        yield from ((event, spot) for spot in event.facts.shell_checks)
        for spot in (*event.facts.output_checks, *shown):
            if not wanted or wanted & words_of(spot):
                yield event, spot


def words_of(spot: Spot) -> frozenset[str]:
    """Identifiers in the name of a spot."""
    return frozenset(re.findall(r"\w+", spot.name))


def last_line(text: str) -> str:
    """The last line that is not blank."""
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")
