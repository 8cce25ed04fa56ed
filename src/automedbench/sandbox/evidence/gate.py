"""Gate of the cards that runs share, in the tracer: who opens one waits until the run has its turn.

In the container these devices are mounted so that the kernel refuses to open them (``nodev``): a call that the tracer
lets continue never gets one, also if another thread changes its path meanwhile. What the tracer has resolved to
such a device is kept unanswered. With the turn it gets the device's descriptor, which is opened here, outside
(SECCOMP_IOCTL_NOTIF_ADDFD, Linux 5.14). Opening the first file of a card may take seconds, hence the threads.
Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
import time
from dataclasses import dataclass

WANTED, WITHDRAWN = b"w", b"n"
"""What the driver is told: a process waits for a card; none does any more."""
LOOK_S = 0.2
"""Between two looks whether processes that wait still live."""

# linux/seccomp.h
_IS_VALID, _SEND, _ADD = 0x40082102, 0xC0182101, 0x40182103
_ANSWER, _DESCRIPTOR, _IDENTITY = struct.Struct("<QqiI"), struct.Struct("<QIIII"), struct.Struct("<Q")
_ADD_AND_SEND = 2
_PASSED_ON = os.O_ACCMODE | os.O_NONBLOCK | os.O_APPEND | os.O_SYNC | os.O_DIRECTORY


@dataclass(frozen=True)
class Opening:
    """A call that waits for a device, by its listener and its number there."""

    listener: int
    identity: int
    device: int
    flags: int

    @property
    def is_valid(self) -> bool:
        """Its process lives and waits."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.listener, _IS_VALID, _IDENTITY.pack(self.identity))
            return True
        return False

    def answer(self, node: str) -> None:
        """Give it a descriptor of the device, or the error of opening it; nothing where its process has ended."""
        try:
            descriptor = os.open(node, self.flags & _PASSED_ON | os.O_CLOEXEC | os.O_NOCTTY)
            try:
                given = (self.identity, _ADD_AND_SEND, descriptor, 0, self.flags & os.O_CLOEXEC)
                fcntl.ioctl(self.listener, _ADD, _DESCRIPTOR.pack(*given))
            finally:
                os.close(descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                refusal = _ANSWER.pack(self.identity, 0, -(error.errno or errno.EIO), 0)
                fcntl.ioctl(self.listener, _SEND, refusal)


class Gate:
    """Openings of shared devices, kept while it is not the run's turn."""

    def __init__(self) -> None:
        self._nodes: dict[int, str] = {}
        self._driver = -1
        self._is_open = False
        self._kept: list[Opening] = []
        self._look_at = 0.0

    def guard(self, driver: str, nodes: list[str]) -> None:
        """Keep openings of these devices from now on; the driver reads the FIFO ``driver``. Raises OSError."""
        self._nodes = {os.stat(node).st_rdev: node for node in nodes}
        self._driver = os.open(driver, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def take(self, listener: int, identity: int, device: int, flags: int) -> bool:
        """Answer or keep an opening, if it is of a shared device; a mere place (O_PATH) opens none."""
        if device not in self._nodes or flags & os.O_PATH:
            return False
        self._kept.append(Opening(listener, identity, device, flags))
        if self._is_open:
            self.open()
        elif len(self._kept) == 1:
            self._tell(WANTED)
        return True

    def open(self) -> None:
        """The run has its turn: answer what is kept, and what comes until ``shut``."""
        kept, self._kept, self._is_open = self._kept, [], True
        for opening in kept:
            node = self._nodes[opening.device]
            try:
                threading.Thread(target=opening.answer, args=(node,), daemon=True).start()
            except RuntimeError:  # the user may start no more: all that run may wait here at once
                opening.answer(node)

    def shut(self) -> None:
        """The turn has ended."""
        self._is_open = False

    @property
    def pause_s(self) -> float:
        """Seconds until ``look`` is due; -1 while nothing is kept."""
        return max(0.0, self._look_at - time.monotonic()) if self._kept else -1

    def look(self, gone: int | None = None) -> None:
        """Forget openings of processes that have ended, and those of a listener that is ``gone``."""
        if not self._kept or (gone is None and time.monotonic() < self._look_at):
            return
        self._look_at = time.monotonic() + LOOK_S
        self._kept = [each for each in self._kept if each.listener != gone and each.is_valid]
        if not self._kept:
            self._tell(WITHDRAWN)

    def _tell(self, what: bytes) -> None:
        with contextlib.suppress(OSError):  # a driver that does not read is about to end
            os.write(self._driver, what)
