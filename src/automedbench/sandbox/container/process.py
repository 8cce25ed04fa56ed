"""Process tree with limits and bounded output, of which nothing is left behind: the driver's side of its supervisor.

``Supervised`` is one container with a runner, in which calls are made, or one command. What the backends of the sandbox
share of a code call is here too: its file, and its result as the loop sees it.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import resource
import select
import socket
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.base import files
from automedbench.base.cards import Limits
from automedbench.base.closing import Closing
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CallStatus, Language, Model, Seconds
from automedbench.sandbox.container.apart import OWN_PROCESSES
from automedbench.sandbox.container.cgroup import job_memory
from automedbench.sandbox.container.helper import HelperProcess, module_command
from automedbench.sandbox.container.launcher import SUFFIXES
from automedbench.sandbox.container.pause import Pause
from automedbench.sandbox.container.streams import HEAD_BYTES, TAIL_BYTES
from automedbench.sandbox.container.tree import KILL_SECONDS

GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL; docs/specification.md, 8.4
WATCH_SECONDS = 0.5
# A supervisor that does not answer a kill this long is killed itself.
PATIENCE_SECONDS = 2 * KILL_SECONDS
PACKET = 1 << 20
NO_SUPERVISOR = "its supervisor has ended"

Ending = Literal["exited", "timeout", "stopped"]


@dataclass(frozen=True)
class Stop:
    """Reason of a watch to end a call; ``container`` ends all that runs."""

    reason: str
    container: bool = False


Watch = Callable[[], Stop | None]
"""Called about twice a second while something runs."""


@dataclass(frozen=True)
class Captured:
    """Head and tail of a stream of ``total`` bytes."""

    head: bytes = b""
    tail: bytes = b""
    total: int = 0

    @property
    def truncated(self) -> bool:
        """Bytes are missing between head and tail."""
        return self.total > HEAD_BYTES + TAIL_BYTES

    def text(self) -> str:
        """Head and tail as text, with a note of what was removed between them."""
        if not self.truncated:
            return (self.head + self.tail).decode("utf-8", "replace")
        # Cutting through a character must not show as damage done by the agent.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self.head)
        tail = _without_continuation(self.tail)
        removed = self.total - len(head.encode("utf-8", "replace")) - len(tail)
        removed = max(removed, self.total - HEAD_BYTES - TAIL_BYTES)
        return f"{head}\n[... {removed} bytes removed ...]\n{tail.decode('utf-8', 'replace')}"


def _without_continuation(data: bytes) -> bytes:
    """Drop the rest of a cut UTF-8 character at the start (at most three bytes)."""
    for index in range(min(4, len(data))):
        if data[index] & 0xC0 != 0x80:
            return data[index:]
    return data


@dataclass(frozen=True)
class Outcome:
    """End of a program: ``exit_code`` is negative for a signal (as in subprocess) and None if unknown.

    ``gone``: its container has ended with it. ``note`` is something else that the agent must know. ``memory``: most
    bytes that the container had in use by then.
    """

    ending: Ending
    exit_code: int | None
    stdout: Captured
    stderr: Captured
    elapsed_s: float
    reason: str = ""
    gone: bool = False
    note: str = ""
    memory: int | None = None


@dataclass(frozen=True)
class Guard:
    """Limits that the supervisor enforces on all that ``folders`` hold, the workspace first.

    ``shm``: the container has its own /dev/shm. ``home``: folder of log and archives, on whose disk there must be room
    for them; None: free space is not watched.
    """

    folders: Sequence[Path] = ()
    limits: Limits | None = None
    shm: bool = False
    home: Path | None = None

    def order(self) -> dict[str, Any]:
        """JSON for the supervisor; the memory limit is always below the job's own. Raises InfrastructureError."""
        limits = self.limits or Limits(mem_gb=None, disk_gb=None, max_processes=None)
        memory = memory_of_call(limits.mem_gb) if self.limits else None
        limit = [memory, limits.max_processes, limits.disk_gb and int(limits.disk_gb * 1e9)]
        home = "" if self.home is None else str(self.home)
        return {"folders": [str(folder) for folder in self.folders], "shm": self.shm, "limit": limit, "home": home}


DRIVER_BYTES, LEAST_BYTES = 500_000_000, 100_000_000
"""Of a job's memory: kept for its driver, supervisor and scheduler; the least that is then left for a call."""


def memory_of_call(wanted_gb: float | None) -> int | None:
    """Bytes that a container may use: what is wanted, and always less than its job has; None: no limit.

    Otherwise the job would end with the call, and every repetition at the same call. Raises InfrastructureError when
    the job has too little memory for any call.
    """
    wanted, job = None if wanted_gb is None else int(wanted_gb * 1e9), job_memory()
    if job is None:
        return wanted
    if job < DRIVER_BYTES + LEAST_BYTES:
        given, least, kept = (f"{each / 1e9:.3g} GB" for each in (job, DRIVER_BYTES + LEAST_BYTES, DRIVER_BYTES))
        raise InfrastructureError(
            f"This job has {given} of memory, at least {least} are needed: {kept} are kept for the driver.\n"
            "Give it what limits.mem_gb allows and that: `mem_mb` of the rule in the profile; then run the same "
            "command again."
        )
    return min(wanted or job, job - DRIVER_BYTES)


def default_limits(user: int, limits: Limits | None = None, *, apart: bool = False) -> dict[str, int]:
    """Resource limits of agent code (docs/specification.md, 9.2), applied as far as the machine allows.

    The kernel counts the processes and threads of a user on the whole machine, also through user namespaces: what
    other runs of the same user have now is added, so that they cannot make this one fail; ``apart``: they are counted
    apart where the machine can. Root has no such limit.
    """
    found = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 50 * 10**9}
    max_processes = (limits or Limits()).max_processes
    if user == 0 or max_processes is None:
        return found
    own = {OWN_PROCESSES: max_processes} if apart else {}
    return {**found, "RLIMIT_NPROC": max_processes + count_tasks(user), **own}


def count_tasks(user: int) -> int:
    """Processes and threads of a user on this machine."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                found += len(os.listdir(f"/proc/{name}/task"))
    return found


_SUPERVISOR = "automedbench.sandbox.container.supervisor"


class Supervised(Closing):
    """A command that a supervisor of its own started; leaving the context ends all of it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        limits: Mapping[str, int] | None = None,
        guard: Guard | None = None,
        streams: tuple[Path, Path] | None = None,
        timeout_s: float = 0.0,
    ) -> None:
        """Start a runner, for ``wait_until_ready`` and ``begin``; with ``streams`` a single command, for ``attend``.

        ``streams`` are files that receive up to 10 MiB of the command's stdout and stderr. At ``timeout_s`` its tree
        gets SIGTERM and five seconds later SIGKILL. Raises InfrastructureError when no process can be started.
        """
        self.grouped = False
        self.pause = Pause()
        """Time in which calls wait for shared cards; it is in no time limit and no ``elapsed_s``."""
        self.gone: dict[str, Any] | None = None
        """The supervisor's last report, when the container has ended."""
        guarded = (guard or Guard()).order()
        self._helper = HelperProcess(
            f"a process in {cwd}",
            module_command(_SUPERVISOR),
            PATIENCE_SECONDS,
            kind=socket.SOCK_SEQPACKET,
            cwd=cwd,
            stderr=None,
        )
        self._control = self._helper.control
        self._order(
            "start",
            command=list(command),
            env=dict(env),
            cwd=str(cwd),
            rlimits=dict(limits) if limits is not None else default_limits(os.geteuid()),
            group=streams is None,
            grace_s=GRACE_SECONDS,
            **guarded,
            **({"out": str(streams[0]), "err": str(streams[1]), "seconds": timeout_s} if streams else {}),
        )

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait for the runner; false when the container has ended or took longer. Raises InfrastructureError."""
        report = self._next(("ready",), time.monotonic() + seconds, None)
        self.grouped = bool(report and report["grouped"])
        return report is not None

    def begin(self, number: int, argv: Sequence[str], out: Path, err: Path, timeout_s: float) -> None:
        """Start one program; ``attend`` waits for its end. What it leaves in the background lives on."""
        self.pause.note_call(True)
        self._order("call", call=number, argv=list(argv), out=str(out), err=str(err), seconds=timeout_s)

    def attend(self, timeout_s: float, watch: Watch | None = None) -> Outcome:
        """Wait for the end of the program that runs; ``watch`` ends it when it returns a Stop.

        Raises InfrastructureError when supervisor or log fails.
        """
        ends = self.pause.clock() + timeout_s + GRACE_SECONDS + PATIENCE_SECONDS
        report = None
        while report is None and self.gone is None and (left_s := ends - self.pause.clock()) > 0:
            report = self._next(("ended",), time.monotonic() + left_s, watch)
        self.pause.note_call(False)
        if report is not None:
            if report["gone"]:  # the last report comes right behind it; the next call must not meet what is gone
                self._next((), time.monotonic() + PATIENCE_SECONDS, None)
            return _outcome(report)
        if self.gone is None or self.gone["reason"] == NO_SUPERVISOR:
            pid = self._helper.process.pid
            raise InfrastructureError(f"The supervisor of a code call has ended or hangs (pid {pid}).")
        return lost_outcome(self.gone["reason"], gone=True)

    def wait(self, seconds: float, process: int | None, watch: Watch | None = None) -> str:
        """Wait for time, or for the end of a process by the id it has inside: time, ended, unknown or gone."""
        self._order("wait", seconds=seconds, process=process)
        report = self._next(("waited",), time.monotonic() + seconds + PATIENCE_SECONDS, watch)
        return str(report["how"]) if report else "gone"

    def set_deadline(self, seconds: float | None) -> None:
        """Tell when the container must end at the latest, also when this process hangs; None: no such time."""
        self._order("deadline", seconds=seconds)

    def freeze(self, seconds: float) -> None:
        """Let all that runs stand still, for about so long; deadlines stand still with it. From any thread."""
        self._order("freeze", seconds=seconds)

    def lend(self, descriptors: list[int], *, kept: bool) -> None:
        """Lend a turn on shared cards until no process that a call started is left; ``kept``: nor the next call's.

        Raises InfrastructureError where the kernel does not pass it on: the call would compute without a turn.
        """
        # It counts what all processes of the user have on its way, and compares that with the limit of the sender.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            socket.send_fds(self._control, [json.dumps({"order": "lend", "kept": kept}).encode()], descriptors)
        except ConnectionError:
            return  # it has ended meanwhile
        except OSError as error:
            raise InfrastructureError(
                f"The turn on a GPU cannot be handed to a code call: {error.strerror}.\n"
                "Run the same command again when other runs of this user on this machine have ended."
            ) from error

    def keep_cards(self) -> bool:
        """Keep a lent turn for the next call; false when it was given back before."""
        self._order("keep")
        report = self._next(("kept",), time.monotonic() + PATIENCE_SECONDS, None)
        return bool(report and report["held"])

    def note_waits(self, waits: bool) -> None:
        """Let the time of a call stand still while a process waits for shared cards; from any thread."""
        self.pause.note_waits(waits)
        self._order("waits", waits=waits)

    def clear(self) -> None:
        """End what calls have left in the background: SIGTERM, five seconds later SIGKILL."""
        self._order("clear")

    def thaw(self) -> None:
        """Let it go on; from any thread."""
        self._order("thaw")

    @property
    def last_words(self) -> str:
        """Output of the container runtime before it ended, at most 64 KiB as Latin-1."""
        self._order("output")
        report = self._next(("runtime_output",), time.monotonic() + PATIENCE_SECONDS, None) or self.gone or {}
        return str(report.get("runtime_output", ""))

    @property
    def alive(self) -> bool:
        """The container has not ended, as far as reported by now."""
        while self.gone is None and select.select([self._control], [], [], 0)[0]:
            self._take()
        return self.gone is None

    def close(self) -> None:
        """End everything; may be called twice. Closing the socket tells the supervisor, also on Ctrl-C here."""
        self._helper.close()

    def _order(self, order: str, **settings: Any) -> None:
        with contextlib.suppress(OSError):  # it has ended meanwhile, and has reported it
            self._control.send(json.dumps({"order": order, **settings}).encode())

    def _next(self, wanted: Sequence[str], until: float, watch: Watch | None) -> dict[str, Any] | None:
        """The next report of a kind; None when the container has ended without one, or time is over."""
        watch_at = time.monotonic() + WATCH_SECONDS
        while self.gone is None:
            wait = min(until, watch_at) - time.monotonic()
            if select.select([self._control], [], [], max(wait, 0))[0]:
                report = self._take()
                if report["report"] in wanted:
                    return report
            elif time.monotonic() >= until:  # checked last: reports that came while this process was stopped count
                return None
            else:
                watch_at = time.monotonic() + WATCH_SECONDS
                if watch is not None and (stop := watch()) is not None:
                    self._order("stop", reason=stop.reason, container=stop.container)
        return None

    def _take(self) -> dict[str, Any]:
        try:
            packet = self._control.recv(PACKET)
        except OSError:
            packet = b""
        report: dict[str, Any] = json.loads(packet) if packet else {"report": "gone", "reason": NO_SUPERVISOR}
        if report["report"] == "failed":
            raise InfrastructureError(f"Cannot start {report['why']}.\nInstall it or fix its permissions.")
        if report["report"] == "gone":
            self.gone = report
        return report


def _outcome(report: Mapping[str, Any]) -> Outcome:
    """An ended program as the supervisor reports it."""
    streams = []
    for name in ("out", "err"):
        data = report[name]
        if data["error"]:
            raise InfrastructureError(f"The log of a code call cannot be written: {data['error']}.")
        streams.append(Captured(b64decode(data["head"]), b64decode(data["tail"]), data["total"]))
    out, err = streams
    code, note = None, ""
    with contextlib.suppress(ValueError):  # a runner that is not ours any more may send anything
        code = None if report["status"] is None else os.waitstatus_to_exitcode(report["status"])
    if report["error"]:
        code, note = 126, f"The program could not be started: {os.strerror(report['error'])}."
    elapsed, memory = report["elapsed_s"], report["memory"] or None
    return Outcome(report["ending"], code, out, err, elapsed, report["reason"], report["gone"], note, memory)


NOTE = "[SANDBOX]"
ENDED = "the container has ended with this call; the next call starts a new one"
ANEW = "The container was started anew before this call: background processes and /tmp of before are lost."


def write_code(log: Path, call: int, language: Language, code: str) -> Path:
    """Write the code of a call to ``log/0007.py|sh``, outside of the workspace."""
    path = log.resolve() / f"{call:04d}{SUFFIXES[language]}"
    files.write_text(path, code)
    return path


def lost_outcome(reason: str, *, gone: bool = False) -> Outcome:
    """The outcome of a call that could not be made."""
    return Outcome("stopped", None, Captured(), Captured(), 0.0, reason, gone)


class CodeResult(Model):
    """Outcome of one code call; streams are bounded (head and tail) and decoded with replacement."""

    status: CallStatus
    exit_code: int | None
    stdout: str
    stderr: str
    elapsed_s: Seconds
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    note: str = ""


def to_result(outcome: Outcome, timeout_s: float) -> CodeResult:
    """The result of a call; notes of the sandbox are appended to stderr so that the agent learns what happened."""
    code = 137 if outcome.gone and outcome.exit_code is None else outcome.exit_code
    if code is not None and code < 0:
        code = 128 - code  # as a shell reports a signal
    status, note = _status(outcome, code, timeout_s)
    stderr = outcome.stderr.text()
    for line in filter(None, (ENDED if outcome.gone else "", note)):
        stderr += f"{NOTE} {line}" if not stderr or stderr.endswith("\n") else f"\n{NOTE} {line}"
    return CodeResult(
        status=status,
        exit_code=code,
        stdout=outcome.stdout.text(),
        stderr=stderr,
        elapsed_s=round(outcome.elapsed_s, 3),
        stdout_truncated=outcome.stdout.truncated,
        stderr_truncated=outcome.stderr.truncated,
        note=outcome.note,
    )


def _status(outcome: Outcome, code: int | None, timeout_s: float) -> tuple[CallStatus, str]:
    if outcome.ending == "timeout":
        return "timeout", f"ended after {timeout_s:.0f} s (time limit of this call)"
    if outcome.ending == "stopped":
        return "killed", outcome.reason
    if code is None or code == 137:
        return "killed", "killed by the system, most likely because memory ran out"
    return ("ok", "") if code == 0 else ("error", "")
