"""Every command with ``--json`` in a finished campaign: one JSON document on standard output, nothing else there."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml
from campaigns import TASK, copy_of_finished
from conftest import Project

from automedbench.commands import list_commands, make_parser

RUN = f"careful/{TASK}/lite/r1"
CAMPAIGN = ("--results", "results/demo")
PACK = ("pack", "--key", "key.pem", "--labels", "labels.yaml", "--out")
CALLS: list[tuple[tuple[str, ...], set[str]]] = [
    (("pack", "--make-key", "key.pem"), {"file", "public_key"}),
    ((*PACK, "alpha.tar", *CAMPAIGN), {"file", "signer", "record"}),
    (("admit", "alpha.tar", *CAMPAIGN), {"bundle", "lab", "signer", "reasons", "admitted", "checks"}),
    (("merge", "alpha.tar", "beta=results/demo", "--out", "merged", *CAMPAIGN), {"page", "agents"}),
    (("status", *CAMPAIGN), {"runs", "counts", "spent_usd", "reserved_usd", "next"}),
    (("forecast", *CAMPAIGN), {"runs", "agents", "all", "spent_usd", "reserved_usd", "max_cost_usd", "problems"}),
    (("spending", *CAMPAIGN), {"runs", "problems"}),
    (("verify", RUN, *CAMPAIGN), {f"results/demo/runs/{RUN}"}),
    (("replay", RUN, *CAMPAIGN), {"run", "same", "pruned", "turns"}),
    (("prune", *CAMPAIGN), {"deleted", "files", "bytes", "left"}),
    (("compare", "careful", "hasty", *CAMPAIGN), {"a", "b", "places", "cells", "conflicts", "conclusion"}),
    (("explain", "E3", *CAMPAIGN), {"code", "count", "cost", "runs"}),
    (("explain-signature", RUN, *CAMPAIGN), {"fields"}),
    (("explain-signature", RUN, RUN, *CAMPAIGN), {"fields", "conclusion"}),
    (("tasks", *CAMPAIGN), {"task", "ready", "cases"}),
    (("tasks", "show", TASK, *CAMPAIGN), {"id", "dataset", "briefs"}),
    (("tasks", "show", TASK, "--brief", *CAMPAIGN), {"brief"}),
    (("tasks", "new", "own-task", "--like", TASK, "--data", "demo", "--out", "own", *CAMPAIGN), {"file"}),
    (("agents", "list"), {"agent", "version", "layer"}),
    (("doctor", "--machine-only"), {"probe", "status", "message", "fix"}),
    (("first-run", "--only", "clock", *CAMPAIGN), {"probe", "status", "message", "fix"}),
    (("judge-eval", "--track", "vqa"), {"judge", "stages", "criteria"}),
]
"""In an order in which each finds what it reads, with keys of the document, or of the first of its list."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = copy_of_finished(tmp_path_factory, tmp_path_factory.mktemp("json") / "automedbench")
    (project.path / "labels.yaml").write_text(yaml.safe_dump({"lab": "alpha"}))
    return project


def test_one_document_and_nothing_else(finished: Project) -> None:
    wrong = {}
    for words, keys in CALLS:
        done = subprocess.run(
            ["python", "-m", "automedbench", *words, "--json"],
            cwd=finished.path,
            env=finished.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        try:
            found = json.loads(done.stdout)
            first = found[0] if isinstance(found, list) else found
            if missing := keys - first.keys():
                wrong[words] = f"no {sorted(missing)} in {sorted(first)}"
        except ValueError:
            wrong[words] = f"{done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}"
    assert wrong == {}


def test_no_command_is_left_out() -> None:
    commands = {place.split()[0] for place, _ in list_commands(make_parser()) if place}
    # A second opinion needs a release, a site a Slurm: test_release.py, test_first_slurm.py.
    assert {words[0] for words, _ in CALLS} == commands - {"second-opinion", "site"}
