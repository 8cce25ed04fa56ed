"""Planted network faults: a package index that is down for a while, or a download that breaks off once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from automedbench.sandbox.egress.rules import Ruling

if TYPE_CHECKING:
    from automedbench.sandbox.egress.exchange import EgressEntry

NetworkFault = Literal["index-down", "cut-download"]
DOWN_S = 300.0
"""How long the index is down, from the first request for it."""
CUT_BYTES = 1 << 20
"""Of a download, before it breaks off."""
PLANTED = Ruling(True, "planted")
"""Ruling of a request that met the fault; the log of requests is the evidence."""


class BrokenOff(OSError):
    """The connection of a download that breaks off."""


@dataclass
class Outage:
    """The network fault of a run, if it has one; ``index`` are the hosts of packages."""

    kind: NetworkFault | None
    index: Collection[str]
    clock: Callable[[], float] = time.monotonic
    _since: float | None = None
    _broke: bool = False

    def is_down(self, service: str, target: str) -> bool:
        """Check whether a request is for the index while that is down; the first one begins it."""
        if self.kind != "index-down" or not (service == "index" or _host(target) in self.index):
            return False
        self._since = self.clock() if self._since is None else self._since
        return self.clock() - self._since < DOWN_S

    def pass_on(self, entry: EgressEntry, size: int) -> None:
        """Let more come down; raises BrokenOff instead in the first long download that is no package."""
        if self.kind != "cut-download" or self._broke or entry.down + size < CUT_BYTES:
            return
        if entry.service != "index" and entry.host not in self.index:
            self._broke = entry.planted = True
            raise BrokenOff("the download broke off, as planted")


def _host(target: str) -> str:
    """Host of a request's target: a URL, or ``host:port``."""
    return target.removeprefix("http://").partition("/")[0].partition(":")[0]
