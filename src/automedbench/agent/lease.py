"""A lease on a run: never two live paid agents of one run, on one machine or across nodes of a shared file system.

The lease is a file beside the run's attempts, made with ``link`` (atomic on NFS too). Its holder touches it regularly.
It is stale when its process is dead (same host) or when nobody touched it for ``stale_s``, watched with the watcher's
own clock, so that clocks of two nodes need not agree.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pydantic

from automedbench.errors import InfrastructureError
from automedbench.files import to_json
from automedbench.records import Model, now

HEARTBEAT_S = 10.0
STALE_S = 120.0
POLL_S = 1.0


class Holder(Model):
    """Who holds a lease."""

    token: str
    host: str
    boot: str
    pid: int
    process_start: int | None
    slurm_job: str | None
    since: datetime

    def __str__(self) -> str:
        job = f", Slurm job {self.slurm_job}" if self.slurm_job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since:%Y-%m-%d %H:%M:%S} UTC"


class Lease:
    """A held lease. ``waited`` tells that another holder had to be waited for."""

    def __init__(self, path: Path, holder: Holder, waited: bool) -> None:
        self.path = path
        self.holder = holder
        self.waited = waited
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._keep_fresh, name="lease", daemon=True)
        self._beat.start()

    def check(self) -> None:
        """Raise InfrastructureError when another process took the lease; asked before every paid request."""
        current = _read(self.path)
        if current is None or current.token != self.holder.token:
            raise InfrastructureError(
                f"The lease {self.path} was taken by {current or 'someone who removed it'}.\n"
                "This process was thought dead; it stops before it spends anything more."
            )

    def release(self) -> None:
        """Stop the heartbeat and remove the file, unless somebody else holds it by now."""
        self._stop.set()
        self._beat.join()
        current = _read(self.path)
        if current is not None and current.token == self.holder.token:
            self.path.unlink(missing_ok=True)

    def _keep_fresh(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            with contextlib.suppress(OSError):
                os.utime(self.path)


@contextlib.contextmanager
def hold_lease(
    path: Path, wait_s: float, *, stale_s: float = STALE_S, poll_s: float = POLL_S, say: Callable[[str], None] = print
) -> Iterator[Lease]:
    """Hold the lease at ``path`` for the block; waits for another holder at most ``wait_s``.

    Raises InfrastructureError when the other holder is still alive then, or when the folder cannot be written.
    """
    lease = _acquire(path, wait_s, stale_s, poll_s, say)
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
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rsplit(")", 1)[1].split()
    return None if state in "ZX" else int(fields[18])


def _acquire(path: Path, wait_s: float, stale_s: float, poll_s: float, say: Callable[[str], None]) -> Lease:
    holder = identify()
    watch = _Watch(stale_s)
    deadline = time.monotonic() + wait_s
    waited = False
    while not _create(path, holder):
        current = _read(path)
        if current is not None and watch.is_stale(path, current) and _end(path, current):
            say(f"Taking over the lease of {current}, which is gone.")
            continue
        if time.monotonic() >= deadline:
            raise InfrastructureError(
                f"This run is already being executed by {current or 'an unreadable holder'}.\n"
                f"It is still alive after {wait_s:.0f} s: wait until it ends, or stop it. The lease is {path}."
            )
        if current is not None and not waited:
            say(f"Waiting for {current}, which executes this run already.")
        waited = waited or current is not None
        time.sleep(poll_s)
    return Lease(path, holder, waited)


class _Watch:
    """Remembers when a lease was last seen to change, by this process's own clock."""

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self._seen: tuple[str, int] | None = None
        self._since = time.monotonic()

    def is_stale(self, path: Path, current: Holder) -> bool:
        """True when the holder's process is gone, or nobody touched the lease for too long."""
        if (current.host, current.boot) == (socket.gethostname(), _boot_id()):
            return process_start(current.pid) != current.process_start
        try:
            seen = (current.token, path.stat().st_mtime_ns)
        except OSError:
            return False
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since > self._stale_s


def _create(path: Path, holder: Holder) -> bool:
    """Make the lease if nobody holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".lease.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(to_json(holder.model_dump(mode="json")))
                stream.flush()
                os.fsync(stream.fileno())
            return _link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InfrastructureError(f"Cannot make the lease {path}: {error.strerror or error}.") from error


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileExistsError:
        # A repeated NFS request answers 'exists' to a link that did succeed.
        return source.stat().st_nlink == 2
    return True


def _end(path: Path, stale: Holder) -> bool:
    """Remove a stale lease; of several watchers only the one that makes the claim file removes it.

    Without the claim a second watcher could remove the lease that the first one has just made.
    """
    claim = path.with_name(f"{path.name}.{stale.token}")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return _forget_old_claim(claim)
    except OSError as error:
        raise InfrastructureError(f"Cannot claim the lease {path}: {error.strerror or error}.") from error
    current = _read(path)
    if current is not None and current.token == stale.token:
        path.unlink(missing_ok=True)
    claim.unlink(missing_ok=True)
    return True


def _forget_old_claim(claim: Path) -> bool:
    """A watcher that died between claim and removal must not block the run for ever."""
    with contextlib.suppress(OSError):
        if time.time() - claim.stat().st_mtime > STALE_S:
            claim.unlink(missing_ok=True)
    return False


def _read(path: Path) -> Holder | None:
    try:
        return Holder.model_validate_json(path.read_bytes())
    except (FileNotFoundError, pydantic.ValidationError):
        return None
    except OSError as error:
        raise InfrastructureError(f"Cannot read the lease {path}: {error.strerror or error}.") from error


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
