"""`automedbench` and `automedbench status`: where a campaign stands, and what to do next."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from factories import ROOT, make_run, make_score

from automedbench.agent.durable.attempts import AttemptFolder, FailureRecord
from automedbench.agent.durable.lease import identify
from automedbench.base.endpoint.pacer import Pace
from automedbench.base.files import to_json, write_record
from automedbench.base.records import Totals
from automedbench.commands import main
from automedbench.commands.status import RunState, next_command, read_state

AGENTS = {"agents": {"agent": {"provider": "baseline", "baseline": "empty", "trusted": True}}}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A campaign of five repeats, nothing of which is done."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump(AGENTS))
    settings = {
        "agents_file": str(tmp_path / "agents.yaml"),
        "cards": ["config/tasks"],
        "matrix": {"agents": ["agent"], "tasks": ["bccd-det-task"], "tiers": ["lite"], "repeats": 5},
        "results": str(tmp_path / "results"),
        "data": {name: str(tmp_path / name) for name in ("raw", "public", "private", "manifests")},
        "sandbox": {"backend": "local", "network": "open"},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    return str(tmp_path / "config.yaml")


def run_folder(tmp_path: Path, repeat: int) -> Path:
    return tmp_path / "results/runs" / make_run("agent", repeat=repeat).path


def interrupt(folder: Path, message: str) -> None:
    attempt = AttemptFolder(folder, 1)
    attempt.path.mkdir(parents=True)
    failure = FailureRecord(
        run=make_run("agent"),
        attempt=1,
        kind="infrastructure",
        resumable=True,
        error="InfrastructureError",
        message=message,
        effects=0,
        totals=Totals(),
        failed_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    write_record(attempt.path / "failure-0001.json", failure)


def test_a_campaign_that_has_not_begun(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--configfile", config])
    said = capsys.readouterr().out
    assert "5 runs of 1 agent on 1 task: 5 not begun." in said
    assert "Data: 0 of 1 task staged." in said
    assert "Next: snakemake prepare --configfile " in said
    copied = argparse.Namespace(results=tmp_path)
    again = next_command(copied, {make_run("agent", repeat=1): RunState("interrupted")}, staged=True)
    assert again.startswith("snakemake --configfile FILE (") and again.endswith("; FILE: this campaign's configuration")


def test_every_state(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run of each: scored, at work (the lease of this process), interrupted for a reason, killed, not begun."""
    score = make_score(make_run("agent", repeat=1), disqualified=True)
    write_record(run_folder(tmp_path, 1) / "score.json", score)
    run_folder(tmp_path, 2).mkdir(parents=True)
    (run_folder(tmp_path, 2) / "lease.json").write_text(to_json(identify().model_dump(mode="json")))
    interrupt(run_folder(tmp_path, 3), "The endpoint does not answer.\nStart it.")
    AttemptFolder(run_folder(tmp_path, 4), 1).path.mkdir(parents=True)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/bccd-det-task.json").write_text("{}")

    main(["status", "--configfile", config])
    said = capsys.readouterr().out
    assert "1 scored, 1 at work, 2 interrupted, 1 not begun." in said
    assert "Of the scored ones 1 disqualified." in said
    assert "  agent/bccd-det-task/lite/r3: The endpoint does not answer.\n" in said
    assert "  agent/bccd-det-task/lite/r4: its process was killed\n" in said
    assert "goes on; what is finished is not repeated); snakemake partial" in said

    main(["status", "--configfile", config, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {
        "scored": 1,
        "at work": 1,
        "finished, not scored": 0,
        "interrupted": 2,
        "not begun": 1,
    }


def test_a_lease_of_a_dead_process_is_none(tmp_path: Path) -> None:
    dead = identify().model_copy(update={"process_start": 1})
    tmp_path.joinpath("lease.json").write_text(to_json(dead.model_dump(mode="json")))
    assert read_state(tmp_path).state == "not begun"


def test_words_that_are_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["staus"])
    assert "'staus' is no command (did you mean 'status'?)" in capsys.readouterr().err
    main(["--version"])
    assert capsys.readouterr().out.startswith("automedbench 0.2.0, code ")


def test_what_runs_wait_for_is_said(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only while a run is at work: what a dead campaign found down says nothing of now."""
    (tmp_path / "results/endpoints").mkdir(parents=True)
    pace = Pace(failures=12, down_since=datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    (tmp_path / "results/endpoints/api.lab.example-1234abcd-5678abcd.pace").write_text(pace.model_dump_json())
    main(["status", "--configfile", config])
    assert "Waiting" not in capsys.readouterr().out
    folder = run_folder(tmp_path, 1)
    folder.mkdir(parents=True)
    (folder / "lease.json").write_text(to_json(identify().model_dump(mode="json")))
    main(["status", "--configfile", config])
    waiting = "Waiting: api.lab.example is down since 2026-01-02 03:04 UTC (12 attempts failed, it has never replied)"
    assert waiting in capsys.readouterr().out
