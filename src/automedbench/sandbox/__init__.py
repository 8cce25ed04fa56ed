"""Sandbox: where agent code runs, what it can reach, what is taken from it, and the evidence it leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from automedbench.base.records import CallStatus, Enforced, Finding, Language, Model, Seconds

__all__ = ["CodeResult", "Sandbox"]


class CodeResult(Model):
    """Outcome of one code call; streams are bounded (head and tail) and decoded with replacement."""

    status: CallStatus
    exit_code: int | None
    stdout: str
    stderr: str
    elapsed_s: Seconds
    stdout_truncated: bool = False
    stderr_truncated: bool = False


class Sandbox(Protocol):
    """A place to run agent code for one attempt. Use as a context manager: leaving it ends every process."""

    data_dir: str
    """Path of the public data as the agent's code sees it."""
    workspace_dir: str
    """Path of the workspace as the agent's code sees it."""
    enforced: Enforced

    def __enter__(self) -> Sandbox: ...

    def __exit__(self, *_: object) -> None: ...

    def run_code(
        self,
        language: Language,
        code: str,
        *,
        call: int,
        turn: int,
        log: Path,
        timeout_s: float,
        stop: Callable[[], str | None] | None = None,
    ) -> CodeResult:
        """Run one code call in a fresh process (tree) with the workspace as working directory.

        ``log`` is the folder outside the workspace that receives ``0007.py|sh``, ``0007.out`` and ``0007.err``.
        ``stop`` is asked about twice a second, from the waiting thread; a text ends the call as a limit does.
        Raises InfrastructureError when the sandbox itself cannot start.
        """
        ...

    def selfcheck(self) -> None:
        """Probe the isolation with the flags of a call; done on entering, and again after the last call.

        Raises InfrastructureError when something leaks: the machine's fault, not the agent's.
        """
        ...

    def drain_findings(self) -> list[Finding]:
        """Findings of tripwire, hook and telemetry since the last call of this method, in order."""
        ...
