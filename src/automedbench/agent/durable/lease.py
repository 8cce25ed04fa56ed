"""Lease on a run: never two live paid agents of one run, on one machine or across nodes of a shared file system.

The lease is a file beside the run's attempts, made with ``link`` (atomic on NFS too). Its holder touches it regularly.
It is stale when its process is dead (same host) or when it was not touched for ``stale_s``, watched with the watcher's
own clock, so that clocks of two nodes need not agree.

A holder that could not touch it for half of that time gives it up for good: it was suspended or its file system hung,
and another may take over at any moment. So between the last request of the old holder and the first of the new one lies
always more than a heartbeat.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pydantic

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import new_beside, to_json
from automedbench.base.records import Model, now
from automedbench.sandbox.container.tree import read_task

HEARTBEAT_S = 10.0
STALE_S = 120.0
POLL_S = 1.0


class Holder(Model):
    """Process that holds a lease."""

    token: str
    host: str
    boot: str
    pid: int
    process_start: int | None
    slurm_job: str | None
    since: datetime

    @property
    def process(self) -> tuple[str, str, int, int | None]:
        """Identifier of this process, unique among all machines."""
        return self.host, self.boot, self.pid, self.process_start

    def __str__(self) -> str:
        job = f", Slurm job {self.slurm_job}" if self.slurm_job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since:%Y-%m-%d %H:%M:%S} UTC"


class Lease:
    """A held lease."""

    def __init__(self, path: Path, holder: Holder, stale_s: float = STALE_S) -> None:
        self.path = path
        self.holder = holder
        self._patience_s = stale_s / 2
        self._beaten_at = _clock()
        self._lost: str | None = None
        self._beating = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_fresh, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise InfrastructureError when this process may not go on; called before everything that costs or counts."""
        self._beat(touch=False)
        if self._lost is not None:
            raise InfrastructureError(
                f"The lease {self.path} {self._lost}.\n"
                "This process stops before it spends anything more; run the same command again to go on."
            )

    def release(self) -> None:
        """Stop the heartbeat and remove the file, unless another process holds it by now."""
        self._stop.set()
        self._thread.join()
        # The claim keeps a watcher that thinks this process dead from removing the lease of its successor.
        with contextlib.suppress(InfrastructureError):
            _end(self.path, self.holder)

    def _keep_fresh(self) -> None:
        while not self._stop.wait(min(HEARTBEAT_S, self._patience_s / 3)):
            with contextlib.suppress(InfrastructureError):
                self._beat(touch=True)

    def _beat(self, *, touch: bool) -> None:
        """See that the lease is ours, and touch it. Once it is lost, it stays lost."""
        with self._beating:
            if self._lost is not None:
                return
            current = _read(self.path)
            if current is None or current.token != self.holder.token:
                self._lost = f"was taken by {current or 'someone who removed it'}"
                return
            touched = touch and _touch(self.path)
            # Looked at last: reading and touching may have hung.
            silent_s = (instant := _clock()) - self._beaten_at
            if silent_s > self._patience_s:
                self._lost = f"was not touched for {silent_s:.0f} s: this process was suspended, or the disk hung"
            elif touched:
                self._beaten_at = instant


def _touch(path: Path) -> bool:
    try:
        os.utime(path)
    except OSError:
        return False
    return True


def _clock() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def hold_lease(
    path: Path,
    wait_s: float,
    *,
    stale_s: float = STALE_S,
    poll_s: float = POLL_S,
    say: Callable[[str], None] = print,
    refusal: str = "This run is already being executed",
) -> Iterator[Lease]:
    """Hold the lease at ``path`` for the block; waits for another holder at most ``wait_s``.

    Raises InfrastructureError when the other holder is still alive then, which begins with ``refusal``, or when the
    folder cannot be written.
    """
    lease = _acquire(path, wait_s, stale_s, poll_s, say, refusal)
    try:
        yield lease
    finally:
        lease.release()


def identify() -> Holder:
    """This process as a holder with a new token."""
    return Holder(
        token=secrets.token_hex(8),
        host=socket.gethostname(),
        boot=_boot_id(),
        pid=os.getpid(),
        process_start=process_start(os.getpid()),
        slurm_job=os.environ.get("SLURM_JOB_ID"),
        since=now(),
    )


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (tells a reused pid apart); None when there is none."""
    task = read_task(pid)
    return None if task is None or task.state in "ZX" else task.started


def is_running(holder: Holder) -> bool | None:
    """Return whether a holder's process runs; None when it cannot be seen: another machine's or user's."""
    if (holder.host, holder.boot) != (socket.gethostname(), _boot_id()):
        return None
    started = process_start(holder.pid)
    if started is None and _is_hidden(holder.pid):
        return None
    return started == holder.process_start


def find_living_holder(folder: Path, *, stale_s: float = STALE_S, poll_s: float = POLL_S) -> Holder | None:
    """A holder of a lease in ``folder`` that lives; the leases of dead ones are removed.

    One that cannot be seen lives when it touches its lease within ``stale_s``, for which this waits.
    """
    found = {path: holder for path in sorted(folder.glob("*.json")) if (holder := _read(path)) is not None}
    touched = {path: touched_at_ns(path) for path in found}
    until = time.monotonic() + stale_s
    while found:
        for path, holder in found.items():
            if is_running(holder) or touched_at_ns(path) not in (touched[path], None):
                return holder
        late = time.monotonic() >= until
        for path in [path for path, holder in found.items() if late or is_running(holder) is False]:
            _end(path, found.pop(path))
        time.sleep(poll_s if found else 0)
    return None


def touched_at_ns(path: Path) -> int | None:
    """Time of a file's last modification, by the file server's clock; None without the file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _acquire(
    path: Path, wait_s: float, stale_s: float, poll_s: float, say: Callable[[str], None], refusal: str
) -> Lease:
    holder = identify()
    watch = Watch(stale_s)
    deadline = time.monotonic() + wait_s
    announced = False
    while not _create(path, holder):
        current = _read(path)
        if current is not None and current.token == holder.token:
            break  # a repeated NFS request answers 'exists' to a link that did succeed
        if current is not None and watch.is_stale(path, current) and _end(path, current, watch):
            say(f"Taking over the lease of {current}, which is gone.")
            continue
        if time.monotonic() >= deadline:
            raise InfrastructureError(
                f"{refusal} by {current or 'an unreadable holder'}.\n"
                f"It is still alive after {wait_s:.0f} s: wait until it ends, or stop it. The lease is {path}."
            )
        if current is not None and not announced:
            say(f"Waiting for {current}, which executes this run already.")
            announced = True
        time.sleep(poll_s)
    _remove_old_claims(path, holder)
    return Lease(path, holder, stale_s)


class Watch:
    """Remembers since when leases did not change, by this process's own clock."""

    def __init__(self, stale_s: float = STALE_S) -> None:
        self._stale_s = stale_s
        self._seen: dict[Path, tuple[object, float]] = {}

    def holder(self, path: Path) -> Holder | None:
        """Holder of the lease at ``path``, as far as is known; None when it is free or its holder is gone."""
        current = _read(path)
        return None if current is None or self.is_stale(path, current) else current

    def is_stale(self, path: Path, current: Holder) -> bool:
        """True when the holder's process is gone, or the lease was not touched for too long."""
        running = is_running(current)
        return self.is_old(path, current.token) if running is None else not running

    def is_old(self, path: Path, token: str) -> bool:
        """True when a file stayed the same for too long under this process's eyes."""
        seen = (token, touched := touched_at_ns(path))
        if touched is None:
            return False
        before, since = self._seen.get(path, (None, 0.0))
        if seen != before:
            self._seen[path] = (seen, time.monotonic())
            return False
        return time.monotonic() - since > self._stale_s


def _is_hidden(pid: int) -> bool:
    """The process exists, but /proc does not show it: another user's, on a machine that hides those."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not Path(f"/proc/{pid}").exists()
    except OSError:
        return False
    return False


def _create(path: Path, holder: Holder) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_beside(path)
        try:
            with open(temporary, "w", encoding="utf-8") as stream:
                stream.write(to_json(holder.model_dump(mode="json")))
                stream.flush()
                os.fsync(stream.fileno())
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise InfrastructureError(f"Cannot make the lease {path}: {error.strerror or error}.") from error
    return True


def _end(path: Path, holder: Holder, watch: Watch | None = None) -> bool:
    """Remove a lease; of its holder and all watchers only the one that makes the claim file removes it.

    Without the claim a second one could remove the lease that another has just made. A claim whose maker died is
    forgotten when it has not changed for too long under the eyes of ``watch``.
    """
    claim = path.with_name(f"{path.name}.{holder.token}")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        if watch is not None and watch.is_old(claim, holder.token):
            claim.unlink(missing_ok=True)
        return False
    except OSError as error:
        raise InfrastructureError(f"Cannot claim the lease {path}: {error.strerror or error}.") from error
    current = _read(path)
    if current is not None and current.token == holder.token:
        path.unlink(missing_ok=True)
    claim.unlink(missing_ok=True)
    return True


def _remove_old_claims(path: Path, holder: Holder) -> None:
    """Remove claims that killed processes left; a claim on a lease that is gone protects nothing."""
    with contextlib.suppress(OSError):
        for claim in path.parent.glob(f"{path.name}.*"):
            if claim.suffix != f".{holder.token}":
                claim.unlink(missing_ok=True)


def _read(path: Path) -> Holder | None:
    try:
        return Holder.model_validate_json(path.read_bytes())
    except (FileNotFoundError, pydantic.ValidationError):
        return None
    except OSError as error:
        raise InfrastructureError(f"Cannot read the lease {path}: {error.strerror or error}.") from error


def _boot_id() -> str:
    """Boot and process namespace: process numbers mean the same only where both are equal."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "unknown"
