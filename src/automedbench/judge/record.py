"""The record of a run that both judges use: what was written by which code and out of what, what was read back, when.

Facts of files, exit codes and dataflow, never of claims or of what things are called: pilot, full run, checks, method.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from automedbench.base.records import CodeCall, Provenance
from automedbench.reading.code import OUTPUT_FOLDER, CodeFacts, CodePart, Spot, read_calls, third_party
from automedbench.reading.command import SERVES
from automedbench.reading.provenance import INPUT_MARKS, InputShare

if TYPE_CHECKING:
    from automedbench.judge.evidence import RunEvidence
    from automedbench.judge.rubric import Rubric

FEW = 2
"""Cases that a first case may be (definitions of the rubric)."""
PLAN = "plan/plan.md"
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
WEIGHT_LOADS = frozenset(
    "torch.load torch.jit.load load_state_dict from_pretrained load_pretrained_model YOLO load_model load_file "  # noqa: SIM905
    "InferenceSession load_from_checkpoint init_detector initialize_from_trained_model_folder load_weights restore "
    "tf.saved_model.load from_config LLM pipeline Llama hub.load torch.hub.load SavedModel LoadedModel read_model "
    "compile_model".split()
)
IMAGE_READS = frozenset(
    "imread Image.open nib.load nibabel.load np.load numpy.load ReadImage dcmread load_img read_image decode_jpeg "  # noqa: SIM905
    "decode_png decode_image".split()
)
_LOADING_ARGUMENT = re.compile(r"^(?:pretrained|weights|ckpt|checkpoint)=(?!None$|False$)")
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
        """The code picks a single case, or names one or two, and goes through no list of cases."""
        ids = len(self.facts.case_ids)
        return bool(self.facts.one_case or ids) and ids <= FEW and not self.facts.many_cases

    @property
    def whole(self) -> bool:
        """Check whether it wrote the output of all cases, and not for a single case."""
        return ALL_CASES in self.cases and not self.one_case

    @property
    def tries(self) -> bool:
        """Check whether it succeeded, handled one case, and printed a result computed from it."""
        return self.ok and self.one_case and bool(self.facts.told) and bool(self.call.stdout.strip())

    @property
    def installs(self) -> Spot | None:
        """Line where it installs packages or makes an environment."""
        return next((spot for spot in self.facts.commands if _INSTALL.match(spot.name)), None)

    @property
    def opens_inputs(self) -> bool:
        """Its code names the folder of inputs, or reads images."""
        named = (*self.facts.strings, *self.facts.commands)
        marked = any(mark in spot.name for spot in named for mark in INPUT_MARKS)
        return marked or any(spot.is_a(IMAGE_READS) for spot in self.facts.calls)

    @property
    def serves(self) -> bool:
        """Check whether it starts a program that serves or runs a model by name."""
        return any(SERVES.search(spot.name) for spot in self.facts.commands)

    @property
    def environment(self) -> Spot | None:
        """Line where it installs a package, imports an installed one, or runs a program of one."""
        imports = (spot for spot in self.facts.imports if third_party(spot.name))
        return self.installs or next(imports, None) or next(iter(self.facts.programs), None)

    @property
    def complaint(self) -> str:
        """The last line of what it reported."""
        return last_line(self.call.stderr) or last_line(self.call.stdout)

    @property
    def environment_failed(self) -> bool:
        """Check whether it failed at installing or importing."""
        return self.failed and (bool(_ENVIRONMENT_FAILURE.search(self.complaint)) or self.installs is not None)

    @property
    def setup_failed(self) -> bool:
        """Check whether it failed to find, fetch, install or import something."""
        missing = _ACCESS_FAILURE.search(self.complaint) and OUTPUT_FOLDER not in self.complaint
        return self.environment_failed or (self.failed and bool(missing))


def read_trace(calls: list[CodeCall], outputs: Iterable[str] = (), files: Iterable[str] = ()) -> list[Event]:
    """Events in order. ``outputs``: file names that count as a case's output; none given: every file. ``files``: those
    that lie in the workspace at the end."""
    names = frozenset(outputs)
    if not any(output_case(path, names) for call in calls for path in call.new_files):
        names = frozenset()  # of another name: the run's outputs all the same, as far as its way of working goes
    seen: frozenset[str] = frozenset()
    events = []
    for call, facts in zip(calls, read_calls(calls, names, files), strict=True):
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


def find_pilot(events: list[Event]) -> int | None:
    """Index of the first call before the first batch that ended well and wrote outputs, of no more cases than a pilot.

    Tries that failed do not count against it, whether or not they left a file. Where one output holds all cases, a call
    that tries a single case and prints something that it worked out is a pilot too: it need not write a file.
    """
    table = any(event.whole for event in events)
    early = events[: first_batch(events)]
    return next((i for i, event in enumerate(early) if event.ok and (event.cases or (table and event.tries))), None)


def first_batch(events: list[Event]) -> int | None:
    """Index of the first call that created outputs of more cases than a pilot does."""
    limit = _pilot_size(events)
    return next((i for i, event in enumerate(events) if _is_batch(event, limit)), None)


def full_run(events: list[Event], pilot: int, n_cases: int) -> int | None:
    """Index of the first call after the pilot that created outputs of at least two further cases, or of all.

    Of a task with two cases (``n_cases``) only one is left after the pilot.
    """
    limit = 0 if n_cases == 2 else 1
    return next((i for i in range(pilot + 1, len(events)) if _is_batch(events[i], limit)), None)


def _is_batch(event: Event, limit: int) -> bool:
    return event.whole or len(event.new_cases) > limit


def _pilot_size(events: list[Event]) -> int:
    """Largest number of cases that make a pilot: max(2, 10 %) (docs/specification.md, 8.8)."""
    return max(2, sum(len(event.new_cases) for event in events) // 10)


def find_checks(events: Iterable[Event], *, content: bool = False) -> Iterator[tuple[Event, Spot]]:
    """Calls that ended well, read an output back, and compared or showed something of it; comparisons come first.

    ``content``: form alone (shape, type, place, length) is not enough.
    """
    for event in events:
        if not (event.ok and event.facts.output_reads):
            continue
        shown = event.facts.output_shown if event.call.stdout.strip() else []
        further = {(spot.line, spot.turn) for spot in event.facts.content_looked_at}
        yield from ((event, spot) for spot in event.facts.shell_checks)
        for spot in (*event.facts.output_checks, *shown):
            if not content or (spot.line, spot.turn) in further:
                yield event, spot


def spot_words(spot: Spot) -> frozenset[str]:
    """Identifiers in the name of a spot."""
    return frozenset(re.findall(r"\w+", spot.name))


def last_line(text: str) -> str:
    """The last line that is not blank."""
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")


_WEIGHT_FILE = re.compile(r"\.(?:pth?|ckpt|safetensors|onnx|h5|keras|gguf|ts)[\"']")


@dataclass(frozen=True)
class OutputOrigin:
    """Origin of a run's outputs; ``unknown`` has the benefit of the doubt."""

    verdict: Literal["method", "none", "unknown"]
    reason: str
    spot: Spot | None = None

    @property
    def record(self) -> Provenance:
        """Field of the judge's record."""
        turn, line = (self.spot.turn, self.spot.line[:300]) if self.spot else (None, "")
        return Provenance(verdict=self.verdict, reason=self.reason, turn=turn, line=line)


@dataclass(frozen=True)
class OutputCheck:
    """Code that read an output back."""

    index: int
    event: Event
    spot: Spot


class History:
    """The record of one run: events, and what follows from their order."""

    def __init__(self, events: list[Event], n_cases: int, *, content: bool = False) -> None:
        self.events, self.n_cases, self.content = events, n_cases, content

    @cached_property
    def batch(self) -> int | None:
        """Index of the first call that wrote outputs of more cases than a pilot does."""
        return first_batch(self.events)

    @cached_property
    def pilot(self) -> int | None:
        """Index of the first call whose output of the first case the method wrote."""
        return find_pilot(self.events)

    @cached_property
    def full(self) -> int | None:
        """Index of the call that covers the rest."""
        return self.batch if self.pilot is None else full_run(self.events, self.pilot, self.n_cases)

    @cached_property
    def planned_late(self) -> bool:
        """The plan was first written by a call after the full run."""
        first = next((i for i, event in enumerate(self.events) if PLAN in event.call.new_files), None)
        return first is not None and self.full is not None and first > self.full

    @cached_property
    def tested(self) -> tuple[int, Spot] | None:
        """One call that does the first case, checks it, and goes on; where it checks."""
        for index, event in enumerate(self.events):
            spot = _tests_itself(event.facts.steps) if event.ok and self._many(event) else None
            if spot is not None and (not self.content or _is_further(event, spot)):
                return index, spot
        return None

    def _many(self, event: Event) -> bool:
        return event.whole or len(event.new_cases) > 1

    def checks(self, first: int = 0, end: int | None = None, *, form: bool = False) -> Iterator[OutputCheck]:
        """Checks of the calls between two indexes; with ``form`` those too that look at nothing but form."""
        for index, event in enumerate(self.events[first:end], start=first):
            yield from (OutputCheck(index, *found) for found in find_checks([event], content=self.content and not form))

    @cached_property
    def method(self) -> OutputOrigin:
        """Origin of the outputs, by the call that wrote the last output of most cases."""
        last: dict[str, Event] = {}
        for event in self.events:
            if event.call.status not in ("refused",):
                last |= dict.fromkeys(event.cases, event)
        writers = sorted({id(event): event for event in last.values()}.values(), key=lambda one: -_share(one, last))
        found = [self._came_about(event) for event in writers]
        if not found:
            return OutputOrigin("unknown", "no outputs were written")
        return found[0] if found[0].verdict != "unknown" else next((one for one in found if one.spot), found[0])

    def _came_about(self, event: Event) -> OutputOrigin:
        marked = [write for write in event.facts.writes if write.output] or event.facts.writes
        if not marked:
            return OutputOrigin("unknown", "no code that writes the outputs is known")
        best = max(marked, key=lambda write: write.level)
        if best.level == InputShare.NOTHING:
            return OutputOrigin(
                "none", "what was written holds nothing of the input: constants, typed or random values", best.spot
            )
        if best.level == InputShare.COPY:
            return OutputOrigin("none", "what was written is a copy of the input", best.spot)
        before = self.events[: self.events.index(event) + 1]
        if (network := next(iter(event.facts.networks), None)) and not _has_learnt(before):
            return OutputOrigin("none", "a network was built, and no weights were loaded or trained", network)
        if best.level == InputShare.UNSURE:
            return OutputOrigin("unknown", "what was written came out of a package or program", best.spot)
        return OutputOrigin("method", "what was written was worked out of the input", best.spot)


def read_history(evidence: RunEvidence, rubric: Rubric) -> History:
    """The record of a run, which both judges rest on; code is parsed, so it takes a while."""
    words = rubric.vocabulary
    events = read_trace(evidence.calls, words.outputs, evidence.files)
    return History(events, evidence.n_cases, content=words.beyond_form)


def _is_further(event: Event, spot: Spot) -> bool:
    """The check looks at more than form."""
    places = {(each.line, each.turn) for each in (*event.facts.content_looked_at, *event.facts.shell_checks)}
    return (spot.line, spot.turn) in places


def _share(event: Event, last: dict[str, Event]) -> int:
    return sum(other is event for other in last.values()) + (len(event.cases) if event.whole else 0)


def _has_learnt(events: list[Event]) -> bool:
    """Weights were loaded that the run did not make by hand, or something was fitted."""
    return any(event.ok and (event.facts.trained or loads_weights(event)) for event in events)


def loads_weights(event: Event) -> Spot | None:
    """Line where code loads weights: a loading call, or an argument for pretrained ones."""
    calls = (spot for spot in event.facts.calls if spot.is_a(WEIGHT_LOADS))
    arguments = (spot for spot in event.facts.keywords if _LOADING_ARGUMENT.match(spot.name))
    files = (spot for spot in event.facts.calls if "load" in spot.name and _WEIGHT_FILE.search(spot.line))
    return next(calls, None) or next(arguments, None) or next(files, None)


def _tests_itself(steps: list[CodePart]) -> Spot | None:
    """A first case, a check of it, and only then the others."""
    for index, step in enumerate(steps):
        if step.many and step.first and step.writes and step.check is not None:
            return step.check
        if not (step.one and step.writes and not step.many):
            continue
        checked = next((i for i in range(index, len(steps)) if steps[i].check is not None and not steps[i].many), None)
        if checked is not None and any(later.many and later.writes for later in steps[checked + 1 :]):
            return steps[checked].check
    return None
