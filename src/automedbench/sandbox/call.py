"""What the two backends share: the code file of a call, the size watch, and the result as the loop sees it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from automedbench import files
from automedbench.sandbox import CodeResult
from automedbench.sandbox.launcher import SUFFIXES
from automedbench.sandbox.process import Outcome

Watch = Callable[[], str | None]
Language = Literal["python", "bash"]

MAX_ENTRIES = 2_000_000  # files and folders of a workspace; sandbox specification, 5.3
NOTE = "[SANDBOX]"


def write_code(log: Path, call: int, language: Language, code: str) -> Path:
    """Write the code of a call to ``log/0007.py|sh``, outside of the workspace."""
    path = log.resolve() / f"{call:04d}{SUFFIXES[language]}"
    files.write_text(path, code)
    return path


def usage(folder: Path) -> tuple[int, int]:
    """Bytes on disk and number of entries below a folder; what vanishes meanwhile does not count."""
    size = entries = 0
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    entries += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
        except OSError:
            continue
    return size, entries


def size_watch(folders: list[Path], disk_gb: float | None) -> Watch:
    """A watch that ends a call whose workspace (with its /tmp) grows over the limit; None means no size limit.

    The next look waits twenty times as long as the last one took, so that large trees cost at most 5 % of a core.
    """
    next_look = 0.0

    def look() -> str | None:
        nonlocal next_look
        begin = time.monotonic()
        if begin < next_look:
            return None
        size, entries = (sum(column) for column in zip(*map(usage, folders), strict=True))
        end = time.monotonic()
        next_look = end + 20 * (end - begin)
        if disk_gb is not None and size > disk_gb * 1e9:
            return f"disk limit: the workspace holds {size / 1e9:.3g} GB, the limit is {disk_gb:g} GB"
        if entries > MAX_ENTRIES:
            return f"disk limit: the workspace holds {entries} files, the limit is {MAX_ENTRIES}"
        return None

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


def remove_tree(folder: Path) -> None:
    """Remove a scratch folder, also when the agent took its own permissions away."""

    def unlock(_function: object, path: str, _error: object) -> None:
        try:
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700, follow_symlinks=False) if not os.path.islink(path) else None
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)
        except OSError:
            return

    shutil.rmtree(folder, onerror=unlock)
