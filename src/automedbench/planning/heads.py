"""Heads: calls of Snakemake at work in this folder, whose locks stay while they live; and how a local one ends.

Snakemake's ``--unlock`` removes the locks of all of them. A head holds a lease here, as a driver does on its run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import signal
import socket
import time
from pathlib import Path
from types import FrameType

from automedbench.agent.durable.lease import STALE_S, Holder, find_living_holder, hold_lease, is_running
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import known_record
from automedbench.sandbox.container.tree import send, tasks

HEADS = Path(".snakemake/heads")
"""Beside Snakemake's locks, which belong to the folder that it is called in and not to a campaign."""


def begin_head() -> None:
    """Say that this process is at work here, from now until it ends."""
    held = contextlib.ExitStack()
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.json"
    with contextlib.suppress(InfrastructureError):  # where nothing can be written, the first step says so
        held.enter_context(hold_lease(HEADS / name, 0))
        atexit.register(held.close)


def refuse_while_head_lives() -> None:
    """Raise ConfigError when a head is at work here; what dead ones left is removed."""
    if any(HEADS.glob("*.json")):
        print(f"Checking whether Snakemake is running here (for up to {STALE_S:.0f} s) ...", flush=True)
    if (head := find_living_holder(HEADS)) is not None:
        raise ConfigError([f"nothing was unlocked: {_describe_head(head)}"])


def describe_lock() -> str:
    """Who holds the lock of this folder, and the next step: the message of a call that finds it locked."""
    for path in HEADS.glob("*.json"):
        if head := find_holder(path):
            return f"nothing was started: {_describe_head(head)}"
    return (
        "nothing was started: this folder is locked by a call of Snakemake that was killed.\n"
        "Remove its lock by the same command with --unlock, then run the command again."
    )


def find_holder(lease: Path) -> Holder | None:
    """Process that holds a lease: one of this node that lives, or of another one that touched it lately."""
    holder = known_record(lease, Holder)
    running = is_running(holder) if holder else False
    with contextlib.suppress(OSError):  # released meanwhile
        if running or (running is None and time.time() - lease.stat().st_mtime < STALE_S):
            return holder
    return None


def _describe_head(head: Holder) -> str:
    return (
        f"Snakemake is running in this folder: {head}.\n"
        f"Wait until it ends, or stop it there (`kill {head.pid}`), then run the same command again."
    )


def end_steps_at_second_signal() -> None:
    """Let a second SIGTERM end the steps that run here, as Ctrl-C does; at the first, Snakemake waits for them."""
    wait_for_steps = signal.getsignal(signal.SIGTERM)
    read = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal read
        if read:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send(_steps(), signal.SIGTERM)
            raise KeyboardInterrupt
        read = True
        print("SIGTERM: waiting for running steps to end; a second SIGTERM ends them.", flush=True)
        if callable(wait_for_steps):
            wait_for_steps(number, frame)

    signal.signal(signal.SIGTERM, handle)


def _steps() -> list[int]:
    """Processes of the running steps: children of this one, or of the shells that wait for them."""
    known, here = tasks(), os.getpid()
    started = [pid for pid, task in known.items() if task.parent == here]
    return started + [pid for pid, task in known.items() if task.parent in started]
