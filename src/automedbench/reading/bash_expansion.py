"""Expansion of known texts in Bash: operations of ``${name…}``, braces, output of commands that only change text."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re

from automedbench.reading.static_rules import HOLE, MAX_ALTERNATIVES, MAX_TEXT

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_SUBSTRING = re.compile(r"^:\s*(\d+)(?::\s*(\d+))?$")


def operate(value: str, operation: str) -> str:
    """The common operations of ``${name…}`` on a known value; others make a hole."""
    if not operation:
        return value
    if operation in (",,", "^^"):
        return value.lower() if operation == ",," else value.upper()
    if match := _SUBSTRING.match(operation):
        start = int(match[1])
        return value[start : start + int(match[2])] if match[2] else value[start:]
    if operation.startswith("/"):
        every = operation.startswith("//")
        old, _, new = operation.lstrip("/").partition("/")
        return value.replace(old, new) if every else value.replace(old, new, 1)
    if operation.startswith("%"):
        suffix = operation.lstrip("%")
        if suffix == "/*":
            return value.split("/")[0] if operation.startswith("%%") else value.rpartition("/")[0]
        return value.removesuffix(suffix)
    if operation.startswith("#") and not any(c in operation for c in "*?["):
        return value.removeprefix(operation.lstrip("#"))
    return HOLE


def _printf(form: str, values: list[str]) -> str:
    """``printf`` of strings; other conversions become holes."""
    remaining = iter(values)
    text = re.sub(r"%s", lambda _: next(remaining, ""), form)
    text = re.sub(r"%[-\d.]*[a-zA-Z]", HOLE, text)
    return text.replace("\\n", "\n").replace("\\t", "\t")[:MAX_TEXT]


def expand_braces(text: str) -> list[str]:
    """``a{b,c}d`` → ``abd acd``; innermost first, and no more than the permitted number."""
    found = [text]
    while len(found) < MAX_ALTERNATIVES:
        match = next((match for one in found if (match := _BRACES.search(one))), None)
        if match is None:
            break
        before, after = match.string[: match.start()], match.string[match.end() :]
        index = found.index(match.string)
        found[index : index + 1] = [before + one + after for one in match[1].split(",")[:MAX_ALTERNATIVES]]
    return found[:MAX_ALTERNATIVES]


def output_of(name: str, words: list[str], stdin: str | None, cwd: str) -> str | None:
    """Output of the few commands whose output is plain from the text; None for all others."""
    if name == "echo":
        return " ".join(word for word in words if word not in ("-n", "-e"))
    if name == "printf" and words:
        return _printf(words[0], words[1:])
    if name == "dirname" and words:
        return posixpath.dirname(words[0].rstrip("/")) or "."
    if name == "pwd":
        return cwd
    if stdin is None:
        return None
    if name in ("cat", "tee"):
        return stdin
    if name == "rev":
        return "\n".join(line[::-1] for line in stdin.split("\n"))
    if name == "base64" and {"-d", "--decode", "-di"}.intersection(words):
        return _from_base64(stdin)
    return None


def _from_base64(text: str) -> str | None:
    try:
        return base64.b64decode(text).decode("utf-8", "replace")[:MAX_TEXT]
    except (ValueError, binascii.Error):
        return None
