"""Calls that bear on a criterion, and the facts of a run that a panel is told: files, exit codes, the kernel trace.

A call stands for all that it runs: scripts and functions that earlier calls wrote, and that it names, belong to it.
What bears on a criterion is drawn widely, for a quote from any other call must be confirmed or does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from automedbench.base.records import CodeCall, Effect
from automedbench.judge.record import ALL_CASES, Event, History

MAX_FACTS = 40
"""Calls with outputs that are told one by one."""
_SCRIPTS = r"(?:py|sh|bash|R|Rmd|jl|js|ts|pl|m|c|cc|cpp|cu|rs|go|java|ipynb)"
_SCRIPT = re.compile(rf"\.{_SCRIPTS}$")
_WRITTEN = re.compile(rf"(?:>|\btee\s(?:-a\s)?|\b(?:open|Path)\()\s*[\"']?([\w./~+-]+\.{_SCRIPTS})\b")
_NAMES = re.compile(rf"[\w+-]+\.{_SCRIPTS}\b")
_IMPORTS = re.compile(r"(?:\bimport|\bfrom|\s-m)\s+([\w.]+)")
_DEFINED = re.compile(r"^\s*(?:def|class)\s+(\w+)|^(\w+)\s*(?:\(\)\s*\{|<-\s*function)", re.MULTILINE)
_CALLED = re.compile(r"\b(\w+)\(")
_PLANS = re.compile(r"plan\.(?:png|md)")
WEIGHTS = re.compile(
    r"\.(?:safetensors|pth?|pt2|ckpt|onnx|gguf|h5|keras|tflite|bin|msgpack|zip|tar|gz)$|/blobs/", re.IGNORECASE
)
_LOADS = re.compile(
    r"weight|\bmodels?/|checkpoint|ckpt|pretrained|load|restore|download|wget|curl|snapshot|clone", re.IGNORECASE
)
_SETS_UP = re.compile(r"install|venv|conda|docker|\b(?:import|library|require|using|source|module)\b")
_INPUTS = re.compile(r"/data/public|DATA_DIR|\binputs?\b|imread|Image\.open|nib\.load|ReadImage|dcmread|np\.load")
_GPU = re.compile(r"cuda|gpu|nvidia|rocm|device|\bmps\b", re.IGNORECASE)
_OUTPUTS = re.compile(r"agents_outputs")


def find_makers(calls: Sequence[CodeCall]) -> list[tuple[int, ...]]:
    """For each call the earlier calls that wrote what it runs: scripts, modules and functions, and what those run."""
    latest: dict[str, int] = {}
    found: list[tuple[int, ...]] = []
    for index, call in enumerate(calls):
        defined = {name for pair in _DEFINED.findall(call.code) for name in pair if name}
        imported = {f"{part}.py" for module in _IMPORTS.findall(call.code) for part in module.split(".")}
        named = {*_NAMES.findall(call.code), *imported, *_CALLED.findall(call.code)} - defined
        near = sorted({latest[name] for name in named & latest.keys()}, reverse=True)
        found.append(tuple(dict.fromkeys([*near, *(far for maker in near for far in found[maker])])))
        written = [*_WRITTEN.findall(call.code), *filter(_SCRIPT.search, call.new_files)]
        latest |= dict.fromkeys([*defined, *(path.rpartition("/")[2] for path in written)], index)
    return found


class Links:
    """The calls of a run as far as they bear on criteria; indexes are those of ``history.events``."""

    def __init__(self, history: History) -> None:
        self.history, self.events = history, history.events
        calls = [event.call for event in self.events]
        self.makers = find_makers(calls)
        scripts = [[call.code, *(calls[i].code for i in own)] for call, own in zip(calls, self.makers, strict=True)]
        self._code = ["\n".join(texts) for texts in scripts]

    def of(self, criterion: str) -> tuple[int, ...]:
        """Calls that bear on a criterion by themselves, those that it rests on first."""
        return tuple(dict.fromkeys(index for index in self._of(criterion) if index is not None))

    def turns(self, criterion: str) -> frozenset[int]:
        """Turns of the calls that bear on a criterion, and of those that wrote their scripts."""
        found = (each for index in self.of(criterion) for each in (index, *self.makers[index]))
        return frozenset(self.events[index].call.turn for index in found)

    def _of(self, criterion: str) -> Iterator[int | None]:
        if criterion.startswith("s1"):
            yield from self._where(lambda event: any(path.startswith("plan/") for path in event.call.new_files))
            yield from self._naming(_PLANS)
        elif criterion == "s3":
            yield from (self.history.full, self.history.pilot)
            yield from self._between()
            yield self.history.batch
            yield from self._where(lambda event: bool(event.cases))
            yield from self._naming(_OUTPUTS)
        elif criterion == "s2b":
            early = range(len(self.events) if self.history.batch is None else self.history.batch + 1)
            looks = [index for index in self._naming(_INPUTS) if index in early and self.events[index].ok]
            yield from (index for index in looks if self.events[index].call.stdout.strip())
            yield from looks
        elif criterion == "s2e":
            yield from self._naming(_GPU, shown=True)
        else:
            yield from self._where(lambda event: any(map(WEIGHTS.search, event.call.new_files)))
            yield from self._where(lambda event: event.setup_failed)
            yield from self._naming(_LOADS)
            yield from self._naming(_SETS_UP)
            yield self.history.full

    def _between(self) -> Iterator[int]:
        """Calls between first case and full run that name outputs and wrote none, those that ended well first."""
        pilot, full = self.history.pilot, self.history.full
        first, last = -1 if pilot is None else pilot, len(self.events) if full is None else full
        looks = [i for i in self._naming(_OUTPUTS) if first < i < last and not self.events[i].cases]
        yield from sorted(looks, key=lambda i: not self.events[i].ok)

    def _where(self, holds: Callable[[Event], bool]) -> Iterator[int]:
        yield from (index for index, event in enumerate(self.events) if holds(event))

    def _naming(self, pattern: re.Pattern[str], *, shown: bool = False) -> Iterator[int]:
        """Calls whose code, with that of their scripts, or with ``shown`` whose output names something."""
        for index, (event, code) in enumerate(zip(self.events, self._code, strict=True)):
            if pattern.search(code) or (shown and pattern.search(event.call.stdout)):
                yield index


# --- facts --------------------------------------------------------------------------------------------------------


def fact_lines(history: History, effect: Effect) -> tuple[str, ...]:
    """What is known without reading code: who wrote outputs, what failed, weights opened, effect of the case."""
    wrote = [index for index, event in enumerate(history.events) if event.cases]
    marked = {history.pilot, history.full}
    told = [index for place, index in enumerate(wrote) if place < MAX_FACTS or index in marked]
    rest = [history.events[index].call for index in wrote if index not in told]
    opened = [
        event.call
        for event in history.events
        if any(WEIGHTS.search(path) for process in event.call.processes or [] for path in process.reads)
    ]
    failed = [event.call for event in history.events if event.failed]
    traced = any(event.call.processes is not None for event in history.events)
    return (
        *(_wrote(history, index) for index in told),
        *_counted("wrote outputs as well", rest),
        *_counted("failed", failed),
        *(_counted("opened files named like weights", opened) if traced else ["what calls opened was not traced"]),
        effect_line(effect),
    )


def _wrote(history: History, index: int) -> str:
    event = history.events[index]
    where = f"call {index + 1} (turn {event.call.turn})"
    if ALL_CASES in event.cases:
        return f"{where}: wrote the file that holds the outputs of all cases"
    mark = "first case; " if index == history.pilot else "full run; " if index == history.full else ""
    return f"{where}: {mark}wrote outputs of {len(event.cases)} cases, {len(event.new_cases)} of them new"


def _counted(what: str, calls: Sequence[CodeCall]) -> list[str]:
    return [f"{what}: {len(calls)} calls, turns {turn_ranges(call.turn for call in calls)}"] if calls else []


def effect_line(effect: Effect) -> str:
    """The measured effect of the case in words, with figures."""
    if effect.own is None and effect.verdict == "unclear":
        return "effect of the case on the outputs: not measured"
    parts = [
        *_figure("outputs on their own answers", effect.own),
        *_figure("on other cases' answers", effect.other),
        *_figure("difference", effect.value, effect.low, effect.high, effect.p),
        *_figure(
            "gain over the input or its best trivial form",
            effect.gain,
            effect.gain_low,
            effect.gain_high,
            effect.gain_p,
        ),
        *_figure("share of outputs that are alike", effect.alike),
        *_figure("share of outputs that copy the input", effect.copies),
    ]
    verdict = {"shown": "effect shown", "none": "no effect", "unclear": "effect unclear"}[effect.verdict]
    return f"measured: {', '.join(parts)}: {verdict}"


def _figure(
    name: str, value: float | None, low: float | None = None, high: float | None = None, p: float | None = None
) -> list[str]:
    if value is None:
        return []
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return [f"{name} {value:.2f}{interval}", *([] if p is None else ["p < 0.001" if p < 0.001 else f"p = {p:.3f}"])]


def turn_ranges(turns: Iterable[int]) -> str:
    """Turns as ranges, for example ``3, 9–20``."""
    by_gap = groupby(enumerate(sorted(set(turns))), key=lambda pair: pair[1] - pair[0])
    runs = [[turn for _, turn in run] for _, run in by_gap]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
