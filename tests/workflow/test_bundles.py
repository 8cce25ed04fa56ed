"""A finished campaign as a bundle: packed, admitted, merged with another's; forgeries are refused."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from campaigns import AGENTS, TASK, copy_of_finished
from conftest import Project


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign with a key and labels."""
    project = copy_of_finished(tmp_path_factory, tmp_path_factory.mktemp("lab") / "automedbench")
    labels = {"lab": "alpha", "hardware": "a laptop", "access": {"careful": "local"}, "weights": {"careful": "open"}}
    (project.path / "labels.yaml").write_text(yaml.safe_dump(labels))
    assert command(project, "pack", "--make-key", "alpha.pem").returncode == 0
    done = command(project, "pack", "--key", "alpha.pem", "--labels", "labels.yaml", "--configfile", "demo/config.yaml")
    assert done.returncode == 0, done.stdout
    assert re.match(r"alpha\.bundle\.tar: 5 runs, \d+ files, [\d.]+ MB, signed by\n[0-9a-f]{64}\n", done.stdout)
    return project


def command(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    return project.run("python", "-m", "automedbench", *words)


def test_each_kind_of_forgery_is_refused_for_its_reason(lab: Project) -> None:
    """Each kind once; what each changes, and which check must see it, is said in benchmarks/bench_bundles.py."""
    script = ["benchmarks/bench_bundles.py", "--forgeries", "42", "--honest", "1", "--configfile", "demo/config.yaml"]
    done = lab.run("python", *script)
    assert done.returncode == 0, done.stdout[-3000:]
    assert len(re.findall(r"^\| [a-z ]+ \| 1 \| 1 \|$", done.stdout, re.MULTILINE)) == 42
    assert "42 forgeries, 42 refused for the right reason; 1 honest bundles, 1 admitted" in done.stdout


def test_what_a_hostile_bundle_costs(lab: Project) -> None:
    """10 s of processor time, 300 MB and three lines at most; each kind is said in benchmarks/hostile_bundles.py."""
    options = ["--quick", "--run", f"hasty/{TASK}/lite/r1", "--configfile", "demo/config.yaml"]
    done = lab.run("python", "benchmarks/hostile_bundles.py", *options)
    assert done.returncode == 0, done.stdout[-3000:]
    found = re.search(r"^(\d+) bundles, \1 refused within the limits$", done.stdout, re.MULTILINE)
    assert found and int(found[1]) >= 15


def test_folders_of_parts_merge_to_the_whole(lab: Project) -> None:
    """One results folder per agent, merged, has the tables of the whole campaign."""
    parts = []
    plan = json.loads((lab.path / "results/demo/plan.json").read_text())
    for agent in AGENTS:
        part = lab.path / "parts" / agent
        (part / "runs").mkdir(parents=True)
        (part / "runs" / agent).symlink_to(lab.path / "results/demo/runs" / agent)
        runs = [run for run in plan["runs"] if run["agent"] == agent]
        own = plan | {"agents": {agent: plan["agents"][agent]}, "runs": runs}
        (part / "plan.json").write_text(json.dumps(own))
        parts.append(f"parts/{agent}")
    done = command(lab, "merge", *parts, "--configfile", "demo/config.yaml", "--out", "whole")
    assert done.returncode == 0, done.stdout
    for name in ("overall", "tracks", "cells", "comparisons"):
        assert table(lab.path / "whole", name) == table(lab.path / "results/demo", name), name


def test_bundles_of_one_file_name_stay_apart(lab: Project) -> None:
    """Two labs' files of one name; agents of the same name keep their labs; a merge that fails leaves nothing."""
    (lab.path / "other").mkdir()
    shutil.copy(lab.path / "alpha.bundle.tar", lab.path / "other")
    demo = ["--configfile", "demo/config.yaml", "--out"]
    done = command(lab, "merge", "alpha.bundle.tar", "beta=other/alpha.bundle.tar", *demo, "apart")
    assert done.returncode == 0, done.stdout
    names = {row[0] for row in table(lab.path / "apart", "overall")}
    assert names == {f"{agent}@{lab_name}" for agent in AGENTS for lab_name in ("alpha", "beta")}
    facts = json.loads((lab.path / "apart/leaderboard/leaderboard.json").read_text())["agents"]["careful@alpha"]
    assert [facts[name] for name in ("lab", "access", "weights", "hardware")] == ["alpha", "local", "open", "a laptop"]
    assert "a laptop" in (lab.path / "apart/leaderboard/index.html").read_text()
    labels = [
        json.loads(path.read_text()) for path in sorted((lab.path / "apart/runs").glob("careful@*/*/*/*/score.json"))
    ]
    assert [each["run"]["agent"] for each in labels] == ["careful@alpha", "careful@beta"]
    assert sorted(path.name for path in (lab.path / "apart/sources").iterdir()) == ["1", "2"]
    refused = command(lab, "merge", "alpha.bundle.tar", "alpha.bundle.tar", *demo, "no")
    assert "two sources are called 'alpha'" in refused.stdout
    assert not (lab.path / "no").exists() and not list(lab.path.glob(".no.*"))


def table(results: Path, name: str) -> list[list[str]]:
    lines = (results / "leaderboard" / f"{name}.csv").read_text().splitlines()
    return sorted([row["agent"], *row.values()] if "agent" in row else [*row.values()] for row in csv.DictReader(lines))


def test_keys_and_strangers_are_refused(lab: Project) -> None:
    """A text like a key ends the packing and names the file; another signer than the one asked for is none."""
    said = lab.path / f"results/demo/runs/careful/{TASK}/lite/r1/conversation.json"
    whole = said.read_text()
    said.write_text(whole.replace('"plan"', '"plan-sk-abcdefghijklmnop0123"', 1))
    packing = ["pack", "--key", "alpha.pem", "--labels", "labels.yaml", "--configfile", "demo/config.yaml", "--out"]
    refused = command(lab, *packing, "leaky.tar")
    said.write_text(whole)
    assert refused.returncode == 1
    assert "conversation.json: holds 'sk-abcde…' (23 characters), which looks like a key" in refused.stdout
    assert not (lab.path / "leaky.tar").exists()
    asked = command(lab, "admit", "alpha.bundle.tar", "--configfile", "demo/config.yaml", "--signer", "0" * 64)
    assert asked.returncode == 1
    assert "not by 0000" in asked.stdout


def test_texts_on_credentialed_data_stay_in_the_house(lab: Project) -> None:
    """Of such a task only records without a word of agents and without cases go along; scores can still be read."""
    card = next((lab.path / "config/tasks").rglob(f"{TASK}.yaml"))
    files = {path: path.read_text() for path in (card, lab.path / "demo/agents.yaml")}
    agents = yaml.safe_load(files[lab.path / "demo/agents.yaml"])
    for agent in agents["agents"].values():
        agent["approved_for"] = ["credentialed"]
    card.write_text(re.sub(r"(?m)^(  access:) public", r"\1 credentialed", files[card]))
    (lab.path / "demo/agents.yaml").write_text(yaml.safe_dump(agents))
    packing = ["pack", "--key", "alpha.pem", "--labels", "labels.yaml", "--configfile", "demo/config.yaml", "--out"]
    packed = command(lab, *packing, "closed.tar")
    admitted = command(lab, "admit", "closed.tar", "--configfile", "demo/config.yaml", "--json")
    for path, text in files.items():
        path.write_text(text)
    assert f"{TASK}: credentialed data" in packed.stdout
    with tarfile.open(lab.path / "closed.tar") as bundle:
        names = {Path(name).name for name in bundle.getnames() if f"/{TASK}/" in name}
        packed_run = json.load(bundle.extractfile(f"runs/careful/{TASK}/lite/r1/run.json"))  # type: ignore[arg-type]
        crashed = json.load(bundle.extractfile(f"runs/crasher/{TASK}/lite/r1/score.json"))  # type: ignore[arg-type]
    assert names == {"run.json", "score.json", "submission.json", "brief.md", "published"}
    here = json.loads((lab.path / f"results/demo/runs/careful/{TASK}/lite/r1/run.json").read_text())
    assert here["summary"] and packed_run == here | {"summary": None, "detail": ""}
    assert crashed["error_codes"] and {code["evidence"] for code in crashed["error_codes"]} == {""}
    found = json.loads(admitted.stdout)
    assert found["admitted"], found["reasons"]
    whats = {check["what"]: check["verdict"] for check in found["checks"][f"careful/{TASK}/lite/r1"]}
    assert whats["transcript, outputs, judgement"] == "absent"
