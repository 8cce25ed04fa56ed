"""What ``submit_results`` says about malformed files: the real format check of the live workspace, bounded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from run_fakes import make_plan

from automedbench.agent.run import RunPlan
from automedbench.base.files import write_record
from automedbench.base.records import CaseEntry
from automedbench.steps.invalid_count import count_invalid

CARD = "config/tasks/detection/bccd-det-task.yaml"
SIZE = {"width": 640, "height": 480}
VALID = {"boxes": [{"class": "wbc", "score": 0.5, "x1": 1, "y1": 1, "x2": 9, "y2": 9}]}


@pytest.fixture
def plan(tmp_path: Path, root: Path) -> RunPlan:
    plan = make_plan(tmp_path, root)
    cases = [CaseEntry(id=f"b_000{number}", inputs={}, private={}, geometry=SIZE) for number in (1, 2, 3)]
    write_record(tmp_path / "manifest.json", plan.manifest.model_copy(update={"cases": cases}))
    return plan


def count(plan: RunPlan, root: Path, folder: Path, **options: float) -> int | None:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    manifest = folder / "manifest.json"
    return count_invalid(root / CARD, manifest, plan.run, workspace, backend="local", image=None, **options)


def write(folder: Path, case: str, content: str) -> None:
    path = folder / f"workspace/agents_outputs/{case}/prediction.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)


def test_malformed_files_are_counted_missing_ones_are_not(plan: RunPlan, root: Path, tmp_path: Path) -> None:
    write(tmp_path, "b_0001", json.dumps(VALID))
    write(tmp_path, "b_0002", '{"boxes": [')
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "workspace").rglob("*")}
    assert count(plan, root, tmp_path) == 1
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "workspace").rglob("*")} == before


def test_nothing_there(plan: RunPlan, root: Path, tmp_path: Path) -> None:
    assert count(plan, root, tmp_path) == 0


def test_a_check_that_fails_or_lasts_says_nothing(plan: RunPlan, root: Path, tmp_path: Path) -> None:
    assert count(plan, root, tmp_path, timeout_s=0.01) is None
    (tmp_path / "manifest.json").write_text("{")
    assert count(plan, root, tmp_path) is None


def test_no_key_reaches_it(plan: RunPlan, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-canary-0123456789")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\necho 4\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert count(plan, root, tmp_path) == 4
    seen = (tmp_path / "environment").read_text()
    assert "PYTHONPATH=" in seen
    assert "sk-canary" not in seen
