"""Planning: every step is a command that a person can copy, without a key, on a laptop or on Slurm."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from campaigns import AGENTS, at, commands, fresh_copy, steps
from conftest import ROOT, Project

PER_RUN = ("run_agent", "collect_submission", "audit_run", "score_metrics", "score_judge", "score_run")
GPU = re.compile(r"resources: .*?\b((?:gpu|gres).*)")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A clean clone; nothing in this module changes it."""
    return fresh_copy(tmp_path_factory.mktemp("clone") / "automedbench")


@pytest.fixture(scope="module")
def dry_run(clone: Project) -> str:
    """What `snakemake -n -p` prints for the demo."""
    done = clone.snakemake("-n", "-p")
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_whole_graph(dry_run: str) -> None:
    """By hand: five runs of six steps, data fetched and staged, plan, leaderboard."""
    once = ("fetch_dataset", "stage_task", "plan_campaign", "build_leaderboard")
    assert Counter(steps(dry_run)) == {**dict.fromkeys(PER_RUN, len(AGENTS)), **dict.fromkeys(once, 1)}


def test_clone_is_not_changed(clone: Project, dry_run: str) -> None:
    for name in ("results", "data", "logs", "images"):
        assert not (clone.path / name).exists()


def test_printed_commands_can_be_typed(dry_run: str) -> None:
    """Settings file, what the step works on, and a log, in at most 160 characters."""
    step, word = r"python scripts/\w+\.py --campaign results/demo/campaign\.json", r"[\w./-]+"
    for command in commands(dry_run):
        assert len(command) <= 160
        assert re.fullmatch(rf"{step}( --run {word} --log|( --\w+ {word}){{0,2}} > logs/{word}\.log 2>&1)", command)


def test_log_of_a_run_has_the_name_of_rule_and_run(dry_run: str) -> None:
    """Snakemake shows this file when a step fails; with ``--log`` the step finds it by itself (test_planning)."""
    told = re.findall(
        r" log: (\S+)\n(?:(?! +log: ).*\n)*?.*scripts/(\w+)\.py .*--run results/demo/runs/(\S+) --log", dry_run
    )
    assert len(told) == len(PER_RUN) * len(AGENTS)
    runs = ["{}/{}-{}-{}".format(*run.split("/")) for _, _, run in told]
    assert [log for log, _, _ in told] == [f"logs/{told[n][1]}/{run}.log" for n, run in enumerate(runs)]


def test_first_command_by_hand_is_named(clone: Project) -> None:
    """A dry run writes nothing, so the settings that the commands read are written by hand."""
    done = clone.snakemake("-n", "-p", "runs")
    line = next(line for line in done.stdout.splitlines() if line.startswith("To run one of these commands by hand"))
    assert line.endswith("scripts/plan_campaign.py --campaign results/demo/campaign.json --configfile demo/config.yaml")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param("runs", {"fetch_dataset": 1, "stage_task": 1, "run_agent": 5}, id="runs"),
        pytest.param("partial", {"build_leaderboard": 1}, id="partial"),
        pytest.param(
            "results/demo/runs/hasty/bccd-det-task/lite/r1/score.json",
            {"fetch_dataset": 1, "stage_task": 1, **dict.fromkeys(PER_RUN, 1)},
            id="one file",
        ),
    ],
)
def test_targets(clone: Project, target: str, expected: dict[str, int]) -> None:
    done = clone.snakemake("-n", "-p", target)
    assert done.returncode == 0, done.stdout[-3000:]
    assert Counter(steps(done.stdout)) == expected


def test_the_whole_campaign_by_name(clone: Project, dry_run: str) -> None:
    assert sorted(steps(clone.snakemake("-n", "-p", "leaderboard").stdout)) == sorted(steps(dry_run))


def test_a_slice_by_configuration(clone: Project) -> None:
    done = clone.snakemake("-n", "-p", "--config", "only={agents: [careful]}")
    assert Counter(steps(done.stdout))["run_agent"] == 1


def test_real_campaign_on_slurm_without_a_key(clone: Project) -> None:
    """From a clean clone, with the shipped configuration: 1 agent × 1 task × 2 tiers × 3 repeats, two images."""
    assert not any("KEY" in name for name in clone.environment)
    done = clone.snakemake("--profile", "slurm", "-n", "-p")
    assert done.returncode == 0, done.stdout[-3000:]
    once = {"fetch_dataset": 1, "stage_task": 1, "plan_campaign": 1, "build_leaderboard": 1, "build_image": 2}
    assert Counter(steps(done.stdout)) == {**dict.fromkeys(PER_RUN, 6), **once}
    assert "slurm_partition=cpu" in done.stdout
    assert GPU.findall(done.stdout) == []
    asked = clone.snakemake("--profile", "slurm", "-n", "-p", "--config", "sandbox={gpu: 2, gpu_model: h100}")
    assert GPU.findall(asked.stdout) == ["gpu=2, gpu_model=h100"] * 6


def test_the_profile_of_one_machine(clone: Project, dry_run: str) -> None:
    done = clone.snakemake("--profile", "profiles/local", "-n", "-p")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "score_run" in steps(done.stdout)
    assert GPU.findall(done.stdout) == GPU.findall(dry_run) == []


def test_no_profile_asks_for_a_gpu() -> None:
    """The campaign does (sandbox.gpu); the profile of one machine says how many there are for all runs together."""
    profiles = {path.parent.name: yaml.safe_load(path.read_text()) for path in ROOT.glob("profiles/*/config.yaml")}
    assert {"local", "slurm", "demo", "default"} <= set(profiles)
    assert profiles["local"].pop("resources") == {"gpu": 1}
    assert {name: text for name, text in profiles.items() if re.search("gres|gpu", str(text))} == {}


def test_rulegraph(clone: Project) -> None:
    """A picture of the chain; every rule is in it."""
    done = clone.snakemake("--rulegraph")
    assert done.returncode == 0, done.stdout[-3000:]
    graph = done.stdout[done.stdout.index("digraph") :]
    assert all(f'label = "{rule}' in graph for rule in (*PER_RUN, "stage_task", "build_leaderboard"))


def test_works_from_a_path_with_blanks(tmp_path: Path) -> None:
    """Some keep their work in folders like this."""
    place = tmp_path / "my work"
    project = fresh_copy(place)
    done = at(place).snakemake("-n", "-p")
    assert done.returncode == 0, done.stdout[-3000:]
    assert project.path == place
