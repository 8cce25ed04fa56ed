"""Lines of code that a call ran, with those of the run's own scripts that it started, found by regular expressions.

Code is quoted, not interpreted: no value is followed, and no branch is decided. Comments, printed constants and texts
in triple quotes are no code; a script counts where it is started, not where it is written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from automedbench.base.records import CodeCall

OUTPUT_FOLDER = "agents_outputs"
MAX_CODE = 256 * 1024
"""Characters of one call that are read."""
MAX_LINE = 2_000
"""Characters of a line that are read as code."""

_SOURCE = re.compile(r"\.(?:py|sh|R|r|jl|m?js|ts|cpp|cc|c|go|rs|java|m|pl|rb|ipynb)$")
_HERE = re.compile(r"(.*?)<<-?\s*['\"]?(\w+)['\"]?(.*)")
_INTERPRETS = re.compile(r"\b(?:python[\d.]*|(?:ba|da|z)?sh|Rscript|R|julia|octave|node|perl|ruby)\b[^|;&>]*$")
_TARGET = re.compile(r"(?:>|\btee(?:\s+-a)?\s)\s*[\"']?([^\s\"'<>|;&]+)")
_PATCHED = re.compile(r"^\*\*\* \w+ File: (\S+)\n", re.MULTILINE)
TRIPLE = re.compile(r"(\"\"\"|''')(.*?)\1", re.DOTALL)
_LOOKS_AT = re.compile(r"^\s*(?:cat|ls|chmod|sed|cp|mv|rm|head|tail|wc|git|grep|touch|diff|less|mkdir|stat)\b")
_COMMENT = re.compile(r"^\s*(?:#(?!include)|//).*$|\s(?:#|//)\s[^'\"]*$")
_SAID = re.compile(
    r"\b(?:print(?:ln)?|info|cat|message|puts|disp)\(\s*(['\"])(?:(?!\1).)*\1\s*\)"
    r"|\b(?:echo|printf)\s+[^|;&>$`]*(?=$|[|;&>])"
)
_PRINTS = re.compile(r"\b(?:print|echo|printf|log|info|cat)\b")
_LITERAL = re.compile(r"[\"']((?:[^\"'\\\n]|\\.){2,200})[\"']")
_TRY, _EXCEPT = re.compile(r"^\s*try:"), re.compile(r"^\s*except\b[^\n]*:(.*)")
_TELLS = re.compile(r"\b(?:raise|exit|append|False|fail\w*|error\w*|exc_info|traceback|e)\b", re.IGNORECASE)
_IMPORT = re.compile(
    r"(?:^|[;'\"])\s*(?:import\s+([\w.]+(?: as \w+)?(?:\s*,\s*[\w.]+(?: as \w+)?)*)|from\s+(\w[\w.]*)\s+import\b)"
)


@dataclass(frozen=True)
class CodeLine:
    """A line as it was written, its turn, and what of it is code; ``unseen``: its failure would go unnoticed."""

    text: str
    turn: int
    code: str
    unseen: bool = False


class Scripts:
    """The run's own scripts by path, as far as its calls show them."""

    def __init__(self) -> None:
        self._lines: dict[str, list[CodeLine]] = {}

    def read(self, call: CodeCall) -> list[CodeLine]:
        """The lines that a call ran; those of a script stand behind the first line that starts it."""
        written: dict[str, str] = {}
        text = "\n".join(without_documents(call.code[:MAX_CODE].split("\n"), written))
        for path, body in written.items():
            before = self._lines.get(path, []) if "*** Update" in call.code else []
            self._lines[path] = [*before, *split_lines(_cells(body), call.turn)]
        names = {path.rpartition("/")[2] for path in written}
        for path in call.new_files:
            if _SOURCE.search(path) and path.rpartition("/")[2] not in names:
                body = max((match[2] for match in TRIPLE.finditer(text)), key=len, default=text)
                self._lines[path] = [*self._lines.get(path, []), *split_lines(body, call.turn)]
        return list(self._with_started(split_lines(TRIPLE.sub("''", text), call.turn), set()))

    def _with_started(self, lines: Iterable[CodeLine], seen: set[str]) -> Iterator[CodeLine]:
        for line in lines:
            yield line
            for path in [path for path in self._lines if path not in seen and _starts(line.code, path)]:
                seen.add(path)
                yield from self._with_started(self._lines[path], seen)

    @property
    def modules(self) -> frozenset[str]:
        """Names under which they may be imported."""
        return frozenset(part for path in self._lines for part in re.split(r"[/.]", path))


def without_documents(lines: list[str], written: dict[str, str]) -> Iterator[str]:
    """Lines of a shell text; a here-document is code where an interpreter gets it, else it fills ``written`` files."""
    number = 0
    while number < len(lines):
        here = _HERE.match(lines[number][:MAX_LINE])
        number += 1
        if here is None:
            yield lines[number - 1]
            continue
        head, end, rest = here.groups()
        begin = number
        while number < len(lines) and lines[number].strip() != end:
            number += 1
        body, number = lines[begin:number], number + 1
        if _INTERPRETS.search(head):
            yield from (head + rest, *body)
        else:
            written |= _files(head + rest, "\n".join(body))


def _files(command: str, body: str) -> dict[str, str]:
    """Source files that a here-document writes, by a redirection or as a patch."""
    target = _TARGET.search(command)
    if target is not None:
        return {target[1]: body} if _SOURCE.search(target[1]) else {}
    _, *parts = _PATCHED.split(body)
    added = ("\n".join(line[1:] for line in text.split("\n") if line.startswith("+")) for text in parts[1::2])
    return {path: text for path, text in zip(parts[::2], added, strict=True) if _SOURCE.search(path)}


def _cells(body: str) -> str:
    """The code of a notebook; any other text as it is."""
    try:
        cells = json.loads(body)["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    except (ValueError, TypeError, KeyError, RecursionError):
        return body


def _starts(code: str, path: str) -> bool:
    """A line runs or imports a script, its module, or its package."""
    folder, _, name = path.rpartition("/")
    stem, package = re.escape(name.rpartition(".")[0]), re.escape(folder.rpartition("/")[2] or name)
    if stem not in code and package not in code:
        return False
    parts = (part for part in re.split(r"&&|\|\||[;|]", code) if not _LOOKS_AT.search(part))
    if any(re.search(rf"(?<![\w.-]){re.escape(name)}\b|\./{stem}\b", part) for part in parts):
        return True
    return re.search(rf"(?:\bimport|\bfrom|-m)\s+(?:[\w.]*\b{stem}\b|{package}\b)", code) is not None


def split_lines(text: str, turn: int) -> list[CodeLine]:
    """Lines of a text that are not blank, with what of each is code."""
    lines = text.split("\n")
    unseen = _swallowed(lines)
    return [
        CodeLine(line, turn, _SAID.sub("", _COMMENT.sub("", line[:MAX_LINE])), i in unseen)
        for i, line in enumerate(lines)
        if line.strip()
    ]


def _swallowed(lines: list[str]) -> set[int]:
    """Numbers of lines in a ``try`` whose handler neither stops nor tells."""
    begun: list[int] = []
    found: set[int] = set()
    for number, line in enumerate(lines):
        if _TRY.match(line):
            begun.append(number)
        elif begun and (handler := _EXCEPT.match(line)):
            begin = begun.pop()
            if not _TELLS.search(" ".join([handler[1], *lines[number + 1 : number + 2]])):
                found.update(range(begin, number))
    return found


def said(lines: Iterable[CodeLine]) -> set[str]:
    """Literal texts in lines that print: what is printed whatever happens."""
    literals = (match[1] for line in lines if _PRINTS.search(line.text) for match in _LITERAL.finditer(line.text))
    return {part.strip() for text in literals for part in re.split(r"\{[^{}]*\}|\\n", text) if len(part.strip()) > 1}


def first(lines: Iterable[CodeLine], pattern: re.Pattern[str]) -> CodeLine | None:
    """The first line whose code matches."""
    return next((line for line in lines if pattern.search(line.code)), None)


def imports(lines: Iterable[CodeLine], own: frozenset[str]) -> Iterator[tuple[str, CodeLine]]:
    """(top package, line) of installed packages that lines import; ``own``: the run's own modules."""
    for line in lines:
        for match in () if line.unseen else _IMPORT.finditer(line.code):
            for name in (match[1] or match[2]).split(","):
                top = re.split(r"[\s.]", name.strip())[0]
                if top not in sys.stdlib_module_names and top not in own:
                    yield top, line
