"""Agents with and without a method through the real workflow: what is measured, and what they earn, as Markdown.

    python benchmarks/bench_gamers.py [--folder FOLDER] [--task TASK ...] [--cores N] [--kinds]

Exit status 1 when one is not as expected. Each agent is a scripted run in the local sandbox on a made-up task
(tests/effects). ``--kinds`` lists what there is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from effects.campaign import MOST_AGENTIC, Verdict, read_verdicts, write_campaign  # noqa: E402
from effects.kinds import GROUPS, Kind, load_kinds  # noqa: E402

HEAD = ("task", "group", "kind", "expected", "effect", "S1–S3", "agentic", "task score", "overall", "medal", "wrong")


def row(verdict: Verdict) -> list[str]:
    """Cells of one kind."""
    kind, scores = verdict.kind, verdict.score.scores
    stages = " ".join(f"{value:.2f}" for value in (scores.s1, scores.s2, scores.s3))
    numbers = [f"{value:.3f}" for value in (scores.agentic, scores.task, scores.overall)]
    cells = [kind.task, kind.group, kind.name, " or ".join(kind.expected), verdict.effect.verdict, stages, *numbers]
    return [*cells, verdict.score.medal, "; ".join(verdict.wrong)]


def run_campaign(folder: Path, kinds: Sequence[Kind], cores: int) -> int:
    """Write the campaign into ``folder`` and run it; returns Snakemake's exit status."""
    config = write_campaign(folder, kinds)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "SLURM_CONF": os.devnull}
    command = ["snakemake", "--executor", "automedbench", "--cores", str(cores), "--configfile", str(config)]
    return subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    parser.add_argument("--task", nargs="*", default=[])
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", action="store_true", help="list them and run nothing")
    options = parser.parse_args(arguments)
    kinds = [kind for kind in load_kinds() if not options.task or kind.task in options.task]
    if options.kinds:
        print("\n".join(f"{kind.task}: {kind.group}: {kind.name} ({' or '.join(kind.expected)})" for kind in kinds))
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = (options.folder or Path(made)).resolve()
        if status := run_campaign(folder, kinds, options.cores):
            return status
        verdicts = read_verdicts(folder, kinds)
    for cells in (HEAD, ["---"] * len(HEAD), *map(row, verdicts)):
        print("| " + " | ".join(cells) + " |")
    wrong = sum(bool(verdict.wrong) for verdict in verdicts)
    counts = ", ".join(f"{sum(kind.group == group for kind in kinds)} {group}" for group in GROUPS)
    through = [each for each in verdicts if each.kind.group == "gamers" and each.score.scores.agentic > MOST_AGENTIC]
    print(f"\n{counts}; {wrong} not as expected; {len(through)} unclear ones without a method keep the agentic half")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
