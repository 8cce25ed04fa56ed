"""`automedbench prune` takes weights, caches and workspaces of scored runs, and never what a score was made of."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
from left_workspaces import left_in

from automedbench.agent.durable.lease import identify
from automedbench.base.errors import ConfigError
from automedbench.base.files import write_record
from automedbench.commands import prune
from automedbench.sandbox.airlock.archive import OUTPUTS, PRUNED, REST, is_evidence, pack

LEFT = {
    "agents_outputs/case/model.pt": "weights",  # evidence all the same: it lies among the outputs
    "agents_outputs/.cache/x": "caches",
    "plan/plan.md": "workspaces",
    "best/model.safetensors": "weights",
    ".cache/huggingface/model.bin": "weights",
    ".cache/pip/wheel": "caches",
    "env/lib/site-packages/torch/nn.py": "caches",
    ".claude/history": "caches",
    "train.py": "workspaces",
    "notes/model.md": "workspaces",
}
RUN = "one/task/lite/r1"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A scored run with an attempt that was given up, and one that is not scored."""
    for agent in ("one", "two"):
        run = tmp_path / f"results/runs/{agent}/task/lite/r1"
        for name in ("0001", "0002"):
            (run / f"attempts/{name}/log").mkdir(parents=True)
        (run / "attempts/0001/workspace").mkdir()
        (run / "attempts/0001/workspace/train.py").write_text("x")
        attempt, workspace = run / "attempts/0002", tmp_path / f"{agent}-workspace"
        for path in LEFT:
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_text(path)
        pack(workspace, attempt / OUTPUTS, is_evidence)
        pack(workspace, attempt / REST, lambda path: not is_evidence(path))
        (attempt / "run.json").write_text("{}")
    (tmp_path / "results/runs" / RUN / "score.json").write_text("{}")
    page = tmp_path / f"results/leaderboard/runs/{RUN}.html"
    page.parent.mkdir(parents=True)
    page.write_text("x")
    return tmp_path / "results"


def pruned(results: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    parser = argparse.ArgumentParser()
    prune.add_arguments(parser)
    prune.main(parser.parse_args([*words, "--results", str(results)]))
    return capsys.readouterr().out


@pytest.mark.parametrize("what", prune.KINDS)
def test_what_is_taken(results: Path, capsys: pytest.CaptureFixture[str], what: prune.Kind) -> None:
    """Each kind with those before it; first only counted."""
    attempt = results / "runs" / RUN / "attempts/0002"
    outputs, rest = (attempt / OUTPUTS).read_bytes(), (attempt / REST).read_bytes()
    said = pruned(results, capsys, "--what", what)
    assert "Nothing was removed" in said and "Left alone: 1 run not scored yet" in said
    assert (attempt / REST).read_bytes() == rest
    counted = said.splitlines()[1 : 2 + prune.KINDS.index(what)]
    done = pruned(results, capsys, "--what", what, "--delete").splitlines()
    assert done[1 : len(counted) + 1] == counted and done[-1] == "Removed."
    gone = prune.KINDS[: prune.KINDS.index(what) + 1]
    assert set(left_in(attempt)) == {path for path, kind in LEFT.items() if is_evidence(path) or kind not in gone}
    assert (attempt / OUTPUTS).read_bytes() == outputs
    assert what in (attempt / PRUNED).read_text()
    assert (attempt.with_name("0001") / "workspace").exists() == ("workspaces" not in gone)
    assert (results / f"leaderboard/runs/{RUN}.html").exists() == (what != "pages")
    other = results / "runs/two/task/lite/r1/attempts"
    assert set(left_in(other / "0002")) == set(LEFT) and (other / "0001/workspace/train.py").is_file()


def test_a_run_at_work_is_left_alone(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = results / "runs" / RUN
    write_record(run / "lease.json", identify())
    for words in ((), ("--delete",)):
        assert "Left alone: 1 run at work" in pruned(results, capsys, "one", *words)
    assert set(left_in(run / "attempts/0002")) == set(LEFT)
    dead = identify().model_copy(update={"pid": os.getpid(), "process_start": 1})
    write_record(run / "lease.json", dead)
    assert "Left alone" not in pruned(results, capsys, "one", "--delete")
    assert not (run / "lease.json").exists()


def test_unknown_runs(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"contains no run of that name: on \(did you mean 'one'\?\)$"):
        pruned(results, capsys, "one", "on")
