"""Supervisor, a process between the driver and one container: it keeps the limits, and nothing outlives it.

Deadlines, memory, processes, disk and output are kept here, where nothing that an agent writes is ever parsed: the
driver may hang, be stopped or die. Started by ``process.Supervised`` with one end of a SOCK_SEQPACKET pair
(standard library only). Orders of the driver are JSON packets: ``start`` first, then ``call``, ``stop``, ``wait``,
``deadline``, ``freeze`` and ``thaw``, and for shared cards (``turns``) ``lend``, ``keep``, ``clear`` and ``waits``; its
end of the socket closed means: kill everything. Reports back are JSON packets too. It is the subreaper of everything
the command starts: daemons that leave the process group are found as well. Deadlines stand still while the container
does, and while a call waits for a shared card.

A container's first program is the runner; ``start`` with ``out`` and ``err`` is one command without a runner, whose end
is the end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import selectors
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

from automedbench.sandbox.container import tree
from automedbench.sandbox.container.apart import OWN_PROCESSES, count_apart
from automedbench.sandbox.container.cgroup import Group, make_group
from automedbench.sandbox.container.freezer import Freezer
from automedbench.sandbox.container.pause import Pause
from automedbench.sandbox.container.runner import ANSWER, ENDED, FAILED, READY, reap
from automedbench.sandbox.container.streams import Room, Stream
from automedbench.sandbox.container.watchdog import LOOK_SECONDS, Breach, Limit, Watchdog

WAIT_SECONDS = 0.1
DRAIN_SECONDS = 0.1
"""How long an ended program's streams are waited for when something else still has them open."""
LAST_SECONDS = 0.5
"""What is left for background processes when a limit ends the container and the call has ended."""
FROZEN_SECONDS = 30.0
"""A container is frozen for at most so much longer than the driver announced: it may hang."""
DRAIN_BYTES = 4 * 1024 * 1024
RUNTIME_OUTPUT_BYTES = 64 * 1024
FAR = 1e9
MOST_LENT = 64
"""Descriptors of a turn: two for each card, and one for its end."""

Order = dict[str, Any]


@dataclass
class RunningCall:
    """A program whose end the driver waits for; sessions from before ``since`` (ticks) are not its own.

    ``began`` and ``deadline`` by the clock that stands still while it waits for shared cards (``Pause``).
    """

    out: Stream
    err: Stream
    began: float
    deadline: float
    since: int
    ending: str = "exited"
    reason: str = ""
    status: int | None = None
    error: int = 0
    kill_at: float | None = None
    give_up_at: float | None = None
    ended_at: float | None = None


@dataclass
class Wait:
    """A pause that the driver requested: until a time, or until a process has ended."""

    until: float
    pid: int = 0
    started: int = 0

    def over(self) -> str | None:
        """Reason of the end, or None while it runs."""
        if self.pid:
            task = tree.read_task(self.pid)
            if task is None or task.started != self.started or task.state == "Z":
                return "ended"
        return "time" if time.monotonic() >= self.until else None


@dataclass
class Loan:
    """A turn on shared cards that the driver lent, given back when no process that a call started is left.

    ``kept``: the driver is about to make a call. The first descriptor is the pipe that tells when it is given back.
    """

    descriptors: list[int]
    kept: bool
    kill_at: float | None = None

    def give_back(self) -> None:
        with contextlib.suppress(OSError):  # the driver has gone
            os.write(self.descriptors[0], str(time.monotonic()).encode())
        for descriptor in reversed(self.descriptors):
            os.close(descriptor)


class Supervisor:
    """One container from its start to its end."""

    def __init__(self, driver: socket.socket, order: Order, wakeup: int) -> None:
        """Start the command; ``wakeup`` is written to wake the loop. Raises OSError when starting is impossible."""
        self.driver, self.wakeup = driver, wakeup
        self.selector = selectors.DefaultSelector()
        self.runtime_output = bytearray()
        self.call: RunningCall | None = None
        self.late: list[Stream] = []
        self.wait: Wait | None = None
        self.pause = Pause()
        self.deadline: float = FAR + self.pause.clock()
        self.reason = ""
        self.kill_at: float | None = None
        self.status: int | None = None
        self.over = self.orphaned = self.ready = False
        self.overheard: list[int] = []
        self.room: Room | None = None
        self.grace_s: float = order["grace_s"]
        limit = Limit(*order["limit"])
        self.group: Group | None = make_group(limit.memory, limit.processes) if order["group"] else None
        self.freezer = Freezer(os.getpid(), self.group)
        self.thaw_at = 0.0
        self.watchdog = Watchdog(order["folders"], limit, order["shm"], self.group is not None, order["home"])
        self.breach: Breach | None = None
        self.control: socket.socket | None = None
        self.watching = False
        self.loan: Loan | None = None
        self.first_call: int | None = None
        self._start(order)
        if self.control is None:
            self._watch()

    def _watch(self) -> None:
        """Look at the limits from the first call of an agent's on: what it left behind must not keep a start or a probe
        (call 0) from succeeding, or a workspace over its limit would make the run's last probe fail for ever.
        """
        if not self.watching:
            self.watching = True
            self.watchdog.watch(os.getpid(), self._take_breach)

    def _take_breach(self, breach: Breach) -> None:
        """Take over what a thread of the watchdog has seen, and wake the loop."""
        self.breach = breach
        os.write(self.wakeup, b"!")

    # --- start ------------------------------------------------------------------------------------------------

    def _start(self, order: Order) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        alone = "out" in order
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if alone else theirs.fileno()
        self.leader = spawn(order, (stdin, out_end, err_end), self.driver, self.group)
        theirs.close()
        os.close(out_end)
        os.close(err_end)
        self._register(self.driver.fileno(), self._handle_order)
        if alone:
            os.close(stdin)
            ours.close()
            self._open_streams(order, (out, err), 0)
        else:
            self.control = ours
            self._register(ours.fileno(), self._handle_answer)
            self.overheard = [out, err]
            for pipe in self.overheard:
                self._register(pipe, lambda pipe=pipe: self._read_runtime(pipe))

    def _register(self, descriptor: int, act: Any) -> None:
        os.set_blocking(descriptor, False)
        self.selector.register(descriptor, selectors.EVENT_READ, act)

    def _open_streams(self, order: Order, pipes: tuple[int, int], since: int) -> None:
        """Take the streams of a program that starts now."""
        self.room = self.room or Room.beside(order["out"])
        out, err = (Stream(pipe, order[name], self.room) for pipe, name in zip(pipes, ("out", "err"), strict=True))
        self.pause.note_call(True)
        began = self.pause.clock()
        self.call = RunningCall(out, err, began, began + order["seconds"], since)
        for stream in (out, err):
            self._register(stream.pipe, lambda stream=stream: self._read_stream(stream))

    # --- the loop ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the container has ended, however it does; then nothing of it is left."""
        while not self.over:
            for key, _ in self.selector.select(self._pause()):
                if self.selector.get_map().get(key.fd) is key:  # what came before it may have ended its stream
                    key.data()
            status = reap().get(self.leader)
            if status is not None:
                self.status, self.over = status, True
            self._keep_limits()
        self._finish()

    def _pause(self) -> float:
        """Seconds until something may be due."""
        now, still = time.monotonic(), self.pause.seconds
        due = [self.deadline + still, self.kill_at or FAR + now]
        if self.call is not None:
            due += [self.call.deadline + still, self.call.kill_at or FAR + now, self.call.give_up_at or FAR + now]
            due += [self.call.ended_at + DRAIN_SECONDS] if self.call.ended_at else []
        due += [now + WAIT_SECONDS] if self.wait or (self.call and self.call.kill_at) else []
        due += [now + WAIT_SECONDS] if self.loan and not (self.call or self.loan.kept) else []
        due += [stream.late_at for stream in self.late]
        return min(max(min(due) - now, 0.005), LOOK_SECONDS)

    def _keep_limits(self) -> None:
        now = time.monotonic()
        if self.freezer.since is not None:
            self._keep_frozen(now)
        for stream in self.late:
            stream.read_late()
        self.late = [stream for stream in self.late if stream.open]
        if self.breach is not None:
            self._end(self.breach.reason, 0.0 if self.breach.at_once else self.grace_s)
        if self._has_passed(self.deadline):
            self._end("time limit of the run", self.grace_s - LOOK_SECONDS)
        if self.kill_at is not None and now >= self.kill_at:
            self.over = True
        if self.call is not None:
            self._keep_call(self.call, now)
        if self.loan is not None and not (self.call or self.loan.kept):
            self._keep_loan(self.loan, now)
        how = self.wait.over() if self.wait else None
        if how is not None:
            self.wait = None
            self._report(report="waited", how=how)

    def _has_passed(self, deadline: float) -> bool:
        return self.pause.clock() >= deadline and self.freezer.since is None

    def _keep_call(self, call: RunningCall, now: float) -> None:
        if self._has_passed(call.deadline):
            self._end_call(call, "timeout", "")
        if call.give_up_at is not None and now >= call.give_up_at:
            self._end("the call could not be ended", 0.0)
        elif call.kill_at is not None and now >= call.kill_at and call.ended_at is None:
            call.give_up_at = call.give_up_at or now + tree.KILL_SECONDS
            tree.send(tree.started_since(os.getpid(), call.since), signal.SIGKILL)
        if call.ended_at is not None and self.kill_at is None:
            self._try_to_answer(call, now)

    def _keep_loan(self, loan: Loan, now: float) -> None:
        """Give shared cards back once nothing is left that a call started: what lives could open one at any time."""
        since = self.first_call or 0
        if loan.kill_at is not None and now >= loan.kill_at:
            tree.send(tree.started_since(os.getpid(), since), signal.SIGKILL)
        if not tree.has_started_since(os.getpid(), since):
            self.loan = None
            loan.give_back()

    def _clear(self) -> None:
        """Ask all that calls have left behind to end, and kill it after the grace."""
        self._thaw()
        if self.loan is not None:
            self.loan.kept, self.loan.kill_at = False, time.monotonic() + self.grace_s
            tree.send(tree.started_since(os.getpid(), self.first_call or 0), signal.SIGTERM)

    def _end_call(self, call: RunningCall, ending: str, reason: str) -> None:
        """Ask a call's processes to end, and kill them after the grace; the first reason counts."""
        self._thaw()  # what stands still cannot end by itself
        if call.kill_at is None:
            call.ending, call.reason, call.kill_at = ending, reason, time.monotonic() + self.grace_s
            tree.send(tree.started_since(os.getpid(), call.since), signal.SIGTERM)

    def _end(self, reason: str, grace_s: float) -> None:
        """End the container; the first reason and the earliest kill count."""
        self._thaw()
        kill_at = time.monotonic() + grace_s
        if self.kill_at is None:
            self.reason, self.kill_at = reason, kill_at
            if self.call is not None and self.call.ending == "exited":
                self.call.ending, self.call.reason = "stopped", reason
            if grace_s:
                tree.send(tree.descendants(os.getpid()), signal.SIGTERM)
        self.kill_at = min(self.kill_at, kill_at)

    # --- the driver -------------------------------------------------------------------------------------------

    def _handle_order(self) -> None:
        packet, lent = b"", list[int]()
        with contextlib.suppress(OSError):  # closed with reports unread
            packet, lent, _, _ = socket.recv_fds(self.driver, 1 << 20, MOST_LENT, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            self.over = self.orphaned = True
            return
        order = json.loads(packet)
        now = time.monotonic()
        match order["order"]:
            case "call":
                self._call(order)
            case "stop":
                if order["container"]:
                    self._end(order["reason"], self.grace_s)
                elif self.call is not None:
                    self._end_call(self.call, "stopped", order["reason"])
            case "output":
                self._report(report="runtime_output", runtime_output=self.runtime_output.decode("latin-1"))
            case "wait":
                self._wait(order["process"], now + min(order["seconds"], FAR))
            case "deadline":
                self.deadline = self.pause.clock() + min(FAR, FAR if order["seconds"] is None else order["seconds"])
                self.deadline -= now - (self.freezer.since or now)  # to which thawing adds it
            case "freeze":
                self._freeze(now + order["seconds"] + FROZEN_SECONDS)
            case "thaw":
                self._thaw()
            case "lend":
                self.loan = Loan(lent, order["kept"])
            case "keep":
                self._report(report="kept", held=self.loan is not None)
                if self.loan is not None:
                    self.loan.kept = True
            case "clear":
                self._clear()
            case "waits":
                self.pause.note_waits(order["waits"])

    def _freeze(self, thaw_at: float) -> None:
        if self.kill_at is None and (self.call is None or self.call.kill_at is None):
            self.thaw_at = thaw_at
            self.freezer.freeze()

    def _keep_frozen(self, now: float) -> None:
        if now >= self.thaw_at:
            self._thaw()
        self.freezer.keep(now)

    def _thaw(self) -> None:
        seconds = self.freezer.thaw()
        self.deadline += seconds
        if self.call is not None:
            self.call.deadline += seconds

    def _call(self, order: Order) -> None:
        assert self.control is not None
        if order["call"]:
            self._watch()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        now = tree.ticks()
        self.first_call = now if self.first_call is None else self.first_call
        if self.loan is not None:
            self.loan.kept = False
        self._open_streams(order, (out, err), now)
        packet = json.dumps({"call": order["call"], "argv": order["argv"]}).encode()
        try:
            socket.send_fds(self.control, [packet], [out_end, err_end])
        except OSError as error:
            self._end(f"the runner takes no call ({error.strerror})", 0.0)
        finally:
            os.close(out_end)
            os.close(err_end)

    def _wait(self, process: int | None, until: float) -> None:
        below = [] if process is None else tree.descendants(os.getpid())
        pid = next((pid for pid in below if tree.read_status(pid, b"NSpid:") == str(process)), 0)
        task = tree.read_task(pid) if pid else None
        if process is None or task is not None:
            self.wait = Wait(until, pid, task.started if task else 0)
        else:
            self._report(report="waited", how="unknown")

    def _report(self, **report: Any) -> None:
        with contextlib.suppress(OSError):  # the driver has gone, which its end of the socket shows
            self.driver.send(json.dumps(report).encode())

    # --- the container ----------------------------------------------------------------------------------------

    def _handle_answer(self) -> None:
        """Take an answer of the runner, which is not trusted: anything else than an expected answer is its end."""
        assert self.control is not None
        try:
            answer = self.control.recv(ANSWER.size + 1)
        except OSError:
            answer = b""
        kind, _, number = ANSWER.unpack(answer) if len(answer) == ANSWER.size else (b"", 0, 0)
        if kind == READY and not self.ready:
            self.ready = True
            self._report(report="ready", grouped=self.group is not None)
        elif kind in (ENDED, FAILED) and self.call is not None and self.call.ended_at is None:
            self._handle_end(self.call, number, failed=kind == FAILED)
        else:
            self.selector.unregister(self.control)
            self._end("the runner ended" if not answer else "the runner broke", 0.5)

    def _handle_end(self, call: RunningCall, number: int, *, failed: bool) -> None:
        call.status, call.error = (None, number) if failed else (number, 0)
        call.ended_at = time.monotonic()
        if call.error == errno.EAGAIN:  # what earlier calls left behind keeps all others from starting
            self._end("no further program can be started", 0.0)
        if self.kill_at is not None:  # the call that a limit of the container has ended is answered with its end
            self.kill_at = min(self.kill_at, call.ended_at + LAST_SECONDS)
            return
        if call.ending != "exited":
            tree.send(tree.started_since(os.getpid(), call.since), signal.SIGKILL)
        self._try_to_answer(call, call.ended_at)

    def _try_to_answer(self, call: RunningCall, now: float) -> None:
        """Report a call's end when its streams have ended too, or are held open by what lives on."""
        for stream in (call.out, call.err):
            end = stream.total + DRAIN_BYTES
            while stream.total < end and stream.read():
                pass
        if not (call.out.open or call.err.open) or now >= (call.ended_at or now) + DRAIN_SECONDS:
            self._answer(call)

    def _answer(self, call: RunningCall) -> None:
        self.call = None
        self.pause.note_call(False)
        elapsed = (call.ended_at or time.monotonic()) - self.pause.seconds - call.began
        for stream in (call.out, call.err):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(stream.pipe)
            if stream.open:
                self.late.append(stream)
        self._report(
            report="ended",
            ending=call.ending,
            reason=call.reason,
            status=call.status,
            error=call.error,
            elapsed_s=max(0.0, elapsed),
            memory=self.watchdog.peak if self.group is None else self.group.peak,
            out=call.out.summary(),
            err=call.err.summary(),
            gone=self.over,
        )

    def _read_stream(self, stream: Stream) -> None:
        pipe = stream.pipe
        stream.read()
        if not stream.open:
            self.selector.unregister(pipe)

    def _read_runtime(self, pipe: int) -> None:
        """Collect the output of the container runtime."""
        with contextlib.suppress(BlockingIOError):
            block = os.read(pipe, 65536)
            self.runtime_output = (self.runtime_output + block)[-RUNTIME_OUTPUT_BYTES:]
            if not block:
                self.overheard.remove(pipe)
                self.selector.unregister(pipe)
                os.close(pipe)

    # --- the end ----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Kill what is left, then report the call that was going on, and the end."""
        tree.kill_rest()
        if self.breach is not None and self.reason == self.breach.reason:
            self.reason = self.watchdog.blame(self.breach)
            if self.call is not None and self.call.reason == self.breach.reason:
                self.call.reason = self.reason
        if not self.orphaned:
            self._report_end()
        if self.call is not None:
            self.late += [self.call.out, self.call.err]
        for stream in self.late:
            stream.close()
        if self.group is not None:
            self.group.remove()
        if self.loan is not None:
            self.loan.give_back()

    def _report_end(self) -> None:
        for pipe in list(self.overheard):
            self._read_runtime(pipe)
        reason, call = self._end_reason(), self.call
        if call is not None:
            alone = self.control is None
            call.status = self.status if alone else call.status
            if call.ending == "exited" and (self.reason or not alone):
                call.ending, call.reason = "stopped", reason
            call.ended_at = time.monotonic()
            self._try_to_answer(call, call.ended_at + DRAIN_SECONDS)
        runtime_output = self.runtime_output.decode("latin-1")
        self._report(report="gone", reason=reason, runtime_output=runtime_output)

    def _end_reason(self) -> str:
        if self.group is not None and self.group.oom_kills:
            return f"memory limit: more than {(self.watchdog.limit.memory or 0) / 1e9:.3g} GB are used"
        return self.reason or "its first program has ended"


def spawn(order: Order, streams: tuple[int, int, int], driver: socket.socket, group: Group | None) -> int:
    """Start the command in a process group of its own; a failure is reported by the child itself."""
    pid = os.fork()
    if pid:
        return pid
    command = order["command"]
    try:
        tree.end_with_parent()
        os.setpgid(0, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        if group is not None:
            group.join()
        prefer_for_killing()
        limits = dict(order["rlimits"])
        own_processes = limits.pop(OWN_PROCESSES, None)
        if own_processes is not None and count_apart():
            limits["RLIMIT_NPROC"] = own_processes
        apply_limits(limits)
        os.chdir(order["cwd"])
        os.execvpe(command[0], command, order["env"])
    except (OSError, ValueError) as error:
        driver.send(json.dumps({"report": "failed", "why": f"{command[0]}: {error}"}).encode())
    os._exit(127)


def apply_limits(limits: dict[str, int]) -> None:
    """Set resource limits, each as far as the hard limit allows."""
    for name, wanted in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))


def prefer_for_killing() -> None:
    """Tell the kernel to end this tree first when the machine runs out of memory, not the driver (proc(5))."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
        stream.write("1000")


def main(arguments: list[str]) -> None:
    """Run one container to its end and leave nothing of it behind."""
    driver = socket.socket(fileno=int(arguments[0]))
    driver.set_inheritable(False)
    tree.adopt_orphans()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    order = json.loads(driver.recv(1 << 20))
    try:
        supervisor = Supervisor(driver, order, writer)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        supervisor.selector.register(reader, selectors.EVENT_READ, lambda: os.read(reader, 4096))
        supervisor.run()
    except OSError as error:
        driver.send(json.dumps({"report": "failed", "why": f"{error}"}).encode())
    finally:
        tree.kill_rest()
