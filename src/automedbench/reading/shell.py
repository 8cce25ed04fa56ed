"""Shell text cut into commands and here-documents; nothing is expanded or run."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator

_OPERATORS = "();<>|&\n"
_LEADS = frozenset(
    ["do", "then", "else", "elif", "if", "while", "!", "time", "sudo", "env", "nohup", "exec", "command"]
)
_SILENT = frozenset(["echo", "printf", ":", "true", "false", "cd", "export", "set"])
_COMPARES = {
    "jq": re.compile(r"[<>]|[!=]=|\b(?:select|length|keys|has|all|any|type|test)\b"),
    "awk": re.compile(r"[<>~]|[!=]="),
    "gawk": re.compile(r"[<>~]|[!=]="),
}
_SAYS = frozenset(["echo", "printf"])
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)(\w+)\1")
_ASSIGNMENT = re.compile(r"^\w+=")


def split_commands(text: str) -> list[list[str]]:
    """Words of every command; printing commands, comments, redirections and control words are left out."""
    commands: list[list[str]] = []
    for words in _segments(_words(text)):
        while words and (words[0] in _LEADS or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        if words and words[0] not in _SILENT:
            commands.append(words)
    return commands


def spoken(text: str) -> list[str]:
    """Texts that commands print whatever happens."""
    return [word.strip() for words in _segments(_words(text)) if words and words[0] in _SAYS for word in words[1:]]


def compares(words: list[str]) -> bool:
    """Whether a command looks at fields of a file and compares or counts them, so that a fault would show."""
    pattern = _COMPARES.get(words[0])
    return pattern is not None and any(pattern.search(word) for word in words[1:])


def take_heredocs(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text without here-documents, and (command line, body) of each."""
    rest: list[str] = []
    documents: list[tuple[str, str]] = []
    lines = iter(text.split("\n"))
    for line in lines:
        mark = _HEREDOC.search(line)
        if mark is None or line.lstrip().startswith("#"):
            rest.append(line)
        else:
            documents.append((line.strip(), "\n".join(_until(lines, mark.group(2)))))
    return "\n".join(rest), documents


def _until(lines: Iterator[str], end: str) -> Iterator[str]:
    for line in lines:
        if line.strip() == end:
            return
        yield line


def _words(text: str) -> list[str]:
    """Words and operators (the end of a line is one), up to a quote that is never closed."""
    # A comment swallows the end of its line, so every line ends twice.
    text = re.sub(r"\n+", "\n\n", text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.whitespace = True, " \t\r"
    words: list[str] = []
    with contextlib.suppress(ValueError):
        words.extend(lexer)
    return words


def _segments(words: list[str]) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    redirected = False
    for word in words:
        if word and set(word) <= set(_OPERATORS):
            redirected = word[-1] in "<>"
            if not redirected:
                segments.append([])
        elif redirected:
            redirected = False
        else:
            segments[-1].append(word)
    return segments
