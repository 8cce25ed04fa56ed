"""What a finished run costs after its agent: five commands beside one process that does the same steps.

    python benchmarks/bench_steps.py [--campaign results/demo/campaign.json] [--run FOLDER] [--rounds 5]

After `make demo`, from the repository. The run is copied; nothing of the campaign is changed. CPU seconds are user and
system time with all children (containers, readers of code), medians over rounds that are interleaved; MiB is the
largest process. Bytecode is written first, as any first run does, unless PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("collect_submission", "audit_run", "score_metrics", "score_judge", "score_run")
Cost = tuple[float, float]
"""CPU seconds, largest MiB."""


def main() -> None:
    """Print the table; with ``--within``, be the process that does all steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaign", type=Path, default=Path("results/demo/campaign.json"))
    parser.add_argument("--run", type=Path, default=Path("results/demo/runs/careful/bccd-det-task/lite/r1"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.within:
        print(json.dumps([all_steps(options.campaign, options.run) for _ in range(2)]))
        return
    if not options.run.is_dir():
        raise SystemExit(f"{options.run} does not exist; run `make demo` first, or name a finished run with --run.")
    compileall.compile_dir(ROOT / "src", quiet=2)
    with tempfile.TemporaryDirectory(prefix="bench-steps-") as name:
        copy = Path(name, "runs", *options.run.parts[-4:])
        shutil.copytree(options.run, copy, symlinks=True)
        print(table([measured(options.campaign, copy) for _ in range(options.rounds)]))


def measured(campaign: Path, run: Path) -> dict[str, Cost]:
    """One round: every command, their sum, and both runs of one process."""
    options = ["--campaign", str(campaign), "--run", str(run)]
    costs = {f"`{step}.py`": command([str(ROOT / f"scripts/{step}.py"), *options])[0] for step in STEPS}
    together = sum(cpu for cpu, _ in costs.values()), max(peak for _, peak in costs.values())
    (_, peak), told = command([__file__, "--within", *options])
    first, following = json.loads(told.splitlines()[-1])
    return {
        **costs,
        "five commands": together,
        "one process, first run": (first, peak),
        "its next run": (following, peak),
    }


def command(words: list[str]) -> tuple[Cost, str]:
    """Cost and output of a Python program; raises SystemExit when it fails."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, *words], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"exit {process.returncode}: {' '.join(words)}")
        out.seek(0)
        return (usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), out.read().decode()


def all_steps(campaign: Path, run: Path) -> float:
    """CPU seconds of the five steps in this process since it began, or since the steps before."""
    before = _spent() if "automedbench" in sys.modules else 0.0
    record = importlib.import_module("automedbench.campaign.record").read_campaign(campaign)
    for step in STEPS:
        getattr(importlib.import_module(f"automedbench.steps.{step}"), step)(record, run)
    return _spent() - before


def _spent() -> float:
    """Of this process and of children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def table(rounds: list[dict[str, Cost]]) -> str:
    """Markdown: medians."""
    rows = [
        f"| {way} | {statistics.median(each[way][0] for each in rounds):.2f} | "
        f"{statistics.median(each[way][1] for each in rounds):.0f} |"
        for way in rounds[0]
    ]
    return "\n".join(["| | CPU s | MiB |", "|---|---|---|", *rows])


if __name__ == "__main__":
    main()
