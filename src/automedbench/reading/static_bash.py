"""Static analysis of Bash: words with quotes removed, variables propagated, nested code looked into.

Not a shell: it follows the text once from top to bottom and takes every branch. What it can't know is a hole.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from automedbench.reading.bash_expansion import expand_braces, operate, output_of
from automedbench.reading.bash_words import ArrayToken, Operator, Part, Token, Word, tokenise
from automedbench.reading.static_calls import metadata_hits
from automedbench.reading.static_rules import (
    HOLE,
    HOME,
    MAX_ALTERNATIVES,
    MAX_TEXT,
    Hit,
    Scope,
    command_hits,
    path_hits,
    resolve,
    write_hits,
)

PythonCheck = Callable[[str, Scope, int], list[Hit]]

MAX_DEPTH = 8
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)\+?=")
_RESERVED = {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "esac", "!", "{", "}", "time"}
_SHELLS = {"bash", "sh", "dash", "zsh", "ksh", "ash"}
_PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
# Run another command: the options of theirs that take a value of their own.
_PREFIXES = {
    "sudo": "u g C D h p",
    "env": "u C S",
    "command": "",
    "exec": "a",
    "builtin": "",
    "nohup": "",
    "nice": "n",
    "ionice": "c n",
    "timeout": "k s",
    "stdbuf": "i o e",
    "setsid": "",
    "xargs": "a d E I L n P s",
    "busybox": "",
    "time": "f o",
    "strace": "e o p s",
}


@dataclass
class _Command:
    """A simple command as read: words with the texts they may have, redirections, standard input if known."""

    line: int
    words: list[list[str]] = field(default_factory=list)
    redirections: list[tuple[str, list[str]]] = field(default_factory=list)
    stdin: str | None = None


class BashCheck:
    """One pass over a script; collects hits."""

    def __init__(self, scope: Scope, python: PythonCheck, depth: int = 0) -> None:
        self.scope = scope
        self.hits: list[Hit] = []
        self._python = python
        self._depth = depth
        self._expanding = 0
        self._cwd = HOME
        self._variables: dict[str, list[str]] = {
            "DATA_DIR": ["/data/public"],
            "WORKSPACE": [HOME],
            "HOME": [HOME],
            "TMPDIR": ["/tmp"],
        }
        self._written: dict[str, str] = {}

    def check(self, code: str, first_line: int = 1) -> list[Hit]:
        """Analyse a script; the hits so far."""
        if self._depth <= MAX_DEPTH and self.scope.effort.allows(code):
            self._run(tokenise(code, first_line))
        return self.hits

    def _run(self, tokens: list[Token]) -> None:
        piped: str | None = None
        for command, separator in self._commands(tokens):
            if command.stdin is None:
                command.stdin = piped
            output = self._execute(command)
            piped = output if separator in ("|", "|&") else None

    def _commands(self, tokens: list[Token]) -> Iterator[tuple[_Command, str]]:
        """Simple commands in order, each expanded only when its turn has come, because variables change."""
        reader = _Reader(self, tokens)
        while reader.more:
            yield reader.next()

    # --- words -------------------------------------------------------------------------------------------------

    def expand(self, word: Word) -> list[str]:
        """Texts that a word may have."""
        texts = [""]
        for part in word.parts:
            values = self._part(part)
            texts = [(a + b)[:MAX_TEXT] for a, b in itertools.product(texts, values)][:MAX_ALTERNATIVES]
        if word.braces:
            texts = [text for one in texts for text in expand_braces(one)][:MAX_ALTERNATIVES]
        return texts

    def _part(self, part: Part) -> list[str]:
        if part.kind == "text":
            return [part.text]
        if part.kind == "code":
            return self._substitute(part.text, part.line)
        if part.kind == "quoted":
            return self.expand(Word(part.parts, part.line))
        return self._variable(part.text)

    def _variable(self, expression: str) -> list[str]:
        """Value of what stands between ``${`` and ``}``."""
        match = re.match(r"^([A-Za-z_]\w*)(.*)$", expression, re.DOTALL)
        if match is None:
            return [HOLE]
        name, operation = match[1], match[2]
        known = [self._cwd] if name == "PWD" else self._variables.get(name)
        if operation.startswith(("[", "@")):
            return known or [HOLE]
        if operation.startswith((":-", ":=", "-", "=")):
            default = operation.lstrip(":")[1:]
            return known if known else self.expand_text(default)
        return [operate(value, operation) for value in known] if known else [HOLE]

    def expand_text(self, text: str) -> list[str]:
        """Texts of a string in which variables are expanded as between double quotes."""
        if self._expanding >= MAX_DEPTH:
            return [HOLE]
        words = [token for token in tokenise(f'"{text}"', 1) if isinstance(token, Word)]
        self._expanding += 1
        try:
            return self.expand(words[0]) if words else [""]
        finally:
            self._expanding -= 1

    def _substitute(self, code: str, line: int) -> list[str]:
        """Analyse ``$(…)`` and give its output where that is plain."""
        inner = self._nested()
        inner._cwd, inner._variables = self._cwd, dict(self._variables)
        outputs: list[str | None] = []
        if inner._depth <= MAX_DEPTH and self.scope.effort.allows(code):
            for command, _ in inner._commands(tokenise(code, line)):
                outputs.append(inner._execute(command))
        self.hits += inner.hits
        return [outputs[0].rstrip("\n")] if len(outputs) == 1 and outputs[0] is not None else [HOLE]

    def _nested(self) -> BashCheck:
        return BashCheck(self.scope, self._python, self._depth + 1)

    # --- commands ----------------------------------------------------------------------------------------------

    def assign(self, name: str, values: list[str], *, append: bool = False) -> None:
        """Set a variable."""
        if append:
            values = [a + b for a, b in itertools.product(self._variables.get(name, [""]), values)]
        self._variables[name] = values[:MAX_ALTERNATIVES]

    def _execute(self, command: _Command) -> str | None:
        """Check one command; its output where that is plain text."""
        for operator, targets in command.redirections:
            self._redirect(operator, targets, command.line)
        words = _unwrap(command.words)
        if not words or not words[0] or HOLE in words[0][0]:
            return command.stdin
        name = posixpath.basename(words[0][0].lstrip("\\"))
        arguments = words[1:]
        if name == "cd":
            self._change_folder(arguments)
        self.hits += path_hits(words[0][0], command.line, self.scope, self._cwd) if "/" in words[0][0] else []
        self.hits += command_hits(name, arguments, command.line, self.scope, self._cwd)
        self.hits += metadata_hits((text for texts in arguments for text in texts), command.line)
        self._look_inside(name, words, command)
        return self._output(name, arguments, command)

    def _redirect(self, operator: str, targets: list[str], line: int) -> None:
        for target in targets:
            hits = path_hits(target, line, self.scope, self._cwd)
            self.hits += hits or (write_hits(target, line, self._cwd) if ">" in operator else [])

    def _change_folder(self, arguments: list[list[str]]) -> None:
        target = arguments[0][0] if arguments and arguments[0] else HOME
        if HOLE not in target and target != "-":
            self._cwd = resolve(target, self._cwd)

    def _look_inside(self, name: str, words: list[list[str]], command: _Command) -> None:
        """Code handed to an interpreter: as argument, on standard input, or as a file of the workspace."""
        texts = [alternatives[0] if alternatives else HOLE for alternatives in words[1:]]
        if name == "eval":
            self._shell(" ".join(texts), command.line)
        elif name == "trap" and len(texts) > 1:
            self._shell(texts[0], command.line)
        elif name in ("source", "."):
            self._file(texts[0] if texts else "", False)
        elif name in _SHELLS or _PYTHON.match(name):
            self._interpreter(texts, bool(_PYTHON.match(name)), command)
        elif "/" in words[0][0]:
            self._file(words[0][0], words[0][0].endswith(".py"))
        elif name == "find" and any(word in ("-exec", "-execdir") for word in texts):
            index = next(i for i, word in enumerate(texts) if word in ("-exec", "-execdir"))
            self._execute(_Command(command.line, words[index + 2 :]))

    def _interpreter(self, texts: list[str], python: bool, command: _Command) -> None:
        for index, text in enumerate(texts):
            if re.match(r"^-[A-Za-z]*c$", text):
                code = texts[index + 1] if index + 1 < len(texts) else ""
                return self._code(code, python, command.line)
            if python and text in ("-m", "-W", "-X"):
                return None
            if text == "-" or (text == "-s" and not python):
                break
            if not text.startswith("-"):
                return self._file(text, python)
        return self._code(command.stdin, python, command.line) if command.stdin else None

    def _code(self, code: str, python: bool, line: int) -> None:
        if python:
            self.hits += self._python(code, self.scope, self._depth + 1)
        else:
            self._shell(code, line)

    def _shell(self, code: str, line: int) -> None:
        inner = self._nested()
        inner._cwd, inner._variables = self._cwd, dict(self._variables)
        self.hits += inner.check(code.replace(HOLE, "$_"), line)

    def _file(self, name: str, python: bool) -> None:
        """A script that was written by this call or lies in the workspace."""
        if not name or HOLE in name or self._depth >= MAX_DEPTH:
            return
        path = resolve(name, self._cwd)
        text = self._written.get(path)
        if text is None and self.scope.read is not None and path.startswith(f"{HOME}/"):
            text = self.scope.read(path.removeprefix(f"{HOME}/"))
        if text is not None:
            self._code(text, python, 1)

    def _output(self, name: str, arguments: list[list[str]], command: _Command) -> str | None:
        """Output of the few commands whose output is plain from the text."""
        texts = [alternatives[0] if alternatives else HOLE for alternatives in arguments]
        output = output_of(name, texts, command.stdin, self._cwd)
        if output is not None:
            self._remember(name, texts, command, output)
        return output

    def _remember(self, name: str, texts: list[str], command: _Command, output: str) -> None:
        """Note what a command writes into a file, for when that file is executed."""
        targets = [target for operator, found in command.redirections if ">" in operator for target in found]
        for target in [*targets, *(texts if name == "tee" else [])]:
            if HOLE not in target:
                self._written[resolve(target, self._cwd)] = output


class _Reader:
    """Takes simple commands off a token list."""

    def __init__(self, check: BashCheck, tokens: list[Token]) -> None:
        self._check = check
        self._tokens = tokens
        self._at = 0

    @property
    def more(self) -> bool:
        """Tokens are left."""
        return self._at < len(self._tokens)

    def next(self) -> tuple[_Command, str]:
        """The next command and the separator after it."""
        command = _Command(self._tokens[self._at].line)
        while self.more:
            token = self._tokens[self._at]
            self._at += 1
            if isinstance(token, Operator) and not token.redirects:
                return command, token.text
            self._take(token, command)
        return command, ""

    def _take(self, token: Token, command: _Command) -> None:
        if isinstance(token, Operator):
            self._redirection(token, command)
        elif isinstance(token, ArrayToken):
            values = [text for word in token.words for text in self._check.expand(word)]
            self._check.assign(token.name, values)
        elif not command.words and token.plain in _RESERVED:
            return
        elif not command.words and token.plain in ("for", "select", "case", "function"):
            self._compound(token.plain)
        elif not command.words and (match := _ASSIGNMENT.match(token.plain_start)):
            values = [text[match.end() :] for text in self._check.expand(token)]
            self._check.assign(match[1], values, append=match[0].endswith("+="))
        else:
            texts = self._check.expand(token)
            command.words += [[text] for text in texts] if token.braces and len(texts) > 1 else [texts]

    def _redirection(self, token: Operator, command: _Command) -> None:
        if token.body is not None:
            command.stdin = self._check.expand(token.body)[0]
        elif self._at < len(self._tokens) and isinstance(word := self._tokens[self._at], Word):
            self._at += 1
            texts = self._check.expand(word)
            if token.text.endswith("<<<"):
                command.stdin = texts[0]
            elif not token.text.endswith(("&", "<<")):
                command.redirections.append((token.text, texts))

    def _compound(self, keyword: str) -> None:
        """``for x in …`` sets x to each of the words; heads of other compounds hold no command."""
        head: list[Word] = []
        while self._at < len(self._tokens) and isinstance(word := self._tokens[self._at], Word):
            self._at += 1
            head.append(word)
            if keyword in ("case", "function") and (keyword == "function" or word.plain == "in"):
                return
        if keyword in ("for", "select") and len(head) > 2 and head[1].plain == "in":
            values = [text for word in head[2:] for text in self._check.expand(word)]
            self._check.assign(head[0].plain or "", values)


def _unwrap(words: list[list[str]]) -> list[list[str]]:
    """Remove what only runs another command: sudo, env, timeout 60, …"""
    while words and words[0] and (name := posixpath.basename(words[0][0])) in _PREFIXES:
        rest = words[1:]
        if not rest:
            return words
        with_value = _PREFIXES[name].split()
        while rest and rest[0] and (rest[0][0].startswith("-") or (name == "env" and "=" in rest[0][0])):
            option = rest[0][0]
            if name == "command" and option in ("-v", "-V"):
                return [["type"], *rest[1:]]
            rest = rest[2:] if option[1:] in with_value else rest[1:]
        words = rest[1:] if name == "timeout" else rest
    return words
