"""Printed commands: each rule's, copied and run alone in a finished campaign, leaves the same bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from campaigns import TASK, commands, copy_of_finished
from conftest import Project

CHANGING = re.compile(r"\.fetched-by-automedbench$|pages\.json$")
"""Notes of sizes and times, by which finished work is known again."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copy_of_finished(tmp_path_factory, tmp_path_factory.mktemp("alone") / "automedbench")


def contents(project: Project) -> dict[str, bytes]:
    """Every file of the campaign's results and staged data."""
    folders = (project.path / "results", project.path / "data")
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(project.path)): path.read_bytes() for path in paths}


def test_each_gives_the_same_bytes(finished: Project) -> None:
    """One command of every rule but the agent's run, which is repeated when a person asks for it."""
    planned = finished.snakemake("-n", "-p", "--forceall")
    assert planned.returncode == 0, planned.stdout[-3000:]
    by_rule = {command.split()[1]: command.split(" > ")[0] for command in commands(planned.stdout)}
    del by_rule["scripts/run_agent.py"]
    assert len(by_rule) == 9
    before = contents(finished)
    for script, command in by_rule.items():
        done = finished.run(*command.split())
        assert done.returncode == 0, f"{script}: {done.stdout[-2000:]}"
        after = contents(finished)
        changed = [name for name in before | after if before.get(name) != after.get(name)]
        assert [name for name in changed if not CHANGING.search(name)] == [], script


def test_settings_are_those_of_the_latest_call(finished: Project) -> None:
    """A dry run writes nothing; a call that does something writes what it was told before its first step."""
    record = finished.path / "results/demo/campaign.json"
    before = record.read_bytes()
    changed = ("--config", "limits={max_turns: 7, max_cost_usd: null}")
    assert finished.snakemake("-n", *changed).returncode == 0
    assert record.read_bytes() == before
    (finished.path / f"results/demo/runs/careful/{TASK}/lite/r1/score.json").unlink()
    assert finished.snakemake(*changed).returncode == 0
    limits = json.loads(record.read_bytes())["settings"]["limits"]
    assert (limits["max_turns"], limits["max_cost_usd"]) == (7, None)
    assert str(Path.home()).encode() not in record.read_bytes()
