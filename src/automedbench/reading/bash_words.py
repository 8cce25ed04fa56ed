"""Words and operators of a Bash script: quotes, expansions, here-documents, comments. Accepts any text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_OPERATORS = ("<<<", "&>>", "<<-", "&&", "||", ";;", "|&", "<<", ">>", "<&", ">&", "&>", "<>", ">|")
_SINGLE = ";&|()<>\n"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "e": "\x1b"}
_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|[0-7]{1,3}|.)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ARRAY = re.compile(r"([A-Za-z_]\w*)\+?=\(")


@dataclass(frozen=True)
class Part:
    """Piece of a word: literal text, a variable expression, code of a substitution, or something in quotes."""

    kind: Literal["text", "variable", "code", "quoted"]
    text: str
    line: int
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Word:
    """A word as written, in pieces."""

    parts: tuple[Part, ...]
    line: int
    braces: bool = False

    @property
    def plain(self) -> str | None:
        """The text of a word that is nothing but unquoted text."""
        return self.parts[0].text if len(self.parts) == 1 and self.parts[0].kind == "text" else None

    @property
    def plain_start(self) -> str:
        """The unquoted text that a word starts with."""
        return self.parts[0].text if self.parts and self.parts[0].kind == "text" else ""


@dataclass(frozen=True)
class Operator:
    """A separator or a redirection; a here-document carries its body."""

    text: str
    line: int
    body: Word | None = None

    @property
    def redirects(self) -> bool:
        """It belongs to a command instead of ending it."""
        return "<" in self.text or ">" in self.text


@dataclass(frozen=True)
class ArrayToken:
    """``name=(words)``."""

    name: str
    words: tuple[Word, ...]
    line: int


Token = Word | Operator | ArrayToken


def tokenise(code: str, first_line: int = 1) -> list[Token]:
    """Tokens of a script; unfinished quotes end with the text."""
    return _Lexer(code, first_line).tokens()


class _Lexer:
    def __init__(self, code: str, first_line: int) -> None:
        self.code = code.replace("\\\n", "")
        self.at = 0
        self.line = first_line
        self.pending: list[tuple[int, str, bool, bool]] = []

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        self._skip()
        while self.at < len(self.code):
            found.append(self._next(found))
            self._skip()
        return found

    def _skip(self) -> None:
        """Pass blanks and comments."""
        while self.at < len(self.code):
            if self.code[self.at] in " \t\r":
                self.at += 1
            elif self.code[self.at] == "#":
                end = self.code.find("\n", self.at)
                self.at = len(self.code) if end < 0 else end
            else:
                return

    def _next(self, found: list[Token]) -> Token:
        if match := _ARRAY.match(self.code, self.at):
            return self._array(match)
        operator = self._operator()
        if operator is None:
            return self._word(" \t\r" + _SINGLE)
        if operator in ("<<", "<<-"):
            return self._here_document(operator, found)
        token = Operator(operator, self.line)
        if operator == "\n":
            self.line += 1
            self._bodies(found)
        return token

    def _operator(self) -> str | None:
        if match := re.compile(r"\d+(?=[<>])").match(self.code, self.at):
            self.at = match.end()
        for operator in _OPERATORS:
            if self.code.startswith(operator, self.at):
                self.at += len(operator)
                return operator
        if self.code[self.at] in _SINGLE and not self._process_substitution():
            self.at += 1
            return self.code[self.at - 1]
        return None

    def _array(self, match: re.Match[str]) -> ArrayToken:
        line = self.line
        self.at = match.end()
        words = [token for token in tokenise(self._balanced("(", ")"), line) if isinstance(token, Word)]
        return ArrayToken(match[1], tuple(words), line)

    # --- here-documents ----------------------------------------------------------------------------------------

    def _here_document(self, operator: str, found: list[Token]) -> Operator:
        self._skip()
        start = self.at
        word = self._word(" \t\r" + _SINGLE)
        written = self.code[start : self.at]
        delimiter = "".join(part.text if part.kind == "text" else _flat(part) for part in word.parts)
        quoted = any(c in written for c in "'\"\\")
        self.pending.append((len(found), delimiter, quoted, operator == "<<-"))
        return Operator(operator, self.line)

    def _bodies(self, found: list[Token]) -> None:
        """Read the bodies that start after this line and attach them to their operators."""
        for index, delimiter, quoted, stripped in self.pending:
            first, lines = self.line, list[str]()
            while self.at < len(self.code):
                end = self.code.find("\n", self.at)
                end = len(self.code) if end < 0 else end
                text = self.code[self.at : end]
                self.at = min(end + 1, len(self.code))
                self.line += 1
                text = text.lstrip("\t") if stripped else text
                if text == delimiter:
                    break
                lines.append(text + "\n")
            body = "".join(lines)
            parts = (Part("text", body, first),) if quoted else _Lexer(body, first).double_quoted(None)
            operator = found[index]
            found[index] = Operator("<<", operator.line, Word(parts, first))
        self.pending.clear()

    # --- words -------------------------------------------------------------------------------------------------

    def _word(self, stops: str) -> Word:
        line, begin = self.line, self.at
        parts: list[Part] = []
        text: list[str] = []

        def flush() -> None:
            if text:
                parts.append(Part("text", "".join(text), line))
                text.clear()

        while self.at < len(self.code) and (self.code[self.at] not in stops or self._process_substitution()):
            special = self._special()
            if special is None:
                text.append(self.code[self.at])
                self.at += 1
            elif isinstance(special, str):
                text.append(special)
            else:
                flush()
                parts.append(special)
        flush()
        if self.at == begin:
            self.at += 1  # never stand still
        written = self.code[begin : self.at]
        return Word(tuple(parts), line, braces="{" in written and "," in written and "'" not in written)

    def _process_substitution(self) -> bool:
        return self.code.startswith(("<(", ">("), self.at)

    def _special(self) -> Part | str | None:
        """Quote, escape or expansion at this place; None for a plain character."""
        code, at, line = self.code, self.at, self.line
        character = code[at]
        if character == "\\":
            self.at += 2
            return code[at + 1 : at + 2]
        if character == "'":
            return Part("quoted", "", line, (Part("text", self._until("'", 1), line),))
        if character == '"':
            self.at += 1
            return Part("quoted", "", line, self.double_quoted('"'))
        if code.startswith("$'", at):
            return Part("quoted", "", line, (Part("text", _ansi(self._ansi_text()), line),))
        if code.startswith('$"', at):
            self.at += 2
            return Part("quoted", "", line, self.double_quoted('"'))
        if self._process_substitution():
            self.at += 2
            return Part("code", self._balanced("(", ")"), line)
        return self._expansion()

    def _expansion(self) -> Part | None:
        code, at, line = self.code, self.at, self.line
        if code[at] == "`":
            return Part("code", self._until("`", 1), line)
        if code[at] != "$":
            return None
        if code.startswith("$((", at):
            self.at += 3
            self._balanced("(", ")")
            self.at += 1
            return Part("variable", "", line)
        if code.startswith("$(", at):
            self.at += 2
            return Part("code", self._balanced("(", ")"), line)
        if code.startswith("${", at):
            self.at += 2
            return Part("variable", self._balanced("{", "}"), line)
        if match := _NAME.match(code, at + 1):
            self.at = match.end()
            return Part("variable", match[0], line)
        return None

    def double_quoted(self, end: str | None) -> tuple[Part, ...]:
        """Pieces up to the closing quote (or the end of the text)."""
        parts: list[Part] = []
        text: list[str] = []
        while self.at < len(self.code) and self.code[self.at] != end:
            character = self.code[self.at]
            expansion = self._expansion()
            if expansion is not None:
                parts += [Part("text", "".join(text), self.line), expansion]
                text.clear()
                continue
            if character == "\\" and self.code[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\"):
                self.at += 1
                character = self.code[self.at]
            self.line += character == "\n"
            text.append(character)
            self.at += 1
        self.at += 1
        return (*parts, Part("text", "".join(text), self.line))

    def _until(self, end: str, skip: int) -> str:
        start = self.at + skip
        stop = self.code.find(end, start)
        stop = len(self.code) if stop < 0 else stop
        self.at = stop + 1
        self.line += self.code.count("\n", start, stop)
        return self.code[start:stop]

    def _ansi_text(self) -> str:
        match = re.compile(r"\$'((?:[^'\\]|\\.)*)'?", re.DOTALL).match(self.code, self.at)
        assert match is not None
        self.at = match.end()
        self.line += match[0].count("\n")
        return match[1]

    def _balanced(self, opening: str, closing: str) -> str:
        """Text up to the closing bracket that belongs to the one just passed; quotes are respected."""
        start, depth = self.at, 1
        while self.at < len(self.code) and depth:
            character = self.code[self.at]
            if character == "\\":
                self.at += 1
            elif character in "'\"":
                self.at = self._quote_end(character)
            depth += (character == opening) - (character == closing)
            self.at += 1
        self.line += self.code.count("\n", start, self.at)
        return self.code[start : self.at - 1] if depth == 0 else self.code[start : self.at]

    def _quote_end(self, quote: str) -> int:
        at = self.at + 1
        while at < len(self.code) and self.code[at] != quote:
            at += 2 if self.code[at] == "\\" and quote == '"' else 1
        return at


def _flat(part: Part) -> str:
    return part.text + "".join(_flat(inner) for inner in part.parts)


def _ansi(text: str) -> str:
    def decode(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xu" and len(code) > 1:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _ESCAPES.get(code, code)

    return _ANSI.sub(decode, text)
