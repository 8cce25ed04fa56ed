"""`automedbench doctor` where an ordinary user has installed it: real containers, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Project

CAMPAIGN = ("--configfile", "demo/config.yaml", "demo/apptainer.yaml")
# Campaigns of the demo ask no endpoint, and these are not staged.
PROBED = ("python", "apptainer", "images", "isolation", "seccomp", "leases")


@pytest.mark.apptainer
def test_all_that_isolates_works(container_stranger: Project) -> None:
    before = set(Path("/tmp").glob("sandbox-doctor-*"))
    done = container_stranger.run(".venv/bin/automedbench", "doctor", *CAMPAIGN, "--json", timeout=120)
    findings = json.loads(done.stdout)
    statuses: dict[str, set[str]] = {}
    for finding in findings:
        statuses.setdefault(finding["probe"], set()).add(finding["status"])
    assert {probe: statuses.get(probe) for probe in PROBED} == {probe: {"ok"} for probe in PROBED}, done.stdout
    assert [finding for finding in findings if "the probe broke" in finding["message"]] == []
    assert set(Path("/tmp").glob("sandbox-doctor-*")) <= before
