"""Paths inside a container, and the driver's services that programs inside reach.

Sockets of the driver's lie in one folder that is bound read-only at ``SERVICES_DIR``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DATA_DIR = "/data/public"
WORKSPACE = "/workspace"
DECOY_DIR = "/data/private"
SKILLS_DIR = "/skills"
CALL_DIR = "/run/call"
FORWARDER_PLACE = "/run/forwarder.py"
RUNNER_PLACE = "/run/runner.py"
TRACE_PLACE, TRACE_FILTER_PLACE = "/run/trace", "/run/trace_filter.py"
HOOK_DIR = "/run/hook"
EVIDENCE_PIPE = "/run/evidence"
SOURCE_DIR = "/opt/automedbench/src"
INPUT_DIR = "/input"
RESOURCE_DIR = "/input/resources"
OUTPUT_DIR = "/output"
SERVICES_DIR = "/run/services"
CA_FILE, CA_STORE = "ca.pem", "/etc/ssl/certs/ca-certificates.crt"
"""Certificates that programs inside trust: in the folder of services, and where the image's system keeps its own."""
DRIVER_DIR = "/.singularity.d/libs"
"""Where the runtime's own LD_LIBRARY_PATH looks inside."""

INPUTS = {
    "source": SOURCE_DIR,
    "card": f"{INPUT_DIR}/card.yaml",
    "manifest": f"{INPUT_DIR}/manifest.json",
    "public": DATA_DIR,
    "workspace": f"{INPUT_DIR}/workspace",
    "private": f"{INPUT_DIR}/private",
    "submission": f"{INPUT_DIR}/submission",
    "submission_record": f"{INPUT_DIR}/submission.json",
}
"""Where our own code sees, read-only, what it is given by these names; what it is not given is not there."""


@dataclass(frozen=True)
class Services:
    """``ports``: loopback port inside → name of its socket in ``folder``; ``environment``: for its users."""

    folder: Path
    ports: Mapping[int, str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Services) -> Services:
        """Both, in one folder, which is the same for all of a run."""
        return Services(self.folder, {**self.ports, **other.ports}, {**self.environment, **other.environment})
