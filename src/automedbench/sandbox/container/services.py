"""Services that agent code may talk to although it has no network: sockets of the driver's behind loopback ports.

The sockets lie in one folder that is bound read-only at ``/run/services``. Inside, a forwarder (standard library only)
listens on loopback ports, pipes each to its socket, and starts the agent's code once it listens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SERVICES_DIR = "/run/services"
FORWARDER = Path(__file__).with_name("forwarder.py").resolve()


@dataclass(frozen=True)
class Services:
    """``ports``: loopback port inside → name of its socket in ``folder``; ``environment`` tells programs of them."""

    folder: Path
    ports: Mapping[int, str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Services) -> Services:
        """Both, from one folder."""
        if self.folder != other.folder:
            raise ValueError("services of one container must share their folder")
        return Services(self.folder, {**self.ports, **other.ports}, {**self.environment, **other.environment})
