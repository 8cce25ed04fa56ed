"""Code that ran: what it does, read from its syntax, never from comments, printed text or names of files.

Python goes through ``ast``, shell text through the grammar of ``reading.bash``. Scripts that a call writes are
remembered, so that a later ``python script.py`` or ``import script`` is read as the script's code. Code is only
parsed, never run.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from automedbench.base.records import CodeCall
from automedbench.reading.case_choice import CaseChoice, ids_in
from automedbench.reading.child import read_bash
from automedbench.reading.command import Command, Language
from automedbench.reading.dataflow import Origins, OutputFlow, separate_scopes, swallowed
from automedbench.reading.python import dotted, parse_python, shell_texts

OUTPUT_FOLDER = "agents_outputs"

_MAX_DEPTH = 4
_PRINTS = frozenset(["print", "info", "debug", "warning", "error"])
_SCRIPT = re.compile(r"[\w./~-]+\.(?:py|sh)")
_SAYS = frozenset(["echo", "printf"])
_SILENT = _SAYS | {":", "true", "false", "cd", "export", "set"}
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
class Script:
    """A script file as a call wrote it."""

    language: str
    code: str
    turn: int


@dataclass
class CodeFacts:
    """What the code of one call does; ``strings`` are constants that are not merely printed.

    Imports and calls that may fail unseen are left out. ``keywords`` are arguments given by name, as ``name=value``.
    ``one_case`` and ``many_cases`` are where it picks a single case or goes through several, ``case_ids`` those that
    it names. ``shown`` holds the names of what it prints and of what that was made from, ``output_shown`` the same
    where it was read back from an output, ``said`` texts that are printed in any case. ``shell_checks`` are
    commands that compare what stands in an output.
    """

    imports: list[Spot] = field(default_factory=list)
    calls: list[Spot] = field(default_factory=list)
    strings: list[Spot] = field(default_factory=list)
    commands: list[Spot] = field(default_factory=list)
    output_reads: list[Spot] = field(default_factory=list)
    output_checks: list[Spot] = field(default_factory=list)
    output_shown: list[Spot] = field(default_factory=list)
    shell_checks: list[Spot] = field(default_factory=list)
    shown: list[Spot] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    keywords: list[Spot] = field(default_factory=list)
    one_case: list[Spot] = field(default_factory=list)
    many_cases: list[Spot] = field(default_factory=list)
    case_ids: set[str] = field(default_factory=set)


def read_calls(calls: Iterable[CodeCall], outputs: Iterable[str] = ()) -> list[CodeFacts]:
    """Facts of every call in order; ``outputs`` are file names that mark a path as an output."""
    markers = (OUTPUT_FOLDER, *outputs)
    scripts: dict[str, Script] = {}
    return [_read_call(call, scripts, markers) for call in calls]


def _read_call(call: CodeCall, scripts: dict[str, Script], markers: tuple[str, ...]) -> CodeFacts:
    reader = _Reader(scripts, markers, call.turn)
    with contextlib.suppress(RecursionError):  # a text so deep is none that an agent would run
        (reader.python if call.language == "python" else reader.shell)(call.code)
    return reader.facts


class _Reader:
    """Collects the facts of one call's code and of the scripts that it starts."""

    def __init__(self, scripts: dict[str, Script], markers: tuple[str, ...], turn: int) -> None:
        self.facts = CodeFacts()
        self.scripts, self.markers, self.turn = scripts, markers, turn
        self.started: set[str] = set()
        self.depth = 0

    def python(self, code: str, *, output_argument: bool = False, library: bool = False) -> None:
        tree = parse_python(code)
        if tree is None:
            return
        separate_scopes(tree)
        lines = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        nodes = list(ast.walk(tree)) if library else list(_live_nodes(tree))
        self._remember_written(nodes)
        unseen, origins = swallowed(nodes), Origins(nodes)
        for kind, name, node in _facts_of(nodes):
            if kind in ("imports", "calls", "keywords") and node in unseen:
                continue
            if kind != "imports" or not self._start(f"{name.partition('.')[0]}.py", library=True):
                getattr(self.facts, kind).append(self._spot(name, node, lines))
        prints = [node for node in nodes if _is_print(node)]
        self.facts.said += [text for call in prints for text in _texts_below(call)]
        self.facts.shown += [self._spot(" ".join(origins.of(*call.args)), call, lines) for call in prints]
        flow = OutputFlow(nodes, self.markers, output_argument=output_argument)
        self.facts.output_reads += [self._spot("read", node, lines) for node in flow.reads()]
        self.facts.output_checks += [
            self._spot(" ".join(origins.of(getattr(node, "test", node))), node, lines)
            for node in flow.checks()
            if node not in unseen
        ]
        shows = [call for call in flow.shows(prints) if call not in unseen]
        self.facts.output_shown += [self._spot(" ".join(origins.of(*call.args)), call, lines) for call in shows]
        choice = CaseChoice(nodes)
        self.facts.one_case += [self._spot("one case", node, lines) for node in choice.one()]
        self.facts.many_cases += [self._spot("many cases", node, lines) for node in choice.many()]
        self.facts.case_ids |= ids_in(" ".join(spot.name for spot in self.facts.strings))
        for _, command in shell_texts(nodes):
            self._nested("bash", command)

    def shell(self, text: str) -> None:
        commands = read_bash(text)
        for command in commands:
            if command.written is not None:
                self._remember(*command.written)
        for command in commands:
            self._command(command)
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

    def _spot(self, name: str, node: ast.AST, lines: list[str]) -> Spot:
        number = getattr(node, "lineno", 1)
        return Spot(name, lines[number - 1].strip() if number <= len(lines) else "", self.turn)

    def _remember(self, path: str, body: str) -> None:
        name = path.rpartition("/")[2]
        self.scripts[name] = Script("python" if name.endswith(".py") else "bash", body, self.turn)

    def _remember_written(self, nodes: list[ast.AST]) -> None:
        """A script written by Python: one constant file name, one constant text of several lines."""
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        names = {text for text in texts if _SCRIPT.fullmatch(text)}
        bodies = [text for text in texts if text.count("\n") > 1]
        if len(names) == 1 and len(bodies) == 1:
            self._remember(names.pop(), bodies[0])

    def _command(self, command: Command) -> None:
        words = command.run
        if words and words[0] in _SAYS:
            self.facts.said += [word.strip() for word in words[1:]]
        if not words or words[0] in _SILENT:
            return
        spot = Spot(" ".join(words), " ".join(words), self.turn)
        self.facts.commands.append(spot)
        self.facts.case_ids |= ids_in(spot.name)
        output = any(marker in word for marker in self.markers for word in words[1:])
        if output and _compares(words):
            self.facts.output_reads.append(spot)
            self.facts.shell_checks.append(spot)
        if command.started is not None:
            self._nested(*command.started)
        elif command.script:
            self._start(command.script, output_argument=output)

    def _start(self, name: str, *, output_argument: bool = False, library: bool = False) -> bool:
        """Read a script that was written before; false when no such script is known."""
        script = self.scripts.get(name)
        if script is None or name in self.started:
            return script is not None
        self.started.add(name)
        turn, self.turn = self.turn, script.turn
        if script.language == "python":
            self.python(script.code, output_argument=output_argument, library=library)
        else:
            self.shell(script.code)
        self.turn = turn
        return True


def _compares(words: tuple[str, ...]) -> bool:
    """Whether a command looks at fields of a file and compares or counts them, so that a fault would show."""
    pattern = _COMPARES.get(words[0])
    return pattern is not None and any(pattern.search(word) for word in words[1:])


def third_party(name: str) -> bool:
    """Whether an imported module comes from an installed package."""
    return name.partition(".")[0] not in sys.stdlib_module_names


def _live_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but those below ``if False`` and in functions that nothing refers to, in source order."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
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
        if not function or isinstance(node, ast.ClassDef) or getattr(child, "name", "") in used:
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
