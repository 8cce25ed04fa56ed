"""The public benchmark's release, made up in its true layout, under Snakemake: one line names it, the rest follows."""

from __future__ import annotations

import json

import pytest
import releases
import yaml
from conftest import Project

TASK = "skin-lesion-cls-task"
SCRIPT = """
- content: I read the hint of the release, and call everything a mole.
  calls:
    - tool: execute_code
      language: bash
      code: |
        mkdir -p agents_outputs
        (echo patient_id,label; ls "$DATA_DIR" | sed "s/$/,melanocytic_nevi/") > agents_outputs/predictions.csv
    - tool: submit_results
      summary: one class
"""


def test_release_to_leaderboard_and_second_opinion(project: Project) -> None:
    """100 images of seven classes, one answer for all: balanced accuracy 1/7, by us and by the release's scorer."""
    releases.make_release(project.path / "release", releases.FEW | {TASK: releases.FULL[TASK]})
    (project.path / "mole.yaml").write_text(SCRIPT)
    agents = {"agents": {"mole": {"provider": "scripted", "script": "mole.yaml", "trusted": True}}}
    (project.path / "agents.yaml").write_text(yaml.safe_dump(agents))
    config = {
        "agents_file": "agents.yaml",
        "preset": "lite-v0.1",
        "release": "release",
        "matrix": {"agents": ["mole"]},
        "only": {"tasks": [TASK], "tiers": ["lite"], "repeats": [1]},
        "datasets": {},
        "results": "public",
    }
    (project.path / "release.yaml").write_text(yaml.safe_dump(config))
    options = ("--configfile", "demo/config.yaml", "release.yaml")
    done = project.snakemake(*options)
    assert done.returncode == 0, done.stdout[-3000:]
    run = project.path / f"public-lite-v0.1/runs/mole/{TASK}/lite/r1"
    assert json.loads((run / "detail_report.json").read_text())["task_score"] == pytest.approx(1 / 7)
    assert f"Hint 1 of {TASK}" in (run / "brief.md").read_text()
    overall = json.loads((project.path / "public-lite-v0.1/leaderboard/leaderboard.json").read_text())["tables"][
        "overall"
    ]
    row = dict(zip(overall["columns"], overall["rows"][0], strict=True))
    assert row["other_judge"] is True and row["preset"] == "lite-v0.1"
    asked = project.run("automedbench", "second-opinion", *options)
    assert asked.returncode == 0, asked.stdout
    assert asked.stdout.split()[-5:-1] == [TASK, "1", "0.1429", "0.1429"] and "nobody may see" not in asked.stdout
