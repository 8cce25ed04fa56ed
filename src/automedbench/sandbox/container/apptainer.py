"""Apptainer backend: every code call is one container start, every container sees only what launcher names."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import sha256_file, write_text
from automedbench.base.records import Enforced, Finding
from automedbench.sandbox import CodeResult
from automedbench.sandbox.container import call as calls
from automedbench.sandbox.container import telemetry
from automedbench.sandbox.container.launcher import (
    DATA_DIR,
    WORKSPACE,
    AgentRole,
    Hook,
    Network,
    agent_command,
    host_environment,
)
from automedbench.sandbox.container.process import Outcome, Watch, default_limits, run_process
from automedbench.sandbox.container.runtime import find_runtime, last_words
from automedbench.sandbox.container.scratch import make_scratch, remove_scratch, remove_tree
from automedbench.sandbox.container.seccomp import write_profile
from automedbench.sandbox.container.selfcheck import (
    PROBE_SECONDS,
    Probe,
    memory_limit,
    probe_code,
    read_probe,
    require_isolation,
)
from automedbench.sandbox.container.services import Services
from automedbench.sandbox.container.watchdog import Watchdog
from automedbench.sandbox.evidence.decoy import Decoy
from automedbench.sandbox.evidence.hook_reports import EvidencePipe

# Far more than the 0.2 s that a start takes, because a cold image on a shared file system may be slow.
START_SECONDS = 60.0
HOOK = Path(__file__).parents[1] / "evidence" / "hook"


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
        limits: Limits | None = None,
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
        self._limits = limits or Limits()
        self._services = services
        self._findings: list[Finding] = []
        self._scratch: Path | None = None
        self._filter: Path | None = None
        self._training_files: dict[str, telemetry.Stamp] = {}
        self.enforced = Enforced(
            backend="apptainer",
            network=network,
            image_sha256=sha256_file(self._image) if self._image.is_file() else None,
            decoy=decoy is not None,
            gpu=gpu,
            memory_bytes=memory_limit(),
        )

    def __enter__(self) -> ApptainerSandbox:
        # Node-local, and with a name that tells the agent nothing: /proc/self/mountinfo shows it.
        self._scratch = make_scratch("sandbox-")
        try:
            shutil.copytree(HOOK, self._scratch / "hook", ignore=shutil.ignore_patterns("__pycache__"))
            self._filter = self._scratch / "filter.json"
            write_profile(self._filter)
            self.selfcheck()
            self._training_files = telemetry.training_files(self._workspace)
        except BaseException:
            remove_scratch(self._scratch)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._decoy is not None:
            self._findings += self._decoy.drain()
            self._decoy.close()
        if self._scratch is not None:
            remove_scratch(self._scratch)
            self._scratch = None

    def selfcheck(self) -> None:
        """See ``Sandbox.selfcheck``; fills in what ``enforced`` says about filter, hook and processes."""
        scratch = self._entered()
        canary = scratch / "canary"
        write_text(canary, secrets.token_hex(16))
        code = scratch / "probe.sh"
        write_text(code, probe_code([canary, Path.home(), self._workspace.parent]))
        pipe = self._pipe("probe")
        try:
            outcome = self._start(code, "bash", pipe, PROBE_SECONDS, [])
            if not outcome.stderr.started and b"seccomp" in outcome.stderr.preamble and self._filter is not None:
                self._filter = None
                outcome = self._start(code, "bash", pipe, PROBE_SECONDS, [])
            _require_started(outcome, self._image, PROBE_SECONDS)
            hooked = any(finding.rule == "runtime.escape_command" for finding in pipe.findings(turn=None, call=None))
        finally:
            pipe.close()
        probe = read_probe(code.with_suffix(".out").read_bytes(), outcome.stderr.text())
        require_isolation(probe, sealed=self._network != "open")
        if not probe.seccomp:
            logging.getLogger(__name__).warning(
                "The container runtime applies no system call filter (it was built without libseccomp)."
            )
        self._use_compiled_hook(scratch / "hook", probe)
        limited = probe.max_processes > 0 and self._limits.max_processes is not None
        self.enforced = self.enforced.model_copy(
            update={
                "seccomp": probe.seccomp,
                "hook": hooked and probe.hook_in_place,
                "selfcheck": True,
                "max_processes": self._limits.max_processes if limited else None,
            }
        )

    def _use_compiled_hook(self, folder: Path, probe: Probe) -> None:
        if not (folder / "__pycache__").exists():
            (folder / "__pycache__").mkdir()
            (folder / "__pycache__" / probe.compiled_name).write_bytes(probe.compiled)

    def run_code(
        self,
        language: calls.Language,
        code: str,
        *,
        call: int,
        turn: int,
        log: Path,
        timeout_s: float,
        stop: calls.Stopper | None = None,
    ) -> CodeResult:
        """See ``Sandbox.run_code``."""
        self._entered()
        path = calls.write_code(log, call, language, code)
        pipe = self._pipe(f"{call:04d}")
        try:
            outcome = self._start(path, language, pipe, timeout_s, [self._poll_decoy, pipe.watch, calls.watch_of(stop)])
            if self._decoy is not None:
                self._findings += self._decoy.drain(turn=turn, call=call)
            self._findings += pipe.findings(turn=turn, call=call)
        finally:
            pipe.close()
        _require_started(outcome, self._image, timeout_s)
        self._look_for_training(turn, call)
        return calls.to_result(outcome, timeout_s)

    def drain_findings(self) -> list[Finding]:
        """See ``Sandbox.drain_findings``."""
        drained, self._findings = self._findings, []
        return drained

    def _start(
        self, path: Path, language: calls.Language, pipe: EvidencePipe, timeout_s: float, looks: list[Watch]
    ) -> Outcome:
        scratch = self._entered()
        tmp = Path(tempfile.mkdtemp(prefix="tmp-", dir=scratch))
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
            seccomp=self._filter,
            hook=Hook(scratch / "hook", pipe.path),
        )
        watchdog = Watchdog([self._workspace, tmp], self._limits, private_shm=True)
        try:
            return run_process(
                agent_command(role, runtime=self._runtime, marker=marker),
                env=host_environment(scratch, self._runtime),
                cwd=scratch,
                timeout_s=timeout_s,
                out=path.with_suffix(".out"),
                err=path.with_suffix(".err"),
                watch=calls.first_of([*looks, watchdog]),
                marker=f"{marker}\n".encode(),
                limits=default_limits(os.geteuid(), self._limits),
            )
        finally:
            remove_tree(tmp)

    def _pipe(self, name: str) -> EvidencePipe:
        return EvidencePipe(self._entered() / f"pipe-{name}", network_open=self._network == "open")

    def _poll_decoy(self, _root: int) -> None:
        """Empty the tripwire's queue, which the kernel bounds."""
        if self._decoy is not None:
            self._decoy.poll()

    def _look_for_training(self, turn: int, number: int) -> None:
        before, self._training_files = self._training_files, telemetry.training_files(self._workspace)
        self._findings += telemetry.training_findings(before, self._training_files, turn=turn, call=number)

    def _entered(self) -> Path:
        if self._scratch is None:
            raise RuntimeError("use the sandbox as a context manager")
        return self._scratch


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
