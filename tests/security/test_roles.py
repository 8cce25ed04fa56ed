"""The import and scorer roles in the real container: what they see, and what they can change."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unprivileged import IMAGES, ROOT, as_user, user_folder, why_not

from automedbench.sandbox.container.launcher import find_runtime, host_environment, trusted_command

pytestmark = pytest.mark.apptainer

# Reports what can be read and written, whether our package is there, and whether anything answers.
PROBE = """
import json, os, socket
seen = {}
for top in ("/input", "/data", "/output"):
    for folder, _, names in os.walk(top):
        seen.update({os.path.join(folder, name): open(os.path.join(folder, name)).read() for name in names})
writable = []
for top in ("/input", "/input/private", "/input/submission", "/input/workspace", "/data/public",
            "/opt/automedbench/src", "/output"):
    try:
        open(top + "/written", "w").close(); writable.append(top)
    except OSError:
        pass
import automedbench.sandbox.airlock.collector
report = {"seen": seen, "writable": writable, "names": [name for _, name in socket.if_nameindex()],
          "environment": dict(os.environ), "cwd": os.getcwd()}
json.dump(report, open("report.json", "w"))
"""
COMMAND = ("python3", "-c", PROBE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Files of one run and one task."""
    if reason := why_not("scorer"):
        pytest.skip(reason)
    with user_folder() as made:
        as_user(lambda: build(made))
        yield made


def build(folder: Path) -> None:
    for name in ("public", "private", "workspace", "submission", "tmp"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    (folder / "output").mkdir()
    for name in ("card.yaml", "manifest.json"):
        (folder / name).write_text(name)


def import_role(folder: Path) -> dict[str, Path]:
    return {
        "source": ROOT / "src",
        "card": folder / "card.yaml",
        "manifest": folder / "manifest.json",
        "workspace": folder / "workspace",
    }


def scorer_role(folder: Path) -> dict[str, Path]:
    return {
        "source": ROOT / "src",
        "card": folder / "card.yaml",
        "manifest": folder / "manifest.json",
        "public": folder / "public",
        "private": folder / "private",
        "submission": folder / "submission",
    }


def run(folder: Path, role: dict[str, Path]) -> None:
    command = trusted_command(
        COMMAND, image=IMAGES / "scorer.sif", seen=role, tmp=folder / "tmp", output=folder / "output"
    )
    environment = host_environment(folder / "tmp", find_runtime())
    subprocess.run(command, env=environment, cwd=folder / "tmp", stdin=subprocess.DEVNULL, check=True)


def report(folder: Path, role: dict[str, Path]) -> dict[str, Any]:
    as_user(lambda: run(folder, role))
    found: dict[str, Any] = json.loads((folder / "output/report.json").read_text())
    return found


def test_import_sees_the_workspace_and_nothing_private(folder: Path) -> None:
    found = report(folder, import_role(folder))
    assert found["seen"] == {
        "/input/card.yaml": "card.yaml",
        "/input/manifest.json": "manifest.json",
        "/input/workspace/file": "workspace",
    }
    assert (found["writable"], found["names"], found["cwd"]) == (["/output"], ["lo"], "/output")


def test_scorer_sees_the_submission_and_private_data(folder: Path) -> None:
    found = report(folder, scorer_role(folder))
    assert found["seen"] == {
        "/input/card.yaml": "card.yaml",
        "/input/manifest.json": "manifest.json",
        "/input/private/file": "private",
        "/input/submission/file": "submission",
        "/data/public/file": "public",
    }
    assert (found["writable"], found["names"]) == (["/output"], ["lo"])


def test_nothing_of_the_caller_enters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "APPTAINERENV_X", "SINGULARITYENV_X"):
        monkeypatch.setenv(name, "canary-value")
    assert "canary-value" not in json.dumps(report(folder, scorer_role(folder)))
