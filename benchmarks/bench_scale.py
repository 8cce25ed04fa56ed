"""What planning a campaign costs Snakemake, up to 100 000 runs, beside what the bare engine needs for the same graph.

    python benchmarks/bench_scale.py [--rounds 3] [--only whole slices finished] [--results DIR]

Made-up campaigns through the real Snakefile, in a folder of their own. The bare workflow has the same rules, files and
edges and nothing else: no configuration, params, logs or environments. Both are called in turn; medians are printed
as Markdown tables, which stand in docs/scaling.md:

whole      dry runs of 3 360 and 10 080 runs: 7 agents × 48 tasks × 2 tiers × 5 and 15 repeats
slices     dry runs of parts of 100 800 runs: 70 agents × 48 tasks × 2 tiers × 15 repeats
finished   1 000 runs: a head that goes through all of their steps (``--touch``: nothing is executed), and then the dry
           run that finds nothing to do; the files are empty, Snakemake's records of them are real

``--results`` names a results folder of finished runs: its files and bytes per run are counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
OF_THE_WORKFLOW = ("Snakefile", "rules", "scripts", "config", "envs", "containers", "profiles", "docs")
"""What a folder needs to be one where Snakemake is called; results, logs and Snakemake's own records stay in there."""

DRY, TOUCH = ("--dry-run", "--quiet"), ("--touch", "--forceall", "--quiet")
SNAKEMAKE = """import snakemake.executors.touch as touch
from snakemake.cli import main
touch.Executor.SLEEPING_TIME = 0
main()"""
"""Without the tenth of a second that ``--touch`` waits in every step."""
BATCH = 20
"""Finished runs that one Slurm job collects, audits and scores at least."""

BARE = """
wildcard_constraints: agent=r"agent-\\d+", task=r"task-\\d+", tier="lite|standard", repeat=r"\\d+"
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
    output: D + "/report", D + "/views"
    shell: "true"
rule judge:
    input: D + "/conversation", D + "/submission"
    output: D + "/judge"
    shell: "true"
rule score:
    input: D + "/audit", D + "/report", D + "/judge"
    output: D + "/score"
    shell: "true"
rule leaderboard:
    input:
        expand(
            D + "/score", agent={agents}, task={tasks}, tier={tiers}, repeat=range(1, {repeats} + 1)
        )
    output: "leaderboard"
    shell: "true"
"""


@dataclass(frozen=True)
class Matrix:
    """How many of everything a made-up campaign has."""

    agents: int
    tasks: int
    repeats: int
    tiers: tuple[str, ...] = ("lite", "standard")

    @property
    def names(self) -> dict[str, Any]:
        """As the configuration's matrix."""
        return {
            "agents": [f"agent-{number}" for number in range(self.agents)],
            "tasks": [f"task-{number:02d}" for number in range(self.tasks)],
            "tiers": list(self.tiers),
            "repeats": self.repeats,
        }

    @property
    def runs(self) -> int:
        """Runs of the whole campaign."""
        return self.agents * self.tasks * len(self.tiers) * self.repeats


@dataclass(frozen=True)
class Cost:
    """Of one call of Snakemake: seconds on the clock, seconds of the processor, MB at the peak."""

    wall_s: float
    cpu_s: float
    peak_mb: float


WHOLE = (Matrix(7, 48, 5), Matrix(7, 48, 15))
HUGE = Matrix(70, 48, 15)
FINISHED = Matrix(10, 10, 5)
SLICES: tuple[tuple[str, int, dict[str, Any], tuple[str, ...]], ...] = (
    ("`only: {tasks: [one]}`", 2100, {"tasks": ["task-00"]}, ()),
    ("`only: {agents: [one]}`", 1440, {"agents": ["agent-0"]}, ()),
    ("`only: {agents: [one], tasks: [one]}`", 30, {"agents": ["agent-0"], "tasks": ["task-00"]}, ()),
    ("`--batch build_leaderboard=1/70`", 1440, {}, ("--batch", "build_leaderboard=1/70")),
    ("path of one `score.json`", 1, {}, ("--", "results/runs/agent-0/task-00/lite/r1/score.json")),
)
"""Name, runs, ``only`` of the configuration, further options."""


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--results", type=Path, help="folder with finished runs, whose files are counted")
    options = parser.parse_args()
    for part in options.only:
        with tempfile.TemporaryDirectory() as name:
            PARTS[part](Path(name), options.rounds)
    print_submissions()
    if options.results:
        print_files(options.results)


def measure_whole(folder: Path, rounds: int) -> None:
    """Dry runs of whole campaigns of which nothing is done."""
    print_head("campaign", "runs")
    for matrix in WHOLE:
        ours, bare = campaign(folder / f"ours-{matrix.runs}", matrix), bare_workflow(folder / "bare", matrix)
        costs = [(ours(*DRY), bare(*DRY)) for _ in range(rounds)]
        print_row("whole", matrix.runs, *map(median, zip(*costs, strict=True)))


def measure_slices(folder: Path, rounds: int) -> None:
    """Dry runs of parts of a campaign that is too large to plan at once."""
    print_head(f"part of {HUGE.runs:,} runs", "its runs")
    for name, runs, only, options in SLICES:
        ours = campaign(folder / "ours", HUGE, only)
        print_row(name, runs, median([ours(*DRY, *options) for _ in range(rounds)]))


def measure_finished(folder: Path, rounds: int) -> None:
    """A head that goes through every step, and the plan of what is finished, with nothing to do."""
    callers = campaign(folder / "ours", FINISHED), bare_workflow(folder / "bare", FINISHED)
    print_head("finished campaign", "runs")
    for call in callers:
        make_outputs(call)
    print_row("every step through the head (`--touch`)", FINISHED.runs, *(call(*TOUCH) for call in callers))
    costs = [[call(*DRY) for call in callers] for _ in range(rounds)]
    print_row("nothing to do", FINISHED.runs, *map(median, zip(*costs, strict=True)))
    for call in callers:
        assert "Nothing to be done" in call.output("--dry-run"), "a finished campaign has something to do"


PARTS = {"whole": measure_whole, "slices": measure_slices, "finished": measure_finished}


# --- campaigns ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Caller:
    """Snakemake in a folder, with the options that name the campaign."""

    folder: Path
    options: tuple[str, ...]

    def __call__(self, *options: str) -> Cost:
        """One call, measured; ends the program when it fails."""
        started = time.monotonic()
        with subprocess.Popen(
            self.command(options), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            errors = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(errors.decode()[-2000:])
        return Cost(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)

    def output(self, *options: str) -> str:
        """What one call prints."""
        command = self.command(options)
        done = subprocess.run(command, cwd=self.folder, stdout=-1, stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout if done.returncode == 0 else sys.exit(done.stdout[-2000:])

    def command(self, options: Sequence[str]) -> list[str]:
        """Python's own start of Snakemake; targets stand last, behind a ``--``."""
        return [sys.executable, "-c", SNAKEMAKE, "--cores", "200", *self.options, *options]


def campaign(folder: Path, matrix: Matrix, only: dict[str, Any] | None = None) -> Caller:
    """A campaign of copies of one card and one agent, as the real Snakefile plans it."""
    folder.mkdir(exist_ok=True)
    for name in OF_THE_WORKFLOW:
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    card = (ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text()
    agent = yaml.safe_load((ROOT / "config/agents.yaml").read_text())["agents"]["my-model"]
    (folder / "cards").mkdir(exist_ok=True)
    for task in matrix.names["tasks"]:
        text = card.replace("id: bccd-det-task", f"id: {task}").replace("name: bccd\n", f"name: {task}\n")
        (folder / f"cards/{task}.yaml").write_text(text)
    (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": dict.fromkeys(matrix.names["agents"], agent)}))
    own = {"agents_file": "agents.yaml", "cards": ["cards"], "matrix": matrix.names, "only": only or {}}
    data = {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")}
    (folder / "own.yaml").write_text(yaml.safe_dump({**own, "data": data}))
    return Caller(folder, ("--configfile", "config/config.yaml", "own.yaml"))


def bare_workflow(folder: Path, matrix: Matrix) -> Caller:
    """The same graph with nothing but files."""
    folder.mkdir(exist_ok=True)
    (folder / "Snakefile").write_text(BARE.format(**matrix.names))
    triggers = ("--rerun-triggers", "mtime", "params", "input", "--scheduler", "greedy")
    return Caller(folder, triggers)


def make_outputs(call: Caller) -> None:
    """Empty files, all of one date, in place of everything that the workflow would write."""
    now = time.time()
    for line in call.output("--summary", "--quiet").splitlines():
        path = call.folder / line.partition("\t")[0]
        if line.endswith(("update pending", "no update")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (now, now))


# --- tables ---------------------------------------------------------------------------------------------------


def print_head(what: str, count: str) -> None:
    """The first two lines of a table of costs."""
    print(f"\n| {what} | {count} | wall s | CPU s | peak MB | bare engine: wall s | CPU s | peak MB | CPU ÷ bare |")
    print("|---|---|---|---|---|---|---|---|---|")


def print_row(name: str, runs: int, ours: Cost, bare: Cost | None = None) -> None:
    """One line of it."""
    costs = [f"{cost.wall_s:.1f} | {cost.cpu_s:.1f} | {cost.peak_mb:.0f}" for cost in (ours, bare) if cost]
    cells = [*costs, f"{ours.cpu_s / bare.cpu_s:.2f}"] if bare else [*costs, "", "", "", ""]
    print(f"| {name} | {runs:,} | {' | '.join(cells)} |", flush=True)


def print_submissions() -> None:
    """Slurm jobs by the number of runs, when nothing fails."""
    print(f"\n| runs | two jobs a run | agents, and scoring {BATCH} runs a job | only scoring, {BATCH} a job |")
    print("|---|---|---|---|")
    for runs in (*(matrix.runs for matrix in WHOLE), HUGE.runs):
        batches = -(-runs // BATCH)
        print(f"| {runs:,} | {2 * runs:,} | {runs + batches:,} | {batches:,} |")


def print_files(results: Path) -> None:
    """Files, folders and MB per finished run below a results folder, and for more runs."""
    folders = [path.parent for path in (results / "runs").rglob("score.json")]
    if not folders:
        sys.exit(f"no finished run below {results}/runs")
    within = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    size = sum(path.lstat().st_size for path in within if path.is_file()) / 1e6 / len(folders)
    each = len(within) / len(folders)
    print(f"\n| runs | files and folders of {len(folders)} finished runs' kind | MB |\n|---|---|---|")
    for runs in (1, *(matrix.runs for matrix in WHOLE), HUGE.runs):
        print(f"| {runs:,} | {each * runs:,.0f} | {size * runs:,.1f} |")


def median(costs: Sequence[Cost]) -> Cost:
    """Of each figure by itself."""
    figures = ([cost.wall_s, cost.cpu_s, cost.peak_mb] for cost in costs)
    return Cost(*map(statistics.median, zip(*figures, strict=True)))


if __name__ == "__main__":
    main()
