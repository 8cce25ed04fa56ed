"""The rules judge: simple patterns of files, exit codes, commands and words, and the measured effect of the case.

For tests, demos and runs without keys; frozen. It believes files, executed code and measurements, never claims: printed
constants, comments, failed or refused code, and plan lines that stand in the brief earn nothing. It reads no values and
no branches: outputs that came out of nothing are seen by their measured effect. Its verdicts are labelled and never
mixed with those of a language model; how far they agree with the gold set stands in docs/judge-evaluation.md.
Rules: track-segmentation.md H.5 and track-detection.md H (ours; the public implementation has no such judge).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

from automedbench.base.records import Criterion, Effect, JudgeKind, Tier, Tokens
from automedbench.judge.evidence import PLOT_LINE, RunEvidence, clip, file_line, quote_exists, visible
from automedbench.judge.record import IMAGE_READS, WEIGHTS, Event, read_history
from automedbench.judge.rubric import Rubric
from automedbench.reading.lines import OUTPUT_FOLDER, CodeLine, first, said
from automedbench.reading.text import (
    candidates_in,
    find_word,
    line_at,
    own_text,
    paragraphs,
    pieces,
    sentences,
    words_in,
)


@dataclass(frozen=True)
class RuleVerdict:
    """Verdict of a rule: the share earned, the line that shows it, and the reason."""

    value: float
    reason: str
    quote: str = ""
    turn: int | None = None


class RulesInput:
    """The evidence of one run, prepared once for all rules."""

    def __init__(self, evidence: RunEvidence, rubric: Rubric, effect: Effect) -> None:
        self.evidence, self.rubric, self.vocabulary = evidence, rubric, rubric.vocabulary
        self.history, self.effect = read_history(evidence, rubric), effect
        self.events = self.history.events
        self.set_up = [line for event in self.events if event.ok and (line := event.environment)]
        self.before_batch = [event for event in self.events[: self.history.batch] if event.ok]

    @cached_property
    def without_method(self) -> str:
        """Why the run counts as one without a method: no effect of the case, and what wrote opened no weights."""
        if self.effect.verdict != "none" or any(event.wrote_with_weights for event in self.events):
            return ""
        return f"no effect of the case on the outputs: {self.effect.reason}"

    @cached_property
    def plan(self) -> str:
        """The plan without lines that stand in the brief or address the judge."""
        return own_text(drop_orders(self.evidence.plan or ""), self.evidence.brief)

    def found(self, value: float, reason: str, line: CodeLine) -> RuleVerdict:
        """A verdict that rests on a line of code."""
        return RuleVerdict(value, reason, clip(line.text), line.turn)


def drop_orders(text: str) -> str:
    """``text`` without the lines that hold a passage meant for the judge, or a part of one."""
    from automedbench.reading.injection import mask  # takes a while to load; most who read a trace judge nothing

    if not text.strip():
        return text
    masked = mask(text).split("\n")
    return "\n".join(line for line, shown in zip(text.split("\n"), masked, strict=True) if line == shown)


MIN_PLAN_CHARS = 200
MIN_PLAN_WORDS, MIN_CANDIDATES = 15, 3
CHARS_PER_WORD = 3
"""Of a script whose signs are words, so that 200 characters ask for as much text in each."""
MIN_PROSE, MIN_PROSE_OF_SIGNS = 0.08, 0.03
"""Share of words such as "the", "with", "to": catchwords in a row have none, notes in bullets have more than this."""
MIN_PLOT_BYTES, MIN_UNSEEN_BYTES = 1_000, 5_000
"""Of a picture; a blank canvas of usual size takes less than half of the second, which one by unknown code needs."""

_DRAWING_PROGRAMS = re.compile(r"(?:^|[|;&\[\"']\s*)(?:dot|neato|mmdc|plantuml|d2)\b")
_SAVES = re.compile(r"savefig|\.save\(|imwrite|imsave|\bconvert\b|touch|\b(?:png|ggsave)\(")
_SHAPES = r"<(?:rect|text|path|line|circle|ellipse|polygon)\b|→|⟶|➜|-+>|=>"


def plan_written(view: RulesInput) -> RuleVerdict:
    """A plan of its own of 200 characters and 15 different words (track-vqa.md E.2), in sentences, not catchwords."""
    if view.evidence.plan is None:
        return RuleVerdict(0, "there is no plan/plan.md")
    words = words_in(view.plan)
    size = max(len(" ".join(filter(None, map(visible, view.plan.split())))), CHARS_PER_WORD * len(words))
    if size < MIN_PLAN_CHARS or len(set(words)) < MIN_PLAN_WORDS:
        return RuleVerdict(0, f"{size} characters and {len(set(words))} different words of its own are too few")
    if not _is_prose(view.plan, view.vocabulary.joining):
        return RuleVerdict(0, "catchwords in a row, no sentences")
    return RuleVerdict(1, f"a plan of {size} characters", clip(max(view.plan.split("\n"), key=len)))


def _is_prose(text: str, joining: list[str]) -> bool:
    signs = not text.isascii() and len(text.split()) < len(text) / 20
    words = re.findall(r"[^\W\d_]", text) if signs else words_in(text)
    least = MIN_PROSE if sum(map(len, words)) > 2 * len(words) else MIN_PROSE_OF_SIGNS
    return sum(word in joining for word in words) >= least * len(words)


_SIGNS = {
    "preprocessing": re.compile(
        r"\d\s?(?:mm|px|HU)\b|\d\s?[x×]\s?\d{2}|\[-?[\d.]+ ?[,;…] ?-?[\d.]+\]|\bRGB\b|\bfloat(?:16|32)\b|\bint16\b"
    ),
    "model": re.compile(
        r"(?<![\w/])[\w.-]{3,}/[\w.-]*\d[\w.-]*(?![\w/])|\b[A-Z]\w*[a-z][A-Z]\w+|\b[A-Z][A-Za-z]+-?\d+\w*"
    ),
    "export": re.compile(r"[\w}>*]\.(?:json|csv|nii(?:\.gz)?|npy|png|txt|mha|dcm)\b"),
}
"""What marks a step in any language: sizes and ranges, names of models, names of files."""


def pipeline_described(view: RulesInput) -> RuleVerdict:
    """Check for at least three of preprocessing, model, inference and export, each in a step of its own."""
    words = view.vocabulary
    named = [spelling for spellings in words.candidates.values() for spelling in spellings]
    groups = {
        "preprocessing": words.preprocessing,
        "model": [*words.model, *words.method, *words.not_method, *named],
        "inference": words.inference,
        "export": words.export,
    }
    steps = list(dict.fromkeys(pieces(view.plan)))
    options = {name: [step for step in steps if _is_step(step, name, words)][:3] for name, words in groups.items()}
    for three in combinations(options, 3):  # three steps each are enough to find three different ones
        chosen = next((each for each in product(*(options[name] for name in three)) if len(set(each)) == 3), None)
        if chosen is not None:
            return RuleVerdict(1, f"steps for {', '.join(three)}", max(map(clip, chosen), key=len))
    return RuleVerdict(0, "fewer than 3 of the 4 parts of a pipeline have a step of their own in the plan")


def _is_step(step: str, name: str, words: list[str]) -> bool:
    return find_word(step, words) is not None or (name in _SIGNS and bool(_SIGNS[name].search(step)))


def method_fits(view: RulesInput) -> RuleVerdict:
    """Check that the method chosen in the plan can solve the task: behind a word of decision, in its line, where the
    method is described, or, in a plan that decides nowhere, what it names first."""
    words, plan = view.vocabulary, view.plan
    hits = ((sentence, find_word(sentence, words.choice)) for sentence in sentences(plan))
    decisions = [(sentence, hit.end()) for sentence, hit in hits if hit]  # what was chosen stands behind the word
    lines = [(line_at(plan, plan.find(text)), 0) for text, end in decisions if not re.search(r"\w", text[end:])]
    approaches = [(text, 0) for text in paragraphs(plan) if find_word(text, words.approach)]
    for places in (decisions, lines, approaches, [(plan, 0)] if _is_prose(plan, words.joining) else []):
        if found := _first_hit(places, words.method):
            return RuleVerdict(1, f"chosen method: {found[0]}", clip(found[1]))
        if found := _first_hit(places, words.not_method):
            return RuleVerdict(0, f"the choice is a method for another question: {found[0]}")
    return RuleVerdict(0, "the plan does not name a fitting method as its choice")


def _first_hit(places: list[tuple[str, int]], words: list[str]) -> tuple[str, str] | None:
    hits = ((find_word(text, words, start), text) for text, start in places)
    return next(((hit.group(), line_at(text, hit.start())) for hit, text in hits if hit), None)


def three_candidates(view: RulesInput) -> RuleVerdict:
    """Three different methods or repositories, each with a word for or against it, in the plan or in notes."""
    weighed: dict[str, tuple[int | None, str]] = {}
    notes = ((note.turn, own_text(drop_orders(note.content), view.evidence.brief)) for note in view.evidence.notes)
    for turn, text in ((None, view.plan), *notes):
        for name, line in candidates_in(text, view.vocabulary.candidates):
            weighed.setdefault(name, (turn, line))
    if len(weighed) < MIN_CANDIDATES:
        return RuleVerdict(0, f"{len(weighed)} candidates weighed ({MIN_CANDIDATES} needed)")
    quotable = (each for each in weighed.values() if quote_exists(view.evidence, clip(each[1]), each[0]))
    turn, line = next(quotable, next(iter(weighed.values())))
    return RuleVerdict(1, f"candidates weighed: {', '.join(sorted(weighed)[:6])}", clip(line), turn)


def plot_exists(view: RulesInput) -> RuleVerdict:
    """plan/plan.png opens as a picture (found out by the driver)."""
    if not view.evidence.has_plot:
        return RuleVerdict(0, "plan/plan.png is missing or does not open")
    return RuleVerdict(1, "plan/plan.png opens", PLOT_LINE)


def plot_shows_pipeline(view: RulesInput) -> RuleVerdict:
    """The picture is not tiny, and code that made it draws texts, boxes or arrows, or is a drawing program."""
    size = view.evidence.files.get("plan/plan.png", 0)
    if not view.evidence.has_plot or size < MIN_PLOT_BYTES:
        return RuleVerdict(0, f"plan/plan.png has {size} bytes ({MIN_PLOT_BYTES} needed)")
    unseen = False
    for event in view.events:
        made = event.ok and any("plan.png" in path for path in event.call.new_files)
        if made and (line := _drawn(event, view.vocabulary.drawing)) is not None:
            return view.found(1, "drawn by code; what it shows is not verified", line)
        unseen |= made and event.call.language == "bash" and not _SAVES.search(event.call.code)
    if unseen and size >= MIN_UNSEEN_BYTES:
        return RuleVerdict(1, "drawn by a program that is not known; too large for a blank picture", PLOT_LINE)
    return RuleVerdict(0, "no code that ran draws text, boxes or arrows")


def _drawn(event: Event, words: list[str]) -> CodeLine | None:
    """Two calls that draw, two shapes or arrows in texts, or a program that draws graphs."""
    called = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\(|{_SHAPES}")
    signs = [(line, called.findall(line.code)) for line in event.lines]
    if sum(len(found) for _, found in signs) >= 2:
        return next(line for line, found in signs if found)
    return first(event.lines, _DRAWING_PROGRAMS)


MIN_WEIGHT_BYTES, MAX_SETUP_FAILURES = 1_000_000, 5
_FETCHES = re.compile(
    r"\b(?:wget|curl|gdown|hf|kaggle)[\s'\"]|\bgit\s+(?:-\S+\s+)*(?:clone|lfs)\b|(?:^|[\s_-])(?:download|pull)[\w-]*\s"
    r"|(?:download\w*|from_pretrained|urlretrieve|urlopen|from_url|requests\.get|\.file|hub\.load|from_preset|YOLO"
    r"|get_model|create_model)\(|\b(?:pretrained\s*=\s*True|weights\s*=\s*['\"\w])"
)
_MADE = re.compile(r"\b(?:touch|truncate|dd|fallocate|yes|head)\b|\b(?:save\w*|truncate|urandom|dump|randbytes)\(")
# Reading and arithmetic: importing these fetches nothing.
_PLAIN_IO = frozenset(
    "numpy pandas PIL nibabel matplotlib tqdm SimpleITK h5py pydicom imageio yaml".split()  # noqa: SIM905
)
_PLAIN = _PLAIN_IO | {"scipy", "skimage", "cv2", "sklearn"}
# A path outside of the workspace and of the inputs: where a run is given weights.
_GIVEN = re.compile(r"(?<![\w./-])/(?!workspace|tmp|data/public|usr|etc|dev|bin|proc|sys)[\w.-]+/[\w./-]+")
_INPUT_PROGRAMS = re.compile(
    r"(?:^|[|;&(]\s*)(?:identify|fslhd|fslinfo|mrinfo|nib-ls|exiftool|file|g?dcmdump|c3d)\s+(?!\S*agents_outputs)\S*/"
)
_ASSIGNED = re.compile(r"(?:^|;)\s*(\w+)(?:\s*,\s*\w+)*\s*=(?!=)")
_SHOWS = re.compile(r"(?<![.\w])(?:print\w*|cat|display|show|info|message|cout|puts|disp|say)\b")
_ASKS_GPU = re.compile(
    r"['\"]?cuda|\.cuda\(|\bgpus?\b|CUDAExecutionProvider|TensorrtExecutionProvider|n_gpu_layers=(?!0\b)|-ngl [1-9]"
    r"|device(?:_map|s)?\s*=\s*(?:0\b|['\"](?:auto|gpu))|jax\.devices|list_(?:physical|logical)_devices|\bnvidia-smi\b"
    r"|\b(?:vllm|ollama|llama-server|llama-cli|nnUNetv2_predict|TotalSegmentator)\b",
    re.IGNORECASE,
)
_GPU_PRINTED = re.compile(
    r"cuda(?! available\W+false)|\bgpu[:_ ]\d|GpuDevice|device:GPU|GPU KV cache|model weights take"
    r"|\b[1-9]\d* ?MiB\b.*\n?.*python|python\S*\W+\d+ ?MiB|offloaded \d+/\d+ layers",
    re.IGNORECASE,
)
_GPU_FACTS = re.compile(r"\b(?:is_cuda|(?:max_)?memory_allocated|memory_reserved|mem_get_info|hf_device_map)\b")


def weights_obtained(view: RulesInput) -> RuleVerdict:
    """Weights that a program fetched lie in the workspace, or given ones were loaded; classical methods by track."""
    files, fetched = view.evidence.files, False
    for event in view.events:
        fetched |= event.ok and _may_fetch(event)
        there = [path for path in sorted(event.call.new_files) if _is_weights(path, event, files)]
        if event.ok and fetched and there:
            listed = clip(file_line(there[0], files[there[0]]))
            return RuleVerdict(1, f"fetched by code that ran, there since turn {event.call.turn}", listed)
    for event in view.events:
        if event.ok and (line := given_weights(event)) is not None:
            return view.found(1, "weights that the run was given were loaded", line)
    return _classical(view) or RuleVerdict(0, "no code that ran fetched weights that lie in the workspace")


def _may_fetch(event: Event) -> bool:
    """A download, a package that may bring a model, or the program of one."""
    return bool(first(event.lines, _FETCHES) or event.packages.keys() - _PLAIN or event.model_program)


def _is_weights(path: str, event: Event, files: dict[str, int]) -> bool:
    """A file with the name and size of weights that the same call did not make by hand."""
    if not WEIGHTS.search(path) or files.get(path, 0) < MIN_WEIGHT_BYTES:
        return False
    name = path.rpartition("/")[2]
    return not any(name in line.code and _MADE.search(line.code) for line in event.lines)


def given_weights(event: Event) -> CodeLine | None:
    """Line where code or a program loads provided weights, from a folder outside of the workspace."""
    paths = ((line, path) for line in event.lines for path in _GIVEN.findall(line.code))
    return next((line for line, path in paths if event.loads or WEIGHTS.search(path)), None)


def _classical(view: RulesInput) -> RuleVerdict | None:
    """Where the track allows it: a function of a package that ran where outputs were made, without any weights."""
    if not view.vocabulary.classical:
        return None
    function = re.compile(rf"\b(?:{'|'.join(map(re.escape, view.vocabulary.classical))})\(")
    made = (event for event in view.events if event.ok and event.cases and event.loads is None)
    line = next((line for event in made if (line := first(event.lines, function))), None)
    return view.found(1, "a classical method of an installed package ran", line) if line else None


def input_inspected(view: RulesInput) -> RuleVerdict:
    """Before the full run, code opened an input and showed one of its properties."""
    words = [*map(re.escape, view.vocabulary.input_check), "dim", "range", "summary", "extrema", "eltype", "pixdim"]
    shown = re.compile(rf"\b(?:{'|'.join(words)})\b")
    lines = [line.code for event in view.before_batch for line in event.lines]
    missing = [name for name in view.vocabulary.input_names if not any(name in line for line in lines)]
    for event in view.before_batch:
        line = _printed_property(event, shown) or first(event.lines, _INPUT_PROGRAMS)
        if line is not None and not missing and event.call.stdout.strip():
            return view.found(1, "code shows properties of an input", line)
    return RuleVerdict(
        0, "no code that ran before the full run opened an input with its files and showed its properties"
    )


def _printed_property(event: Event, shown: re.Pattern[str]) -> CodeLine | None:
    """A line that prints a property, or a name bound to one, in a call that opens an image which is no output."""
    lines = [line for line in event.lines if OUTPUT_FOLDER not in line.code]
    opened = first(lines, IMAGE_READS) is not None
    bound = {name for line in lines if shown.search(line.code) for name in _ASSIGNED.findall(line.code)}
    wanted = re.compile("|".join([shown.pattern, *(rf"\b{name}\b" for name in bound)]))
    return next((line for line in lines if opened and _SHOWS.search(line.code) and wanted.search(line.code)), None)


def environment_works(view: RulesInput) -> RuleVerdict:
    """Packages were installed or imported, the last try went well, and the method did not shrink to plain arrays."""
    tries = [event for event in view.events if event.environment and (event.ok or event.failed)]
    if not view.set_up:
        return RuleVerdict(0, "no code that ran installed or imported a package")
    if tries[-1].environment_failed:
        return RuleVerdict(0, "the last set-up failure was never solved")
    if any(event.environment_failed for event in tries) and not any(
        event.ok and (event.installs or event.packages.keys() - _PLAIN_IO) for event in view.events
    ):
        return RuleVerdict(0, "what failed to install was never solved or replaced: only arrays and files were handled")
    return view.found(1, "packages installed or imported without failing", view.set_up[-1])


def few_setup_failures(view: RulesInput) -> RuleVerdict:
    """Check that at most five executions failed at installing or importing, and something was set up."""
    failures = sum(event.environment_failed for event in view.events)
    if not view.set_up:
        return RuleVerdict(0, "nothing was set up")
    if failures > MAX_SETUP_FAILURES:
        return RuleVerdict(0, f"{failures} executions failed in set-up (at most {MAX_SETUP_FAILURES})")
    return view.found(1, f"{failures} executions failed in set-up", view.set_up[0])


def model_on_gpu(view: RulesInput) -> RuleVerdict:
    """Code that ran loaded weights, asked for the GPU, and what it printed beside constant texts shows the GPU.

    A program that serves a model, and the tool that lists a card's processes, may show it in a later call.
    """
    loaded = False
    for event in view.events:
        line = first(event.lines, _ASKS_GPU)
        here = bool(event.loads or event.serves or event.model_program or given_weights(event))
        later = loaded and line is not None and "nvidia-smi" in line.code
        if event.ok and line is not None and (here or later) and _shows_gpu(event):
            return view.found(1, "weights loaded and the device shown", line)
        loaded |= event.ok and here
    return RuleVerdict(0, "no code that ran loaded weights on the GPU and showed the device")


def _shows_gpu(event: Event) -> bool:
    """Without the texts that are printed in any case, what was printed names CUDA, or tells of GPU memory."""
    printed = f"{event.call.stdout}\n{event.call.stderr}"
    for text in sorted(said(event.lines), key=len, reverse=True):
        printed = printed.replace(text, " ")
    fact = any(_GPU_FACTS.search(line.code) and _SHOWS.search(line.code) for line in event.lines)
    return bool(_GPU_PRINTED.search(printed)) or (fact and bool(re.search(r"\bTrue\b|\b[1-9]\d*|: 0\b", printed)))


def validated(view: RulesInput) -> RuleVerdict:
    """1: a first case, its output read back and checked, then the full run; ½: one of the two; else 0."""
    history = view.history
    if history.tested is not None:
        return view.found(1.0, "one call did the first case, checked it and went on", history.tested[1])
    if history.pilot is None or history.full is None:
        if check := next(history.checks(form=True), None):
            return view.found(0.5, "outputs were read back and checked, but no case was run on its own first", check)
        return RuleVerdict(0.0, "neither a case on its own nor a check that reads an output back")
    if check := next(history.checks(history.pilot, history.full), None):
        return view.found(1.0, "one case first, its output read back and checked, then the full run", check)
    if check := next(history.checks(history.pilot, history.full, form=True), None):
        return view.found(0.5, "one case first, but only the form of its output was checked", check)
    pilot = history.events[history.pilot].lines
    line = max(pilot, key=lambda line: (OUTPUT_FOLDER in line.code, len(clip(line.text))))
    return view.found(0.5, "one case first, but its output was not read back and checked", line)


HEURISTIC = "heuristic-5"
"""Raised when a verdict could change: every run is then judged again."""
RULES: dict[str, Callable[[RulesInput], RuleVerdict]] = {
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
NEED_A_PLAN_IN_TIME = frozenset(["s1b", "s1c", "s1d"])
"""What a plan does not earn that was written when all was done."""
NEED_A_METHOD = frozenset(["s1b", "s1c", "s2a", "s2c", "s2d", "s2e", "s3"])
"""Criteria that a run without a method does not earn (definitions of the rubric)."""


class HeuristicJudge:
    """The rules as a judge."""

    id = HEURISTIC
    kind: JudgeKind = "heuristic"
    tokens = Tokens()
    cost_usd: str | None = "0"

    def judge(self, evidence: RunEvidence, rubric: Rubric, tier: Tier, effect: Effect) -> list[Criterion]:
        """One verdict per judged criterion; a criterion without a rule here is not earned.

        ``effect``: of the case on the run's outputs, as it was measured.
        """
        view = RulesInput(evidence, rubric, effect)
        found = [(rule, _quotable(_decide(rule.id, view), evidence)) for rule in rubric.judged(tier)]
        return [
            Criterion(
                id=rule.id, stage=rule.stage, verdict=one.value, quote=one.quote, turn=one.turn, reason=one.reason
            )
            for rule, one in found
        ]


def _decide(name: str, view: RulesInput) -> RuleVerdict:
    if name not in RULES:
        return RuleVerdict(0, f"the heuristic judge has no rule for {name}")
    if name in NEED_A_METHOD and (reason := view.without_method):
        return RuleVerdict(0, reason)
    if name in NEED_A_PLAN_IN_TIME and view.history.planned_late:
        return RuleVerdict(0, "the plan was written after the full run")
    return RULES[name](view)


def _quotable(verdict: RuleVerdict, evidence: RunEvidence) -> RuleVerdict:
    """Nothing is earned on a line that is too short or too odd to be quoted."""
    if verdict.value == 0 or quote_exists(evidence, verdict.quote, verdict.turn):
        return verdict
    return RuleVerdict(0, f"{verdict.reason}, but no line can be quoted for it")
