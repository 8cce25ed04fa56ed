"""Cores of a call of Snakemake: all of them without a profile, else what the profile or the command line says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from snakemake.cli import parse_args

ROOT = Path(__file__).resolve().parents[2]
ALL_CORES = len(os.sched_getaffinity(0))

CALLS = [
    pytest.param([], ALL_CORES, None, id="plain"),
    pytest.param(["--cores", "3", "prepare"], 3, None, id="command line"),
    pytest.param(["--profile", "slurm"], None, 200, id="slurm"),
    pytest.param(["--profile=slurm", "partial"], None, 200, id="slurm with an equals sign"),
    pytest.param(["--profile", "profiles/local"], ALL_CORES, None, id="local"),
    pytest.param(["--profile", "profiles/demo"], ALL_CORES, None, id="demo"),
]


def parsed(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> tuple[int | None, int | None]:
    """Cores and jobs of a call in the repository's folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["snakemake", *options])
    _, arguments = parse_args(options)
    return arguments.cores, arguments.jobs


@pytest.mark.parametrize(("options", "cores", "jobs"), CALLS)
def test_cores(monkeypatch: pytest.MonkeyPatch, options: list[str], cores: int | None, jobs: int | None) -> None:
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    assert parsed(monkeypatch, options) == (cores, jobs)


def test_a_profile_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cores would otherwise be overruled, because the repository's own profile is the stronger one."""
    monkeypatch.setenv("SNAKEMAKE_PROFILE", "slurm")
    assert parsed(monkeypatch, []) == (None, 200)


def test_cores_of_a_profile_are_not_overruled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("cores: 7\n")
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    assert parsed(monkeypatch, ["--profile", str(tmp_path)]) == (7, None)
