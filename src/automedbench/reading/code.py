"""Code that ran: what it does, read from its syntax, never from comments, printed text or names of files.

Python goes through ``ast``, shell text through the grammar of ``reading.bash``. Scripts that a call writes are
remembered, so that a later ``python script.py`` or ``import script`` is read as the script's code. Code is only
parsed, never run.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from automedbench.base.records import CodeCall
from automedbench.reading.case_choice import CaseChoice, ids_in
from automedbench.reading.child import read_bash
from automedbench.reading.command import DOWNLOAD_COMMANDS, SCRIPT, SERVES, SOURCE, UNIX, Command, Language
from automedbench.reading.dataflow import Origins, OutputFlow, separate_scopes, swallowed
from automedbench.reading.parts import parts_of
from automedbench.reading.provenance import INPUT_MARKS, InputShare, ValueOrigins, is_sink
from automedbench.reading.python import dotted, parse_python, shell_texts

OUTPUT_FOLDER = "agents_outputs"

_MAX_DEPTH = 4
_MAX_CELLS = 40
_DEFINES = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
_PRINTS = frozenset(["print", "info", "debug", "warning", "error"])
_SAYS = frozenset(["echo", "printf"])
_SILENT = _SAYS | {":", "true", "false", "cd", "export", "set"}
_PROGRAM = re.compile(r"[A-Za-z][\w.+-]{1,40}")
_WEIGHTS = re.compile(r"\.(?:pth?|ckpt|safetensors|onnx|h5|keras|gguf)$")
_QUOTED = re.compile(r"[\"']([^\"'\n]{2,200})[\"']")
_FOREIGN_WRITES = re.compile(r"(?:write|save|imwrite|fwrite|ofstream|savenii|niwrite|toJSON|print\s*>)", re.IGNORECASE)
_FOREIGN_READS = re.compile(r"read|load|open|fromJSON|ifstream|JSON\.parse", re.IGNORECASE)
_FOREIGN_STOPS = re.compile(
    r"\b(?:stopifnot|stop|error|throw|raise|die|exit|abort|assert\w*|panic!?)\b\s*[(!\s]|@assert|@test|expect\("
)
_REDUCES = frozenset(
    "cut uniq wc cmp diff fslstats fslinfo fslhd mrinfo mrstats identify nib-ls nib-stats nib-diff xmllint csvstat "  # noqa: SIM905
    "jsonschema check-jsonschema c3d dcmdump".split()
)
_FOREIGN_SHOWS = re.compile(r"\b(?:dim|size|extrema|range|summary|pixdim|shape|eltype|describe|head)\b\s*\(")
_COMPARES = {
    "jq": re.compile(r"[<>]|[!=]=|\b(?:select|length|keys|has|all|any|type|test)\b"),
    "awk": re.compile(r"[<>~]|[!=]="),
    "gawk": re.compile(r"[<>~]|[!=]="),
}


@dataclass(frozen=True)
class Spot:
    """A name in the code, the source line it stands on, and the turn in which that line was written."""

    name: str
    line: str
    turn: int

    def is_a(self, names: frozenset[str]) -> bool:
        """Whether the full name or its last part is one of ``names``."""
        return self.name in names or self.name.rpartition(".")[2] in names


@dataclass(frozen=True)
class WrittenScript:
    """A script file as a call wrote it."""

    language: str
    code: str
    turn: int


@dataclass(frozen=True)
class Written:
    """A place that writes a file: what it holds of the input, whether it is an output, and the file's name."""

    spot: Spot
    level: InputShare
    output: bool
    file: str = ""


@dataclass(frozen=True)
class CodePart:
    """A part of the code that runs by itself, in order: what it is done for, whether it writes outputs or checks them.

    ``first``: it goes through several cases, and checks an output where it is at the first.
    """

    one: bool
    many: bool
    writes: bool
    check: Spot | None
    first: bool = False


@dataclass
class CodeFacts:
    """What the code of one call does; ``strings`` are constants that are not merely printed.

    Imports and calls that may fail unseen are left out. ``keywords`` are arguments given by name, as ``name=value``.
    ``one_case`` and ``many_cases`` are where it picks a single case or goes through several, ``case_ids`` those that
    it names. ``shown`` holds the names of what it prints and of what that was made from, ``output_shown`` the same
    where it was read back from an output and a fault would change it, ``output_printed`` any print of one,
    ``content_looked_at`` the checks and shown ones that look at more than form, ``said``
    texts that are printed in any case. ``shell_checks`` are commands that compare what stands in an output.

    ``writes`` are the places that write files, ``told`` where it prints what was worked out of an input, ``networks``
    where a network is built, ``trained`` where something is fitted. ``programs`` are commands on inputs, outputs or
    sources that are neither Unix's own, nor Python, nor scripts.
    """

    imports: list[Spot] = field(default_factory=list)
    calls: list[Spot] = field(default_factory=list)
    strings: list[Spot] = field(default_factory=list)
    commands: list[Spot] = field(default_factory=list)
    programs: list[Spot] = field(default_factory=list)
    output_reads: list[Spot] = field(default_factory=list)
    output_checks: list[Spot] = field(default_factory=list)
    output_shown: list[Spot] = field(default_factory=list)
    output_printed: list[Spot] = field(default_factory=list)
    content_looked_at: list[Spot] = field(default_factory=list)
    shell_checks: list[Spot] = field(default_factory=list)
    shown: list[Spot] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    keywords: list[Spot] = field(default_factory=list)
    one_case: list[Spot] = field(default_factory=list)
    many_cases: list[Spot] = field(default_factory=list)
    case_ids: set[str] = field(default_factory=set)
    writes: list[Written] = field(default_factory=list)
    told: list[Spot] = field(default_factory=list)
    networks: list[Spot] = field(default_factory=list)
    trained: bool = False
    steps: list[CodePart] = field(default_factory=list)


def read_calls(calls: Sequence[CodeCall], outputs: Iterable[str] = (), there: Iterable[str] = ()) -> list[CodeFacts]:
    """Facts of every call in order; ``outputs`` are file names that mark a path as an output.

    ``there``: the files of the workspace at its end.
    """
    markers = (OUTPUT_FOLDER, *outputs)
    scripts: dict[str, WrittenScript] = {}
    files: dict[str, InputShare] = {}
    cells: list[WrittenScript] = []
    known = frozenset(
        path.rpartition("/")[2] for path in [*there, *(path for call in calls for path in call.new_files)]
    )
    return [_read_call(call, scripts, files, cells, markers, known) for call in calls]


def _read_call(
    call: CodeCall,
    scripts: dict[str, WrittenScript],
    files: dict[str, InputShare],
    cells: list[WrittenScript],
    markers: tuple[str, ...],
    there: frozenset[str],
) -> CodeFacts:
    reader = _CodeReader(scripts, files, markers, call.turn, cells, there)
    with contextlib.suppress(RecursionError):  # a text so deep is none that an agent would run
        if call.language == "python":
            reader.python(call.code)
            cells.append(WrittenScript("python", call.code, call.turn))
        else:
            reader.shell(call.code)
    for written in reader.facts.writes:
        if written.file:
            files[written.file] = max(written.level, files.get(written.file, InputShare.NOTHING))
    return reader.facts


class _CodeReader:
    """Collects the facts of one call's code and of the scripts that it starts."""

    def __init__(
        self,
        scripts: dict[str, WrittenScript],
        files: dict[str, InputShare],
        markers: tuple[str, ...],
        turn: int,
        cells: Sequence[WrittenScript] = (),
        there: frozenset[str] = frozenset(),
    ) -> None:
        self.facts = CodeFacts()
        self.scripts, self.files, self.markers, self.turn = scripts, files, markers, turn
        self.cells, self.there = cells, there
        self.started: dict[str, list[CodePart]] = {}
        self.places: dict[ast.AST, tuple[list[str], int]] = {}
        self.inputs: tuple[str, ...] = INPUT_MARKS
        self.outputs = markers
        self.depth = 0

    def python(self, code: str, *, output_argument: bool = False) -> None:
        main = parse_python(code)
        if main is None:
            return
        trees = self._with_modules(main, code)
        kept = self._kept(trees)
        used = {name for tree in [*trees, *kept] for node in ast.walk(tree) if (name := _named(node))}
        own = [node for tree in trees for node in _live_nodes(tree, used)]
        before = [node for tree in kept for node in _live_nodes(tree, used)]
        functions = {inner for node in before if isinstance(node, ast.FunctionDef) for inner in ast.walk(node)}
        nodes, counted = [*own, *before], functions.union(own)
        self._remember_written(own)
        unseen, origins = swallowed(nodes), Origins(nodes)
        for kind, name, node in _facts_of(own):
            if kind in ("imports", "calls", "keywords") and node in unseen:
                continue
            if kind != "imports" or not self._own_module(name):
                getattr(self.facts, kind).append(self._spot(name, node))
        prints = [node for node in nodes if _is_print(node) and node in counted]
        self.facts.said += [text for call in prints for text in _texts_below(call)]
        self.facts.shown += [self._spot(" ".join(origins.of(*call.args)), call) for call in prints]
        flow = OutputFlow(nodes, self.markers, output_argument=output_argument)
        checks = [node for node in flow.checks() if node not in unseen and node in counted]
        self.facts.output_reads += [self._spot("read", node) for node in flow.reads() if node in counted]
        self.facts.output_checks += [
            self._spot(" ".join(origins.of(getattr(node, "test", node))), node) for node in checks
        ]
        shows = [call for call in flow.shows(prints) if call not in unseen]
        self.facts.output_shown += [self._spot(" ".join(origins.of(*call.args)), call) for call in shows]
        looked = [node for node in checks if getattr(node, "test", node) in flow.content]
        looked += [call for call in shows if any(argument in flow.content for argument in call.args)]
        self.facts.content_looked_at += [self._spot("content", node) for node in looked]
        of_outputs = [call for call in prints if any(argument in flow.data for argument in call.args)]
        self.facts.output_printed += [self._spot("printed", call) for call in of_outputs]
        choice = CaseChoice(nodes)
        one, many = ([node for node in found if node in counted] for found in (choice.one(), choice.many()))
        self.facts.one_case += [self._spot("one case", node) for node in one]
        self.facts.many_cases += [self._spot("many cases", node) for node in many]
        self.facts.case_ids |= ids_in(" ".join(spot.name for spot in self.facts.strings))
        self._trace_values(nodes, counted, flow, prints)
        sinks = {node for node in nodes if isinstance(node, ast.Call) and is_sink(node) and node in flow.paths}
        for part in parts_of(main, nodes):
            check = next((node for node in (*checks, *shows) if node in part.reach), None)
            self.facts.steps.append(
                CodePart(
                    one=any(node in part.own for node in one) or len(ids_in(part.texts)) == 1,
                    many=any(node in part.reach for node in many),
                    writes=any(node in part.reach for node in sinks),
                    check=self._spot("check", check) if check is not None else None,
                    first=part.at_first is not None and any(node in part.at_first for node in (*checks, *shows)),
                )
            )
        for _, command in shell_texts(own):
            self._nested("bash", command)

    def _with_modules(self, main: ast.Module, code: str) -> list[ast.Module]:
        """The tree and those of the run's own modules that it imports, each with its lines remembered."""
        trees: list[ast.Module] = []
        todo: list[tuple[ast.Module | None, str, int]] = [(main, code, self.turn)]
        while todo:
            tree, text, turn = todo.pop(0)
            if tree is None:
                continue
            separate_scopes(tree)
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            self.places |= dict.fromkeys(ast.walk(tree), (lines, turn))
            trees.append(tree)
            for name in _imported(tree):
                script = self._own_module(name)
                if script is not None and name not in self.started:
                    self.started[name] = []
                    todo.append((parse_python(script.code), script.code, script.turn))
        return trees

    def _kept(self, trees: list[ast.Module]) -> list[ast.Module]:
        """What earlier calls defined that this one uses and does not define, as in a session that keeps variables."""
        found: list[ast.Module] = []
        for cell in reversed(self.cells[-_MAX_CELLS:]):
            used, defined = _used_and_defined([*trees, *found])
            tree = parse_python(cell.code) if used - defined else None
            if tree is None or not (used - defined) & _used_and_defined([tree])[1]:
                continue
            tree.body = [node for node in tree.body if isinstance(node, _DEFINES)]
            separate_scopes(tree)
            self.places |= dict.fromkeys(ast.walk(tree), (cell.code.split("\n"), cell.turn))
            found.append(tree)
        return found

    def _own_module(self, name: str) -> WrittenScript | None:
        found = (self.scripts.get(f"{part}.py") for part in (name.rpartition(".")[2], name.partition(".")[0]))
        return next((script for script in found if script is not None), None)

    def _never_ran(self, nodes: list[ast.AST]) -> set[ast.AST]:
        """What stands in a ``try`` that fails unseen, since it wants a file of weights that was never there."""
        found: set[ast.AST] = set()
        for node in nodes:
            if isinstance(node, ast.Try) and (inner := swallowed([node])):
                wanted = [
                    each.value for each in inner if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
                named = [text for text in wanted if _WEIGHTS.search(text) and not text.startswith("/")]
                if named and not any(text.rpartition("/")[2] in self.there for text in named):
                    found |= inner
        return found

    def _trace_values(
        self, nodes: list[ast.AST], counted: set[ast.AST], flow: OutputFlow, prints: list[ast.Call]
    ) -> None:
        """What is written and printed, and how much of the input it holds."""
        lost = self._never_ran(nodes)
        nodes = [node for node in nodes if node not in lost]
        inputs = OutputFlow(nodes, INPUT_MARKS, output_argument=True).paths
        values = ValueOrigins(nodes, flow.paths, inputs, self.files)
        for write in (each for each in values.writes() if each.node in counted):
            self.facts.writes.append(Written(self._spot("write", write.node), write.level, write.output, write.file))
        self.facts.told += [
            self._spot("told", call)
            for call in prints
            if any(values.holds(item) >= InputShare.UNSURE and values.predicts(item) for item in call.args)
        ]
        if (network := values.untrained()) is not None:
            self.facts.networks.append(self._spot("network", network))
        self.facts.trained |= values.trains()

    def shell(self, text: str) -> None:
        commands = read_bash(text)
        for command in commands:
            if command.written is not None:
                self._remember(*command.written)
            elif command.run[:1] == ("apply_patch",) and command.document:
                self._patch(command.document)
            elif command.document is not None:
                self.files |= {
                    file.rpartition("/")[2]: InputShare.NOTHING for mark, file in command.targets if ">" in mark
                }
        self.inputs = variables(commands, INPUT_MARKS)
        self.outputs = variables(commands, self.markers)
        programs = [command for command in commands if command.started is not None or command.script]
        for command in commands:
            before = len(self.facts.steps)
            self._command(command)
            if len(programs) > 1 and command in programs:
                self.facts.steps[before:] = [_as_one(command, self.facts.steps[before:])]
        self._count_listed([command.run for command in commands if command.run])

    def _nested(self, language: Language, code: str) -> None:
        if self.depth < _MAX_DEPTH:
            self.depth += 1
            (self.python if language == "python" else self.shell)(code)
            self.depth -= 1

    def _count_listed(self, commands: list[tuple[str, ...]]) -> None:
        """One case is the first line of a listed folder; a listing without ``head`` means all of them."""
        listed = [words for words in commands if words[0] in ("ls", "find")]
        first = [words for words in commands if words[0] == "head" and words[1:] in (("-1",), ("-n1",), ("-n", "1"))]
        found = self.facts.one_case if len(listed) <= len(first) else self.facts.many_cases
        found += [Spot(" ".join(words), " ".join(words), self.turn) for words in listed]

    def _spot(self, name: str, node: ast.AST) -> Spot:
        number = getattr(node, "lineno", 1)
        lines, turn = self.places.get(node, ([], self.turn))
        return Spot(name, lines[number - 1].strip() if number <= len(lines) else "", turn)

    def _remember(self, path: str, body: str) -> None:
        name = path.rpartition("/")[2]
        language = {"py": "python", "sh": "bash"}.get(name.rpartition(".")[2], "other")
        if name.endswith(".ipynb"):
            language, body = "python", cells_of(body)
        self.scripts[name] = WrittenScript(language, body, self.turn)

    def _patch(self, text: str) -> None:
        """Scripts that a patch in the form of ``apply_patch`` adds or changes."""
        for part in re.split(r"(?m)^\*\*\* (?=(?:Add|Update) File: )", text)[1:]:
            head, _, body = part.partition("\n")
            name = head.partition(": ")[2].strip()
            old = self.scripts.get(name.rpartition("/")[2])
            lines = [line for line in body.split("\n") if not line.startswith(("***", "@@"))]
            if head.startswith("Add"):
                self._remember(name, "\n".join(line[1:] for line in lines if line.startswith("+")))
            elif old is not None:
                before = "\n".join(line[1:] for line in lines if line[:1] in "- " and line)
                after = "\n".join(line[1:] for line in lines if line[:1] in "+ " and line)
                self._remember(name, old.code.replace(before, after, 1))

    def _remember_written(self, nodes: list[ast.AST]) -> None:
        """A script written by Python: one constant file name, one constant text of several lines."""
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        names = {text for text in texts if SCRIPT.fullmatch(text)}
        bodies = [text for text in texts if text.count("\n") > 1]
        if len(names) == 1 and len(bodies) == 1:
            self._remember(names.pop(), bodies[0])

    def _command(self, command: Command) -> None:
        words = command.run
        spot = Spot(" ".join(words), " ".join(words), self.turn)
        output = _holds(words[1:], self.outputs)
        if words and words[0] in _SAYS:
            self.facts.said += [word.strip() for word in words[1:]]
        if words and (written := self._written_by(command, output=output)) is not None:
            self.facts.writes.append(Written(spot, *written))
        if not words or words[0] in _SILENT:
            return
        self.facts.commands.append(spot)
        self.facts.case_ids |= ids_in(spot.name)
        if self._is_program(words):
            self.facts.programs.append(spot)
        if output and _compares(words):
            self.facts.output_reads.append(spot)
            self.facts.shell_checks.append(spot)
            self.facts.steps.append(CodePart(one=False, many=False, writes=False, check=spot))
        if command.started is not None:
            self._nested(*command.started)
        elif (inline := command.inline) is not None:
            self._foreign(WrittenScript("other", inline, self.turn))
        elif command.script:
            self._start(command.script, output_argument=output)

    def _is_program(self, words: tuple[str, ...]) -> bool:
        name, rest = words[0].rpartition("/")[2], words[1:]
        script = name.startswith("python") or name.endswith((".py", ".sh"))
        if script or name in UNIX | DOWNLOAD_COMMANDS or not _PROGRAM.fullmatch(name) or not rest:
            return False
        works = _holds(rest, self.inputs) or _holds(rest, self.outputs) or any(map(SOURCE.search, rest))
        return works or SERVES.search(" ".join(words)) is not None

    def _written_by(self, command: Command, *, output: bool) -> tuple[InputShare, bool, str] | None:
        """What a command writes: how much of the input it holds, whether it is an output, the file's name."""
        words = command.run
        targets = [file for mark, file in command.targets if ">" in mark and not file.startswith(("/dev/", "&"))]
        marked = _holds(targets, self.outputs)
        program, name = words[0].rpartition("/")[2], (targets or [words[-1]])[0].rpartition("/")[2]
        of_input = _holds(words[1:], self.inputs)
        if program in ("cp", "mv", "ln", "rsync", "install") and len(words) > 2:
            source = self.files.get(words[-2].rpartition("/")[2], InputShare.COPY if of_input else InputShare.MADE)
            return (InputShare.COPY if of_input else source), output, name
        if program in ("touch", "truncate", "dd", "fallocate"):
            return InputShare.NOTHING, output, name
        if program not in UNIX | _SILENT and command.started is None and command.script not in self.scripts:
            return (InputShare.MADE, True, "") if output or marked or command.script else None
        if not targets or command.started is not None or command.script:
            return None
        made = program not in (*_SAYS, "cat", "tee") or any("$(" in word or "`" in word for word in words)
        copied = (
            InputShare.COPY
            if of_input and program in ("cat", "tee") and command.document is None
            else InputShare.NOTHING
        )
        return (InputShare.MADE if made else copied), marked, name

    def _start(self, name: str, *, output_argument: bool = False) -> None:
        """Read a script that was written before, once."""
        script = self.scripts.get(name)
        if script is None or name in self.started:
            self.facts.steps += self.started.get(name, [])
            return
        self.started[name] = []
        before = len(self.facts.steps)
        turn, self.turn = self.turn, script.turn
        if script.language == "python":
            self.python(script.code, output_argument=output_argument)
        elif script.language == "bash":
            self.shell(script.code)
        else:
            self._foreign(script)
        self.turn = turn
        self.started[name] = self.facts.steps[before:]

    def _foreign(self, script: WrittenScript) -> None:
        """A program in another language: what it writes is its own; where it stops at what it read is a check."""
        lines = [line.strip() for line in script.code.split("\n")]
        marked = any(marker in script.code for marker in self.markers)
        spot = next((Spot("write", line, script.turn) for line in lines if _FOREIGN_WRITES.search(line)), None)
        if spot is not None:
            self.facts.writes.append(Written(spot, InputShare.MADE, output=True))
        told = next((Spot("shape", line, script.turn) for line in lines if _FOREIGN_SHOWS.search(line)), None)
        if told is not None and any(mark in script.code for mark in INPUT_MARKS):
            self.facts.calls.append(Spot("imread", told.line, told.turn))
            self.facts.shown.append(told)
        self.facts.strings += [Spot(text, line, script.turn) for line in lines for text in _QUOTED.findall(line)]
        if marked and any(map(_FOREIGN_READS.search, lines)):
            found = [Spot("check", line, script.turn) for line in lines if _FOREIGN_STOPS.search(line)]
            self.facts.output_reads += found
            self.facts.shell_checks += found
            self.facts.steps += [CodePart(one=False, many=False, writes=False, check=each) for each in found[:1]]


def variables(commands: Iterable[Command], marks: tuple[str, ...]) -> tuple[str, ...]:
    """``marks``, and the variables of a shell that hold one: assigned, or of a loop."""
    found = marks
    for command in commands:
        given = list(command.assigned)
        if command.words[:1] == ("for",) and len(command.words) > 3:
            given.append((command.words[1], " ".join(command.words[3:])))
        new = [name for name, value in given if _holds([value], found)]
        found += tuple(form for name in new for form in (f"${name}", f"${{{name}"))
    return found


def _holds(words: Iterable[str], marks: tuple[str, ...]) -> bool:
    return any(mark in word for word in words for mark in marks)


def _as_one(command: Command, steps: list[CodePart]) -> CodePart:
    """The steps of a program that a shell starts among others; the case that it is given is the one it works on."""
    given = len(ids_in(" ".join(command.run))) == 1
    writes = any(step.writes for step in steps)
    one = given or (any(step.one for step in steps) and not any(step.many for step in steps))
    return CodePart(
        one=one,
        many=writes and not one,
        writes=writes,
        check=next((step.check for step in steps if step.check is not None), None),
        first=any(step.first for step in steps),
    )


def cells_of(notebook: str) -> str:
    """The code of a notebook's cells, one after the other; empty where it is none."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        cells = [cell for cell in json.loads(notebook)["cells"] if cell.get("cell_type") == "code"]
        texts = ["".join(cell["source"]) for cell in cells]
        return "\n".join(line for text in texts for line in text.split("\n") if not line.startswith(("%", "!")))
    return ""


def _compares(words: tuple[str, ...]) -> bool:
    """Whether a command looks at fields of a file and compares, counts or reduces them, so that a fault would show."""
    if words[0].rpartition("/")[2] in _REDUCES or "json.tool" in words:
        return True
    pattern = _COMPARES.get(words[0])
    return pattern is not None and any(pattern.search(word) for word in words[1:])


def third_party(name: str) -> bool:
    """Whether an imported module comes from an installed package."""
    return name.partition(".")[0] not in sys.stdlib_module_names


def _named(node: ast.AST) -> str:
    if isinstance(node, ast.alias):
        return node.name.rpartition(".")[2]
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _used_and_defined(trees: Iterable[ast.Module]) -> tuple[set[str], set[str]]:
    """Names that code reads, and those that it gives a value; builtins are not among the first."""
    used, defined = set[str](), set[str]()
    for node in (inner for tree in trees for inner in ast.walk(tree)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
    return used - set(dir(builtins)), defined


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (alias.name for alias in node.names if not node.module)


def _live_nodes(tree: ast.Module, used: set[str]) -> Iterator[ast.AST]:
    """All nodes but those below ``if False`` and in functions whose name is not used, in source order."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(_live_children(node, used)))


def _live_children(node: ast.AST, used: set[str]) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.While)) and isinstance(node.test, ast.Constant) and not node.test.value:
        yield from node.orelse
        return
    for child in ast.iter_child_nodes(node):
        function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        name = getattr(child, "name", "")
        if (
            not function
            or isinstance(node, ast.ClassDef)
            or name in used
            or name.startswith(("test", "setUp", "setup_"))
        ):
            yield child


def _facts_of(nodes: list[ast.AST]) -> Iterator[tuple[str, str, ast.AST]]:
    """(field of CodeFacts, name, node) of what stands in the code."""
    printed = _printed(nodes)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (("imports", alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "imports", node.module or "", node
        elif isinstance(node, ast.Call):
            yield "calls", dotted(node.func), node
            yield from (
                ("keywords", f"{item.arg}={ast.unparse(item.value)}", node) for item in node.keywords if item.arg
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in printed:
            yield "strings", node.value, node


def _printed(nodes: list[ast.AST]) -> set[ast.AST]:
    """Everything below a call that only prints."""
    printed: set[ast.AST] = set()
    for node in nodes:
        if node in printed or _is_print(node):
            printed.update(ast.iter_child_nodes(node))
    return printed


def _is_print(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in _PRINTS


def _texts_below(call: ast.Call) -> list[str]:
    """Constant texts that a call prints, pieces of formatted ones too; keys of what it prints are none."""
    keys = {inner.slice for inner in ast.walk(call) if isinstance(inner, ast.Subscript)}
    return [
        inner.value.strip()
        for argument in call.args
        for inner in ast.walk(argument)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner not in keys
    ]
