"""Log of every request: one JSON line each, bounded in length and number, and the sums that findings need."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from automedbench.base.records import Finding
from automedbench.sandbox.egress.rules import Verdict

MAX_SAME = 50  # lines of one call that say the same
MAX_CALL = 2_000
MAX_RUN = 50_000
MAX_HOST, MAX_PATH, MAX_TEXT = 120, 240, 200
MAX_KINDS = 64
MAX_FINDINGS, SHOWN_PLACES = 5, 3
_ORDER = {"disqualifying": 0, "warning": 1, "notice": 2}

Service = Literal["proxy", "hub"]

_SECRET = re.compile(r"\b(sk-|hf_|ghp_|github_pat_|xox[bp]-|AKIA)[A-Za-z0-9_-]{6,}|[A-Za-z0-9+_-]{80,}={0,2}")


@dataclass
class Entry:
    """One request on its way; ``up`` and ``down`` are bytes of bodies, or of the tunnel."""

    service: Service
    call: int | None
    turn: int | None
    method: str = "?"
    host: str = ""
    port: int | None = None
    path: str = ""
    status: int | None = None
    up: int = 0
    down: int = 0
    sha256: str | None = None
    begun: float = field(default_factory=time.monotonic)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Kind:
    """Refusals of one kind in one call."""

    verdict: Verdict
    count: int = 0
    where: Counter[str] = field(default_factory=Counter)


def findings_of(kinds: Iterable[Kind], turn: int | None, call: int | None) -> list[Finding]:
    """Findings of one call: the worst kinds of refusal one each, what is over the limit in the last one's words."""
    ranked = sorted(kinds, key=lambda kind: (_ORDER[kind.verdict.severity], kind.verdict.rule, -kind.count))
    kept, rest = ranked[:MAX_FINDINGS], ranked[MAX_FINDINGS:]
    last = f"; {sum(kind.count for kind in rest)} other refusals: see the log of requests" if rest else ""
    return [
        _finding(kind, number, last if number == len(kept) else "", turn, call)
        for number, kind in enumerate(kept, start=1)
    ]


def _finding(kind: Kind, number: int, last: str, turn: int | None, call: int | None) -> Finding:
    verdict, shown = kind.verdict, [place for place, _ in kind.where.most_common(SHOWN_PLACES)]
    more = f" and {len(kind.where) - len(shown)} more" if len(kind.where) > len(shown) else ""
    return Finding.of(
        verdict.rule,
        "egress",
        "network",
        verdict.severity,
        verdict.confidence,
        f"{verdict.reason}: {', '.join(shown)[:180] or 'no host'}{more} ({kind.count} times){last}",
        turn=turn,
        call=call,
        place=f"{'end' if call is None else f'{call:04d}'}-{number}",
        blocked=verdict.severity != "disqualifying",
    )


class RequestLog:
    """Appends to a file; what is over the limits is counted, and the counts are appended at the end of a call."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._of_run = 0
        self._start_call()

    def close(self) -> None:
        """Write what is still to be counted, and close the file."""
        self._write_skipped(None, None)
        os.fsync(self._file)
        os.close(self._file)

    def record(self, entry: Entry, verdict: Verdict) -> None:
        """Append one request with its verdict."""
        host, path = mask(entry.host, MAX_HOST), mask(entry.path.partition("?")[0], MAX_PATH)
        outcome = "allowed" if verdict.allowed else "refused"
        if not verdict.allowed:
            self._count(verdict, f"{host}{path}" if path else host)
        same = (entry.service, entry.method, host, path, verdict.reason)
        self._same[same] += 1
        if self._same[same] > MAX_SAME or self._of_call >= MAX_CALL or self._of_run >= MAX_RUN:
            self._skipped[f"{outcome}: {verdict.reason}"] += 1
            self._skipped_bytes[0] += entry.up
            self._skipped_bytes[1] += entry.down
            return
        self._of_call += 1
        self._of_run += 1
        line = {
            "time": entry.at.isoformat(timespec="milliseconds"),
            "turn": entry.turn,
            "call": entry.call,
            "service": entry.service,
            "method": mask(entry.method, 20),
            "host": host,
            "port": entry.port,
            "path": path or None,
            "verdict": outcome,
            "reason": verdict.reason,
            "status": entry.status,
            "up": entry.up,
            "down": entry.down,
            "seconds": round(time.monotonic() - entry.begun, 3),
        }
        self._append(line if entry.sha256 is None else {**line, "sha256": entry.sha256})

    def end_call(self, turn: int | None, call: int | None) -> list[Finding]:
        """Findings of what was refused since the last call of this; counts of what was not written go to the file."""
        self._write_skipped(turn, call)
        findings = findings_of(self._kinds.values(), turn, call)
        self._start_call()
        return findings

    def _start_call(self) -> None:
        self._of_call = 0
        self._same: Counter[tuple[str, ...]] = Counter()
        self._skipped: Counter[str] = Counter()
        self._skipped_bytes = [0, 0]
        self._kinds: dict[tuple[str, str, str], Kind] = {}

    def _count(self, verdict: Verdict, where: str) -> None:
        kind = self._kinds.setdefault((verdict.rule, verdict.reason, verdict.severity), Kind(verdict))
        kind.count += 1
        if where in kind.where or len(kind.where) < MAX_KINDS:
            kind.where[where] += 1

    def _write_skipped(self, turn: int | None, call: int | None) -> None:
        if self._skipped:
            up, down = self._skipped_bytes
            line = {"turn": turn, "call": call, "not_written": dict(self._skipped), "up": up, "down": down}
            self._append({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **line})
            self._skipped.clear()

    def _append(self, line: dict[str, Any]) -> None:
        # One write per line: a reader never sees half of one, and a kill loses none that was written.
        os.write(self._file, json.dumps(line, ensure_ascii=True).encode() + b"\n")


def mask(text: str, limit: int) -> str:
    """One bounded line of plain characters without what looks like a secret."""
    plain = re.sub(r"[^ -~]", "?", text)
    return _SECRET.sub(lambda match: f"{match[1] or ''}…", plain[: 4 * limit])[:limit]
