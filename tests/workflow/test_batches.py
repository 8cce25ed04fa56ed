"""Snakemake's own plan, executed in batches: cheap steps of a run in one process, several runs in one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SNAKEFILE = """
RUNS = [f"r{k}" for k in range(config["runs"])]

rule all:
    input: expand("made/{run}/last", run=RUNS)

rule first:
    output: "made/{run}/first"
    resources: batched=1
    shell: "python scripts/step.py first {wildcards.run}"

rule second:
    input: "made/{run}/first"
    output: "made/{run}/second"
    params: version=config.get("version", 1)
    resources: batched=1
    shell: "python scripts/step.py second {wildcards.run}"

rule last:
    input: "made/{run}/first", "made/{run}/second"
    output: "made/{run}/last"
    resources: batched=1
    shell: "python scripts/step.py last {wildcards.run}"
"""
STEP = """
import os, pathlib, sys
name, run = sys.argv[1:]
if os.environ.get("FAILS") == f"{name} {run}":
    sys.exit(1)
if os.environ.get("DIES") == f"{name} {run}":
    os.kill(os.getpid(), 9)
folder = pathlib.Path("made", run)
folder.mkdir(parents=True, exist_ok=True)
(folder / name).write_text(run)
with open("done", "a") as file:
    file.write(f"{os.getpid()} {name} {run}\\n")
"""


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/step.py").write_text(STEP)
    return tmp_path


def call(place: Path, *options: str, runs: int = 1, **environment: str) -> tuple[int, list[list[str]]]:
    """Exit status of a call of Snakemake, and what it did: process, rule and run of each step."""
    done = place / "done"
    done.unlink(missing_ok=True)
    words = [sys.executable, "-m", "snakemake", "--executor", "automedbench", "--cores", "2", "--keep-going"]
    words += ["--config", f"runs={runs}", *options]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        words, cwd=place, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True, check=False
    )
    lines = done.read_text().splitlines() if done.exists() else []
    assert lines or ended.returncode or "Nothing to be done" in ended.stderr, ended.stderr
    return ended.returncode, [line.split() for line in lines]


def steps(done: list[list[str]]) -> list[str]:
    return [f"{name} {run}" for _, name, run in done]


def test_one_process_does_a_run(workflow: Path) -> None:
    code, done = call(workflow)
    assert (code, steps(done)) == (0, ["first r0", "second r0", "last r0"])
    assert len({process for process, *_ in done}) == 1


def test_runs_that_wait_share_a_process(workflow: Path) -> None:
    code, done = call(workflow, runs=41)
    assert code == 0
    assert sorted(steps(done)) == sorted(f"{name} r{k}" for k in range(41) for name in ("first", "second", "last"))
    assert len({process for process, *_ in done}) <= 6


def test_single_steps_stay_single(workflow: Path) -> None:
    """A lost file, a changed parameter and a file as target repeat what they repeat without batches."""
    call(workflow)
    (workflow / "made/r0/second").unlink()
    assert steps(call(workflow, "--", "made/r0/second")[1]) == ["second r0"]
    assert call(workflow) == (0, [])  # the same content as before
    assert steps(call(workflow, "version=2")[1]) == ["second r0", "last r0"]
    assert steps(call(workflow, "version=2", "--forcerun", "last", "--")[1]) == ["last r0"]


@pytest.mark.parametrize("how", ["FAILS", "DIES"])
def test_a_failed_step_keeps_what_the_others_have_made(workflow: Path, how: str) -> None:
    code, done = call(workflow, runs=5, **{how: "second r1"})
    assert code == 1
    made = {str(path.relative_to(workflow / "made")) for path in (workflow / "made").glob("*/*")}
    assert made == {f"r{k}/{name}" for k in range(5) for name in ("first", "second", "last")} - {"r1/second", "r1/last"}
    code, done = call(workflow, runs=5)
    assert (code, steps(done)) == (0, ["second r1", "last r1"])
