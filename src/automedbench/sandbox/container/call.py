"""Code call, what the two backends share of it: its file, and its result as the loop sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from automedbench.base import files
from automedbench.sandbox import CodeResult
from automedbench.sandbox.container.launcher import SUFFIXES
from automedbench.sandbox.container.process import Outcome, Stop, Watch

Language = Literal["python", "bash"]
Stopper = Callable[[], str | None]

NOTE = "[SANDBOX]"


def write_code(log: Path, call: int, language: Language, code: str) -> Path:
    """Write the code of a call to ``log/0007.py|sh``, outside of the workspace."""
    path = log.resolve() / f"{call:04d}{SUFFIXES[language]}"
    files.write_text(path, code)
    return path


def watch_of(stop: Stopper | None) -> Watch:
    """A watch that ends a call when ``stop`` gives a reason."""

    def look(_root: int) -> Stop | None:
        reason = None if stop is None else stop()
        return None if reason is None else Stop(reason)

    return look


def first_of(watches: Sequence[Watch]) -> Watch:
    """Several watches as one; the first reason counts, and those behind it are not asked."""

    def look(root: int) -> Stop | None:
        return next((stop for watch in watches if (stop := watch(root)) is not None), None)

    return look


def to_result(outcome: Outcome, timeout_s: float) -> CodeResult:
    """The result of a call; notes of the sandbox are appended to stderr so that the agent learns what happened."""
    code = outcome.exit_code
    if code is not None and code < 0:
        code = 128 - code  # as a shell reports a signal
    status, note = _status(outcome, code, timeout_s)
    stderr = outcome.stderr.text()
    if note:
        stderr += f"{NOTE} {note}" if not stderr or stderr.endswith("\n") else f"\n{NOTE} {note}"
    return CodeResult(
        status=status,
        exit_code=code,
        stdout=outcome.stdout.text(),
        stderr=stderr,
        elapsed_s=round(outcome.elapsed_s, 3),
        stdout_truncated=outcome.stdout.truncated,
        stderr_truncated=outcome.stderr.truncated,
    )


def _status(
    outcome: Outcome, code: int | None, timeout_s: float
) -> tuple[Literal["ok", "error", "timeout", "killed"], str]:
    if outcome.ending == "timeout":
        return "timeout", f"ended after {timeout_s:.0f} s (time limit of this call)"
    if outcome.ending == "stopped":
        return "killed", outcome.reason
    if code is None or code == 137:
        return "killed", "killed by the system, most likely because memory ran out"
    return ("ok", "") if code == 0 else ("error", "")
