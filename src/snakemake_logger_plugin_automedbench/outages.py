"""Says during a call which endpoint its runs wait for, and since when, and that one answers again."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

LOOK_S = 10.0


def watch_outages(results: str) -> None:
    """Log each outage that the pace files of agents' endpoints show from now on, until the call ends."""
    threading.Thread(target=_watch, args=(Path(results, "endpoints"),), daemon=True).start()


def _watch(folder: Path) -> None:
    from snakemake.logging import logger

    from automedbench.base.endpoint.pacer import list_outages

    known, told = set(list_outages(folder)), set[str]()
    while True:
        time.sleep(LOOK_S)
        for line in describe_changes(list_outages(folder), known, told):
            logger.warning(line)


def describe_changes(outages: Collection[str], known: Collection[str], told: set[str]) -> Iterator[str]:
    """Lines on outages that are new, and on those that are over; ``told``: those that a line was on.

    What is ``known`` from before the call is new once a further attempt fails.
    """
    now = {line.partition(" (")[0]: line for line in outages}
    for outage, line in now.items():
        if outage not in told and line not in known:
            told.add(outage)
            yield f"Waiting: {line}."
    for outage in sorted(told - set(now)):
        told.remove(outage)
        yield f"{outage.partition(' ')[0]} answers again."
