"""Process tree with a wall limit, resource limits and bounded output, of which nothing is left behind.

Of a stream, head and tail are kept in memory, more of it in a log file, the rest is counted. What the two backends of
the sandbox share of a code call is here too: its file, and its result as the loop sees it.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from automedbench.base import files
from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CallStatus, Language, Model, Seconds
from automedbench.sandbox.container import supervisor
from automedbench.sandbox.container.launcher import SUFFIXES

GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL; docs/specification.md, 8.4
WATCH_SECONDS = 0.5
BLOCK = 256 * 1024
# A supervisor that does not answer a kill this long is killed itself.
PATIENCE_SECONDS = 2 * supervisor.KILL_SECONDS


Ending = Literal["exited", "timeout", "stopped"]


@dataclass(frozen=True)
class Stop:
    """Why a watch ends a call; ``at_once`` leaves out SIGTERM and its grace (for what endangers the machine)."""

    reason: str
    at_once: bool = False


Watch = Callable[[int], Stop | None]
"""Called about twice a second with the process id at the root of the call's tree."""


@dataclass(frozen=True)
class Outcome:
    """How a process tree ended: ``exit_code`` is negative for a signal (as in subprocess) and None if unknown."""

    ending: Ending
    exit_code: int | None
    stdout: Capture
    stderr: Capture
    elapsed_s: float
    reason: str = ""


@dataclass
class _Call:
    """What is known about a running tree."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    ending: Ending = "exited"
    reason: str = ""
    answer: bytes = b""
    kill_at: float | None = None
    give_up_at: float | None = None
    open_streams: dict[IO[bytes], Capture] = field(default_factory=dict)


def default_limits(user: int, limits: Limits | None = None) -> dict[str, int]:
    """Resource limits of agent code (docs/specification.md, 9.2), applied as far as the machine allows.

    The kernel counts the processes and threads of a user on the whole machine, also through user namespaces: what
    other runs of the same user have now is added, so that they cannot make this one fail. Root has no such limit.
    """
    found = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 50 * 10**9, "RLIMIT_NOFILE": 65_536}
    max_processes = (limits or Limits()).max_processes
    if user == 0 or max_processes is None:
        return found
    return {**found, "RLIMIT_NPROC": max_processes + tasks_of(user)}


def own_limits(user: int, limits: Limits) -> dict[str, int]:
    """``default_limits``, with processes counted apart from all others of the user where the machine can."""
    own = limits.max_processes if user else None
    return default_limits(user, limits) | ({} if own is None else {supervisor.OWN_PROCESSES: own})


def tasks_of(user: int) -> int:
    """Processes and threads of a user on this machine."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                found += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return found


def run_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    timeout_s: float,
    out: Path,
    err: Path,
    watch: Watch | None = None,
    marker: bytes = b"",
    limits: Mapping[str, int] | None = None,
) -> Outcome:
    """Run ``command`` and wait until every process that it started is gone.

    At ``timeout_s`` the tree gets SIGTERM and five seconds later SIGKILL. ``watch`` is called about twice a second
    and ends the call when it returns a Stop. ``out`` and ``err`` receive up to 10 MiB of each stream; ``marker``
    separates a runtime's own messages on stderr (see Capture), and the command gets a line on stdin when it has come.

    Raises InfrastructureError when the command cannot be started.
    """
    started = time.monotonic()
    wanted = dict(limits) if limits is not None else default_limits(os.geteuid())
    streams = (Capture(out), Capture(err, marker))
    call = _start(command, wanted, env, cwd, streams)
    try:
        _attend(call, started + timeout_s, watch)
    finally:
        # Closing the control socket tells the supervisor to kill the tree, also on Ctrl-C in the driver.
        call.control.close()
        _join(call.process)
        for stream in streams:
            stream.close()
    return _outcome(call, streams, time.monotonic() - started)


def _start(
    command: Sequence[str], limits: dict[str, int], env: Mapping[str, str], cwd: Path, streams: tuple[Capture, Capture]
) -> _Call:
    ours, theirs = socket.socketpair()
    # Every user may read a command line, so the environment does not stand in it.
    program = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno()), json.dumps(limits), *command]
    try:
        process = subprocess.Popen(
            program,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL if streams[1].started else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
            pass_fds=[theirs.fileno()],
        )
    except OSError as error:
        ours.close()
        raise InfrastructureError(f"Cannot start a process in {cwd}: {error.strerror}.") from error
    finally:
        theirs.close()
    assert process.stdout is not None and process.stderr is not None
    return _Call(process, ours, open_streams={process.stdout: streams[0], process.stderr: streams[1]})


def _attend(call: _Call, deadline: float, watch: Watch | None) -> None:
    """Read the streams and keep the limits until streams and control socket are closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(call.control, selectors.EVENT_READ)
        for stream in call.open_streams:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        watch_at = time.monotonic()
        while selector.get_map():
            now = time.monotonic()
            if watch is not None and now >= watch_at:
                stop = watch(call.process.pid)
                watch_at = time.monotonic() + WATCH_SECONDS
                if stop is not None:
                    _end(call, "stopped", stop.reason, 0.0 if stop.at_once else GRACE_SECONDS)
            if now >= deadline:
                _end(call, "timeout", "", GRACE_SECONDS)
            if _enforce(call):
                return
            wait = min(watch_at if watch else now + WATCH_SECONDS, call.kill_at or deadline) - time.monotonic()
            for key, _ in selector.select(min(max(wait, 0.01), WATCH_SECONDS)):
                if not _take(call, key.fileobj):
                    selector.unregister(key.fileobj)


def _end(call: _Call, ending: Ending, reason: str, grace_s: float) -> None:
    """Ask the tree to end, and kill it after the grace; the first reason counts, the earliest kill as well."""
    kill_at = time.monotonic() + grace_s
    if call.kill_at is None:
        call.ending, call.reason, call.kill_at = ending, reason, kill_at
        if grace_s:
            _order(call, b"T")
    call.kill_at = min(call.kill_at, kill_at)


def _enforce(call: _Call) -> bool:
    """Go from SIGTERM to SIGKILL to killing the supervisor; true when no process is left to wait for."""
    now = time.monotonic()
    if call.give_up_at is not None and now >= call.give_up_at:
        call.process.kill()
        return True
    if call.give_up_at is None and call.kill_at is not None and now >= call.kill_at:
        call.give_up_at = now + PATIENCE_SECONDS
        _order(call, b"K")
    return False


def _order(call: _Call, order: bytes) -> None:
    try:
        call.control.send(order)
    except OSError:
        return  # it has ended by itself meanwhile


def _take(call: _Call, source: object) -> bool:
    """Read what there is; false at the end of the stream."""
    if source is call.control:
        block = _receive(call.control)
        call.answer += block
        return bool(block)
    stream: IO[bytes] = source  # type: ignore[assignment]
    try:
        block = os.read(stream.fileno(), BLOCK)
    except BlockingIOError:
        return True
    capture = call.open_streams[stream]
    capture.feed(block)
    if capture.started and capture.awaits_marker:
        _answer(call.process)
    return bool(block)


def _answer(process: subprocess.Popen[bytes]) -> None:
    """Tell the command that its marker was read; once."""
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            process.stdin.write(b"\n")
            process.stdin.close()


def _receive(control: socket.socket) -> bytes:
    try:
        return control.recv(4096)
    except OSError:
        return b""


def _join(process: subprocess.Popen[bytes]) -> None:
    """Wait for the supervisor; kill its group when it does not end."""
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _outcome(call: _Call, streams: tuple[Capture, Capture], elapsed_s: float) -> Outcome:
    """Turn the supervisor's answer into an Outcome."""
    answers = [json.loads(line) for line in call.answer.splitlines()]
    for answer in answers:
        if "failed" in answer:
            raise InfrastructureError(f"Cannot start {answer['failed']}.\nInstall it or fix its permissions.")
    statuses = [answer["status"] for answer in answers if "status" in answer]
    code = os.waitstatus_to_exitcode(statuses[-1]) if statuses else None
    return Outcome(call.ending, code, *streams, elapsed_s, call.reason)


HEAD_BYTES = 2 * 1024  # docs/specification.md, 8.4
TAIL_BYTES = 8 * 1024
LOG_BYTES = 10 * 1024 * 1024
PREAMBLE_BYTES = 64 * 1024


class Capture:
    """Takes a stream in blocks and never holds more than head, tail and one block.

    With ``marker``, everything up to and including the marker is kept apart in ``preamble``: what a container
    runtime says before the agent's code starts. ``started`` tells whether the marker came.
    """

    def __init__(self, log: Path, marker: bytes = b"") -> None:
        self.preamble = b""
        self.started = not marker
        self.total = 0
        self._marker = marker
        self._head = b""
        self._tail = b""
        self._log = open(log, "wb")  # noqa: SIM115 - closed by close()

    def feed(self, block: bytes) -> None:
        """Take the next block of the stream."""
        if not self.started:
            block = self._after_marker(block)
        if not block:
            return
        room = LOG_BYTES - self.total
        if room > 0:
            self._log.write(block[:room])
        self.total += len(block)
        missing = HEAD_BYTES - len(self._head)
        self._head += block[:missing] if missing > 0 else b""
        self._tail = (self._tail + block[max(missing, 0) :][-TAIL_BYTES:])[-TAIL_BYTES:]

    def _after_marker(self, block: bytes) -> bytes:
        before, marker, after = (self.preamble + block).partition(self._marker)
        self.started = bool(marker)
        self.preamble = before[-PREAMBLE_BYTES:]
        return after

    def close(self) -> None:
        """Close the log file, with a last line when it does not hold everything."""
        if self.total > LOG_BYTES:
            self._log.write(f"\n[... {self.total - LOG_BYTES} bytes not logged ...]\n".encode())
        self._log.close()

    @property
    def awaits_marker(self) -> bool:
        """It was told to look for a marker, whether or not that has come."""
        return bool(self._marker)

    @property
    def truncated(self) -> bool:
        """Bytes are missing between head and tail."""
        return self.total > HEAD_BYTES + TAIL_BYTES

    def text(self) -> str:
        """Head and tail as text, with a note of what was removed between them."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        # Cutting through a character must not show as damage done by the agent.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        tail = _without_continuation(self._tail)
        removed = self.total - len(head.encode("utf-8", "replace")) - len(tail)
        removed = max(removed, self.total - HEAD_BYTES - TAIL_BYTES)
        return f"{head}\n[... {removed} bytes removed ...]\n{tail.decode('utf-8', 'replace')}"


def _without_continuation(data: bytes) -> bytes:
    """Drop the rest of a cut UTF-8 character at the start (at most three bytes)."""
    for index in range(min(4, len(data))):
        if data[index] & 0xC0 != 0x80:
            return data[index:]
    return data


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


class CodeResult(Model):
    """Outcome of one code call; streams are bounded (head and tail) and decoded with replacement."""

    status: CallStatus
    exit_code: int | None
    stdout: str
    stderr: str
    elapsed_s: Seconds
    stdout_truncated: bool = False
    stderr_truncated: bool = False


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
