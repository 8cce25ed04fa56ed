"""The local backend: code runs as a plain child process. It isolates nothing and is for trusted scripts only."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Literal

from automedbench.records import Enforced, Finding
from automedbench.sandbox import CodeResult, call
from automedbench.sandbox.launcher import agent_environment
from automedbench.sandbox.process import run_process

WARNING = "The local sandbox isolates nothing: code can read and change whatever this user can."


class LocalSandbox:
    """Runs code with this interpreter, a clean environment and the workspace as working directory."""

    def __init__(self, *, public: Path, workspace: Path, disk_gb: float | None = None) -> None:
        self.data_dir = str(public.resolve())
        self.workspace_dir = str(workspace.resolve())
        self.enforced = Enforced(backend="local", network="open")
        self._disk_gb = disk_gb

    def __enter__(self) -> LocalSandbox:
        logging.getLogger(__name__).warning(WARNING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to end: each call cleans up after itself."""

    def run_code(
        self, language: Literal["python", "bash"], code: str, *, call: int, turn: int, log: Path, timeout_s: float
    ) -> CodeResult:
        """See ``Sandbox.run_code``."""
        return self._run(language, code, call, log, timeout_s)

    def _run(self, language: call.Language, code: str, number: int, log: Path, timeout_s: float) -> CodeResult:
        path = call.write_code(log, number, language, code)
        program = sys.executable if language == "python" else "bash"
        with tempfile.TemporaryDirectory(prefix="call-", ignore_cleanup_errors=True) as tmp:
            outcome = run_process(
                [program, str(path)],
                env=self._environment(tmp),
                cwd=Path(self.workspace_dir),
                timeout_s=timeout_s,
                out=path.with_suffix(".out"),
                err=path.with_suffix(".err"),
                watch=call.size_watch([Path(self.workspace_dir), Path(tmp)], self._disk_gb),
            )
        return call.to_result(outcome, timeout_s)

    def _environment(self, tmp: str) -> dict[str, str]:
        binaries = os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
        return {
            "PATH": binaries,
            "HOME": self.workspace_dir,
            **agent_environment(self.data_dir, self.workspace_dir, tmp),
        }

    def drain_findings(self) -> list[Finding]:
        """Always empty: without a mount namespace there is no place for a decoy."""
        return []
