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
SCRIPT = re.compile(r"[\w./~-]+\.(?:py|sh|ipynb|R|r|jl|js|mjs|ts|cpp|cc|c|go|rs|java|m|pl|rb)")
"""The name of a script or source file."""
SOURCE = re.compile(r"(?<![\w.])[\w./~-]+\.(?:R|r|jl|js|mjs|ts|cpp|cc|c|go|rs|java|m|pl|rb|ipynb)(?!\w)")
"""The name of a source file of another language in a text."""
SERVES = re.compile(
    r"\b(?:vllm(?:\.entrypoints\S*)?|ollama|llama-server|llama-cli|text-generation-launcher|sglang\S*)\b"
)
"""Programs that serve or run a language model by its name or file."""
DOWNLOAD_COMMANDS = frozenset(["wget", "curl", "gdown", "aria2c", "huggingface-cli", "hf", "git", "kaggle"])
UNIX = frozenset(
    "cd ls cat cp mv rm mkdir rmdir touch head tail sort uniq grep egrep awk gawk sed cut tr wc find xargs tar unzip "  # noqa: SIM905
    "gzip gunzip zip chmod ln tee du df stat file identify nvidia-smi bash sh sleep time test [ dd truncate fallocate "
    "date ps kill which whoami uname free nproc basename dirname seq jq diff cmp md5sum sha256sum pip pip3 conda mamba "
    "uv apt apt-get virtualenv dot mmdc vi nano echo printf for export set open xdg-open true false : source . rsync "
    "install".split()
)
"""Programs that compute nothing of an image or a text."""
_RUNNERS = frozenset("pytest papermill Rscript julia node deno ruby perl octave go nbconvert jupyter".split())  # noqa: SIM905


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
    def inline(self) -> str | None:
        """Text of code in another language that stands in the command itself: ``Rscript -e``, ``julia -e``."""
        if not self.run or self.run[0].rpartition("/")[2] not in _RUNNERS or "-e" not in self.run[:-1]:
            return None
        return self.run[self.run.index("-e") + 1]

    @property
    def script(self) -> str:
        """Name of the script or test file that it starts, without folders; empty when there is none."""
        if not self.run:
            return ""
        program = self.run[0].rpartition("/")[2]
        starts = self.runs_python or program in _RUNNERS or _SHELL.fullmatch(program) or self.run[0].startswith("./")
        if not starts:
            return ""
        if "-m" in self.run[:-1] and (module := self.run[self.run.index("-m") + 1]) not in ("pytest", "unittest"):
            return f"{module.rpartition('.')[2]}.py"
        return next((word.partition("::")[0].rpartition("/")[2] for word in self.run if SCRIPT.match(word)), "")

    @property
    def written(self) -> tuple[str, str] | None:
        """Name and text of a script that it writes: a here-document, or what it echoes."""
        files = [file for operator, file in self.targets if ">" in operator] + list(self.words[1:])
        name = next((file.rpartition("/")[2] for file in files if SCRIPT.fullmatch(file)), None)
        if name is None or not self.words:
            return None
        said = " ".join(self.words[1:]) if self.words[0] in ("echo", "printf") else None
        text = self.document if self.words[0] in ("cat", "tee") else said
        return (name, text) if text is not None else None
