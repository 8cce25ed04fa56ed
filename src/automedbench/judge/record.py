"""The record of a run that both judges use: which call wrote which outputs, what was read back, what was opened, when.

Facts of files, exit codes and the kernel trace, never of claims or of what things are called. Code is quoted, not
interpreted; where no trace exists, what was opened is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from automedbench.base.records import CodeCall, Process
from automedbench.reading.lines import OUTPUT_FOLDER, CodeLine, Scripts, first, imports
from automedbench.reading.outputs import OutputReading

if TYPE_CHECKING:
    from automedbench.judge.evidence import RunEvidence
    from automedbench.judge.rubric import Rubric

FEW = 2
"""Cases that a first case may be (definitions of the rubric)."""
PLAN = "plan/plan.md"
ALL_CASES = "*"
"""Stands for the cases of an output that holds all of them, such as ``agents_outputs/predictions.csv``."""
WEIGHTS = re.compile(
    r"\.(?:pth?|ckpt|safetensors|onnx|bin|h5|keras|zip|tar|t?gz|ts|engine|model|pkl|npz|gguf|pb|tflite|params|pdparams"
    r"|msgpack|caffemodel)$|(?:^|/)models--[^/]+/(?:blobs|snapshots)/|/blobs/",
    re.IGNORECASE,
)
"""Names of files of weights."""
WEIGHT_LOADS = re.compile(
    r"\b(?:torch\.load|jit\.load|load_state_dict|from_pretrained|load_pretrained\w*|YOLO|load_model|load_file"
    r"|InferenceSession|load_from_checkpoint|init_detector|initialize_from_trained_model_folder|load_weights|restore\w*"
    r"|saved_model\.load|LLM|pipeline|Llama|hub\.load|SavedModel|LoadedModel|read_model|compile_model|from_config)\("
    r"|\b(?:pretrained|weights|ckpt|checkpoint)\s*=\s*(?!None\b|False\b)\S"
    r"|\bload\w*\(.*\.(?:pth?|ckpt|safetensors|onnx|h5|keras|gguf|ts)['\"]"
)
SERVES = re.compile(
    r"\b(?:vllm(?:\.entrypoints\S*)?|ollama|llama-server|llama-cli|text-generation-launcher|sglang\S*)\b"
)
"""Programs that serve or run a language model by its name or file."""
IMAGE_READS = re.compile(
    r"\b(?:imread|Image\.open|[rR]eadImage|dcmread|load_img|read_image|decode_(?:jpeg|png|image)|readNif\w+|niread"
    r"|niftiread|npzread|readNIfTI|antsImageRead|read_nifti|load_nifti|image_read|load)\("
)
_INPUTS = re.compile(r"/data/public|\bDATA_DIR\b")
_PROGRAMS = re.compile(
    r"(?:^|[|;&(]\s*|\b(?:time|nohup|exec|do)\s+)(?:\./)?(?:Rscript|julia|octave|matlab|node|g\+\+|gcc|cmake|make|go"
    r"|cargo|bet|fast|flirt|fsl\w+|susan|robustfov|run_first\w*|mr(?:calc|filter|threshold)|Atropos|TotalSegmentator"
    r"|nnUNet\w*|vllm|ollama|llama-\w+|c3d|mri_\w+|ants\w*|N4Bias\w*|plastimatch|magick|convert"
    r"|mogrify|ffmpeg|elastix|dcm2niix|yolo|lungmask|monai|papermill|hd-bet|docker)\b"
)
_LANGUAGES = re.compile(r"\b(?:Rscript|julia|octave|matlab|node|gcc|cmake|make|go|cargo)\b|g\+\+")
_ENVIRONMENT_FAILURE = re.compile(
    r"ModuleNotFoundError|ImportError|No module named|No matching distribution|Could not find a version"
    r"|Could not install packages|command not found"
)
_ACCESS_FAILURE = re.compile(
    r"FileNotFoundError|No such file or directory|ConnectionError|URLError|HTTPError|Could not resolve host"
    r"|RepositoryNotFoundError|GatedRepoError|No space left on device|CUDA driver"
)
_INSTALL = re.compile(
    r"(?:^|[|;&(\s'\"])(?:pip[\d.]*|uv pip|conda|mamba|apt|apt-get)(?:['\"],\s*['\"]|\s)(?:\S+\s)*?['\"]?install\b"
    r"|-m (?:venv|virtualenv)\b|\bvirtualenv\s|\buv venv\b|\bconda create\b|\bPkg\.add\b|\binstall\.packages\("
)
_ONE = re.compile(
    r"\b(?:cases?|names?|ids?|files?|paths?|images?|studies|patients|fs)\[(?::1|0)\]"
    r"|\b(?:listdir|glob|iterdir)\([^()]*\)\)*\[(?::1|0)\]"
    r"|\bhead\s+-(?:n\s*)?1\b|--(?:limit|n|num|max|first)[= ]1\b|\bnext\((?!.*parameters)|islice\(.*,\s*1\)"
    r"|nrows=1\b|\blimit=1\b"
)
_REST = re.compile(r"(?<!argv)\[1:\]|--all\b|\bothers\b|\brest\b|\bremaining\b|tail -n \+2")
_LISTING = re.compile(
    r"\b(?:listdir|iterdir|glob|rglob|scandir|list\.files|readdir)\b|\bls\s+\S*data/public|/data/public/\*"
)
_LISTED = re.compile(r"^\s*(\w+)\s*=.*\b(?:listdir|iterdir|glob|rglob|scandir)\b")
_FUNCTION = re.compile(r"\s*def\s+(\w+)")
_LOOP = re.compile(r"\bfor\s+[\w, ]+\s+in\s+(.*)|\bmap\((.*)|\bxargs\b|\bwhile read\b")
_GOES_ON = re.compile(rf"{_LOOP.pattern}|{_REST.pattern}|\$\(ls")
_CASE_ID = re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9.-]{0,63}_\d{4,}(?![A-Za-z0-9])")
_FIRST_OF_LOOP = re.compile(r"\bif\s+(?:not\s+\w+\b|\w+\s*==\s*(?:0|1|\w*first\w*|[\w.]+\[0\])\s*:)")
_FIRST = re.compile(rf"\[0\]|\[:1\]|\bhead\s+-(?:n\s*)?1\b|{_FIRST_OF_LOOP.pattern}|\bnext\(|\bfirst\b", re.IGNORECASE)
_CAN_STOP = re.compile(r"assert|raise|exit|\bif\b|test|stop|expect|throw|jq\s+-e")
_WORKS = re.compile(
    r"^(?!\s*def ).*(?:predict|classif|infer|generat|label|answer|prob|segment|detect|logits|argmax)", re.IGNORECASE
)


@dataclass(frozen=True)
class Event:
    """One code call: the lines that it ran, and the cases whose outputs it created or changed."""

    call: CodeCall
    lines: Sequence[CodeLine]
    cases: frozenset[str]
    new_cases: frozenset[str]
    own: frozenset[str] = frozenset()
    """Names of the run's own modules."""
    outputs: frozenset[str] = frozenset()
    """File names of a case's output."""

    @property
    def ok(self) -> bool:
        """The code ran to its end without failing, as far as is known: some programs tell no exit codes."""
        return self.call.status == "ok" and self.call.exit_code in (0, None)

    @property
    def failed(self) -> bool:
        """The code was run and failed; refused code was never run."""
        return self.call.status in ("error", "timeout", "killed")

    @cached_property
    def case_ids(self) -> frozenset[str]:
        """Case ids that its lines write out."""
        return frozenset(_CASE_ID.findall("\n".join(line.code for line in self.lines)))

    @cached_property
    def many_cases(self) -> bool:
        """A line goes through the cases, or through all but the first."""
        listed = {
            match[1] for line in self.lines if (match := _LISTED.search(line.code)) and not _ONE.search(line.code)
        }
        for line in self.lines:
            loop = _LOOP.search(line.code)
            gone_through = (
                loop is not None
                and not _ONE.search(line.code)
                and (_LISTING.search(line.code) or listed & set(re.findall(r"\w+", loop[1] or loop[2] or "")))
            )
            if gone_through or _REST.search(line.code) or re.search(r"\$\(ls\b(?!.*\bhead\b)", line.code):
                return True
        return False

    @property
    def one_case(self) -> bool:
        """The code picks a single case, or names one or two, and goes through no list of cases."""
        picked = first(self.lines, _ONE) is not None or bool(self.case_ids)
        return picked and len(self.case_ids) <= FEW and not self.many_cases

    @property
    def whole(self) -> bool:
        """Check whether it wrote the output of all cases, and not for a single case."""
        return ALL_CASES in self.cases and not self.one_case

    @property
    def tries(self) -> bool:
        """Check whether it succeeded, loaded a model or called one for one case, and printed something."""
        works = self.loads or self.serves or first(self.lines, _WORKS)
        given = self.opens_inputs or self.case_ids
        return self.ok and self.one_case and bool(given and works and self.call.stdout.strip())

    @cached_property
    def installs(self) -> CodeLine | None:
        """Line where it installs packages or makes an environment."""
        return first(self.lines, _INSTALL)

    @cached_property
    def packages(self) -> dict[str, CodeLine]:
        """Installed packages that it imports, by the line."""
        return dict(imports(self.lines, self.own))

    @property
    def programs(self) -> CodeLine | None:
        """Line where it runs a program or language that is neither Unix's own nor Python."""
        return first(self.lines, _PROGRAMS)

    @property
    def model_program(self) -> bool:
        """Check whether such a program may bring a model of its own."""
        return self.programs is not None and not _LANGUAGES.search(self.programs.code)

    @property
    def opens_inputs(self) -> bool:
        """Its lines name the folder of inputs, or read images."""
        return first(self.lines, _INPUTS) is not None or first(self.lines, IMAGE_READS) is not None

    @property
    def serves(self) -> CodeLine | None:
        """Line where it starts a program that serves or runs a model by name."""
        return first(self.lines, SERVES)

    @property
    def loads(self) -> CodeLine | None:
        """Line where it loads weights, and would have failed without them."""
        return next((line for line in self.lines if WEIGHT_LOADS.search(line.code) and not line.unseen), None)

    @property
    def environment(self) -> CodeLine | None:
        """Line where it installs a package, imports an installed one, or runs a program of one."""
        return self.installs or next(iter(self.packages.values()), None) or self.programs

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

    @cached_property
    def _reading(self) -> OutputReading:
        return OutputReading(self.lines, self.outputs)

    @cached_property
    def reads_output(self) -> bool:
        """It read an output back: by the trace a process that wrote none did, or a line says so."""
        traced = any(_outputs(process.reads) and not _outputs(process.writes) for process in self.call.processes or ())
        return traced or bool(self._reading.reads)

    @property
    def writes_output(self) -> bool:
        """A line writes an output, whether or not it came to that."""
        return any(map(self._reading.writes, self.lines))

    @cached_property
    def checks(self) -> list[CodeLine]:
        """Lines that compared or showed something of an output that was read back, comparisons first."""
        found = list(self._reading.checks())
        return found if self.call.stdout.strip() else [line for line in found if _CAN_STOP.search(line.code)]

    @cached_property
    def content_checks(self) -> list[CodeLine]:
        """Those of the checks that look at more than form."""
        return [line for line in self._reading.checks() if self._reading.looks_at_content(line)]

    @cached_property
    def tested(self) -> CodeLine | None:
        """Where one call does the first case, checks it, and goes on: a check between a first case and the rest."""
        checks = list(self._reading.checks())
        looking = re.compile(rf"(?<!def )\b(?:{'|'.join(self._functions_with(checks)) or '(?!)'})\(")
        begun = looped = inside = False
        for number, line in enumerate(self.lines):
            begun |= bool(_FIRST.search(line.code)) or 1 <= len(set(_CASE_ID.findall(line.code))) <= FEW
            looped |= bool(_LOOP.search(line.code))
            inside |= looped and bool(_FIRST_OF_LOOP.search(line.code))
            checked = any(line is check for check in checks) or looking.search(line.code)
            if begun and checked and (inside or any(_GOES_ON.search(later.code) for later in self.lines[number:])):
                return line
        return None

    def _functions_with(self, lines: Sequence[CodeLine]) -> set[str]:
        """Names of functions in which one of the lines stands."""
        found, function = set[str](), ""
        for line in self.lines:
            if (match := _FUNCTION.match(line.code)) or not line.text[:1].isspace():
                function = match[1] if match else ""
            if function and any(line is each for each in lines):
                found.add(function)
        return found

    @property
    def wrote_with_weights(self) -> bool:
        """By the trace, a process that wrote outputs, or one above or below it, opened a file named like weights."""
        processes = self.call.processes or []
        writers = [number for number, process in enumerate(processes) if _outputs(process.writes)]
        return any(WEIGHTS.search(path) for each in _family(processes, writers) for path in each.reads)


def _outputs(paths: Iterable[str]) -> bool:
    return any(path.startswith(f"{OUTPUT_FOLDER}/") for path in paths)


def _family(processes: Sequence[Process], members: Sequence[int]) -> list[Process]:
    """The processes with these indexes, and those above and below them."""
    above = set(members)
    for number in members:
        while (parent := processes[number].parent) is not None and parent not in above:
            above.add(parent)
            number = parent
    below = set(members)
    for number, process in enumerate(processes):
        if process.parent in below:
            below.add(number)
    return [processes[number] for number in sorted(above | below)]


def read_trace(calls: Sequence[CodeCall], outputs: Iterable[str] = ()) -> list[Event]:
    """Events in order. ``outputs``: file names that count as a case's output; none given: every file."""
    names = frozenset(outputs)
    if not any(output_case(path, names) for call in calls for path in call.new_files):
        names = frozenset()  # of another name: the run's outputs all the same, as far as its way of working goes
    seen: frozenset[str] = frozenset()
    scripts, events = Scripts(), []
    for call in calls:
        lines = scripts.read(call)
        cases = frozenset(case for path in call.new_files if (case := output_case(path, names)))
        events.append(Event(call, lines, cases, cases - seen, scripts.modules, names))
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


def last_line(text: str) -> str:
    """The last line that is not blank."""
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")


@dataclass(frozen=True)
class History:
    """The record of one run: events, and what follows from their order; ``content``: form alone is no check."""

    events: list[Event]
    n_cases: int
    content: bool = False

    @cached_property
    def batch(self) -> int | None:
        """Index of the first call that created outputs of more cases than a pilot does.

        A pilot has at most max(2, 10 %) of the cases (docs/specification.md, 8.8).
        """
        return self._first_beyond(max(2, sum(len(event.new_cases) for event in self.events) // 10))

    @cached_property
    def pilot(self) -> int | None:
        """Index of the first call before the batch that ended well and wrote outputs, of no more cases than a pilot.

        Tries that failed do not count against it, whether or not they left a file. Where one output holds all cases, a
        call that tries a single case and prints something is a pilot too: it need not write a file.
        """
        table = any(event.whole for event in self.events)
        early = self.events[: self.batch]
        return next((i for i, event in enumerate(early) if event.ok and (event.cases or (table and event.tries))), None)

    @cached_property
    def full(self) -> int | None:
        """Index of the first call after the pilot that created outputs of at least two further cases, or of all.

        Of a task with two cases only one is left after the pilot.
        """
        return self.batch if self.pilot is None else self._first_beyond(0 if self.n_cases == 2 else 1, self.pilot + 1)

    def _first_beyond(self, limit: int, start: int = 0) -> int | None:
        """Index of the first call from ``start`` on that created outputs of more cases, or of all."""
        late = enumerate(self.events[start:], start)
        return next((i for i, event in late if event.whole or len(event.new_cases) > limit), None)

    @cached_property
    def planned_late(self) -> bool:
        """The plan was first written by a call after the full run."""
        written = next((i for i, event in enumerate(self.events) if PLAN in event.call.new_files), None)
        return written is not None and self.full is not None and written > self.full

    @cached_property
    def tested(self) -> tuple[int, CodeLine] | None:
        """One call that does the first case, checks it, and goes on; where it checks."""
        several = (
            (i, event) for i, event in enumerate(self.events) if event.ok and (event.whole or len(event.new_cases) > 1)
        )
        found = ((i, event.tested) for i, event in several)
        return next(((i, line) for i, line in found if line is not None and self._counts(i, line)), None)

    def _counts(self, index: int, line: CodeLine) -> bool:
        return not self.content or line in self.events[index].content_checks

    def checks(self, start: int = 0, end: int | None = None, *, form: bool = False) -> Iterator[CodeLine]:
        """Checks of the calls between two indexes that ended well; with ``form`` those too that look at form alone."""
        for index, event in enumerate(self.events[start:end], start=start):
            lines = event.checks if event.ok else []
            yield from (line for line in lines if form or self._counts(index, line))


def read_history(evidence: RunEvidence, rubric: Rubric) -> History:
    """The record of a run, which both judges rest on."""
    words = rubric.vocabulary
    events = read_trace(evidence.calls, words.outputs)
    return History(events, evidence.n_cases, content=words.beyond_form)
