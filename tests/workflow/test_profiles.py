"""What a call of Snakemake goes by: all cores without a profile, else what the profile or the command line says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from snakemake.cli import parse_args

from snakemake_executor_plugin_automedbench.slurm import slurm_options

ROOT = Path(__file__).resolve().parents[2]
ALL_CORES = len(os.sched_getaffinity(0))
HERE, SLURM = "automedbench", "automedbench-slurm"

CALLS = [
    pytest.param([], HERE, ALL_CORES, None, id="plain"),
    pytest.param(["--cores", "3", "prepare"], HERE, 3, None, id="command line"),
    pytest.param(["--executor", "slurm", "--jobs", "9"], "slurm", ALL_CORES, 9, id="another executor"),
    pytest.param(["--profile", "slurm"], SLURM, None, 200, id="slurm"),
    pytest.param(["--profile=slurm", "partial"], SLURM, None, 200, id="slurm with an equals sign"),
    pytest.param(["--profile", "slurm", "--executor", "slurm"], "slurm", None, 200, id="slurm, Snakemake's own"),
    pytest.param(["--profile", "profiles/local"], HERE, ALL_CORES, None, id="local"),
    pytest.param(["--profile", "profiles/demo"], HERE, ALL_CORES, None, id="demo"),
]


def parsed(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> tuple[str | None, int | None, int | None]:
    """Executor, cores and jobs of a call in the repository's folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["snakemake", *options])
    _, arguments = parse_args(options)
    return arguments.executor, arguments.cores, arguments.jobs


@pytest.mark.parametrize(("options", "executor", "cores", "jobs"), CALLS)
def test_calls(
    monkeypatch: pytest.MonkeyPatch, options: list[str], executor: str, cores: int | None, jobs: int | None
) -> None:
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    assert parsed(monkeypatch, options) == (executor, cores, jobs)


def test_a_profile_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cores would otherwise be overruled, because the repository's own profile is the stronger one."""
    monkeypatch.setenv("SNAKEMAKE_PROFILE", "slurm")
    assert parsed(monkeypatch, []) == (SLURM, None, 200)


def test_values_of_a_profile_are_not_overruled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("cores: 7\nexecutor: local\n")
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    assert parsed(monkeypatch, ["--profile", str(tmp_path)]) == ("local", 7, None)


def test_options_of_the_slurm_plugin_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By our executor too, which Snakemake hands none of them: from the profile and from the command line."""
    parsed(monkeypatch, ["--profile", "slurm", "--slurm-jobname-prefix", "mine"])
    options = slurm_options()
    assert (options.requeue, options.no_requeue, options.jobname_prefix) == (False, True, "mine")
