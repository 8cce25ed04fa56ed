"""Cards that runs share in turn: the places of a card's members, the queue for it, and the turn of its holder.

Every right is a lock of the kernel on an open file (flock(2)), and no process serves it: what ends a process, also
``kill -9``, gives back what it held. A member has a place of the card from its start to its end. For its turn it
draws a ticket, waits for the end of all earlier ones (first come, first served), and locks the card's device file as a
run with a card of its own does: no run of other users or folders computes meanwhile. Ticket and lock are then lent to
the supervisor of its container, which alone knows when no process of a call is left. Files of the queue lie in a
private folder of this machine, which no container sees. Cards are taken in order of their index.

A turn begins when a process of the run opens a card (``Clerk``); where the kernel gives no trace, before each call.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.base.closing import Closing
from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.evidence.gate import WANTED

if TYPE_CHECKING:
    from automedbench.sandbox.container.process import Supervised
    from automedbench.sandbox.evidence.trace import Trace

IDLE_PATIENCE_S = 60.0
"""How long a new holder waits for the memory of the one before; a killed process's is free after 0.2 s."""


def queue_folder(uuid: str) -> Path:
    """The folder of a card's places and queue. Raises InfrastructureError where another user owns its name."""
    parent = Path(tempfile.gettempdir(), f"automedbench-gpus-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        parent.mkdir(mode=0o700)
    facts = parent.lstat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o170077 != 0o040000:
        raise InfrastructureError(f"{parent} is not a private folder of this user.\nRemove it, or set TMPDIR.")
    folder = parent / uuid.replace("/", "_")
    (folder / "queue").mkdir(parents=True, exist_ok=True)
    return folder


def member_place(uuid: str, number: int) -> Path:
    """The file that a member locks for its place on a card."""
    path = queue_folder(uuid) / f"place-{number}"
    path.touch(0o600)
    return path


def wait_in_queue(folder: Path) -> int:
    """Descriptor of a ticket of this queue, once no earlier one is held; closing it ends the turn."""
    number, ticket = _draw_ticket(folder)
    try:
        for earlier in (each for each in _tickets(folder) if each < number):
            with contextlib.suppress(FileNotFoundError), open(folder / str(earlier), "rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH)
                (folder / str(earlier)).unlink(missing_ok=True)
    except BaseException:
        os.close(ticket)
        raise
    return ticket


def _draw_ticket(folder: Path) -> tuple[int, int]:
    """Number and descriptor of a new ticket, held from the moment in which others can see it."""
    with open(folder / "gate", "ab") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        number = max(_tickets(folder), default=0) + 1
        ticket = os.open(folder / str(number), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(ticket, fcntl.LOCK_EX)
    return number, ticket


def _tickets(folder: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())


@dataclass
class Turns:
    """Turns of one run on the cards that it shares (UUID and device file, in order of their index).

    ``is_idle`` tells whether nothing computes on a card, or is about to end there. Only one thread takes and lends.
    """

    cards: Sequence[tuple[str, Path]]
    is_idle: Callable[[str], bool] = lambda _uuid: True
    _held_s: float = 0.0
    _ended: float = field(default_factory=time.monotonic)
    _idle_s: float = 0.0
    _began: float | None = None
    _descriptors: list[int] = field(default_factory=list)
    _end: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> float:
        """Wait for the turn; seconds waited. Raises InfrastructureError where another program computes on a card."""
        if self.held:
            raise RuntimeError("the turn before has not ended")
        began = time.monotonic()
        try:
            for uuid, node in self.cards:
                self._descriptors.append(wait_in_queue(queue_folder(uuid) / "queue"))
                self._descriptors.append(os.open(node, os.O_RDONLY | os.O_CLOEXEC))
                fcntl.flock(self._descriptors[-1], fcntl.LOCK_EX)
                self._wait_until_idle(uuid)
        except BaseException:
            self._drop()
            raise
        with self._lock:
            self._end, writer = os.pipe()
            self._descriptors.insert(0, writer)
            self._began = time.monotonic()
            self._idle_s = max(self._idle_s, self._began - self._ended)
            return self._began - began

    def _wait_until_idle(self, uuid: str) -> None:
        ends = time.monotonic() + IDLE_PATIENCE_S
        while not self.is_idle(uuid):
            if time.monotonic() > ends:
                raise InfrastructureError(
                    f"A program that is no run of this benchmark computes on GPU {uuid}.\n"
                    "Runs that share a card need all of it: end that program (nvidia-smi), or take another card."
                )
            time.sleep(0.02)

    def lend(self, send: Callable[[list[int]], None]) -> None:
        """Hand a turn that was taken over to a supervisor; nothing where it has been."""
        if self._descriptors:
            try:
                send(self._descriptors)
            finally:
                self._drop()

    @property
    def held(self) -> bool:
        """The turn lasts: the supervisor has not given it back, and has not ended."""
        with self._lock:
            return self._is_held()

    @property
    def held_s(self) -> float:
        """Seconds of all turns so far."""
        with self._lock:
            going_on = time.monotonic() - self._began if self._is_held() and self._began is not None else 0.0
            return self._held_s + going_on

    @property
    def idle_s(self) -> float:
        """Seconds of the longest time without a turn so far; other runs may have had theirs."""
        with self._lock:
            return self._idle_s if self._is_held() else max(self._idle_s, time.monotonic() - self._ended)

    @property
    def age_s(self) -> float:
        """Seconds since the turn that lasts began."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def close(self, patience_s: float = 0.0) -> bool:
        """Give up a turn that was not lent; of one that was lent wait for the end (``wait_for_end``)."""
        self._drop()
        return self.wait_for_end(patience_s)

    def wait_for_end(self, patience_s: float) -> bool:
        """Wait for the end of a turn that its supervisor is about to give back; False where it has not in that time."""
        ends = time.monotonic() + patience_s
        while self.held:
            if time.monotonic() >= ends:
                return False
            time.sleep(0.01)
        return True

    def _is_held(self) -> bool:
        """Book a turn that has ended: at the moment that the supervisor wrote, or now where it was killed."""
        if self._end is None or self._began is None:
            return False
        if not select.select([self._end], [], [], 0)[0]:
            return True
        ended = float(os.read(self._end, 64) or time.monotonic())
        os.close(self._end)
        self._held_s, self._end, self._began, self._ended = self._held_s + ended - self._began, None, None, ended
        return False

    def _drop(self) -> None:
        for descriptor in reversed(self._descriptors):
            os.close(descriptor)
        self._descriptors.clear()


class Clerk(Closing):
    """Takes a run's turn when one of its processes opens a shared card, which waits for it; in threads of its own.

    The gate (``gate.py``) is open only while a turn lasts, or while no process lives that could open a card: a call
    begins under the lock under which turns are lent, and shuts it unless the supervisor keeps a turn for the call.
    """

    def __init__(self, turns: Turns, trace: Trace, nodes: Sequence[Path]) -> None:
        """Guard the device files ``nodes``; raises InfrastructureError when the tracer has died."""
        self._turns, self._trace = turns, trace
        self._wanted = trace.guard(nodes)
        self._lock = threading.Lock()
        self._box: Supervised | None = None
        self._fault: Exception | None = None
        self._waits = self._takes = False
        threading.Thread(target=self._listen, name="gpu-clerk", daemon=True).start()

    @contextlib.contextmanager
    def beginning(self, box: Supervised) -> Iterator[None]:
        """Within the context a call begins in ``box``; it has the turn that background work of the run has."""
        with self._lock:
            self._box = box
            if not box.keep_cards():
                self._trace.let_open(False)
            yield

    def check(self) -> None:
        """Raise InfrastructureError where no turn can be had."""
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        """Take no turn any more; one that a thread still waits for is given up at once."""
        with self._lock:
            self._waits, self._box = False, None

    def _listen(self) -> None:
        """Take notice of who waits, until the tracer ends."""
        with open(self._wanted, "rb", buffering=0) as stream:
            while what := stream.read(1):
                with self._lock:
                    self._note(what == WANTED)

    def _note(self, waits: bool) -> None:
        if self._box is None:
            return
        waits = waits and not self._turns.held  # a report from before the gate was opened is out of date
        self._waits = waits
        self._box.note_waits(waits)
        if waits and not self._takes:
            self._takes = True
            threading.Thread(target=self._take, name="gpu-turn", daemon=True).start()

    def _take(self) -> None:
        try:
            self._turns.take()
            with self._lock:
                self._takes = False
                if self._waits and self._box is not None:
                    self._turns.lend(functools.partial(self._box.lend, kept=False))
                    self._trace.let_open(True)
                    self._note(False)
                else:
                    self._turns.close()
        except Exception as error:  # raised where the run waits
            self._fault = error
