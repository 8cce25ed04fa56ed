"""Container program of this machine, and what it says when it fails."""

from __future__ import annotations

import re
import shutil

from automedbench.base.errors import MissingDataError

# Apptainer resets the terminal's colour even with --nocolor.
_NOISE = re.compile(r"^(?:\x1b\[[0-9;]*m)*(?:FATAL|ERROR)\s*:\s*|\x1b\[[0-9;]*[A-Za-z]")


def find_runtime() -> str:
    """Absolute path of the apptainer program; raises MissingDataError when there is none."""
    found = shutil.which("apptainer")
    if found is None:
        raise MissingDataError(
            "Apptainer is not installed (no 'apptainer' on PATH).\nInstall it or load its module, or set "
            "sandbox.backend: local for trusted scripted agents only."
        )
    return found


def last_words(output: bytes) -> str:
    """The last line of a program's output that says something, without terminal escapes and levels."""
    lines = [_NOISE.sub("", line).strip() for line in output.decode("utf-8", "replace").splitlines()]
    return next((line[:400] for line in reversed(lines) if line), "it said nothing")
