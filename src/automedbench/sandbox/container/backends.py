"""Backends of the sandbox: Apptainer, and a local one that isolates nothing and is for trusted scripts only.

Every code call is one container start, every container sees only what launcher names.

Before the first call and after the last one, a container with the very flags of a run looks for what must not be there
(docs/specification.md, 9.8). What leaks is the machine's fault, never the agent's; what is merely absent (a system call
filter, the hook) is recorded in ``Enforced``.
"""

from __future__ import annotations

import abc
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import sha256_file, write_text
from automedbench.base.records import Enforced, Finding, Language, Model
from automedbench.sandbox.container.launcher import (
    DATA_DIR,
    WORKSPACE,
    AgentRole,
    Network,
    Services,
    agent_command,
    find_runtime,
    host_environment,
    last_words,
    write_profile,
)
from automedbench.sandbox.container.process import (
    CodeResult,
    Outcome,
    Stopper,
    Watch,
    default_limits,
    first_of,
    run_process,
    to_result,
    watch_of,
    write_code,
)
from automedbench.sandbox.container.scratch import make_scratch, remove_scratch, remove_tree
from automedbench.sandbox.container.watchdog import Stamp, Watchdog, training_files, training_findings
from automedbench.sandbox.evidence.decoy import Decoy
from automedbench.sandbox.evidence.hook_reports import EvidencePipe

if TYPE_CHECKING:
    from automedbench.sandbox.egress import Egress

import sys

from automedbench.sandbox.container.launcher import agent_environment

# Far more than the 0.2 s that a start takes, because a cold image on a shared file system may be slow.
START_SECONDS = 60.0
HOOK = Path(__file__).parents[1] / "evidence" / "hook"


class Sandbox(abc.ABC):
    """A place to run agent code for one attempt. Use as a context manager: leaving it ends every process."""

    data_dir: str
    """Path of the public data as the agent's code sees it."""
    workspace_dir: str
    """Path of the workspace as the agent's code sees it."""
    enforced: Enforced
    _findings: list[Finding]

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
        """Run one code call in a fresh process (tree) with the workspace as working directory.

        ``log`` is the folder outside the workspace that receives ``0007.py|sh``, ``0007.out`` and ``0007.err``.
        ``stop`` is asked about twice a second, from the waiting thread; a text ends the call as a limit does.
        Raises InfrastructureError when the sandbox itself cannot start.
        """
        path = write_code(log, call, language, code)
        return to_result(self._execute(path, language, turn, call, timeout_s, stop), timeout_s)

    @abc.abstractmethod
    def _execute(
        self, path: Path, language: Language, turn: int, call: int, timeout_s: float, stop: Stopper | None
    ) -> Outcome:
        """Run the file of a call."""

    def selfcheck(self) -> None:  # noqa: B027 - the local one has nothing to check
        """Probe the isolation with the flags of a call; done on entering, and again after the last call.

        Raises InfrastructureError when something leaks: the machine's fault, not the agent's.
        """

    def drain_findings(self) -> list[Finding]:
        """Findings of tripwire, hook, telemetry and egress since the last call of this method, in order."""
        drained, self._findings = self._findings, []
        return drained


class ApptainerSandbox(Sandbox):
    """Runs each call in a fresh container; leaving the context removes scratch folders and the decoy."""

    data_dir = DATA_DIR
    workspace_dir = WORKSPACE

    def __init__(
        self,
        *,
        image: Path | None,
        public: Path,
        workspace: Path,
        network: Network = "sealed",
        gpu: bool = False,
        decoy: Decoy | None = None,
        limits: Limits | None = None,
        services: Services | None = None,
        egress: Egress | None = None,
    ) -> None:
        """Raises MissingDataError when Apptainer, image or data are not there.

        Services of an entered ``egress`` are offered beside ``services``; its findings are joined to those of a call.
        """
        if image is None:
            raise MissingDataError("The apptainer sandbox needs a container image; build it with the rule build_image.")
        self._runtime = find_runtime()
        self._image, self._public, self._workspace = image.resolve(), public.resolve(), workspace.resolve()
        _require(self._image, "container image", "Build it with the rule build_image (snakemake prepare).")
        _require(self._public, "public data", "Stage the task first (snakemake prepare).")
        _require(self._workspace, "workspace", "The driver creates it before the sandbox.")
        self._network: Network = network
        self._gpu = gpu
        self._decoy = decoy
        self._limits = limits or Limits()
        self._egress = egress
        self._services = services
        if egress is not None:
            self._services = egress.services if services is None else egress.services + services
        self._findings: list[Finding] = []
        self._scratch: Path | None = None
        self._filter: Path | None = None
        self._training_files: dict[str, Stamp] = {}
        self.enforced = Enforced(
            backend="apptainer",
            network=network,
            image_sha256=sha256_file(self._image) if self._image.is_file() else None,
            decoy=decoy is not None,
            gpu=gpu,
            memory_bytes=memory_limit(),
            egress_sha256=egress.digest if egress is not None else None,
        )

    def __enter__(self) -> ApptainerSandbox:
        # Node-local, and with a name that tells the agent nothing: /proc/self/mountinfo shows it.
        self._scratch = make_scratch("sandbox-")
        try:
            shutil.copytree(HOOK, self._scratch / "hook", ignore=shutil.ignore_patterns("__pycache__"))
            self._filter = self._scratch / "filter.json"
            write_profile(self._filter)
            self.selfcheck()
            self._training_files = training_files(self._workspace)
        except BaseException:
            remove_scratch(self._scratch)
            raise
        return self

    def __exit__(self, *_: object) -> None:
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
        limited = probe.max_processes > 0 and self._limits.max_processes is not None
        self.enforced = self.enforced.model_copy(
            update={
                "seccomp": probe.seccomp,
                "hook": hooked and probe.hook_in_place,
                "selfcheck": True,
                "max_processes": self._limits.max_processes if limited else None,
            }
        )

    def _execute(
        self, path: Path, language: Language, turn: int, call: int, timeout_s: float, stop: Stopper | None
    ) -> Outcome:
        if self._egress is not None:
            self._egress.set_call(turn, call)
        pipe = self._pipe(f"{call:04d}")
        try:
            outcome = self._start(path, language, pipe, timeout_s, [self._poll_decoy, pipe.watch, watch_of(stop)])
            if self._decoy is not None:
                self._findings += self._decoy.drain(turn=turn, call=call)
            self._findings += pipe.findings(turn=turn, call=call)
        finally:
            pipe.close()
            if self._egress is not None:
                self._findings += self._egress.drain(turn=turn, call=call)
        _require_started(outcome, self._image, timeout_s)
        self._look_for_training(turn, call)
        return outcome

    def _start(
        self, path: Path, language: Language, pipe: EvidencePipe, timeout_s: float, looks: list[Watch]
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
            hook=(scratch / "hook", pipe.path),
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
                watch=first_of([*looks, watchdog]),
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
        before, self._training_files = self._training_files, training_files(self._workspace)
        self._findings += training_findings(before, self._training_files, turn=turn, call=number)

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


PROBE_SECONDS = 60.0  # as much as a cold image may need
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 8

# Runs inside; prints one JSON object. PATHS is replaced by host paths that must not exist. Python is isolated (-I -S),
# because the last check comes after the agent's calls, and start-up files of the workspace are the agent's.
PROBE = """
import ctypes, hashlib, json, os, resource, socket, sys, threading
sys.path.insert(0, "/run/hook")
sys.modules.pop("sitecustomize", None)
import sitecustomize
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True
def writes(folder):
    try:
        os.close(os.open(folder + "/.written", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    return True
pids = [name for name in os.listdir("/proc") if name.isdigit()]
values = set()
for pid in pids:
    try:
        entries = open("/proc/" + pid + "/environ", "rb").read().split(b"\\0")
    except OSError:
        continue
    values.update(hashlib.sha256(entry.partition(b"=")[2]).hexdigest() for entry in entries)
thread = threading.Thread(target=int)
thread.start()
thread.join()
sys.audit("os.system", "unshare --version")
libc = ctypes.CDLL(None, use_errno=True)
print(json.dumps({
    "seccomp": status.get("Seccomp", "0").strip() == "2" and libc.unshare(0x10000000) == -1,
    "no_new_privs": status.get("NoNewPrivs", "0").strip() == "1",
    "capabilities": int(status.get("CapEff", "0"), 16),
    "processes": len(pids),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "opened": [path for path in PATHS if opens(path) or opens("/proc/1/root" + path)],
    "written": [place for place in ("/", "/usr", "/data", "/data/public", "/run/hook") if writes(place)],
    "values": sorted(values),
    "max_processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
    "hook_in_place": os.environ.get("PYTHONPATH", "").startswith("/run/hook:"),
}))
"""


class Probe(Model):
    """What the probe saw from inside."""

    seccomp: bool
    no_new_privs: bool
    capabilities: int
    processes: int
    interfaces: list[str]
    opened: list[str]
    written: list[str]
    values: list[str]
    max_processes: int
    hook_in_place: bool


def probe_code(paths: Iterable[Path]) -> str:
    """Bash code that looks for these host paths and reports as JSON."""
    code = PROBE.replace("PATHS", json.dumps([str(path) for path in paths]))
    return f"python3 -I -S - <<'PROBE'\n{code}PROBE\n"


def read_probe(output: bytes, messages: str = "") -> Probe:
    """The probe's report; raises InfrastructureError when it is none."""
    try:
        return Probe.model_validate_json(output)
    except ValueError as error:
        said = (messages.strip() or output.decode("utf-8", "replace"))[-200:]
        raise InfrastructureError(
            f"The isolation probe gave no report: {said!r}.\nCheck the agent image: it needs python3."
        ) from error


def leaks(probe: Probe, *, sealed: bool, environment: Mapping[str, str]) -> list[str]:
    """What the sandbox lets through that it must not, in words; empty when it isolates."""
    secrets = {
        hashlib.sha256(value.encode()).hexdigest(): name
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET
    }
    found = [f"{path} of the host can be read" for path in probe.opened]
    found += [f"{place} can be written" for place in probe.written]
    found += [f"the variable {secrets[value]} is visible" for value in probe.values if value in secrets]
    if not probe.no_new_privs:
        found.append("processes may gain privileges")
    if probe.capabilities:
        found.append(f"processes hold capabilities ({probe.capabilities:x})")
    if sealed and set(probe.interfaces) - {"lo"}:
        found.append(f"there are network interfaces ({', '.join(probe.interfaces)})")
    if probe.processes > 4:  # the waiting shell, the probe, and what the runtime may add
        found.append(f"{probe.processes} processes are visible")
    return found


def require_isolation(probe: Probe, *, sealed: bool) -> None:
    """Raise InfrastructureError when the probe found a leak."""
    found = leaks(probe, sealed=sealed, environment=os.environ)
    if found:
        raise InfrastructureError(
            f"The sandbox does not isolate on this machine: {'; '.join(found[:5])}.\n"
            "No agent was run. Check apptainer.conf with the site's administrators, and run `automedbench doctor`."
        )


def memory_limit(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup"), machine: int | None = None
) -> int | None:
    """Bytes that this process's cgroup (version 2 or 1) and its ancestors allow; None when there is no limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if machine is None else machine
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if number == "0":
            limits += _limits(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "memory", path, "memory.limit_in_bytes")
    # Version 1 writes a number larger than any machine for "none".
    return min((limit for limit in limits if limit < total), default=None)


def _limits(root: Path, path: str, name: str) -> list[int]:
    folder, found = root / path.lstrip("/"), []
    for place in (folder, *folder.parents):
        if not place.is_relative_to(root):
            break
        try:
            found.append(int((place / name).read_text()))
        except (OSError, ValueError):
            continue
    return found


WARNING = "The local sandbox isolates nothing: code can read and change all that this user can."


class LocalSandbox(Sandbox):
    """Runs code with this interpreter, a clean environment and the workspace as working directory."""

    def __init__(self, *, public: Path, workspace: Path, limits: Limits | None = None) -> None:
        self.data_dir = str(public.resolve())
        self.workspace_dir = str(workspace.resolve())
        self.enforced = Enforced(backend="local", network="open")
        self._limits = limits or Limits()
        self._findings: list[Finding] = []  # without a mount namespace there is no place for a decoy

    def __enter__(self) -> LocalSandbox:
        logging.getLogger(__name__).warning(WARNING)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to end: each call cleans up after itself."""

    def _execute(
        self, path: Path, language: Language, turn: int, call: int, timeout_s: float, stop: Stopper | None
    ) -> Outcome:
        program = sys.executable if language == "python" else "bash"
        tmp = make_scratch("call-")
        try:
            return run_process(
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

    def _environment(self, tmp: str) -> dict[str, str]:
        binaries = os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
        return {
            "PATH": binaries,
            "HOME": self.workspace_dir,
            **agent_environment(self.data_dir, self.workspace_dir, tmp),
        }
