"""Local backend: code runs as a plain child process. It isolates nothing and is for trusted scripts only."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from automedbench.base.cards import Limits
from automedbench.base.records import Enforced, Finding, Language
from automedbench.sandbox import CodeResult
from automedbench.sandbox.container.launcher import agent_environment
from automedbench.sandbox.container.process import (
    Stopper,
    default_limits,
    first_of,
    run_process,
    to_result,
    watch_of,
    write_code,
)
from automedbench.sandbox.container.scratch import make_scratch, remove_scratch
from automedbench.sandbox.container.watchdog import Watchdog

WARNING = "The local sandbox isolates nothing: code can read and change all that this user can."


class LocalSandbox:
    """Runs code with this interpreter, a clean environment and the workspace as working directory."""

    def __init__(self, *, public: Path, workspace: Path, limits: Limits | None = None) -> None:
        self.data_dir = str(public.resolve())
        self.workspace_dir = str(workspace.resolve())
        self.enforced = Enforced(backend="local", network="open")
        self._limits = limits or Limits()

    def __enter__(self) -> LocalSandbox:
        logging.getLogger(__name__).warning(WARNING)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to end: each call cleans up after itself."""

    def run_code(
        self,
        language: Language,
        code: str,
        *,
        call: int,
        turn: int,
        log: Path,
        timeout_s: float,
        stop: Stopper | None = None,
    ) -> CodeResult:
        """See ``Sandbox.run_code``."""
        path = write_code(log, call, language, code)
        program = sys.executable if language == "python" else "bash"
        tmp = make_scratch("call-")
        try:
            outcome = run_process(
                [program, str(path)],
                env=self._environment(str(tmp)),
                cwd=Path(self.workspace_dir),
                timeout_s=timeout_s,
                out=path.with_suffix(".out"),
                err=path.with_suffix(".err"),
                watch=first_of([watch_of(stop), Watchdog([Path(self.workspace_dir), tmp], self._limits)]),
                limits=default_limits(os.geteuid(), self._limits),
            )
        finally:
            remove_scratch(tmp)
        return to_result(outcome, timeout_s)

    def _environment(self, tmp: str) -> dict[str, str]:
        binaries = os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
        return {
            "PATH": binaries,
            "HOME": self.workspace_dir,
            **agent_environment(self.data_dir, self.workspace_dir, tmp),
        }

    def selfcheck(self) -> None:
        """Nothing to check: it isolates nothing, and says so."""

    def drain_findings(self) -> list[Finding]:
        """Always empty: without a mount namespace there is no place for a decoy."""
        return []
