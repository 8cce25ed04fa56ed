"""Hook reports: training and native escapes, as the hook inside (``hook/``) writes them into a named pipe.

The pipe is weak evidence by definition: the agent's code may avoid the hook, write lines itself, or flood it. So
nothing here waits, what is kept is bounded, and a forged line can only speak against the run that forged it.
Rules and confidence: docs/specification.md, 9.8 and 9.9.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automedbench.base.records import Category, Confidence, Finding, Severity
from automedbench.sandbox.container.process import Stop

MAX_BYTES = 1024 * 1024  # per look; the hook of one process says at most 64 lines of 300 characters
PIPE_BYTES = 1024 * 1024
MUCH_JUNK = 64 * 1024
"""Bytes of a call that say nothing new: more of them may have kept reports out of the pipe."""
MAX_LINE = 4096
MAX_DETAILS = 200


@dataclass(frozen=True)
class ReportRule:
    """Rule for one kind of report line."""

    id: str
    category: Category
    confidence: Confidence
    severity: Severity = "notice"


RULES = {
    "native.escape": ReportRule("runtime.native_escape", "escape", "medium", "warning"),
    "native": ReportRule("runtime.native", "escape", "low"),
    "torch.backward": ReportRule("training.backward", "training", "low"),
    "torch.step": ReportRule("training.step", "training", "medium"),
    "torch.changed": ReportRule("training.changed", "training", "medium"),
    "torch.optimise": ReportRule("training.image_parameters", "training", "low"),
    "torch.grad": ReportRule("training.grad", "training", "low"),
    "torch.train": ReportRule("training.mode", "training", "low"),
    "jax.grad": ReportRule("training.grad", "training", "low"),
    "jax.step": ReportRule("training.changed", "training", "medium"),
    "fit.keras": ReportRule("training.fit", "training", "medium"),
    "fit.sklearn": ReportRule("training.supervised_fit", "training", "medium"),
    "fit.boosting": ReportRule("training.fit", "training", "medium"),
}
_TRAINS = {"torch.backward", "torch.step"}
DROPPED = ReportRule("hook.dropped", "resource", "low")


@dataclass
class EvidencePipe:
    """Reading end of a run's pipe; ``findings`` gives those since its last call."""

    path: Path
    _descriptor: int = field(init=False)
    _rest: bytes = field(init=False, default=b"")
    _junk: int = field(init=False, default=0)
    _details: dict[str, dict[str, None]] = field(init=False, default_factory=dict)
    _of_process: dict[str, set[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        os.mkfifo(self.path, 0o600)
        # Open for writing too, so that the end of one writer is not the end of the pipe.
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a user's pipes may hold no more than /proc/sys/fs/pipe-user-pages-soft
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # Inside it has no reader: the bind is read-only, so its mode cannot be changed there.
        os.chmod(self.path, 0o200)

    def close(self) -> None:
        """Close and remove the pipe; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.path.unlink(missing_ok=True)

    def poll(self) -> None:
        """Read the reports since the last call, without waiting."""
        taken = 0
        while self._descriptor >= 0 and taken < MAX_BYTES:
            try:
                block = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return
            taken += len(block)
            *lines, self._rest = (self._rest + block).split(b"\n")
            self._rest = self._rest[-MAX_LINE:]
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        kind, _, rest = line.decode("ascii", "replace").partition("\t")
        process, _, detail = rest.partition("\t")
        rule = RULES.get(kind)
        if rule is None or len(line) > MAX_LINE:
            self._junk += len(line) + 1
            return
        details = self._details.setdefault(kind, {})
        shown = "".join(character if character.isprintable() else "?" for character in detail)
        if shown in details or len(details) >= MAX_DETAILS:
            self._junk += len(line) + 1
        else:
            details[shown] = None
        if kind in _TRAINS and len(self._of_process) < MAX_DETAILS:
            self._of_process.setdefault(process, set()).add(kind)

    @property
    def trained(self) -> bool:
        """One process has computed gradients and changed a network's parameters with them."""
        return any(kinds >= _TRAINS for kinds in self._of_process.values())

    def watch(self) -> Stop | None:
        """End a container in which something trains (docs/specification.md, 9.9)."""
        self.poll()
        why = "training: gradient steps on a network's parameters are not allowed"
        return Stop(why, container=True) if self.trained else None

    def findings(self, *, turn: int | None, call: int | None) -> list[Finding]:
        """List at most one finding per rule, from the reports since the last call of this method."""
        self.poll()
        found: dict[str, tuple[ReportRule, list[str]]] = {}
        for kind, details in self._details.items():
            rule = RULES[kind]
            found.setdefault(rule.id, (rule, []))[1].extend(details)
        if self._junk > MUCH_JUNK:
            found[DROPPED.id] = (DROPPED, [f"{self._junk} bytes in the pipe are no report, or were told before"])
        made = [_finding(rule, details, self.trained, turn, call) for rule, details in found.values()]
        self._details, self._junk = {}, 0
        if self.trained:
            self._of_process = {}
        return sorted(made, key=lambda finding: (finding.severity != "warning", finding.rule))


def _finding(rule: ReportRule, details: Sequence[str], trained: bool, turn: int | None, call: int | None) -> Finding:
    certain = trained and rule.id == "training.step"
    more = f" and {len(details) - 3} more" if len(details) > 3 else ""
    what = "backward and step of " if certain else ""
    return Finding.of(
        rule.id,
        "runtime",
        rule.category,
        "warning" if certain else rule.severity,
        "high" if certain else rule.confidence,
        what + "; ".join(detail[:90] for detail in details[:3]) + more,
        turn=turn,
        call=call,
        blocked=certain,
    )
