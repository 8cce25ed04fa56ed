"""The heuristic judge: deterministic rules over plan, code, exit codes and files. For tests, demos and key-less use.

It believes files and executed code, never claims: printed text, comments, failed or refused code, code that may fail
unseen, and plan lines that stand in the brief earn nothing. Its verdicts are labelled and never mixed with those of a
language model; how far they agree with the gold set stands in docs/judge-evaluation.md.
Rules: track-segmentation.md H.5 and track-detection.md H (ours; the public implementation has no such judge).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from automedbench.base.records import Criterion, JudgeKind, Stage, Tier, Tokens
from automedbench.judge.evidence import PLOT_LINE, RunEvidence, clip, file_line, quote_exists, visible
from automedbench.judge.record import (
    IMAGE_READS,
    Event,
    History,
    loads_weights,
    read_history,
    spot_words,
)
from automedbench.judge.rubric import Rubric
from automedbench.reading.candidates import Candidate, candidates_in
from automedbench.reading.code import OUTPUT_FOLDER, Spot, third_party
from automedbench.reading.command import DOWNLOAD_COMMANDS, UNIX
from automedbench.reading.text import find_word, line_at, own_text, paragraphs, pieces, sentences, words_in


@dataclass(frozen=True)
class RuleVerdict:
    """Verdict of a rule: the share earned, the line that shows it, and the reason."""

    value: float
    reason: str
    quote: str = ""
    turn: int | None = None


class RulesInput:
    """The evidence of one run, prepared once for all rules."""

    def __init__(self, evidence: RunEvidence, rubric: Rubric, history: History | None = None) -> None:
        self.evidence, self.rubric, self.vocabulary = evidence, rubric, rubric.vocabulary
        self.history = read_history(evidence, rubric) if history is None else history

    @property
    def events(self) -> list[Event]:
        return self.history.events

    @cached_property
    def plan(self) -> str:
        """The plan without lines that stand in the brief or address the judge."""
        return own_text(drop_orders(self.evidence.plan or ""), self.evidence.brief)

    @cached_property
    def recited(self) -> float:
        """Share of the plan's runs of five words that stand in the brief, the criteria or their definitions."""
        criteria = [rule.earned_when for rule in self.rubric.criteria]
        levels = [level.text for rule in self.rubric.criteria for level in rule.levels]
        definitions = [text for texts in self.rubric.definitions.values() for text in texts]
        printed_fact = set().union(*map(_runs_of_five, (self.evidence.brief, *criteria, *levels, *definitions)))
        own = _runs_of_five(self.plan)
        return len(own & printed_fact) / len(own) if own else 0.0

    @cached_property
    def writings(self) -> list[tuple[int | None, str]]:
        """(turn, text) of everything the agent wrote in its own words."""
        notes = [(note.turn, own_text(drop_orders(note.content), self.evidence.brief)) for note in self.evidence.notes]
        return [(None, self.plan), *notes]

    @cached_property
    def before_batch(self) -> list[Event]:
        """Calls that ended well before the full run (all of them when there was none)."""
        return [event for event in self.events[: self.history.batch] if event.ok]

    def found(self, value: float, reason: str, event: Event, spot: Spot) -> RuleVerdict:
        """A verdict that rests on a line of code; falls back to a line of the call that ran it."""
        quote = clip(spot.line)
        if quote_exists(self.evidence, quote, spot.turn):
            return RuleVerdict(value, reason, quote, spot.turn)
        return RuleVerdict(value, reason, code_line(event.call.code, spot.name), event.call.turn)


def _runs_of_five(text: str) -> set[tuple[str, ...]]:
    words = words_in(text)
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


Judgement = Callable[[RulesInput], RuleVerdict]
"""A rule: one criterion judged from the evidence."""


def code_line(code: str, name: str) -> str:
    """The line of ``code`` that shares most words with ``name``, long enough to be a quote."""
    words = set(name.split())
    lines = [clip(line) for line in code.split("\n") if len(visible(clip(line))) >= 4]
    return max(lines, key=lambda line: len(words & set(line.split())), default=clip(code))


def drop_orders(text: str) -> str:
    """``text`` without the lines that hold a passage meant for the judge, or a part of one."""
    from automedbench.reading.injection import mask  # takes a while to load; most who read a trace judge nothing

    if not text.strip():
        return text
    masked = mask(text).split("\n")
    return "\n".join(line for line, shown in zip(text.split("\n"), masked, strict=True) if line == shown)


MIN_WEIGHT_BYTES = 1_000_000
WEIGHT_SUFFIXES = (
    *(".pth", ".pt", ".ckpt", ".safetensors", ".onnx", ".bin", ".h5", ".keras", ".zip", ".tar", ".tar.gz", ".tgz"),
    *(
        ".ts",
        ".engine",
        ".model",
        ".pkl",
        ".npz",
        ".gguf",
        ".pb",
        ".tflite",
        ".params",
        ".pdparams",
        ".msgpack",
        ".caffemodel",
    ),
)
_HUB_BLOB = re.compile(r"(?:^|/)models--[^/]+/(?:blobs|snapshots)/")
DOWNLOAD_CALLS = frozenset(
    "hf_hub_download snapshot_download from_pretrained urlretrieve urlopen download_url_to_file "  # noqa: SIM905
    "load_state_dict_from_url dataset_download model_download download requests.get YOLO".split()
)
_MADE_COMMANDS = frozenset(["touch", "truncate", "dd", "fallocate", "head", "yes"])
_MADE_CALLS = frozenset(["save", "save_file", "save_model", "savez", "truncate", "urandom", "dump", "randbytes"])
# Reading and arithmetic: importing these fetches nothing.
_PLAIN = frozenset(
    "numpy scipy pandas PIL nibabel skimage cv2 matplotlib sklearn tqdm SimpleITK h5py pydicom imageio yaml".split()  # noqa: SIM905
)
_GIVEN = re.compile(r"(?<![\w./-])/(?!workspace|tmp|data/public|usr|etc|dev|bin|proc|sys)[\w.-]+/[\w./-]+")
"""A path outside of the workspace and of the inputs: where a run is given weights."""


def fetched_weights(event: Event, earlier: list[Event], files: dict[str, int]) -> str | None:
    """A weight file that this call, or one before it, fetched and that lies in the workspace at the end."""
    if not any(map(fetches, [*earlier, event])):
        return None
    return next((path for path in sorted(event.call.new_files) if _is_weights(path, event, files)), None)


def _is_weights(path: str, event: Event, files: dict[str, int]) -> bool:
    known = path.lower().endswith(WEIGHT_SUFFIXES) or bool(_HUB_BLOB.search(path))
    return known and files.get(path, 0) >= MIN_WEIGHT_BYTES and not _made_by_hand(path, event)


def fetches(event: Event) -> bool:
    """Code that ran can have fetched weights: a download, a model that brings its weights, a package's own program."""
    if not event.ok:
        return False
    facts = event.facts
    brings = any(third_party(spot.name) and spot.name.partition(".")[0] not in _PLAIN for spot in facts.imports)
    return brings or any(map(_downloads, facts.commands)) or any(spot.is_a(DOWNLOAD_CALLS) for spot in facts.calls)


def _downloads(spot: Spot) -> bool:
    """A command that downloads, or the program of an installed package; scripts and interpreters are read as code."""
    words = spot.name.split(" ")
    program = words[0].rpartition("/")[2]
    if program.startswith("python") and "-m" in words[:-1] and third_party(words[words.index("-m") + 1]):
        return "download" in words or "pull" in words
    script = program.startswith("python") or program.endswith((".py", ".sh")) or "=" in program
    return program in DOWNLOAD_COMMANDS or not (program in UNIX or script or not program)


def _made_by_hand(path: str, event: Event) -> bool:
    """The same call names the file and makes files of any content and size."""
    name = path.rpartition("/")[2]
    commands = [spot.name for spot in event.facts.commands if name in spot.name]
    if any(command.partition(" ")[0] in _MADE_COMMANDS for command in commands):
        return True
    named = any(name in spot.name for spot in event.facts.strings)
    return named and any(spot.is_a(_MADE_CALLS) for spot in event.facts.calls)


def given_weights(event: Event) -> Spot | None:
    """Line where code or a program loads provided weights, from a folder outside of the workspace."""
    if not event.ok:
        return None
    loaded = loads_weights(event)
    if loaded is not None:
        paths = (spot for spot in event.facts.strings if _GIVEN.fullmatch(spot.name))
        if (given := next(paths, None)) is not None:
            return given
    named = (spot for spot in event.facts.commands for path in _GIVEN.findall(spot.name) if _names_weights(path))
    return next(named, None)


def _names_weights(path: str) -> bool:
    return path.lower().endswith(WEIGHT_SUFFIXES) or "/model" in path or "/weights" in path


MIN_PLAN_CHARS = 200
MIN_PLAN_WORDS = 15
MIN_PROSE_OF_SIGNS = 0.03
"""The same where most words are single signs."""
CHARS_PER_WORD = 3
"""Of a script whose signs are words, so that 200 characters ask for as much text in each."""
MIN_PROSE = 0.08
"""Share of words such as "the", "with", "to": catchwords in a row have none, notes in bullets have more than this."""
MIN_PLOT_BYTES = 1_000
MAX_RECITED = 0.2
"""Share of a plan's runs of five words that may stand in the brief or the criteria."""
MIN_UNSEEN_BYTES = 5_000
"""A blank canvas of usual size takes less than half of it."""
MIN_CANDIDATES = 3

_JOINING = frozenset(
    "a an the and or of to in on at by for with from as is are be was were will would can cannot then than that this "  # noqa: SIM905
    "it its i we my our not no but because so if which what when where how only into out over has have until since "
    "while there here "
    "der die das den dem ein eine und oder mit von zu im am auf für aus ist sind wird werden wenn weil nicht als auch "
    "le la les un une des du et ou à au aux dans en par pour sur avec est sont sera qui que ne pas ce cette "
    "el los las uno y o de del al con por para sobre es son será que se no lo su "
    "il lo gli e di da per che è sono non del della os em com não uma "
    "的 了 和 是 在 用 对 将 把 后 与 再 の を に は で と が 을 를 이 의 에".split()
)
"""Words that hold sentences together, in the languages that plans are written in."""
_DRAWING_PROGRAMS = frozenset(["dot", "neato", "mmdc", "plantuml", "d2"])
_ARROWS = re.compile(r"→|⟶|➜|-+>|=>")
_SHAPES = re.compile(r"<(?:rect|text|path|line|circle|ellipse|polygon)\b")
_MAX_DRAWN_TEXT = 300


def plan_written(view: RulesInput) -> RuleVerdict:
    """A plan of its own of 200 characters and 15 different words (track-vqa.md E.2), in sentences, not catchwords."""
    if view.evidence.plan is None:
        return RuleVerdict(0, "there is no plan/plan.md")
    words = words_in(view.plan)
    size = max(len(_without_comments(view.plan)), CHARS_PER_WORD * len(words))
    different = len(set(words))
    if size < MIN_PLAN_CHARS or different < MIN_PLAN_WORDS:
        needed = f"({MIN_PLAN_CHARS} and {MIN_PLAN_WORDS} needed)"
        return RuleVerdict(0, f"{size} characters and {different} different words of its own {needed}")
    if view.recited > MAX_RECITED:
        return RuleVerdict(0, f"{view.recited:.0%} of the plan are words of the brief or of the criteria")
    if not _is_prose(view.plan):
        return RuleVerdict(0, "catchwords in a row, no sentences")
    lines = [line for line in view.plan.split("\n") if visible(line)]
    line = next((line for line in lines if len(visible(line)) >= 10), lines[0])
    return RuleVerdict(1, f"a plan of {size} characters", clip(line))


def _is_prose(text: str) -> bool:
    words = (
        re.findall(r"[^\W\d_]", text) if not text.isascii() and len(text.split()) < len(text) / 20 else words_in(text)
    )
    least = MIN_PROSE if sum(map(len, words)) > 2 * len(words) else MIN_PROSE_OF_SIGNS
    return sum(word in _JOINING for word in words) >= least * len(words)


def _without_comments(text: str) -> str:
    """The visible words of a text with one blank between them."""
    return " ".join(part for part in map(visible, text.split()) if part)


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


# --- the pipeline -------------------------------------------------------------------------------------------------


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
    matched = _match_steps(list(dict.fromkeys(pieces(view.plan))), groups)
    if len(matched) < 3:
        return RuleVerdict(0, f"{len(matched)} of the 4 parts of a pipeline have a step in the plan (3 needed)")
    found = [name for number, name in enumerate(groups) if number in matched]
    return RuleVerdict(1, f"steps for {', '.join(found)}", max(map(clip, matched.values()), key=len))


def _match_steps(steps: list[str], groups: dict[str, list[str]]) -> dict[int, str]:
    """Largest assignment of different steps to groups (augmenting paths); group number → step."""
    options = [
        [i for i, step in enumerate(steps) if find_word(step, words) or (name in _SIGNS and _SIGNS[name].search(step))]
        for name, words in groups.items()
    ]
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


# --- the method ---------------------------------------------------------------------------------------------------


def method_fits(view: RulesInput) -> RuleVerdict:
    """Check that the method chosen in the plan can solve the task: behind a word of decision, in its line, where the
    method is described, or, in a plan that decides nowhere, what it names first."""
    words = view.vocabulary
    decisions = _decisions(view)
    whole = [(view.plan, 0)] if _is_prose(view.plan) else []
    lines = [(line_at(view.plan, view.plan.find(sentence)), 0) for sentence, end in decisions if _ends(sentence[end:])]
    for places in (decisions, lines, _approaches(view), whole):
        if found := _first_hit(places, words.method):
            hit, line = found
            return RuleVerdict(1, f"chosen method: {hit.group()}", clip(line))
        if found := _first_hit(places, words.not_method):
            return RuleVerdict(0, f"the choice is a method for another question: {found[0].group()}")
    return RuleVerdict(0, "the plan does not name a fitting method as its choice")


def _ends(rest: str) -> bool:
    """Nothing stands behind the word of decision: what was chosen stands before it."""
    return not re.search(r"\w", rest)


def _decisions(view: RulesInput) -> list[tuple[str, int]]:
    """Sentences with a word of decision, and where it ends: what was chosen stands behind it."""
    hits = ((sentence, find_word(sentence, view.vocabulary.choice)) for sentence in sentences(view.plan))
    return [(sentence, hit.end()) for sentence, hit in hits if hit]


def _approaches(view: RulesInput) -> list[tuple[str, int]]:
    """Paragraphs about the method."""
    return [(text, 0) for text in paragraphs(view.plan) if find_word(text, view.vocabulary.approach)]


def _first_hit(places: list[tuple[str, int]], words: list[str]) -> tuple[re.Match[str], str] | None:
    hits = ((find_word(text, words, start), text) for text, start in places)
    return next(((hit, line_at(text, hit.start())) for hit, text in hits if hit), None)


def three_candidates(view: RulesInput) -> RuleVerdict:
    """Three different methods or repositories, each with a word for or against it, in the plan or in notes."""
    weighed: dict[str, tuple[int | None, Candidate]] = {}
    named: set[str] = set()
    for turn, text in view.writings:
        for candidate in candidates_in(text, view.vocabulary.candidates):
            named.add(candidate.name)
            if candidate.weighed:
                weighed.setdefault(candidate.name, (turn, candidate))
    if len(weighed) < MIN_CANDIDATES:
        shown = ", ".join(sorted(named)[:6]) or "none"
        return RuleVerdict(0, f"{len(weighed)} candidates weighed ({MIN_CANDIDATES} needed); named: {shown}")
    quotable = (each for each in weighed.values() if quote_exists(view.evidence, clip(each[1].line), each[0]))
    turn, first = next(quotable, next(iter(weighed.values())))
    return RuleVerdict(1, f"candidates weighed: {', '.join(sorted(weighed)[:6])}", clip(first.line), turn)


# --- the drawing --------------------------------------------------------------------------------------------------


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
    for event in view.events:
        saves = any("plan.png" in path for path in event.call.new_files)
        drawn = _drawn(event, view.vocabulary.drawing) if event.ok and saves else None
        if drawn is not None:
            return view.found(1, "drawn by code; what it shows is not verified", event, drawn)
        if event.ok and saves and size >= MIN_UNSEEN_BYTES and _by_unseen_code(event):
            return RuleVerdict(1, "drawn by a program that is not known; too large for a blank picture", PLOT_LINE)
    return RuleVerdict(0, "no code that ran draws text, boxes or arrows")


def _by_unseen_code(event: Event) -> bool:
    """A script or program of which the run shows no text, and no code of the call itself saves the picture."""
    saves = any("plan.png" in spot.name for spot in (*event.facts.strings, *event.facts.commands))
    return bool(event.facts.commands) and not event.facts.calls and (saves or not event.facts.strings)


def _drawn(event: Event, words: list[str]) -> Spot | None:
    """Two calls that draw, a text with two arrows or shapes in it, or a program that draws graphs."""
    drawing = frozenset(words)
    calls = [spot for spot in event.facts.calls if spot.is_a(drawing)]
    texts = [spot for spot in event.facts.strings if _draws_arrows(spot.name)]
    shapes = [spot for spot in event.facts.strings for _ in _SHAPES.findall(spot.name)]
    programs = [spot for spot in event.facts.commands if spot.name.split()[0] in _DRAWING_PROGRAMS]
    first = [found[0] for found in (calls, shapes) if len(found) >= 2]
    return next(iter([*first, *programs, *texts]), None)


def _draws_arrows(text: str) -> bool:
    """A short text with several arrows; a long one may be the plan itself."""
    return len(text) <= _MAX_DRAWN_TEXT and len(_ARROWS.findall(text)) >= 2


MAX_SETUP_FAILURES = 5

_INPUT_PROGRAMS = frozenset("identify fslhd fslinfo mrinfo nib-ls exiftool file dcmdump gdcmdump c3d".split())  # noqa: SIM905
_PRINTED_IMAGE = re.compile(r"print\((?:Image\.open|nib\.load|sitk\.ReadImage)\(")
_PLAIN_IO = frozenset("numpy pandas PIL nibabel matplotlib SimpleITK h5py pydicom imageio tqdm yaml".split())  # noqa: SIM905
_CPU_ONLY = re.compile(r"cuda(?: is)?[ _]available\W+false|\bdevice\W+cpu\b|no cuda|cuda is not available", re.I)
_GPU_ARGUMENT = re.compile(
    r"^(?:device|device_map|map_location|devices|gpu|gpu_id|use_gpu)=(?:['\"](?:cuda|gpu|auto)|0$|True$|\[0|\{)"
    r"|cuda|CUDAExecutionProvider|n_gpu_layers=(?!0$)"
)
_GPU_NAME = re.compile(
    r"^cuda|^/?(?:device:)?gpu(?::\d+)?$|^CUDAExecutionProvider$|^TensorrtExecutionProvider$", re.IGNORECASE
)
_GPU_PRINTED = re.compile(
    r"cuda|\bgpu[:_ ]\d|GpuDevice|device:GPU|GPU KV cache|model weights take|\b[1-9]\d* ?MiB\b.*\n?.*python"
    r"|python\S*\W+\d+ ?MiB|offloaded \d+/\d+ layers",
    re.IGNORECASE,
)
_GPU_OPTION = re.compile(r"--?(?:device|gpus?)[ =](?:cuda|gpu|0)|-ngl [1-9]")
_GPU_CALLS = frozenset(["cuda", "devices", "list_physical_devices", "list_logical_devices"])
_GPU_PROGRAMS = frozenset(
    ["vllm", "ollama", "llama-server", "llama-cli", "nnUNetv2_predict", "TotalSegmentator", "nvidia-smi"]
)
_PLAIN_TENSORS = re.compile(r"\b(?:zeros|ones|empty|rand|randn|arange|full|tensor|eye|linspace|Generator|autocast)\b")
_GPU_FACTS = frozenset(["is_cuda", "memory_allocated", "max_memory_allocated", "memory_reserved", "mem_get_info"])


def weights_obtained(view: RulesInput) -> RuleVerdict:
    """Weights that a program fetched lie in the workspace, or given ones were loaded; classical methods by track."""
    for number, event in enumerate(view.events):
        path = fetched_weights(event, view.events[:number], view.evidence.files) if event.ok else None
        if path is not None:
            line = clip(file_line(path, view.evidence.files[path]))
            return RuleVerdict(1, f"fetched by code that ran, there since turn {event.call.turn}", line)
    for event in view.events:
        if (spot := given_weights(event)) is not None:
            return view.found(1, "weights that the run was given were loaded", event, spot)
    return _classical(view) or RuleVerdict(0, "no code that ran fetched weights that lie in the workspace")


def _classical(view: RulesInput) -> RuleVerdict | None:
    """Where the track allows it: a function of a package that ran where outputs were made, without any weights."""
    functions = frozenset(view.vocabulary.classical)
    for event in view.events:
        spot = next((spot for spot in event.facts.calls if spot.name.rpartition(".")[2] in functions), None)
        if event.ok and event.cases and spot is not None and loads_weights(event) is None:
            return view.found(1, f"classical method {spot.name} of an installed package ran", event, spot)
    return None


# --- the input ----------------------------------------------------------------------------------------------------


def input_inspected(view: RulesInput) -> RuleVerdict:
    """Before the full run, code opened an input and showed one of its properties."""
    properties = frozenset(view.vocabulary.input_check)
    wanted = set(view.vocabulary.input_names)
    for event in view.before_batch:
        read = [spot.name for spot in (*event.facts.strings, *event.facts.commands)]
        wanted = {name for name in wanted if not any(name in text for text in read)}
        spot = _printed_property(event, properties) or _property_by_program(event)
        if spot is not None and not wanted and event.call.stdout.strip():
            return view.found(1, "code shows properties of an input", event, spot)
    which = f" (and read {', '.join(sorted(wanted))})" if wanted else ""
    return RuleVerdict(0, f"no code that ran before the full run opened an input{which} and showed its properties")


def _printed_property(event: Event, properties: frozenset[str]) -> Spot | None:
    if not any(call.is_a(IMAGE_READS) for call in event.facts.calls):
        return None
    of_outputs = {(spot.line, spot.turn) for spot in event.facts.output_printed}
    shown = (spot for spot in event.facts.shown if (spot.line, spot.turn) not in of_outputs)
    return next((spot for spot in shown if spot_words(spot) & properties or _PRINTED_IMAGE.search(spot.line)), None)


def _property_by_program(event: Event) -> Spot | None:
    programs = (spot for spot in event.facts.commands if spot.name.partition(" ")[0] in _INPUT_PROGRAMS)
    return next((spot for spot in programs if "/" in spot.name and OUTPUT_FOLDER not in spot.name), None)


# --- the environment ----------------------------------------------------------------------------------------------


def environment_works(view: RulesInput) -> RuleVerdict:
    """Packages were installed or imported, the last try went well, and the method did not shrink to plain arrays."""
    outcomes = [(event, spot) for event in view.events if (spot := event.environment) and (event.ok or event.failed)]
    good = [(event, spot) for event, spot in outcomes if event.ok]
    if not good:
        return RuleVerdict(0, "no code that ran installed or imported a package")
    if outcomes[-1][0].environment_failed:
        return RuleVerdict(0, "the last set-up failure was never solved")
    failed = [event for event, _ in outcomes if event.environment_failed]
    if failed and not any(map(_brings_more, view.events)):
        return RuleVerdict(0, "what failed to install was never solved or replaced: only arrays and files were handled")
    return view.found(1, "packages installed or imported without failing", *good[-1])


def _brings_more(event: Event) -> bool:
    """It ran, and installed or imported something beside packages that read files and hold arrays."""
    if not event.ok:
        return False
    packages = {spot.name.partition(".")[0] for spot in event.facts.imports if third_party(spot.name)}
    return event.installs is not None or not packages <= _PLAIN_IO


def few_setup_failures(view: RulesInput) -> RuleVerdict:
    """Check that at most five executions failed at installing or importing, and something was set up."""
    good = [(event, spot) for event in view.events if event.ok and (spot := event.environment)]
    failures = sum(event.environment_failed for event in view.events)
    if not good:
        return RuleVerdict(0, "nothing was set up")
    if failures > MAX_SETUP_FAILURES:
        return RuleVerdict(0, f"{failures} executions failed in set-up (at most {MAX_SETUP_FAILURES})")
    return view.found(1, f"{failures} executions failed in set-up", *good[0])


# --- the GPU ------------------------------------------------------------------------------------------------------


def model_on_gpu(view: RulesInput) -> RuleVerdict:
    """Code that ran loaded weights, asked for the GPU, and what it printed beside constant texts shows the GPU.

    A program that serves a model, and the tool that lists a card's processes, may show it in a later call.
    """
    loaded = False
    for event in view.events:
        spot = _requests_gpu(event)
        here = _has_model(event)
        if event.ok and spot is not None and (here or (loaded and spot in event.facts.commands)) and _shows_gpu(event):
            return view.found(1, "weights loaded and the device shown", event, spot)
        loaded |= event.ok and (here or event.serves)
    return RuleVerdict(0, "no code that ran loaded weights on the GPU and showed the device")


def _has_model(event: Event) -> bool:
    """It loads weights, or gives a model's function the GPU to work on."""
    arguments = (spot for spot in event.facts.keywords if spot.name.startswith(("device=", "device_map=")))
    loaded = loads_weights(event) is not None or event.serves or given_weights(event) is not None
    return loaded or any(_GPU_ARGUMENT.search(s.name) and _is_model(s) for s in arguments)


def _is_model(spot: Spot) -> bool:
    return not _PLAIN_TENSORS.search(spot.line)


def _requests_gpu(event: Event) -> Spot | None:
    facts = event.facts
    return next(
        chain(
            (spot for spot in facts.calls if spot.name.rpartition(".")[2] in _GPU_CALLS),
            (spot for spot in facts.strings if _GPU_NAME.search(spot.name)),
            (spot for spot in facts.keywords if _GPU_ARGUMENT.search(spot.name)),
            (spot for spot in facts.commands if spot.name.partition(" ")[0].rpartition("/")[2] in _GPU_PROGRAMS),
            (spot for spot in facts.commands if _GPU_OPTION.search(spot.name)),
        ),
        None,
    )


def _shows_gpu(event: Event) -> bool:
    """Without the texts that are printed in any case, what was printed names CUDA, or tells of GPU memory."""
    printed = f"{event.call.stdout}\n{event.call.stderr}"
    for text in sorted(event.facts.said, key=len, reverse=True):
        if text:
            printed = printed.replace(text, " ")
    if _CPU_ONLY.search(event.call.stdout):
        return False
    printed_fact = any(spot_words(spot) & _GPU_FACTS for spot in event.facts.shown)
    return bool(_GPU_PRINTED.search(printed)) or (printed_fact and bool(re.search(r"\bTrue\b|\b[1-9]\d*", printed)))


HEURISTIC = "heuristic-4"
"""Raised when a verdict could change: every run is then judged again."""


class HeuristicJudge:
    """The rules as a judge."""

    id = HEURISTIC
    kind: JudgeKind = "heuristic"
    tokens = Tokens()
    cost_usd: str | None = "0"

    def judge(
        self, evidence: RunEvidence, rubric: Rubric, tier: Tier, history: History | None = None
    ) -> list[Criterion]:
        """One verdict per judged criterion; a criterion without a rule here is not earned.

        ``history``: ``read_history`` of this evidence, where it is known already.
        """
        view = RulesInput(evidence, rubric, history)
        return [
            _criterion(item.id, item.stage, _quotable(_rule(item.id)(view), evidence)) for item in rubric.judged(tier)
        ]


def _criterion(name: str, stage: Stage, verdict: RuleVerdict) -> Criterion:
    return Criterion(
        id=name, stage=stage, verdict=verdict.value, quote=verdict.quote, turn=verdict.turn, reason=verdict.reason
    )


def _quotable(verdict: RuleVerdict, evidence: RunEvidence) -> RuleVerdict:
    """Nothing is earned on a line that is too short or too odd to be quoted."""
    if verdict.value == 0 or quote_exists(evidence, verdict.quote, verdict.turn):
        return verdict
    return RuleVerdict(0, f"{verdict.reason}, but no line can be quoted for it")


# --- S3 ---------------------------------------------------------------------------------------------------------


def validated(view: RulesInput) -> RuleVerdict:
    """1: a first case, its output read back and checked, then the full run; ½: one of the two; else 0."""
    history = view.history
    if history.tested is not None:
        index, spot = history.tested
        return view.found(1.0, "one call did the first case, checked it and went on", history.events[index], spot)
    if history.pilot is None or history.full is None:
        return _check_only(view)
    if check := next(history.checks(history.pilot, history.full), None):
        reason = "one case first, its output read back and checked, then the full run"
        return view.found(1.0, reason, check.event, check.spot)
    if check := next(history.checks(history.pilot, history.full, form=True), None):
        return view.found(0.5, "one case first, but only the form of its output was checked", check.event, check.spot)
    pilot = history.events[history.pilot]
    quote = code_line(pilot.call.code, " ".join(sorted(pilot.cases)))
    return RuleVerdict(0.5, "one case first, but its output was not read back and checked", quote, pilot.call.turn)


def _check_only(view: RulesInput) -> RuleVerdict:
    if check := next(view.history.checks(form=True), None):
        reason = "outputs were read back and checked, but no case was run on its own first"
        return view.found(0.5, reason, check.event, check.spot)
    return RuleVerdict(0.0, "neither a case on its own nor a check that reads an output back")


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


NEED_A_PLAN_IN_TIME = frozenset(["s1b", "s1c", "s1d"])
"""What a plan does not earn that was written when all was done."""
NEED_A_METHOD = frozenset(["s1b", "s1c", "s2a", "s2c", "s2d", "s2e", "s3"])
"""Criteria that a run whose outputs come out of no method does not earn (definitions of the rubric)."""


def _rule(name: str) -> Judgement:
    rule = RULES.get(name)
    if rule is None:
        return lambda _view: RuleVerdict(0, f"the heuristic judge has no rule for {name}")

    def judged(view: RulesInput) -> RuleVerdict:
        method = view.history.method
        if name in NEED_A_METHOD and method.verdict == "none":
            return RuleVerdict(0, method.reason)
        if name in NEED_A_PLAN_IN_TIME and view.history.planned_late:
            return RuleVerdict(0, "the plan was written after the full run")
        return rule(view)

    return judged
