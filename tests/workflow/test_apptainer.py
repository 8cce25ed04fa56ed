"""The demo in real containers: an unprivileged user, every code call isolated, the same scores as without."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from campaigns import finished_demo
from conftest import Project, give_to_stranger
from demo_scores import RANKING, assert_demo_scores, exact_scores, read_table

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1500)]

CASES = 16
RUN = "bccd-det-task/lite/r1"

# Where keys are kept: providers, hubs, a cluster, the container runtime's own ways in, a variable of no known name.
SECRET_VARIABLES = (
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "HF_TOKEN", "KAGGLE_KEY", "AWS_SECRET_ACCESS_KEY"),
    *("APPTAINERENV_X", "SINGULARITYENV_X", "SLURM_JWT", "MY_PASSWORD"),
)

SPY = """#!/bin/sh
# Notes how it was called and in which environment, then does it. One write per call: runs go on side by side.
printf '%s\\n' "$(printf '%s' "$*" | tr '\\n' ' ')" >> {log}/argv
env >> {log}/environment
exec {apptainer} "$@"
"""


@dataclass(frozen=True)
class Demo:
    """The demo after ``make demo SANDBOX=apptainer``, and what was seen of it meanwhile."""

    project: Project
    output: str
    canary: str
    calls: list[str]
    runtime_environment: str

    @property
    def results(self) -> Path:
        return self.project.path / "results/demo"

    def text_files(self, *folders: str) -> Iterator[tuple[Path, bytes]]:
        """Every regular file below these folders of the clone, with its content."""
        for folder in folders:
            for path in sorted((self.project.path / folder).rglob("*")):
                if path.is_file():
                    yield path, path.read_bytes()


@pytest.fixture(scope="module")
def demo(container_stranger: Project) -> Demo:
    """Run the demo once, by a user whose environment is full of keys, through a program that notes every call."""
    stranger = container_stranger
    canary = f"canary{secrets.token_hex(16)}"
    spy = stranger.path / "build" / "spy"
    spy.mkdir(parents=True, exist_ok=True)
    program = spy / "apptainer"
    program.write_text(SPY.format(log=spy, apptainer=shutil.which("apptainer")))
    program.chmod(0o755)
    give_to_stranger(stranger, stranger.path / "build")
    stranger.run("make", "clean")
    done = stranger.run(
        *("make", "demo", "SANDBOX=apptainer"),
        PATH=f"{spy}:{stranger.environment['PATH']}",
        **dict.fromkeys(SECRET_VARIABLES, canary),
    )
    assert done.returncode == 0, done.stdout[-5000:]
    calls = (spy / "argv").read_text().splitlines()
    return Demo(stranger, done.stdout, canary, calls, (spy / "environment").read_text())


def test_ranking_and_scores_are_those_of_the_readme(demo: Demo) -> None:
    assert_demo_scores(demo.results)
    assert "results/demo/leaderboard/index.html" in demo.output
    assert (demo.results / "leaderboard/index.html").stat().st_size > 10_000


def test_scores_are_exactly_those_of_the_local_sandbox(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> None:
    local = finished_demo(tmp_path_factory).path / "results/demo"
    assert read_table(local, "runs")[0]["sandbox"] == "local"
    assert exact_scores(demo.results) == exact_scores(local)


def test_isolation_stands_with_every_score(demo: Demo) -> None:
    image = hashlib.sha256((demo.project.path / "images/light.sif").read_bytes()).hexdigest()
    for row in read_table(demo.results, "runs"):
        assert (row["sandbox"], row["network"], row["image_sha256"]) == ("apptainer", "sealed", image)
    assert {row["sandbox"] for row in read_table(demo.results, "overall")} == {"apptainer/sealed"}


def test_cheater_is_disqualified_with_evidence(demo: Demo) -> None:
    audit = json.loads((demo.results / "runs/cheater" / RUN / "audit.json").read_text())
    enforced = audit["enforced"]
    assert (audit["verdict"], enforced["backend"], enforced["decoy"]) == ("disqualified", "apptainer", True)
    assert len(audit["findings"]) >= 2
    assert all("/data/private" in finding["evidence"] for finding in audit["findings"][:2])
    disqualified = {row["agent"]: row["disqualified"] for row in read_table(demo.results, "runs")}
    assert disqualified == {name: "true" if name == "cheater" else "false" for name in RANKING}


def test_no_secret_of_the_caller_is_written_anywhere(demo: Demo) -> None:
    canary = demo.canary.encode()
    seen = list(demo.text_files("results", "logs", "data"))
    assert len(seen) > 200  # the search must have looked at something
    assert [str(path) for path, data in seen if canary in data] == []
    assert demo.canary not in demo.output


def test_no_secret_of_the_caller_reaches_the_container_runtime(demo: Demo) -> None:
    assert "PATH=" in demo.runtime_environment  # the spy did write it down
    assert demo.canary not in demo.runtime_environment
    assert demo.canary not in "".join(demo.calls)


def test_each_role_ran_in_its_container_and_sees_its_own_data(demo: Demo) -> None:
    starts = [call for call in demo.calls if " exec " in f" {call} "]
    agent = [call for call in starts if "images/light.sif" in call]
    collecting = [call for call in starts if "automedbench.steps.inside.check_workspace" in call]
    scoring = [call for call in starts if "automedbench.steps.inside.grade_submission" in call]
    events = b"".join(data for path, data in demo.text_files("results/demo/runs") if path.name == "events.jsonl")
    looks = [event for event in map(json.loads, events.splitlines()) if event["type"] == "submit"]
    refused = [event for event in looks if not event["accepted"]]
    # Each run has one container, which is probed before the first call, and another probe after the last one. A refused
    # submission is checked where it lies.
    assert (len(agent), len(collecting), len(scoring)) == (10, 5 + len(refused), 5)
    assert len(starts) == len(agent) + len(collecting) + len(scoring)
    for call in starts:
        assert "--containall" in call
        assert "--network none" in call
    private = str(demo.project.path / "data/demo/private")
    assert [call for call in agent + collecting if private in call] == []
    assert all(f"{private}/bccd-det-task:/input/private:ro" in call for call in scoring)
    assert [call for call in scoring if "/workspace" in call] == []


def test_private_data_is_in_no_result(demo: Demo) -> None:
    private = [data for path, data in demo.text_files("data/demo/private") if path.name == "boxes.json"]
    assert len(private) == CASES
    copies = {hashlib.sha256(data).digest() for data in private}
    assert [path for path, data in demo.text_files("results") if hashlib.sha256(data).digest() in copies] == []
    # A key that only the files of the answers have; what an agent saw or left must not hold it.
    assert all(b'"source_class"' in data for data in private)
    runs = [f"results/demo/runs/{agent}/{RUN}" for agent in RANKING]
    of_agents = [f"{run}/{part}" for run in runs for part in ("attempts", "submission")]
    assert [path for path, data in demo.text_files(*of_agents) if b'"source_class"' in data] == []


def test_scorer_by_hand_agrees_with_the_independent_library(demo: Demo) -> None:
    run = f"results/demo/runs/careful/{RUN}"
    again = f"results/demo/again/check/careful/{RUN}"
    campaign = ("--campaign", "results/demo/campaign.json")
    done = demo.project.run("python", "scripts/score_metrics.py", *campaign, "--run", again, "--verify")
    assert done.returncode == 0, done.stdout
    report = json.loads((demo.project.path / again / "detail_report.json").read_text())
    shutil.rmtree(demo.project.path / "results/demo/again")
    assert report["verification"]["library"].startswith("pycocotools")
    assert report["verification"]["difference"] <= report["verification"]["tolerance"]
    before = json.loads((demo.project.path / run / "detail_report.json").read_text())
    assert {**report, "verification": None} == before


def test_second_call_does_nothing(demo: Demo) -> None:
    before = {path: path.stat().st_mtime_ns for path, _ in demo.text_files("results")}
    done = demo.project.run("make", "demo", "SANDBOX=apptainer")
    assert done.returncode == 0, done.stdout
    assert "Nothing to be done" in done.stdout
    assert {path: path.stat().st_mtime_ns for path, _ in demo.text_files("results")} == before
