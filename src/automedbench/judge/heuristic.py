"""The heuristic judge: deterministic rules over plan, code, exit codes and files. For tests, demos and key-less use.

It believes files and executed code, never claims: printed text, comments, failed or refused code, and plan lines that
stand in the brief earn nothing. Its verdicts are labelled and never mixed with those of a language model.
Rules: track-segmentation.md H.5 and track-detection.md H (ours; the public implementation has no such judge).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from automedbench.judge.code import Spot
from automedbench.judge.evidence import PLOT_LINE, Evidence, clip, file_line, quote_exists, visible
from automedbench.judge.rubric import Rubric, Vocabulary
from automedbench.judge.text import find_word, find_words, line_at, own_text, paragraphs, sentences
from automedbench.judge.trace import Event, find_check, find_pilot, first_batch, full_run, read_trace
from automedbench.records import Criterion, JudgeKind, Stage, Tier, Tokens

MIN_PLAN_CHARS = 200
MIN_PLAN_WORDS = 15
MIN_WEIGHT_BYTES = 1_000_000
MIN_PLOT_BYTES = 1_000
MAX_SETUP_FAILURES = 5

WEIGHT_SUFFIXES = (".pth", ".pt", ".ckpt", ".safetensors", ".onnx", ".bin", ".h5", ".keras", ".zip", ".tar", ".tar.gz")
_DOWNLOAD_CALLS = frozenset(
    "hf_hub_download snapshot_download from_pretrained urlretrieve urlopen download_url_to_file "  # noqa: SIM905
    "load_state_dict_from_url dataset_download model_download download requests.get YOLO".split()
)
_DOWNLOAD_COMMANDS = frozenset(["wget", "curl", "gdown", "aria2c", "huggingface-cli", "hf", "git", "kaggle"])
_INPUT_READS = frozenset(
    ["imread", "Image.open", "nib.load", "nibabel.load", "np.load", "ReadImage", "dcmread", "load_img"]
)
_WEIGHT_LOADS = frozenset(
    "torch.load torch.jit.load load_state_dict from_pretrained YOLO load_model InferenceSession "  # noqa: SIM905
    "load_from_checkpoint init_detector".split()
)
_CPU_ONLY = re.compile(r"cuda(?: is)?[ _]available\W+false|\bdevice\W+cpu\b|no cuda|cuda is not available", re.I)
_REPOSITORY = re.compile(r"(?:huggingface\.co|hf\.co|github\.com|gitlab\.com)/([\w.-]+/[\w.-]+)", re.I)


@dataclass(frozen=True)
class Verdict:
    """What a rule found: how much is earned, the line that shows it, and why."""

    value: float
    reason: str
    quote: str = ""
    turn: int | None = None


Judgement = Callable[["View"], Verdict]


HEURISTIC = "heuristic-1"
"""Raised when a verdict could change: every run is then judged again."""


class HeuristicJudge:
    """The rules below as a judge."""

    id = HEURISTIC
    kind: JudgeKind = "heuristic"
    tokens = Tokens()
    cost_usd: str | None = "0"

    def judge(self, evidence: Evidence, rubric: Rubric, tier: Tier) -> list[Criterion]:
        """One verdict per judged criterion; a criterion without a rule here is not earned."""
        view = View(evidence, rubric.vocabulary)
        return [
            _criterion(item.id, item.stage, _quotable(_rule(item.id)(view), evidence)) for item in rubric.judged(tier)
        ]


def _criterion(name: str, stage: Stage, verdict: Verdict) -> Criterion:
    return Criterion(
        id=name, stage=stage, verdict=verdict.value, quote=verdict.quote, turn=verdict.turn, reason=verdict.reason
    )


def _quotable(verdict: Verdict, evidence: Evidence) -> Verdict:
    """Nothing is earned on a line that is too short or too odd to be quoted."""
    if verdict.value == 0 or quote_exists(evidence, verdict.quote, verdict.turn):
        return verdict
    return Verdict(0, f"{verdict.reason}, but no line can be quoted for it")


class View:
    """The evidence of one run, prepared once for all rules."""

    def __init__(self, evidence: Evidence, vocabulary: Vocabulary) -> None:
        self.evidence, self.vocabulary = evidence, vocabulary

    @cached_property
    def events(self) -> list[Event]:
        return read_trace(self.evidence.calls, self.vocabulary.outputs)

    @cached_property
    def plan(self) -> str:
        """The plan without lines that stand in the brief."""
        return own_text(self.evidence.plan or "", self.evidence.brief)

    @cached_property
    def writings(self) -> list[tuple[int | None, str]]:
        """(turn, text) of everything the agent wrote in its own words."""
        notes = [(note.turn, own_text(note.content, self.evidence.brief)) for note in self.evidence.notes]
        return [(None, self.plan), *notes]

    def before_batch(self) -> list[Event]:
        """Calls that ended well before the full run (all of them when there was none)."""
        batch = first_batch(self.events)
        return [event for event in self.events[:batch] if event.ok]

    def found(self, value: float, reason: str, event: Event, spot: Spot) -> Verdict:
        """A verdict that rests on a line of code; falls back to a line of the call that ran it."""
        quote = clip(spot.line)
        if quote_exists(self.evidence, quote, spot.turn):
            return Verdict(value, reason, quote, spot.turn)
        return Verdict(value, reason, _code_line(event.call.code, spot.name), event.call.turn)


def _code_line(code: str, name: str) -> str:
    """The line of ``code`` that shares most words with ``name``, long enough to be a quote."""
    words = set(name.split())
    lines = [clip(line) for line in code.split("\n") if len(visible(clip(line))) >= 4]
    return max(lines, key=lambda line: len(words & set(line.split())), default=clip(code))


# --- S1 ---------------------------------------------------------------------------------------------------------


def plan_written(view: View) -> Verdict:
    """A plan of at least 200 visible characters and 15 different words of its own."""
    if view.evidence.plan is None:
        return Verdict(0, "there is no plan/plan.md")
    size, words = len(visible(view.plan)), len(set(re.findall(r"[^\W\d_]{2,}", view.plan.casefold())))
    if size < MIN_PLAN_CHARS or words < MIN_PLAN_WORDS:
        return Verdict(
            0,
            f"{size} characters and {words} different words of its own ({MIN_PLAN_CHARS} and {MIN_PLAN_WORDS} needed)",
        )
    line = next(
        line for line in view.plan.split("\n") if len(visible(line)) >= 10 or visible(view.plan) == visible(line)
    )
    return Verdict(1, f"a plan of {size} characters", clip(line))


def pipeline_described(view: View) -> Verdict:
    """At least three of preprocessing, model, inference and export, each in a step of its own."""
    vocabulary = view.vocabulary
    groups = {
        "preprocessing": vocabulary.preprocessing,
        "model": vocabulary.model,
        "inference": vocabulary.inference,
        "export": vocabulary.export,
    }
    matched = _match_steps(list(dict.fromkeys(sentences(view.plan))), list(groups.values()))
    if len(matched) < 3:
        return Verdict(0, f"{len(matched)} of the 4 parts of a pipeline have a step in the plan (3 needed)")
    named = [name for number, name in enumerate(groups) if number in matched]
    return Verdict(1, f"steps for {', '.join(named)}", clip(next(iter(matched.values()))))


def _match_steps(steps: list[str], groups: list[list[str]]) -> dict[int, str]:
    """Largest assignment of different steps to groups (augmenting paths); group number → step."""
    options = [[i for i, step in enumerate(steps) if find_word(step, words)] for words in groups]
    taken: dict[int, int] = {}
    for group in range(len(groups)):
        _assign(group, options, taken, set())
    return {group: steps[step] for step, group in sorted(taken.items(), key=lambda item: item[1])}


def _assign(group: int, options: list[list[int]], taken: dict[int, int], tried: set[int]) -> bool:
    for step in options[group]:
        if step in tried:
            continue
        tried.add(step)
        if step not in taken or _assign(taken[step], options, taken, tried):
            taken[step] = group
            return True
    return False


def method_fits(view: View) -> Verdict:
    """What the plan settles on can solve the task: after a word of decision, else where the method is described."""
    words = view.vocabulary
    for places in (_decisions(view), _approaches(view)):
        if found := _first_hit(places, words.method):
            hit, line = found
            return Verdict(1, f"chosen method: {hit.group()}", clip(line))
        if found := _first_hit(places, words.not_method):
            return Verdict(0, f"the choice is a method for another question: {found[0].group()}")
    return Verdict(0, "the plan does not name a fitting method as its choice")


def _decisions(view: View) -> list[tuple[str, int]]:
    """Sentences with a word of decision, and where it ends: what was chosen stands behind it."""
    hits = ((sentence, find_word(sentence, view.vocabulary.choice)) for sentence in sentences(view.plan))
    return [(sentence, hit.end()) for sentence, hit in hits if hit]


def _approaches(view: View) -> list[tuple[str, int]]:
    """Paragraphs about the method."""
    return [(text, 0) for text in paragraphs(view.plan) if find_word(text, view.vocabulary.approach)]


def _first_hit(places: list[tuple[str, int]], words: list[str]) -> tuple[re.Match[str], str] | None:
    hits = ((find_word(text, words, start), text) for text, start in places)
    return next(((hit, line_at(text, hit.start())) for hit, text in hits if hit), None)


def three_candidates(view: View) -> Verdict:
    """Three different methods or repositories in the plan or in what the agent wrote beside its code."""
    found: dict[str, tuple[int | None, str]] = {}
    for turn, text in view.writings:
        for name, hit in _candidates(text, view.vocabulary):
            found.setdefault(name, (turn, line_at(text, hit.start())))
    if len(found) < 3:
        return Verdict(0, f"{len(found)} candidates named: {', '.join(sorted(found)) or 'none'} (3 needed)")
    turn, line = next(iter(found.values()))
    return Verdict(1, f"candidates named: {', '.join(sorted(found)[:6])}", clip(line), turn)


def _candidates(text: str, vocabulary: Vocabulary) -> Iterator[tuple[str, re.Match[str]]]:
    """Methods and repositories that are named at all: one that was looked at and rejected counts too."""
    for name, spellings in vocabulary.candidates.items():
        if hit := next(find_words(text, spellings), None):
            yield name, hit
    yield from ((hit.group(1).casefold().rstrip("."), hit) for hit in _REPOSITORY.finditer(text))


def plot_exists(view: View) -> Verdict:
    """plan/plan.png opens as a picture (found out by the driver)."""
    if not view.evidence.has_plot:
        return Verdict(0, "plan/plan.png is missing or does not open")
    return Verdict(1, "plan/plan.png opens", PLOT_LINE)


def plot_shows_pipeline(view: View) -> Verdict:
    """The picture is not tiny, and code up to its making draws texts, boxes or arrows at least twice."""
    size = view.evidence.files.get("plan/plan.png", 0)
    if not view.evidence.has_plot or size < MIN_PLOT_BYTES:
        return Verdict(0, f"plan/plan.png has {size} bytes ({MIN_PLOT_BYTES} needed)")
    drawn = [(event, spot) for event in view.events if event.ok for spot in _drawing(event, view.vocabulary.drawing)]
    if len(drawn) < 2:
        return Verdict(0, "no code that ran draws text, boxes or arrows")
    return view.found(1, "drawn by code; what it shows is not verified", *drawn[0])


def _drawing(event: Event, words: list[str]) -> list[Spot]:
    """Drawing calls of a call that saves a picture or writes the plan's."""
    saves = any("plan.png" in path for path in event.call.new_files)
    return [spot for spot in event.facts.calls if saves and spot.is_a(frozenset(words))]


# --- S2 ---------------------------------------------------------------------------------------------------------


def weights_obtained(view: View) -> Verdict:
    """A download in code that ran, and a weight file of at least 1 MB that appeared then or later."""
    start = next((i for i, event in enumerate(view.events) if event.ok and _downloads(event)), None)
    if start is None:
        return Verdict(0, "no code that ran fetched weights")
    appeared = {path for event in view.events[start:] for path in event.call.new_files}
    for path, size in sorted(view.evidence.files.items()):
        if path.lower().endswith(WEIGHT_SUFFIXES) and size >= MIN_WEIGHT_BYTES and path in appeared:
            return Verdict(1, f"fetched in turn {view.events[start].call.turn}", clip(file_line(path, size)))
    return Verdict(0, "no weight file of 1 MB or more lies in the workspace")


def _downloads(event: Event) -> bool:
    commands = any(spot.name.partition(" ")[0] in _DOWNLOAD_COMMANDS for spot in event.facts.commands)
    return commands or any(spot.is_a(_DOWNLOAD_CALLS) for spot in event.facts.calls)


def input_inspected(view: View) -> Verdict:
    """Before the full run, code opened an input, used one of its properties and printed something."""
    properties = frozenset(view.vocabulary.input_check)
    for event in view.before_batch():
        spot = next((spot for spot in event.facts.attributes if spot.name in properties), None)
        if spot and event.call.stdout.strip() and any(call.is_a(_INPUT_READS) for call in event.facts.calls):
            return view.found(1, f"code shows {spot.name} of an input", event, spot)
    return Verdict(0, "no code that ran before the full run opened an input and showed its properties")


def environment_works(view: View) -> Verdict:
    """The last installing or importing call ended well."""
    outcomes = [(event, spot) for event in view.events if (spot := event.environment) and (event.ok or event.failed)]
    good = [(event, spot) for event, spot in outcomes if event.ok]
    if not good:
        return Verdict(0, "no code that ran installed or imported a package")
    if outcomes[-1][0].environment_failed:
        return Verdict(0, "the last set-up failure was never solved")
    return view.found(1, "packages installed or imported without failing", *good[-1])


def few_setup_failures(view: View) -> Verdict:
    """At most five executions failed because of installing or importing, and something was set up."""
    good = [(event, spot) for event in view.events if event.ok and (spot := event.environment)]
    failures = sum(event.environment_failed for event in view.events)
    if not good:
        return Verdict(0, "nothing was set up")
    if failures > MAX_SETUP_FAILURES:
        return Verdict(0, f"{failures} executions failed in set-up (at most {MAX_SETUP_FAILURES})")
    return view.found(1, f"{failures} executions failed in set-up", *good[0])


def model_on_gpu(view: View) -> Verdict:
    """Code that ran loaded weights and named CUDA, and its output shows CUDA and no fall-back to the CPU."""
    for event in view.events:
        spot = next(iter(_cuda(event)), None)
        loads = any(call.is_a(_WEIGHT_LOADS) for call in event.facts.calls)
        shown = "cuda" in event.call.stdout.casefold() and not _CPU_ONLY.search(event.call.stdout)
        if event.ok and spot and loads and shown:
            return view.found(1, "weights loaded and the device shown", event, spot)
    return Verdict(0, "no code that ran loaded weights on the GPU and showed the device")


def _cuda(event: Event) -> Iterator[Spot]:
    yield from (spot for spot in event.facts.strings if spot.name.startswith("cuda"))
    yield from (spot for spot in event.facts.calls if spot.name.endswith(".cuda"))


# --- S3 ---------------------------------------------------------------------------------------------------------


def validated(view: View) -> Verdict:
    """1: one case, its output read back and checked, then at least two further cases; ½: one of the two; else 0."""
    words = view.vocabulary.validation
    start = find_pilot(view.events, words)
    end = full_run(view.events, start, view.evidence.n_cases) if start is not None else None
    if start is None or end is None:
        return _check_only(view, words)
    if check := find_check(view.events[start:end], words):
        return view.found(1.0, "one case first, its output read back and checked, then the full run", *check)
    pilot = view.events[start]
    quote = _code_line(pilot.call.code, " ".join(sorted(pilot.cases)))
    return Verdict(0.5, "one case first, but its output was not read back and checked", quote, pilot.call.turn)


def _check_only(view: View, words: list[str]) -> Verdict:
    if check := find_check(view.events, words):
        return view.found(0.5, "outputs were read back and checked, but no case was run on its own first", *check)
    return Verdict(0.0, "neither a case on its own nor a check that reads an output back")


RULES: dict[str, Judgement] = {
    "s1a": plan_written,
    "s1b": pipeline_described,
    "s1c": method_fits,
    "s1d": three_candidates,
    "s1e": plot_exists,
    "s1f": plot_shows_pipeline,
    "s2a": weights_obtained,
    "s2b": input_inspected,
    "s2c": environment_works,
    "s2d": few_setup_failures,
    "s2e": model_on_gpu,
    "s3": validated,
}


def _rule(name: str) -> Judgement:
    return RULES.get(name, lambda _view: Verdict(0, f"the heuristic judge has no rule for {name}"))
