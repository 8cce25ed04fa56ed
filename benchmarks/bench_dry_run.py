"""How long and with how much memory Snakemake plans a campaign, beside what the bare engine needs for the same DAG.

    python benchmarks/bench_dry_run.py [--repeats 5 15] [--rounds 3]

7 agents × 48 tasks × 2 tiers × repeats. The bare workflow has the same rules, files and edges and nothing else: no
configuration, params, logs or environments. Both run in turn; medians are printed as a Markdown table. The slice is
one agent of the campaign, chosen by ``only``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
AGENTS = [f"agent-{number}" for number in range(7)]
TASKS = [f"task-{number:02d}" for number in range(48)]
TIERS = ["lite", "standard"]

BARE = """
wildcard_constraints: agent="{agents}", task="{tasks}", tier="lite|standard", repeat=r"\\d+"
D = "results/runs/{{agent}}/{{task}}/{{tier}}/r{{repeat}}"
rule all:
    input: "leaderboard"
rule fetch:
    output: "raw/{{task}}"
    shell: "true"
rule stage:
    input: "raw/{{task}}"
    output: "manifests/{{task}}"
    shell: "true"
rule image:
    output: "images/{{image}}.json"
    shell: "true"
rule run_agent:
    input: "manifests/{{task}}", "images/light.json", "images/scorer.json"
    output: D + "/brief", D + "/conversation", D + "/run"
    shell: "true"
rule collect:
    input: D + "/run"
    output: D + "/submission"
    shell: "true"
rule audit:
    input: D + "/submission"
    output: D + "/audit"
    shell: "true"
rule metrics:
    input: D + "/submission"
    output: D + "/report"
    shell: "true"
rule judge:
    input: D + "/conversation"
    output: D + "/judge"
    shell: "true"
rule score:
    input: D + "/audit", D + "/report", D + "/judge"
    output: D + "/score"
    shell: "true"
rule leaderboard:
    input:
        expand(
            D + "/score", agent={agent_list}, task={task_list}, tier=["lite", "standard"], repeat=range(1, {last})
        )
    output: "leaderboard"
    shell: "true"
"""


def main() -> None:
    """Measure every size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, nargs="+", default=[5, 15], help="repeats per cell (5: 3 360 runs)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| campaign | runs | wall s | user s | peak MB | bare engine: wall s | user s | peak MB | user ÷ bare |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for repeats in options.repeats:
            runs = len(AGENTS) * len(TASKS) * len(TIERS) * repeats
            print(row("whole", runs, *compare(folder, repeats, {}, options.rounds)), flush=True)
        first = options.repeats[0]
        ours = [measure(write_campaign(folder, first, {"agents": AGENTS[:1]}), ROOT) for _ in range(options.rounds)]
        print(row("one agent of it", runs_of_slice(first), median(ours), None))


def runs_of_slice(repeats: int) -> int:
    """Runs of one agent."""
    return len(TASKS) * len(TIERS) * repeats


def compare(folder: Path, repeats: int, only: dict[str, list[str]], rounds: int) -> tuple[list[float], list[float]]:
    """Medians of (wall, user, peak) of ours and of the bare engine, measured in turn."""
    campaign = write_campaign(folder, repeats, only)
    bare = write_bare(folder, repeats)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(measure(campaign, ROOT))
        theirs.append(measure(bare, folder))
    return median(ours), median(theirs)


def row(name: str, runs: int, ours: list[float], bare: list[float] | None) -> str:
    """One line of the table."""
    cells = [name, f"{runs:,}", *(f"{value:.1f}" for value in ours[:2]), f"{ours[2]:.0f}"]
    if bare is not None:
        cells += [f"{bare[0]:.1f}", f"{bare[1]:.1f}", f"{bare[2]:.0f}", f"{ours[1] / bare[1]:.2f}"]
    else:
        cells += ["", "", "", ""]
    return f"| {' | '.join(cells)} |"


def median(rows: list[list[float]]) -> list[float]:
    """Column-wise medians."""
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def write_campaign(folder: Path, repeats: int, only: dict[str, list[str]]) -> list[str]:
    """Cards, agents and configuration of a campaign; returns the options that plan it."""
    card = (ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text()
    agent = yaml.safe_load((ROOT / "config/agents.yaml").read_text())["agents"]["my-model"]
    cards = folder / "cards"
    cards.mkdir(exist_ok=True)
    for task in TASKS:
        text = card.replace("id: bccd-det-task", f"id: {task}").replace("name: bccd\n", f"name: {task}\n")
        (cards / f"{task}.yaml").write_text(text)
    (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": dict.fromkeys(AGENTS, agent)}))
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text()) | {
        "agents_file": str(folder / "agents.yaml"),
        "cards": [str(cards)],
        "matrix": {"agents": AGENTS, "tasks": TASKS, "tiers": TIERS, "repeats": repeats},
        "only": only,
        "results": str(folder / "results"),
    }
    path = folder / f"config-{repeats}-{len(only)}.yaml"
    path.write_text(yaml.safe_dump(config))
    return ["--configfile", str(path)]


def write_bare(folder: Path, repeats: int) -> list[str]:
    """The same DAG with nothing but files; returns the options that plan it."""
    path = folder / f"bare-{repeats}.smk"
    path.write_text(
        BARE.format(
            agents="|".join(AGENTS), tasks="|".join(TASKS), agent_list=AGENTS, task_list=TASKS, last=repeats + 1
        )
    )
    return ["--snakefile", str(path), "--workflow-profile", "none"]


def measure(options: list[str], folder: Path) -> list[float]:
    """Wall seconds, user seconds and peak MB of one dry run."""
    snakemake = Path(sys.executable).with_name("snakemake")
    command = [str(snakemake), "--dry-run", "--quiet", *options]
    started = time.monotonic()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(errors.decode()[-2000:])
    return [time.monotonic() - started, usage.ru_utime, usage.ru_maxrss / 1024]


if __name__ == "__main__":
    main()
