"""A campaign of scripted agents on a real Slurm whose head is killed: jobs, processor time, waiting, files per run.

    python benchmarks/bench_slurm.py --repeats 20            # 300 runs: 5 agents × 3 tasks × 20 repeats
    python benchmarks/bench_slurm.py --repeats 67            # 1 005 runs
    python benchmarks/bench_slurm.py --gpu-share 4           # 100 runs, four to a GPU that exists on paper

Call it in a clone with a ``.venv`` (``make setup``), as a user who may submit, on a Slurm with accounting:
``tests/setup/slurm.sh up --accounting slurmdbd --nodes 4 --cpus 64 --memory-mb 400000`` makes one of four nodes on one
machine. The agents are the demo's, in the local sandbox; the head is ``profiles/slurm/head.sbatch``. It is killed
(``kill -9``) and submitted again when a fifth and when half of the runs are scored; ``partial`` is called while the
head works. Prints one JSON line.

With ``--gpu-share`` the agents think and compute for times that ``bench_turns.py`` draws (75 s a run, four fifths of it
thinking), both asleep, in Apptainer (``images/``), and a job's card is a file that runs lock. Nothing is killed. Hours
are those of Slurm's accounting.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_turns import Turn, draw_run
from gpu_check import rehearse

TASKS = ("bccd-det-task", "vqa-rad-task", "demo-cxr-report-task")
AGENTS = ("careful", "hasty", "silent", "cheater", "crasher")
RESULTS = Path("results/slurm")
CAMPAIGN = Path("build/slurm.yaml")
WORKFLOW = ("--profile", "profiles/slurm", "--configfile", "demo/config.yaml", str(CAMPAIGN))
QUICK = (
    *("--latency-wait", "10", "--max-jobs-per-timespan", "50/1s", "--seconds-between-status-checks", "5"),
    *("--slurm-init-seconds-before-status-checks", "5"),
)
"""Four nodes on one machine see each other's files at once, and take jobs as fast as they are submitted."""
STEP = Path("scripts/run_agent.py")
THINKERS, REPEATS, TURNS, MINUTES = 25, 4, 12, 1.5
# In front of the step that runs agents: a card that is the job's alone, and a model that takes its time.
PAPER = """
import os, time
from pathlib import Path
from automedbench.agent.models import scripted
from automedbench.sandbox.container import gpus
from automedbench.sandbox.container.launcher import Devices
node = Path({place!r}, os.environ["SLURM_JOB_ID"])
node.touch()
card = gpus.Card("GPU-" + node.name, "paper card", (node,), 0)
for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
    os.environ.pop(name, None)
files = {{gpus.DRIVER_DIR + "/libcuda.so.1": node.with_name("libcuda.so.1")}}
devices = Devices((Path("/dev/full"),), files, {{"CUDA_VISIBLE_DEVICES": card.uuid}})
vars(gpus).update(list_cards=lambda: [card], list_devices=lambda cards: devices)
replies = scripted.scripted_reply

def think(turns, number, name):
    reply = replies(turns, number, name)
    time.sleep(float(reply.content if reply.calls else 0))
    return reply

scripted.scripted_reply = think
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=24, help="in the queue at a time")
    parser.add_argument("--gpu-share", type=int, metavar="K", help="runs that have the same GPU in turn")
    options = parser.parse_args()
    if options.gpu_share:
        print(json.dumps(share_gpus(options.gpu_share, options.jobs)))
        return
    shutil.rmtree(RESULTS, ignore_errors=True)
    CAMPAIGN.parent.mkdir(exist_ok=True)
    matrix = {"agents": AGENTS, "tasks": TASKS, "tiers": ["lite"], "repeats": options.repeats}
    CAMPAIGN.write_text(json.dumps({"matrix": matrix, "results": str(RESULTS)}))
    n_runs = len(AGENTS) * len(TASKS) * options.repeats
    since = datetime.now().strftime("%Y-%m-%dT%H:%M:%S")
    started, gaps = time.monotonic(), list[tuple[float, float]]()
    submit_head(options.jobs)
    for share, partial in ((0.2, False), (0.5, True)):
        wait_for(lambda share=share: scored() >= share * n_runs)  # type: ignore[misc]
        if partial:
            figures = call_partial()
        gaps.append((kill_head(), 0.0))
        submit_head(options.jobs)
        gaps[-1] = (gaps[-1][0], wait_for_head())
    wait_for(lambda: not jobs_in_queue("automedbench-head"))
    figures |= {"runs": n_runs, "scored": scored(), "minutes": round((time.monotonic() - started) / 60, 1)}
    print(json.dumps(figures | jobs(since, n_runs) | waits(gaps) | files(n_runs)))


def share_gpus(share: int, n_jobs: int) -> dict[str, Any]:
    """A campaign of agents that think and compute, ``share`` to a card: jobs, what they requested, GPU hours."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    chance = random.Random(20261128)
    alone = [draw_run(chance, 0.8, TURNS, MINUTES) for _ in range(THINKERS)]
    write_thinkers(alone, share)
    since, started = datetime.now().strftime("%Y-%m-%dT%H:%M:%S"), time.monotonic()
    with paper_cards():
        submit_head(n_jobs)
        wait_for(lambda: not jobs_in_queue("automedbench-head"))
    wall_min = (time.monotonic() - started) / 60
    used = [json.loads(path.read_text())["totals"]["exec_s"] for path in RESULTS.glob("runs/*/*/*/*/run.json")]
    jobs = jobs_with_gpus(since)
    hours = {name: sum(job["s"] * job[name] for job in jobs) / 3600 for name in ("gpu", "cpu", "mem")}
    return {
        "gpu_share": share,
        "runs": len(used),
        "attempts": sum(1 for _ in RESULTS.glob("runs/*/*/*/*/attempts/*")),
        "jobs": len(jobs),
        "cpus_and_gib_of_a_job": sorted({(job["cpu"], job["mem"]) for job in jobs}),
        "minutes": round(wall_min, 1),
        **{f"{name}_h": round(value, 2) for name, value in hours.items()},
        "held_by_computed": round(3600 * hours["gpu"] / sum(used), 2),
    }


def write_thinkers(runs: Sequence[Sequence[Turn]], share: int) -> None:
    """The campaign, and a script for each agent: the text of a turn is how long it thinks; its code sleeps, with the
    card open.
    """
    folder = CAMPAIGN.parent / "thinkers"
    folder.mkdir(parents=True, exist_ok=True)
    agents = {}
    for number, run in enumerate(runs):
        call = {"tool": "execute_code", "language": "bash"}
        turns = [
            {"content": f"{think:.2f}", "calls": [{**call, "code": f"sleep {work:.2f} </dev/fu*"}]}
            for think, work in run
        ]
        (script := folder / f"{number:02}.yaml").write_text(json.dumps(turns))
        agents[f"thinker-{number:02}"] = {"provider": "scripted", "script": str(script)}
    (folder / "agents.yaml").write_text(json.dumps({"agents": agents}))
    campaign = {
        "agents_file": str(folder / "agents.yaml"),
        "matrix": {"agents": list(agents), "tasks": TASKS[:1], "tiers": ["lite"], "repeats": REPEATS},
        "results": str(RESULTS),
        "sandbox": {"backend": "apptainer", "network": "sealed", "gpu": 1, "gpu_share": share},
        "containers": {"agent": {"image": "light"}},
    }
    CAMPAIGN.write_text(json.dumps(campaign))


@contextlib.contextmanager
def paper_cards() -> Iterator[None]:
    """Let the step that runs agents believe in a card for each job."""
    place, shipped, head = (
        CAMPAIGN.parent.absolute() / "cards",
        STEP.read_text(),
        "from __future__ import annotations\n",
    )
    place.mkdir(exist_ok=True)
    rehearse(place)  # makes the driver
    try:
        STEP.write_text(shipped.replace(head, head + PAPER.format(place=str(place)), 1))
        yield
    finally:
        STEP.write_text(shipped)


def jobs_with_gpus(since: str) -> list[dict[str, float]]:
    """What jobs of agents had, from the books of Slurm: seconds, CPUs, GiB, GPUs."""
    form = "--format=ElapsedRaw,AllocTRES"
    lines = subprocess.run(["sacct", "-nPX", "--starttime", since, form], capture_output=True, text=True, check=True)
    found = []
    for elapsed, resources in (line.split("|") for line in lines.stdout.splitlines() if "gres/gpu=" in line):
        kinds = dict(each.split("=") for each in resources.split(","))
        memory = float(kinds["mem"][:-1]) / {"G": 1, "M": 1024}[kinds["mem"][-1]]
        found.append(
            {"s": float(elapsed), "cpu": int(kinds["cpu"]), "mem": round(memory, 1), "gpu": int(kinds["gres/gpu"])}
        )
    return found


def submit_head(n_jobs: int) -> None:
    """Put a head into the queue."""
    command = ("sbatch", "-p", "cpu", "-t", "12:00:00", "profiles/slurm/head.sbatch", *WORKFLOW, *QUICK)
    subprocess.run([*command, "--jobs", str(n_jobs)], check=True, stdout=subprocess.DEVNULL)


def kill_head() -> float:
    """Kill the head's Snakemake at once; its job ends with it. Returns the time."""
    for process in heads():
        os.kill(process, signal.SIGKILL)
    return time.time()


def heads() -> list[int]:
    """Processes of Snakemake that plan and submit."""
    found = subprocess.run(
        ["pgrep", "-u", getpass.getuser(), "-f", "snakemake --slurm-jobname-prefix"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    return [int(each) for each in found if not unlocks(int(each))]


def unlocks(process: int) -> bool:
    try:
        return "--unlock" in Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return True


def wait_for_head() -> float:
    """Wait until a new head has planned and submits or gathers. Returns the time."""
    before = len(list(Path(".snakemake/log").glob("*.log")))
    wait_for(lambda: bool(heads()) and len(list(Path(".snakemake/log").glob("*.log"))) > before)
    return time.time()


def call_partial() -> dict[str, float]:
    """Build the provisional leaderboard beside the head."""
    started = time.monotonic()
    profile = ("--profile", "profiles/default", *WORKFLOW[2:])
    done = subprocess.run(
        ["snakemake", *profile, "--cores", "1", "partial"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"partial failed:\n{(done.stdout + done.stderr)[-2000:]}")
    rows = (RESULTS / "leaderboard" / "runs.csv").read_text().splitlines()
    return {"partial_runs": len(rows) - 1, "partial_s": round(time.monotonic() - started)}


def scored() -> int:
    return sum(1 for _ in RESULTS.glob("runs/*/*/*/*/score.json"))


def jobs_in_queue(name: str) -> list[str]:
    return subprocess.run(
        ["squeue", "--me", "--noheader", f"--name={name}", "--format=%i"], capture_output=True, text=True, check=True
    ).stdout.split()


def wait_for(reached: Callable[[], bool]) -> None:
    """Wait, and give up where nothing is left that could reach it."""
    while not reached():
        time.sleep(2)
        if not jobs_in_queue("automedbench-head") and not reached():
            raise SystemExit(f"the head ended with {scored()} scored runs: see slurm-head-*.out")


def jobs(since: str, n_runs: int) -> dict[str, float]:
    """Jobs and CPU seconds by what they are for, from the books of Slurm."""
    lines = subprocess.run(
        ["sacct", "-nPX", "--starttime", since, "--format=JobID,JobName,State,SubmitLine"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    kinds = {
        number: kind(name, state, submitted)
        for number, name, state, submitted in (line.split("|", 3) for line in lines)
    }
    steps = subprocess.run(
        ["sacct", "-nP", "--starttime", since, "--format=JobID,TotalCPU"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    cpu = dict.fromkeys(("run_agent", "scoring", "head", "preflight", "stage_task"), 0.0)
    for line in steps:
        number, used = line.split("|")
        if number.endswith(".batch") and (which := kinds.get(number.removesuffix(".batch"))) in cpu:
            cpu[which] += seconds(used)
    count = {which: list(kinds.values()).count(which) for which in (*cpu, "withdrawn")}
    return {f"jobs_{which}": number for which, number in count.items()} | {
        f"cpu_s_per_run_{which}": round(total / n_runs, 2) for which, total in cpu.items()
    }


def kind(name: str, state: str, submitted: str) -> str:
    """What a job was for, by its comment on the command line of sbatch."""
    if name == "automedbench-head":
        return "head"
    if state.startswith("CANCELLED"):
        return "withdrawn"
    rule = re.search(r"--comment rule_(run_agent|preflight|stage_task)", submitted)
    return rule[1] if rule else "scoring"


def seconds(used: str) -> float:
    """``[days-][hours:]minutes:seconds`` of sacct."""
    days, _, rest = used.rpartition("-")
    total = 0.0
    for part in rest.split(":"):
        total = 60 * total + float(part)
    return total + 86400 * float(days or 0)


def waits(gaps: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Seconds from the end of a run to its score; those that a time without a head lies in stand apart."""
    spans = [
        (p.with_name("run.json").stat().st_mtime, p.stat().st_mtime) for p in RESULTS.glob("runs/*/*/*/*/score.json")
    ]
    alone = [end - start for start, end in spans if not any(start < back and end > gone for gone, back in gaps)]
    return {
        "wait_s": quantiles([end - start for start, end in spans]),
        "wait_s_with_head": quantiles(alone),
        "over_300_s": sum(end - start > 300 for start, end in spans),
        "over_300_s_with_head": sum(each > 300 for each in alone),
        "without_head_s": [round(back - gone) for gone, back in gaps],
    }


def quantiles(values: Sequence[float]) -> list[int]:
    """Median, 95 %, largest."""
    ordered = sorted(values)
    return [round(statistics.median(ordered)), round(ordered[int(0.95 * (len(ordered) - 1))]), round(ordered[-1])]


def files(n_runs: int) -> dict[str, float]:
    """Files and kB per run in its folder, and second attempts."""
    found = [path for path in (RESULTS / "runs").rglob("*") if path.is_file()]
    attempts = sum(1 for path in (RESULTS / "runs").glob("*/*/*/*/attempts/0002") if path.is_dir())
    return {
        "files_per_run": round(len(found) / n_runs, 1),
        "kb_per_run": round(sum(path.stat().st_size for path in found) / n_runs / 1000),
        "second_attempts": attempts,
    }


if __name__ == "__main__":
    sys.exit(main())
