"""Command: one simple command of a shell, what it starts, and the script that it writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Language = Literal["python", "bash"]

_PREFIXES = {"time", "sudo", "env", "nohup", "exec", "command", "builtin", "nice", "ionice", "timeout", "stdbuf"}
_PREFIXES |= {"setsid", "xargs", "busybox", "strace"}
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*")
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k|a)?sh")
_SCRIPT = re.compile(r"[\w./~-]+\.(?:py|sh)")


@dataclass(frozen=True)
class Command:
    """A simple command: words without their quotes (expansions as written), and what it is given and writes to.

    ``targets`` are files of redirections with their operators, ``document`` a here-document or here-string,
    ``assigned`` names with values. Words are missing where something is only assigned, or a block is redirected.
    """

    words: tuple[str, ...]
    line: int
    targets: tuple[tuple[str, str], ...] = ()
    document: str | None = None
    assigned: tuple[tuple[str, str], ...] = ()

    @property
    def run(self) -> tuple[str, ...]:
        """The words from the name of the program on: ``sudo -n env A=1 timeout 5 ls`` runs ``ls``."""
        words = self.words
        while len(words) > 1 and words[1] not in ("-v", "-V") and (words[0] in _PREFIXES or "=" in words[0]):
            words = words[1:]
            while len(words) > 1 and (words[0].startswith("-") or words[0][:1].isdigit()):
                words = words[1:]
        return words

    @property
    def runs_python(self) -> bool:
        """It starts Python."""
        return bool(self.run) and _PYTHON.fullmatch(self.run[0]) is not None

    @property
    def started(self) -> tuple[Language, str] | None:
        """Language and text of code that stands in the command itself, as argument or here-document."""
        name, *arguments = self.run or ("",)
        if name == "eval":
            return "bash", " ".join(arguments)
        language: Language = "python" if self.runs_python else "bash"
        if not self.runs_python and not _SHELL.fullmatch(name):
            return None
        for number, word in enumerate(arguments[:-1]):
            if re.fullmatch(r"-[a-z]*c", word):
                return language, arguments[number + 1]
        alone = all(word.startswith("-") for word in arguments)
        return (language, self.document) if alone and self.document is not None else None

    @property
    def script(self) -> str:
        """Name of the script that it starts, without folders; empty when there is none."""
        if not self.run or not (self.runs_python or _SHELL.fullmatch(self.run[0]) or self.run[0].startswith("./")):
            return ""
        return next((word.rpartition("/")[2] for word in self.run if _SCRIPT.fullmatch(word)), "")

    @property
    def written(self) -> tuple[str, str] | None:
        """Name and text of a script that it writes: a here-document, or what it echoes."""
        files = [file for operator, file in self.targets if ">" in operator] + list(self.words[1:])
        name = next((file.rpartition("/")[2] for file in files if _SCRIPT.fullmatch(file)), None)
        if name is None or not self.words:
            return None
        said = " ".join(self.words[1:]) if self.words[0] in ("echo", "printf") else None
        text = self.document if self.words[0] in ("cat", "tee") else said
        return (name, text) if text is not None else None
