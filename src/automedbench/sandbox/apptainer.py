"""The Apptainer backend: every code call is one container start, every container sees only what launcher names."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Literal

from automedbench.errors import InfrastructureError, MissingDataError
from automedbench.files import sha256_file
from automedbench.records import Enforced, Finding
from automedbench.sandbox import CodeResult, call
from automedbench.sandbox.decoy import Decoy
from automedbench.sandbox.launcher import (
    DATA_DIR,
    WORKSPACE,
    AgentRole,
    Network,
    agent_command,
    host_environment,
)
from automedbench.sandbox.process import Outcome, run_process
from automedbench.sandbox.runtime import find_runtime, last_words
from automedbench.sandbox.services import Services

# Far more than the 0.2 s that a start takes, because a cold image on a shared file system may be slow.
START_SECONDS = 60.0


class ApptainerSandbox:
    """Runs each call in a fresh container; leaving the context removes scratch folders and the decoy."""

    data_dir = DATA_DIR
    workspace_dir = WORKSPACE

    def __init__(
        self,
        *,
        image: Path,
        public: Path,
        workspace: Path,
        network: Network = "sealed",
        gpu: bool = False,
        decoy: Decoy | None = None,
        disk_gb: float | None = None,
        services: Services | None = None,
    ) -> None:
        self._runtime = find_runtime()
        self._image, self._public, self._workspace = image.resolve(), public.resolve(), workspace.resolve()
        _require(self._image, "container image", "Build it with the rule build_image (snakemake prepare).")
        _require(self._public, "public data", "Stage the task first (snakemake prepare).")
        _require(self._workspace, "workspace", "The driver creates it before the sandbox.")
        self._network: Network = network
        self._gpu = gpu
        self._decoy = decoy
        self._disk_gb = disk_gb
        self._services = services
        self._findings: list[Finding] = []
        self._scratch: Path | None = None
        self.enforced = Enforced(
            backend="apptainer",
            network=network,
            image_sha256=sha256_file(self._image) if self._image.is_file() else None,
            decoy=decoy is not None,
            gpu=gpu,
        )

    def __enter__(self) -> ApptainerSandbox:
        # Node-local, and with a name that tells the agent nothing: /proc/self/mountinfo shows it.
        self._scratch = Path(tempfile.mkdtemp(prefix="sandbox-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._decoy is not None:
            self._findings += self._decoy.drain()
            self._decoy.close()
        if self._scratch is not None:
            call.remove_tree(self._scratch)
            self._scratch = None

    def run_code(
        self, language: Literal["python", "bash"], code: str, *, call: int, turn: int, log: Path, timeout_s: float
    ) -> CodeResult:
        """See ``Sandbox.run_code``."""
        return self._run(language, code, call, turn, log, timeout_s)

    def drain_findings(self) -> list[Finding]:
        """See ``Sandbox.drain_findings``."""
        drained, self._findings = self._findings, []
        return drained

    def _run(
        self, language: call.Language, code: str, number: int, turn: int, log: Path, timeout_s: float
    ) -> CodeResult:
        if self._scratch is None:
            raise RuntimeError("use the sandbox as a context manager")
        path = call.write_code(log, number, language, code)
        tmp = Path(tempfile.mkdtemp(prefix="tmp-", dir=self._scratch))
        try:
            outcome = self._start(path, language, tmp, timeout_s)
        finally:
            call.remove_tree(tmp)
        if self._decoy is not None:
            self._findings += self._decoy.drain(turn=turn, call=number)
        _require_started(outcome, self._image, timeout_s)
        return call.to_result(outcome, timeout_s)

    def _start(self, path: Path, language: call.Language, tmp: Path, timeout_s: float) -> Outcome:
        assert self._scratch is not None
        marker = f"started {secrets.token_hex(16)}"
        role = AgentRole(
            image=self._image,
            public=self._public,
            workspace=self._workspace,
            tmp=tmp,
            code=path,
            language=language,
            network=self._network,
            gpu=self._gpu,
            decoy=self._decoy.folder if self._decoy is not None else None,
            services=self._services,
        )
        return run_process(
            agent_command(role, runtime=self._runtime, marker=marker),
            env=host_environment(self._scratch, self._runtime),
            cwd=self._scratch,
            timeout_s=timeout_s,
            out=path.with_suffix(".out"),
            err=path.with_suffix(".err"),
            watch=self._watch(tmp),
            marker=f"{marker}\n".encode(),
        )

    def _watch(self, tmp: Path) -> call.Watch:
        """Size limit; also empties the tripwire's queue, which the kernel bounds."""
        too_large = call.size_watch([self._workspace, tmp], self._disk_gb)

        def look() -> str | None:
            if self._decoy is not None:
                self._decoy.poll()
            return too_large()

        return look


def _require(path: Path, what: str, remedy: str) -> None:
    if not path.exists():
        raise MissingDataError(f"No {what} at {path}.\n{remedy}")


def _require_started(outcome: Outcome, image: Path, timeout_s: float) -> None:
    """Raise InfrastructureError when the marker that precedes the agent's code never came.

    A call that had less time than a start may take is the agent's: its time was over.
    """
    if outcome.stderr.started or (outcome.ending == "timeout" and timeout_s < START_SECONDS):
        return
    ending = "did not start in time" if outcome.ending == "timeout" else f"exit code {outcome.exit_code}"
    refused = os.geteuid() == 0 and "capability" in outcome.stderr.preamble.decode("utf-8", "replace")
    remedy = (
        "This machine keeps capabilities from root that Apptainer wants: run as an ordinary user." if refused else ""
    )
    raise InfrastructureError(
        f"The container of {image.name} could not be started ({ending}): {last_words(outcome.stderr.preamble)}\n"
        + (remedy or f"Try by hand, as this user: apptainer exec {image} true")
    )
